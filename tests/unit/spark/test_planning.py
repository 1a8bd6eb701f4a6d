"""The plan of tasks: nothing lost, nothing doubled, the order kept, few and large tasks."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import ConfigError
from tailrace.model import Offset, TopicPartition
from tailrace.spark.planning import (
    ROUNDS_MAX,
    TASK_BYTES,
    TASK_BYTES_MAX,
    TASKS_MAX,
    OffsetRange,
    ScanTask,
    plan_tasks,
)
from tailrace.spark.seals import SegmentSeal

MIB = 1 << 20


def ranged(number: int, start: int, length: int, size: int) -> OffsetRange:
    """A range of partition `t-number`."""
    partition = TopicPartition("t", number)
    return OffsetRange(
        partition=partition, start=Offset(start), limit=Offset(start + length), size=size
    )


def range_lists(length_max: int, size_max: int) -> st.SearchStrategy[list[OffsetRange]]:
    """Ranges of up to twelve partitions."""
    rows = st.tuples(st.integers(0, 2**40), st.integers(0, length_max), st.integers(0, size_max))
    return st.lists(rows, max_size=12).map(
        lambda rows: [ranged(number, *row) for number, row in enumerate(rows)]
    )


RANGES = range_lists(10**9, 10**11)
SMALL_RANGES = range_lists(5000, 10**5)


@given(RANGES, st.integers(1, 64), st.integers(1, 300))
def test_every_offset_is_read_once_and_in_order(
    ranges: list[OffsetRange], core_count: int, task_count_min: int
) -> None:
    """The pieces of all tasks, one behind the other, are the ranges again."""
    tasks = plan_tasks(ranges, core_count=core_count, task_count_min=task_count_min)
    joined: list[tuple[TopicPartition, int, int]] = []
    for piece in (piece for task in tasks for piece in task.ranges):
        assert piece.start < piece.limit
        if joined and joined[-1][0] == piece.partition:
            assert joined[-1][2] == piece.start
            joined[-1] = (piece.partition, joined[-1][1], piece.limit)
        else:
            joined.append((piece.partition, piece.start, piece.limit))
    assert joined == [(r.partition, r.start, r.limit) for r in ranges if r.length]
    assert all(task.ranges for task in tasks)


def sizes(tasks: list[ScanTask]) -> list[int]:
    """Bytes of each task."""
    return [sum(piece.size for piece in task.ranges) for task in tasks]


def test_small_partitions_share_a_task() -> None:
    """64 partitions of 100 KiB are one task."""
    ranges = [ranged(number, 0, 1000, 100 * 1024) for number in range(64)]
    [task] = plan_tasks(ranges, core_count=2)
    assert len(task.ranges) == 64


def test_a_large_partition_is_cut_into_equal_pieces() -> None:
    """256 MiB make four tasks of 64 MiB."""
    tasks = plan_tasks([ranged(0, 500, 1_000_000, 4 * TASK_BYTES)], core_count=2)
    assert [task.ranges[0].length for task in tasks] == [250_000] * 4
    assert sizes(tasks) == [TASK_BYTES] * 4


def test_compressed_logs_and_those_of_unknown_size_count_by_offsets() -> None:
    """A million offsets in a few bytes are 200 MB, which is three tasks."""
    for size in (0, MIB):
        assert len(plan_tasks([ranged(0, 0, 1_000_000, size)], core_count=2)) == 3


def test_tasks_grow_before_there_are_too_many_and_not_without_end() -> None:
    """4 GiB on two cores are eight tasks; a hundred times more is cut at 1 GiB."""
    assert len(plan_tasks([ranged(0, 0, 10**7, 4096 * MIB)], core_count=2)) == 2 * ROUNDS_MAX
    tasks = plan_tasks([ranged(0, 0, 10**7, 100 * TASK_BYTES_MAX)], core_count=2)
    assert len(tasks) == 100


def test_an_offset_that_cannot_be_does_not_stop_the_driver() -> None:
    """A log whose last offset is absurd, by damage or by a gap, has a bounded number of tasks."""
    assert len(plan_tasks([ranged(0, 0, 2**62, 1000)], core_count=2)) == TASKS_MAX


def test_more_tasks_can_be_asked_for() -> None:
    """`minPartitions` cuts also what is small, but never into less than an offset."""
    assert len(plan_tasks([ranged(0, 0, 1000, 10)], core_count=2, task_count_min=7)) == 7
    assert len(plan_tasks([ranged(0, 0, 3, 0)], core_count=2, task_count_min=7)) == 3


@given(SMALL_RANGES, st.integers(50, 10**5), st.integers(1000, 10**7))
def test_a_task_stays_within_its_limits(
    ranges: list[OffsetRange], records_max: int, bytes_max: int
) -> None:
    """Only an offset that is larger than the limit is in a task alone; none is lost or doubled."""
    tasks = plan_tasks(ranges, core_count=2, task_records_max=records_max, task_bytes_max=bytes_max)
    lengths = [sum(piece.length for piece in task.ranges) for task in tasks]
    assert max(lengths, default=0) <= records_max
    for size, length in zip(sizes(tasks), lengths, strict=True):
        assert size <= bytes_max or length == 1
    assert sum(lengths) == sum(each.length for each in ranges)


def test_records_per_task_can_be_capped() -> None:
    """`maxRecordsPerPartition` cuts a task into as few as there must be, across partitions."""
    ranges = [ranged(0, 0, 100, 0), ranged(1, 0, 50, 0), ranged(2, 0, 5, 0)]
    tasks = plan_tasks(ranges, core_count=2, task_records_max=60)
    lengths = [[piece.length for piece in task.ranges] for task in tasks]
    assert lengths == [[60], [40, 20], [30, 5]]
    asked = plan_tasks(ranges, core_count=2, task_records_max=60, task_count_min=5)
    assert len(asked) == 5


def test_bytes_per_task_can_be_capped() -> None:
    """`maxBytesPerPartition` goes by the sizes of the segments."""
    tasks = plan_tasks([ranged(0, 0, 1000, 100_000)], core_count=2, task_bytes_max=30_000)
    assert sizes(tasks) == [30_000, 30_000, 30_000, 10_000]


def test_limits_that_make_too_many_tasks_are_refused() -> None:
    """A slip of the finger does not stop the driver."""
    with pytest.raises(ConfigError, match="maxRecordsPerPartition: it makes 1000000 tasks"):
        plan_tasks([ranged(0, 0, 10**6, 0)], core_count=2, task_records_max=1)


@pytest.mark.parametrize(
    ("lengths", "wanted"),
    [([100], 3), ([100, 1], 4), ([1, 10_000], 8), ([5, 5, 5], 2), ([7, 11, 13], 10), ([3], 9)],
    ids=["one to many", "skewed", "very skewed", "fewer than partitions", "inexact", "too many"],
)
def test_any_number_of_partitions_becomes_the_number_of_tasks_that_is_asked_for(
    lengths: list[int], wanted: int
) -> None:
    """The tasks are as many as asked, unless there are fewer offsets; sizes differ by rounding."""
    ranges = [ranged(number, 10, length, 0) for number, length in enumerate(lengths)]
    tasks = plan_tasks(ranges, core_count=2, task_count_min=wanted)
    counts = [sum(piece.length for piece in task.ranges) for task in tasks]
    assert sum(counts) == sum(lengths)
    assert len(counts) == min(wanted, sum(lengths))
    assert max(counts) - min(counts) <= len(lengths) + 1


def test_a_small_range_stays_in_one_task_where_large_ones_are_cut() -> None:
    """A partition with a tenth of a task's share is in at most two tasks, and none is dropped."""
    lengths = [1000, 10, 1000, 10, 2000]
    ranges = [ranged(number, 0, length, 0) for number, length in enumerate(lengths)]
    tasks = plan_tasks(ranges, core_count=2, task_count_min=12)
    for number in (1, 3):
        holding = [t for t in tasks if any(r.partition.partition == number for r in t.ranges)]
        assert 1 <= len(holding) <= 2


