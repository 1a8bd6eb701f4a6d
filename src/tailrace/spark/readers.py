"""What a Spark task does: ranges of offsets in, Arrow record batches out.

Only the columns that were asked for are decoded. Every record batch has exactly the declared
schema, as Spark demands: the names in their order, the plain types below, all nullable.

    key, value      binary        timestamp       timestamp[us, tz=UTC]
    topic           string        timestampType   int32: 0 by the producer, 1 by the broker, -1 none
    partition       int32         headers         list<struct<key: string, value: binary>>
    offset          int64
    codec           string        producerId      int64
    producerEpoch   int32         sequence        int32
    leaderEpoch     int32         isTransactional bool
    file            string        position        int64: bytes from the start of the file

The last eight are metadata; from `codec` on they say what the record's batch says. A broker tells
no file and no position, so both are null there.

Invariant: rows leave in the order of their offsets within a partition, and none comes from a
batch that is damaged or that holds a control record.
"""

import gc
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from tailrace import kernels
from tailrace.errors import CorruptionError, FatalError, UnsupportedCodecError
from tailrace.model import TopicPartition
from tailrace.offline.partition_reader import Skipped
from tailrace.records.columns import ARROW_TYPES, Column, ColumnsBuilder
from tailrace.records.runs import BatchRun
from tailrace.runtime.memory import keep_large_buffers
from tailrace.spark.corruption import report_name, undecodable, write_report
from tailrace.spark.planning import OffsetRange, ScanTask
from tailrace.spark.stores import LocatedBatch, LogStore, split_batches

TOPIC: Final = "topic"
PARTITION: Final = "partition"
FILE: Final = "file"
POSITION: Final = "position"

_OWN: Final = {
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    FILE: pa.string(),
    POSITION: pa.int64(),
}
"""The columns that are not of the records or their batches, but of where they are."""

_DECODED: Final = {column.value: column for column in Column}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of the record batches that `read_task` gives for these columns."""
    return pa.schema(
        [
            pa.field(name, _OWN[name] if name in _OWN else ARROW_TYPES[_DECODED[name]])
            for name in columns
        ]
    )


def read_task(
    task: ScanTask,
    store: LogStore,
    *,
    columns: Sequence[str],
    fails_on_data_loss: bool,
    corruption_report: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a task; closes `store` in the end, also when not all are taken.

    What a store skips because it is damaged is written to the directory `corruption_report`.

    Raises:
        CorruptionError: a batch is damaged; with its file and position.
        FatalError: the log no longer has a range, or cannot be read.
        OSError: the report cannot be written.
    """
    settle_worker()
    if task.is_compiled:
        kernels.load(*kernels.DECODING)
    try:
        for wanted in task.ranges:
            yield from _read_range(
                wanted, store, columns=columns, fails_on_data_loss=fails_on_data_loss
            )
    finally:
        store.close()
        if corruption_report is not None and store.skipped:
            write_report(corruption_report, report_name(task.ranges[0]), store.skipped)


def settle_worker() -> None:
    """Keep large buffers, and take what is loaded out of the garbage collector's sight.

    Spark's worker runs a full collection after every task. It would look at each object of all
    modules again, which takes 25 to 35 ms of CPU and never finds anything.
    """
    _settle(len(sys.modules))


@cache
def _settle(_module_count: int) -> None:
    keep_large_buffers()
    gc.collect()
    gc.freeze()


class _Chunks:
    """Columns of records, with those that say where the records are."""

    def __init__(self, columns: Sequence[str], partition: TopicPartition) -> None:
        self.builder = ColumnsBuilder([_DECODED[name] for name in columns if name in _DECODED])
        self._schema = arrow_schema(columns)
        self._common = {
            TOPIC: pa.scalar(partition.topic, pa.string()),
            PARTITION: pa.scalar(partition.partition, pa.int32()),
        }
        self._repeated: dict[str, pa.Array] = {}
        self._by_batch: dict[str, list[str | int | None]] = {FILE: [], POSITION: []}
        self._counts: list[int] = []

    def append(self, located: LocatedBatch, wanted: OffsetRange) -> None:
        """Adds the records of a batch that are within a range; raises as `ColumnsBuilder` does."""
        batch, path, position = located
        count = self.builder.append(batch, start_offset=wanted.start, limit_offset=wanted.limit)
        self._by_batch[FILE].append(path)
        self._by_batch[POSITION].append(position)
        self._counts.append(count)

    def append_run(
        self, run: BatchRun, wanted: OffsetRange, *, path: str | None, position: int | None
    ) -> bool:
        """Adds the records of a run, or nothing if `append` has to tell what is wrong in it."""
        counts = self.builder.append_run(run, start_offset=wanted.start, limit_offset=wanted.limit)
        if counts is None:
            return False
        self._by_batch[FILE] += [path] * len(counts)
        self._by_batch[POSITION] += [
            None if position is None else position + each for each in run.positions
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
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _repeat(self, name: str, count: int) -> pa.Array:
        """A column with one value, built once for the largest chunk and sliced for others."""
        if len(self._repeated.get(name, ())) < count:
            self._repeated[name] = pa.repeat(self._common[name], count)
        return self._repeated[name].slice(0, count)

    def _spread(self, name: str) -> pa.Array:
        """A column with one value for each batch."""
        values = pa.array(self._by_batch[name], _OWN[name])
        return values.take(pa.array(np.repeat(np.arange(len(values)), self._counts)))


def _read_range(
    wanted: OffsetRange, store: LogStore, *, columns: Sequence[str], fails_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    chunks = _Chunks(columns, wanted.partition)
    for located in store.pieces(wanted, fails_on_data_loss=fails_on_data_loss):
        piece, path, position = located
        is_taken = isinstance(piece, BatchRun) and chunks.append_run(
            piece, wanted, path=path, position=position
        )
        if not is_taken:
            for each in split_batches(located, wanted):
                _append_batch(chunks, each, wanted, skipped=store.skipped)
        if not chunks.builder.has_room:
            yield chunks.finish()
            if kernels.worth_loading(*kernels.DECODING):
                kernels.load(*kernels.DECODING)
    if chunks.builder.row_count:
        yield chunks.finish()


def _append_batch(
    chunks: _Chunks, located: LocatedBatch, wanted: OffsetRange, *, skipped: list[Skipped] | None
) -> None:
    batch, path, position = located
    if batch.is_control:
        return
    try:
        chunks.append(located, wanted)
    except CorruptionError as error:
        found = error.located(path=path or str(wanted.partition), position=position)
        if skipped is None:
            raise found from error
        skipped.append(undecodable(batch, wanted, found))
    except UnsupportedCodecError as error:
        raise FatalError(f"{wanted.partition}, {batch!r}: {error}") from error
