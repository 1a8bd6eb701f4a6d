"""Tests of planning an archive: no offset is taken twice, and none is left out."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import ConfigError
from tailrace.model import Offset, TopicPartition
from tailrace.spark.jobs.archive_files import archive_ranges, plan_items
from tailrace.spark.offsets import Extent
from tailrace.spark.options import SourceOptions, parse_options
from tailrace.spark.planning import OffsetRange

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def options(**given: str) -> SourceOptions:
    """Parsed options of a directory."""
    return parse_options({"path": "data", "subscribe": "a,b", **given})


def ranges(
    parsed: SourceOptions, extents: dict[TopicPartition, Extent], ends: dict[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """Ranges where no timestamp is asked for."""
    return archive_ranges(parsed, extents, ends=ends, offset_at=lambda _, __: None)


def test_a_first_run_starts_where_the_options_say() -> None:
    """The first run takes everything up to the end; empty logs give no work."""
    extents = {A: Extent(5, 9), B: Extent(3, 3)}
    assert ranges(options(), extents, {}) == {A: (5, 9)}
    starting = options(startingOffsets='{"a": {"0": 7}, "b": {"0": 3}}')
    assert ranges(starting, extents, {}) == {A: (7, 9)}


def test_later_runs_go_on_at_the_end_of_the_archive() -> None:
    """Options about the start do not matter then; new partitions start as the options say."""
    starting = options(startingOffsets='{"a": {"0": 0}, "b": {"0": 2}}')
    extents = {A: Extent(4, 9), B: Extent(0, 8)}
    assert ranges(starting, extents, {A: 6}) == {A: (6, 9), B: (2, 8)}
    assert ranges(starting, extents, {A: 9, B: 8}) == {}


def test_a_log_that_does_not_reach_the_archive_is_an_error() -> None:
    """Retention was faster, or the topic is another one of the same name."""
    gone, recreated = {A: Extent(10, 20)}, {A: Extent(0, 3)}
    with pytest.raises(ConfigError, match="archived so far: a-0 has offsets 10 to 20, not 6"):
        ranges(options(), gone, {A: 6})
    with pytest.raises(ConfigError, match="a-0: the log ends at offset 3 and 6 are archived"):
        ranges(options(), recreated, {A: 6})
    tolerant = replace(options(), fails_on_data_loss=False)
    assert ranges(tolerant, gone, {A: 6}) == {A: (10, 20)}
    assert ranges(tolerant, recreated, {A: 6}) == {}


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 400), st.integers(0, 5000)), max_size=6),
    st.integers(1, 3000),
)
def test_items_have_every_offset_once(shapes: list[tuple[int, int, int]], item_bytes: int) -> None:
    """Offsets keep their order, and no item is larger than asked unless it is one offset."""
    given_ranges = [
        OffsetRange(
            partition=TopicPartition("t", number),
            start=Offset(start),
            limit=Offset(start + length),
            size=size,
        )
        for number, (start, length, size) in enumerate(shapes)
    ]
    items = plan_items(given_ranges, item_bytes=item_bytes)
    found = [
        (each.partition, offset)
        for item in items
        for each in item
        for offset in range(each.start, each.limit)
    ]
    assert found == [
        (each.partition, offset)
        for each in given_ranges
        for offset in range(each.start, each.limit)
    ]
    for item in items:
        assert all(each.length > 0 for each in item)
        rounding = sum(each.expected_size // each.length + 1 for each in item)
        assert len(item) == 1 or sum(each.expected_size for each in item) <= item_bytes + rounding


def test_small_partitions_share_an_item_and_large_ones_are_cut() -> None:
    """A thousand small partitions are a few tasks."""
    small = [
        OffsetRange(partition=TopicPartition("t", n), start=Offset(0), limit=Offset(10), size=1000)
        for n in range(1000)
    ]
    assert len(plan_items(small, item_bytes=100_000)) == 10
    large = OffsetRange(partition=A, start=Offset(0), limit=Offset(100), size=1000)
    items = plan_items([large], item_bytes=400)
    assert [(each.start, each.limit) for [each] in items] == [(0, 33), (33, 66), (66, 100)]