def test_a_part_has_the_seals_of_its_segments_only() -> None:
    """The size of a serialized task does not grow with the log."""
    seals = tuple(SegmentSeal(Offset(base), 1, 0) for base in (0, 100, 200, 300))
    whole = OffsetRange(
        partition=TopicPartition("t", 0), start=Offset(0), limit=Offset(400), size=0, seals=seals
    )
    assert whole.part(0, 400).seals == seals
    assert whole.part(100, 200).seals == seals[1:2]
    assert whole.part(150, 301).seals == seals[1:]
    assert whole.part(50, 100).seals == seals[:1]
    assert ranged(0, 0, 10, 0).part(3, 5).seals == ()


def test_a_log_of_many_segments_is_cut_without_a_look_at_each() -> None:
    """Terabytes are as many parts as segments, and a driver cuts them before any task starts."""
    looked = 0

    class Seal(SegmentSeal):
        """One that counts when it is looked at."""

        def __getattribute__(self, name: str) -> Any:
            nonlocal looked
            looked += name == "base_offset"
            return SegmentSeal.__getattribute__(self, name)

    count = 500
    seals = tuple(Seal(Offset(10 * number), 1, 0) for number in range(count))
    whole = OffsetRange(
        partition=TopicPartition("t", 0), start=Offset(0), limit=Offset(10 * count), size=0,
        seals=seals,
    )  # fmt: skip
    for number in range(count):
        assert whole.part(10 * number, 10 * number + 10).seals == seals[number : number + 1]
    assert looked < 50 * count


def test_nothing_to_read_is_no_task() -> None:
    """Empty ranges leave no trace."""
    assert plan_tasks([], core_count=2) == []
    assert plan_tasks([ranged(0, 5, 0, 100)], core_count=2) == []


def test_a_task_is_small_on_the_wire() -> None:
    """A task with one range takes less than half a kilobyte."""
    [task] = plan_tasks([ranged(0, 0, 1000, 10)], core_count=2)
    data = pickle.dumps(task)
    assert pickle.loads(data) == task
    assert len(data) < 512
