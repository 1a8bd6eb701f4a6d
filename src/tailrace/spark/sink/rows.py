"""The work of a sink's task: rows to the topics of any Kafka broker.

`write_rows` writes each row at least once. Repeated requests and lost answers never double a batch,
since the producer is idempotent; but a task that is run again, because it failed, because its
worker died or by speculation, writes its rows again, and so does a micro-batch that is replayed.

`write_in_transaction` writes them into a transaction that it leaves open, for the driver to commit
or abort (`commits`).

Rows of a task keep their order within a partition of a topic, as far as it is in the producer's
hands: a failed task leaves some of its rows, before those of the next attempt, though in an
aborted transaction where there is one.

Invariant: no Python object is made for a row; a task holds about `WINDOW_SIZE` bytes of rows
besides the producer's `buffer.memory`.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from itertools import chain, islice
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.client.producer import Producer
from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.runtime.memory import keep_large_buffers
from tailrace.spark.digests import Digest
from tailrace.spark.sink.commits import (
    AttemptFencedError,
    OtherRowsError,
    TransactionPlan,
    Transactions,
)
from tailrace.spark.sink.ledger import BatchRecord, Count, Slot, SlotState
from tailrace.spark.sink.options import COLUMNS, SinkOptions
from tailrace.spark.sink.written import TaskAttempt, WrittenRows, task_attempt
from tailrace.values import dataclass

WINDOW_SIZE: Final = 8 * 1024 * 1024
"""Bytes of rows that are sent before their outcomes are waited for: many full batches, so that
waiting for the last of them costs next to nothing."""

REASONS_SHOWN: Final = 5
"""Reasons that an error names; each may be that of very many rows."""


class RowsNotWrittenError(FatalError):
    """Rows of a task that were not written; a retry of the task writes all of its rows again."""

    def __init__(
        self, errors: "Mapping[int, RowError]", *, failed_count: int, sent_count: int
    ) -> None:
        self.errors = errors
        """Why, by the row's number in its task, from 0; of the first ones where there are many."""
        self.failed_count = failed_count
        """Rows that were not written."""
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
        if failed_count > len(errors):
            lines.append(f"these are the reasons of the first {len(errors)}")
        super().__init__(
            f"{failed_count} of {sent_count} rows were not written; a retry of the task writes the "
            "others again:\n  " + "\n  ".join(lines)
        )


class RowError(NamedTuple):
    """Reason why a row was not written."""

    topic: str
    reason: str


def write_rows(batches: Iterable[pa.RecordBatch], options: SinkOptions) -> WrittenRows:
    """Write rows at least once, and wait until they are acknowledged; also outside a Spark task.

    Raises:
        RowsNotWrittenError: some were not.
        FatalError: a row has no topic.
        MetadataTimeoutError, BufferExhaustedError, ...: as for `Producer.send_many`.
    """
    # A window's buffers are allocated again for each window.
    keep_large_buffers()
    counts = _Counts()
    with _producer(options.producer) as producer:
        for window in _windows(batches):
            _send_window(producer, window, options.topic, counts=counts)
    return counts.written(task_attempt())


