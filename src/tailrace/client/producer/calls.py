"""`ProducerCalls`: what both producers have besides `send` and transactions.

Calls that wait are written once, as generators, for threads and event loops (`client.drive`). A
record that no open batch takes goes through `_send`, which may have to wait: the first record of
each batch, and all with serializers, interceptors or a partitioner of the user.
"""

import logging
import warnings
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, cast

from tailrace.client.cluster_metadata import PartitionInfo
from tailrace.client.cluster_requests import Listing
from tailrace.client.drive.operation import operation
from tailrace.client.drive.steps import CallUser, LetOthersRun, Steps, T, Until
from tailrace.client.interval_call import figures_call
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.errors import (
    ClosedProducerError,
    MetadataTimeoutError,
    TransactionAbortedError,
    UnknownTopicError,
)
from tailrace.client.producer.identity import OwnedIdentity, adopt_identity
from tailrace.client.producer.intake.records import check_callback, plain_record, plain_topic
from tailrace.client.producer.metrics import OnMetrics, ProducerStatistics
from tailrace.client.producer.outcome import BatchOutcome, DeliveryCallback, DeliveryOutcome
from tailrace.client.producer.plugins import ProducerRecord
from tailrace.client.producer.producer_batch import ProducerBatch, check_batch
from tailrace.client.producer.queue.batches import FilledRecords
from tailrace.client.producer.queue.open_batches import SendCall
from tailrace.client.producer.receipts import Receipt, receipt_of
from tailrace.client.producer.results import BatchReceipt, SendSummary
from tailrace.client.producer.waits import last_failure, memory_granted, topic_known
from tailrace.runtime.extras import check_extra

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailrace.client.drive.loop import LoopDriver
    from tailrace.client.drive.thread import ThreadDriver
    from tailrace.client.producer.intake.columns import RefusedRow
    from tailrace.client.producer.intake.slices import ColumnSlice
    from tailrace.client.producer.queue.open_batches import HeadersLike
    from tailrace.client.producer.queued_records import RecordQueues


log = logging.getLogger(__name__)


