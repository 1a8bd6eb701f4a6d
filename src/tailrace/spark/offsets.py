"""Explicit ranges of offsets, from the options and the offsets that the logs have; pure.

The ranges are bound once, when the DataFrame is first used: what is appended later is not read, and
a task that runs again reads the same. Spark's own Kafka source looks up "latest" in each task.

Where Spark has a name for an error, the message begins with it in brackets, as in Spark.

Invariant: a range lies within its partition's log, or it is an error; with failOnDataLoss=false it
is cut to what the log has.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, assert_never
from uuid import UUID

from tailrace.errors import ConfigError
from tailrace.model import INTERNAL_TOPICS, TopicPartition
from tailrace.spark.options import (
    Bound,
    Partitions,
    Pattern,
    Point,
    PointKind,
    Selection,
    SourceOptions,
    Topics,
)
from tailrace.spark.options.topic_pattern import topic_regex


class Extent(NamedTuple):
    """The offsets that a partition's log has."""

    start: int
    """The first one."""
    end: int
    """The one after the last."""
    topic_id: UUID | None = None
    """The topic that it belongs to; None: the log does not tell."""


class LateStart(NamedTuple):
    """A log that begins above the offset from which it was to be read."""

    option: str
    """The option that asked for it, or the words of a job that continues."""
    partition: TopicPartition
    asked: int
    """The offset from which it was to be read."""
    start: int
    """The first one that the log has."""

    @property
    def missing(self) -> int:
        """Offsets that are gone, or never had a record."""
        return self.start - self.asked

    def __str__(self) -> str:
        return (
            f"{self.option}: {self.partition} was to be read from offset {self.asked} on, and its "
            f"log begins at {self.start}: {self.missing} offsets are gone"
        )


OffsetAt = Callable[[TopicPartition, int], int | None]
"""Offset of the first record with at least this timestamp (ms); None: no record is that new."""


def choose_partitions(
    selection: Selection, known: Collection[TopicPartition]
) -> list[TopicPartition]:
    """The partitions that an option selects, sorted.

    Raises:
        ConfigError: topics or partitions that do not exist, all of them.
    """
    topics = {partition.topic for partition in known}
    missing: list[str] = []
    match selection:
        case Topics(names):
            missing = [f"topic {name!r}" for name in names if name not in topics]
        case Pattern():
            pass  # A topic with such a name may come.
        case Partitions(partitions):
            missing = [f"partition {each}" for each in partitions if each not in known]
        case _:
            assert_never(selection)
    if missing:
        # A cluster may have thousands.
        there = ", ".join(sorted(topics)[:20]) or "none"
        raise ConfigError([f"{name} does not exist; there are: {there}" for name in missing])
    return sorted(filter(selected(selection), known))


def selected(selection: Selection) -> Callable[[TopicPartition], object]:
    """A function that tells which partitions an option selects."""
    match selection:
        case Topics(names):
            # A list of thousands of topics would be searched for each of their partitions.
            wanted = frozenset(names)
            return lambda partition: partition.topic in wanted
        case Pattern(expression):
            matches = topic_regex(expression)
            # As in Kafka's consumer (exclude.internal.topics); by name such a topic can be read.
            return lambda each: each.topic not in INTERNAL_TOPICS and matches(each.topic)
        case Partitions(partitions):
            return frozenset(partitions).__contains__
        case _:
            assert_never(selection)


def resolve_ranges(
    options: SourceOptions, extents: Mapping[TopicPartition, Extent], *, offset_at: OffsetAt
) -> dict[TopicPartition, tuple[int, int]]:
    """The first offset and the limit of each partition; the two may be equal.

    Raises:
        ConfigError: a partition without offsets or offsets without a partition, offsets outside of
            the log, a start after its end, a timestamp newer than all records; all of them.
    """
    faults = [
        fault for bound in (options.starting, options.ending) for fault in _misfits(bound, extents)
    ]
    # Misfits first: without a point for each partition there is nothing to resolve.
    if faults:
        raise ConfigError(faults)
    ranges = {}
    for partition, extent in extents.items():
        start = _start(options, partition, extent, offset_at=offset_at)
        limit = _limit(options, partition, extent, offset_at=offset_at)
        if isinstance(start, str):
            faults.append(start)
            continue
        outside = [
            f"[KAFKA_DATA_LOSS.{name}] {bound.option}: {partition} has offsets {extent.start} to "
            f"{extent.end}, not {offset}; failOnDataLoss=false reads what is there"
            for name, bound, offset in (
                ("START_OFFSET_RESET", options.starting, start),
                ("COULD_NOT_READ_OFFSET_RANGE", options.ending, limit),
            )
            if not extent.start <= offset <= extent.end
        ]
        # Before what lies outside of the log: a range that is the wrong way round is the user's
        # mistake in any case.
        if start > limit:
            faults.append(_reversed(options, partition, start=start, limit=limit))
        elif outside and options.fails_on_data_loss:
            faults += outside
        else:
            # With failOnDataLoss=false: what the log has of the range, which may be nothing.
            ranges[partition] = (
                min(max(start, extent.start), extent.end),
                min(max(limit, extent.start), extent.end),
            )
    if faults:
        raise ConfigError(faults)
    return ranges


