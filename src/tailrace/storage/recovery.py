"""From a partition's folder, in whatever state, to a `Log`. The steps are Kafka's (LogLoader).

    folder                          what is done with it
    .cleaned and .swap files        dropped or completed, see `cleaner.swap`
    .deleted files of segments      removed
    0…0.log .index .timeindex       opened
    index without its .log          deleted
    .log without an index, or with  that segment is recovered
      one that cannot be its
    170.log after an unclean stop   recovered, if it reaches behind the recovery point
    170.snapshot                    the newest is read, and the batches behind it; see `producers`

To recover a segment is to check each batch (CRC, offsets rising), to write its indexes anew, that
of aborted transactions included, and to cut behind the last good batch. When anything was cut, the
segments behind it leave service: what follows a hole is not a prefix of what was appended (promise
2). A lost machine can also lose a tail that ends between two batches; then nothing is torn, but the
next segment begins too late, and it leaves service too.

Zeros at the end of a closed segment are what preallocation left, if the offsets go on without a gap
in the next one: they are cut, and nothing leaves service. Otherwise they stand for batches that are
lost, on a compacted topic too.

A gap alone is no damage: compaction leaves gaps. It counts as a lost tail only where this directory
has known the log since it was made, and neither the directory nor a batch says that it was ever
compacted (docs/decisions/0020-a-gap-is-no-damage.md).

No byte of a log is lost: what leaves service is set aside (`set_aside`), and told in full with its
records. `tailrace log repair` brings back what fits.

Nothing is cut that was on the device already, that is, in all but the last segment after an orderly
stop and below the recovery point: there damage is rot, not a torn tail, and what lies behind it is
sound. It is told, readers meet it, and `tailrace log repair` can step over it.

The work can stop at any point and be done again. So the segments behind a cut are set aside first,
last one first, and the cut comes after: without it the next run could not know that they must go.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.errors import CorruptionError, UnsupportedCodecError
from tailrace.model import NO_TIMESTAMP
from tailrace.records.batch import Batch
from tailrace.runtime.files import Files
from tailrace.storage import evidence, names, set_aside
from tailrace.storage.cleaner import swap
from tailrace.storage.config import DAY_MS, LogConfig
from tailrace.storage.epochs import LeaderEpochs, open_leader_epochs, write_epochs
from tailrace.storage.folder import Folder
from tailrace.storage.index import offset as offset_index
from tailrace.storage.index import time as time_index
from tailrace.storage.index.time import TimestampOffset
from tailrace.storage.index.transaction import AbortedTransaction
from tailrace.storage.log import Log
from tailrace.storage.positions import Positions
from tailrace.storage.producers import ProducerStates, open_producers
from tailrace.storage.records_file import RecordsFile
from tailrace.storage.segment import Segment, open_segment
from tailrace.storage.segments import Segments

logger = logging.getLogger(__name__)

INDEX_SUFFIXES = (
    names.OFFSET_INDEX_SUFFIX,
    names.TIME_INDEX_SUFFIX,
    names.TRANSACTION_INDEX_SUFFIX,
)


class _OverflowError(Exception):
    """A segment has offsets that are too far from its base offset for its indexes.

    Kafka before 1.0.2 wrote such segments when it compacted (KAFKA-6264).
    """

    def __init__(self, whole_bytes: int) -> None:
        self.whole_bytes = whole_bytes
        """Where the last whole batch ends."""
        super().__init__()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What recovery took out of service, and why."""

    path: str
    position: int
    bytes_cut: int
    reason: str
    kept: str | None = None
    """Where the bytes are now; None if they were zeros."""
    records: int = 0
    """In what was kept, as far as headers tell."""


def open_log(
    folder: Folder,
    *,
    config: LogConfig,
    is_clean: bool,
    checkpoints: tuple[int, int | None] = (0, 0),
    may_have_gaps: bool = False,
    producer_expiration_ms: int = DAY_MS,
    report: Callable[[Cut], None] | None = None,
) -> Log:
    """Open a partition's folder for reading and writing, an empty one included.

    `is_clean` says that the last stop was orderly, so indexes and tail can be trusted;
    `checkpoints` are the recovery point and the log start offset from the directory's files, None
    if that file cannot be read; `may_have_gaps` that offsets may be missing though the topic is not
    compacted (any more): it was, or nobody knows. `report` is called with everything that is cut.

    A malformed `leader-epoch-checkpoint` is written anew from the batches.

    Raises:
        CorruptionError: it is malformed, and the epochs of the batches contradict each other; or
            what a compaction has made is damaged.
        OSError: a file cannot be opened, read or written.
    """
    return _Opening(
        folder,
        config=config,
        is_clean=is_clean,
        checkpoints=checkpoints,
        may_have_gaps=may_have_gaps or config.is_compacted,
        producer_expiration_ms=producer_expiration_ms,
        report=report or (lambda _: None),
    ).open()


