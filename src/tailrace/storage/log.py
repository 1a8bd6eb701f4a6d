"""A partition's log: append, read, find by time, roll, flush, close.

Owns the order of calls, and no rules: what may enter is `appends`, where offsets stand is
`positions`, which batch was sent before is `producers`, what a file holds is `segment`.

One writer per log, synchronous: an append is a write to the page cache and costs microseconds.
`sync_rolled` and `sync` wait for the device and may be called from another thread, as may reads.

After a crash of the process: everything appended is in the page cache, so nothing is lost.
After a crash of the machine: what lies below the recovery point is there, and of the rest an
unbroken prefix (promise 2), once `recovery` has cut the tail.
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.errors import OffsetOutOfRangeError, StorageError
from tailrace.model import NO_LEADER_EPOCH, NO_TIMESTAMP, SpecialTimestamp, TopicPartition
from tailrace.records.batch import Batch
from tailrace.records.search import find_timestamp
from tailrace.runtime.files import Files
from tailrace.storage.appends import PlannedAppend, apply_stamps, plan_append
from tailrace.storage.config import LogConfig
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.index.time import TimestampOffset
from tailrace.storage.positions import Positions
from tailrace.storage.producers import KnownBatch, ProducerStates
from tailrace.storage.segment import Segment, SegmentAppend, open_segment
from tailrace.storage.segments import Segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Where a batch went."""

    base_offset: int
    last_offset: int
    log_append_time: int
    """The broker's timestamp in milliseconds, or -1 where records keep their own.

    Of a batch that was in the log before: its largest timestamp, on either kind of topic.
    """
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSlice:
    """A run of bytes of one segment that starts with the batch holding the offset asked for."""

    view: memoryview
    """Mapped, not copied; may end inside a batch, which the reader drops."""
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