def find_late_starts(
    starting: Bound, extents: Mapping[TopicPartition, Extent], *, earliest: int | None = None
) -> list[LateStart]:
    """The logs that begin above the offset that an option names.

    `earliest` is the offset that the word stands for; None: whatever offset the log has first.
    """
    late = []
    for partition, extent in sorted(extents.items()):
        point = starting.point_or_none(partition)
        asked = None
        if point is not None and point.kind is PointKind.OFFSET:
            asked = point.value
        elif point is not None and point.kind is PointKind.EARLIEST:
            asked = earliest
        if asked is not None and asked < extent.start:
            late.append(LateStart(starting.option, partition, asked, extent.start))
    return late


def _misfits(bound: Bound, extents: Mapping[TopicPartition, Extent]) -> list[str]:
    topics = {partition.topic for partition in extents}
    forgotten = [str(each) for each in extents if bound.point_or_none(each) is None]
    foreign = [str(each) for each in bound.of_partition if each not in extents]
    foreign += [name for name in bound.of_topic if name not in topics]
    faults = []
    if forgotten:
        faults.append(f"every partition needs one; missing: {', '.join(forgotten)}")
    if foreign:
        faults.append(f"not selected: {', '.join(foreign)}")
    # Spark's names for the two errors.
    kind = "TIMESTAMP" if bound.option.endswith("ByTimestamp") else "START"
    return [
        f"[KAFKA_{kind}_OFFSET_DOES_NOT_MATCH_ASSIGNED] {bound.option}: {fault}" for fault in faults
    ]


def _reversed(options: SourceOptions, partition: TopicPartition, *, start: int, limit: int) -> str:
    """The fault of a range that ends before it begins.

    Spark's name for it tells whether both ends were given as plain offsets.
    """
    points = (_point(options.starting, partition), _point(options.ending, partition))
    is_plain = all(point.kind is PointKind.OFFSET for point in points)
    return (
        f"[{'UN' if is_plain else ''}RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] {partition}: "
        f"the starting offset {start} is after the ending {limit}"
    )


def _start(
    options: SourceOptions, partition: TopicPartition, extent: Extent, *, offset_at: OffsetAt
) -> int | str:
    """The first offset, or the fault."""
    point = _point(options.starting, partition)
    if point.kind is not PointKind.TIMESTAMP:
        return _offset(point, extent)
    found = offset_at(partition, point.value)
    # A record that came after the extent was looked up: all that the extent has is older.
    if found is not None:
        return min(found, extent.end)
    if options.starts_at_latest:
        return extent.end
    return (
        f"{options.starting.option}: {partition} has no record from {point.value} ms on; "
        "startingOffsetsByTimestampStrategy=latest reads nothing of it instead"
    )


def _limit(
    options: SourceOptions, partition: TopicPartition, extent: Extent, *, offset_at: OffsetAt
) -> int:
    point = _point(options.ending, partition)
    if point.kind is not PointKind.TIMESTAMP:
        return _offset(point, extent)
    found = offset_at(partition, point.value)
    # No record is that new, or it came after the extent was looked up: all there are come before.
    return extent.end if found is None else min(found, extent.end)


def _point(bound: Bound, partition: TopicPartition) -> Point:
    point = bound.point_or_none(partition)
    assert point is not None, "misfits come first"
    return point


def _offset(point: Point, extent: Extent) -> int:
    match point.kind:
        case PointKind.EARLIEST:
            return extent.start
        case PointKind.LATEST:
            return extent.end
        case _:
            return point.value
