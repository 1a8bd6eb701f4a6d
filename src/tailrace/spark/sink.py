"""`df.write.format("tailrace")` and `df.writeStream`: rows to the topics of any Kafka broker.

    df.select("key", "value").write.format("tailrace").mode("append")
        .option("kafka.bootstrap.servers", "localhost:9092").option("topic", "flights").save()

Columns and options are those of Spark's own Kafka sink; see `sink_options`. Spark hands a Python
sink to `mode("append")` only: without a mode, it refuses. A stream is in the output mode append, or
in complete, when the whole result is added to the topic each time, as Spark's sink does it; Spark
runs no Python sink in the mode update.

What is promised, as by Spark's sink: every row is written **at least once**. A task waits until all
of its rows are acknowledged. Repeated requests and lost answers never double a batch, since the
producer is idempotent. But a task that is run again, because it failed, because its worker died
or by speculation, writes its rows again, and so does a micro-batch that is replayed after a
restart. Readers who must not see a row twice can tell by a key or a header of their own.

Rows of a task keep their order within a partition of a topic, as far as it is in the producer's
hands: a failed task leaves some of its rows behind, before those of the next attempt.

Not here: transactions. What exactly-once writing would need travels in `WrittenRows` already: a
micro-batch is replayed with the same query and batch id, and its tasks with the same partition
ids, so a broker of ours could take each (query, batch, partition) once. A batch write has no such
id, and nothing is to be done on the driver in `commit` or `abort` so far.

Invariant: no Python object is made for a row; a task holds about `WINDOW_SIZE` bytes of rows
besides the producer's `buffer.memory`.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tailrace.client.producer import Producer
from tailrace.errors import ConfigError, FatalError
from tailrace.model import TopicPartition
from tailrace.spark.pyspark_versions import DataSourceStreamArrowWriter
from tailrace.spark.readers import settle_worker
from tailrace.spark.sink_options import COLUMNS, SinkOptions, parse_sink

WINDOW_SIZE: Final = 8 * 1024 * 1024
"""Bytes of rows that are sent before their outcomes are waited for: many full batches, so that
waiting for the last of them costs next to nothing."""

REASONS_SHOWN: Final = 5
"""Reasons that an error names; each may be that of very many rows."""


class RowsNotWrittenError(FatalError):
    """Rows of a task that were not written; a retry of the task writes all of its rows again."""

    def __init__(self, errors: "Mapping[int, RowError]", *, sent_count: int) -> None:
        self.errors = errors
        """Why, by the row's number in its task, from 0."""
        self.sent_count = sent_count
        """Rows that were sent by then, with those at fault."""
        rows_of: dict[RowError, list[int]] = {}
        for row, error in sorted(errors.items()):
            rows_of.setdefault(error, []).append(row)
        lines = [
            f"{len(rows)} to {error.topic}, the first is row {rows[0]} of the task: {error.reason}"
            for error, rows in islice(rows_of.items(), REASONS_SHOWN)
        ]
        if len(rows_of) > len(lines):
            lines.append(f"and for {len(rows_of) - len(lines)} more reasons")
        super().__init__(
            f"{len(errors)} of {sent_count} rows were not written; a retry of the task writes the "
            "others again:\n  " + "\n  ".join(lines)
        )


