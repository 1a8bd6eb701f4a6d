"""Tests of the part of a backlog that a micro-batch gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import TopicPartition
from tailrace.spark.options.values import RateLimits
from tailrace.spark.progress import cap_bytes, cap_offsets, is_worth_a_batch

PARTITIONS = tuple(TopicPartition("t", number) for number in range(5))
INT64_MAX = 2**63 - 1

SPANS = st.tuples(st.integers(0, 2**40), st.integers(0, 10_000)).map(
    lambda pair: (pair[0], sum(pair))
)
BACKLOGS = st.dictionaries(st.sampled_from(PARTITIONS), SPANS)


def lengths(backlog: dict[TopicPartition, tuple[int, int]]) -> list[int]:
    """Offsets by partition, in the order of their numbers."""
    return [limit - start for _, (start, limit) in sorted(backlog.items())]


def backlog_of(*counts: int) -> dict[TopicPartition, tuple[int, int]]:
    """A backlog of so many offsets in each partition."""
    return {
        PARTITIONS[number]: (100 * number, 100 * number + count)
        for number, count in enumerate(counts)
    }


def test_offsets_are_divided_in_proportion_and_nobody_starves() -> None:
    """The large partition gets most, and the small ones one each, as in Spark's own test."""
    assert lengths(cap_offsets(backlog_of(101, 11, 1), 10)) == [8, 1, 1]
    assert lengths(cap_offsets(backlog_of(60, 30, 10), 50)) == [30, 15, 5]
    assert lengths(cap_offsets(backlog_of(5, 0, 5), 1)) == [1, 0, 1]


def test_what_fits_is_left_whole() -> None:
    """Ranges within the limit stay whole, also with the largest possible limit."""
    backlog = backlog_of(3, 0, 7)
    assert cap_offsets(backlog, 10) == cap_offsets(backlog, INT64_MAX) == backlog
    assert cap_offsets({}, 1) == {}


def test_the_largest_numbers_are_divided_exactly() -> None:
    """Neither the end of a log nor a limit of `Long.MaxValue` overflows (SPARK-26718)."""
    backlog = {PARTITIONS[0]: (0, INT64_MAX), PARTITIONS[1]: (INT64_MAX - 1, INT64_MAX)}
    assert lengths(cap_offsets(backlog, INT64_MAX)) == [INT64_MAX - 1, 1]
    assert cap_offsets({PARTITIONS[0]: (5, INT64_MAX)}, 2**62) == {PARTITIONS[0]: (5, 5 + 2**62)}


@given(backlog=BACKLOGS, most=st.integers(1, 60_000))
def test_a_cap_keeps_the_start_and_makes_progress(
    backlog: dict[TopicPartition, tuple[int, int]], most: int
) -> None:
    """Every partition with a backlog goes on, none goes too far, and the sum is about the cap."""
    capped = cap_offsets(backlog, most)
    assert capped.keys() == backlog.keys()
    for partition, (start, limit) in backlog.items():
        assert capped[partition][0] == start
        assert min(start + 1, limit) <= capped[partition][1] <= limit
    assert sum(lengths(capped)) <= most + len(backlog)
    if sum(lengths(backlog)) <= most:
        assert capped == backlog


@given(backlog=BACKLOGS, most=st.integers(1, 10**9), small=st.integers(0, 50))
def test_bytes_are_divided_by_where_they_stand(
    backlog: dict[TopicPartition, tuple[int, int]], most: int, small: int
) -> None:
    """With offsets of two sizes, no partition takes more than its share, but for its first one."""

    def size_between(partition: TopicPartition, start: int, limit: int) -> int:
        first = backlog[partition][0]
        border = min(max(first + 100, start), limit)
        return (border - start) * small + (limit - border) * 1000

    capped = cap_bytes(backlog, most, size_between=size_between)
    total = sum(size_between(each, *span) for each, span in backlog.items())
    for partition, (start, limit) in capped.items():
        if limit - start > 1 and total > most:
            share = most * size_between(partition, *backlog[partition]) // total
            assert size_between(partition, start, limit) <= share
            assert (
                limit == backlog[partition][1] or size_between(partition, start, limit + 1) > share
            )


@pytest.mark.parametrize(
    ("count", "waited_ms", "is_worth"),
    [(9, 0, False), (10, 0, True), (9, 59_999, False), (9, 60_000, True), (1, None, True)],
)
def test_a_batch_waits_for_a_minimum_or_the_delay(
    *, count: int, waited_ms: float | None, is_worth: bool
) -> None:
    """The minimum is over all partitions; the first batch of a run does not wait."""
    limits = RateLimits(offsets_min=10, trigger_delay_ms=60_000)
    backlog = backlog_of(count - 1, 1)
    assert is_worth_a_batch(limits, backlog, waited_ms=waited_ms) is is_worth


def test_without_a_minimum_nothing_waits() -> None:
    """The default is no limit of any kind; any one of them is noticed."""
    assert is_worth_a_batch(RateLimits(), {}, waited_ms=0)
    assert not RateLimits().is_any
    for limits in (RateLimits(offsets_max=1), RateLimits(offsets_min=1), RateLimits(bytes_max=1)):
        assert limits.is_any
