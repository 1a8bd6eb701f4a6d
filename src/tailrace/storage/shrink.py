"""Make a log shorter: delete old segments, truncate the tail, put in compacted segments.

Functions over a `Log`, called by its owner, like an append. `retention` decides which segments are
old, `cleaner` which records compaction keeps. Here files leave service, in an order that leaves no
hole after a crash:

    retention     files are renamed `.deleted`, the oldest first, then the log start moves up
    truncation    files are renamed, the newest first, then the last remaining one is cut
    compaction    the new segment has its `.swap` name on the device before old files are renamed

A truncation is a generator of device steps, because a follower's event loop may not wait for a
device: all else happens when the generator is advanced, on the loop.
"""

import logging
from collections.abc import Callable, Generator, Sequence

from tailrace.errors import CorruptionError, OffsetOutOfRangeError
from tailrace.model import Offset
from tailrace.runtime.clock import iso_time
from tailrace.storage.cleaner import swap
from tailrace.storage.log import Log
from tailrace.storage.retention import (
    RetentionFacts,
    RetentionPlan,
    SegmentDeletion,
    deletion_sentences,
    plan_retention,
)
from tailrace.storage.segment import Segment, create_segment, retention_time_ms

logger = logging.getLogger(__name__)

DeviceStep = Callable[[], None]
"""Work that waits for a device and raises its OSError; may be done on another thread."""

DeviceSteps = Generator[DeviceStep, None, None]
"""A change of a log. The caller does each step and throws its OSError into the generator."""


