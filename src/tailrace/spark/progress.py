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
`@from`, which no topic can be called, where that batch starts. It is in the checkpoint.

What else a stream has to know is beside the positions, under keys that no topic can be called. Each
looks like a topic without partitions, so earlier releases ignore it:

    "@id flights 4L6g3nShT-eMCtK--X86sw": {}     the topic that the positions belong to
    "@id flights 1 4L6g3nShT-eMCtK--X86sw": {}   likewise of one partition, where they differ
    "@gone flights 1 120": {}                    a partition that is gone, and was read up to 120

A topic that was deleted and made again has another id, and its records were never read, whatever
their offsets are. A partition that is gone may only be out of sight: it continues where it was.

A micro-batch takes the part of the backlog that the limits allow:

    maxOffsetsPerTrigger   divided in proportion to the backlogs, rounded down; a partition that
                           has a backlog gets at least one offset (the rule of Spark's Kafka source)
    maxBytesPerTrigger     divided in proportion to the bytes of the backlogs, likewise; with both,
                           a partition gets the lesser of the two
    minOffsetsPerTrigger   no batch until there are that many, or `maxTriggerDelay` has passed since
                           the last batch; the first batch of a run is not held back

Not here: asking for the state of the logs (`watch`).

Invariants: the ranges of a batch lie within the logs and between its two offsets. What cannot be
read is reported as a loss, and is not read by a later batch. A capped backlog begins where it
began, ends no later than it did, and is empty only if it was, so that a stream comes to its end.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.spark.losses import TopicIds, is_other_topic
from tailrace.spark.offsets import Extent
from tailrace.spark.options.values import RateLimits
from tailrace.storage.checkpoints import format_topic_id, parse_topic_id
from tailrace.values import dataclass

if TYPE_CHECKING:
    from uuid import UUID

FROM: Final = "@from"
"""The key with the positions at which the first batch starts."""

GROUP = "@group"
"""The key with the consumer group that the offsets are committed to, if there is one."""

_ID: Final = "@id"
_GONE: Final = "@gone"

INITIAL: Mapping[str, Any] = {}
"""The offset before the first batch."""

Positions: TypeAlias = Mapping[TopicPartition, int]
"""The next offset to read of each partition."""

Extents: TypeAlias = Mapping[TopicPartition, Extent]
"""The offsets that the logs have."""

Backlog: TypeAlias = Mapping[TopicPartition, tuple[int, int]]
"""The next offset to read and the log's end offset, by partition."""

SizeBetween: TypeAlias = Callable[[TopicPartition, int, int], int]
"""About how many bytes the log has from an offset to a limit; never less for a higher limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """An offset of a stream."""

    positions: Positions
    """Positions of the partitions that are there."""
    topic_ids: TopicIds = field(default_factory=dict)
    """The topics of these partitions and of those that are gone, as far as the logs say."""
    gone: Positions = field(default_factory=dict)
    """Positions of partitions that are not there any more."""


class DataLossError(FatalError):
    """Records that the stream should have read are gone; names follow Spark's error classes."""

    def __init__(self, losses: list[str]) -> None:
        self.losses = losses
        """A sentence for each."""
        super().__init__(
            "; ".join(f"[KAFKA_DATA_LOSS.{each}" for each in losses)
            + "; set failOnDataLoss=false to continue with what is there"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The ranges of a micro-batch, and the lost ranges that it can no longer read."""

    ranges: Mapping[TopicPartition, tuple[int, int]]
    """First offset and limit; none is empty."""
    losses: list[str]
    """Sentences that `DataLossError` takes."""


def format_offset(
    progress: Progress, *, first: Positions | None = None, group: str | None = None
) -> dict[str, Any]:
    """The offset for Spark.

    `first` are the positions at which the first batch starts, `group` the consumer group that the
    positions are committed to.
    """
    offset = _by_topic(progress.positions)
    by_topic: dict[str, dict[int, UUID | None]] = {}
    for topic, number in sorted({*progress.positions, *progress.gone}):
        found = progress.topic_ids.get(TopicPartition(topic, number))
        by_topic.setdefault(topic, {})[number] = found
    for topic, ids in by_topic.items():
        # One note for a topic is the usual case; partitions differ only while a topic is being made
        # again.
        [one, *others] = set(ids.values())
        if not others:
            offset |= {} if one is None else {f"{_ID} {topic} {format_topic_id(one)}": {}}
            continue
        for number, found in ids.items():
            if found is not None:
                offset[f"{_ID} {topic} {number} {format_topic_id(found)}"] = {}
    for (topic, number), position in sorted(progress.gone.items()):
        offset[f"{_GONE} {topic} {number} {position}"] = {}
    if first is not None:
        offset[FROM] = _by_topic(first)
    if group is not None:
        offset[GROUP] = group
    # `{}` is the beginning, and this is an end without partitions.
    return offset or {FROM: {}}


def parse_offset(offset: Mapping[str, Any]) -> Progress:
    """Parse an offset that Spark has kept.

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
        # A topic cannot have a space in its name, so notes can be split at them.
        notes = [
            key.split(" ") for key in offset if key.startswith("@") and key not in {FROM, GROUP}
        ]
        gone = {
            TopicPartition(topic, int(number)): int(position)
            for kind, topic, number, position in (each for each in notes if each[0] == _GONE)
        }
        of_topic = {each[1]: parse_topic_id(each[2]) for each in notes if _is_id(each, 3)}
        of_partition = {
            TopicPartition(each[1], int(each[2])): parse_topic_id(each[3])
            for each in notes
            if _is_id(each, 4)
        }
    except (AttributeError, ValueError):
        raise _foreign(offset) from None
    # JSON's true is an int in Python.
    if not all(type(each) is int and each >= 0 for each in (*positions.values(), *gone.values())):
        raise _foreign(offset)
    ids = {each: of_partition.get(each) or of_topic.get(each.topic) for each in (*positions, *gone)}
    topic_ids = {each: found for each, found in ids.items() if found is not None}
    return Progress(positions=positions, topic_ids=topic_ids, gone=gone)


def committed_positions(offset: object) -> tuple[str | None, Positions]:
    """The consumer group that the positions of an offset are to be committed to, and these.

    The group is None if `offset` has none, or is that of another kind of source.
    """
    group = offset.get(GROUP) if isinstance(offset, dict) else None
    if not isinstance(group, str) or not isinstance(offset, dict):
        return None, {}
    return group, parse_offset(offset).positions


def parse_batch(start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[Progress, Progress]:
    """The offsets between which a batch lies.

    Raises:
        FatalError: they are not offsets of this source.
    """
    # Only the first batch has its beginning in its end.
    if start != INITIAL:
        return parse_offset(start), parse_offset(end)
    if not isinstance(end.get(FROM), dict):
        raise _foreign(end)
    last = parse_offset(end)
    return Progress(positions=parse_offset(end[FROM]).positions, topic_ids=last.topic_ids), last


def update_progress(known: Progress, extents: Extents) -> Progress:
    """The progress with the partitions that the logs have now, and those that are gone.

    A partition whose topic was made again has no position, as one that is new.
    """
    before = {**known.positions, **known.gone}
    found: dict[TopicPartition, UUID] = {}
    positions: dict[TopicPartition, int] = {}
    for partition, extent in extents.items():
        old = known.topic_ids.get(partition)
        # A broker that is too old to tell ids does not make a topic another one.
        now = extent.topic_id or old
        if now is not None:
            found[partition] = now
        if partition in before and not is_other_topic(old, now):
            positions[partition] = before[partition]
    # Kept with their positions: a broker that is away for a moment hides its partitions.
    gone = {each: before[each] for each in before if each not in extents}
    kept = {each: known.topic_ids[each] for each in gone if each in known.topic_ids}
    return Progress(positions=positions, topic_ids=found | kept, gone=gone)


def plan_batch(start: Progress, end: Progress, extents: Extents) -> BatchPlan:
    """Plan the ranges of a micro-batch that the logs still have.

    A partition that `start` does not have is new, and is read from its first offset on.
    """
    ranges = {}
    losses = [
        f"PARTITIONS_DELETED] {each}, which was read up to offset {start.positions[each]}, is "
        "gone: it was deleted, or the options no longer select it"
        for each in sorted(start.positions.keys() - end.positions.keys())
    ]
    before = {**start.positions, **start.gone}
    for partition, limit in sorted(end.positions.items()):
        extent, begin = extents.get(partition), before.get(partition)
        topic_id = end.topic_ids.get(partition)
        # Made again between two batches: the new topic is read from its beginning.
        if is_other_topic(start.topic_ids.get(partition), topic_id):
            if partition in start.positions:
                losses.append(_made_again(partition, f"it was read up to offset {begin}"))
            begin = None
        # Made again between plan and now: the planned offsets mean other records.
        if extent is not None and is_other_topic(topic_id, extent.topic_id):
            losses.append(_made_again(partition, f"offsets up to {limit} were planned"))
            continue
        loss = _loss_or_none(partition, (begin, limit), extent)
        if loss is not None:
            losses.append(loss)
        if extent is not None:
            first = extent.start if begin is None else max(begin, extent.start)
            if first < min(limit, extent.end):
                ranges[partition] = first, min(limit, extent.end)
    return BatchPlan(ranges=ranges, losses=losses)


def ends_of(extents: Extents) -> dict[TopicPartition, int]:
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
        elif is_other_topic(target[partition].topic_id, extents[partition].topic_id):
            sentences.append(
                f"[LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW] {partition} was "
                "there when the run began, and its topic was deleted and made again"
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
            f"offset {extent.start}; what was before that was never read"
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


def _made_again(partition: TopicPartition, known: str) -> str:
    return (
        f"PARTITION_OFFSET_CHANGED] {partition}: {known}, and it belongs to another topic now: "
        f"{partition.topic} was deleted and made again"
    )


def _is_id(note: list[str], words: int) -> bool:
    return note[0] == _ID and len(note) == words


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


def is_worth_a_batch(limits: RateLimits, backlog: Backlog, *, waited_ms: float | None) -> bool:
    """Whether there is enough to read; `waited_ms` since the last batch, None if there was none."""
    if limits.offsets_min is None or waited_ms is None or waited_ms >= limits.trigger_delay_ms:
        return True
    return sum(limit - start for start, limit in backlog.values()) >= limits.offsets_min


def cap_offsets(backlog: Backlog, offsets_max: int) -> dict[TopicPartition, tuple[int, int]]:
    """The part of a backlog that has about `offsets_max` offsets."""
    return cap_bytes(backlog, offsets_max, size_between=lambda _, start, limit: limit - start)


def cap_bytes(
    backlog: Backlog, bytes_max: int, *, size_between: SizeBetween
) -> dict[TopicPartition, tuple[int, int]]:
    """The part of a backlog that has about `bytes_max` bytes."""
    sizes = {each: size_between(each, *span) for each, span in backlog.items()}
    total = sum(sizes.values())
    if total <= bytes_max:
        return dict(backlog)
    capped = {}
    for partition, (start, limit) in backlog.items():
        # Rounded down, as Spark does it, so that the sum never exceeds the limit but by the single
        # offsets below.
        share = bytes_max * sizes[partition] // total
        count = bisect_right(
            range(start + 1, limit + 1),
            share,
            key=lambda end: size_between(partition, start, end),
        )
        # At least one offset: a small backlog beside a large one would never be read.
        capped[partition] = start, min(start + max(count, 1), limit)
    return capped
