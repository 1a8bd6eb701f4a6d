"""Records as Arrow record batches, with the columns that say the place of each record.

Only the columns that are asked for are decoded. Every record batch has exactly the declared schema:
the names in their order, and the types of `tailrace.records.schema`, all nullable. A broker tells
no file and no position, so both are null there.

Invariant: rows are in the order of their offsets, and none comes from a batch that is damaged or
that holds a control record.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.reading.located import (
    LocatedBatch,
    LocatedBatches,
    OffsetSpan,
    OnSkip,
    decoding,
    split_batches,
)
from tailrace.records.columns import ARROW_TYPES, ColumnsBuilder, schema_of
from tailrace.records.runs import BatchRun
from tailrace.records.schema import COLUMN_NAMED, Column, ColumnOrigin, names_added_by

TOPIC: Final = Column.TOPIC.value
PARTITION: Final = Column.PARTITION.value
FILE: Final = Column.FILE.value
POSITION: Final = Column.POSITION.value

DEFAULT_COLUMNS: Final = names_added_by(None) + names_added_by("includeHeaders")
"""Columns of a record's content and place, as a consumer sees them."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of the record batches that `decode` gives for these columns."""
    return schema_of(COLUMN_NAMED[name] for name in columns)


def check_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """Check the columns that were asked for; by default those of a record and its place in topics.

    Raises:
        TypeError: it is no sequence of names.
        ConfigError: a column does not exist or is named twice.
    """
    if columns is None:
        return DEFAULT_COLUMNS
    if isinstance(columns, str) or not all(isinstance(each, str) for each in columns):
        raise TypeError(f"columns is {columns!r}; it must be a sequence of names")
    faults = [
        f"columns: no column {name!r}; there are: {', '.join(COLUMN_NAMED)}"
        for name in columns
        if name not in COLUMN_NAMED
    ]
    if len(set(columns)) < len(columns):
        faults.append("columns: one is named twice")
    if faults:
        raise ConfigError(faults)
    return tuple(columns)


def decode(
    pieces: Iterable[LocatedBatches],
    wanted: OffsetSpan,
    *,
    columns: Sequence[str],
    on_skip: OnSkip | None,
) -> Iterator[pa.RecordBatch]:
    """The records of a range in the pieces that hold it; a piece may reach beyond it.

    A batch that breaks a rule of the format is an error, or with `on_skip` reported and left out.

    Raises:
        CorruptionError: a batch is damaged; with its place.
        FatalError: a batch is compressed with a codec that Kafka does not have.
    """
    chunks = _Chunks(columns, wanted.partition)
    for located in pieces:
        piece, path, position = located
        # A run is decoded by one call in C. At a fault in it nothing is taken, and the batches
        # follow one by one, since only they can say which of them is damaged.
        is_taken = isinstance(piece, BatchRun) and chunks.append_run(
            piece, wanted, path=path, position=position
        )
        if not is_taken:
            for each in split_batches(located, wanted):
                # Markers of transactions have offsets, and are no records to a consumer either.
                if not each[0].is_control:
                    with decoding(each, wanted, on_skip):
                        chunks.append(each, wanted)
        # After a whole piece, so a chunk may be larger than its aim by one piece, and never splits
        # one.
        if not chunks.builder.has_room:
            yield chunks.finish()
    if chunks.builder.row_count:
        yield chunks.finish()


class _Chunks:
    """Columns of records, with those that say where the records are."""

    def __init__(self, columns: Sequence[str], partition: TopicPartition) -> None:
        self.builder = ColumnsBuilder(
            [
                each
                for each in map(COLUMN_NAMED.__getitem__, columns)
                if each.origin is not ColumnOrigin.PLACE
            ]
        )
        self._schema = arrow_schema(columns)
        self._common = {
            TOPIC: pa.scalar(partition.topic, pa.string()),
            PARTITION: pa.scalar(partition.partition, pa.int32()),
        }
        self._repeated: dict[str, pa.Array] = {}
        self._by_batch: dict[str, list[str | int | None]] = {FILE: [], POSITION: []}
        self._counts: list[int] = []

    def append(self, located: LocatedBatch, wanted: OffsetSpan) -> None:
        """Adds the records of a batch that are within a range; raises as `ColumnsBuilder` does."""
        batch, path, position = located
        count = self.builder.append(batch, start_offset=wanted.start, limit_offset=wanted.limit)
        self._by_batch[FILE].append(path)
        self._by_batch[POSITION].append(position)
        self._counts.append(count)

    def append_run(
        self, run: BatchRun, wanted: OffsetSpan, *, path: str | None, position: int | None
    ) -> bool:
        """Adds the records of a run, or nothing if `append` has to tell what is wrong in it."""
        counts = self.builder.append_run(run, start_offset=wanted.start, limit_offset=wanted.limit)
        if counts is None:
            return False
        self._by_batch[FILE] += [path] * len(counts)
        self._by_batch[POSITION] += [
            # A run knows positions from its own beginning, and a broker's answer has none.
            None if position is None else position + each
            for each in run.positions
        ]
        self._counts += counts
        return True

    def finish(self) -> pa.RecordBatch:
        """The rows collected so far, with all columns."""
        rows = self.builder.row_count
        decoded = self.builder.finish()
        arrays = []
        for name in self._schema.names:
            if name in self._common:
                arrays.append(self._repeat(name, rows))
            elif name in self._by_batch:
                arrays.append(self._spread(name))
            else:
                arrays.append(decoded.column(name))
        self._by_batch, self._counts = {FILE: [], POSITION: []}, []
        # The declared schema, also where all values are null: readers compare schemas between
        # chunks.
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _repeat(self, name: str, count: int) -> pa.Array:
        """A column with one value, built once for the largest chunk and sliced for others."""
        # Chunks have about the same number of rows, so it is built once or twice.
        if len(self._repeated.get(name, ())) < count:
            self._repeated[name] = pa.repeat(self._common[name], count)
        return self._repeated[name].slice(0, count)

    def _spread(self, name: str) -> pa.Array:
        """A column with one value for each batch."""
        values = pa.array(self._by_batch[name], ARROW_TYPES[COLUMN_NAMED[name]])
        # One value for each batch and not for each record: a path takes more room than many
        # records.
        return values.take(pa.array(np.repeat(np.arange(len(values)), self._counts)))
