"""The files of an archive: which offsets it takes next, and how a task writes them as Parquet.

    topic=flights/date=2013-01-01/0-00000000000000000000-00000000000000050000.parquet
          │            │          │          │                     └ the offset after the last
          │            │          │          └ the first offset of the range
          │            │          └ the partition
          │            └ of the records' timestamps, in UTC; with `by="hour"`, `hour=07` below it
          └ the topic

A partition continues where the archive ends, or starts where the options say. A range is cut into
pieces of about one target file each, by its bytes of log; a broker tells no sizes, so there the
records are taken for 200 bytes. Small ranges share a work item, until it has the bytes of one file.

Records come as Arrow record batches, are collected into row groups, and leave by PyArrow's writer.
A file is full at a number of bytes; then all files of the range end, and the next range begins at
the next offset. So a range may come back as several.

Invariants: every offset from the end of the archive to the end of the plan is in one work item. The
files of a range have each of its records once, in the order of their offsets, and with every byte.
Nothing has its final name before the driver gives it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.reading.columns import arrow_schema
from tailrace.spark.batch_reader import read_task
from tailrace.spark.digests import Digest
from tailrace.spark.folder import Folder, open_folder
from tailrace.spark.jobs.json_values import BadValue, parse_values
from tailrace.spark.jobs.manifest import Entry, attempt_name
from tailrace.spark.jobs.topics import cut_evenly, remaining_ranges
from tailrace.spark.offsets import Extent, OffsetAt
from tailrace.spark.options import SourceOptions
from tailrace.spark.planning import OffsetRange, ScanTask
from tailrace.spark.stores import open_store
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
    """The log did not have these offsets any more, and `failOnDataLoss` is false."""

    @property
    def names(self) -> tuple[str, ...]:
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
    # With failOnDataLoss=false a log that ended too early is left out until it is longer again.
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


def count_offsets(item: Sequence[OffsetRange]) -> int:
    return sum(each.length for each in item)


def plan_items(ranges: Sequence[OffsetRange], *, item_bytes: int) -> list[tuple[OffsetRange, ...]]:
    """Work items of about `item_bytes` of log each; none has an empty range."""
    items: list[tuple[OffsetRange, ...]] = []
    packed: list[OffsetRange] = []
    room = item_bytes
    # In the order of partitions and offsets, so that neighbours share files of one directory.
    for piece in (
        piece for each in ranges for piece in cut_evenly(each, -(-each.expected_size // item_bytes))
    ):
        if packed and piece.expected_size > room:
            items.append(tuple(packed))
            packed, room = [], item_bytes
        packed.append(piece)
        room -= piece.expected_size
    return [*items, tuple(packed)] if packed else items


JSON: Final = "json"
"""The column with the typed fields of a JSON value, a struct."""

DEAD_LETTERS: Final = "_dead_letters"

NAME: Final = re.compile(
    rf"(?:{DEAD_LETTERS}/)?topic=[^/]+/(?:date=[^/]+/(?:hour=[^/]+/)?)?\d+-\d{{20}}-\d{{20}}\.parquet"
)
"""Names that an archive gives to its files."""

PERIOD_MS: Final = {"date": 86_400_000, "hour": 3_600_000}

# Readers skip whole row groups by their statistics.
ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
"""Bytes in memory that become a row group; several of these are what a task needs."""

# Each open file has a writer with buffers of its own. A topic whose timestamps jump about would
# otherwise open one for each day since 1970.
PERIODS_MAX: Final = 64
"""Files that a range has open; records of more periods end it, so that each file is small."""

NULL_PERIOD: Final = "__HIVE_DEFAULT_PARTITION__"
"""Directory of records without a timestamp, or with one in no year from 1970 to 9999."""

_YEAR_10000_MS: Final = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() + 1) * 1000

_DICTIONARY: Final = (
    "partition", "timestampType", "codec", "producerId", "producerEpoch", "leaderEpoch",
    "isTransactional",
)  # fmt: skip
_DELTA: Final = ("offset", "timestamp", "sequence")
"""Columns that mostly rise: a third of the size at most, and written in less time, than plain."""

_STATISTICS: Final = ("offset", "timestamp", "timestampType")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveTask:
    """Settings that all work items of an archive share."""

    options: SourceOptions
    target: str
    columns: tuple[str, ...]
    """The lossless ones, in their order."""
    by: str
    """`date` or `hour`."""
    file_bytes: int
    codec: str
    """Compression of the Parquet files."""
    value_types: Mapping[str, pa.StructType] = field(default_factory=dict)
    """Types of JSON values by topic; a topic that is not named has no column `json`."""


@dataclass(frozen=True, slots=True)
class StagedRange:
    """A range that was written, and where its files stand for now."""

    entry: RangeFiles
    renamed: dict[str, str]
    """Final names by those in the staging directory."""


def write_item(task: ArchiveTask, item: tuple[OffsetRange, ...]) -> list[StagedRange]:
    """Write the files of a work item under names of this attempt.

    Raises:
        CorruptionError: a batch is damaged; with its file and position.
        FatalError: the log no longer has a range, or cannot be read.
        OSError: the target cannot be written.
    """
    folder = open_folder(task.target)
    return [staged for wanted in item for staged in _write_range(task, wanted, folder)]


def row_groups(task: ArchiveTask, wanted: OffsetRange) -> Iterator[pa.Table]:
    """The records of a range with all lossless columns, in tables of a row group's size."""
    schema = lossless_schema(task.columns)
    collected: list[pa.RecordBatch] = []
    for batch in read_task(
        ScanTask(ranges=(wanted,)),
        open_store(task.options),
        columns=task.columns,
        fails_on_data_loss=task.options.fails_on_data_loss,
        corruption_report=task.options.corruption_report,
    ):
        collected.append(batch)
        # The size in memory, not that of the log: it is memory that runs out.
        if sum(each.nbytes for each in collected) >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(collected).cast(schema)
            collected = []
    if collected:
        yield pa.Table.from_batches(collected).cast(schema)


