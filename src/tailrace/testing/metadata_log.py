"""`ScriptedMetadataLog`: the log of a quorum in memory, as its leader serves it to observers.

    batches      real ones, with checksums, as they lie in the segments of a controller
    watermark    what is committed; a test may hold it back
    snapshots    the image at an offset; batches before it may go

Not here: what the records mean (`cluster.control`), and connections (`controller`).

Invariant: offsets are those of Kafka: control records have one each, like data.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tailrace.cluster.metadata.batches import (
    BatchPlace,
    RecordToWrite,
    control_batch,
    data_batch,
)
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.served import SnapshotKey, SnapshotPart
from tailrace.cluster.metadata.snapshot import Snapshot, read_snapshot, write_snapshot
from tailrace.protocol.metadata_records import LeaderChangeMessage, Voter
from tailrace.records.batch import read_batches
from tailrace.records.control import ControlType


class LogBatch(NamedTuple):
    """A batch of the log."""

    offset: int
    next_offset: int
    epoch: int
    data: bytes


class ScriptedMetadataLog:
    """Batches and snapshots, with the questions that a Fetch asks of them."""

    def __init__(self) -> None:
        self.batches: list[LogBatch] = []
        self.snapshots: dict[SnapshotKey, bytes] = {}
        self.log_start = 0
        self.watermark = 0
        """The offset after the last committed record."""

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.batches[-1].next_offset if self.batches else self.log_start

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; 0 before the first."""
        if self.batches:
            return self.batches[-1].epoch
        return max((each.epoch for each in self.snapshots), default=0)

    def append(self, records: Iterable[RecordToWrite], *, epoch: int, now_ms: int) -> LogBatch:
        """Append data records as one batch; they are not committed yet."""
        place = BatchPlace(self.end_offset, epoch, now_ms)
        taken = tuple(records)
        return self._add(data_batch(taken, place), place, len(taken))

    def begin_epoch(
        self, epoch: int, *, leader: int, voters: Sequence[int], now_ms: int
    ) -> LogBatch:
        """Append the LeaderChange with which a leader begins its epoch."""
        place = BatchPlace(self.end_offset, epoch, now_ms)
        named = tuple(Voter(voter_id=each) for each in voters)
        record = LeaderChangeMessage(
            version=0, leader_id=leader, voters=named, granting_voters=named
        )
        return self._add(control_batch([(ControlType.LEADER_CHANGE, record)], place), place, 1)

    def _add(self, data: bytes, place: BatchPlace, count: int) -> LogBatch:
        assert place.epoch >= self.last_epoch, "epochs only rise"
        self.batches.append(LogBatch(place.offset, place.offset + count, place.epoch, data))
        return self.batches[-1]

    def commit(self, offset: int) -> None:
        """Count what is before `offset` as committed."""
        self.watermark = max(self.watermark, min(offset, self.end_offset))

    def lose_uncommitted(self) -> None:
        """Cut the log at the watermark: the next leader did not have the rest."""
        self.batches = [each for each in self.batches if each.next_offset <= self.watermark]

    def snapshot(self, image: MetadataImage, *, now_ms: int, cuts: bool = True) -> SnapshotKey:
        """Save the image at the watermark; `cuts` removes the batches before it."""
        before = [each for each in self.batches if each.next_offset <= self.watermark]
        key = SnapshotKey(self.watermark, before[-1].epoch if before else self.last_epoch)
        content = Snapshot(image=image, log_timestamp=now_ms)
        self.snapshots[key] = write_snapshot(content, epoch=key.epoch, timestamp=now_ms)
        if cuts:
            self.batches = self.batches[len(before) :]
            self.log_start = self.watermark
            # As Kafka: with an older one as its earliest it would answer an observer that is
            # at the log start in an older epoch with that epoch's end, below what is committed.
            self.snapshots = {key: self.snapshots[key]}
        return key

    def replay(self, *, is_committed: bool = False) -> MetadataReplay:
        """The state at the end of the log, or at the watermark, read back from its bytes."""
        replay = MetadataReplay()
        if self.log_start:
            key = max(each for each in self.snapshots if each.end_offset <= self.log_start)
            image = read_snapshot(memoryview(self.snapshots[key])).image
            replay = MetadataReplay(image, next_offset=key.end_offset, epoch=key.epoch)
        end = self.watermark if is_committed else self.end_offset
        for each in self.batches:
            if each.next_offset > end:
                break
            for _, batch in read_batches(memoryview(each.data)):
                replay.see(batch)
        return replay

    # -- what a Fetch asks --------------------------------------------------------------------

    def snapshot_keys(self) -> Sequence[SnapshotKey]:
        """The snapshots, oldest first."""
        return sorted(self.snapshots)

    def read_snapshot(self, key: SnapshotKey, position: int, size_max: int) -> SnapshotPart | None:
        """Bytes of a snapshot from a position on; None: there is no such snapshot."""
        data = self.snapshots.get(key)
        return None if data is None else SnapshotPart(len(data), data[position:][:size_max])

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is not above `epoch`, and the offset after its last record."""
        found, end = 0, 0
        for key in sorted(self.snapshots):
            if key.epoch <= epoch and key.end_offset <= self.log_start:
                found, end = key.epoch, key.end_offset
        for each in self.batches:
            if each.epoch > epoch:
                break
            found, end = each.epoch, each.next_offset
        return found, end

    def read(self, offset: int, *, size_max: int) -> bytes:
        """Bytes from the batch that has `offset`: one whole batch, and more up to `size_max`."""
        first = bisect_right([each.next_offset for each in self.batches], offset)
        out = bytearray()
        for each in self.batches[first:]:
            if out and len(out) >= size_max:
                break
            out += each.data
        if first < len(self.batches):
            # Cut anywhere, also inside of a batch, as a file is sent; but not inside the first.
            del out[max(size_max, len(self.batches[first].data)) :]
        return bytes(out)
