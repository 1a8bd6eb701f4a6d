"""From a partition's folder, in whatever state, to a `Log`. The steps are Kafka's (LogLoader).

    folder                          what is done with it
    0…0.log .index .timeindex       opened
    index without its .log          deleted
    .log without an offset index    that segment is recovered
    170.log after an unclean stop   recovered, if it reaches behind the recovery point

To recover a segment is to check each batch (CRC, offsets rising), to cut behind the last good one,
and to write both indexes anew. When anything was cut, the segments behind it are deleted: what
follows a hole is not a prefix of what was appended (promise 2). What was cut is told in full.

The work can stop at any point and be done again: it only removes what the next run would remove.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.errors import CorruptionError
from tailrace.model import TopicPartition
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.config import LogConfig
from tailrace.storage.epochs import open_leader_epochs
from tailrace.storage.index.time import TimestampOffset
from tailrace.storage.log import Log
from tailrace.storage.positions import Positions
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
        OSError: a file cannot be opened, read or written.
    """
    recovery_point, log_start = checkpoints
    bases = _remove_orphans(files, directory)
    opened: list[Segment] = []
    for number, base in enumerate(bases):
        has_index = files.exists(
            f"{directory}/{names.segment_file_name(base, names.OFFSET_INDEX_SUFFIX)}"
        )
        limit = bases[number + 1] if number + 1 < len(bases) else None
        segment = open_segment(files, directory, base_offset=base, config=config)
        opened.append(segment)
        is_behind_recovery_point = limit is None or limit > recovery_point
        if _is_trusted(segment, is_clean=is_clean or not is_behind_recovery_point) and has_index:
            if limit is not None:
                segment.finish()
            continue
        cut = recover_segment(segment, config)
        if limit is not None:
            segment.finish()
        if cut is not None:
            _tell(cut, report)
            for later in bases[number + 1 :]:
                _drop_segment(files, directory, later, report=report)
            break
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
        recovery_point=recovery_point,
        log_start=log_start,
    )


def recover_segment(segment: Segment, config: LogConfig) -> Cut | None:
    """Check every batch, write the indexes anew, and cut behind the last good batch.

    Returns what was cut, or None. After a crash halfway: do it again.
    """
    offset_index, time_index = segment.offset_index, segment.time_index
    offset_index.entries.resize(config.segment_index_bytes // 8)
    time_index.entries.resize(config.segment_index_bytes // 12)
    offset_index.entries.clear()
    time_index.entries.clear()
    newest = time_index.last
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
            if position - last_entry_position > config.index_interval_bytes:
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
    segment.log.truncate(good_bytes)
    return Cut(path=segment.log.path, position=good_bytes, bytes_cut=bytes_cut, reason=reason)


def _is_trusted(segment: Segment, *, is_clean: bool) -> bool:
    """Whether the index files can be used as they are."""
    if not is_clean:
        return False
    try:
        segment.offset_index.check(segment.log.size)
        segment.time_index.check()
    except CorruptionError as error:
        logger.warning("index_rebuilt reason=%s", error)
        return False
    return True


def _assemble(
    files: Files,
    directory: str,
    *,
    partition: TopicPartition,
    config: LogConfig,
    opened: list[Segment],
    recovery_point: int,
    log_start: int,
) -> Log:
    log_end = opened[-1].next_offset()
    log_start = max(log_start, opened[0].base_offset)
    if log_end < log_start:
        # Everything up to the log start was deleted on request and the tail is lost: begin anew.
        for segment in opened:
            segment.close()
            _remove_segment_files(files, directory, segment.base_offset)
        opened = [open_segment(files, directory, base_offset=log_start, config=config, create=True)]
        log_end = log_start
    epochs = open_leader_epochs(files, directory)
    epochs.cut_end(log_end)
    return Log(
        partition=partition,
        directory=directory,
        files=files,
        config=config,
        segments=Segments(opened),
        epochs=epochs,
        positions=Positions(
            log_start=log_start,
            recovery_point=min(recovery_point, log_end),
            last_stable=log_end,
            high_watermark=log_end,
            log_end=log_end,
        ),
    )


def _remove_orphans(files: Files, directory: str) -> list[int]:
    """Base offsets of the segments; leftovers of deletions and indexes without log go."""
    bases, indexes = [], []
    for name in files.list(directory):
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


def _drop_segment(
    files: Files, directory: str, base_offset: int, *, report: Callable[[Cut], None] | None
) -> None:
    path = f"{directory}/{names.segment_file_name(base_offset, names.LOG_SUFFIX)}"
    file = files.open(path, read_only=True)
    size = file.size()
    file.close()
    cut = Cut(path=path, position=0, bytes_cut=size, reason="it lies behind a segment that was cut")
    _tell(cut, report)
    _remove_segment_files(files, directory, base_offset)


def _remove_segment_files(files: Files, directory: str, base_offset: int) -> None:
    for suffix in (names.LOG_SUFFIX, names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
        path = f"{directory}/{names.segment_file_name(base_offset, suffix)}"
        if files.exists(path):
            files.remove(path)


def _tell(cut: Cut, report: Callable[[Cut], None] | None) -> None:
    logger.warning(
        "log_cut path=%s position=%d bytes=%d reason=%s",
        cut.path, cut.position, cut.bytes_cut, cut.reason,
    )  # fmt: skip
    if report is not None:
        report(cut)
