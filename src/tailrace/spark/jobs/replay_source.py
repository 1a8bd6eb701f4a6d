"""The source of a replay: logs behind a broker or in directories, or an archive of Parquet files.

Both tell the offsets that there are, and give the records of a range as Arrow tables with `key`,
`value`, `timestamp` (milliseconds), `headers` and `offset`, in the order of their offsets.

An archive's records of one range are in a file for each period. They are merged by their offsets,
row group by row group, so that no more is held than a row group of each file.

Not here: aborted transactions. Logs are read as `kafka.isolation.level` says; an archive has what
it was written with.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.errors import ConfigError, CorruptionError
from tailrace.model import Offset, TopicPartition
from tailrace.spark.folder import Folder, open_folder
from tailrace.spark.jobs.archive import FORMAT, ranges_of
from tailrace.spark.jobs.identities import SOURCES, TopicIdentity, parse_identities
from tailrace.spark.jobs.manifest import Manifest
from tailrace.spark.offsets import Extent, choose_partitions
from tailrace.spark.options import Selection, SourceOptions
from tailrace.spark.planning import OffsetRange, ScanTask
from tailrace.spark.readers import read_task
from tailrace.spark.stores import LogStore, measure_ranges, open_store
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.spark.jobs.archive_plan import RangeFiles

COLUMNS: Final = ("key", "value", "timestamp", "headers")
"""Columns of a record that a replay keeps."""

_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")

SourceRange: TypeAlias = tuple[OffsetRange, tuple[str, ...]]
"""Offsets to read, and the archive's files that have them; none for a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySource:
    """Source settings that a task needs."""

    options: SourceOptions
    archive: str | None
    """Its directory or URI; None: the options name logs."""


