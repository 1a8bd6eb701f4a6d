"""Chooses the offsets that an archive takes next, and cuts them into work items; pure.

    1. A partition goes on where the archive ends, or starts where the options say.
    2. A range is cut into pieces of about one target file each, by its bytes of log; a broker
       tells no sizes, so there the records are taken for 200 bytes, and the task that writes
       begins another file when one is full.
    3. Small ranges share a work item, in their order, until it has the bytes of one file.

Invariant: every offset from the end of the archive to the end of the plan is in one work item.
"""

from collections.abc import Mapping, Sequence

from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.spark.jobs.manifest import Entry
from tailrace.spark.jobs.remaining import cut_evenly, remaining_ranges
from tailrace.spark.offsets import Extent, OffsetAt
from tailrace.spark.options import SourceOptions
from tailrace.spark.planning import OffsetRange
from tailrace.values import dataclass

ARCHIVED = "archived so far"
"""Stands for the option `startingOffsets` in messages about partitions that were archived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeFiles:
    """One range of offsets in the archive; an entry of the manifest, with these fields."""

    topic: str
    partition: int
    start: int
    limit: int
    """The offset after the last; those in between may have no record, as in any log."""
    rows: int
    files: tuple["DataFile", ...] = ()
    """One for each period that its records have."""
    dead_letters: "DataFile | None" = None
    is_lost: bool = False
    """The log did not have these offsets any more, and the source was told to go on."""

    @property
    def names(self) -> tuple[str, ...]:
        """All its files."""
        return tuple(each.name for each in (*self.files, self.dead_letters) if each is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One Parquet file."""

    name: str
    """Below the archive's directory."""
    rows: int
    bytes: int
    first: int
    """The offset of its first row."""
    last: int
    digest: str
    """Digest of its lossless columns, by `tailrace.spark.digests`."""


def range_of(entry: Entry) -> RangeFiles:
    """An entry of the manifest as it was written."""
    dead = entry["dead_letters"]
    return RangeFiles(
        **{
            **entry,
            "files": tuple(DataFile(**each) for each in entry["files"]),
            "dead_letters": None if dead is None else DataFile(**dead),
        }
    )


def archive_ranges(
    options: SourceOptions,
    extents: Mapping[TopicPartition, Extent],
    *,
    ends: Mapping[TopicPartition, int],
    offset_at: OffsetAt,
) -> dict[TopicPartition, tuple[int, int]]:
    """Start and limit of what is to be archived by partition; none is empty.

    Raises:
        ConfigError: as `remaining_ranges`; also where the log does not reach back to the end of the
            archive, or not up to it, unless `failOnDataLoss` is false.
    """
    shorter = find_shorter(extents, ends)
    if shorter and options.fails_on_data_loss:
        raise ConfigError(
            [
                f"{each}; if it is another topic of the same name, choose another target"
                for each in shorter.values()
            ]
        )
    extents = {each: extent for each, extent in extents.items() if each not in shorter}
    return remaining_ranges(options, extents, ends=ends, offset_at=offset_at, noted_as=ARCHIVED)


def find_shorter(
    extents: Mapping[TopicPartition, Extent], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, str]:
    """A sentence for each partition whose log ends before the end of the archive."""
    return {
        each: f"{each}: the log ends at offset {extent.end} and {ends[each]} are archived"
        for each, extent in sorted(extents.items())
        if ends.get(each, 0) > extent.end
    }


def plan_items(ranges: Sequence[OffsetRange], *, item_bytes: int) -> list[tuple[OffsetRange, ...]]:
    """Work items of about `item_bytes` of log each; none has an empty range."""
    items: list[tuple[OffsetRange, ...]] = []
    packed: list[OffsetRange] = []
    room = item_bytes
    for piece in (
        piece for each in ranges for piece in cut_evenly(each, -(-each.expected_size // item_bytes))
    ):
        if packed and piece.expected_size > room:
            items.append(tuple(packed))
            packed, room = [], item_bytes
        packed.append(piece)
        room -= piece.expected_size
    return [*items, tuple(packed)] if packed else items
