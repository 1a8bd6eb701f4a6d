"""From a partition's folder, in whatever state, to a `Log`. The steps are Kafka's (LogLoader).

    folder                          what is done with it
    a compaction left half done     refused: only Apache Kafka can complete it
    0…0.log .index .timeindex       opened
    index without its .log          deleted
    .log without an index, or with  that segment is recovered
      one that cannot be its
    170.log after an unclean stop   recovered, if it reaches behind the recovery point
    170.snapshot                    the newest is read, and the batches behind it; see `producers`

To recover a segment is to check each batch (CRC, offsets rising), to write both indexes anew, and
to cut behind the last good batch. When anything was cut, the segments behind it are deleted: what
follows a hole is not a prefix of what was appended (promise 2). A lost machine can also lose a tail
that ends between two batches; then nothing is torn, but the next segment begins too late, and it
goes too. (Not on compacted topics, where such a gap is in order.) What was cut is told in full.

The work can stop at any point and be done again. So the segments behind a cut are deleted first,
last one first, and the cut comes after: without it the next run could not know that they must go.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailrace.errors import CorruptionError, DirectoryError
from tailrace.model import NO_TIMESTAMP, TopicPartition
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.config import LogConfig
from tailrace.storage.epochs import open_leader_epochs
from tailrace.storage.index.time import TimestampOffset
from tailrace.storage.log import Log
from tailrace.storage.positions import Positions
from tailrace.storage.producers import open_producers
from tailrace.storage.segment import Segment, open_segment
from tailrace.storage.segments import Segments

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What recovery removed, and why."""

    path: str
    position: int
    bytes_cut: int
    reason: str


def open_log(
    files: Files,
    directory: str,
    *,
    partition: TopicPartition,
    config: LogConfig,
    is_clean: bool,
    checkpoints: tuple[int, int] = (0, 0),
    report: Callable[[Cut], None] | None = None,
) -> Log:
    """Open a partition's folder for reading and writing, an empty one included.

    `is_clean` says that the last stop was orderly, so indexes and tail can be trusted;
    `checkpoints` are the recovery point and the log start offset from the directory's files.
    `report` is called with everything that is cut.

    Raises:
        CorruptionError: a checkpoint of the folder is malformed.
        DirectoryError: Apache Kafka has to complete a compaction first.
        OSError: a file cannot be opened, read or written.
    """
    recovery_point, log_start = checkpoints
    bases = _remove_leftovers(files, directory)
    opened: list[Segment] = []
    for number, base in enumerate(bases):
        later = bases[number + 1 :]
        has_indexes = _has_indexes(files, directory, base)
        segment = open_segment(files, directory, base_offset=base, config=config)
        opened.append(segment)
        is_on_device = is_clean or (bool(later) and later[0] <= recovery_point)
        if is_on_device and has_indexes and _is_sound(segment, is_last=not later):
            if later:
                segment.finish()
            continue
        cut = recover_segment(segment, config)
        if cut is not None:
            _tell(cut, report)
        is_gap_damage = not is_on_device and not config.is_compacted
        if later and (cut or (is_gap_damage and segment.next_offset() != later[0])):
            _drop_segments(
                files, directory, later, reason="what is before it was lost", report=report
            )
            later = []
        if cut is not None:
            segment.log.truncate(cut.position)
        if not later:
            break
        segment.finish()
    if not opened:
        opened.append(
            open_segment(files, directory, base_offset=log_start, config=config, create=True)
        )
    return _assemble(
        files,
        directory,
        partition=partition,
        config=config,
        opened=opened,
        checkpoints=checkpoints,
        report=report,
    )


def recover_segment(segment: Segment, config: LogConfig) -> Cut | None:
    """Check every batch, write the indexes anew, and tell what must be cut, or None.

    Cutting is left to the caller. After a crash halfway: do it again.

    Raises:
        OSError: the device refused.
    """
    offset_index, time_index = segment.offset_index, segment.time_index
    segment.clear_indexes(config.segment_index_bytes)
    newest = segment.newest
    good_bytes = last_entry_position = 0
    next_offset = segment.base_offset
    reason = "the last batch is not whole"
    try:
        for position, batch in segment.log.batches():
            batch.check()
            if batch.base_offset < next_offset or not segment.can_hold(batch.last_offset):
                raise CorruptionError(
                    f"offset {batch.base_offset} where {next_offset} or more is due",
                    path=segment.log.path,
                    position=position,
                )
            if batch.max_timestamp > newest.timestamp:
                newest = TimestampOffset(batch.max_timestamp, batch.last_offset)
            # The settings may have changed since the segment was written: an index that is full
            # too early stays behind the log, which costs a longer scan and nothing else.
            has_room = not (offset_index.is_full or time_index.is_full)
            if has_room and position - last_entry_position > config.index_interval_bytes:
                offset_index.append(batch.last_offset, position)
                time_index.maybe_append(*newest)
                last_entry_position = position
            good_bytes = position + batch.size
            next_offset = batch.last_offset + 1
    except CorruptionError as error:
        reason = error.rule
    segment.newest = newest
    bytes_cut = segment.log.size - good_bytes
    if not bytes_cut:
        return None
    return Cut(path=segment.log.path, position=good_bytes, bytes_cut=bytes_cut, reason=reason)


