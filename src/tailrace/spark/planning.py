"""Distributes ranges of offsets over Spark tasks; pure.

A task costs 10 to 70 ms of CPU before it reads a byte, so small partitions share one; a large
partition is cut, so that all cores have work. The rule:

    1. All ranges are put one after the other on a line; each is as long as it has bytes of log, or
       200 for each of its offsets if that is more: compressed logs are larger than they look, and
       a broker does not tell sizes.
    2. There is one task for every 64 MB, but for no more than four rounds of the driver's cores;
       beyond that tasks grow, up to 1 GB each. `minPartitions` can only ask for more.
    3. The line is cut into that many pieces of equal length. Each piece is a task.
    4. A task with more records than `maxRecordsPerPartition`, or more bytes than
       `maxBytesPerPartition`, is cut into as few tasks as are within both.

The cores of a cluster are not known where Spark asks for the plan; those of the driver's machine
are. On a cluster whose every task should be smaller, say `minPartitions`.

Invariant: every offset of every range is in exactly one task, and the order is kept.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from uuid import UUID

from tailrace.config.settings import INT64_MAX
from tailrace.errors import ConfigError
from tailrace.model import Offset, TopicPartition
from tailrace.spark.seals import SegmentSeal
from tailrace.values import dataclass

TASK_BYTES = 64 * 1024 * 1024
"""Bytes that are worth a task: about half a second of work."""

TASK_BYTES_MAX = 1024 * 1024 * 1024
"""Bytes of a task at which trying it again after a failure begins to hurt."""

RECORD_BYTES_MIN = 200
"""Least size that a record counts; a task of 64 MB then has 330 thousand small ones."""

TASKS_MAX = 100_000
"""More tasks than this are a slip of the finger; planning them would take longer than reading."""

ROUNDS_MAX = 4
"""Tasks per core: enough to even out slow ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Part of one partition's log."""

    partition: TopicPartition
    start: Offset
    """The first offset."""
    limit: Offset
    """The offset after the last."""
    size: int
    """About how many bytes of log it has; 0: not known."""
    seals: tuple[SegmentSeal, ...] = ()
    """The segments that it was planned on; none: it is read from whatever is there."""
    topic_id: UUID | None = None
    """The topic that it was planned on; None: the log does not tell, or nobody has looked."""

    @property
    def length(self) -> int:
        """Offsets in the range; a compacted log has fewer records."""
        return self.limit - self.start

    @property
    def expected_size(self) -> int:
        """Bytes of log, or a guess where they are not known."""
        return self.size or self.length * RECORD_BYTES_MIN

    def part(self, start: int, limit: int) -> "OffsetRange":
        """The part between two of its offsets, with the seals that it needs."""
        first, last = self._seals_between(start, limit)
        return replace(
            self,
            start=Offset(start),
            limit=Offset(limit),
            size=self.size * (limit - start) // self.length,
            # A task compares only the segments that it reads.
            seals=self.seals[first:last],
        )

    def _seals_between(self, start: int, limit: int) -> tuple[int, int]:
        """The seals of the segments that have these offsets, by their numbers."""
        # By halving: a large log is cut into as many parts as it has segments, or more.
        find = partial(bisect_left, self.seals, key=attrgetter("base_offset"))
        # A segment ends where the next one begins.
        return max(find(start + 1) - 1, 0), find(limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """The ranges of one Spark task; small, because it is sent with the task."""

    ranges: tuple[OffsetRange, ...]


def plan_tasks(
    ranges: Sequence[OffsetRange],
    *,
    core_count: int,
    task_count_min: int = 1,
    task_records_max: int = INT64_MAX,
    task_bytes_max: int = INT64_MAX,
) -> list[ScanTask]:
    """The tasks that read the ranges; none has an empty range, and there may be none at all.

    Raises:
        ConfigError: the limits of a task would make too many.
    """
    ranges = [each for each in ranges if each.length > 0]
    # Records cost CPU too: a well compressed log of small records is more work than its bytes say.
    sizes = [max(each.size, each.length * RECORD_BYTES_MIN) for each in ranges]
    total = sum(sizes)
    # The largest of three: by bytes for up to four rounds of the cores, by the largest task, and by
    # the user.
    wanted = max(
        min(_divided(total, TASK_BYTES), ROUNDS_MAX * core_count),
        min(_divided(total, TASK_BYTES_MAX), TASKS_MAX),
        task_count_min,
    )
    records = sum(each.length for each in ranges)
    expected = sum(each.expected_size for each in ranges)
    # Refused before any task is made: a slip of the finger would make millions of objects.
    for option, count in (
        ("maxRecordsPerPartition", _divided(records, task_records_max)),
        ("maxBytesPerPartition", min(_divided(expected, task_bytes_max), records)),
    ):
        if count > TASKS_MAX:
            raise ConfigError([f"{option}: it makes {count} tasks, more than {TASKS_MAX}"])
    # No more tasks than there are units on the line, or some would be empty.
    tasks: list[list[OffsetRange]] = [[] for _ in range(min(wanted, total))]
    position = 0
    for each, size in zip(ranges, sizes, strict=True):
        for index, piece in _cut(each, size=size, position=position, total=total, count=len(tasks)):
            tasks[index].append(piece)
        position += size
    return [
        ScanTask(ranges=tuple(task))
        for planned in tasks
        for task in _capped(planned, records_max=task_records_max, bytes_max=task_bytes_max)
    ]


def _cut(
    whole: OffsetRange, *, size: int, position: int, total: int, count: int
) -> list[tuple[int, OffsetRange]]:
    """The pieces of a range that is at `position` on the line, by the number of the task."""
    first = position * count // total
    last = (position + size - 1) * count // total
    pieces = []
    start: int = whole.start
    for index in range(first, last + 1):
        # The first place on the line that belongs to the next task.
        border = min(_divided((index + 1) * total, count), position + size)
        # Whole numbers only: the pieces of a range meet exactly, whatever its length.
        limit = whole.start + whole.length * (border - position) // size
        if limit > start:
            pieces.append((index, whole.part(start, limit)))
        start = max(start, limit)
    return pieces


def _capped(
    task: Sequence[OffsetRange], *, records_max: int, bytes_max: int
) -> Iterator[list[OffsetRange]]:
    """The task, or the tasks that it is cut into; a record that is too large goes alone."""
    held: list[OffsetRange] = []
    records = size = 0
    for whole in task:
        start = whole.start
        while start < whole.limit:
            room = min(
                records_max - records, (bytes_max - size) * whole.length // whole.expected_size
            )
            # A full task is given away first; an empty one takes one record, however large it is.
            if room <= 0 and held:
                yield held
                held, records, size = [], 0, 0
                continue
            piece = whole.part(start, min(start + max(room, 1), whole.limit))
            held.append(piece)
            records += piece.length
            size += _divided(whole.expected_size * piece.length, whole.length)
            start = piece.limit
    if held:
        yield held


def _divided(number: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-number // divisor)
