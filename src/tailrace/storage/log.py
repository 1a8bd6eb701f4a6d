"""A partition's log: append, read, find by time, roll, flush, close.

This module calls the others in the right order; the rules are in them: `appends` checks batches,
`positions` has the offsets, `producers` has sequences and transactions, `rolling` decides when a
segment is full, `segment` reads and writes files, `shrink` makes a log shorter.

One writer per log, synchronous: an append is a write to the page cache and takes microseconds.
`sync_rolled`, `sync` and `commit` wait for the device and may be called from another thread, as
may reads.

After a crash of the process everything appended is in the page cache, so nothing is lost. After a
crash of the machine everything below the recovery point is there, and of the rest an unbroken
prefix (promise 2), after `recovery` has cut the tail.
"""

import errno
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tailrace.config.settings import INT32_MAX
from tailrace.errors import (
    CorruptionError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    StorageError,
)
from tailrace.model import (
    NO_TIMESTAMP,
    AppendOrigin,
    LeaderEpoch,
    Offset,
    TopicPartition,
)
from tailrace.records.batch import Batch
from tailrace.records.control import end_transaction_marker_or_none
from tailrace.records.untaken import TakeBatches, leave_all
from tailrace.storage import names, reads
from tailrace.storage.appends import (
    PlannedAppend,
    apply_stamps,
    placed,
    plan_append,
    plan_built,
    plan_follower_append,
)
from tailrace.storage.config import LogConfig
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.folder import PartitionFolder
from tailrace.storage.index.transaction import AbortedTxn
from tailrace.storage.positions import Positions, ReadLimit
from tailrace.storage.producers import AbortedSequenceError, KnownBatch, ProducerStates
from tailrace.storage.reads import ReadSlice
from tailrace.storage.rolling import RollFacts, pick_jitter_ms, roll_reason, room_or_none
from tailrace.storage.segment import Segment, SegmentAppend, create_segment
from tailrace.storage.segments import Segments
from tailrace.storage.verification import VerificationGuard

NO_ABORTS: tuple[AbortedTxn, ...] = ()
SYNC_FAILED = "an earlier flush has failed; restart the broker to recover"
CLOSED = "the log is closed"


class LogAppendInfo(NamedTuple):
    """The result of an append: the offsets of the batch."""

    base_offset: Offset
    last_offset: Offset
    log_append_time: int
    """The broker's timestamp in milliseconds, or -1 if the records keep the producer's.

    For a duplicate of a batch in the log: the largest timestamp of that batch, also with
    CreateTime.
    """
    log_start_offset: Offset


