"""`Collector`: fetched records as one Arrow record batch, without an object for each record.

The columns are those of `records.schema`, as `tailrace.reading` and the Spark source give them; a
consumer knows no file, so `file` and `position` are not among them.

Only `poll_columns` imports this module: it needs pyarrow.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from tailrace.client.consumer.fetched import DECODE_FAULTS, FetchedPart, damaged, epoch_of
from tailrace.errors import ConfigError
from tailrace.model import OFFSET_MAX, TopicPartition
from tailrace.records.batch import Batch
from tailrace.records.batch_columns import repeated_numbers, repeated_strings
from tailrace.records.columns import ARROW_TYPES, ColumnsBuilder, schema_of
from tailrace.records.runs import Piece
from tailrace.records.schema import COLUMN_NAMED, Column, ColumnOrigin, names_added_by

_NOT_FROM_BROKERS: Final = {Column.FILE, Column.POSITION}

_NAMES: Final = tuple(each.value for each in Column if each not in _NOT_FROM_BROKERS)

DEFAULT_COLUMNS: Final = names_added_by(None) + names_added_by("includeHeaders")
"""Columns of a record's content and place."""


class Collector:
    """Columns of the records of several partitions, for one record batch after the other."""

    def __init__(self, columns: Sequence[str] = DEFAULT_COLUMNS) -> None:
        """Begin with no rows.

        Raises:
            ConfigError: a name is no column of records from a broker, or is there twice.
        """
        faults = [
            f"columns: no column {name!r}; there are: {', '.join(_NAMES)}"
            for name in columns
            if name not in _NAMES
        ]
        if len(set(columns)) < len(columns):
            faults.append("columns: one is named twice")
        if faults:
            raise ConfigError(faults)
        self._columns = [COLUMN_NAMED[each] for each in columns]
        self._builder = ColumnsBuilder(
            [each for each in self._columns if each.origin is not ColumnOrigin.PLACE]
        )
        self._schema = schema_of(self._columns)
        self._spans: list[tuple[TopicPartition, int]] = []

    @property
    def row_count(self) -> int:
        return self._builder.row_count

    @property
    def has_room(self) -> bool:
        return self._builder.has_room

    def append(self, part: FetchedPart, position: int) -> tuple[int, int] | None:
        """Add the first batches of a part; returns the offset and the leader epoch after them.

        None if the part has no more.

        Raises:
            DamagedRecordsError: the batch is damaged.
        """
        # `poll` may have taken a part of the batch: the rest of it is decoded again, as columns.
        part.source = None
        part.passed(position)
        if not part.pieces:
            return None
        piece = part.pieces[0]
        try:
            count = self._append(piece, position)
        except DECODE_FAULTS as error:
            raise damaged(
                error,
                part.partition,
                place=str(part.partition),
                position=None,
                offset=piece.base_offset,
                next_offset=piece.next_offset,
            ) from error
        # A batch of the run is damaged. Those before it are returned before the error.
        if count is None:
            part.split_first()
            return self.append(part, position)
        # One span for neighbours: topic and partition are then repeated by one call of Arrow.
        if self._spans and self._spans[-1][0] == part.partition:
            count += self._spans.pop()[1]
        self._spans.append((part.partition, count))
        part.pieces.popleft()
        return piece.next_offset, epoch_of(piece)

    def finish(self) -> pa.RecordBatch:
        """The rows with all columns, in their order; begins again with none."""
        decoded = self._builder.finish()
        counts = [rows for _, rows in self._spans]
        arrays = []
        for column in self._columns:
            if column.origin is not ColumnOrigin.PLACE:
                arrays.append(decoded.column(column.value))
                continue
            if column is Column.TOPIC:
                topics = [place.topic for place, _ in self._spans]
                arrays.append(repeated_strings(topics, counts))
            else:
                partitions = [place.partition for place, _ in self._spans]
                arrays.append(repeated_numbers(partitions, counts, ARROW_TYPES[column]))
        self._spans = []
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _append(self, piece: Piece, position: int) -> int | None:
        """Rows of a piece; None if one of its batches is damaged."""
        if isinstance(piece, Batch):
            return self._builder.append(piece, start_offset=position, limit_offset=OFFSET_MAX)
        counts = self._builder.append_run(piece, start_offset=position, limit_offset=OFFSET_MAX)
        return None if counts is None else sum(counts)
