"""`AsyncProducer`: sends records from an event loop, without a thread.

    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        metadata = await producer.send("flights", b"JFK")

A record that cannot get into a batch yet, because memory or metadata is missing, waits in a queue
(`lines`). So `send` never blocks the loop, and the order is kept.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from tailrace.client.interval_call import check_on_metrics, figures_call
from tailrace.client.listings import Listing, PartitionInfo
from tailrace.client.producer.base_producer import BaseProducer
from tailrace.client.producer.batch_receipt import BatchReceipt
from tailrace.client.producer.config import parse_producer_config
from tailrace.client.producer.delivery.metrics import OnMetrics
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.errors import (
    ClosedProducerError,
    TransactionAbortedError,
)
from tailrace.client.producer.hooks import BatchHook
from tailrace.client.producer.intake.arguments import plain_topic
from tailrace.client.producer.intake.interceptors import ProducerInterceptor
from tailrace.client.producer.intake.plugins import Plugins
from tailrace.client.producer.intake.record import ProducerRecord
from tailrace.client.producer.intake.serializers import Serializer
from tailrace.client.producer.many import SendSummary
from tailrace.client.producer.outcome import BatchOutcome, DeliveryCallback, DeliveryOutcome
from tailrace.client.producer.partitioners import Partitioner
from tailrace.client.producer.producer_batch import ProducerBatch, check_batch
from tailrace.client.producer.waiting.lines import Lines
from tailrace.client.producer.waiting.loop_driver import LoopDriver
from tailrace.client.producer.waiting.loop_waits import LoopWaits
from tailrace.client.producer.waiting.topic_wait import partitions_in
from tailrace.client.producer.waiting.transacting import LoopTransactions
from tailrace.client.producer.waiting.transaction_calls import LoopTransactionCalls
from tailrace.errors import TailraceError
from tailrace.runtime.extras import check_extra
from tailrace.runtime.system import Runtime, system_runtime

if TYPE_CHECKING:
    from tailrace.client.producer.intake.slices import ColumnSlice
    from tailrace.client.producer.queue.sealed_batch import FilledRecords


class AsyncProducer(BaseProducer, LoopTransactionCalls):
    """Sends records to a Kafka cluster from the event loop on which it is created.

    The same as `Producer`, except that `flush()`, `close()` and a receipt are awaited. `send`
    always returns a receipt at once. While there is no memory, or the topic's metadata is missing,
    the record waits in a queue, for `max.block.ms` at most, and then fails.

    `await producer.send(...)` waits while the buffer is full, as a thread does in `Producer.send`;
    any number of tasks may wait so. If that await is cancelled, a record that is still queued is
    removed and gets a `SendCancelledError`; one that is in a batch is sent all the same. After a
    timeout of `asyncio.wait_for`, `receipt.exception()` tells which it was. Records that are not
    awaited may take `buffer.memory` bytes in the queue; a record beyond that fails with a
    `BufferExhaustedError`.

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
        on_metrics: OnMetrics | None = None,
        runtime: Runtime | None = None,
        **more_settings: object,
    ) -> None:
        if isinstance(partitioner, str):
            more_settings["partitioner"] = partitioner
            partitioner = None
        check_on_metrics(on_metrics)
        config = parse_producer_config(settings, more_settings)
        outside = runtime or system_runtime()
        self._driver = LoopDriver()
        engine = Engine(
            config,
            Plugins(
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                partitioner=partitioner,
                interceptors=interceptors,
                hooks=hooks,
            ),
            network=outside.network,
            now_ns=time.time_ns if runtime is None else lambda: outside.clock.now_ms() * 1_000_000,
            monotonic=self._driver.loop.time,
            chance=outside.chance,
            waiting=self._driver,
            stirred=self._driver.stirred,
        )
        self._settle(engine)
        self._is_closing = False
        """`close` was called: no new records are taken, but queued ones still go into batches."""
        self._waits = LoopWaits(engine, self._driver)
        self._lines = lines = Lines(engine, self._driver, self._waits)
        self._transactions = LoopTransactions(
            engine, until=self._driver.until, serve_lines=lines.served, end_lines=lines.end
        )
        if on_metrics is not None:
            call = figures_call(
                engine, on_metrics, metrics=self.metrics, statistics=self.statistics
            )
            engine.sender.metrics_call.begin(call, self._driver.loop.time())
        self._driver.start(engine)

    async def send_many(
        self, topic: str, rows: object, *, progress: Callable[[int], object] | None = None
    ) -> SendSummary:
        """Send many rows and wait until each has its outcome; see `Producer.send_many`."""
        check_extra("arrow", "send_many()", packages=("numpy",))
        from tailrace.client.producer.row_plans import plan_rows, rows_of

        engine, driver, lines, waits = self._engine, self._driver, self._lines, self._waits
        topic = plain_topic(topic)
        engine.preparation.check_name(topic)
        summary = SendSummary(topic, progress)
        with summary.accounting():
            for chunk in rows_of(engine, topic, rows):
                self._check_open()
                await waits.wait_for_topic(ProducerRecord(topic), waits.max_block())
                summary.row_count += chunk.row_count
                plan = plan_rows(engine, topic, chunk)
                self._refuse_rows(summary, plan.refused)
                for columns in plan.slices:
                    # Queued records may be for the same partition, and were sent before these rows.
                    await lines.served(topic)
                    outcome = await self._place_slice(topic, columns, waits.max_block())
                    self._rows_placed(outcome, columns)
                    summary.add(outcome, columns)
                    driver.move()
                    summary.settle()
                    summary.tell()
                await asyncio.sleep(0)
            while not summary.is_over:
                await driver.until(summary.has_news)
                summary.tell()
        return summary

    async def send_batch(self, batch: ProducerBatch, *, partition: int) -> BatchReceipt:
        """Queue a batch of `create_batch`, and return a receipt for it; await that too.

        Records that were sent before are in the queue then, and those sent later come behind it;
        see `Producer.send_batch`. If this is cancelled, nothing was sent.
        """
        check_batch(batch)
        self._check_open()
        engine, waits = self._engine, self._waits
        deadline = waits.max_block()
        with batch.sending(engine, partition) as columns:
            await waits.wait_for_topic(
                ProducerRecord(batch.topic, partition=columns.partition), deadline
            )
            await self._lines.served(batch.topic)
            outcome = await self._place_slice(batch.topic, columns, deadline)
        columns.note_placed(outcome, engine.interceptors)
        self._driver.move()
        return BatchReceipt(outcome, columns.record_count)

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic; see `Producer.partitions_for`."""
        topic = plain_topic(topic)
        self._engine.preparation.check_name(topic)
        self._check_open()
        deadline = self._waits.max_block()
        await self._waits.wait_for_topic(ProducerRecord(topic), deadline)
        return partitions_in(await self._waits.listed([topic], deadline), topic)

    async def list_topics(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as `Producer`
    ) -> Listing:
        """All topics that the user may see; see `Producer.list_topics`."""
        self._check_open()
        waits, loop = self._waits, self._driver.loop
        return await waits.listed(
            None, waits.max_block() if timeout is None else loop.time() + timeout
        )

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as `Producer`
        """Send all that waits, and wait until everything sent before has its outcome.

        The callbacks of those records have run then, except for a flush that they await.

        Raises:
            TimeoutError: that took longer than `timeout` seconds; the records are still sent.
        """
        async with asyncio.timeout(timeout):
            await self._lines.served()
            with self._engine.flushing() as is_over:
                await self._driver.until(is_over)
            await self._driver.until_called()

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as `Producer`
        """Refuse new records, send those that wait, wait for the outcomes, and end.

        A second call does nothing. Records without an outcome after `timeout` seconds get a
        `ClosedProducerError`; 0 gives up all of them at once. An open transaction is aborted, so
        that readers of committed records need not wait for `transaction.timeout.ms`; its records
        that are not sent yet get a `TransactionAbortedError`. The close waits `max.block.ms` at
        most for the end of a transaction. If that is a commit, `finish_transaction` returns its
        outcome, also after the close.
        """
        engine = self._engine
        if engine.closed_error is not None:
            return
        self._is_closing = True
        engine.open_batches.halt()
        try:
            async with asyncio.timeout(timeout):
                if timeout != 0 and engine.abort_open():
                    self._lines.end(TransactionAbortedError("not sent: the producer was closed"))
                await self._lines.served()
                engine.begin_close()
                await self._driver.until(lambda: not engine.accumulator.incomplete)
                async with asyncio.timeout_at(self._waits.max_block()):
                    await self._driver.until(engine.is_settled)
                    # The commit waits for the last batch, and may have failed only with that one.
                    if timeout != 0 and engine.abort_open():
                        await self._driver.until(engine.is_settled)
        except TimeoutError:
            pass
        finally:
            engine.begin_close()
            self._lines.end(ClosedProducerError("the producer was closed"))
            engine.end_close()
            self._driver.stop()
            await self._lines.ended()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        is_leaving = kind is not None and not issubclass(kind, Exception)
        await self.close(0 if is_leaving else None)

    # -- the slow path of `send` --------------------------------------------------------------

    def _check_open(self) -> None:
        """Raises ClosedProducerError once `close` was called, or the producer has ended."""
        self._engine.check_open()
        if self._is_closing:
            raise ClosedProducerError("the producer is closed")

    async def _place_slice(
        self, topic: str, columns: "ColumnSlice | FilledRecords", deadline: float
    ) -> BatchOutcome:
        """Queue a whole batch, and wait for its memory before."""
        engine, loop = self._engine, self._driver.loop
        self._check_open()
        outcome = engine.append_slice(topic, columns, now=loop.time())
        if outcome is None:
            size = engine.accumulator.supply.memory_for_slice(columns)
            granted = await self._waits.wait_for_memory(size, deadline)
            with engine.pool.returning(granted):
                outcome = engine.append_slice(topic, columns, now=loop.time(), granted=granted)
        assert outcome is not None, "memory was granted for this batch"
        return outcome

    def _send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> tuple[DeliveryOutcome, int]:
        engine = self._engine
        if self._is_closing or engine.closed_error is not None:
            self._check_open()
        now_ns = engine.now_ns()
        prepared = None
        try:
            prepared = engine.preparation.prepare(record)
            placed = self._lines.put(prepared, now_ns)
        except ClosedProducerError:
            raise
        except TailraceError as error:
            refused = engine.refuse(prepared.record if prepared else record, error)
            if on_delivery is not None:
                self._driver.call_back(refused, 0, on_delivery)
            return refused, 0
        self._placed(*placed, on_delivery)
        self._lines.set_off()
        return placed

    def held(self) -> int:
        """The number of records that are not acknowledged yet, including queued ones."""
        return super().held() + self._lines.held()

    def _dropped(self) -> None:
        # A finalizer may run at any point of any thread. If the loop is closed, the sockets cannot
        # be removed from it; they are closed when they are collected.
        with suppress(RuntimeError):
            self._driver.loop.call_soon_threadsafe(self._driver.abandon)
