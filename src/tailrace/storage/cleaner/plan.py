"""What to clean next, decided from facts: which log, from where to where, in which groups. Pure.

    log start      first dirty              first uncleanable      active segment      log end
    |--------------|------------------------|----------------------|-------------------|
     clean already   dirty: put in the map    too young, or of an
     |                                    |   undecided transaction
     `------- rewritten, in groups -------'

Invariant: 0 <= first dirty <= first uncleanable, and nothing at or behind the first uncleanable
offset is ever rewritten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailrace.config.settings import INT32_MAX
from tailrace.model import TopicPartition
from tailrace.storage.config import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What a decision needs to know of one segment."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    """Of its records, or the time of its last write if they have none."""
    first_timestamp_ms: int | None = None
    """Of its first batch; None if it has none."""
    offset_index_bytes: int = 0
    time_index_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What a decision needs to know of one log; the last segment is the active one."""

    log_start: int
    last_stable: int
    log_end: int
    segments: tuple[SegmentFacts, ...]

    @property
    def active_base(self) -> int:
        """Base offset of the segment that takes writes."""
        return self.segments[-1].base_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class DirtyRange:
    """The offsets that the next round would put in its map."""

    first_dirty: int
    first_uncleanable: int
    """The offset behind them, as the last stable offset, age and active segment allow."""
    is_checkpoint_reset: bool
    """Whether the checkpoint was outside of the log and has to become `first_dirty`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """One log, weighed: what a round would work on and how much that is."""

    first_dirty: int
    first_uncleanable: int
    """Base offset of the first segment that stays as it is."""
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """How long the oldest dirty record has been waiting beyond `max.compaction.lag.ms`."""
    is_due: bool
    """Whether the share of dirty bytes, or their age, asks for a round."""

    @property
    def total_bytes(self) -> int:
        """Bytes that a round would read and write anew."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def dirty_ratio(self) -> float:
        """Share of those bytes that has never been cleaned, from 0 to 1."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0


def plan_range(
    log: LogFacts, *, checkpoint: int | None, config: LogConfig, now_ms: int
) -> DirtyRange:
    """Which offsets are dirty and may be cleaned; `checkpoint` is where the last round ended."""
    first_dirty = log.log_start if checkpoint is None else checkpoint
    is_reset = not log.log_start <= first_dirty <= log.log_end
    if is_reset:
        # Above the end, the log was cut after it was cleaned, so none of it counts as clean.
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
    """How much a round over the range would have to do, and whether it is worth it by now."""
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
    """The due log with the largest dirty ratio, or None; who may not be cleaned is left out."""
    due = [partition for partition, plan in plans.items() if plan.is_due and plan.total_bytes]
    return max(due, key=lambda partition: plans[partition].dirty_ratio, default=None)


def group_segments(
    segments: Sequence[SegmentFacts], *, config: LogConfig, first_uncleanable: int
) -> list[tuple[SegmentFacts, ...]]:
    """The segments in runs, each of which fits one new segment even if nothing of it goes.

    `first_uncleanable` bounds the offsets of the last segment, as base offsets bound the others:
    to know better would mean to read them.
    """
    groups: list[tuple[SegmentFacts, ...]] = []
    limits = [segment.base_offset for segment in segments[1:]] + [first_uncleanable]
    for segment, limit in zip(segments, limits, strict=True):
        if groups and _fits(groups[-1], segment, limit=limit, config=config):
            groups[-1] += (segment,)
        else:
            groups.append((segment,))
    return groups


def _fits(
    group: tuple[SegmentFacts, ...], segment: SegmentFacts, *, limit: int, config: LogConfig
) -> bool:
    merged = (*group, segment)
    # An empty segment has no offset that the index would have to hold; counting it would leave one
    # empty segment behind for every 2^31 offsets.
    is_in_reach = segment.size_bytes == 0 or limit - 1 - group[0].base_offset <= INT32_MAX
    return (
        is_in_reach
        and sum(each.size_bytes for each in merged) <= config.segment_bytes
        and sum(each.offset_index_bytes for each in merged) <= config.segment_index_bytes
        and sum(each.time_index_bytes for each in merged) <= config.segment_index_bytes
    )


def _inactive_from(log: LogFacts, offset: int) -> tuple[SegmentFacts, ...]:
    """The segments from the one that holds `offset` up to the active one, without it."""
    return _between(log.segments, offset, log.active_base)


def _between(
    segments: tuple[SegmentFacts, ...], start: int, limit: int
) -> tuple[SegmentFacts, ...]:
    """The segments with offsets from `start` to below `limit`, as their base offsets tell."""
    if start >= limit:
        return ()
    floor = max((each.base_offset for each in segments if each.base_offset <= start), default=start)
    return tuple(each for each in segments if floor <= each.base_offset < limit)
