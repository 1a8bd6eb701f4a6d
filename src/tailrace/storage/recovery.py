"""Open a partition's folder as a `Log`, and recover it after a crash, as Kafka's LogLoader does.

    folder                          what is done with it
    .cleaned and .swap files        dropped or completed, see `cleaner.swap`
    .deleted files of segments      removed
    0…0.log .index .timeindex       opened
    index without its .log          deleted
    .log without an index, or with  that segment is recovered
      an index that does not fit
    170.log after an unclean stop   recovered, if it reaches beyond the recovery point
    170.snapshot                    the newest is read, and the batches after it; see `producers`

Recovery of a segment checks each batch (CRC, rising offsets), rewrites all indexes, and cuts the
file after the last good batch. If anything was cut, the segments after it leave service: records
after a hole are not a prefix of what was appended (promise 2). A crash of the machine can also lose
a tail that ends between two batches. Then no batch is torn, but the next segment begins too late,
and it leaves service too.

Zeros at the end of a closed segment come from preallocation, if the next segment continues without
a gap: they are cut, and no segment leaves service. Otherwise they replace lost batches, also on a
compacted topic.

A gap alone is no damage, because compaction leaves gaps. It counts as a lost tail only if this
directory has had the log since it was created, and neither a checkpoint nor a batch shows that it
was ever compacted (docs/decisions/0020-a-gap-is-no-damage.md).

No byte of a log is lost: cut bytes and segments are set aside (`set_aside`), and logged with the
count of their records. `tailrace log repair` restores those that fit.

Bytes that were on the device before the crash are not cut: all segments but the last after an
orderly stop, and everything below the recovery point. Damage there is bit rot, not a torn tail, and
the batches after it are sound. It is logged, readers get an error, and `tailrace log repair` can
skip it.

Recovery can be interrupted at any point and repeated. Therefore the segments after a cut are set
aside first, the last one first, and the file is cut afterwards: the damage tells the next run that
they must leave service.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import closing

from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.errors import CorruptionError, UnsupportedCodecError
from tailrace.model import NO_TIMESTAMP, Offset, Position
from tailrace.records.batch import Batch
from tailrace.runtime.files import Files
from tailrace.storage import evidence, names, set_aside
from tailrace.storage.cleaner import swap
from tailrace.storage.config import DAY_MS, LogConfig
from tailrace.storage.epochs import LeaderEpochs, open_leader_epochs, write_epochs
from tailrace.storage.folder import PartitionFolder
from tailrace.storage.index import offset as offset_index
from tailrace.storage.index import time as time_index
from tailrace.storage.index.time import TimestampOffset
from tailrace.storage.index.transaction import AbortedTxn
from tailrace.storage.log import Log
from tailrace.storage.losses import RecordTotal, count_records
from tailrace.storage.positions import Positions
from tailrace.storage.producers import ProducerStates, open_producers
from tailrace.storage.records_file import RecordsFile
from tailrace.storage.segment import Segment, open_segment
from tailrace.storage.segments import Segments
from tailrace.values import dataclass, replace

logger = logging.getLogger(__name__)

INDEX_SUFFIXES = (
    names.OFFSET_INDEX_SUFFIX,
    names.TIME_INDEX_SUFFIX,
    names.TRANSACTION_INDEX_SUFFIX,
)


class _OverflowError(Exception):
    """A segment has offsets that do not fit the 31 bits of its indexes.

    Kafka before 1.0.2 wrote such segments when it compacted (KAFKA-6264).
    """

    def __init__(self, whole_bytes: int) -> None:
        self.whole_bytes = whole_bytes
        """End of the last whole batch, as a position in the file."""
        super().__init__()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCut:
    """Bytes that recovery took out of service, and the reason."""

    path: str
    position: int
    bytes_cut: int
    reason: str
    kept: str | None = None
    """The file that has the bytes now; None if they were zeros."""
    records: int = 0
    """Records in these bytes: those of sound batches, and those of damaged ones as far as headers
    or missing offsets tell."""
    unknown_ranges: int = 0
    """Damaged ranges in these bytes of which nobody knows how many records they had."""
    offset: int = 0
    """The first offset of these bytes."""
    next_offset: int | None = None
    """The offset of the next segment; None if there was none."""


def open_log(
    folder: PartitionFolder,
    *,
    config: LogConfig,
    is_clean: bool,
    checkpoints: tuple[int, int | None] = (0, 0),
    high_watermark: int | None = None,
    may_have_gaps: bool = False,
    producer_expiration_ms: int = DAY_MS,
    report: Callable[[LogCut], None] | None = None,
) -> Log:
    """Open a partition's folder for reading and writing; the folder may be empty.

    `is_clean` says that the last stop was orderly, so indexes and tail can be trusted.
    `checkpoints` are the recovery point and the log start offset of the directory; the latter is
    None if its file cannot be read. `high_watermark` is that of its checkpoint; None: this is the
    only replica, so that everything it has is committed. `may_have_gaps` says that offsets may be
    missing although the topic is not compacted now. `report` is called with everything that is cut.

    A `leader-epoch-checkpoint` that is malformed, or lacks the epochs that batches have, is
    rewritten from the batches.

    Raises:
        CorruptionError: the epoch checkpoint is malformed or lost, and the epochs of the batches
            contradict each other; or a segment written by compaction is damaged.
        OSError: a file cannot be opened, read or written.
    """
    return _LogOpening(
        folder,
        config=config,
        is_clean=is_clean,
        checkpoints=checkpoints,
        high_watermark=high_watermark,
        may_have_gaps=may_have_gaps or config.is_compacted,
        producer_expiration_ms=producer_expiration_ms,
        report=report or (lambda _: None),
    ).open()


class _LogOpening:
    """One call of `open_log`: its arguments and its state."""

    def __init__(
        self,
        folder: PartitionFolder,
        *,
        config: LogConfig,
        is_clean: bool,
        checkpoints: tuple[int, int | None],
        high_watermark: int | None,
        may_have_gaps: bool,
        producer_expiration_ms: int,
        report: Callable[[LogCut], None],
    ) -> None:
        self._folder = folder
        self._files = folder.files
        self._config = config
        self._is_clean = is_clean
        self._recovery_point, self._noted_start = checkpoints
        self._log_start = self._noted_start or 0
        self._high_watermark = high_watermark
        self._may_have_gaps = may_have_gaps
        self._producer_expiration_ms = producer_expiration_ms
        self._report = report
        self._epochs = LeaderEpochs(folder.files, folder.path, ())
        # Producer state after the last opened segment; None if no segment was recovered.
        self._producers: ProducerStates | None = None

    def open(self) -> Log:
        # First: until then two sets of segments claim the same offsets.
        swap.finish_swaps(self._files, self._folder.path)
        bases = _remove_leftovers(self._files, self._folder.path)
        self._epochs = self._open_epochs(bases)
        if bases and self._noted_start is None:
            self._log_start = self._start_by_epochs(bases[0], reason="its checkpoint is malformed")
        opened = self._open_segments(bases)
        if not opened:
            opened.append(self._new_segment(self._log_start))
        # Of the last one that is left, after everything after a cut is gone.
        log_end = opened[-1].next_offset()
        if log_end < self._log_start and self._is_of_another_life(opened):
            reason = f"the checkpoint has {self._log_start}, and the log ends at {log_end}"
            self._log_start = self._start_by_epochs(opened[0].base_offset, reason=reason)
            self._producers = None
        log_start = max(self._log_start, opened[0].base_offset)
        if log_end < log_start:
            # DeleteRecords removed everything below the log start, and the tail is lost: the log
            # restarts there.
            for segment in opened:
                segment.close()
            self._drop(
                [segment.base_offset for segment in opened],
                reason=f"it lies below the log start offset {log_start}",
            )
            opened = [self._new_segment(log_start)]
            log_end = Offset(log_start)
            self._producers = None
            self._epochs.clear()
            self._epochs.save()
        if self._is_clean and self._recovery_point > log_end:
            logger.error(
                "log_end_lost path=%s log_end=%d flushed=%d reason=all up to the second offset was "
                "on the device at the last stop, which was orderly",
                self._folder.path, log_end, self._recovery_point,
            )  # fmt: skip
        # The epochs were saved at a flush: those of a lost tail would answer OffsetForLeaderEpoch
        # with offsets that are given out again.
        if self._epochs.cut_end(log_end):
            # Before the log takes records, which may begin other epochs at these offsets.
            self._epochs.save()
        self._epochs.cut_start(Offset(log_start))
        segments = Segments(opened)
        producers = self._producers
        if producers is None:
            producers = self._open_producers(segments, log_end)
        producers.offer_snapshot(log_end)
        # With other replicas, what was above it at the checkpoint may be committed by now, or may
        # have been replaced: the leader says.
        noted = log_end if self._high_watermark is None else min(self._high_watermark, log_end)
        high_watermark = Offset(max(noted, log_start))
        producers.advance_high_watermark(high_watermark)
        positions = Positions(
            log_start=Offset(log_start),
            recovery_point=Offset(min(self._recovery_point, log_end)),
            last_stable=high_watermark,
            high_watermark=high_watermark,
            log_end=log_end,
        )
        positions.settle_last_stable(producers.first_unstable_offset)
        for segment in opened:
            segment.created_ms = self._folder.clock.now_ms()
            segment.rest()
        return Log(
            folder=self._folder,
            config=self._config,
            segments=segments,
            epochs=self._epochs,
            producers=producers,
            positions=positions,
        )

    def _open_epochs(self, bases: list[int]) -> LeaderEpochs:
        """The leader epochs; rebuilt from the batches if their checkpoint is malformed or lost."""
        folder = self._folder.path
        try:
            found = open_leader_epochs(self._files, folder)
            # Else recovery reads all batches, and adds their epochs.
            is_due = bases and (self._is_clean or self._recovery_point > bases[0])
            first = None
            if is_due and not found.entries:
                first = evidence.first_batch(self._files, folder, bases[0])
            # They are saved before the recovery point moves. Without them a follower would be cut
            # to a high watermark that may lag, below what is committed.
            if first is None or first.leader_epoch < 0:
                return found
            reason = f"{folder}/{names.LEADER_EPOCHS} has no epochs, and the batches have"
        except CorruptionError as error:
            reason = str(error)
        entries = evidence.epochs_of_batches(self._files, folder, bases)
        logger.warning("epochs_rebuilt from=batches epochs=%d reason=%s", len(entries), reason)
        return write_epochs(self._files, folder, entries)

    def _start_by_epochs(self, first_base: int, *, reason: str) -> int:
        """The log start from the log's own files, which is logged: it may undo a DeleteRecords."""
        first = evidence.first_batch(self._files, self._folder.path, first_base)
        start = evidence.start_by_epochs(
            self._files, self._folder.path, first_base=first_base, first=first
        )
        logger.warning(
            "log_start_rebuilt path=%s offset=%d reason=%s", self._folder.path, start, reason
        )
        return start

    def _is_of_another_life(self, opened: Sequence[Segment]) -> bool:
        """Whether a checkpointed log start beyond the log end belongs to an earlier log.

        The epoch checkpoint of the same log would confirm it, because it is written first.
        """
        has_records = any(segment.size for segment in opened)
        return has_records and not evidence.is_of_this_log(
            self._files, self._folder.path, self._log_start
        )

    def _open_segments(self, bases: list[int]) -> list[Segment]:
        """The segments that stay in service, with sound indexes; sets aside those after a cut."""
        opened: list[Segment] = []
        waiting = list(bases)
        while waiting:
            base = waiting.pop(0)
            has_indexes = _has_indexes(self._files, self._folder.path, base)
            segment = open_segment(
                self._files, self._folder.path, base_offset=Offset(base), config=self._config
            )
            is_last = not waiting
            # A segment is whole on the device if the next one begins at or below the recovery
            # point.
            is_on_device = self._is_clean or (not is_last and waiting[0] <= self._recovery_point)
            # A segment that ends at the recovery point was flushed while active, and may have been
            # finished after that.
            checks_end = is_last or waiting[0] == self._recovery_point
            is_cut = False
            # Nothing of it is read but the ends of its indexes: that is what makes a start fast.
            if is_on_device and has_indexes and _is_sound(segment, checks_end=checks_end):
                self._producers = None
            else:
                try:
                    is_cut = self._recover(segment, opened, waiting, is_on_device=is_on_device)
                except _OverflowError as error:
                    self._cut_tail(segment, error.whole_bytes, is_last=is_last)
                    segment.close()
                    # Only compaction makes such segments.
                    self._may_have_gaps = True
                    waiting[:0] = swap.split_overflowed(
                        self._files, self._folder.path, base_offset=base, config=self._config
                    )
                    continue
            opened.append(segment)
            if is_cut:
                break
            if not is_last:
                segment.finish()
        return opened

    def _recover(
        self, segment: Segment, opened: list[Segment], later: list[int], *, is_on_device: bool
    ) -> bool:
        """Recover the segment after `opened`; True if it was cut and is the last one now."""
        producers = self._producers
        if producers is None:
            producers = self._open_producers(Segments(opened or [segment]), segment.base_offset)
            # A crash during this recovery begins again from here.
            producers.offer_snapshot(segment.base_offset)
        cut = recover_segment(
            segment,
            self._config,
            producers=producers,
            epochs=self._epochs,
            limit_offset=later[0] if later else INT64_MAX,
            may_have_gaps=self._may_have_gaps,
        )
        self._producers = producers
        may_be_padded = bool(later) or self._config.is_preallocated
        limit = later[0] if later else None
        if cut and may_be_padded and _is_padded(self._files, segment, cut, limit=limit):
            # The file was preallocated, and a crash came before its end was cut.
            logger.info(
                "padding_cut path=%s position=%d bytes=%d", cut.path, cut.position, cut.bytes_cut
            )
            segment.log.truncate(Position(cut.position))
            cut = None
        if cut is not None and later and is_on_device:
            # The segment and those after it were on the device: keep them, readers get an error.
            logger.error(
                "segment_damaged path=%s position=%d repair=tailrace_log_repair reason=%s",
                cut.path, cut.position, cut.reason,
            )  # fmt: skip
            return False
        is_cut = cut is not None or (
            bool(later) and not is_on_device and self._is_tail_lost(segment, later)
        )
        if later and is_cut:
            self._drop(later, reason="a batch before this segment was lost")
        if cut is not None:
            self._cut(segment, cut)
        if later and not is_cut:
            producers.write_snapshot(Offset(later[0]))
        return is_cut

    def _is_tail_lost(self, segment: Segment, later: Sequence[int]) -> bool:
        """Whether there is a gap before the next segment that compaction does not explain."""
        end = segment.next_offset()
        if end == later[0] or self._may_have_gaps:
            return False
        folder = self._folder.path
        bases = [
            parsed[0]
            for name in self._files.list(folder)
            if (parsed := names.parse_segment_file_name(name)) and parsed[1] == names.LOG_SUFFIX
        ]
        self._may_have_gaps = evidence.was_compacted(self._files, folder, bases)
        if self._may_have_gaps:
            logger.info("gap_kept path=%s offsets=%d..%d", folder, end, later[0] - 1)
        return not self._may_have_gaps

    def _cut(self, segment: Segment, cut: LogCut) -> None:
        """Cut a log file, after its tail was copied to a set-aside file on the device."""
        # The copy is on the device before the bytes leave the log, so a crash loses neither.
        path, base, start = segment.log.path, segment.base_offset, cut.position
        target = f"{self._folder.path}/{names.set_aside_file_name(base, start)}"
        kept = set_aside.keep_bytes(
            self._files, path, position=start, limit=segment.log.size, target=target
        )
        self._files.sync_directory(self._folder.path)
        self._report_cut(cut, kept)
        segment.log.truncate(Position(start))

    def _cut_tail(self, segment: Segment, size: int, *, is_last: bool) -> None:
        """Cut a partial batch at the end of a segment that has to be split."""
        bytes_cut = segment.log.size - size
        if is_last and bytes_cut:
            reason = "the last batch is not whole"
            self._cut(
                segment,
                LogCut(
                    path=segment.log.path,
                    position=size,
                    bytes_cut=bytes_cut,
                    reason=reason,
                    offset=segment.base_offset,
                ),
            )

    def _open_producers(self, segments: Segments, log_end: Offset) -> ProducerStates:
        return open_producers(
            self._files,
            self._folder.path,
            segments=segments,
            log_start=Offset(max(self._log_start, segments.first.base_offset)),
            log_end=log_end,
            expiration_ms=self._producer_expiration_ms,
        )

    def _new_segment(self, base_offset: int) -> Segment:
        return open_segment(
            self._files,
            self._folder.path,
            base_offset=Offset(base_offset),
            config=self._config,
            create=True,
        )

    def _drop(self, base_offsets: Sequence[int], *, reason: str) -> None:
        """Set segments aside, the last one first, so that a crash leaves no hole between them."""
        folder = self._folder.path
        limits = [*base_offsets[1:], None][: len(base_offsets)]
        for base_offset, limit in reversed([*zip(base_offsets, limits, strict=True)]):
            path = evidence.log_path(folder, base_offset)
            file = self._files.open(path, read_only=True)
            size = file.size()
            is_blank = set_aside.is_blank(file, path, start=0, limit=size)
            file.close()
            kept = None
            # Preallocated, or lost by the device: there is nothing to keep.
            if is_blank:
                self._files.remove(path)
            else:
                target = f"{folder}/{names.set_aside_file_name(base_offset, 0)}"
                kept = set_aside.move_file(self._files, path, target)
            cut = LogCut(
                path=path,
                position=0,
                bytes_cut=size,
                reason=reason,
                offset=base_offset,
                next_offset=limit,
            )
            self._report_cut(cut, kept)
            for suffix in INDEX_SUFFIXES:
                path = f"{folder}/{names.segment_file_name(base_offset, suffix)}"
                if self._files.exists(path):
                    self._files.remove(path)
        self._files.sync_directory(folder)

    def _report_cut(self, cut: LogCut, kept: str | None) -> None:
        total = RecordTotal(0, 0)
        if kept is not None:
            following = None if cut.next_offset is None else Offset(cut.next_offset)
            total = count_records(
                self._files,
                kept,
                base_offset=Offset(cut.offset),
                following=following,
                may_have_gaps=self._may_have_gaps,
            )
        counted = replace(
            cut, kept=kept, records=total.records, unknown_ranges=total.unknown_ranges
        )
        logger.warning(
            "log_cut path=%s position=%d bytes=%d offset=%d records=%d unknown_ranges=%d kept=%s "
            "reason=%s",
            cut.path, cut.position, cut.bytes_cut, cut.offset, counted.records,
            counted.unknown_ranges, kept or "none", cut.reason,
        )  # fmt: skip
        self._report(counted)


