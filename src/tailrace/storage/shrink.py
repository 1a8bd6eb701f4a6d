"""How a log gets shorter: old segments go, the tail is cut, compaction puts one for several.

Functions over a `Log`, called by its owner, as an append is. Which segments are old is decided in
`retention`, which records survive compaction in `cleaner`; here files leave service, in an order
that a crash cannot turn into a hole.

    retention     files are renamed `.deleted`, the oldest first, then the log start moves up
    truncation    files are renamed, the newest first, and then the last one left is cut
    compaction    the new segment has its `.swap` name on the device before anything goes
"""

from collections.abc import Sequence

from tailrace.storage.cleaner import swap
from tailrace.storage.log import Log
from tailrace.storage.retention import (
    Deletion,
    Explanation,
    RetentionPlan,
    SegmentFacts,
    explain_retention,
    plan_retention,
)
from tailrace.storage.segment import Segment


class OldSegments:
    """Segments of a log that no rule of retention keeps: planned, then renamed, then let go."""

    def __init__(self, log: Log, plan: RetentionPlan) -> None:
        self.log = log
        self.deletions: tuple[Deletion, ...] = plan.deletions
        """What goes and why, oldest first."""
        count = len(plan.deletions)
        self._going = tuple(log.segments)[:count]
        self._log_start = tuple(log.segments)[count].base_offset
        self._has_rolled = plan.must_roll
        self._renamed: list[Segment] = []

    def rename(self) -> None:
        """Give their files the suffix `.deleted`, the oldest first; on any thread.

        Readers go on, with files that are open. After a crash the log starts behind those whose
        `.log` was renamed.

        Raises:
            OSError: a file cannot be renamed; call `finish` all the same.
        """
        folder = self.log.folder
        if self._has_rolled:
            # Without the new segment's name a crash could leave a folder without any segment, and
            # the log would begin at offset 0 again.
            folder.files.sync_directory(folder.path)
        for segment in self._going:
            paths = segment.paths()
            # Of a log that was deleted meanwhile another one may have the names.
            self.log.check_usable()
            # The `.log` first, so that a segment never lacks one.
            _retire_files(self.log, paths[:1])
            self._renamed.append(segment)
            _retire_files(self.log, paths[1:])

    def finish(self) -> None:
        """Have the log start behind what goes, and what was renamed leave service. Owner's thread.

        What could not be renamed goes with the next call of `plan_deletion`.

        Raises:
            OSError: a checkpoint or a snapshot refuses; the segments have left service.
        """
        log = self.log
        log.segments.remove(self._renamed)
        for segment in self._renamed:
            segment.close()
        log.raise_log_start(self._log_start)
        if len(self._renamed) == len(self._going):
            _retire_files(log, log.producers.remove_snapshots_before(self._log_start))


def plan_deletion(log: Log, now_ms: int) -> OldSegments | None:
    """What no rule of retention keeps, or None; the log rolls if that is all of it.

    Raises:
        OSError: the log has failed, or cannot roll.
    """
    log.check_usable()
    plan = plan_retention(
        retention_facts(log),
        config=log.config,
        log_start=log.start_offset,
        high_watermark=log.positions.high_watermark,
        now_ms=now_ms,
    )
    if not plan.deletions:
        return None
    if plan.must_roll:
        log.roll()
    return OldSegments(log, plan)


def delete_old_segments(log: Log, now_ms: int) -> tuple[Deletion, ...]:
    """Take out of service what no rule of retention keeps; returns it, oldest first.

    The log start moves behind it. Files are renamed now, and deleted when `file.delete.delay.ms`
    has passed. After a crash a segment may be back; it goes again with the next call.

    Raises:
        OSError: a file cannot be renamed; the log goes on without the segments before it, and what
            is left goes with the next call.
    """
    old = plan_deletion(log, now_ms)
    if old is None:
        return ()
    try:
        old.rename()
    finally:
        old.finish()
    return old.deletions


def explain(log: Log, now_ms: int) -> list[Explanation]:
    """For each segment: whether retention would take it now, and why or why not."""
    return explain_retention(
        retention_facts(log),
        config=log.config,
        log_start=log.start_offset,
        high_watermark=log.positions.high_watermark,
        now_ms=now_ms,
    )


