"""Tests of planning a replay: every offset once, in order, and interrupted ranges as they were."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import ConfigError
from tailrace.model import Offset, TopicPartition
from tailrace.spark.jobs.replay_plan import (
    PlannedRange,
    SentRange,
    entry_of,
    files_of,
    least_ends,
    plan_waves,
    progress_of,
    replay_ranges,
)
from tailrace.spark.offsets import Extent
from tailrace.spark.options import parse_options
from tailrace.spark.planning import OffsetRange

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def planned(source: TopicPartition, start: int, limit: int) -> PlannedRange:
    """A range on its way."""
    return PlannedRange(
        topic=source.topic, partition=source.partition, start=start, limit=limit, target="t",
        partition_count=2, keeps_partition=False, producer_id=5, producer_epoch=0,
        since={0: 7, 1: 0},
    )  # fmt: skip


def sent(source: TopicPartition, start: int, limit: int) -> SentRange:
    """The same when it is there."""
    return SentRange(
        topic=source.topic, partition=source.partition, start=start, limit=limit, records=1,
        bytes=1, found=0, file="x.parquet",
    )  # fmt: skip


def test_ranges_that_were_planned_and_not_sent_are_pending() -> None:
    """They have all of their plan, also from JSON; ranges that were sent move the end."""
    entries = [
        entry_of(each)
        for each in (planned(A, 0, 5), planned(B, 2, 9), sent(A, 0, 5), planned(A, 5, 8))
    ]
    again = json.loads(json.dumps(entries))
    pending, ends = progress_of(again)
    assert {each.source: each for each in pending} == {A: planned(A, 5, 8), B: planned(B, 2, 9)}
    assert ends == {A: 5}
    assert [name for entry in again for name in files_of(entry)] == ["x.parquet"]


def test_targets_have_reached_what_was_planned_and_sent() -> None:
    """Records count too where they go to one partition; of several only the map says which."""
    several = [entry_of(planned(A, 0, 5)), entry_of(sent(A, 0, 5))]
    assert least_ends(several) == {
        TopicPartition("t", 0): 7,
        TopicPartition("t", 1): 0,
    }
    one = replace(planned(A, 0, 5), since={3: 40})
    assert least_ends([entry_of(one)]) == {TopicPartition("t", 3): 40}
    assert least_ends([entry_of(one), entry_of(sent(A, 0, 5))]) == {TopicPartition("t", 3): 41}


def test_partitions_go_on_where_they_ended() -> None:
    """New ones start where the options say, and a source that is shorter is another one."""
    options = parse_options(
        {"path": "d", "subscribe": "a,b", "startingOffsets": '{"a": {"0": 1}, "b": {"3": 4}}'}
    )
    extents = {A: Extent(0, 20), B: Extent(0, 30)}

    def ranges(ends: dict[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        return replay_ranges(options, extents, ends=ends, offset_at=lambda _, __: None)

    assert ranges({}) == {A: (1, 20), B: (4, 30)}
    assert ranges({A: 20}) == {B: (4, 30)}
    with pytest.raises(ConfigError, match="a-0: the source ends at offset 20, and 21 are replayed"):
        ranges({A: 21})


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 300), st.integers(0, 9000)), max_size=5),
    st.integers(1, 5000),
    st.integers(1, 100),
)
def test_waves_have_every_offset_once_and_a_partition_once(
    shapes: list[tuple[int, int, int]], range_bytes: int, range_offsets: int
) -> None:
    """A partition's pieces come in their order, and none has too many offsets."""
    ranges = [
        OffsetRange(
            partition=TopicPartition("t", number),
            start=Offset(start),
            limit=Offset(start + length),
            size=size,
        )
        for number, (start, length, size) in enumerate(shapes)
    ]
    waves = plan_waves(ranges, range_bytes=range_bytes, range_offsets=range_offsets)
    for wave in waves:
        assert len({each.partition for each in wave}) == len(wave)
        assert all(0 < each.length <= range_offsets for each in wave)
    for whole in ranges:
        pieces = [each for wave in waves for each in wave if each.partition == whole.partition]
        offsets = [offset for each in pieces for offset in range(each.start, each.limit)]
        assert offsets == [*range(whole.start, whole.limit)]
