"""Which ranges of offsets go into which Spark task; pure.

A task costs 10 to 70 ms of CPU before it reads a byte, so small partitions share one; a large
partition is cut, so that all cores have work. The rule:

    1. All ranges stand one behind the other on a line; each is as long as it has bytes of log, or
       200 for each of its offsets if that is more: compressed logs are larger than they look, and
       a broker does not tell sizes.
    2. There is one task for every 64 MB, but for no more than four rounds of the driver's cores;
       beyond that tasks grow, up to 1 GB each. `minPartitions` can only ask for more.
    3. The line is cut into that many pieces of equal length. Each piece is a task.

The cores of a cluster are not known where Spark asks for the plan; those of the driver's machine
are. On a cluster whose every task should be smaller, say `minPartitions`.

Invariant: every offset of every range is in exactly one task, and the order is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.model import TopicPartition

TASK_BYTES = 64 * 1024 * 1024
"""Bytes that are worth a task: about half a second of work."""

TASK_BYTES_MAX = 1024 * 1024 * 1024
"""Bytes of a task at which trying it again after a failure begins to hurt."""

RECORD_BYTES_MIN = 200
"""What a record counts at least; a task of 64 MB then has 330 thousand small ones."""

ROUNDS_MAX = 4
"""Tasks per core: enough to even out slow ones."""

CACHED_KERNEL_RECORDS = 50_000
"""Records per core from which compiled kernels pay: plain Python decodes a hundred thousand in a
second, and reading the kernels from Numba's cache takes half of one."""

UNCACHED_KERNEL_RECORDS = 600_000
"""The same where they have to be compiled first, which takes six seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Part of one partition's log."""

    partition: TopicPartition
    start: int
    """The first offset."""
    limit: int
    """The offset after the last."""
    size: int
    """About how many bytes of log it has; 0: not known."""

    @property
    def length(self) -> int:
        """Offsets in the range; a compacted log has fewer records."""
        return self.limit - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """What one Spark task reads; small, because it travels with the task."""

    ranges: tuple[OffsetRange, ...]
    is_compiled: bool
    """Whether compiled kernels are worth loading in the process that runs it."""


def plan_tasks(
    ranges: Sequence[OffsetRange],
    *,
    core_count: int,
    compiled_records: int = CACHED_KERNEL_RECORDS,
    task_count_min: int = 1,
) -> list[ScanTask]:
    """The tasks that read the ranges; none has an empty range, and there may be none at all.

    `compiled_records` is how many records a core must have for compiled kernels to be worth it.
    """
    ranges = [each for each in ranges if each.length > 0]
    sizes = [max(each.size, each.length * RECORD_BYTES_MIN) for each in ranges]
    total = sum(sizes)
    wanted = max(
        min(_divided(total, TASK_BYTES), ROUNDS_MAX * core_count),
        _divided(total, TASK_BYTES_MAX),
        task_count_min,
    )
    tasks: list[list[OffsetRange]] = [[] for _ in range(min(wanted, total))]
    position = 0
    for each, size in zip(ranges, sizes, strict=True):
        for index, piece in _cut(each, size=size, position=position, total=total, count=len(tasks)):
            tasks[index].append(piece)
        position += size
    filled = [tuple(task) for task in tasks if task]
    records = sum(each.length for each in ranges)
    is_compiled = bool(filled) and records // min(len(filled), core_count) >= compiled_records
    return [ScanTask(ranges=task, is_compiled=is_compiled) for task in filled]


def _cut(
    whole: OffsetRange, *, size: int, position: int, total: int, count: int
) -> list[tuple[int, OffsetRange]]:
    """The pieces of a range that stands at `position` on the line, by the number of the task."""
    first = position * count // total
    last = (position + size - 1) * count // total
    pieces = []
    start = whole.start
    for index in range(first, last + 1):
        # The first place on the line that belongs to the next task.
        border = min(_divided((index + 1) * total, count), position + size)
        limit = whole.start + whole.length * (border - position) // size
        if limit > start:
            share = whole.size * (limit - start) // whole.length
            pieces.append(
                (
                    index,
                    OffsetRange(partition=whole.partition, start=start, limit=limit, size=share),
                )
            )
        start = max(start, limit)
    return pieces


def _divided(number: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-number // divisor)
