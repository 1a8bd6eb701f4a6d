"""Collect the facts about a log and its segments from which `plan` decides."""

from collections.abc import Sequence

from tailrace.storage.cleaner.plan import CleanableSegment, LogFacts
from tailrace.storage.index.offset import ENTRY as OFFSET_ENTRY
from tailrace.storage.index.time import ENTRY as TIME_ENTRY
from tailrace.storage.positions import Positions
from tailrace.storage.segment import Segment, retention_time_ms


def segment_facts(segment: Segment) -> CleanableSegment:
    """The facts of one segment.

    Raises:
        CorruptionError: the log does not begin with a batch.
        OSError: the file's time cannot be read.
    """
    return CleanableSegment(
        base_offset=segment.base_offset,
        size_bytes=segment.size,
        largest_timestamp_ms=retention_time_ms(segment),
        first_timestamp_ms=segment.first_timestamp,
        offset_index_bytes=segment.offset_index.entries.count * OFFSET_ENTRY.size,
        time_index_bytes=segment.time_index.entries.count * TIME_ENTRY.size,
    )


def log_facts(segments: Sequence[Segment], positions: Positions) -> LogFacts:
    """The facts of a log and all of its segments.

    Raises:
        CorruptionError: a log file does not begin with a batch.
        OSError: the time of a file cannot be read.
    """
    return LogFacts(
        log_start=positions.log_start,
        last_stable=positions.last_stable,
        log_end=positions.log_end,
        segments=tuple(segment_facts(segment) for segment in segments),
    )