def _has_indexes(files: Files, directory: str, base_offset: int) -> bool:
    return all(
        files.exists(f"{directory}/{names.segment_file_name(base_offset, suffix)}")
        for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
    )


def _is_sound(segment: Segment, *, is_last: bool) -> bool:
    """Whether indexes and tail can be used as they are; looks at their ends only."""
    try:
        segment.offset_index.check(segment.log.size)
        segment.time_index.check()
        _check_time_index_is_due(segment)
        if is_last:
            segment.next_offset()
    except CorruptionError as error:
        logger.warning("segment_not_sound reason=%s", error)
        return False
    return True


def _check_time_index_is_due(segment: Segment) -> None:
    """A closed segment has a time entry exactly if it has a record with a timestamp."""
    first = next(segment.log.batches(), None)
    has_entries = segment.time_index.entries.count > 0
    if first is None and has_entries:
        raise CorruptionError("entries for an empty log", path=segment.time_index.entries.path)
    if first is not None and first[1].max_timestamp > NO_TIMESTAMP and not has_entries:
        raise CorruptionError("no entry", path=segment.time_index.entries.path)


def _assemble(
    files: Files,
    directory: str,
    *,
    partition: TopicPartition,
    config: LogConfig,
    opened: list[Segment],
    checkpoints: tuple[int, int],
    report: Callable[[Cut], None] | None,
) -> Log:
    recovery_point, log_start = checkpoints
    log_end = opened[-1].next_offset()
    log_start = max(log_start, opened[0].base_offset)
    if log_end < log_start:
        # Everything up to the log start was deleted on request and the tail is lost: begin anew.
        for segment in opened:
            segment.close()
        _drop_segments(
            files,
            directory,
            [segment.base_offset for segment in opened],
            reason=f"it lies below the log start offset {log_start}",
            report=report,
        )
        opened = [open_segment(files, directory, base_offset=log_start, config=config, create=True)]
        log_end = log_start
    epochs = open_leader_epochs(files, directory)
    epochs.cut_end(log_end)
    segments = Segments(opened)
    return Log(
        partition=partition,
        directory=directory,
        files=files,
        config=config,
        segments=segments,
        epochs=epochs,
        producers=open_producers(
            files, directory, segments=segments, log_start=log_start, log_end=log_end
        ),
        positions=Positions(
            log_start=log_start,
            recovery_point=min(recovery_point, log_end),
            last_stable=log_end,
            high_watermark=log_end,
            log_end=log_end,
        ),
    )


def _remove_leftovers(files: Files, directory: str) -> list[int]:
    """Base offsets of the segments; leftovers of deletions and indexes without log go."""
    bases, indexes = [], []
    found = files.list(directory)
    for name in found:
        if name.endswith(names.SWAP_SUFFIX):
            raise DirectoryError(
                f"{directory}/{name} is from a compaction that stopped halfway; start Apache Kafka "
                "on the directory once, which completes it"
            )
    for name in found:
        if name.endswith((names.DELETED_SUFFIX, ".tmp")):
            files.remove(f"{directory}/{name}")
            continue
        parsed = names.parse_segment_file_name(name)
        if parsed is None:
            continue
        base, suffix = parsed
        if suffix == names.LOG_SUFFIX:
            bases.append(base)
        elif suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
            indexes.append((base, name))
    for base, name in indexes:
        if base not in bases:
            files.remove(f"{directory}/{name}")
    return bases


def _drop_segments(
    files: Files,
    directory: str,
    base_offsets: Sequence[int],
    *,
    reason: str,
    report: Callable[[Cut], None] | None,
) -> None:
    """Remove segments, the last one first, so that a crash in between leaves no hole."""
    for base_offset in reversed(base_offsets):
        path = f"{directory}/{names.segment_file_name(base_offset, names.LOG_SUFFIX)}"
        file = files.open(path, read_only=True)
        size = file.size()
        file.close()
        _tell(Cut(path=path, position=0, bytes_cut=size, reason=reason), report)
        for suffix in (names.LOG_SUFFIX, names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
            path = f"{directory}/{names.segment_file_name(base_offset, suffix)}"
            if files.exists(path):
                files.remove(path)
    files.sync_directory(directory)


def _tell(cut: Cut, report: Callable[[Cut], None] | None) -> None:
    logger.warning(
        "log_cut path=%s position=%d bytes=%d reason=%s",
        cut.path, cut.position, cut.bytes_cut, cut.reason,
    )  # fmt: skip
    if report is not None:
        report(cut)