class RowError(NamedTuple):
    """Reason why a row was not written."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    """Identity of a task's work, by which a broker could take the work only once."""

    query_id: str | None = None
    """Id of the streaming query, the same after a restart from its checkpoint; None in a batch."""
    batch_id: int | None = None
    """Number of the micro-batch, the same when it is replayed; None in a batch."""
    partition_id: int = 0
    """Number of the DataFrame's partition."""
    attempt_number: int = 0
    """Number of the attempt, from 0; failed attempts may have written rows too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows(WriterCommitMessage):  # type: ignore[misc]  # PySpark is untyped here
    """Counts of the rows that a task has written."""

    attempt: TaskAttempt
    row_count: int
    size: int
    """Bytes of the rows in Arrow's form, before they were made into records."""
    last_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Last offset in each partition that rows went to; none with acks=0."""


class TailraceWriter(DataSourceArrowWriter):  # type: ignore[misc]  # likewise
    """Writes a DataFrame; Spark sends it to the tasks, so it holds options only."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write the rows of one task and wait until they are acknowledged.

        Raises:
            RowsNotWrittenError: some were not.
            FatalError: a row has no topic.
            MetadataTimeoutError, BufferExhaustedError, ...: as for `Producer.send_many`.
        """
        return write_rows(iterator, self._options)


class TailraceStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # likewise
    """Writes micro-batches; otherwise as `TailraceWriter`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write the rows of one task of a micro-batch; raises as `TailraceWriter.write`."""
        return write_rows(iterator, self._options)


def open_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> TailraceWriter:
    """The writer of a DataFrame; looks at no broker yet.

    Raises:
        ConfigError: the options or the columns have faults, or the mode is overwrite; all faults.
    """
    faults = []
    if overwrite:
        faults.append("mode: records can only be appended to a topic; say mode('append')")
    try:
        parsed = parse_sink(options, schema)
    except ConfigError as error:
        raise ConfigError(faults + error.faults) from None
    if faults:
        raise ConfigError(faults)
    return TailraceWriter(parsed)


def open_stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> TailraceStreamWriter:
    """The writer of a stream; `overwrite` is the output mode complete, whose rows are added too.

    Raises:
        ConfigError: the options or the columns have faults; all of them.
    """
    del overwrite
    return TailraceStreamWriter(parse_sink(options, schema))


def write_rows(batches: Iterable[pa.RecordBatch], options: SinkOptions) -> WrittenRows:
    """Write rows as `TailraceWriter.write` does, inside or outside a Spark task."""
    settle_worker()
    row_count, size = 0, 0
    last_offsets: dict[TopicPartition, int] = {}
    with _producer(options.producer) as producer:
        for window in _windows(batches):
            errors: dict[int, RowError] = {}
            for topic, rows, numbers in _by_topic(window, options.topic, first_row=row_count):
                summary = producer.send_many(topic, rows)
                for partition, (_, last) in summary.offsets.items():
                    last_offsets[TopicPartition(topic, partition)] = last
                for index, error in summary.errors.items():
                    reason = str(error).removeprefix(f"row {index}: ")
                    errors[int(numbers[index])] = RowError(topic, reason)
            row_count += window.num_rows
            size += window.nbytes
            if errors:
                raise RowsNotWrittenError(errors, sent_count=row_count)
    return WrittenRows(
        attempt=_attempt(), row_count=row_count, size=size, last_offsets=last_offsets
    )


def _windows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The columns that are written, in tables of about `WINDOW_SIZE` bytes."""
    collected: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        collected.append(batch.select([name for name in batch.schema.names if name in COLUMNS]))
        size += batch.nbytes
        if size >= WINDOW_SIZE:
            yield pa.Table.from_batches(collected)
            collected, size = [], 0
    if collected:
        yield pa.Table.from_batches(collected)


def _by_topic(
    table: pa.Table, topic: str | None, *, first_row: int
) -> "Iterator[tuple[str, pa.Table, np.ndarray]]":
    """Each topic, its rows in their order, and their numbers in the task."""
    numbers = np.arange(first_row, first_row + table.num_rows)
    if topic is not None:
        yield (
            topic,
            table.drop_columns("topic") if "topic" in table.column_names else table,
            numbers,
        )
        return
    topics = table["topic"].combine_chunks()
    if topics.null_count:
        row = first_row + pc.index(pc.is_null(topics), value=True).as_py()
        raise FatalError(
            f"[KAFKA_NULL_TOPIC_IN_DATA] row {row} of the task has null as its topic. Use the "
            "topic option for setting a topic, or filter such rows out"
        )
    encoded = topics.dictionary_encode()
    indexes = encoded.indices.to_numpy()
    order = np.argsort(indexes, kind="stable")
    rows = table.drop_columns("topic").combine_chunks()
    if len(encoded.dictionary) > 1:
        rows = rows.take(order)
    start = 0
    for name, count in zip(encoded.dictionary.to_pylist(), np.bincount(indexes), strict=True):
        yield name, rows.slice(start, count), numbers[order[start : start + count]]
        start += count


_kept: dict[frozenset[tuple[str, str]], Producer] = {}
"""The producer of the last task, if that went well, by its settings.

To make one takes as many round trips as to write, more with TLS and SASL, and a broker remembers
each that there was for a day. A worker of Spark runs one task at a time, so one is enough; it dies
with the process, when everything that it was given has its outcome.
"""

os.register_at_fork(after_in_child=_kept.clear)


@contextmanager
def _producer(settings: Mapping[str, str]) -> Iterator[Producer]:
    """A producer with these settings; kept for the next task unless the block fails."""
    key = frozenset(settings.items())
    producer = _kept.pop(key, None)
    while _kept:
        _kept.popitem()[1].close()
    producer = producer or Producer(settings)
    try:
        yield producer
    except BaseException:
        # The next attempt writes these rows again: give up those under way, for fewer duplicates.
        producer.close(0)
        raise
    _kept[key] = producer


def _attempt() -> TaskAttempt:
    context = TaskContext.get()
    if context is None:
        return TaskAttempt()
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return TaskAttempt(
        query_id=context.getLocalProperty("sql.streaming.queryId"),
        batch_id=None if batch_id is None else int(batch_id),
        partition_id=context.partitionId(),
        attempt_number=context.attemptNumber(),
    )