def recover_segment(
    segment: Segment,
    config: LogConfig,
    *,
    producers: ProducerStates,
    epochs: LeaderEpochs,
    limit_offset: int = INT64_MAX,
    may_have_gaps: bool = True,
) -> LogCut | None:
    """Check every batch and rewrite all indexes; returns what the caller must cut, or None.

    `producers` is the state before the segment, and is updated to the state after it; leader epochs
    that begin in the segment are added to `epochs`. Offsets must be below `limit_offset`, where the
    next segment begins, because no checksum covers a base offset. An offset that does not fit the
    segment's indexes is damage, unless the log `may_have_gaps`. Can be repeated after a crash.

    Raises:
        OSError: the device refused.
        _OverflowError: the segment must be split first.
    """
    # Their length says nothing after a kill: the file has its full size, and zeros look like
    # entries.
    segment.clear_indexes(config.segment_index_bytes)
    entries = _IndexEntries(segment, config.index_interval_bytes)
    good_bytes = 0
    next_offset, latest_epoch = segment.base_offset, epochs.latest
    holdable_max = segment.base_offset + INT32_MAX
    reason = "the last batch is not whole"
    try:
        for (
            position,
            end,
            base_offset,
            last_offset,
            max_timestamp,
            epoch,
            producer_id,
            view,
        ) in segment.log.checked():
            # Kafka does not check the order. No checksum covers a base offset, and one that is too
            # high would make the log end there.
            if not next_offset <= base_offset <= last_offset < limit_offset:
                raise CorruptionError(
                    f"a batch has offsets {base_offset} to {last_offset}, and only offsets from "
                    f"{next_offset} to below {limit_offset} are valid here",
                    path=segment.log.path,
                    position=position,
                )
            if last_offset > holdable_max:
                _check_overflow(segment, position, may_have_gaps=may_have_gaps)
            if producer_id >= 0:
                _note_producer(segment, Batch(view), producers)
            # Only after all checks, that of a marker too: what is cut gets no entry.
            entries.add(position, last_offset, max_timestamp)
            if epoch > latest_epoch:
                epochs.assign(epoch, base_offset)
                latest_epoch = epoch
            good_bytes = end
            next_offset = Offset(last_offset + 1)
    except CorruptionError as error:
        reason = error.rule
    # One write for all: a segment has 250,000 entries.
    entries.write()
    bytes_cut = segment.log.size - good_bytes
    if not bytes_cut:
        return None
    return LogCut(
        path=segment.log.path,
        position=good_bytes,
        bytes_cut=bytes_cut,
        reason=reason,
        offset=next_offset,
        next_offset=None if limit_offset == INT64_MAX else limit_offset,
    )


