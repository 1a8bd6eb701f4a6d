"""Plan a cleaning: which log, which range of offsets, which groups of segments. Pure.

    log start      first dirty              first uncleanable      active segment      log end
    |--------------|------------------------|----------------------|-------------------|
     clean already   dirty: put in the map    too young, or in an
     |                                    |   open transaction
     `------- rewritten, in groups -------'

Invariant: 0 <= first dirty <= first uncleanable, and no record at or above the first uncleanable
offset is rewritten.
"""

from collections.abc import Mapping, Sequence

from tailrace.config.settings import INT32_MAX
from tailrace.model import TopicPartition
from tailrace.storage.config import LogConfig
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanableSegment:
    """The facts of one segment that a plan needs."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    """Largest timestamp of its records, or the time of its last write if they have none."""
    first_timestamp_ms: int | None = None
    """Timestamp of its first batch; None without one."""
    offset_index_bytes: int = 0
    time_index_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """The facts of one log that a plan needs; the last segment is the active one."""

    log_start: int
    last_stable: int
    log_end: int
    segments: tuple[CleanableSegment, ...]

    @property
    def active_base(self) -> int:
        """Base offset of the segment that takes writes."""
        return self.segments[-1].base_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class DirtyRange:
    """The offsets that the next round puts in its map."""

    first_dirty: int
    first_uncleanable: int
    """The offset after the range; limited by last stable offset, compaction lag, active segment."""
    is_checkpoint_reset: bool
    """Whether the checkpoint was outside of the log and must be set to `first_dirty`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """The range and the size of the next round over one log."""

    first_dirty: int
    first_uncleanable: int
    """Base offset of the first segment that is not rewritten."""
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """Time by which the oldest dirty record has waited longer than `max.compaction.lag.ms`."""
    is_due: bool
    """Whether the dirty ratio, or the age of dirty records, requires a round."""

    @property
    def total_bytes(self) -> int:
        """Bytes that a round would read and rewrite."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def dirty_ratio(self) -> float:
        """Share of `total_bytes` that has never been cleaned, from 0 to 1."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0


def plan_range(
    log: LogFacts, *, checkpoint: int | None, config: LogConfig, now_ms: int
) -> DirtyRange:
    """The dirty offsets that may be cleaned; `checkpoint` is where the last round ended."""
    first_dirty = log.log_start if checkpoint is None else checkpoint
    is_reset = not log.log_start <= first_dirty <= log.log_end
    if is_reset:
        # If the checkpoint is above the log end, the log was truncated after it was cleaned, so
        # the whole log counts as dirty.
        first_dirty = log.log_start
    limits = [log.last_stable, log.active_base]
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        limits += [
            segment.base_offset
            for segment in _inactive_from(log, first_dirty)
            if segment.largest_timestamp_ms > youngest_ms
        ]
    return DirtyRange(
        first_dirty=first_dirty,
        first_uncleanable=max(first_dirty, min(limits)),
        is_checkpoint_reset=is_reset,
    )


def plan_cleaning(
    log: LogFacts, dirty: DirtyRange, *, config: LogConfig, now_ms: int
) -> CleaningPlan:
    """The size of a round over the range, and whether it is due."""
    # A segment is cleaned whole or not at all.
    beyond = _inactive_from(log, dirty.first_uncleanable)
    limit = beyond[0].base_offset if beyond else log.active_base
    start = min(dirty.first_dirty, limit)
    cleanable = sum(segment.size_bytes for segment in _between(log.segments, start, limit))
    clean = sum(
        segment.size_bytes for segment in log.segments if segment.base_offset < dirty.first_dirty
    )
    oldest_ms = min(
        (
            segment.first_timestamp_ms
            for segment in _inactive_from(log, dirty.first_dirty)
            if segment.first_timestamp_ms is not None and segment.first_timestamp_ms > 0
        ),
        default=now_ms,
    )
    delay_ms = max(0, now_ms - config.max_compaction_lag_ms - oldest_ms)
    ratio = cleanable / (clean + cleanable) if cleanable else 0.0
    return CleaningPlan(
        first_dirty=dirty.first_dirty,
        first_uncleanable=limit,
        clean_bytes=clean,
        cleanable_bytes=cleanable,
        delay_ms=delay_ms,
        is_due=(delay_ms > 0 and cleanable > 0) or ratio > config.min_cleanable_dirty_ratio,
    )


def choose_filthiest(plans: Mapping[TopicPartition, CleaningPlan]) -> TopicPartition | None:
    """The due log with the largest dirty ratio, or None; `plans` has only logs to choose from."""
    due = [partition for partition, plan in plans.items() if plan.is_due and plan.total_bytes]
    return max(due, key=lambda partition: plans[partition].dirty_ratio, default=None)


def group_segments(
    segments: Sequence[CleanableSegment], *, config: LogConfig, first_uncleanable: int
) -> list[tuple[CleanableSegment, ...]]:
    """Group the segments so that each group fits one new segment even if no record is removed.

    The next base offset limits the offsets of a segment, and `first_uncleanable` those of the last
    one; the real last offsets would have to be read.
    """
    groups: list[tuple[CleanableSegment, ...]] = []
    limits = [segment.base_offset for segment in segments[1:]] + [first_uncleanable]
    for segment, limit in zip(segments, limits, strict=True):
        if groups and _fits(groups[-1], segment, limit=limit, config=config):
            groups[-1] += (segment,)
        else:
            groups.append((segment,))
    return groups


def _fits(
    group: tuple[CleanableSegment, ...], segment: CleanableSegment, *, limit: int, config: LogConfig
) -> bool:
    merged = (*group, segment)
    # An empty segment needs no offset in the index. If its range counted, compaction would leave an
    # empty segment for every 2^31 offsets.
    is_in_reach = segment.size_bytes == 0 or limit - 1 - group[0].base_offset <= INT32_MAX
    return (
        is_in_reach
        and sum(each.size_bytes for each in merged) <= config.segment_bytes
        and sum(each.offset_index_bytes for each in merged) <= config.segment_index_bytes
        and sum(each.time_index_bytes for each in merged) <= config.segment_index_bytes
    )


def _inactive_from(log: LogFacts, offset: int) -> tuple[CleanableSegment, ...]:
    """The segments from the one with `offset` up to the active one, which is excluded."""
    return _between(log.segments, offset, log.active_base)


def _between(
    segments: tuple[CleanableSegment, ...], start: int, limit: int
) -> tuple[CleanableSegment, ...]:
    """The segments with offsets from `start` to below `limit`, according to their base offsets."""
    if start >= limit:
        return ()
    floor = max((each.base_offset for each in segments if each.base_offset <= start), default=start)
    return tuple(each for each in segments if floor <= each.base_offset < limit)