class _Opening:
    """One call of `open_log`: what it was told, and what it knows so far."""

    def __init__(
        self,
        folder: Folder,
        *,
        config: LogConfig,
        is_clean: bool,
        checkpoints: tuple[int, int | None],
        may_have_gaps: bool,
        producer_expiration_ms: int,
        report: Callable[[Cut], None],
    ) -> None:
        self._folder = folder
        self._files = folder.files
        self._config = config
        self._is_clean = is_clean
        self._recovery_point, self._noted_start = checkpoints
        self._log_start = self._noted_start or 0
        self._may_have_gaps = may_have_gaps
        self._producer_expiration_ms = producer_expiration_ms
        self._report = report
        self._epochs = LeaderEpochs(folder.files, folder.path, ())
        self._producers: ProducerStates | None = None
        """Once a segment had to be recovered: the state behind the last one that was opened."""

    def open(self) -> Log:
        """The log, mended."""
        swap.finish_swaps(self._files, self._folder.path)
        bases = _remove_leftovers(self._files, self._folder.path)
        self._epochs = self._open_epochs(bases)
        if bases and self._noted_start is None:
            self._log_start = self._start_by_epochs(bases[0], reason="its checkpoint is malformed")
        opened = self._open_segments(bases)
        if not opened:
            opened.append(self._new_segment(self._log_start))
        log_end = opened[-1].next_offset()
        if log_end < self._log_start and self._is_of_another_life(opened):
            reason = f"the checkpoint has {self._log_start}, and the log ends at {log_end}"
            self._log_start = self._start_by_epochs(opened[0].base_offset, reason=reason)
            self._producers = None
        log_start = max(self._log_start, opened[0].base_offset)
        if log_end < log_start:
            # What is below the log start was deleted on request, and the tail is lost: begin anew.
            for segment in opened:
                segment.close()
            self._drop(
                [segment.base_offset for segment in opened],
                reason=f"it lies below the log start offset {log_start}",
            )
            opened = [self._new_segment(log_start)]
            log_end = log_start
            self._producers = None
            self._epochs.clear()
        self._epochs.cut_end(log_end)
        self._epochs.cut_start(log_start)
        segments = Segments(opened)
        producers = self._producers
        if producers is None:
            producers = self._open_producers(segments, log_end)
        producers.offer_snapshot(log_end)
        producers.advance_high_watermark(log_end)
        positions = Positions(
            log_start=log_start,
            recovery_point=min(self._recovery_point, log_end),
            last_stable=log_end,
            high_watermark=log_end,
            log_end=log_end,
        )
        positions.settle_last_stable(producers.first_unstable_offset)
        for segment in opened:
            segment.created_ms = self._folder.clock.now_ms()
        return Log(
            folder=self._folder,
            config=self._config,
            segments=segments,
            epochs=self._epochs,
            producers=producers,
            positions=positions,
        )

    def _open_epochs(self, bases: list[int]) -> LeaderEpochs:
        """The leader epochs, from the batches if their checkpoint is malformed."""
        folder = self._folder.path
        try:
            return open_leader_epochs(self._files, folder)
        except CorruptionError as error:
            entries = evidence.epochs_of_batches(self._files, folder, bases)
            logger.warning("epochs_rebuilt from=batches epochs=%d reason=%s", len(entries), error)
            return write_epochs(self._files, folder, entries)

    def _start_by_epochs(self, first_base: int, *, reason: str) -> int:
        """Where the log starts by its own files, which is told: a DeleteRecords may be undone."""
        first = evidence.first_batch(self._files, self._folder.path, first_base)
        start = evidence.start_by_epochs(
            self._files, self._folder.path, first_base=first_base, first=first
        )
        logger.warning(
            "log_start_rebuilt path=%s offset=%d reason=%s", self._folder.path, start, reason
        )
        return start

    def _is_of_another_life(self, opened: Sequence[Segment]) -> bool:
        """Whether a log start beyond the end of the log is that of another log in this folder.

        In the life of one log its epoch checkpoint knows of the log start first.
        """
        has_records = any(segment.size for segment in opened)
        return has_records and not evidence.is_of_this_log(
            self._files, self._folder.path, self._log_start
        )

    def _open_segments(self, bases: list[int]) -> list[Segment]:
        """Every segment that stays, with sound indexes; what is behind a cut is set aside."""
        opened: list[Segment] = []
        waiting = list(bases)
        while waiting:
            base = waiting.pop(0)
            has_indexes = _has_indexes(self._files, self._folder.path, base)
            segment = open_segment(
                self._files, self._folder.path, base_offset=base, config=self._config
            )
            is_last = not waiting
            is_on_device = self._is_clean or (not is_last and waiting[0] <= self._recovery_point)
            # At the recovery point: it was flushed while active, and maybe finished after that.
            checks_end = is_last or waiting[0] == self._recovery_point
            is_cut = False
            if is_on_device and has_indexes and _is_sound(segment, checks_end=checks_end):
                self._producers = None
            else:
                try:
                    is_cut = self._recover(segment, opened, waiting, is_on_device=is_on_device)
                except _OverflowError as error:
                    self._cut_tail(segment, error.whole_bytes, is_last=is_last)
                    segment.close()
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
        """Recover one segment, behind those opened; True if it is the last one now, after a cut."""
        producers = self._producers
        if producers is None:
            producers = self._open_producers(Segments(opened or [segment]), segment.base_offset)
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
        if cut is not None and later and _is_padded(self._files, segment, cut, limit=later[0]):
            # It was preallocated, and a crash has undone the cut with which a roll has ended it.
            logger.info(
                "padding_cut path=%s position=%d bytes=%d", cut.path, cut.position, cut.bytes_cut
            )
            segment.log.truncate(cut.position)
            cut = None
        if cut is not None and later and is_on_device:
            # It has been on the device, and so has all that follows: a reader will meet the damage.
            logger.error(
                "segment_damaged path=%s position=%d reason=%s; see tailrace log repair",
                cut.path, cut.position, cut.reason,
            )  # fmt: skip
            return False
        is_cut = cut is not None or (
            bool(later) and not is_on_device and self._is_tail_lost(segment, later)
        )
        if later and is_cut:
            self._drop(later, reason="what is before it was lost")
        if cut is not None:
            self._cut(segment, cut)
        if later and not is_cut:
            producers.write_snapshot(later[0])
        return is_cut

    def _is_tail_lost(self, segment: Segment, later: Sequence[int]) -> bool:
        """Whether the next segment begins too late, and nothing says that compaction did it."""
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

    def _cut(self, segment: Segment, cut: Cut) -> None:
        """Cut a log; the bytes are on the device under another name before."""
        path, base, start = segment.log.path, segment.base_offset, cut.position
        target = f"{self._folder.path}/{names.set_aside_file_name(base, start)}"
        kept = set_aside.keep_bytes(
            self._files, path, position=start, limit=segment.log.size, target=target
        )
        self._files.sync_directory(self._folder.path)
        self._tell(cut, kept)
        segment.log.truncate(start)

    def _cut_tail(self, segment: Segment, size: int, *, is_last: bool) -> None:
        """Cut what is no whole batch, without which the rest cannot be split."""
        bytes_cut = segment.log.size - size
        if is_last and bytes_cut:
            reason = "the last batch is not whole"
            self._cut(
                segment,
                Cut(path=segment.log.path, position=size, bytes_cut=bytes_cut, reason=reason),
            )

    def _open_producers(self, segments: Segments, log_end: int) -> ProducerStates:
        return open_producers(
            self._files,
            self._folder.path,
            segments=segments,
            log_start=max(self._log_start, segments.first.base_offset),
            log_end=log_end,
            expiration_ms=self._producer_expiration_ms,
        )

    def _new_segment(self, base_offset: int) -> Segment:
        return open_segment(
            self._files,
            self._folder.path,
            base_offset=base_offset,
            config=self._config,
            create=True,
        )

    def _drop(self, base_offsets: Sequence[int], *, reason: str) -> None:
        """Set segments aside, the last one first, so that a crash in between leaves no hole."""
        folder = self._folder.path
        for base_offset in reversed(base_offsets):
            path = evidence.log_path(folder, base_offset)
            file = self._files.open(path, read_only=True)
            size = file.size()
            is_blank = set_aside.is_blank(file, path, start=0, limit=size)
            file.close()
            kept = None
            if is_blank:
                self._files.remove(path)
            else:
                target = f"{folder}/{names.set_aside_file_name(base_offset, 0)}"
                kept = set_aside.move_file(self._files, path, target)
            self._tell(Cut(path=path, position=0, bytes_cut=size, reason=reason), kept)
            for suffix in INDEX_SUFFIXES:
                path = f"{folder}/{names.segment_file_name(base_offset, suffix)}"
                if self._files.exists(path):
                    self._files.remove(path)
        self._files.sync_directory(folder)

    def _tell(self, cut: Cut, kept: str | None) -> None:
        records = evidence.count_records(self._files, kept) if kept is not None else 0
        told = replace(cut, kept=kept, records=records)
        logger.warning(
            "log_cut path=%s position=%d bytes=%d records=%d kept=%s reason=%s",
            cut.path, cut.position, cut.bytes_cut, records, kept or "none", cut.reason,
        )  # fmt: skip
        self._report(told)