class _IndexEntries:
    """The entries of both sparse indexes of a segment, collected while its log is read.

    If the settings have changed since the segment was written, an index may be full too early; then
    searches near the end of the segment scan further.
    """

    def __init__(self, segment: Segment, interval_bytes: int) -> None:
        self._segment = segment
        self._interval_bytes = interval_bytes
        self._offsets, self._times = bytearray(), bytearray()
        self._offset_bytes_max = segment.offset_index.entries.capacity * offset_index.ENTRY.size
        self._time_bytes_max = (segment.time_index.entries.capacity - 1) * time_index.ENTRY.size
        self._base_offset = segment.base_offset
        self._last_position = 0
        self._last_timestamp = NO_TIMESTAMP
        self._newest = segment.newest

    def add(self, position: int, last_offset: int, max_timestamp: int) -> None:
        """Add the next batch; if an index entry is due, add one to each index."""
        if max_timestamp > self._newest.timestamp:
            self._newest = TimestampOffset(max_timestamp, Offset(last_offset))
        if (
            # As in an append: an entry for the first batch after the interval.
            position - self._last_position <= self._interval_bytes
            or len(self._offsets) >= self._offset_bytes_max
            or len(self._times) >= self._time_bytes_max
        ):
            return
        self._offsets += offset_index.ENTRY.pack(last_offset - self._base_offset, position)
        timestamp, offset = self._newest
        # Entries of a time index rise; without a larger timestamp the last one serves.
        if timestamp > self._last_timestamp:
            self._times += time_index.ENTRY.pack(timestamp, offset - self._base_offset)
            self._last_timestamp = timestamp
        self._last_position = position

    def write(self) -> None:
        """Write the entries to the index files.

        Raises:
            OSError: the device is full or failing.
        """
        self._segment.offset_index.entries.extend(self._offsets)
        self._segment.time_index.entries.extend(self._times)
        self._segment.newest = self._newest


