"""Open and aborted transactions, whose records readers of committed records skip.

Both are found as a broker finds them when it starts: from the newest snapshot of producers and the
batches after it, and from the transaction indexes.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from operator import itemgetter
from typing import NamedTuple

from tailrace.errors import CorruptionError, UnsupportedCodecError
from tailrace.model import OFFSET_MAX, LeaderEpoch, Offset, Position, ProducerId
from tailrace.reading.listing import SegmentFiles, open_sibling
from tailrace.reading.lookup import position_near
from tailrace.reading.producers import ProducerWalk
from tailrace.records.batch import Batch
from tailrace.runtime.files import File, Files
from tailrace.storage import names
from tailrace.storage.index.transaction import AbortedTxn, TransactionIndex
from tailrace.storage.segment_walk import Sound, walk_segment
from tailrace.storage.snapshots import list_snapshots, read_snapshot, snapshot_path
from tailrace.storage.walk import walk_batches
from tailrace.values import dataclass


class AbortedRecords:
    """The aborted transactions of a partition; tells which batches belong to one."""

    def __init__(self, aborted: Sequence[AbortedTxn]) -> None:
        self._by_producer: dict[ProducerId, list[tuple[Offset, Offset]]] = defaultdict(list)
        for each in aborted:
            self._by_producer[each.producer_id].append((each.first_offset, each.last_offset))

    def has(self, batch: Batch) -> bool:
        """Whether the batch is data of a transaction that was aborted."""
        # A marker itself lies after its transaction's data, and says nothing that a reader could
        # skip.
        if not batch.is_transactional or batch.is_control:
            return False
        # A producer has one transaction at a time, so its spans do not overlap.
        spans = self._by_producer.get(batch.producer_id, [])
        number = bisect_right(spans, batch.base_offset, key=itemgetter(0)) - 1
        return number >= 0 and batch.base_offset <= spans[number][1]


def find_aborted(files: Files, segments: Sequence[SegmentFiles], offset: Offset) -> AbortedRecords:
    """Read the aborted transactions from `offset` on from the transaction indexes.

    Beside a broker the caller makes sure that the files keep still: to miss one is to show what was
    aborted.

    Raises:
        CorruptionError: an index is damaged.
        OSError: an index cannot be read.
    """
    found: list[AbortedTxn] = []
    for segment in segments:
        file = open_sibling(files, segment, names.TRANSACTION_INDEX_SUFFIX)
        path = segment.sibling(names.TRANSACTION_INDEX_SUFFIX)
        index = TransactionIndex(files, path, base_offset=segment.base_offset, file=file)
        try:
            index.check()
            found += index.collect(offset, OFFSET_MAX)[0]
        finally:
            index.close()
    return AbortedRecords(found)


class SeenBatch(NamedTuple):
    """A batch as far as it differs from another one that took its place."""

    base_offset: Offset
    leader_epoch: LeaderEpoch
    crc: int

    @classmethod
    def of(cls, batch: Batch) -> "SeenBatch":
        return cls(batch.base_offset, batch.leader_epoch, batch.crc)


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """The transactions that are open at the end of a log, as its files tell."""

    walk: ProducerWalk
    """State of the producers after the batches up to there; not to be changed."""
    next_offset: Offset
    """After the last batch that was looked at."""
    last: SeenBatch | None = None
    """The last batch that was looked at; None if all is from a snapshot."""

    @property
    def first_offset(self) -> Offset | None:
        """First offset of the oldest open transaction, the last stable offset; None without one."""
        return self.walk.first_open


def find_open_transactions(
    files: Files,
    folder: str,
    segments: Sequence[SegmentFiles],
    *,
    end: Offset,
    known: OpenTransactions | None = None,
    steps_over_damage: bool = False,
) -> OpenTransactions:
    """The transactions that are open at `end`, where the log ends.

    From what is `known` of the same log when it was shorter, or else from the newest snapshot that
    can be read, and the batches after it. A snapshot beyond the end is of a tail that was lost,
    and recovery removes it. The walk ends at damage, or with `steps_over_damage` continues after
    it: a transaction whose marker is damaged stays open then.

    Raises:
        OSError: a file cannot be read.
    """
    last = None if known is None else known.last
    # A log that was truncated since the last look, or is another one of that name, may be longer
    # again: its producers are not those known.
    if known is None or last is None or not _has(files, segments, last):
        walk, start = _newest_snapshot(files, folder, end)
        last = None
    else:
        walk, start = known.walk.copy(), known.next_offset
    seen: Batch | None = None
    for number, segment in enumerate(segments):
        following = segments[number + 1 : number + 2]
        # All of this segment lies before the start, since the next one begins there or before.
        if following and following[0].base_offset <= start:
            continue
        limit = following[0].base_offset if following else None
        file = files.open(segment.path, read_only=True)
        try:
            # After a snapshot only the rest of the segment is read.
            near = position_near(files, segment, file, offset=start)
            for _, batch in _sound_batches(
                file, segment, limit, start=near, steps_over_damage=steps_over_damage
            ):
                # `position_near` is the index's entry before the offset, so some batches come too
                # early.
                if batch.base_offset < start:
                    continue
                if batch.has_producer:
                    walk.see(batch)
                start, seen = batch.next_offset, batch
        except (CorruptionError, UnsupportedCodecError):
            break  # A broker would not get past it either.
        finally:
            file.close()
    return OpenTransactions(walk, start, last if seen is None else SeenBatch.of(seen))


def _has(files: Files, segments: Sequence[SegmentFiles], wanted: SeenBatch) -> bool:
    """Whether a log still has a batch where it was."""
    number = bisect_right(segments, wanted.base_offset, key=lambda each: each.base_offset) - 1
    if number < 0:
        return False
    segment = segments[number]
    with closing(files.open(segment.path, read_only=True)) as file:
        near = position_near(files, segment, file, offset=wanted.base_offset)
        try:
            for _, batch in walk_batches(file, segment.path, start=near, limit=segment.size):
                if batch.base_offset >= wanted.base_offset:
                    return SeenBatch.of(batch) == wanted
        except CorruptionError:
            pass  # All is read again from a snapshot, up to the damage.
    return False


def _newest_snapshot(files: Files, folder: str, end: Offset) -> tuple[ProducerWalk, Offset]:
    """The producers by the newest snapshot up to `end`, and its offset."""
    walk = ProducerWalk()
    for offset in reversed(list_snapshots(files, folder)):
        if offset > end:
            continue
        try:
            walk.start_from(read_snapshot(files, snapshot_path(folder, offset)))
        except (CorruptionError, FileNotFoundError):
            continue  # A broker may have just deleted it; an older one costs a longer walk.
        return walk, offset
    return walk, Offset(0)


def _sound_batches(
    file: File,
    segment: SegmentFiles,
    following: Offset | None,
    *,
    start: Position,
    steps_over_damage: bool,
) -> Iterator[tuple[int, Batch]]:
    """Position and batch from a position on; what is damaged is left out, or an error."""
    if not steps_over_damage:
        yield from walk_batches(file, segment.path, start=start, limit=segment.size)
        return
    for found in walk_segment(
        file,
        segment.path,
        base_offset=segment.base_offset,
        size=segment.size,
        following=following,
        start=start,
    ):
        if isinstance(found, Sound):
            yield from found.batches()