def recover_segment(
    segment: Segment,
    config: LogConfig,
    *,
    producers: ProducerStates,
    epochs: LeaderEpochs,
    limit_offset: int = INT64_MAX,
    may_have_gaps: bool = True,
) -> Cut | None:
    """Check every batch, write all indexes anew, and tell what must be cut, or None.

    `producers` is the state before the segment, and has that behind it in the end; leader epochs
    that begin in it are noted. No offset may reach `limit_offset`, where the next segment begins:
    no checksum covers a base offset. Nor may one be too far from the segment's own, unless the log
    `may_have_gaps`, as compaction leaves them. Cutting is left to the caller. After a crash
    halfway: do it again.

    Raises:
        OSError: the device refused.
        _OverflowError: the segment must be split first.
    """
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
            if not next_offset <= base_offset <= last_offset < limit_offset:
                raise CorruptionError(
                    f"offsets {base_offset} to {last_offset} where those from {next_offset} "
                    f"to below {limit_offset} may stand",
                    path=segment.log.path,
                    position=position,
                )
            if last_offset > holdable_max:
                _check_overflow(segment, position, may_have_gaps=may_have_gaps)
            entries.add(position, last_offset, max_timestamp)
            if producer_id >= 0:
                _note_producer(segment, Batch(view), producers)
            if epoch > latest_epoch:
                epochs.assign(epoch, base_offset)
                latest_epoch = epoch
            good_bytes = end
            next_offset = last_offset + 1
    except CorruptionError as error:
        reason = error.rule
    entries.write()
    bytes_cut = segment.log.size - good_bytes
    if not bytes_cut:
        return None
    return Cut(path=segment.log.path, position=good_bytes, bytes_cut=bytes_cut, reason=reason)