def _note_producer(segment: Segment, batch: Batch, producers: ProducerStates) -> None:
    try:
        completed = producers.note(
            batch,
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            timestamp=batch.max_timestamp,
        )
    except UnsupportedCodecError as error:
        raise CorruptionError(f"a control batch that cannot be read: {error}") from error
    if completed is None:
        return
    if completed.is_aborted:
        segment.transactions.append(
            AbortedTxn(
                producer_id=completed.producer_id,
                first_offset=completed.first_offset,
                last_offset=completed.last_offset,
                last_stable_offset=producers.last_stable_offset(completed),
            )
        )
    producers.complete(completed)


def _has_indexes(files: Files, directory: str, base_offset: int) -> bool:
    return all(
        files.exists(f"{directory}/{names.segment_file_name(base_offset, suffix)}")
        for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
    )


def _is_padded(files: Files, segment: Segment, cut: LogCut, *, limit: int | None) -> bool:
    """Whether only zeros follow the last batch, and no offset below `limit` is missing.

    Zeros may also come from a crash of the machine that kept the file's length but not its data, or
    from a bad sector. Then offsets are missing before `limit`, where the next segment begins, if
    there is one. The
    check is right for compacted topics too, because compaction never writes zeros.
    """
    path, end = segment.log.path, cut.position
    with closing(files.open(path, read_only=True)) as file:
        if not set_aside.is_blank(file, path, start=end, limit=segment.log.size):
            return False
        if limit is None:
            return True
        sound = RecordsFile(path=path, file=file, size=end)
        batches = sound.batches(segment.position_near(Offset(limit)))
        return max((each.next_offset for _, each in batches), default=segment.base_offset) == limit