class Log:
    """One partition, open for reading and writing; `recovery.open_log` makes it."""

    def __init__(
        self,
        *,
        folder: PartitionFolder,
        config: LogConfig,
        segments: Segments,
        positions: Positions,
        epochs: LeaderEpochs,
        producers: ProducerStates,
    ) -> None:
        self.folder = folder
        self.config = config
        """Replaced as a whole when the topic's settings change; the next call acts on it."""
        self.segments = segments
        self.positions = positions
        self.epochs = epochs
        self.producers = producers
        self.last_sync_ms = folder.clock.now_ms()
        """When the whole log was last put on the device, or opened."""
        self.on_rolled: Callable[[Log], None] = lambda _: None
        """Called when a new segment has become active: the segments before it can be flushed."""
        self.successor: Log | None = None
        """After a move to another directory: the log there, which has all records on the device."""
        self.is_leaving = False
        """Whether the folder is being renamed by a move. A file that another thread does not find
        then is no failure of the device."""
        self.is_shrinking = False
        """Whether retention or a follower's cut is removing segments, with steps on threads: one at
        a time, or each would find files gone that the other has renamed."""
        self._jitter_ms = pick_jitter_ms(config, folder.chance)
        self._failed_roll: Offset | None = None
        """The offset at which a roll has failed: files of that segment may exist."""
        self._failure: str | None = None
        # The newest segment whose name `commit` has put on the device.
        self._named: Segment | None = None

    @property
    def partition(self) -> TopicPartition:
        return self.folder.partition

    @property
    def size(self) -> int:
        """Bytes of log in all segments."""
        return self.segments.size

    @property
    def start_offset(self) -> Offset:
        """The first offset a reader may ask for."""
        return self.positions.log_start

    @property
    def end_offset(self) -> Offset:
        """The offset that the next record gets."""
        return self.positions.log_end

    def append(
        self,
        records: memoryview,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        raises_epoch: bool = False,
    ) -> LogAppendInfo:
        """Append one batch as leader; `records` is stamped in place and must be writable.

        When this returns the batch is in the page cache; consumers can read it once the high
        watermark has passed it. A duplicate from an idempotent producer is not written; the result
        has the offsets of the first append. The first batch of a transaction needs the `guard` from
        `ProducerStates.begin_verification`, if `Verifications.is_required`. `raises_epoch` as in
        `ProducerStates.check`.

        Raises:
            CorruptionError, InvalidRecordError, InvalidTimestampError, RecordTooLargeError,
            UnsupportedCodecError: as `appends.plan_append`; the log is unchanged.
            InvalidProducerEpochError, ProducerSequenceError, InvalidTransactionStateError,
            CoordinatorFencedError: as `ProducerStates.check`; the log is unchanged.
            OSError: the device is full or failing; the log is unchanged. One exception: if the end
                of an aborted transaction cannot be written to the transaction index, the log
                refuses every further call, and the next start recovers it.
        """
        self.check_usable()
        planned = plan_append(
            records,
            config=self.config,
            next_offset=self.end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            origin=origin,
        )
        return self.append_planned(
            planned,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            origin=origin,
            guard=guard,
            raises_epoch=raises_epoch,
        )

    def append_planned(
        self,
        planned: PlannedAppend,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        raises_epoch: bool = False,
    ) -> LogAppendInfo:
        """Append a batch that `plan_append` has checked earlier.

        It is appended at the current log end, which may differ from the planned one, and
        LogAppendTime is `now_ms`. Settings that changed after planning are not applied to it.
        Raises as `append`, without the errors of `plan_append`.
        """
        self.check_usable()
        next_offset = self.positions.log_end
        if (
            # Planned on a worker thread perhaps: others have appended since. Only offsets, epoch
            # and time have to follow, since the checks do not depend on them.
            planned.base_offset != next_offset
            or planned.leader_epoch != leader_epoch
            or (planned.is_append_time and planned.max_timestamp != now_ms)
        ):
            planned = placed(
                planned, next_offset=next_offset, leader_epoch=leader_epoch, now_ms=now_ms
            )
        batch, base_offset, last_offset, _, max_timestamp, is_append_time = planned
        if batch.producer_id >= 0:
            # Before the roll: a duplicate writes nothing, so it must not begin a segment either.
            known = self.producers.check(
                batch, origin=origin, guard=guard, raises_epoch=raises_epoch
            )
            if known is not None:
                self._check_not_aborted(batch, known)
                return _appended_before(known, log_start_offset=self.start_offset)
        if self.must_roll(
            batch.size, last_offset=last_offset, max_timestamp=max_timestamp, now_ms=now_ms
        ):
            self.roll(base_offset)
        # In memory only: the checkpoint may lag until the next flush, because recovery reads the
        # epochs of what is not flushed from the batches.
        epochs = self.epochs.entries
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        try:
            self.segments.active.append(
                # The CRC does not cover base offset and epoch, so the received bytes are written as
                # they are. Kafka too notes the last offset of the batch for its largest timestamp.
                SegmentAppend(apply_stamps(planned), last_offset, max_timestamp, last_offset)
            )
        except BaseException:
            self.epochs.restore(epochs)
            raise
        # After the write: a reader on another thread must not look for bytes that are not there
        # yet.
        self.positions.advance_end(Offset(last_offset + 1))
        if batch.producer_id >= 0:
            self._note_producer(
                batch,
                base_offset=base_offset,
                last_offset=last_offset,
                max_timestamp=max_timestamp,
                now_ms=now_ms,
            )
        return LogAppendInfo(
            base_offset,
            last_offset,
            max_timestamp if is_append_time else NO_TIMESTAMP,
            self.positions.log_start,
        )

    def append_as_follower(
        self, records: memoryview, *, now_ms: int, epoch_max: int = INT32_MAX
    ) -> Offset:
        """Append a leader's batches with their offsets and epochs; returns the new log end.

        The leader has checked sizes, timestamps and sequences. Offsets may have gaps, which
        compaction leaves. Batches of leader epochs above `epoch_max` are left out.

        Raises:
            CorruptionError: a CRC does not hold, bytes are no batch, or a marker cannot be read;
                the log is unchanged.
            InvalidRecordError: offsets that do not rise; the log is unchanged.
            UnexpectedAppendOffsetError: offsets below the log end; the log is unchanged.
            RecordTooLargeError: more bytes than `segment.bytes`; the log is unchanged.
            OSError: as `append`.
        """
        self.check_usable()
        planned = plan_follower_append(
            records, log_end=self.end_offset, log_start=self.start_offset, epoch_max=epoch_max
        )
        if not planned.noted:
            return self.end_offset
        # Several batches of a leader are one append, which has to fit one segment.
        if len(planned.data) > self.config.segment_bytes:
            raise RecordTooLargeError(
                len(planned.data), limit=self.config.segment_bytes, setting="segment.bytes"
            )
        for batch in planned.noted:
            if batch.is_control:
                # A marker that cannot be read must be refused before it is in the log.
                end_transaction_marker_or_none(batch)
        if self.must_roll(
            len(planned.data),
            last_offset=planned.last_offset,
            max_timestamp=planned.max_timestamp,
            now_ms=now_ms,
        ):
            self.roll(planned.first_offset)
        epochs = self.epochs.entries
        try:
            for batch in planned.noted:
                if batch.leader_epoch >= 0:
                    self.epochs.assign(batch.leader_epoch, batch.base_offset)
                # Formats v0 and v1 have no epoch. As in Kafka the epochs are cleared, so that the
                # next truncation goes by the high watermark instead of by epochs that lack these
                # batches.
                elif batch.legacy is not None:
                    self.epochs.clear()
                    self.epochs.save()
            self.segments.active.append(
                SegmentAppend(
                    data=planned.data,
                    last_offset=planned.last_offset,
                    max_timestamp=planned.max_timestamp,
                    max_timestamp_offset=planned.max_timestamp_offset,
                )
            )
        except BaseException:
            # The leader may send batches of older epochs when it is asked again.
            self.epochs.restore(epochs)
            self._undo_roll_over_gap()
            raise
        self.positions.advance_end(Offset(planned.last_offset + 1))
        for batch in planned.noted:
            if batch.producer_id >= 0:
                self._note_producer(
                    batch,
                    base_offset=batch.base_offset,
                    last_offset=batch.last_offset,
                    max_timestamp=batch.max_timestamp,
                    now_ms=now_ms,
                )
        return self.end_offset

    def _check_not_aborted(self, batch: Batch, known: KnownBatch) -> None:
        """Refuse a batch that repeats one whose transaction was aborted.

        Raises:
            AbortedSequenceError: it is one.
            CorruptionError: a transaction index is damaged.
        """
        # By the indexes, which outlive a restart, unlike what is known of the producer.
        if not batch.is_transactional or known.last_offset < self.start_offset:
            return
        later = self.segments.from_offset(known.last_offset)
        limit = Offset(known.last_offset + 1)
        for each in reads.aborted_between(later, known.last_offset, limit):
            if each.producer_id == batch.producer_id:
                raise AbortedSequenceError(
                    batch.producer_id, sequence=batch.base_sequence, offset=known.base_offset
                )

    def read(
        self,
        offset: int,
        *,
        bytes_max: int,
        is_first_whole: bool,
        limit: ReadLimit = ReadLimit.HIGH_WATERMARK,
    ) -> ReadSlice:
        """Batches from the one with `offset` on, at most `bytes_max` bytes, from one segment.

        Empty at the limit. With `is_first_whole` the first batch is whole even if it is larger than
        `bytes_max`, so that a consumer can always make progress (KIP-74).

        Raises:
            OffsetOutOfRangeError: below the log start offset or above the log end offset.
            CorruptionError: bytes that cannot be the start of a batch.
            StorageError: the log has failed.
        """
        self.check_usable()
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(
                offset, log_start_offset=self.start_offset, log_end_offset=self.end_offset
            )
        # Read once: another thread may advance it between the two uses.
        limit_offset = self.positions.limit(limit)
        records, aborted, is_first_incomplete = None, NO_ABORTS, False
        if offset < limit_offset:
            start = Offset(offset)
            records, above, is_first_incomplete = reads.slice_from(
                self.segments,
                start,
                limit_offset=limit_offset,
                bytes_max=bytes_max,
                is_first_whole=is_first_whole,
                # A replica has to have every batch that its leader has.
                skips_empty=limit is not ReadLimit.LOG_END,
                # For read_committed: list only aborted transactions that overlap the bytes.
                bounds_closely=limit is ReadLimit.LAST_STABLE,
            )
            if limit is ReadLimit.LAST_STABLE:
                later = self.segments.from_offset(start)
                aborted = reads.aborted_between(later, start, above)
        return ReadSlice(
            records=records,
            log_start_offset=self.start_offset,
            high_watermark=self.positions.high_watermark,
            last_stable_offset=self.positions.last_stable,
            aborted=aborted,
            is_first_incomplete=is_first_incomplete,
        )

    def batches(self, offset: int, take: TakeBatches = leave_all) -> Iterator[Batch]:
        """Every batch from the one with `offset` on, up to the log end, that `take` leaves.

        Raises:
            CorruptionError: bytes that cannot be the start of a batch.
        """
        return reads.batches_from(self.segments, Offset(offset), take)

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset`; returns whether it has changed."""
        if not self.positions.advance_high_watermark(Offset(offset)):
            return False
        # The producers first: whether a marker is replicated decides where the last stable offset
        # is.
        self.producers.advance_high_watermark(self.positions.high_watermark)
        self.positions.settle_last_stable(self.producers.first_unstable_offset)
        return True

    def must_roll(self, size: int, *, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a new segment has to begin before an append of `size` bytes with these values."""
        active = self.segments.active
        room = active.room
        if (
            room is not None
            and room.config is self.config
            and active.log.size + size <= room.size_bytes
            and max_timestamp <= room.timestamp
            and last_offset <= room.offset
        ):
            return self._failed_roll is not None
        if active.created_ms is None:
            # The first append after a start, or after a cut that emptied the segment.
            active.created_ms = now_ms
        try:
            first_timestamp = active.first_timestamp
        except CorruptionError:
            # Found when it is read; it must not keep others from being appended.
            first_timestamp = None
        facts = RollFacts(
            active.log.size,
            active.base_offset,
            first_timestamp,
            active.created_ms,
            active.index_room > 0,
            self._jitter_ms,
        )
        reason = roll_reason(
            facts,
            incoming_bytes=size,
            incoming_last_offset=last_offset,
            incoming_max_timestamp=max_timestamp,
            config=self.config,
            now_ms=now_ms,
        )
        active.room = room_or_none(facts, config=self.config)
        return self._failed_roll is not None or reason is not None

    def roll(self, base_offset: int = 0) -> Segment:
        """Close the active segment and begin a new one at the log end offset.

        If `base_offset` is larger, as for a follower, the new segment begins there. If the active
        segment is empty and begins at that offset, it stays. A producer snapshot is written too.
        Nothing is synced here: the listener of `on_rolled` calls `sync_rolled` on another thread.

        Raises:
            OSError: the new segment cannot be created; the next append tries again before it
                writes.
        """
        self.check_usable()
        at = Offset(max(base_offset, self.end_offset))
        active = self.segments.active
        assert at >= active.base_offset
        # A new segment would have the same name.
        if not active.size and active.base_offset == at:
            return active
        # The file of the new segment may exist from now on. If this fails, the old segment must not
        # grow past the new base offset, or the next start would find overlapping segments.
        if self._failed_roll not in {None, at}:
            self.forget_failed_roll()
        self._failed_roll = at
        segment = create_segment(self.folder, at, config=self.config)
        try:
            active.finish()
            # Kafka writes one at each roll too: a start reads the newest, and only the batches
            # after it.
            self.producers.write_snapshot(at)
        except OSError:
            segment.close()
            raise
        self.segments.add(segment)
        self._jitter_ms = pick_jitter_ms(self.config, self.folder.chance)
        self._failed_roll = None
        self.on_rolled(self)
        return segment

    def _undo_roll_over_gap(self) -> None:
        """Treat a roll above the log end as failed, because the batch after the gap is not there.

        The next batch may begin at the log end: this replica may have to lead.
        """
        active = self.segments.active
        if active.base_offset > self.end_offset:
            self._failed_roll = active.base_offset
            self.segments.remove([active])
            active.close()

    def forget_failed_roll(self) -> bool:
        """Remove what a roll that failed has left, before the log ends elsewhere; whether it did.

        Else the log grows past that offset one day, and the next start finds overlapping segments.
        The names are not synced.

        Raises:
            OSError: a file cannot be renamed.
        """
        if self._failed_roll is None:
            return False
        paths = [
            f"{self.folder.path}/{names.segment_file_name(self._failed_roll, suffix)}"
            for suffix in names.SEGMENT_SUFFIXES
        ]
        # The snapshot would be taken for the state at that offset when the log has come to it.
        paths += self.producers.snapshots.remove_at([self._failed_roll])
        self.folder.retire(filter(self.folder.files.exists, paths), delay_ms=0)
        self._failed_roll = None
        return True

    def sync_rolled(self) -> None:
        """Sync every segment but the active one, as `sync`, and release what no segment needs."""
        self.sync(self.segments.active.base_offset)
        for segment in tuple(self.segments):
            segment.rest()

    def sync(self, limit: int | None = None) -> None:
        """Sync the segments that begin below `limit`, or all, and advance the recovery point to it.

        Raises:
            OSError: the device failed, now or at an earlier call; or it is full, or descriptors are
                short, and the next call tries again. The recovery point stays.
        """
        now_ms = self.folder.clock.now_ms()
        is_whole = limit is None
        limit = self.end_offset if limit is None else limit
        self.check_usable()
        # Before the syncs: if the log is cut meanwhile, other records may have these offsets, and
        # the recovery point must not cover them.
        cut_count = self.positions.cut_count
        due = [
            each
            for each in _unsynced(self.segments, self.positions.recovery_point)
            if each.base_offset < limit
        ]
        for segment in due:
            # A full disk refuses these writes. No fsync has failed then, so the log continues.
            _in_service(self.segments, segment, segment.write_entries)
        try:
            for segment in due:
                _in_service(self.segments, segment, segment.sync)
            self.producers.snapshots.sync(self.segments.active.base_offset)
            # After the files: a name without its bytes would be a segment to recover.
            self.folder.files.sync_directory(self.folder.path)
        except OSError as error:
            self._note_failed_flush(error)
            raise
        self.check_usable()
        # Epochs first: a start does not rebuild them below the recovery point. If the disk is full
        # here, the flush has not failed: the log continues, and the recovery point stays.
        self.epochs.save()
        self.positions.advance_recovery_point(Offset(limit), cut_count=cut_count)
        if is_whole:
            self.last_sync_ms = now_ms

    def commit(self) -> None:
        """Sync every record appended so far, but no index (group commit).

        The recovery point does not move: after a crash of the machine, a start checks these
        segments and rebuilds their indexes. The records are there.

        Raises:
            OSError: the device failed, now or at an earlier call; or descriptors are short, and the
                next call tries again.
        """
        self.check_usable()
        newest = self.segments.active
        try:
            for segment in _unsynced(self.segments, self.positions.recovery_point):
                _in_service(self.segments, segment, segment.log.sync)
            # Once for each segment: fsync of a folder costs as much as that of a file.
            if newest is not self._named:
                self.folder.files.sync_directory(self.folder.path)
                self._named = newest
        except OSError as error:
            self._note_failed_flush(error)
            raise
        # If the log was closed meanwhile, some files were not synced.
        self.check_usable()

    def _note_failed_flush(self, error: OSError) -> None:
        """Close the log, unless a file could not be opened for want of descriptors."""
        # No fsync fails for that. After one that has failed the kernel marks the pages clean: a
        # second one would do nothing and report success.
        if error.errno not in {errno.EMFILE, errno.ENFILE}:
            self._failure = self._failure or SYNC_FAILED

    def finish(self) -> None:
        """Complete and trim the indexes of the active segment, and write a producer snapshot.

        Nothing may be appended afterwards.

        Raises:
            OSError: the files cannot be completed.
        """
        self.check_usable()
        self.segments.active.finish()
        self.epochs.save()
        self.producers.write_snapshot(self.end_offset, is_synced=True)

    def fail(self, reason: str) -> None:
        """Close the log after a failure such as a failed flush; every later call is refused."""
        self._failure = reason
        self.close()

    def close(self) -> None:
        """Release all files; does not wait for the device. May be called twice.

        Every later call is refused; slices that were returned stay valid.
        """
        # The first reason stays: a log that has failed is closed afterwards.
        self._failure = self._failure or CLOSED
        for segment in self.segments:
            segment.close()

    def check_usable(self) -> None:
        """Check that the log is open and has not failed.

        Raises:
            StorageError: it is closed, or it has failed and the next start recovers it.
        """
        if self._failure is not None:
            raise StorageError(errno.EIO, self._failure, self.folder.path)

    def _note_producer(
        self,
        batch: Batch,
        *,
        base_offset: Offset,
        last_offset: Offset,
        max_timestamp: int,
        now_ms: int,
    ) -> None:
        """Update producer state, transaction index and last stable offset after an append."""
        completed = self.producers.note(
            batch,
            base_offset=base_offset,
            last_offset=last_offset,
            timestamp=max_timestamp,
            now_ms=now_ms,
        )
        if completed is not None:
            if completed.is_aborted:
                # The index before the producers: while the transaction is open, no reader comes
                # this far.
                aborted = AbortedTxn(
                    producer_id=completed.producer_id,
                    first_offset=completed.first_offset,
                    last_offset=completed.last_offset,
                    last_stable_offset=self.producers.last_stable_offset(completed),
                )
                try:
                    self.segments.active.transactions.append(aborted)
                except OSError:
                    # Without the index entry readers would take the aborted records for committed.
                    self._failure = (
                        "an aborted transaction could not be written to the transaction index; "
                        "restart the broker to recover"
                    )
                    raise
            self.producers.complete(completed)
        if batch.is_transactional:
            self.positions.settle_last_stable(self.producers.first_unstable_offset)


def append_built(
    log: Log,
    built: memoryview,
    *,
    leader_epoch: LeaderEpoch,
    now_ms: int,
    guard: VerificationGuard | None = None,
    raises_epoch: bool = False,
) -> LogAppendInfo:
    """Append a batch that a coordinator of this process has built; see `appends.plan_built`.

    The log and its files are then as after `Log.append` with the origin COORDINATOR, and it raises
    the same errors.
    """
    log.check_usable()
    planned = plan_built(
        built,
        config=log.config,
        next_offset=log.end_offset,
        leader_epoch=leader_epoch,
        now_ms=now_ms,
    )
    return log.append_planned(
        planned,
        leader_epoch=leader_epoch,
        now_ms=now_ms,
        origin=AppendOrigin.COORDINATOR,
        guard=guard,
        raises_epoch=raises_epoch,
    )


def is_flush_due(log: Log) -> bool:
    """Whether at least `flush.messages` records are not known to be on the device."""
    return log.end_offset - log.positions.recovery_point >= log.config.flush_messages


def has_failed(log: Log) -> bool:
    """Whether a log refuses every call from now on."""
    try:
        log.check_usable()
    except StorageError:
        return True
    return False


def _unsynced(segments: Segments, recovery_point: int) -> Iterator[Segment]:
    """The segments that are not known to be completely on the device.

    This may include the segment that ends at the recovery point: it was flushed while active, and
    finished later.
    """
    return (
        each for each in segments.from_offset(Offset(recovery_point - 1)) if not each.is_settled
    )


def _in_service(segments: Segments, segment: Segment, work: Callable[[], None]) -> None:
    """Do a step of a segment's flush; ignore an error if it has left service meanwhile."""
    try:
        work()
    except OSError:
        # Retention or compaction has closed it: EBADF or ENOENT then mean no failed device.
        if segment in segments:
            raise


def _appended_before(known: KnownBatch, *, log_start_offset: Offset) -> LogAppendInfo:
    return LogAppendInfo(
        base_offset=known.base_offset,
        last_offset=known.last_offset,
        log_append_time=known.timestamp,
        log_start_offset=log_start_offset,
    )
