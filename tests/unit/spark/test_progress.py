"""Offsets of a stream as dicts, and what is lost when logs do not have them any more."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.spark.offsets import Extent
from tailrace.spark.progress import (
    INITIAL,
    DataLossError,
    find_backlog,
    find_shrunk,
    format_offset,
    parse_batch,
    parse_offset,
    plan_batch,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b.c-d", 0)

POSITIONS = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b.c-d", "_x"]), st.integers(0, 11)).map(
        lambda pair: TopicPartition(*pair)
    ),
    st.integers(0, 2**63 - 1),
)


def test_an_offset_has_the_shape_of_the_kafka_source() -> None:
    """It has the next offset by topic and partition, sorted: equal offsets are equal text."""
    offset = format_offset({TopicPartition("a", 10): 7, B0: 3, A0: 23, A1: 0})
    assert json.dumps(offset) == '{"a": {"0": 23, "1": 0, "10": 7}, "b.c-d": {"0": 3}}'


@given(positions=POSITIONS, first=POSITIONS)
def test_an_offset_comes_back_from_the_checkpoint(
    positions: dict[TopicPartition, int], first: dict[TopicPartition, int]
) -> None:
    """Offsets survive the checkpoint, with the first batch's start; none means the beginning."""
    plain = json.loads(json.dumps(format_offset(positions)))
    assert plain != INITIAL
    assert parse_offset(plain) == positions
    end = json.loads(json.dumps(format_offset(positions, first=first)))
    assert parse_batch(INITIAL, end) == (first, positions)
    assert parse_batch(end, plain) == (positions, positions)


@pytest.mark.parametrize(
    "offset",
    [
        {"index": 5},
        {"t": {"zero": 1}},
        {"t": {"0": "1"}},
        {"t": {"0": -1}},
        {"t": {"0": True}},
        {"t": [1]},
    ],
)
def test_a_foreign_checkpoint_is_refused(offset: dict[str, object]) -> None:
    """The message shows it, and what to do."""
    with pytest.raises(FatalError, match=r"is not an offset of this source like .* of its own"):
        parse_offset(offset)
    with pytest.raises(FatalError, match="is not an offset of this source"):
        parse_batch(INITIAL, {"t": {"0": 5}})


def test_a_batch_is_what_stands_between_its_offsets() -> None:
    """Empty ranges are left out, and a new partition is read from its beginning."""
    extents = {A0: Extent(0, 50), A1: Extent(5, 9), B0: Extent(0, 8)}
    plan = plan_batch({A0: 10, A1: 7}, {A0: 40, A1: 7, B0: 6}, extents)
    assert plan.ranges == {A0: (10, 40), B0: (0, 6)}
    assert plan.losses == []


@pytest.mark.parametrize(
    ("start", "end", "extent", "left", "name"),
    [
        (10, None, Extent(0, 20), None, "PARTITIONS_DELETED"),
        (10, 20, None, None, "PARTITIONS_DELETED"),
        (None, 20, None, None, "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS"),
        (None, 20, Extent(7, 20), (7, 20), "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"),
        (10, 5, Extent(0, 5), None, "PARTITION_OFFSET_CHANGED"),
        (10, 20, Extent(0, 15), (10, 15), "PARTITION_OFFSET_CHANGED"),
        (10, 20, Extent(0, 5), None, "PARTITION_OFFSET_CHANGED"),
        (10, 20, Extent(15, 30), (15, 20), "COULD_NOT_READ_OFFSET_RANGE"),
        (10, 20, Extent(25, 30), None, "COULD_NOT_READ_OFFSET_RANGE"),
        (10, 20, Extent(10, 20), (10, 20), None),
        (10, 10, Extent(15, 30), None, None),
    ],
)
def test_each_loss_has_its_name_and_what_is_left_is_read(
    start: int | None,
    end: int | None,
    extent: Extent | None,
    left: tuple[int, int] | None,
    name: str | None,
) -> None:
    """The names are Spark's; a part of a range that is still there is not lost with the rest."""
    plan = plan_batch(
        {} if start is None else {A0: start},
        {} if end is None else {A0: end},
        {} if extent is None else {A0: extent},
    )
    assert plan.ranges == ({} if left is None else {A0: left})
    assert [loss.split("]")[0] for loss in plan.losses] == ([] if name is None else [name])
    if plan.losses:
        text = str(DataLossError(plan.losses))
        assert text.startswith(f"[KAFKA_DATA_LOSS.{name}] a-0")
        assert text.endswith("set failOnDataLoss=false to go on with what is there")


GROWTH = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 25), st.integers(0, 30)), min_size=1, max_size=12
)


@given(growth=GROWTH, first=st.integers(0, 10))
def test_ageing_logs_give_nothing_twice(growth: list[tuple[int, int, int]], first: int) -> None:
    """Offsets age out between any two steps; what is there when a batch is planned, it has."""
    known = {A0: first}
    extent = Extent(0, first)
    read: list[int] = []
    for appended, aged, most in growth:
        extent = Extent(extent.start, extent.end + appended)
        begin, limit = find_backlog(known, {A0: extent})[A0]
        end = {A0: min(limit, begin + most)}
        extent = Extent(min(extent.start + aged, extent.end), extent.end)
        plan = plan_batch(known, end, {A0: extent})
        there = range(max(known[A0], extent.start), end[A0])
        assert list(range(*plan.ranges.get(A0, (0, 0)))) == list(there)
        assert bool(plan.losses) == (known[A0] < min(extent.start, end[A0]))
        read += there
        known = end
    assert read == sorted(set(read))


def test_a_backlog_lies_within_the_log() -> None:
    """It does so whatever became of the log, and begins at the first offset of a new one."""
    extents = {A0: Extent(20, 30), A1: Extent(0, 5), B0: Extent(3, 9)}
    assert find_backlog({A0: 10, A1: 8}, extents) == {A0: (20, 30), A1: (5, 5), B0: (3, 9)}


def test_a_run_to_the_end_finds_what_it_was_promised() -> None:
    """A partition that went or shrank since is told; what came, or went before, is not."""
    target = {A0: Extent(0, 50), A1: Extent(0, 50)}
    assert find_shrunk({A0: 40, A1: 50}, target, target | {B0: Extent(0, 9)}) == []
    [lost, shorter] = find_shrunk({A0: 40, A1: 50}, target, {A1: Extent(0, 49)})
    assert lost.startswith("[LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW] a-0")
    assert "AVAILABLENOW] a-1 reached to offset 50 when the run began, and now to 49" in shorter
    assert find_shrunk({B0: 7, A0: 60}, target, {}) == []