def _is_sound(segment: Segment, *, checks_end: bool) -> bool:
    """Whether indexes and tail are usable; checks only their ends."""
    try:
        segment.offset_index.check(segment.log.size)
        segment.time_index.check()
        segment.transactions.check()
        _check_time_index_is_due(segment)
        if checks_end:
            segment.next_offset()
    except CorruptionError as error:
        logger.warning("segment_not_sound reason=%s", error)
        return False
    return True


def _check_time_index_is_due(segment: Segment) -> None:
    """Check that a closed segment has time index entries exactly if a record has a timestamp.

    The last entry is the largest timestamp, so it is not below that of the first batch. If a crash
    left zeros in the index, retention would date the segment to 1970.
    """
    try:
        first = next(segment.log.batches(), None)
    except CorruptionError:
        return  # A damaged log says nothing about the index; a reader gets the error.
    has_entries = segment.time_index.entries.count > 0
    if first is None and has_entries:
        raise CorruptionError("entries for an empty log", path=segment.time_index.entries.path)
    if first is not None and first[1].max_timestamp > NO_TIMESTAMP and not has_entries:
        raise CorruptionError("no entry", path=segment.time_index.entries.path)
    if first is not None and first[1].max_timestamp > segment.time_index.last.timestamp:
        raise CorruptionError(
            "the last entry is older than the first batch", path=segment.time_index.entries.path
        )