class Refused:
    """A step after a change on the loop that was refused: its first call raises the error of that.

    A caller who calls it again and takes the next step has the change tried again. Nobody may stop
    here, as the log is between two states.
    """

    def __init__(self, error: OSError) -> None:
        self._error: OSError | None = error

    def __call__(self) -> None:
        """Do nothing.

        Raises:
            OSError: that of the change, at the first call.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error


class OldSegments:
    """Segments that retention deletes: planned, then renamed, then removed from the log."""

    def __init__(
        self,
        log: Log,
        plan: RetentionPlan,
        *,
        facts: Sequence[RetentionFacts],
        reasons: Sequence[str],
    ) -> None:
        self.log = log
        self.deletions: tuple[SegmentDeletion, ...] = plan.deletions
        """The segments to delete and why, oldest first."""
        self._facts = facts
        self._reasons = reasons
        count = len(plan.deletions)
        # Noted now, on the owner's thread: `rename` runs on another one.
        self._going = tuple(log.segments)[:count]
        self._log_start = tuple(log.segments)[count].base_offset
        self._has_rolled = plan.must_roll
        self._renamed: list[Segment] = []

    def rename(self) -> None:
        """Rename their files `.deleted`, the oldest first; on any thread.

        Readers continue with the open files. After a crash the log starts after the segments whose
        `.log` was renamed.

        Raises:
            OSError: a file cannot be renamed; `finish` must still be called.
        """
        folder = self.log.folder
        if self._has_rolled:
            # Without the new segment's name a crash could leave a folder without any segment, and
            # the log would begin at offset 0 again.
            folder.files.sync_directory(folder.path)
        for segment, facts, why in zip(self._going, self._facts, self._reasons, strict=False):
            paths = segment.paths()
            written_ms = segment.modified_ms()
            # If the log was deleted meanwhile, a new log may have files of these names.
            self.log.check_usable()
            # The `.log` first, so that a segment never lacks one.
            _retire_files(self.log, paths[:1])
            self._renamed.append(segment)
            # Records that came too old were written just now.
            logger.info(
                "segment_deleted path=%s offsets=%d..%d bytes=%d newest=%s written=%s reason=%s",
                paths[0], facts.base_offset, facts.next_base_offset - 1, facts.size_bytes,
                iso_time(facts.timestamp_ms), iso_time(written_ms), why,
            )  # fmt: skip
            _retire_files(self.log, paths[1:])

    def finish(self) -> None:
        """Raise the log start, and remove the renamed segments from the log. Owner's thread.

        The next `plan_deletion` includes segments that could not be renamed.

        Raises:
            OSError: a snapshot cannot be renamed; the segments have left service.
        """
        log = self.log
        log.segments.remove(self._renamed)
        for segment in self._renamed:
            segment.close()
        raise_log_start(log, self._log_start)
        # Some may still be needed by segments that could not be renamed.
        if len(self._renamed) == len(self._going):
            _retire_files(log, log.producers.snapshots.remove_before(self._log_start))


def raise_log_start(log: Log, offset: int) -> bool:
    """Raise the log start to `offset`; returns whether it has changed.

    On the device with the next checkpoint of log starts; a crash before that undoes it.

    Raises:
        OffsetOutOfRangeError: above the high watermark.
    """
    log.check_usable()
    # As Kafka answers DeleteRecords: what is not replicated must not be deleted.
    if offset > log.positions.high_watermark:
        raise OffsetOutOfRangeError(
            offset,
            log_start_offset=log.start_offset,
            log_end_offset=log.positions.high_watermark,
        )
    if offset <= log.start_offset:
        return False
    # Epochs first: a thread that checkpoints the new log start saves the epochs before it.
    log.epochs.cut_start(Offset(offset))
    return log.positions.raise_log_start(Offset(offset))


def plan_deletion(log: Log, now_ms: int) -> OldSegments | None:
    """The segments that retention deletes now, or None; rolls the log first if these are all.

    Raises:
        OSError: the log has failed, or cannot roll.
    """
    log.check_usable()
    facts, log_start = retention_facts(log), log.start_offset
    plan = plan_retention(
        facts,
        config=log.config,
        log_start=log_start,
        high_watermark=log.positions.high_watermark,
        now_ms=now_ms,
    )
    if not plan.deletions:
        return None
    reasons = deletion_sentences(plan, facts, config=log.config, log_start=log_start, now_ms=now_ms)
    if plan.must_roll:
        log.roll()
    return OldSegments(log, plan, facts=facts, reasons=reasons)


def delete_old_segments(log: Log, now_ms: int) -> tuple[SegmentDeletion, ...]:
    """Delete the segments that retention does not keep; returns them, oldest first.

    The log start moves up. Files are renamed now, and deleted after `file.delete.delay.ms`. After a
    crash a segment may be in service again; the next call deletes it.

    Raises:
        OSError: a file cannot be renamed; the segments before it are deleted, and the next call
            deletes the rest.
    """
    old = plan_deletion(log, now_ms)
    if old is None:
        return ()
    try:
        old.rename()
    finally:
        old.finish()
    return old.deletions


def retention_facts(log: Log) -> list[RetentionFacts]:
    """The facts that retention decides from, for each segment, oldest first."""
    segments = tuple(log.segments)
    # A gap after compaction belongs to the segment before it.
    ends = [*(each.base_offset for each in segments[1:]), log.end_offset]
    return [
        RetentionFacts(
            base_offset=each.base_offset,
            next_base_offset=end,
            size_bytes=each.size,
            timestamp_ms=retention_time_ms(each),
        )
        for each, end in zip(segments, ends, strict=True)
    ]


def take_steps(steps: DeviceSteps) -> None:
    """Make a change of a log to its end, with all device steps on this thread.

    Raises:
        OSError: as the generator.
    """
    error: OSError | None = None
    while True:
        try:
            step = next(steps) if error is None else steps.throw(error)
        except StopIteration:
            return
        error = None
        try:
            step()
        except OSError as refused:
            error = refused


def truncate_to(log: Log, offset: int) -> None:
    """Do `truncation` in one call, which waits for the device; raises as it does."""
    take_steps(truncation(log, offset))


def truncation(log: Log, offset: int) -> DeviceSteps:
    """Remove every batch with a last offset of at least `offset`; on the device at the end.

    If `offset` is at or above the log end, only leader epochs that begin there are removed; if it
    is below the first segment, the log restarts at `offset`.

        [0…99] [100…169]   truncation(120)   [0…99] [100…119]

    As in Kafka, a transaction that ended below `offset` may count as completed from now on, though
    the high watermark has not passed its marker, because snapshots do not have ended transactions.

    Before each step but `Refused` the log is a prefix of the old log and can be read. A caller may
    stop after such a step, and then has a longer one. After a crash in between, the log is a prefix
    of the old log, at least up to `offset`. The recovery point moves back with the log end. Until
    the caller has written the checkpoints, nothing may be appended, or a start would trust records
    that are not on the device.

    Raises:
        OSError: the device refused; the log refuses every further call, and the next start finds a
            prefix.
    """
    log.check_usable()
    segments = tuple(log.segments)
    if offset < segments[0].base_offset:
        yield from restart(log, offset)
        return
    if offset >= log.end_offset:
        if log.epochs.cut_end(log.end_offset):
            yield log.epochs.save
        return
    kept = [segment for segment in segments if segment.base_offset <= offset]
    later = segments[len(kept) :]
    try:
        if log.forget_failed_roll():
            yield lambda: log.folder.files.sync_directory(log.folder.path)
        if later:
            # The newest first: after a crash what is left is a prefix.
            for segment in reversed(later):
                _retire(log, segment)
            yield from _until_done(log, lambda: _settle_end(log))
            # The names before the cut of the segment below: a crash that brought them back after it
            # would leave a hole.
            yield lambda: log.folder.files.sync_directory(log.folder.path)
        yield from _until_done(log, lambda: _cut_last(log, Offset(offset)))

        def sync() -> None:
            log.producers.snapshots.sync_removals()
            kept[-1].sync()

        # Shorter on the device too, before the caller acknowledges the cut to its leader.
        yield sync
        yield log.epochs.save  # `_settle_end` has cut them.
    except (OSError, CorruptionError) as error:
        log.fail(f"it could not be cut at offset {offset}: {error}; restart the broker to recover")
        raise


def _until_done(log: Log, change: Callable[[], None]) -> DeviceSteps:
    """Make a change of the log's end on the loop, again after each `Refused`; it can be repeated.

    Raises:
        OSError: of the change, if the caller throws it; or the log was closed meanwhile.
    """
    while True:
        try:
            change()
        except OSError as error:
            refused = Refused(error)
        else:
            return
        try:
            yield refused
        except GeneratorExit:
            # Else an orderly stop would note producers of records that are gone.
            log.fail("a cut was given up half way; restart the broker to recover")
            raise
        log.check_usable()


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    """Do `restart` in one call, which waits for the device; raises as it does."""
    take_steps(restart(log, offset))


def restart(log: Log, offset: int) -> DeviceSteps:
    """Remove all segments and continue as an empty log that starts at `offset`.

    The caller writes the checkpoints as after `truncation`, and that of the log start.

    Raises:
        OSError: the device refused; the log refuses every further call. The next start finds the
            old log, a prefix of it, or an empty one.
    """
    log.check_usable()
    oldest, *later = tuple(log.segments)

    def begin_again() -> None:
        new = create_segment(log.folder, Offset(offset), config=log.config)
        log.segments.replace([new], [oldest])
        oldest.close()

    try:
        log.forget_failed_roll()
        # The newest first: a crash leaves a prefix of the old log.
        for segment in reversed(later):
            _retire(log, segment)
        _retire_files(log, oldest.paths())
        yield from _until_done(log, begin_again)
        log.epochs.clear()
        yield from _until_done(log, lambda: log.producers.truncate_fully(Offset(offset)))
        log.positions.begin_at(Offset(offset))
        yield lambda: log.folder.files.sync_directory(log.folder.path)
        yield log.epochs.save
    except OSError as error:
        log.fail(f"it could not restart at offset {offset}: {error}; restart the broker to recover")
        raise


def replace_segments(log: Log, new: Sequence[Segment], old: Sequence[Segment]) -> None:
    """Replace closed segments by the segments that compaction has written.

    The new ones, usually one, have their `.swap` names on the device (`cleaner.swap.publish`), so a
    start completes the step after a crash. The caller syncs the directory, on any thread, before
    the log is compacted again.

    Raises:
        StorageError: the log was deleted or has failed meanwhile; nothing is changed, because a new
            partition may have its name and folder.
        OSError: a file cannot be renamed; the log serves the new segments nevertheless.
    """
    log.check_usable()
    # From here on readers use the new files, whose names still end in `.swap`: open descriptors do
    # not mind a rename.
    log.segments.replace(new, old)
    kept = {each.base_offset for each in new}
    bases = [each.base_offset for each in old if each.base_offset not in kept]
    for each in old:
        _retire_files(log, each.paths())
        each.close()
    _retire_files(log, log.producers.snapshots.remove_at(bases))
    # Last: while a `.swap` name is there, a start knows that the old files have to go.
    swap.complete(*new)


def _cut_last(log: Log, offset: Offset) -> None:
    """Cut the last segment."""
    try:
        log.segments.active.truncate_to(offset)
    finally:
        _settle_end(log)


def _settle_end(log: Log) -> None:
    """Update positions, epochs and producers after the last segment was cut."""
    positions = log.positions
    # Read from the file: a batch that reaches across the offset goes as a whole, so the end may be
    # lower than was asked for.
    positions.cut_end(log.segments.active.next_offset())
    log.epochs.cut_end(log.end_offset)
    log.producers.reload(log.segments, log_start=log.start_offset, log_end=log.end_offset)
    log.producers.advance_high_watermark(positions.high_watermark)
    positions.settle_last_stable(log.producers.first_unstable_offset)


def _retire(log: Log, segment: Segment) -> None:
    """Take one segment out of service: rename its `.log` first, then its indexes.

    If the first rename fails, the segment stays in service.
    """
    paths = segment.paths()
    _retire_files(log, paths[:1])
    log.segments.remove([segment])
    try:
        _retire_files(log, paths[1:])
    finally:
        segment.close()


def _retire_files(log: Log, paths: Sequence[str]) -> None:
    log.folder.retire(paths, delay_ms=log.config.file_delete_delay_ms)
