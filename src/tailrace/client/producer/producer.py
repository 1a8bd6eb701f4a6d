"""`Producer`: sends records from ordinary threads.

with Producer(bootstrap_servers="localhost:9092") as producer:
    receipt = producer.send("flights", b"JFK")
    print(receipt.result().offset)
"""

import atexit
import logging
import os
import random
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Self

from tailrace.client.interval_call import check_on_metrics, figures_call
from tailrace.client.listings import Listing, PartitionInfo
from tailrace.client.producer.base_producer import BaseProducer
from tailrace.client.producer.batch_receipt import BatchReceipt
from tailrace.client.producer.config import parse_producer_config
from tailrace.client.producer.delivery.metrics import OnMetrics
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.errors import (
    BufferExhaustedError,
    ClosedProducerError,
    ReentrantCallError,
)
from tailrace.client.producer.hooks import BatchHook
from tailrace.client.producer.identity import OwnedIdentity, adopt_identity
from tailrace.client.producer.intake.arguments import plain_topic
from tailrace.client.producer.intake.interceptors import ProducerInterceptor
from tailrace.client.producer.intake.plugins import Plugins
from tailrace.client.producer.intake.record import Prepared, ProducerRecord
from tailrace.client.producer.intake.serializers import Serializer
from tailrace.client.producer.many import SendSummary
from tailrace.client.producer.outcome import BatchOutcome, DeliveryCallback, DeliveryOutcome
from tailrace.client.producer.partitioners import Partitioner
from tailrace.client.producer.producer_batch import ProducerBatch, check_batch
from tailrace.client.producer.waiting.driver import ThreadDriver, check_not_interrupted
from tailrace.client.producer.waiting.explanations import why_no_memory
from tailrace.client.producer.waiting.topic_wait import TopicWait, listed_in, partitions_in
from tailrace.client.producer.waiting.transacting import ThreadTransactions
from tailrace.client.producer.waiting.transaction_calls import ThreadTransactionCalls
from tailrace.errors import TailraceError
from tailrace.runtime.extras import check_extra
from tailrace.runtime.polling import PollingNetwork

if TYPE_CHECKING:
    from tailrace.client.producer.intake.slices import ColumnSlice
    from tailrace.client.producer.queue.sealed_batch import FilledRecords

log = logging.getLogger(__name__)


