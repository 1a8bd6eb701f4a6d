"""Ranges that a job has still to read: from where its last run ended to the end of the logs; pure.

Not here: whether the logs are those that the job has begun (`identities`).

Invariant: no offset below the end that a job has noted is taken again.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from tailrace.model import TopicPartition
from tailrace.spark.offsets import (
    Extent,
    LateStart,
    OffsetAt,
    find_late_starts,
    resolve_ranges,
)
from tailrace.spark.options import Bound, Point, PointKind, SourceOptions
from tailrace.spark.planning import OffsetRange


def remaining_ranges(
    options: SourceOptions,
    extents: Mapping[TopicPartition, Extent],
    *,
    ends: Mapping[TopicPartition, int],
    offset_at: OffsetAt,
    noted_as: str,
) -> dict[TopicPartition, tuple[int, int]]:
    """Start and limit of what is left by partition; none is empty.

    A partition goes on at its end in `ends`, or starts where the options say. `noted_as` stands for
    the option `startingOffsets` in messages about partitions that go on.

    Raises:
        ConfigError: as `resolve_ranges`.
    """
    if ends:
        points = {}
        for partition in extents:
            point = options.starting.point_or_none(partition)
            if partition in ends:
                point = Point(PointKind.OFFSET, ends[partition])
            if point is not None:
                points[partition] = point
        options = replace(options, starting=Bound(option=noted_as, of_partition=points))
    found = resolve_ranges(options, extents, offset_at=offset_at)
    return {
        partition: (start, limit) for partition, (start, limit) in found.items() if start < limit
    }


def late_starts(
    options: SourceOptions,
    extents: Mapping[TopicPartition, Extent],
    *,
    ends: Mapping[TopicPartition, int],
    noted_as: str,
) -> list[LateStart]:
    """The logs that begin above the end of a job, or above the offset that the options ask for.

    A partition that the job begins is asked for from offset 0 on, if it is from its earliest one.
    """
    noted = {each: Point(PointKind.OFFSET, end) for each, end in ends.items()}
    new = {each: extent for each, extent in extents.items() if each not in ends}
    return [
        *find_late_starts(Bound(option=noted_as, of_partition=noted), extents),
        *find_late_starts(options.starting, new, earliest=0),
    ]


def cut_evenly(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """The range cut into `count` ranges of equal length, or into single offsets if it has fewer."""
    count = min(count, whole.length)
    borders = [whole.start + whole.length * index // count for index in range(count + 1)]
    return [whole.part(start, limit) for start, limit in pairwise(borders)]
