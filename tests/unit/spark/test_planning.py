"""The plan of tasks: nothing lost, nothing doubled, the order kept, few and large tasks."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import TopicPartition
from tailrace.spark.planning import (
    CACHED_KERNEL_RECORDS,
    ROUNDS_MAX,
    TASK_BYTES,
    TASK_BYTES_MAX,
    OffsetRange,
    ScanTask,
    plan_tasks,
)

MIB = 1 << 20


def ranged(number: int, start: int, length: int, size: int) -> OffsetRange:
    """A range of partition `t-number`."""
    partition = TopicPartition("t", number)
    return OffsetRange(partition=partition, start=start, limit=start + length, size=size)


RANGES = st.lists(
    st.tuples(st.integers(0, 2**40), st.integers(0, 10**9), st.integers(0, 10**11)), max_size=12
).map(lambda rows: [ranged(number, *row) for number, row in enumerate(rows)])


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


def test_more_tasks_can_be_asked_for() -> None:
    """`minPartitions` cuts also what is small, but never into less than an offset."""
    assert len(plan_tasks([ranged(0, 0, 1000, 10)], core_count=2, task_count_min=7)) == 7
    assert len(plan_tasks([ranged(0, 0, 3, 0)], core_count=2, task_count_min=7)) == 3


def test_nothing_to_read_is_no_task() -> None:
    """Empty ranges leave no trace."""
    assert plan_tasks([], core_count=2) == []
    assert plan_tasks([ranged(0, 5, 0, 100)], core_count=2) == []


def test_compiled_kernels_are_for_plans_that_earn_them() -> None:
    """The records that each core will decode decide."""
    large = [ranged(0, 0, 2 * CACHED_KERNEL_RECORDS, 4 * TASK_BYTES)]
    assert all(task.is_compiled for task in plan_tasks(large, core_count=2))
    assert not any(task.is_compiled for task in plan_tasks(large, core_count=3))


def test_a_task_is_small_on_the_wire() -> None:
    """A task with one range takes less than half a kilobyte."""
    [task] = plan_tasks([ranged(0, 0, 1000, 10)], core_count=2)
    data = pickle.dumps(task)
    assert pickle.loads(data) == task
    assert len(data) < 512