class Producer(BaseProducer, ThreadTransactionCalls):
    """Sends records to a Kafka cluster, from any number of threads.

    With the default settings, each record is written exactly once and in order. `send` returns at
    once, except while the buffer is full or the topic's metadata is missing: then it waits, for
    `max.block.ms` at most. The producer need not be polled.

    Settings have Kafka's names, dotted in a mapping or with underscores as keyword arguments; see
    docs/configuration.md. With an `identity` the producer asks for none, and numbers records as its
    owner says; see docs/producer.md. `on_metrics(metrics, statistics)` is called every
    `statistics.interval.ms` with what the methods of these names return, by the thread that calls
    `on_delivery` (with `AsyncProducer` by the event loop), and not once `close` was called.

    Raises:
        ConfigError: unknown or contradictory settings, all of them at once.
        TypeError: `settings` is no mapping of names to values.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | str | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        hooks: Sequence[BatchHook] = (),
        identity: OwnedIdentity | None = None,
        on_metrics: OnMetrics | None = None,
        **more_settings: object,
    ) -> None:
        if isinstance(partitioner, str):
            more_settings["partitioner"] = partitioner
            partitioner = None
        check_on_metrics(on_metrics)
        config = parse_producer_config(settings, more_settings)
        network = PollingNetwork.open()
        self._driver = ThreadDriver(network)
        try:
            engine = Engine(
                config,
                Plugins(
                    key_serializer=key_serializer,
                    value_serializer=value_serializer,
                    partitioner=partitioner,
                    interceptors=interceptors,
                    hooks=hooks,
                ),
                network=network,
                now_ns=time.time_ns,
                monotonic=time.monotonic,
                chance=random.Random(os.urandom(16)),  # noqa: S311 - spreads load and pauses
                waiting=self._driver,
                stirred=_nothing,
            )
            adopt_identity(engine.transactions, identity)
            self._transactions = ThreadTransactions(engine, self._driver)
            self._settle(engine)
            if on_metrics is not None:
                call = figures_call(
                    engine, on_metrics, metrics=self.metrics, statistics=self.statistics
                )
                engine.sender.metrics_call.begin(call, time.monotonic())
            self._driver.start(engine)
        except BaseException:
            network.close()
            raise
        _living.add(self)

    def send_many(
        self, topic: str, rows: object, *, progress: Callable[[int], object] | None = None
    ) -> SendSummary:
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
        from tailrace.client.producer.row_plans import plan_rows, rows_of

        engine, driver = self._engine, self._driver
        driver.check_wait()
        topic = plain_topic(topic)
        engine.preparation.check_name(topic)
        summary = SendSummary(topic, progress)
        with summary.accounting():
            for chunk in rows_of(engine, topic, rows):
                deadline = _max_block(engine)
                with engine.lock:
                    engine.check_open()
                    self._wait_for_topic(ProducerRecord(topic), deadline)
                summary.row_count += chunk.row_count
                plan = plan_rows(engine, topic, chunk)
                self._refuse_rows(summary, plan.refused)
                for columns in plan.slices:
                    with engine.lock:
                        outcome = self._place_slice(topic, columns, _max_block(engine))
                        self._rows_placed(outcome, columns)
                        summary.add(outcome, columns)
                        driver.move()
                        summary.settle()
                    summary.tell()
            while not summary.is_over:
                with engine.lock:
                    driver.until(summary.has_news, inf)
                summary.tell()
        return summary

    def send_batch(self, batch: ProducerBatch, *, partition: int) -> BatchReceipt:
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
        engine, driver = self._engine, self._driver
        check_batch(batch)
        driver.check_wait()
        deadline = _max_block(engine)
        with engine.lock:
            engine.check_open()
            with batch.sending(engine, partition) as columns:
                self._wait_for_topic(
                    ProducerRecord(batch.topic, partition=columns.partition), deadline
                )
                outcome = self._place_slice(batch.topic, columns, deadline)
            columns.note_placed(outcome, engine.interceptors)
            driver.move()
        return BatchReceipt(outcome, columns.record_count)

    def send_slice(self, topic: str, rows: "ColumnSlice") -> BatchOutcome:
        """Queue rows that `plan_chunk` has made one batch of, and return its outcome.

        For callers who cut the batches, and know from an `identity` which numbers their records
        get. Serializers and the partitioner are not called. A broker that refuses a batch because
        of its size gets it in parts, which the outcome then has. After `flush()`, it is done.

        Raises:
            TransactionStateError: with an `identity`, a batch before it has failed.
            MetadataTimeoutError, InvalidTopicError, ...: the topic's metadata is not available.
            BufferExhaustedError: `buffer.memory` stayed full for `max.block.ms`.
        """
        engine = self._engine
        self._driver.check_wait()
        deadline = _max_block(engine)
        with engine.lock:
            engine.check_open()
            if engine.metadata.partition_count(topic) is None:
                self._wait_for_topic(ProducerRecord(topic), deadline)
            outcome = self._place_slice(topic, rows, deadline)
            self._rows_placed(outcome, rows)
            self._driver.move()
            return outcome

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic, with leader and replicas, as a broker knows them now.

        Waits `max.block.ms` at most. A broker may create the topic, as for a record.

        Raises:
            UnknownTopicError: the topic was deleted meanwhile.
            MetadataTimeoutError: it did not become known in time.
            InvalidTopicError, AuthorizationError: the topic cannot be used.
        """
        topic = plain_topic(topic)
        self._engine.preparation.check_name(topic)
        self._driver.check_wait()
        deadline = _max_block(self._engine)
        with self._engine.lock:
            self._engine.check_open()
            self._wait_for_topic(ProducerRecord(topic), deadline)
            return partitions_in(self._listed([topic], deadline), topic)

    def list_topics(self, timeout: float | None = None) -> Listing:
        """All topics that the user may see, with their partitions, by name.

        Waits `timeout` seconds at most; None stands for `max.block.ms`.

        Raises:
            MetadataTimeoutError: no broker has answered in time.
            AuthenticationError: no broker takes the login.
        """
        self._driver.check_wait()
        deadline = _max_block(self._engine) if timeout is None else _deadline(timeout)
        with self._engine.lock:
            self._engine.check_open()
            return self._listed(None, deadline)

    def _listed(self, topics: list[str] | None, deadline: float) -> Listing:
        pending = self._engine.sender.listings.ask(topics)
        try:
            self._driver.until(lambda: pending.is_done, deadline)
        finally:
            pending.is_abandoned = True
        return listed_in(self._engine, pending)

    def flush(self, timeout: float | None = None) -> None:
        """Send all that waits, and wait until everything sent before has its outcome.

        The callbacks of those records have run then, except for a flush in a callback.

        Raises:
            TimeoutError: that took longer than `timeout` seconds; the records are still sent.
            ReentrantCallError: called by a signal handler that has interrupted another call.
        """
        engine = self._engine
        self._driver.check_wait()
        with engine.lock, engine.flushing() as is_over:
            deadline = _deadline(timeout)
            if not self._driver.until(is_over, deadline):
                raise TimeoutError(f"not everything was acknowledged within {timeout} s")
            are_made = self._driver.calls.are_made()
            if not self._driver.until(are_made, deadline) and not self._driver.is_over:
                raise TimeoutError(
                    f"all records have their outcome, and a callback runs for over {timeout} s"
                )

    def close(self, timeout: float | None = None) -> None:
        """Send records that wait, wait for the outcomes, and end; a second call does nothing.

        Records without an outcome after `timeout` seconds get a `ClosedProducerError`; 0 gives up
        all of them at once, and so does Ctrl-C during the close. If several threads close the
        producer, the shortest timeout counts.

        An open transaction is aborted, so that readers of committed records need not wait for
        `transaction.timeout.ms`; its records that are not sent yet get a `TransactionAbortedError`.
        The close waits `max.block.ms` at most for the end of a transaction. If that is a commit,
        `finish_transaction` returns its outcome, also after the close.

        Then the producer's own thread calls `close` of the interceptors, serializers and
        partitioner that have it; their exceptions are logged.

        Raises:
            ReentrantCallError: called by a signal handler that has interrupted another call; the
                producer stays open.
        """
        engine, driver = self._engine, self._driver
        driver.check_wait()
        deadline = _deadline(timeout)
        with engine.lock:
            # Each closing thread waits until its own deadline and then stops the driver. So it need
            # not rely on another one, which may be interrupted or have a later deadline.
            if not driver.is_over:
                try:
                    if engine.begin_close() and timeout != 0:
                        engine.abort_open()
                    driver.until(lambda: not engine.accumulator.incomplete, deadline)
                    end_by = min(deadline, _max_block(engine))
                    driver.until(engine.is_settled, end_by)
                    # The commit waits for the last batch, and may have failed only with that one.
                    if timeout != 0 and engine.abort_open():
                        driver.until(engine.is_settled, end_by)
                finally:
                    driver.stop()
        driver.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After Ctrl-C, do not make the user wait.
        self.close(0 if kind is KeyboardInterrupt else None)

    # -- the slow path of `send` --------------------------------------------------------------

    def _send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> tuple[DeliveryOutcome, int]:
        engine = self._engine
        check_not_interrupted(engine)
        engine.check_open()
        deadline = _max_block(engine)
        now_ns = engine.now_ns()
        prepared = None
        try:
            prepared = engine.preparation.prepare(record)
            count = engine.metadata.partition_count(record.topic)
            if count is None or (record.partition or 0) >= count:
                with engine.lock:
                    count = self._wait_for_topic(prepared.record, deadline)
            partition = engine.placement.choose(prepared, count)
            with engine.lock:
                engine.check_open()
                return self._place(
                    prepared,
                    partition,
                    deadline=deadline,
                    now_ns=now_ns,
                    on_delivery=on_delivery,
                )
        except (ClosedProducerError, ReentrantCallError):
            raise
        except TailraceError as error:
            refused = engine.refuse(prepared.record if prepared else record, error)
            if on_delivery is not None:
                self._driver.call_back_soon(refused, 0, on_delivery)
            return refused, 0

    def _place(
        self,
        prepared: Prepared,
        partition: int,
        *,
        deadline: float,
        now_ns: int,
        on_delivery: DeliveryCallback | None,
    ) -> tuple[DeliveryOutcome, int]:
        engine, driver = self._engine, self._driver
        placed = self._append(prepared, partition, now_ns=now_ns)
        if placed is None:
            size = engine.accumulator.supply.memory_for(prepared.size)
            granted = self._wait_for_memory(size, deadline)
            with engine.pool.returning(granted):
                placed = self._append(prepared, partition, now_ns=now_ns, granted=granted)
            assert placed is not None, "memory was granted for this record"
        self._placed(*placed, on_delivery)
        if engine.should_move():
            driver.move()
        else:
            driver.noticed()
        return placed

    def _append(
        self, prepared: Prepared, partition: int, *, now_ns: int, granted: int = 0
    ) -> tuple[DeliveryOutcome, int] | None:
        """Call `Engine.append`; Ctrl-C in it ends the producer, whose state is unknown then."""
        now = time.monotonic()
        try:
            return self._engine.append(prepared, partition, now=now, now_ns=now_ns, granted=granted)
        except Exception:
            raise
        except BaseException as error:
            self._driver.give_up(error)
            raise

    def _place_slice(
        self, topic: str, columns: "ColumnSlice | FilledRecords", deadline: float
    ) -> BatchOutcome:
        """Queue a whole batch, and wait for its memory before, under the lock."""
        engine = self._engine
        engine.check_open()
        outcome = self._append_slice(topic, columns)
        if outcome is None:
            size = engine.accumulator.supply.memory_for_slice(columns)
            granted = self._wait_for_memory(size, deadline)
            with engine.pool.returning(granted):
                outcome = self._append_slice(topic, columns, granted)
        assert outcome is not None, "memory was granted for this batch"
        return outcome

    def _append_slice(
        self, topic: str, columns: "ColumnSlice | FilledRecords", granted: int = 0
    ) -> BatchOutcome | None:
        """Call `Engine.append_slice`; Ctrl-C in it ends the producer, as in `_append`."""
        now = time.monotonic()
        try:
            return self._engine.append_slice(topic, columns, now=now, granted=granted)
        except Exception:
            raise
        except BaseException as error:
            self._driver.give_up(error)
            raise

    def _wait_for_topic(self, record: ProducerRecord, deadline: float) -> int:
        """Wait until the topic has the record's partition; returns the partition count."""
        engine = self._engine
        wait = TopicWait(engine, record, started=time.monotonic())

        def is_over() -> bool:
            engine.check_open()
            return wait.is_over()

        if not self._driver.until(is_over, deadline):
            raise wait.timed_out(time.monotonic())
        count = engine.metadata.partition_count(record.topic)
        assert count is not None
        return count

    def _wait_for_memory(self, size: int, deadline: float) -> int:
        """Wait for `size` bytes of the pool and take them; returns `size`."""
        engine = self._engine
        started = time.monotonic()
        answers: list[Exception | None] = []
        waiter = engine.pool.wait(size, answers.append)
        engine.accumulator.hurry_all()
        try:
            in_time = self._driver.until(lambda: bool(answers), deadline)
        except BaseException:
            if not engine.pool.cancel(waiter) and answers == [None]:
                engine.pool.deallocate(size)
            raise
        waited = time.monotonic() - started
        engine.metrics.bufferpool_wait_s += waited
        if not in_time and engine.pool.cancel(waiter):
            engine.metrics.buffer_exhausted_total += 1
            raise BufferExhaustedError(why_no_memory(engine, waited))
        if answers[0] is not None:
            raise answers[0]
        return size

    def _dropped(self) -> None:
        self._driver.abandon()


_living: "weakref.WeakSet[Producer]" = weakref.WeakSet()


@atexit.register
def _log_lost_records() -> None:
    for producer in list(_living):
        if producer.held():
            log.warning(
                "producer_not_closed client_id=%s unacknowledged_records=%d",
                producer._engine.config.client_id,
                producer.held(),
            )


def _deadline(timeout: float | None) -> float:
    return inf if timeout is None else time.monotonic() + timeout


def _max_block(engine: Engine) -> float:
    return time.monotonic() + engine.config.max_block_ms / 1000


def _nothing() -> None:
    """Ignore a socket event; the driver polls after each wait anyway."""