def retention_facts(log: Log) -> list[SegmentFacts]:
    """What retention needs to know of each segment, oldest first."""
    segments = tuple(log.segments)
    ends = [*(each.base_offset for each in segments[1:]), log.end_offset]
    return [
        SegmentFacts(
            base_offset=each.base_offset,
            next_base_offset=end,
            size_bytes=each.size,
            timestamp_ms=each.largest_timestamp_or_modified_ms(),
        )
        for each, end in zip(segments, ends, strict=True)
    ]


def truncate_to(log: Log, offset: int) -> None:
    """Drop every batch that reaches `offset` or lies behind it; on the device when done.

    A batch that holds `offset` goes whole. At or behind the log end only leader epochs that begin
    there are forgotten; below the first segment the log begins anew at `offset`.

        [0…99] [100…169]   truncate_to(120)   [0…99] [100…119]

    As in Kafka a transaction that has ended below `offset` may count as decided from now on, though
    the high watermark has not passed its marker: a snapshot does not tell.

    After a crash in between: a prefix of the old log, not shorter than what was asked for. The
    recovery point moves back with the end: until the caller has written the checkpoints, nothing
    may be appended, or a start would trust what is not on the device.

    Raises:
        OSError: the device refused; the log takes no calls any more, and the next start finds a
            prefix.
    """
    log.check_usable()
    segments = tuple(log.segments)
    if offset < segments[0].base_offset:
        truncate_fully_and_start_at(log, offset)
        return
    if offset >= log.end_offset:
        log.epochs.cut_end(log.end_offset)
        return
    kept = [segment for segment in segments if segment.base_offset <= offset]
    try:
        for segment in reversed(segments[len(kept) :]):
            _retire(log, segment)
        log.folder.files.sync_directory(log.folder.path)
        try:
            kept[-1].truncate_to(offset)
            kept[-1].sync()
        finally:
            _settle_end(log)
    except OSError as error:
        log.fail(f"it could not be cut at offset {offset}, {error}; start again to recover")
        raise


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    """Drop everything and go on as an empty log whose first offset is `offset`.

    Checkpoints must be written as after `truncate_to`, for the log start too.

    Raises:
        OSError: the device refused; the log takes no calls any more. The next start finds the old
            log, a prefix of it, or an empty one.
    """
    log.check_usable()
    oldest, *later = tuple(log.segments)
    try:
        for segment in reversed(later):
            _retire(log, segment)
        _retire_files(log, oldest.paths())
        new = log.make_segment(offset)
        log.segments.replace([new], [oldest])
        oldest.close()
        log.folder.files.sync_directory(log.folder.path)
        log.epochs.clear()
        log.producers.truncate_fully(offset)
    except OSError as error:
        log.fail(f"it could not begin anew at offset {offset}, {error}; start again to recover")
        raise
    log.positions.begin_at(offset)


def replace_segments(log: Log, new: Sequence[Segment], old: Sequence[Segment]) -> None:
    """Put what compaction has made of some closed segments in their place.

    The new ones, mostly one, have their `.swap` names on the device (`cleaner.swap.publish`). After
    a crash at any point a start completes the step, since these names are there. The caller syncs
    the directory, on any thread, before the log is compacted again.

    Raises:
        StorageError: the log was deleted or has failed meanwhile; nothing is touched, for another
            partition may have its name and folder by now.
        OSError: a file cannot be renamed; the log serves the new segments all the same.
    """
    log.check_usable()
    log.segments.replace(new, old)
    kept = {each.base_offset for each in new}
    bases = [each.base_offset for each in old if each.base_offset not in kept]
    for each in old:
        _retire_files(log, each.paths())
        each.close()
    _retire_files(log, log.producers.remove_snapshots_at(bases))
    swap.complete(*new)


def _settle_end(log: Log) -> None:
    """Bring all that is known of the log to where its last segment ends."""
    positions = log.positions
    positions.cut_end(log.segments.active.next_offset())
    log.epochs.cut_end(log.end_offset)
    log.producers.reload(log.segments, log_start=log.start_offset, log_end=log.end_offset)
    log.producers.advance_high_watermark(positions.high_watermark)
    positions.settle_last_stable(log.producers.first_unstable_offset)


def _retire(log: Log, segment: Segment) -> None:
    """Take one segment out of service; its `.log` is renamed first, so that it never lacks one.

    Should that fail, the segment stays in service.
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