class Log:
    """One partition, open for reading and writing; `recovery.open_log` makes it."""

    def __init__(
        self,
        *,
        partition: TopicPartition,
        directory: str,
        files: Files,
        config: LogConfig,
        segments: Segments,
        positions: Positions,
        epochs: LeaderEpochs,
        producers: ProducerStates,
    ) -> None:
        self.partition = partition
        self.directory = directory
        self.positions = positions
        self.epochs = epochs
        self.producers = producers
        self.segments = segments
        self._files = files
        self._config = config
        self._is_roll_due = False
        self._has_sync_failed = False

    @property
    def size(self) -> int:
        """Bytes of log in all segments."""
        return self.segments.size

    @property
    def start_offset(self) -> int:
        """The first offset a reader may ask for."""
        return self.positions.log_start

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.positions.log_end

    def append(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> Appended:
        """Write one batch as its leader; `records` is stamped in place and must be writable.

        When this returns the batch is in the page cache and readable. A batch that an idempotent
        producer sends again is not written again; the answer says where it went the first time.

        Raises:
            CorruptionError, InvalidRecordError, InvalidTimestampError, RecordTooLargeError,
            UnsupportedCodecError: as `appends.plan_append`; the log is unchanged.
            InvalidProducerEpochError, OutOfOrderSequenceError: as `ProducerStates.check`; the log
                is unchanged.
            OSError: the device is full or failing; the log is unchanged.
        """
        planned = plan_append(
            records,
            config=self._config,
            next_offset=self.end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
        )
        batch = planned.batch
        if batch.producer_id >= 0:
            known = self.producers.check(batch)
            if known is not None:
                return self._appended_before(known)
        if self._must_roll(planned):
            self.producers.expire(now_ms)
            self.roll()
        self.epochs.assign(leader_epoch, planned.base_offset)
        self.segments.active.append(
            SegmentAppend(
                data=apply_stamps(planned),
                last_offset=planned.last_offset,
                max_timestamp=planned.max_timestamp,
                max_timestamp_offset=planned.last_offset,
            )
        )
        self.positions.advance_end(planned.last_offset + 1)
        if batch.producer_id >= 0:
            self.producers.note(
                batch,
                last_offset=planned.last_offset,
                timestamp=planned.max_timestamp,
                now_ms=now_ms,
            )
        time = planned.log_append_time_or_none
        return Appended(
            base_offset=planned.base_offset,
            last_offset=planned.last_offset,
            log_append_time=NO_TIMESTAMP if time is None else time,
            log_start_offset=self.start_offset,
        )

    def read(self, offset: int, *, bytes_max: int, is_first_whole: bool) -> ReadSlice:
        """Batches from the one that holds `offset` on, at most `bytes_max` bytes, of one segment.

        Empty at the high watermark. With `is_first_whole` the first batch comes whole even if it
        is larger than `bytes_max`, so that a consumer always gets on (KIP-74).

        Raises:
            OffsetOutOfRangeError: below the log start offset or above the log end offset.
            CorruptionError: bytes that cannot be the start of a batch.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(
                offset, log_start_offset=self.start_offset, log_end_offset=self.end_offset
            )
        view = memoryview(b"")
        if offset < self.positions.high_watermark:
            view = self._slice(offset, bytes_max=bytes_max, is_first_whole=is_first_whole)
        return ReadSlice(
            view=view,
            log_start_offset=self.start_offset,
            high_watermark=self.positions.high_watermark,
            last_stable_offset=self.positions.last_stable,
        )

    def batches(self, offset: int) -> Iterator[Batch]:
        """Every batch from the one that holds `offset` on.

        Raises:
            CorruptionError: bytes that cannot be the start of a batch.
        """
        for segment in self.segments.from_offset(offset):
            for _, batch in segment.batches(offset):
                yield batch

    def find_offset(self, timestamp: int) -> tuple[TimestampOffset, int] | None:
        """Timestamp and offset of the record that ListOffsets asks for, and its leader epoch.

        For a timestamp of 0 or more: the first record that is at least as young. None when there
        is none. The special timestamps are those of `SpecialTimestamp`; the answers for the two
        ends of the log carry timestamp -1.

        Raises:
            CorruptionError: the batch that holds the answer is damaged.
        """
        match timestamp:
            case SpecialTimestamp.EARLIEST | SpecialTimestamp.EARLIEST_LOCAL:
                start = self.start_offset
                return TimestampOffset(NO_TIMESTAMP, start), self.epochs.at(start)
            case SpecialTimestamp.LATEST:
                end = self.positions.high_watermark
                return TimestampOffset(NO_TIMESTAMP, end), self.epochs.latest
            case SpecialTimestamp.LATEST_TIERED:
                return TimestampOffset(NO_TIMESTAMP, -1), NO_LEADER_EPOCH
            case SpecialTimestamp.MAX_TIMESTAMP:
                timestamp = max(segment.newest.timestamp for segment in self.segments)
                if timestamp == NO_TIMESTAMP:
                    return None
        found = self._first_at_or_after(timestamp)
        return None if found is None else (found, self.epochs.at(found.offset))

    def roll(self) -> Segment:
        """Close the active segment and begin a new one at the log end offset.

        An active segment without a batch is the new one already. The state of the producers is
        written beside it; like the segment, it gets to the device in the device's own time.

        Raises:
            OSError: the new segment cannot be made; the next append tries again before it writes.
        """
        if not self.segments.active.size:
            return self.segments.active
        # The file of the new segment may exist from now on. Should this fail, the old segment must
        # not grow past the new one's base offset, or the next start would find an overlap.
        self._is_roll_due = True
        segment = open_segment(
            self._files,
            self.directory,
            base_offset=self.end_offset,
            config=self._config,
            create=True,
        )
        try:
            self.segments.active.finish()
        except OSError:
            segment.close()
            raise
        self.producers.write_snapshot(self.end_offset)
        self.segments.add(segment)
        self._is_roll_due = False
        return segment

    def sync_rolled(self) -> None:
        """Put every segment but the active one on the device and advance the recovery point.

        Raises:
            OSError: the device failed, now or at an earlier call; the recovery point stays.
        """
        self._sync(self.segments.active.base_offset)

    def sync(self) -> None:
        """Put the whole log on the device and advance the recovery point to the log end offset.

        Raises:
            OSError: the device failed, now or at an earlier call; the recovery point stays.
        """
        self._sync(self.end_offset)

    def finish(self) -> None:
        """Complete and trim the indexes of the active segment, and write a snapshot of producers.

        Nothing may be appended after.

        Raises:
            OSError: the indexes cannot be completed.
        """
        self.segments.active.finish()
        self.producers.write_snapshot(self.end_offset, is_synced=True)

    def close(self) -> None:
        """Release all files; does not wait for the device."""
        for segment in self.segments:
            segment.close()

    def _sync(self, limit: int) -> None:
        if self._has_sync_failed:
            # What a failed fsync left out is lost to the page cache: a second would find nothing
            # to do and report success.
            raise StorageError(
                errno.EIO, "an earlier flush has failed; start again to recover", self.directory
            )
        try:
            for segment in self.segments.from_offset(self.positions.recovery_point):
                if segment.base_offset < limit:
                    segment.sync()
            self._files.sync_directory(self.directory)
        except OSError:
            self._has_sync_failed = True
            raise
        self.positions.advance_recovery_point(limit)

    def _must_roll(self, planned: PlannedAppend) -> bool:
        active = self.segments.active
        return (
            self._is_roll_due
            or active.size > self._config.segment_bytes - planned.batch.size
            or active.offset_index.is_full
            or active.time_index.is_full
            or not active.can_hold(planned.last_offset)
        ) and active.size > 0

    def _appended_before(self, known: KnownBatch) -> Appended:
        return Appended(
            base_offset=known.base_offset,
            last_offset=known.last_offset,
            log_append_time=known.timestamp,
            log_start_offset=self.start_offset,
        )

    def _slice(self, offset: int, *, bytes_max: int, is_first_whole: bool) -> memoryview:
        for segment in self.segments.from_offset(offset):
            for position, batch in segment.batches(offset):
                size = min(bytes_max, segment.size - position)
                if is_first_whole:
                    size = max(size, batch.size)
                return segment.log.view(position, position + size)
        return memoryview(b"")

    def _first_at_or_after(self, timestamp: int) -> TimestampOffset | None:
        for segment in self.segments:
            if segment.newest.timestamp < timestamp:
                continue
            start = segment.time_index.lookup(timestamp).offset
            for _, batch in segment.batches(max(start, self.start_offset)):
                if batch.max_timestamp < timestamp or batch.is_control:
                    continue
                batch.check()
                found = find_timestamp(batch, timestamp, start_offset=self.start_offset)
                if found is not None:
                    return TimestampOffset(found.timestamp, found.offset)
        return None
