"""Which log is cleaned next, from where to where, and in which groups."""

from collections.abc import Sequence

import pytest

from tailrace.config.settings import INT32_MAX
from tailrace.model import Offset, TopicPartition
from tailrace.storage.cleaner.passes import log_facts
from tailrace.storage.cleaner.plan import (
    CleanableSegment,
    CleaningPlan,
    LogFacts,
    choose_filthiest,
    group_segments,
    plan_cleaning,
    plan_range,
)
from tailrace.storage.positions import Positions
from tests.unit.storage.cleaner.shelves import NOW, Shelf, settings

HOUR_MS = 3_600_000


def facts(
    *bases: int,
    log_start: int = 0,
    log_end: int | None = None,
    last_stable: int | None = None,
    timestamps: Sequence[int] = (),
    sizes: Sequence[int] = (),
) -> LogFacts:
    """A log with segments of 100 bytes at these offsets; ten offsets in the active one."""
    end = bases[-1] + 10 if log_end is None else log_end
    return LogFacts(
        log_start=log_start,
        last_stable=end if last_stable is None else last_stable,
        log_end=end,
        segments=tuple(
            CleanableSegment(
                base_offset=base,
                size_bytes=sizes[place] if sizes else 100,
                largest_timestamp_ms=timestamps[place] if timestamps else NOW,
                first_timestamp_ms=timestamps[place] if timestamps else NOW,
            )
            for place, base in enumerate(bases)
        ),
    )


def bounds(log: LogFacts, checkpoint: int | None = 0, **given: object) -> tuple[int, int]:
    """First dirty and first uncleanable offset."""
    found = plan_range(log, checkpoint=checkpoint, config=settings(**given), now_ms=NOW)
    return found.first_dirty, found.first_uncleanable


def weighed(log: LogFacts, checkpoint: int | None = 0, **given: object) -> CleaningPlan:
    """The plan for a log."""
    config = settings(**given)
    dirty = plan_range(log, checkpoint=checkpoint, config=config, now_ms=NOW)
    return plan_cleaning(log, dirty, config=config, now_ms=NOW)


def test_cleaning_is_bounded_by_the_last_stable_offset() -> None:
    """Without a lag the log is cleanable up to where transactions and replication have come."""
    assert bounds(facts(0, 20, 40, 60, 80, last_stable=50)) == (0, 50)


def test_cleaning_is_bounded_by_the_active_segment() -> None:
    """The segment that takes writes is never cleaned."""
    assert bounds(facts(0, 20, 40, 60, 80)) == (0, 80)


def test_a_minimum_lag_stops_at_the_first_young_segment() -> None:
    """A segment whose largest timestamp is too recent stays, and so do all behind it."""
    old = NOW - HOUR_MS - 1
    log = facts(0, 20, 40, 60, 80, timestamps=(old, old, NOW, old, NOW))
    assert bounds(log, min_compaction_lag_ms=HOUR_MS) == (0, 40)


def test_a_lag_that_everything_has_outlived_leaves_the_active_segment() -> None:
    """When all records are old enough the bound is where the active segment begins."""
    log = facts(0, 20, 40, timestamps=(NOW - HOUR_MS - 1,) * 3)
    assert bounds(log, min_compaction_lag_ms=HOUR_MS) == (0, 40)


def test_a_segment_of_exactly_the_lag_is_old_enough() -> None:
    """Only what is younger than the lag is too young."""
    log = facts(0, 20, 40, timestamps=(NOW - HOUR_MS,) * 3)
    assert bounds(log, min_compaction_lag_ms=HOUR_MS) == (0, 40)


def test_an_undecided_transaction_keeps_its_segment_from_being_cleaned() -> None:
    """The bound follows the transaction, then the lag, then the active segment."""
    old = NOW - HOUR_MS - 1
    lag = {"min_compaction_lag_ms": HOUR_MS}
    log = facts(0, 3, log_end=3, last_stable=0, timestamps=(old, NOW))
    assert bounds(log, **lag) == (0, 0)
    log = facts(0, 3, 4, log_end=4, timestamps=(old, NOW, NOW))
    assert bounds(log, **lag) == (0, 3)
    log = facts(0, 3, 4, log_end=4, timestamps=(old, old, NOW))
    assert bounds(log, **lag) == (0, 4)


def test_a_checkpoint_inside_of_the_log_is_taken() -> None:
    """The round goes on where the last one ended."""
    found = plan_range(facts(0, 20, log_start=10), checkpoint=15, config=settings(), now_ms=NOW)
    assert (found.first_dirty, found.is_checkpoint_reset) == (15, False)


def test_a_log_that_was_never_cleaned_begins_at_its_start() -> None:
    """No checkpoint is no error."""
    found = plan_range(facts(0, 20, log_start=10), checkpoint=None, config=settings(), now_ms=NOW)
    assert (found.first_dirty, found.is_checkpoint_reset) == (10, False)