class _IndexEntries:
    """The entries of both sparse indexes of a segment, gathered while its log is walked.

    The settings may have changed since the segment was written: an index that is full too early
    stays behind the log, which costs a longer scan and nothing else.
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
        """Take note of the next batch, and of an entry in each index if one is due."""
        if max_timestamp > self._newest.timestamp:
            self._newest = TimestampOffset(max_timestamp, last_offset)
        if (
            position - self._last_position <= self._interval_bytes
            or len(self._offsets) >= self._offset_bytes_max
            or len(self._times) >= self._time_bytes_max
        ):
            return
        self._offsets += offset_index.ENTRY.pack(last_offset - self._base_offset, position)
        timestamp, offset = self._newest
        if timestamp > self._last_timestamp:
            self._times += time_index.ENTRY.pack(timestamp, offset - self._base_offset)
            self._last_timestamp = timestamp
        self._last_position = position

    def write(self) -> None:
        """Put the entries in the files.

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
            AbortedTransaction(
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


def _is_padded(files: Files, segment: Segment, cut: Cut, *, limit: int) -> bool:
    """Whether zeros fill the file behind its last batch, and no offset below `limit` is missing.

    Zeros may also stand where a lost machine had given the file its length and not its data, or
    where a sector has gone bad. Then offsets are missing before the next segment, at `limit`.
    Whether the topic is compacted does not matter: what a compaction has made has no zeros.
    """
    path, end = segment.log.path, cut.position
    file = files.open(path, read_only=True)
    try:
        if not set_aside.is_blank(file, path, start=end, limit=segment.log.size):
            return False
        sound = RecordsFile(path=path, file=file, size=end)
        batches = sound.batches(segment.position_near(limit))
        return max((each.next_offset for _, each in batches), default=segment.base_offset) == limit
    finally:
        file.close()


def _is_sound(segment: Segment, *, checks_end: bool) -> bool:
    """Whether indexes and tail can be used as they are; looks at their ends only."""
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
    """A closed segment has a time entry exactly if it has a record with a timestamp.

    The last one is the largest, so it is not below that of the first batch. One that a crash has
    left as zeros would make the segment as old as 1970 to retention.
    """
    try:
        first = next(segment.log.batches(), None)
    except CorruptionError:
        return  # The log is damaged, which says nothing about the index; a reader will meet it.
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
    """Base offsets of the segments; leftovers of deletions and indexes without a log go."""
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
    """Tell offsets that rise too far from one that is damaged: no checksum covers a base offset.

    Raises:
        _OverflowError: all that follows is in order.
        CorruptionError: it is not.
    """
    if not may_have_gaps:
        raise CorruptionError(
            f"an offset is 2147483648 or more behind {segment.base_offset}, and the log was never "
            "compacted",
            path=segment.log.path,
            position=position,
        )
    next_offset = segment.base_offset
    for start, batch in segment.log.batches(position):
        batch.check()
        if batch.base_offset < next_offset:
            raise CorruptionError(
                f"offset {next_offset} is out of order", path=segment.log.path, position=start
            )
        next_offset = batch.next_offset
        position = start + batch.size
    raise _OverflowError(position)
