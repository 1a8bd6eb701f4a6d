"""Offsets of a stream as dicts, and what is lost when logs do not have them any more."""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.spark.offsets import Extent
from tailrace.spark.progress import (
    INITIAL,
    DataLossError,
    Positions,
    Progress,
    find_backlog,
    find_shrunk,
    format_offset,
    parse_batch,
    parse_offset,
    plan_batch,
    update_progress,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b.c-d", 0)
OLD, NEW = UUID(int=7 << 64), UUID(int=2**128 - 1)
"""Topic ids; the second one has each character of its text form that is no letter."""

PARTITIONS = st.tuples(st.sampled_from(["a", "b.c-d", "a-1", "_x"]), st.integers(0, 11)).map(
    lambda pair: TopicPartition(*pair)
)
POSITIONS = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1))


def at(positions: Positions) -> Progress:
    """An offset without topic ids."""
    return Progress(positions=positions)


def test_an_offset_has_the_shape_of_the_kafka_source() -> None:
    """It has the next offset by topic and partition, sorted: equal offsets are equal text."""
    offset = format_offset(at({TopicPartition("a", 10): 7, B0: 3, A0: 23, A1: 0}))
    assert json.dumps(offset) == '{"a": {"0": 23, "1": 0, "10": 7}, "b.c-d": {"0": 3}}'


@st.composite
def progresses(draw: st.DrawFn) -> Progress:
    """Any partitions, some of which are gone, with topic ids or without."""
    positions = draw(POSITIONS)
    gone = {each: at for each, at in draw(POSITIONS).items() if each not in positions}
    ids = draw(st.dictionaries(PARTITIONS, st.sampled_from([OLD, NEW, UUID(int=1)])))
    ids = {each: found for each, found in ids.items() if each in positions or each in gone}
    return Progress(positions=positions, topic_ids=ids, gone=gone)


@given(progress=progresses(), first=POSITIONS)
def test_an_offset_comes_back_from_the_checkpoint(
    progress: Progress, first: dict[TopicPartition, int]
) -> None:
    """Offsets survive the checkpoint, with the first batch's start; none means the beginning."""
    plain = json.loads(json.dumps(format_offset(progress)))
    assert plain != INITIAL
    assert parse_offset(plain) == progress
    end = json.loads(json.dumps(format_offset(progress, first=first)))
    begin, limit = parse_batch(INITIAL, end)
    assert (begin.positions, begin.topic_ids, limit) == (first, progress.topic_ids, progress)
    assert parse_batch(end, plain) == (progress, progress)


def test_notes_stand_beside_the_positions_as_topics_without_partitions() -> None:
    """A tool that knows nothing of them finds the shape of the Kafka source, and no partition."""
    offset = format_offset(
        Progress(
            positions={A0: 23, B0: 3},
            topic_ids={A0: OLD, A1: OLD, B0: NEW},
            gone={A1: 120},
        )
    )
    assert offset == {
        "a": {"0": 23},
        "b.c-d": {"0": 3},
        "@id a AAAAAAAAAAcAAAAAAAAAAA": {},
        "@id b.c-d _____________________w": {},
        "@gone a 1 120": {},
    }
    mixed = Progress(positions={A0: 1, A1: 2}, topic_ids={A0: OLD})
    assert format_offset(mixed)["@id a 0 AAAAAAAAAAcAAAAAAAAAAA"] == {}