@pytest.mark.parametrize("checkpoint", [15, 35], ids=["below the start", "beyond the end"])
def test_a_checkpoint_outside_of_the_log_is_reset_to_its_start(checkpoint: int) -> None:
    """Cleaning starts at the log start, and the plan says that the checkpoint must change."""
    log = facts(0, 20, log_start=20)
    found = plan_range(log, checkpoint=checkpoint, config=settings(), now_ms=NOW)
    assert (found.first_dirty, found.is_checkpoint_reset) == (20, True)


def test_a_checkpoint_beyond_the_end_resets_to_the_log_start() -> None:
    """The log was cut after it was cleaned, so all of it counts as dirty."""
    log = facts(0, 20, log_start=5)
    found = plan_range(log, checkpoint=31, config=settings(), now_ms=NOW)
    assert (found.first_dirty, found.is_checkpoint_reset) == (5, True)


def test_a_checkpoint_below_the_start_resets_to_the_log_start() -> None:
    """Records below it were deleted on request."""
    log = facts(0, 20, log_start=7)
    found = plan_range(log, checkpoint=6, config=settings(), now_ms=NOW)
    assert (found.first_dirty, found.is_checkpoint_reset) == (7, True)


def test_a_log_start_in_the_active_segment_leaves_nothing_to_clean() -> None:
    """Records were deleted up to an offset that the active segment holds."""
    plan = weighed(facts(0, log_start=2), 0)
    assert (plan.cleanable_bytes, plan.is_due) == (0, False)
    assert choose_filthiest({TopicPartition("foo", 0): plan}) is None


def test_a_checkpoint_in_the_active_segment_leaves_nothing_to_clean() -> None:
    """The last round ended behind where the active segment begins."""
    plan = weighed(facts(0), 3)
    assert (plan.cleanable_bytes, plan.is_due) == (0, False)
    assert choose_filthiest({TopicPartition("foo", 0): plan}) is None


def test_everything_but_the_active_segment_is_weighed() -> None:
    """A log that is clean up to its active segment has all its other bytes as clean ones."""
    log = facts(0, 20, 40, sizes=(10, 20, 40))
    plan = weighed(log, 40)
    assert (plan.total_bytes, plan.clean_bytes, plan.cleanable_bytes) == (30, 30, 0)


def test_clean_and_cleanable_bytes_and_their_ratio() -> None:
    """Segments before the dirty one are clean, those from it up to the bound are cleanable."""
    log = facts(0, 20, 40, 60, 80, 100, sizes=(1, 2, 4, 8, 16, 32), last_stable=80)
    plan = weighed(log, 40)
    assert (plan.clean_bytes, plan.cleanable_bytes, plan.total_bytes) == (3, 12, 15)
    assert plan.dirty_ratio == pytest.approx(12 / 15)
    assert plan.first_uncleanable == 80


def test_a_segment_that_the_bound_cuts_is_not_cleaned() -> None:
    """The bound goes down to where a segment begins."""
    plan = weighed(facts(0, 20, 40, last_stable=30))
    assert plan.first_uncleanable == 20
    assert plan.cleanable_bytes == 100


def test_a_log_is_due_when_enough_of_it_is_dirty() -> None:
    """The ratio has to be above `min.cleanable.dirty.ratio`, not at it."""
    log = facts(0, 20, 40)
    assert weighed(log, 20, min_cleanable_dirty_ratio=0.49).is_due
    assert not weighed(log, 20, min_cleanable_dirty_ratio=0.5).is_due


def test_a_log_is_due_when_a_record_has_waited_too_long() -> None:
    """`max.compaction.lag.ms` counts from the first batch of each dirty segment."""
    lag = {"min_cleanable_dirty_ratio": 1, "max_compaction_lag_ms": HOUR_MS}
    log = facts(0, 20, 40, timestamps=(NOW - 9 * HOUR_MS, NOW - HOUR_MS - 7, NOW))
    plan = weighed(log, 20, **lag)
    assert (plan.delay_ms, plan.is_due) == (7, True)
    assert not weighed(facts(0, 20, 40, timestamps=(NOW - HOUR_MS,) * 3), 20, **lag).is_due


def plan_of(cleanable: int, *, is_due: bool = True) -> CleaningPlan:
    """A plan with so many of 100 bytes dirty."""
    return CleaningPlan(
        first_dirty=0,
        first_uncleanable=10,
        clean_bytes=100 - cleanable,
        cleanable_bytes=cleanable,
        delay_ms=0,
        is_due=is_due,
    )


def test_the_log_with_the_largest_dirty_ratio_is_chosen() -> None:
    """The log with the largest dirty ratio is chosen."""
    plans = {TopicPartition("log", n): plan_of(cleanable) for n, cleanable in enumerate((5, 9, 7))}
    assert choose_filthiest(plans) == TopicPartition("log", 1)