def lossless_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The columns as files have them: a timestamp is Kafka's, in milliseconds."""
    schema = arrow_schema(columns)
    # Spark's timestamps are microseconds, and the last three digits would always be zero in the
    # file.
    index = schema.get_field_index("timestamp")
    return schema.set(index, pa.field("timestamp", pa.timestamp("ms", tz="UTC")))


def split_by_period(table: pa.Table, by: str) -> list[tuple[str, pa.Table]]:
    """Rows by the directory of their period, in their order."""
    timestamps = table.column("timestamp").cast(pa.int64()).to_numpy()
    # Timestamps are what producers send: negative ones and those after the year 9999 have no
    # directory.
    periods = np.where(
        (timestamps >= 0) & (timestamps < _YEAR_10000_MS), timestamps // PERIOD_MS[by], -1
    )
    # The usual case: a row group is of one day, and nothing has to be sorted.
    if not len(periods) or (periods == periods[0]).all():
        return [(period_directory(int(each), by), table) for each in periods[:1]]
    # Stable, because the rows of a period stay in the order of their offsets.
    order = np.argsort(periods, kind="stable")
    sorted_table, sorted_periods = table.take(order), periods[order]
    starts = [0, *(np.flatnonzero(np.diff(sorted_periods)) + 1).tolist(), len(order)]
    return [
        (
            period_directory(int(sorted_periods[start]), by),
            sorted_table.slice(start, limit - start),
        )
        for start, limit in pairwise(starts)
    ]