def write_in_transaction(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    plan: TransactionPlan,
    *,
    attempt: TaskAttempt,
    transactions: Transactions,
    open_producer: Callable[[Mapping[str, str]], Producer] = Producer,
) -> WrittenRows:
    """Write rows into a transaction that stays open; its numbers are in the message.

    Of a batch that was promised in an earlier run, only rows of lost slots are written again, and
    no row is looked at if none was lost. After an error the transaction is aborted.

    Raises:
        AttemptFencedError: the plan is that of a batch that has ended.
        OtherRowsError: the rows are not those of the earlier run, and some of that is committed.
        FatalError: as `write_rows`; or a later batch was committed already.
        RowsNotWrittenError, TransactionAbortableError, ...: the rows were not written.
    """
    keep_large_buffers()
    counts, digest = _Counts(), Digest()
    promised = plan.promised(attempt.batch_id)
    if promised is not None and not promised.lost:
        return counts.written(attempt)
    windows = _digested(_windows(batches), digest)
    known = None if promised is None else promised.slots.get(attempt.partition_id)
    # The rows of committed slots are only compared: lost ones can be written again only if the
    # query gives the same rows as before.
    if promised is not None and (known is None or known.state is SlotState.COMMITTED):
        for window in windows:
            counts.take(window)
        _check_same(known, promised, counts=counts, digest=digest, attempt=attempt)
        return counts.written(attempt)
    offsets = plan.offsets_for(attempt.partition_id, attempt.batch_id)
    # A task without rows opens no transaction, so an empty partition costs no requests.
    first = next(windows, None)
    if first is None and not offsets:
        if promised is not None:
            _check_same(known, promised, counts=counts, digest=digest, attempt=attempt)
        return counts.written(attempt, digest=digest.hexdigest())
    name, ticket = plan.take_id(attempt, transactions)
    producer = open_producer(dict(options.producer) | {"transactional.id": name})
    try:
        producer.begin_transaction()
        # Between the identity and the first row: see the fencing token in `commits`.
        if not plan.is_newest(transactions):
            raise AttemptFencedError(plan.work_id)
        for window in chain([] if first is None else [first], windows):
            _send_window(producer, window, options.topic, counts=counts)
        if promised is not None:
            _check_same(known, promised, counts=counts, digest=digest, attempt=attempt)
        for group, positions in offsets.items():
            producer.send_offsets_to_transaction(positions, group)
        transaction = producer.prepare_transaction()
    finally:
        # An open transaction is aborted by it, a prepared one is not.
        producer.close()
    return counts.written(
        attempt, digest=digest.hexdigest(), transaction=transaction, ticket=ticket
    )


@dataclass(slots=True)
class _Counts:
    """The rows of a task so far."""

    row_count: int = 0
    size: int = 0
    last_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def take(self, window: pa.Table) -> None:
        self.row_count += window.num_rows
        self.size += window.nbytes

    def written(
        self,
        attempt: TaskAttempt,
        *,
        digest: str = "",
        transaction: PreparedTransaction | None = None,
        ticket: Count | None = None,
    ) -> WrittenRows:
        return WrittenRows(
            attempt=attempt,
            row_count=self.row_count,
            size=self.size,
            last_offsets=self.last_offsets,
            digest=digest,
            transaction=transaction,
            ticket=ticket,
        )


def _send_window(
    producer: Producer, window: pa.Table, topic: str | None, *, counts: _Counts
) -> None:
    """Send the rows of a window, and wait until they are acknowledged."""
    errors: dict[int, RowError] = {}
    failed_count = 0
    for name, rows, numbers in _by_topic(window, topic, first_row=counts.row_count):
        summary = producer.send_many(name, rows)
        for partition, (_, last) in summary.offsets.items():
            counts.last_offsets[TopicPartition(name, partition)] = last
        failed_count += summary.error_count
        for index, error in summary.errors.items():
            reason = str(error).removeprefix(f"row {index}: ")
            errors[int(numbers[index])] = RowError(name, reason)
    counts.take(window)
    if errors:
        raise RowsNotWrittenError(errors, failed_count=failed_count, sent_count=counts.row_count)


def _digested(windows: Iterable[pa.Table], digest: Digest) -> Iterator[pa.Table]:
    for window in windows:
        digest.update(window)
        yield window


def _check_same(
    known: Slot | None,
    promised: BatchRecord,
    *,
    counts: _Counts,
    digest: Digest,
    attempt: TaskAttempt,
) -> None:
    """Raise an OtherRowsError if the rows are not those of the batch's first run."""
    if known is None:
        is_same = not counts.row_count
    else:
        is_same = (counts.row_count, digest.hexdigest()) == (known.row_count, known.digest)
    if not is_same:
        raise OtherRowsError(attempt.partition_id, promised)


def _windows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The columns that are written, in tables of about `WINDOW_SIZE` bytes."""
    collected: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        # Spark gives one empty batch for an empty partition.
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
    # Stable: rows of a topic keep their order.
    order = np.argsort(indexes, kind="stable")
    rows = table.drop_columns("topic").combine_chunks()
    # With one topic the rows are as they are, without a copy.
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
        # Other settings are another query's; its producer is not needed before this task has ended.
        _kept.popitem()[1].close()
    producer = producer or Producer(settings)
    try:
        yield producer
    except BaseException:
        # The next attempt writes these rows again: give up those under way, for fewer duplicates.
        producer.close(0)
        raise
    _kept[key] = producer
