"""`ParquetRows`: chosen records as the rows of one Parquet file, a row group at a time.

The columns are those of the archive (docs/formats/archive.md), and the topic; all may be null.

Needs PyArrow.
"""

from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.model import TopicPartition
from tailrace.offline.cat import Choice
from tailrace.offline.whole_file import Output
from tailrace.records.batch import Batch
from tailrace.records.columns import ARROW_TYPES, ColumnsBuilder
from tailrace.records.schema import Column, ColumnOrigin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailrace.schemas.columns import ColumnDecoder

_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")

_COLUMNS: Final = (
    Column.TOPIC,
    Column.PARTITION,
    Column.OFFSET,
    Column.TIMESTAMP,
    Column.TIMESTAMP_TYPE,
    Column.KEY,
    Column.VALUE,
    Column.HEADERS,
)

SCHEMA: Final = pa.schema(
    [
        (each.value, _MILLISECONDS if each is Column.TIMESTAMP else ARROW_TYPES[each])
        for each in _COLUMNS
    ]
)

_DECODED: Final = tuple(each for each in _COLUMNS if each.origin is not ColumnOrigin.PLACE)


def _with_types(typed: "Mapping[str, ColumnDecoder]") -> pa.Schema:
    """The schema of a file with some columns decoded, and one more for the errors of each."""
    schema = SCHEMA
    for name, decoder in typed.items():
        schema = schema.set(schema.get_field_index(name), pa.field(name, decoder.type))
        schema = schema.append(pa.field(f"{name}Error", pa.string()))
    return schema


class ParquetRows:
    """Collects batches and writes them as row groups; to be used in a `with` statement."""

    def __init__(
        self, output: Output, choice: Choice, typed: "Mapping[str, ColumnDecoder] | None" = None
    ) -> None:
        """`typed` decodes the columns `key` and `value`, or one of them."""
        self.count = 0
        """Rows written."""
        self.fault_count = 0
        """Keys and values that could not be decoded."""
        self.is_late = False
        """Whether a record of this partition was as young as `choice.to_time_ms`."""
        self._choice = choice
        self._builder = ColumnsBuilder(_DECODED)
        self._partition: TopicPartition | None = None
        self._typed = dict(typed or {})
        self._schema = _with_types(self._typed)
        self._writer = pq.ParquetWriter(output, self._schema, compression="zstd")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error the file is thrown away; rows of a half-read partition must not be written.
        if kind is None:
            self._flush()
        self._writer.close()

    def begin(self, partition: TopicPartition) -> None:
        # The columns of topic and partition are repeated values, so a row group has one partition.
        self._flush()
        self._partition = partition
        self.is_late = False

    def add(self, batch: Batch, *, start_offset: int, limit_offset: int) -> None:
        """Adds the records of a range of offsets; the batch's checksum is right.

        Raises:
            CorruptionError: the records break a rule of the format; none is added.
            UnsupportedCodecError: the attributes have codec 5, 6 or 7.
        """
        self._builder.append(batch, start_offset=start_offset, limit_offset=limit_offset)
        if not self._builder.has_room:
            self._flush()

    def _flush(self) -> None:
        rows = self._builder.row_count
        if not rows or self._partition is None:
            return
        decoded = self._chosen(self._builder.finish())
        if not decoded.num_rows:
            return
        topic, number = self._partition
        columns = {
            "topic": pa.repeat(pa.scalar(topic, pa.string()), decoded.num_rows),
            "partition": pa.repeat(pa.scalar(number, pa.int32()), decoded.num_rows),
            **{column.value: decoded.column(column.value) for column in _DECODED},
        }
        columns["timestamp"] = columns["timestamp"].cast(_MILLISECONDS)
        for name, decoder in self._typed.items():
            columns[name], bad = decoder.decode(columns[name])
            reasons = dict(bad)
            columns[f"{name}Error"] = pa.array(
                [reasons.get(row) for row in range(decoded.num_rows)], pa.string()
            )
            self.fault_count += len(bad)
        self._writer.write_batch(
            pa.RecordBatch.from_arrays(
                [columns[name] for name in self._schema.names], schema=self._schema
            )
        )
        self.count += decoded.num_rows

    def _chosen(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows within the bounds of time."""
        earliest, latest = self._choice.from_time_ms, self._choice.to_time_ms
        if latest is not None:
            timestamps = rows.column("timestamp").cast(_MILLISECONDS).cast(pa.int64())
            # The first row that is too late ends the partition, as `log cat` does; later ones may
            # be older.
            at = pc.index(pc.greater_equal(timestamps, latest), value=True).as_py()
            if self.is_late:
                return rows.slice(0, 0)
            if at >= 0:
                self.is_late = True
                rows = rows.slice(0, at)
        if earliest is not None:
            timestamps = rows.column("timestamp").cast(_MILLISECONDS).cast(pa.int64())
            rows = rows.filter(pc.greater_equal(timestamps, earliest))
        return rows