def _remove_leftovers(files: Files, directory: str) -> list[int]:
    """Remove leftovers of deletions and indexes without a log; returns the base offsets."""
    bases, indexes = [], []
    for name in files.list(directory):
        if names.is_removed_at_start(name):
            files.remove(f"{directory}/{name}")
            continue
        parsed = names.parse_segment_file_name(name)
        if parsed is None:
            continue
        base, suffix = parsed
        if suffix == names.LOG_SUFFIX:
            bases.append(base)
        elif suffix in INDEX_SUFFIXES:
            indexes.append((base, name))
    for base, name in indexes:
        if base not in bases:
            files.remove(f"{directory}/{name}")
    return bases


def _check_overflow(segment: Segment, position: int, *, may_have_gaps: bool) -> None:
    """Decide whether an offset beyond 31 bits is an overflow of the segment or damage.

    No checksum covers a base offset.

    Raises:
        _OverflowError: all following batches are in order.
        CorruptionError: they are not, or the log was never compacted.
    """
    if not may_have_gaps:
        raise CorruptionError(
            f"an offset is 2147483648 or more above {segment.base_offset}, and the log was never "
            "compacted",
            path=segment.log.path,
            position=position,
        )
    next_offset = segment.base_offset
    for start, batch in segment.log.batches(Position(position)):
        batch.check()
        if batch.base_offset < next_offset:
            raise CorruptionError(
                f"offset {next_offset} is out of order", path=segment.log.path, position=start
            )
        next_offset = batch.next_offset
        position = start + batch.size
    raise _OverflowError(position)
