"""Plans a stream's batches from its offsets and from the present state of the logs; pure.

An offset of the stream is a dict in the shape of Spark's own Kafka source, so tools that compute
lag from a checkpoint understand it: by topic and partition the next offset to read.

    {}                                                        the beginning, before any batch
    {"flights": {"0": 100}, "@from": {"flights": {"0": 23}}}  after the first batch
    {"flights": {"0": 170}}                                   after every other one
    {"@from": {}}                                             after it, when no partition is left
    {"flights": {"0": 170}, "@group": "g"}                    with the option groupId

Spark does not store where a Python source began. If it stops before the first batch is committed,
it asks for the beginning again and then for the same end; what `startingOffsets` meant may have
changed meanwhile. So the beginning is always `{}`, and the end of the first batch says under
`@from`, which no topic can be called, where that batch starts. It stands in the checkpoint.

Not here: asking for the state of the logs, and how much to read at a time (`limits`).

Invariant: the ranges of a batch lie within the logs and between its two offsets. What cannot be
read is told as a loss, and is not read by a later batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.spark.offsets import Extent

FROM = "@from"
"""The key with the positions at which the first batch starts."""

GROUP = "@group"
"""The key with the consumer group that the offsets are committed to, if there is one."""

INITIAL: Mapping[str, Any] = {}
"""The offset before the first batch."""

Positions: TypeAlias = Mapping[TopicPartition, int]
"""The next offset to read of each partition."""

Extents: TypeAlias = Mapping[TopicPartition, Extent]
"""The offsets that the logs have."""


class DataLossError(FatalError):
    """Records that the stream should have read are gone; names follow Spark's error classes."""

    def __init__(self, losses: list[str]) -> None:
        self.losses = losses
        """A sentence for each."""
        super().__init__(
            "; ".join(f"[KAFKA_DATA_LOSS.{each}" for each in losses)
            + "; set failOnDataLoss=false to go on with what is there"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The ranges of a micro-batch, and the lost ranges that it can no longer read."""

    ranges: Mapping[TopicPartition, tuple[int, int]]
    """First offset and limit; none is empty."""
    losses: list[str]
    """Sentences that `DataLossError` takes."""


def format_offset(
    positions: Positions, *, first: Positions | None = None, group: str | None = None
) -> dict[str, Any]:
    """The offset for Spark.

    `first` are the positions at which the first batch starts, `group` the consumer group that the
    positions are committed to.
    """
    offset = _by_topic(positions)
    if first is not None:
        offset[FROM] = _by_topic(first)
    if group is not None:
        offset[GROUP] = group
    return offset or {FROM: {}}


def parse_offset(offset: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The positions in an offset that Spark has kept.

    Raises:
        FatalError: it is not an offset of this source; the checkpoint is another query's.
    """
    try:
        positions = {
            TopicPartition(topic, int(number)): position
            for topic, numbers in offset.items()
            if topic not in {FROM, GROUP}
            for number, position in numbers.items()
        }
    except (AttributeError, ValueError):
        raise _foreign(offset) from None
    if not all(type(each) is int and each >= 0 for each in positions.values()):
        raise _foreign(offset)
    return positions


def committed_positions(offset: object) -> tuple[str | None, dict[TopicPartition, int]]:
    """The consumer group that the positions of an offset are to be committed to, and these.

    The group is None if `offset` has none, or is that of another kind of source.
    """
    group = offset.get(GROUP) if isinstance(offset, dict) else None
    if not isinstance(group, str) or not isinstance(offset, dict):
        return None, {}
    return group, parse_offset(offset)


def parse_batch(
    start: Mapping[str, Any], end: Mapping[str, Any]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The positions between which a batch lies.

    Raises:
        FatalError: they are not offsets of this source.
    """
    if start != INITIAL:
        return parse_offset(start), parse_offset(end)
    if not isinstance(end.get(FROM), dict):
        raise _foreign(end)
    return parse_offset(end[FROM]), parse_offset(end)


def plan_batch(start: Positions, end: Positions, extents: Extents) -> BatchPlan:
    """Plan the ranges of a micro-batch that the logs still have.

    A partition that `start` does not have is new, and is read from its first offset on.
    """
    ranges = {}
    losses = [
        f"PARTITIONS_DELETED] {each}, which was read up to offset {start[each]}, is gone: it was "
        "deleted, or the options no longer select it"
        for each in sorted(start.keys() - end.keys())
    ]
    for partition, limit in sorted(end.items()):
        extent = extents.get(partition)
        loss = _loss_or_none(partition, (start.get(partition), limit), extent)
        if loss is not None:
            losses.append(loss)
        if extent is not None:
            first = max(start.get(partition, extent.start), extent.start)
            if first < min(limit, extent.end):
                ranges[partition] = first, min(limit, extent.end)
    return BatchPlan(ranges=ranges, losses=losses)


def ends_of(extents: Extents) -> dict[TopicPartition, int]:
    """The positions of a stream that has read everything."""
    return {partition: extent.end for partition, extent in extents.items()}


def find_backlog(start: Positions, extents: Extents) -> dict[TopicPartition, tuple[int, int]]:
    """Next offset and limit of each partition after `start`; they may be equal."""
    return {
        partition: (
            min(max(start.get(partition, extent.start), extent.start), extent.end),
            extent.end,
        )
        for partition, extent in extents.items()
    }


def find_shrunk(end: Positions, target: Extents, extents: Extents) -> list[str]:
    """Find offsets up to `end` that a run with Trigger.AvailableNow planned and the logs have lost.

    A run replays a batch of the run before it first. What was gone by the time of `target` is not
    this run's loss, and partitions that came since are none at all, or no run could ever finish.
    """
    sentences = []
    for partition, limit in sorted(end.items()):
        if partition not in target or target[partition].end < limit:
            continue
        if partition not in extents:
            sentences.append(
                f"[LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW] {partition} was "
                "there when the run began, and is gone"
            )
        elif extents[partition].end < limit:
            sentences.append(
                "[END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_"
                f"AVAILABLENOW] {partition} reached to offset {target[partition].end} when the run "
                f"began, and now to {extents[partition].end}"
            )
    return sentences


def _loss_or_none(
    partition: TopicPartition, wanted: tuple[int | None, int], extent: Extent | None
) -> str | None:
    """A sentence about the missing offsets of a partition; None if none is missing."""
    start, limit = wanted
    if extent is None:
        if start is None:
            return (
                f"INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS] {partition} was new, and is gone before "
                f"its offsets up to {limit} were read"
            )
        return f"PARTITIONS_DELETED] {partition} is gone; offsets {start} to {limit} were planned"
    if start is None and extent.start > 0:
        return (
            f"ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO] {partition} is new and begins at "
            f"offset {extent.start}; what stood before was never read"
        )
    begin = start or 0
    if extent.end < limit or limit < begin:
        return (
            f"PARTITION_OFFSET_CHANGED] {partition} was known up to offset {max(begin, limit)} and "
            f"now ends at {min(limit, extent.end)}; the topic may have been deleted and made again"
        )
    if begin < extent.start and begin < limit:
        return (
            f"COULD_NOT_READ_OFFSET_RANGE] {partition}: offsets {begin} to {limit} were planned, "
            f"but the log begins at {extent.start}; retention was faster than the stream"
        )
    return None


def _by_topic(positions: Positions) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (topic, number), position in sorted(positions.items()):
        found.setdefault(topic, {})[str(number)] = position
    return found


def _foreign(offset: Mapping[str, Any]) -> FatalError:
    return FatalError(
        f"the checkpoint says {dict(offset)!r}, which is not an offset of this source like "
        '{"topic": {"0": 23}}; start the query with a checkpoint of its own'
    )
