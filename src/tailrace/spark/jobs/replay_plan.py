"""Chooses the offsets that a replay sends next; its entries in the manifest, and the offset map.

    planned    a range of one source partition, with the producer id under which it is sent, and
               the end of each target partition before that
    sent       the same range, when all of it is in the target

A range that is planned and not sent was interrupted. It is sent again as it was planned, before
anything else, and whatever of it arrived is found by its producer id; see `replay_send`.

The offset map says where each record of a source is in the target (docs/formats/offset-map.md). A
row is a run of records whose offsets rise by one on both sides, so a record's offset in the target
is exact, and a replay that keeps partitions has few rows.

Invariant: a partition's ranges are sent one after the other, in the order of their offsets, and
no offset is in two of them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.errors import ConfigError
from tailrace.kernels.arrays import Int64s
from tailrace.model import TopicPartition
from tailrace.spark.folder import Folder
from tailrace.spark.jobs.manifest import Entry
from tailrace.spark.jobs.topics import cut_evenly, remaining_ranges
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
    """Partitions of the target when this was planned; keys are spread over these."""
    keeps_partition: bool
    producer_id: int
    producer_epoch: int
    since: Mapping[int, int]
    """The end of each target partition that it may go to, before anything of it was sent."""

    @property
    def source(self) -> TopicPartition:
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
    return {"planned" if isinstance(each, PlannedRange) else "sent": asdict(each)}


def planned_of(entry: Entry) -> PlannedRange:
    # JSON has only text as keys.
    fields = entry["planned"]
    since = {int(number): offset for number, offset in fields["since"].items()}
    return PlannedRange(**{**fields, "since": since})


def files_of(entry: Entry) -> tuple[str, ...]:
    name = entry["sent"]["file"] if "sent" in entry else None
    return () if name is None else (name,)


def progress_of(entries: Iterable[Entry]) -> tuple[list[PlannedRange], dict[TopicPartition, int]]:
    """The ranges that were interrupted, and the offset after what was sent by partition."""
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

    A partition continues where it ended, or starts where the options say.

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
    # Waves and not one list: a partition's pieces would run at the same time, and mix their order
    # in the target.
    cut = [_cut(each, range_bytes, range_offsets) for each in ranges]
    return [[each for each in wave if each is not None] for wave in zip_longest(*cut)]


def _cut(whole: OffsetRange, range_bytes: int, range_offsets: int) -> list[OffsetRange]:
    wanted = max(-(-whole.expected_size // range_bytes), -(-whole.length // range_offsets))
    return cut_evenly(whole, wanted)


NAME: Final = re.compile(r"topic=[^/]+/\d+-\d{20}-\d{20}\.parquet")
"""Names that a replay gives to its files."""

SCHEMA: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("target_topic", pa.string()),
        ("target_partition", pa.int32()),
        ("target_offset", pa.int64()),
        ("records", pa.int64()),
    ]
)


class Moved(NamedTuple):
    """The records of a range that went to one partition of the target."""

    partition: int
    sources: Int64s
    """Their offsets in the source, rising."""
    targets: Int64s
    """And in the target, rising; -1 for one that was there and is not any more."""


def runs_of(moved: Moved) -> tuple[Int64s, Int64s, Int64s]:
    """First offset in the source, first offset in the target, and records of each run."""
    # Records that compaction or retention has removed since are in no run.
    sources, targets = moved.sources[moved.targets >= 0], moved.targets[moved.targets >= 0]
    is_break = (np.diff(sources) != 1) | (np.diff(targets) != 1)
    starts = np.concatenate(([0], np.flatnonzero(is_break) + 1)).astype(np.int64)
    # `concatenate` has put a first run there.
    if not len(sources):
        starts = starts[:0]
    return sources[starts], targets[starts], np.diff(starts, append=len(sources))


def write_map(folder: Folder, name: str, *, planned: PlannedRange, moved: Iterable[Moved]) -> None:
    """The rows of a range, in the order of the source's offsets, as a file that is on the device.

    Raises:
        OSError: it cannot be written.
    """
    # All records of a range may be gone from the target; then the file has the columns alone.
    tables = [SCHEMA.empty_table()]
    for each in moved:
        sources, targets, counts = runs_of(each)
        columns = {
            "partition": np.full(len(sources), planned.partition),
            "offset": sources,
            "target_topic": [planned.target] * len(sources),
            "target_partition": np.full(len(sources), each.partition),
            "target_offset": targets,
            "records": counts,
        }
        tables.append(pa.table(columns, schema=SCHEMA))
    with folder.sink(name) as sink:
        pq.write_table(pa.concat_tables(tables).sort_by("offset"), sink, compression="zstd")
    folder.seal(name)