class ProducerCalls(SendCall):
    """Base class of `Producer` and `AsyncProducer`, with all calls but those of transactions."""

    _engine: Engine
    _driver: "ThreadDriver | LoopDriver"
    _queued: "RecordQueues | None" = None
    """Records of an `AsyncProducer` that cannot get into a batch yet."""
    _is_closing = False
    """`close` was called: no new records are taken, but queued ones still go into batches."""

    def _attach(
        self, engine: Engine, identity: OwnedIdentity | None, on_metrics: OnMetrics | None
    ) -> None:
        """Set the engine, which the driver may start then."""
        adopt_identity(engine.transactions, identity)
        self._engine = engine
        self._send_into(engine.open_batches)
        if on_metrics is not None:
            call = figures_call(
                engine, on_metrics, metrics=self.metrics, statistics=self.statistics
            )
            engine.sender.metrics_call.begin(call, self._driver.clock())

    def _send_slowly(
        self,
        topic: str,
        value: object,
        key: object,
        *,
        headers: "HeadersLike | None",
        timestamp: int | None,
        partition: int | None,
        on_delivery: DeliveryCallback | None,
        receipt: bool,
    ) -> Receipt | None:
        check_callback(on_delivery)
        # These may still have wrong types; `plain_record` checks them.
        named = () if headers is None else cast("Any", headers)
        given = ProducerRecord(topic, value, key, named, timestamp, partition)
        record = plain_record(given, self._engine.plugins)
        outcome, index = self._send(record, on_delivery)
        if receipt:
            return receipt_of(outcome, index)
        if outcome.is_done and outcome.failure is not None:
            log.warning("record_failed topic=%s reason=%s", record.topic, outcome.failure)
        outcome.is_forgotten = True
        return None

    def create_batch(self, topic: str) -> ProducerBatch:
        """An empty batch, which the program fills with `append` and sends with `send_batch`.

        Raises:
            TypeError, InvalidTopicError: `topic` is no name of a topic.
        """
        topic = plain_topic(topic)
        self._engine.preparation.check_name(topic)
        return ProducerBatch(self._engine, topic)

    def metrics(self) -> dict[str, float]:
        """Counts and gauges by Kafka's metric names; those of a topic as `NAME{topic=T}`."""
        with self._engine.lock:
            return self._engine.metrics.snapshot(
                buffer_total_bytes=self._engine.pool.total,
                buffer_available_bytes=self._engine.pool.available,
                waiting_threads=self._engine.pool.waiting,
                batches_in_flight=len(self._engine.sender.in_flight),
            )

    def statistics(self) -> ProducerStatistics:
        """Numbers of the producer at this moment; `metrics` has its totals since it was made."""
        with self._engine.lock:
            pool = self._engine.pool
            return ProducerStatistics(
                record_count=self.held(),
                batches_in_flight=len(self._engine.sender.in_flight),
                buffer_total_bytes=pool.total,
                buffer_available_bytes=pool.available,
                waiting_count=pool.waiting,
                nodes=self._engine.nodes.statistics(),
            )

    @operation
    def send_many(
        self, topic: str, rows: object, *, progress: Callable[[int], object] | None = None
    ) -> Steps[SendSummary]:
        """Send many rows and wait until each has its outcome.

        `rows` is a pyarrow Table, RecordBatch or reader, a data frame that offers Arrow, a mapping
        of columns, or an iterable of values, of (key, value) pairs or of named tuples;
        `tailrace.client.producer.intake.columns` lists the columns. Rows of a partition keep their
        order. Each batch is encoded by one kernel call, without a Python object per row, unless
        interceptors, serializers or a custom partitioner are to be called for each. `progress` is
        called with the number of rows that have got their outcome since the last call. In a
        transaction, a row that cannot be sent fails the transaction, as in `send`.

        Returns a summary of the outcomes; a row that cannot be sent does not affect the others.
        Every exception, also of `rows` or `progress`, has the summary until then as its attribute
        `summary`: rows that were acknowledged, that are still being sent, and that were not sent.

        Raises:
            MissingExtraError: the extra `arrow` is not installed.
            TypeError, ValueError: `rows` or its columns cannot be made into records.
            MetadataTimeoutError, UnknownTopicError, ...: the topic's metadata is not available.
            BufferExhaustedError: `buffer.memory` stayed full for `max.block.ms`; rows that were
                taken before are still sent.
        """
        check_extra("arrow", "send_many()", packages=("numpy",))
        from tailrace.client.producer.rows import plan_rows, rows_of

        engine = self._engine
        topic = plain_topic(topic)
        engine.preparation.check_name(topic)
        summary = SendSummary(topic, progress)
        with summary.accounting():
            chunks = rows_of(engine, topic, rows)
            while True:
                self._check_open()
                # Rows, serializers and partitioners may be code of the user.
                chunk = yield CallUser(next, (chunks, None))
                if chunk is None:
                    break
                self._check_open()  # The caller's code may have closed the producer.
                yield from topic_known(engine, ProducerRecord(topic), self._max_block())
                summary.row_count += chunk.row_count
                plan = yield CallUser(plan_rows, (engine, topic, chunk))
                yield CallUser(self._refuse_rows, (summary, plan.refused))
                for columns in plan.slices:
                    # Records of `send` that still wait for a batch come first.
                    yield from self._queue_served(topic)
                    outcome = yield from self._append_slice(topic, columns, self._max_block())
                    summary.add(outcome, columns)
                    self._driver.move()
                    summary.settle()
                    yield CallUser(summary.report, ())
                # A fast broker would never let this task wait, nor others of its loop run.
                yield LetOthersRun()
            while not summary.is_over:
                yield Until(summary.has_news, inf)
                yield CallUser(summary.report, ())
        return summary

    @operation
    def send_batch(self, batch: ProducerBatch, *, partition: int) -> Steps[BatchReceipt]:
        """Queue a batch of `create_batch` to be sent whole, and return a receipt for it.

        It is written, retried and counted as the batches of `send`: at once or not at all, once
        and in order, and as a part of the open transaction. Waits for the topic's metadata and for
        memory, `max.block.ms` at most. After an error nothing was sent, and the same batch may be
        sent again.

        Raises:
            TypeError, ValueError: an argument is wrong, the batch has no records, or another
                producer has made it.
            ClosedBatchError: the batch was sent before.
            MetadataTimeoutError, UnknownTopicError, ...: the partition is not known.
            BufferExhaustedError: `buffer.memory` stayed full for `max.block.ms`.
            TransactionStateError: no transaction is open, and there is a `transactional.id`.
        """
        check_batch(batch)
        self._check_open()
        engine, deadline = self._engine, self._max_block()
        with batch.sending(engine, partition) as columns:
            record = ProducerRecord(batch.topic, partition=columns.partition)
            yield from topic_known(engine, record, deadline)
            yield from self._queue_served(batch.topic)
            outcome = yield from self._append_slice(batch.topic, columns, deadline)
        self._driver.move()
        return BatchReceipt(outcome, columns.record_count)

    @operation
    def send_slice(self, topic: str, rows: "ColumnSlice") -> Steps[BatchOutcome]:
        """Queue rows that `plan_chunk` has made one batch of, and return its outcome.

        For callers who cut the batches, and know from an `identity` which numbers their records
        get. Serializers and the partitioner are not called. A broker that refuses a batch because
        of its size gets it in parts, which the outcome then has. After `flush()`, it is done.

        Raises:
            TransactionStateError: with an `identity`, a batch before it has failed.
            MetadataTimeoutError, InvalidTopicError, ...: the topic's metadata is not available.
            BufferExhaustedError: `buffer.memory` stayed full for `max.block.ms`.
        """
        self._check_open()
        engine, deadline = self._engine, self._max_block()
        if engine.metadata.partition_count(topic) is None:
            yield from topic_known(engine, ProducerRecord(topic), deadline)
        yield from self._queue_served(topic)
        outcome = yield from self._append_slice(topic, rows, deadline)
        self._driver.move()
        return outcome

    @operation
    def partitions_for(self, topic: str) -> Steps[list[PartitionInfo]]:
        """The partitions of a topic, with leader and replicas, as a broker knows them now.

        Waits `max.block.ms` at most. A broker may create the topic, as for a record.

        Raises:
            UnknownTopicError: the topic was deleted meanwhile.
            MetadataTimeoutError: it did not become known in time.
            InvalidTopicError, AuthorizationError: the topic cannot be used.
        """
        topic = plain_topic(topic)
        self._engine.preparation.check_name(topic)
        self._check_open()
        deadline = self._max_block()
        yield from topic_known(self._engine, ProducerRecord(topic), deadline)
        found = (yield from self._listed([topic], deadline)).get(topic)
        if found is None:
            raise UnknownTopicError(f"{topic}: no broker knows it any more; was the topic deleted?")
        return list(found)

    @operation
    def list_topics(self, timeout: float | None = None) -> Steps[Listing]:
        """All topics that the user may see, with their partitions, by name.

        Waits `timeout` seconds at most; None means `max.block.ms`.

        Raises:
            MetadataTimeoutError: no broker has answered in time.
            AuthenticationError: no broker takes the login.
        """
        self._check_open()
        deadline = self._max_block() if timeout is None else self._deadline(timeout)
        return (yield from self._listed(None, deadline))

    @operation
    def flush(self, timeout: float | None = None) -> Steps[None]:
        """Send all that waits, and wait until everything sent before has its outcome.

        The callbacks of those records have run then, except for a flush in a callback.

        Raises:
            TimeoutError: that took longer than `timeout` seconds; the records are still sent.
            ReentrantCallError: called by a signal handler that has interrupted another call.
        """
        engine, driver, deadline = self._engine, self._driver, self._deadline(timeout)
        if self._queued is not None:
            is_served = self._queued.served()
            if not (yield Until(is_served, deadline)) and not driver.is_over:
                raise TimeoutError(f"not everything got into a batch within {timeout} s")
        with engine.flushing() as is_over:
            if not (yield Until(is_over, deadline)):
                # The records stay; only this call ends.
                raise TimeoutError(f"not everything was acknowledged within {timeout} s")
            # As with Kafka's flush: programs count in callbacks, and read the counts after it.
            are_made = driver.calls_made()
            if not (yield Until(are_made, deadline)) and not driver.is_over:
                raise TimeoutError(
                    f"all records have their outcome, and a callback runs for over {timeout} s"
                )

    # -- steps --------------------------------------------------------------------------------

    def _close_steps(self, timeout: float | None) -> Steps[None]:
        """Send what waits, wait for its outcome, and stop the driver."""
        engine, driver, queued = self._engine, self._driver, self._queued
        deadline = self._deadline(timeout)
        # Each caller waits until its own deadline and then stops the driver. So it need not rely on
        # another one, which may be interrupted or have a later deadline.
        if driver.is_over:
            return
        try:
            is_first, self._is_closing = not self._is_closing, True
            # Queued records still get into batches, new ones do not.
            engine.open_batches.halt()
            if is_first and timeout != 0 and engine.abort_open():
                self._end_queued(TransactionAbortedError("not sent: the producer was closed"))
            if queued is not None:
                yield Until(queued.served(), deadline)
            engine.begin_close()
            yield Until(lambda: not engine.accumulator.incomplete, deadline)
            end_by = min(deadline, self._max_block())
            yield Until(engine.is_settled, end_by)
            # The commit waits for the last batch, and may have failed only with that one.
            if timeout != 0 and engine.abort_open():
                yield Until(engine.is_settled, end_by)
        finally:
            engine.begin_close()
            self._end_queued(ClosedProducerError("the producer was closed"))
            driver.stop()

    def _queue_served(self, topic: str) -> Steps[None]:
        """Wait until records of this topic that were sent before are in batches."""
        if self._queued is not None:
            yield Until(self._queued.served(topic), inf)

    def _append_slice(
        self, topic: str, columns: "ColumnSlice | FilledRecords", deadline: float
    ) -> Steps[BatchOutcome]:
        """Queue a whole batch, and wait for its memory before."""
        engine = self._engine
        self._check_open()
        append = partial(engine.append_slice, topic, columns)
        outcome = self._appended(partial(append, now=engine.monotonic()))
        if outcome is None:
            size = engine.accumulator.supply.memory_for_slice(columns)
            granted = yield from memory_granted(engine, size, deadline)
            with engine.pool.returning(granted):
                outcome = self._appended(partial(append, now=engine.monotonic(), granted=granted))
        assert outcome is not None, "memory was granted for this batch"
        interceptors = engine.interceptors
        if isinstance(columns, FilledRecords):
            outcome.timestamps = columns.timestamps
        elif interceptors:
            # Else nobody asks: a summary has offsets alone, and a list costs memory for each row.
            outcome.timestamps = columns.timestamps().tolist()
        if interceptors:
            for index in range(columns.record_count):
                outcome.add_callback(index, interceptors.on_acknowledgement)
        return outcome

    def _listed(self, topics: list[str] | None, deadline: float) -> Steps[Listing]:
        pending = self._engine.sender.cluster.listings.ask(topics)
        try:
            yield Until(lambda: pending.is_done, deadline)
        finally:
            pending.is_abandoned = True
        if not pending.is_done:
            self._engine.check_open()
            reason = last_failure(self._engine) or pending.reason
            raise MetadataTimeoutError(
                f"no list of topics has come in time: {reason}; check bootstrap.servers, or wait "
                "for longer"
            )
        return pending.result()

    def _end_queued(self, error: Exception) -> None:
        if self._queued is not None:
            self._queued.end(error)

    # -- helpers ------------------------------------------------------------------------------

    def _check_open(self) -> None:
        """Raise ClosedProducerError once `close` was called, or the producer has ended."""
        self._engine.check_open()
        if self._is_closing:
            raise ClosedProducerError("the producer is closed")

    def _deadline(self, timeout: float | None) -> float:
        return inf if timeout is None else self._driver.clock() + timeout

    def _max_block(self) -> float:
        return self._driver.clock() + self._engine.config.max_block_ms / 1000

    def _appended(self, append: Callable[[], T]) -> T:
        """The result of `Engine.append`; Ctrl-C in it ends the producer, its state is unknown."""
        # An exception of ours is raised before anything changes.
        try:
            return append()
        except Exception:
            raise
        except BaseException as error:
            self._driver.give_up(error)
            raise

    def _send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> tuple[DeliveryOutcome, int]:
        """Send a record on the slow path; returns its outcome and its index in that."""
        raise NotImplementedError

    def _add_callbacks(
        self,
        outcome: DeliveryOutcome,
        index: int,
        on_delivery: DeliveryCallback | None,
    ) -> None:
        """Add the interceptors and the callback to the outcome of a record; under the lock."""
        interceptors = self._engine.interceptors
        if interceptors:
            outcome.add_callback(index, interceptors.on_acknowledgement)
        if on_delivery is not None:
            outcome.add_callback(index, on_delivery)

    def _refuse_rows(self, summary: SendSummary, rows: "Sequence[RefusedRow]") -> None:
        """Note rows that cannot be sent; an open transaction has failed then, as by `send`."""
        # Errors of rows are of few kinds; each becomes a copy that names its row.
        for row, error in rows:
            named = type(error)(f"row {row}: {error}")
            named.__cause__ = error.__cause__
            summary.add_error(row, named)
            self._engine.refuse(ProducerRecord(summary.topic), named)

    def held(self) -> int:
        """The number of records that are not acknowledged yet."""
        return sum(each.record_count for each in list(self._engine.accumulator.incomplete.values()))

    def __del__(self) -> None:
        # It may be called on any thread and at any moment, also for one whose `__init__` failed. So
        # it only leaves a note for the driver, which sends what is there.
        engine = getattr(self, "_engine", None)
        if engine is None or engine.closed_error is not None:
            return
        held = self.held()
        self._driver.abandon()
        if held:
            warnings.warn(
                f"a producer was garbage collected with {held} records that are not acknowledged; "
                "close it, or use it in a `with` block",
                ResourceWarning,
                stacklevel=2,
            )