def test_a_log_that_is_not_due_is_never_chosen() -> None:
    """However dirty it is, its settings have the last word."""
    one, two = TopicPartition("log", 1), TopicPartition("log", 2)
    assert choose_filthiest({one: plan_of(90, is_due=False), two: plan_of(5)}) == two
    assert choose_filthiest({one: plan_of(90, is_due=False)}) is None
    assert choose_filthiest({}) is None


def segment(base: int, size: int = 100, index: int = 24) -> CleanableSegment:
    """A segment with entries in both indexes."""
    return CleanableSegment(
        base_offset=base,
        size_bytes=size,
        largest_timestamp_ms=NOW,
        offset_index_bytes=index,
        time_index_bytes=index,
    )


def groups_of(segments: Sequence[CleanableSegment], end: int, **given: object) -> list[list[int]]:
    """Base offsets by group."""
    large = {"segment_bytes": INT32_MAX, "segment_index_bytes": INT32_MAX}
    config = settings(**{**large, **given})
    groups = group_segments(segments, config=config, first_uncleanable=end)
    return [[each.base_offset for each in group] for group in groups]


def test_groups_are_bounded_by_log_bytes_and_by_index_bytes() -> None:
    """Neither log nor indexes of a group are more than one segment may have; order is kept."""
    segments = [segment(base, size=2000) for base in range(0, 100, 10)]
    bases = [each.base_offset for each in segments]
    assert groups_of(segments, 100) == [bases]
    assert groups_of(segments, 100, segment_bytes=1024) == [[base] for base in bases]
    assert groups_of(segments, 100, segment_index_bytes=24) == [[base] for base in bases]
    threes = [[0, 10, 20], [30, 40, 50], [60, 70, 80], [90]]
    assert groups_of(segments, 100, segment_bytes=6001) == threes
    assert groups_of(segments, 100, segment_index_bytes=73) == threes


def test_a_time_index_bounds_a_group_as_well() -> None:
    """Its entries are larger than those of the offset index."""
    segments = [
        CleanableSegment(
            base_offset=base, size_bytes=1, largest_timestamp_ms=NOW, time_index_bytes=36
        )
        for base in (0, 10, 20)
    ]
    assert groups_of(segments, 30, segment_index_bytes=72) == [[0, 10], [20]]


def test_a_group_spans_no_more_offsets_than_an_index_can_hold() -> None:
    """The last offset that a segment can have is bounded by the base of the next."""
    segments = [segment(0), segment(10)]
    assert groups_of(segments, INT32_MAX + 1) == [[0, 10]]
    assert groups_of(segments, INT32_MAX + 2) == [[0], [10]]
    many = [segment(0), segment(10), segment(INT32_MAX + 2), segment(INT32_MAX + 9)]
    assert groups_of(many, INT32_MAX + 11) == [[0], [10, INT32_MAX + 2, INT32_MAX + 9]]


def test_empty_segments_join_a_group_whatever_their_offsets_are() -> None:
    """Otherwise every 2^31 offsets would leave an empty segment behind for ever."""
    far = [segment(n * (INT32_MAX + 1), size=100) for n in range(3)]
    end = 3 * (INT32_MAX + 1)
    assert len(groups_of(far, end)) == 3
    emptied = [segment(0, size=0), segment(INT32_MAX + 1, size=0), far[2]]
    assert groups_of(emptied, end) == [[0, INT32_MAX + 1], [2 * (INT32_MAX + 1)]]


def test_an_index_without_entries_does_not_hide_the_offsets_of_its_segment() -> None:
    """The span is bounded by base offsets, never by what an index happens to hold."""
    half = INT32_MAX // 2
    segments = [segment(0, index=0), segment(half, index=0)]
    assert groups_of(segments, INT32_MAX + 2) == [[0], [half]]


def test_facts_are_read_from_segments() -> None:
    """Sizes, timestamps and index entries are those of the files."""
    shelf = Shelf(index_interval_bytes=0)
    shelf.append_keys(1, 2, timestamp=NOW)
    shelf.append_keys(3, timestamp=NOW + 50)
    shelf.roll()
    shelf.files.set_modified_ms(shelf.segments[1].log.path, 77)
    positions = Positions(
        log_start=Offset(0),
        recovery_point=Offset(0),
        last_stable=Offset(3),
        high_watermark=Offset(3),
        log_end=Offset(3),
    )
    first, active = log_facts(shelf.segments, positions).segments
    assert first.size_bytes == shelf.segments[0].size
    assert first.first_timestamp_ms == NOW + 1
    assert first.largest_timestamp_ms == NOW + 50
    assert (first.offset_index_bytes, first.time_index_bytes) == (8, 12)
    assert (active.first_timestamp_ms, active.largest_timestamp_ms) == (None, 77)