def period_directory(period: int, by: str) -> str:
    """`date=2013-01-01`, with `/hour=07` below it for hours; -1 is no period."""
    if period < 0:
        return f"date={NULL_PERIOD}" + (f"/hour={NULL_PERIOD}" if by == "hour" else "")
    time = datetime.fromtimestamp(period * PERIOD_MS[by] // 1000, UTC)
    return f"date={time:%Y-%m-%d}" + (f"/hour={time:%H}" if by == "hour" else "")


@dataclass(frozen=True, slots=True)
class _Closed:
    """A file that is written, and has no name yet."""

    staged: str
    facts: Mapping[str, Any]

    def named(self, name: str) -> DataFile:
        return DataFile(name=name, **self.facts)


class _Writer:
    """One Parquet file while it is written; `open` creates it."""

    def __init__(
        self,
        folder: Folder,
        staged: str,
        columns: list[str],
        *,
        file: pa.NativeFile,
        writer: pq.ParquetWriter,
    ) -> None:
        self.staged = staged
        self._rows = 0
        self._first = self._last = -1
        self._folder = folder
        self._columns = columns
        self._digest = Digest()
        self._file = file
        self._writer = writer

    @classmethod
    def open(cls, task: ArchiveTask, folder: Folder, schema: pa.Schema) -> "_Writer":
        """A new file, under a name for this attempt."""
        staged = attempt_name(".parquet")
        file = folder.sink(staged)
        writer = pq.ParquetWriter(
            file,
            schema,
            compression=task.codec,
            # Dictionaries only where values repeat: for keys and values PyArrow would build one,
            # find it too large and drop it.
            use_dictionary=_leaves(schema, _DICTIONARY),
            # Minima and maxima of keys and values would only fill the footers: nobody asks for
            # them.
            write_statistics=_leaves(schema, _STATISTICS),
            column_encoding={
                name: "DELTA_BINARY_PACKED" for name in _DELTA if name in schema.names
            },
        )
        columns = [name for name in task.columns if name in schema.names]
        return cls(folder, staged, columns, file=file, writer=writer)

    @property
    def bytes(self) -> int:
        return int(self._file.tell())

    def write(self, table: pa.Table) -> None:
        offsets = table.column("offset")
        if not self._rows:
            self._first = offsets[0].as_py()
        self._last = offsets[-1].as_py()
        self._rows += len(table)
        self._digest.update(table.select(self._columns))
        # One table is one row group; PyArrow's own default cuts at a million rows.
        self._writer.write_table(table, row_group_size=max(len(table), 1))

    def finish(self) -> "_Closed":
        """Close the file and have it on the device."""
        self._writer.close()
        size = self.bytes
        self._file.close()
        # On the device before the driver names it: a name that outlives its content would count.
        self._folder.seal(self.staged)
        return _Closed(
            self.staged,
            {
                "rows": self._rows,
                "bytes": size,
                "first": self._first,
                "last": self._last,
                "digest": self._digest.hexdigest(),
            },
        )

    def abandon(self) -> None:
        """Close what an error has left open; the next run removes the file."""
        # It is the first error that counts; closing a writer that has failed raises again.
        with suppress(pa.ArrowException, OSError, ValueError):
            self._writer.close()
            self._file.close()


class _RangeWriter:
    """The files of one range."""

    def __init__(self, task: ArchiveTask, folder: Folder, wanted: OffsetRange) -> None:
        self._task = task
        self._folder = folder
        self._partition = wanted.partition
        self._kind = task.value_types.get(wanted.partition.topic)
        self._open: dict[str, _Writer] = {}
        self._closed: dict[str, _Closed] = {}
        self._dead: _Writer | None = None
        self._rows = 0

    @property
    def is_full(self) -> bool:
        return bool(self._closed) or any(
            each.bytes >= self._task.file_bytes for each in self._open.values()
        )

    def write(self, table: pa.Table) -> None:
        """Append the next rows; none may follow when it is full."""
        self._rows += len(table)
        if self._kind is not None:
            table = self._with_json(table, self._kind)
        # JSON was parsed first: it is the same work for one part or many.
        parts = split_by_period(table, self._task.by)
        has_too_many = len(self._open.keys() | {period for period, _ in parts}) > PERIODS_MAX
        for period, part in parts:
            if period not in self._open:
                self._open[period] = _Writer.open(self._task, self._folder, table.schema)
            self._open[period].write(part)
            # The whole range ends with this row group, and each file of it has at least that.
            if has_too_many:
                self._closed[period] = self._open.pop(period).finish()

    def finish(self, start: int, limit: int) -> StagedRange:
        """The entry of what was written, as the range from `start` to `limit`."""
        topic, partition = self._partition
        # Twenty digits, as in the names of Kafka's segments: names sort as offsets do.
        end = f"{partition}-{start:020}-{limit:020}.parquet"
        closed = {
            f"topic={topic}/{period}/{end}": each
            for period, each in (
                *self._closed.items(),
                *((period, writer.finish()) for period, writer in self._open.items()),
            )
        }
        files = tuple(each.named(name) for name, each in sorted(closed.items()))
        dead = None
        if self._dead is not None:
            name = f"{DEAD_LETTERS}/topic={topic}/{end}"
            closed[name] = self._dead.finish()
            dead = closed[name].named(name)
        entry = RangeFiles(
            topic=topic, partition=partition, start=start, limit=limit, rows=self._rows,
            files=files, dead_letters=dead,
        )  # fmt: skip
        return StagedRange(entry, {each.staged: name for name, each in closed.items()})

    def abandon(self) -> None:
        for writer in (*self._open.values(), self._dead):
            if writer is not None:
                writer.abandon()

    def _with_json(self, table: pa.Table, kind: pa.StructType) -> pa.Table:
        pieces, bad = [], []
        row = 0
        for chunk in table.column("value").chunks:
            rows, faults = parse_values(chunk, kind)
            pieces.append(rows)
            bad += [BadValue(row + each.row, each.reason) for each in faults]
            row += len(chunk)
        if bad:
            self._bury(table, bad)
        return table.append_column(JSON, pa.chunked_array(pieces, kind))

    def _bury(self, table: pa.Table, bad: list[BadValue]) -> None:
        chosen = table.select(["partition", "offset", "value"]).take([each.row for each in bad])
        chosen = chosen.append_column("reason", pa.array([each.reason for each in bad]))
        if self._dead is None:
            self._dead = _Writer.open(self._task, self._folder, chosen.schema)
        self._dead.write(chosen)


def _write_range(task: ArchiveTask, wanted: OffsetRange, folder: Folder) -> Iterator[StagedRange]:
    start, end = wanted.start, wanted.start
    writer = _RangeWriter(task, folder, wanted)
    try:
        for table in row_groups(task, wanted):
            # A range ends before the next table and not when it is full, so that no empty range
            # comes last.
            if writer.is_full:
                yield writer.finish(start, end)
                start = end
                writer = _RangeWriter(task, folder, wanted)
            writer.write(table)
            end = table.column("offset")[-1].as_py() + 1
        yield writer.finish(start, wanted.limit)
    except BaseException:
        writer.abandon()
        raise


def _leaves(schema: pa.Schema, names: tuple[str, ...]) -> list[str]:
    """The columns of these names, and the fields of JSON values, which may well repeat."""
    found = [name for name in names if name in schema.names]
    if JSON in schema.names:
        found += [f"{JSON}.{each.name}" for each in schema.field(JSON).type]
    return found