class OpenSource(Protocol):
    """A source on the driver."""

    def extents(self) -> dict[TopicPartition, Extent]:
        """The offsets that it has of what the options select.

        Raises:
            ConfigError: something is selected that does not exist.
        """
        ...

    def cluster_id(self, partition: TopicPartition) -> str | None:
        """The id of the cluster that a partition is of, if it is known."""
        ...

    def offset_at(self, partition: TopicPartition, timestamp: int) -> int | None:
        """Offset of the first record with at least this timestamp (ms), or None."""
        ...

    def measure(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[SourceRange]:
        """The ranges with what tasks need to read them."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


class LogSource:
    """Logs, as the source `tailrace` reads them."""

    def __init__(self, selection: Selection, store: LogStore) -> None:
        self._selection = selection
        self._store = store
        self.offset_at: Callable[[TopicPartition, int], int | None] = store.offset_at
        self.cluster_id: Callable[[TopicPartition], str | None] = store.cluster_id
        self.close: Callable[[], None] = store.close

    def extents(self) -> dict[TopicPartition, Extent]:
        """The offsets that the logs have now."""
        known = self._store.partitions(self._selection)
        return self._store.extents(choose_partitions(self._selection, known))

    def measure(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[SourceRange]:
        """The ranges with their sizes and seals."""
        return [(each, ()) for each in measure_ranges(self._store, ranges)]


class ArchiveSource:
    """An archive, by its manifest."""

    def __init__(self, manifest: Manifest, selection: Selection) -> None:
        self._selection = selection
        self._ranges: dict[TopicPartition, list[RangeFiles]] = {}
        for each in ranges_of(manifest):
            self._ranges.setdefault(TopicPartition(each.topic, each.partition), []).append(each)
        self._sources = parse_identities(manifest.settings, SOURCES)

    def extents(self) -> dict[TopicPartition, Extent]:
        """The first archived offset and the one after the last, by partition."""
        return {
            partition: Extent(
                self._ranges[partition][0].start,
                self._ranges[partition][-1].limit,
                self._identity(partition).topic_id,
            )
            for partition in choose_partitions(self._selection, self._ranges.keys())
        }

    def cluster_id(self, partition: TopicPartition) -> str | None:
        """The id of the cluster that the topic was archived from."""
        return self._identity(partition).cluster_id

    def offset_at(self, partition: TopicPartition, timestamp: int) -> int | None:
        """Refused.

        Raises:
            ConfigError: always; an archive has no index by time.
        """
        del timestamp
        raise ConfigError([f"{partition}: an archive has no index by time; say offsets instead"])

    def measure(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[SourceRange]:
        """The ranges with their files; sizes are those of Parquet."""
        return [
            self._measured(partition, start, limit) for partition, (start, limit) in ranges.items()
        ]

    def close(self) -> None:
        """Do nothing: the source holds nothing open."""

    def _identity(self, partition: TopicPartition) -> TopicIdentity:
        return self._sources.get(partition.topic, TopicIdentity())

    def _measured(self, partition: TopicPartition, start: int, limit: int) -> SourceRange:
        files = [
            file
            for each in self._ranges.get(partition, ())
            for file in each.files
            if file.first < limit and file.last >= start
        ]
        size = sum(file.bytes for file in files)
        wanted = OffsetRange(
            partition=partition, start=Offset(start), limit=Offset(limit), size=size
        )
        return wanted, tuple(file.name for file in files)


def open_source(source: ReplaySource) -> OpenSource:
    """The source, to plan with.

    Raises:
        ConfigError: there is no archive, or the options do not lead to logs.
        CorruptionError: the archive's manifest is damaged.
    """
    options, path = source.options, source.archive
    if path is None:
        return LogSource(options.selection, open_store(options))
    manifest = Manifest.open(open_folder(path), form=FORMAT)
    if not manifest.settings:
        raise ConfigError([f"archive: {path} has no manifest"])
    return ArchiveSource(manifest, options.selection)


def read_tables(source: ReplaySource, wanted: SourceRange) -> Iterator[pa.Table]:
    """The records of a range; the same each time, as long as the source does not change.

    Raises:
        CorruptionError: a batch or a file is damaged.
        FatalError: the log no longer has the range.
        OSError: a file of the archive cannot be read.
    """
    offsets, files = wanted
    if source.archive is not None:
        folder = open_folder(source.archive)
        tables = merged([_row_groups(folder, name, offsets) for name in files])
    else:
        tables = map(
            pa.Table.from_batches,
            (
                [batch]
                for batch in read_task(
                    ScanTask(ranges=(offsets,)),
                    open_store(source.options),
                    columns=(*COLUMNS, "offset"),
                    fails_on_data_loss=source.options.fails_on_data_loss,
                    corruption_report=source.options.corruption_report,
                )
            ),
        )
    return map(in_milliseconds, tables)


def in_milliseconds(table: pa.Table) -> pa.Table:
    """The table with Kafka's own timestamps."""
    index = table.schema.get_field_index("timestamp")
    return table.set_column(index, "timestamp", table.column("timestamp").cast(_MILLISECONDS))


def merged(files: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Tables that rise in `offset` each, as one sequence that does."""
    heads = [(table, rest) for rest in files if (table := next(rest, None)) is not None]
    while heads:
        border = min(table.column("offset")[-1].as_py() for table, _ in heads)
        taken, left = [], []
        for table, rest in heads:
            offsets = table.column("offset").to_numpy()
            count = int(np.searchsorted(offsets, border, side="right"))
            taken.append(table.slice(0, count))
            head = table.slice(count) if count < len(table) else next(rest, None)
            if head is not None:
                left.append((head, rest))
        heads = left
        yield taken[0] if len(taken) == 1 else pa.concat_tables(taken).sort_by("offset")


def _row_groups(folder: Folder, name: str, wanted: OffsetRange) -> Iterator[pa.Table]:
    """The rows of a file that are in the range, without tables that have none."""
    try:
        with folder.source(name) as source:
            parquet = pq.ParquetFile(source)
            for number in range(parquet.num_row_groups):
                table = parquet.read_row_group(number, columns=[*COLUMNS, "offset"])
                offsets = table.column("offset")
                is_wanted = pc.and_(
                    pc.greater_equal(offsets, wanted.start), pc.less(offsets, wanted.limit)
                )
                table = table.filter(is_wanted)
                if len(table):
                    yield table
    except pa.ArrowInvalid as error:
        raise CorruptionError(f"not a Parquet file: {error}", path=name) from error
