"""What a Spark task does: ranges of offsets in, Arrow record batches out.

Only the columns that were asked for are decoded. Every record batch has exactly the declared
schema, as Spark demands: the names in their order, the plain types below, all nullable.

    key, value      binary        timestamp       timestamp[us, tz=UTC]
    topic           string        timestampType   int32: 0 by the producer, 1 by the broker, -1 none
    partition       int32         headers         list<struct<key: string, value: binary>>
    offset          int64

Invariant: rows leave in the order of their offsets within a partition, and none comes from a
batch that is damaged or that holds a control record.
"""

import gc
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

import pyarrow as pa

from tailrace import kernels
from tailrace.errors import CorruptionError, FatalError, UnsupportedCodecError
from tailrace.model import TopicPartition
from tailrace.records.columns import ARROW_TYPES, Column, ColumnsBuilder
from tailrace.spark.places import Place
from tailrace.spark.planning import OffsetRange, ScanTask

TOPIC: Final = "topic"
PARTITION: Final = "partition"

_DECODED: Final = {column.value: column for column in Column}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of the record batches that `read_task` gives for these columns."""
    own = {TOPIC: pa.string(), PARTITION: pa.int32()}
    return pa.schema(
        [
            pa.field(name, own[name] if name in own else ARROW_TYPES[_DECODED[name]])
            for name in columns
        ]
    )


def read_task(
    task: ScanTask, place: Place, *, columns: Sequence[str], fails_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of a task; closes `place` in the end, also when not all are taken.

    Raises:
        CorruptionError: a batch is damaged; with its place.
        FatalError: the log no longer has a range, or cannot be read.
    """
    settle_worker()
    if task.is_compiled:
        kernels.load()
    try:
        for wanted in task.ranges:
            yield from _read_range(
                wanted, place, columns=columns, fails_on_data_loss=fails_on_data_loss
            )
    finally:
        place.close()


@cache
def settle_worker() -> None:
    """Take what is loaded by now out of the garbage collector's sight, once per process.

    Spark's worker runs a full collection after every task. It would look at each object of
    PyArrow and PySpark again, which takes 25 ms of CPU and never finds anything.
    """
    gc.collect()
    gc.freeze()


class _Chunks:
    """Columns of records with the topic and partition that they have in common."""

    def __init__(self, columns: Sequence[str], partition: TopicPartition) -> None:
        self.builder = ColumnsBuilder([_DECODED[name] for name in columns if name in _DECODED])
        self._schema = arrow_schema(columns)
        self._common = {
            TOPIC: pa.scalar(partition.topic, pa.string()),
            PARTITION: pa.scalar(partition.partition, pa.int32()),
        }
        self._repeated: dict[str, pa.Array] = {}

    def finish(self) -> pa.RecordBatch:
        """The rows collected so far, with all columns."""
        rows = self.builder.row_count
        decoded = self.builder.finish()
        arrays = [
            self._repeat(name, rows) if name in self._common else decoded.column(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _repeat(self, name: str, count: int) -> pa.Array:
        """A column with one value, built once for the largest chunk and sliced for others."""
        if len(self._repeated.get(name, ())) < count:
            self._repeated[name] = pa.repeat(self._common[name], count)
        return self._repeated[name].slice(0, count)


def _read_range(
    wanted: OffsetRange, place: Place, *, columns: Sequence[str], fails_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    chunks = _Chunks(columns, wanted.partition)
    builder = chunks.builder
    for batch in place.batches(wanted, fails_on_data_loss=fails_on_data_loss):
        if batch.is_control:
            continue
        try:
            builder.append(batch, start_offset=wanted.start, limit_offset=wanted.limit)
        except CorruptionError as error:
            raise place.located(error, batch, wanted.partition) from error
        except UnsupportedCodecError as error:
            raise FatalError(f"{wanted.partition}, {batch!r}: {error}") from error
        if not builder.has_room:
            yield chunks.finish()
            if kernels.worth_loading():
                kernels.load()
    if builder.row_count:
        yield chunks.finish()