@pytest.mark.parametrize(
    "offset",
    [
        {"index": 5},
        {"t": {"zero": 1}},
        {"t": {"0": "1"}},
        {"t": {"0": -1}},
        {"t": {"0": True}},
        {"t": [1]},
        {"t": {"0": 1}, "@id t tooshort": {}},
        {"t": {"0": 1}, "@gone t 1": {}},
        {"t": {"0": 1}, "@gone t 1 -1": {}},
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
    plan = plan_batch(at({A0: 10, A1: 7}), at({A0: 40, A1: 7, B0: 6}), extents)
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
        at({} if start is None else {A0: start}),
        at({} if end is None else {A0: end}),
        {} if extent is None else {A0: extent},
    )
    assert plan.ranges == ({} if left is None else {A0: left})
    assert [loss.split("]")[0] for loss in plan.losses] == ([] if name is None else [name])
    if plan.losses:
        text = str(DataLossError(plan.losses))
        assert text.startswith(f"[KAFKA_DATA_LOSS.{name}] a-0")
        assert text.endswith("set failOnDataLoss=false to continue with what is there")


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
        plan = plan_batch(at(known), at(end), {A0: extent})
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
    again = {A0: Extent(0, 90, NEW)}
    [other] = find_shrunk({A0: 40}, {A0: Extent(0, 50, OLD)}, again)
    assert other.endswith("and its topic was deleted and made again")
    assert find_shrunk({A0: 40}, {A0: Extent(0, 50)}, again) == []


def losses_of(known: Progress, extents: dict[TopicPartition, Extent]) -> tuple[Progress, list[str]]:
    """The progress of a stream that reads all there is, and the names of what it lost."""
    updated = update_progress(known, extents)
    end = Progress(
        positions={
            each: limit for each, (_, limit) in find_backlog(updated.positions, extents).items()
        },
        topic_ids=updated.topic_ids,
        gone=updated.gone,
    )
    plan = plan_batch(known, end, extents)
    return end, [loss.split("]")[0] for loss in plan.losses]


def test_a_topic_that_was_made_again_is_read_from_its_beginning() -> None:
    """Also when it is longer than the old one was; with its new id it is known from then on."""
    known = Progress(positions={A0: 20, B0: 5}, topic_ids={A0: OLD})
    extents = {A0: Extent(0, 50, NEW), B0: Extent(0, 9, NEW)}
    end, losses = losses_of(known, extents)
    assert losses == ["PARTITION_OFFSET_CHANGED"]
    assert plan_batch(known, end, extents).ranges == {A0: (0, 50), B0: (5, 9)}
    assert end == Progress(positions={A0: 50, B0: 9}, topic_ids={A0: NEW, B0: NEW})
    assert losses_of(end, extents) == (end, [])


def test_a_topic_that_is_made_again_behind_a_plan_loses_what_was_planned() -> None:
    """Nothing of the new topic is read at the offsets of the old one."""
    ids = {A0: OLD}
    start = Progress(positions={A0: 20}, topic_ids=ids)
    end = Progress(positions={A0: 30}, topic_ids=ids)
    plan = plan_batch(start, end, {A0: Extent(0, 90, NEW)})
    assert plan.ranges == {}
    [loss] = plan.losses
    assert loss.startswith("PARTITION_OFFSET_CHANGED] a-0: offsets up to 30 were planned, ")
    assert plan_batch(start, end, {A0: Extent(0, 90)}).ranges == {A0: (20, 30)}


@pytest.mark.parametrize("topic_id", [None, OLD])
def test_a_partition_that_is_back_goes_on_where_it_was(topic_id: UUID | None) -> None:
    """It is told once that it is gone, and nothing is read twice when it is there again."""
    ids = {} if topic_id is None else {A0: topic_id}
    known = Progress(positions={A0: 20, B0: 5}, topic_ids=ids)
    missing = {B0: Extent(0, 9)}
    away, losses = losses_of(known, missing)
    assert losses == ["PARTITIONS_DELETED"]
    assert away == Progress(positions={B0: 9}, topic_ids=ids, gone={A0: 20})
    assert losses_of(away, missing) == (away, [])
    extents = missing | {A0: Extent(0, 25, topic_id)}
    back, losses = losses_of(away, extents)
    assert losses == []
    assert plan_batch(away, back, extents).ranges == {A0: (20, 25)}
    other, losses = losses_of(away, missing | {A0: Extent(0, 25, NEW)})
    assert losses == []
    first = 0 if topic_id else 20
    assert plan_batch(away, other, extents | {A0: Extent(0, 25, NEW)}).ranges == {A0: (first, 25)}
