"""Chooses the offsets that a replay sends next, their order, and its manifest entries; pure.

    planned    a range of one source partition, with the producer id under which it is sent, and
               the end of each target partition before that
    sent       the same range, when all of it is in the target

A range that is planned and not sent was interrupted. It is sent again as it was planned, before
anything else, and whatever of it arrived is found by its producer id; see `replay_send`.

Invariant: a partition's ranges are sent one after the other, in the order of their offsets, and
no offset is in two of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Final

from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.spark.jobs.manifest import Entry
from tailrace.spark.jobs.remaining import cut_evenly, remaining_ranges
from tailrace.spark.offsets import Extent, OffsetAt
from tailrace.spark.options import SourceOptions
from tailrace.spark.planning import OffsetRange
from tailrace.values import dataclass

REPLAYED: Final = "replayed so far"
"""Stands for the option `startingOffsets` in messages about partitions that were replayed."""

RANGE_BYTES: Final = 256 * 1024 * 1024
"""Bytes of log in a range: some seconds of work, which is what a failure costs."""

RANGE_OFFSETS: Final = 4 * 1024 * 1024
"""Offsets in a range; its task holds 16 bytes for each record, and a producer numbers 2**31."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRange:
    """One range of a source partition before it is sent."""

    topic: str
    partition: int
    start: int
    limit: int
    """The offset after the last."""
    target: str
    """The topic that it goes to."""
    partition_count: int
    """Partitions of the target when this was planned; keys are spread over so many."""
    keeps_partition: bool
    producer_id: int
    producer_epoch: int
    since: Mapping[int, int]
    """The end of each target partition that it may go to, before anything of it was sent."""

    @property
    def source(self) -> TopicPartition:
        """The source partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRange:
    """One range of a source partition that is in the target."""

    topic: str
    partition: int
    start: int
    limit: int
    records: int
    bytes: int
    """Size of the batches that the last attempt sent."""
    found: int
    """Records that an earlier attempt had sent."""
    file: str | None
    """File of the offset map; None: the range has no records."""


def entry_of(each: PlannedRange | SentRange) -> Entry:
    """An entry of the manifest."""
    return {"planned" if isinstance(each, PlannedRange) else "sent": asdict(each)}


def planned_of(entry: Entry) -> PlannedRange:
    """The range of an entry that plans one."""
    fields = entry["planned"]
    since = {int(number): offset for number, offset in fields["since"].items()}
    return PlannedRange(**{**fields, "since": since})


def files_of(entry: Entry) -> tuple[str, ...]:
    """The files of an entry of the manifest."""
    name = entry["sent"]["file"] if "sent" in entry else None
    return () if name is None else (name,)


def progress_of(entries: Iterable[Entry]) -> tuple[list[PlannedRange], dict[TopicPartition, int]]:
    """The ranges that were interrupted, and the offset behind what was sent by partition."""
    pending: dict[TopicPartition, PlannedRange] = {}
    ends: dict[TopicPartition, int] = {}
    for entry in entries:
        if "planned" in entry:
            planned = planned_of(entry)
            pending[planned.source] = planned
        else:
            sent = SentRange(**entry["sent"])
            source = TopicPartition(sent.topic, sent.partition)
            del pending[source]
            ends[source] = sent.limit
    return list(pending.values()), ends


def least_ends(entries: Iterable[Entry]) -> dict[TopicPartition, int]:
    """Offsets that the partitions of a replay's targets had reached, for certain."""
    found: dict[TopicPartition, int] = {}
    planned: dict[TopicPartition, PlannedRange] = {}

    def note(topic: str, number: int, end: int) -> None:
        target = TopicPartition(topic, number)
        found[target] = max(found.get(target, 0), end)

    for entry in entries:
        if "planned" in entry:
            each = planned_of(entry)
            planned[each.source] = each
            for number, since in each.since.items():
                note(each.target, number, since)
            continue
        sent = SentRange(**entry["sent"])
        before = planned[TopicPartition(sent.topic, sent.partition)]
        # Which of several partitions has how many of the records, only the map says.
        if len(before.since) == 1:
            [(number, since)] = before.since.items()
            note(before.target, number, since + sent.records)
    return found


def replay_ranges(
    options: SourceOptions,
    extents: Mapping[TopicPartition, Extent],
    *,
    ends: Mapping[TopicPartition, int],
    offset_at: OffsetAt,
) -> dict[TopicPartition, tuple[int, int]]:
    """Start and limit of what is to be sent by partition; none is empty.

    A partition goes on where it ended, or starts where the options say.

    Raises:
        ConfigError: as `remaining_ranges`; or the source ends before what was replayed of it.
    """
    shorter = [each for each, extent in extents.items() if ends.get(each, 0) > extent.end]
    if shorter:
        raise ConfigError(
            [
                f"{each}: the source ends at offset {extents[each].end}, and {ends[each]} are "
                "replayed; if it is another source, choose another offset map"
                for each in sorted(shorter)
            ]
        )
    return remaining_ranges(options, extents, ends=ends, offset_at=offset_at, noted_as=REPLAYED)


def plan_waves(
    ranges: Sequence[OffsetRange],
    *,
    range_bytes: int = RANGE_BYTES,
    range_offsets: int = RANGE_OFFSETS,
) -> list[list[OffsetRange]]:
    """All ranges in pieces: the first piece of each in the first wave, and so on.

    A wave begins when the one before is sent, which keeps a partition's pieces in their order.
    """
    cut = [_cut(each, range_bytes, range_offsets) for each in ranges]
    return [[each for each in wave if each is not None] for wave in zip_longest(*cut)]


def _cut(whole: OffsetRange, range_bytes: int, range_offsets: int) -> list[OffsetRange]:
    wanted = max(-(-whole.expected_size // range_bytes), -(-whole.length // range_offsets))
    return cut_evenly(whole, wanted)
