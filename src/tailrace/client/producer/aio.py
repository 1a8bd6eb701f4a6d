"""`AsyncProducer`: sends records from an event loop, without a thread.

    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        metadata = await producer.send("flights", b"JFK")

A record that cannot get into a batch yet, because memory or metadata is missing, waits in a queue
(`lines`). So `send` never blocks the loop, and the order is kept.
"""

import asyncio
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Self

from tailrace import kernels
from tailrace.client.producer.arguments import plain_topic
from tailrace.client.producer.base_producer import BaseProducer
from tailrace.client.producer.config import parse_producer_config
from tailrace.client.producer.engine import Engine, Plugins
from tailrace.client.producer.errors import (
    ClosedProducerError,
    TransactionAbortedError,
)
from tailrace.client.producer.hooks import BatchHook
from tailrace.client.producer.interceptors import ProducerInterceptor
from tailrace.client.producer.lines import Lines
from tailrace.client.producer.loading import is_worth_waiting, load_beside
from tailrace.client.producer.loop_waits import LoopWaits
from tailrace.client.producer.many import SendSummary, check_columns
from tailrace.client.producer.outcome import DeliveryCallback, DeliveryOutcome
from tailrace.client.producer.partitioners import Partitioner
from tailrace.client.producer.record import ProducerRecord
from tailrace.client.producer.serializers import Serializer
from tailrace.client.producer.transacting import LoopTransactions
from tailrace.client.producer.transaction_calls import LoopTransactionCalls
from tailrace.client.producer.user_code import call_user_code
from tailrace.errors import TailraceError
from tailrace.kernels.encoding import ENCODING
from tailrace.runtime.system import Runtime, system_runtime


class LoopDriver:
    """Runs a producer's I/O on the event loop on which it was created."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._turn_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turned: asyncio.Future[None] | None = None
        self._is_over = False
        self._end_by = inf
        """The loop's time until which an abandoned producer waits for its transaction's end."""
        self._engine: Engine

    def start(self, engine: Engine) -> None:
        """Set the engine, and schedule the first turn."""
        self._engine = engine
        self.stirred()

    def stirred(self) -> None:
        """Schedule a turn of the producer: something has happened."""
        # A task that is collected after its loop was closed runs its `finally` blocks, which may
        # come here; the closed loop takes no more calls.
        if self._turn_handle is None and not self.loop.is_closed():
            self._turn_handle = self.loop.call_soon(self._turn)

    def move(self) -> None:
        """Send what may be sent, without waiting; the caller holds the engine's lock."""
        self._poll(self.loop.time())
        self.stirred()

    def _poll(self, now: float) -> None:
        """Run one poll of the sender; an exception in it ends the producer."""
        try:
            self._engine.sender.poll(now)
        except BaseException as error:
            self._is_over = True
            self._engine.give_up(error)
            # That turn wakes waiting callers and runs callbacks, which must not run under the lock.
            self.stirred()
            raise

    def noticed(self) -> None:
        """Schedule a turn if a new deadline is earlier than the timer."""
        deadline = self._engine.sender.next_deadline(self.loop.time())
        if self._timer is None or deadline < self._timer.when():
            self.stirred()

    async def turned(self) -> None:
        """Wait until the next turn is over.

        Raises:
            ClosedProducerError: the producer has ended, so there will be no turn.
        """
        if self._is_over:
            raise ClosedProducerError("the producer was closed meanwhile")
        if self._turned is None:
            self._turned = self.loop.create_future()
        await asyncio.shield(self._turned)

    async def until(self, is_over: Callable[[], bool]) -> None:
        """Wait until `is_over()`, which is checked after each turn."""
        self.stirred()
        while not is_over():
            await self.turned()

    def stop(self) -> None:
        """Run the callbacks that are due, and take no more turns."""
        self._is_over = True
        for handle in (self._turn_handle, self._timer):
            if handle is not None:
                handle.cancel()
        self._turn_handle = None
        self._end_turn()

    def abandon(self) -> None:
        """Close a producer that was garbage collected; an open transaction is aborted first."""
        engine = self._engine
        if not engine.begin_close():
            return
        engine.abort_open()
        self._end_by = self.loop.time() + engine.config.max_block_ms / 1000
        self._end_if_settled()
        if not self._is_over:
            self.loop.call_at(self._end_by, self.stirred)
            self.stirred()

    def _end_if_settled(self) -> None:
        """End an abandoned producer once its transaction has ended or the time is up."""
        if self._engine.is_settled() or self.loop.time() >= self._end_by:
            self._engine.end_close()
            self.stop()

    def _turn(self) -> None:
        self._turn_handle = None
        if self._is_over:
            # Queued records fail after the producer has ended: wake the tasks that wait for them,
            # and run their callbacks.
            self._end_turn()
            return
        engine = self._engine
        with engine.lock:
            now = self.loop.time()
            self._poll(now)
            deadline = engine.sender.next_deadline(now)
        load_beside()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if deadline == inf else self.loop.call_at(deadline, self.stirred)
        self._end_turn()
        if self._end_by < inf:
            self._end_if_settled()

    def _end_turn(self) -> None:
        """Wake the tasks that wait for this turn, and run the callbacks that are due."""
        turned, self._turned = self._turned, None
        if turned is not None:
            turned.set_result(None)
        calls = self._engine.sender.calls
        # A callback that sends again can make other callbacks due, without end. Those run in the
        # next turn, so that the loop gets to its other work.
        for _ in range(len(calls)):
            call_user_code(calls.popleft(), about="callback")
        if calls:
            self.stirred()

    # -- Waiting, for receipts ----------------------------------------------------------------

    def wait(self, outcome: DeliveryOutcome, timeout_s: float | None) -> bool:  # noqa: ARG002
        """Always raise TypeError: blocking here would keep the loop from getting the outcome."""
        raise TypeError("a receipt of AsyncProducer has no outcome yet: await it")

    def call_back(self, outcome: DeliveryOutcome, index: int, callback: DeliveryCallback) -> None:
        """Have the callback called by the loop."""
        if outcome.is_done:
            self.loop.call_soon(outcome.tell, index, callback)
        else:
            outcome.add_callback(index, callback)

    def forked(self) -> None:
        """Stop in a forked child: its loop is a copy, and it shares the parent's sockets."""
        self._is_over = True

    def awaiting(self, outcome: DeliveryOutcome) -> Generator[object, None, None]:
        """Suspend the task until the outcome is there."""
        future = self.loop.create_future()
        wake = partial(_wake, future)
        with self._engine.lock:
            outcome.add_watcher(wake)
            self._engine.hurry(outcome)
        self.stirred()
        try:
            yield from future
        finally:
            if not outcome.is_done:
                with self._engine.lock:
                    outcome.remove_watcher(wake)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


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
        runtime: Runtime | None = None,
        **more_settings: object,
    ) -> None:
        if isinstance(partitioner, str):
            more_settings["partitioner"] = partitioner
            partitioner = None
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
            wall=time.time if runtime is None else lambda: outside.clock.now_ms() / 1000,
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
        self._driver.start(engine)

    async def send_many(
        self, topic: str, rows: object, *, progress: Callable[[int], object] | None = None
    ) -> SendSummary:
        """Send many rows and wait until each has its outcome; see `Producer.send_many`."""
        from tailrace.client.producer.columns import chunks_of
        from tailrace.client.producer.slices import plan_rows

        engine, driver, lines, waits = self._engine, self._driver, self._lines, self._waits
        check_columns(engine.plugins)
        topic = plain_topic(topic)
        engine.preparation.check_name(topic)
        summary = SendSummary(topic, progress)
        with summary.accounting():
            for chunk in chunks_of(rows):
                self._check_open()
                await waits.wait_for_topic(ProducerRecord(topic), waits.max_block())
                summary.row_count += chunk.row_count
                if is_worth_waiting(summary.row_count):
                    await asyncio.to_thread(kernels.load, *ENCODING)
                plan = plan_rows(engine, topic, chunk)
                summary.refuse(plan.refused)
                for columns in plan.slices:
                    # Queued records may be for the same partition, and were sent before these rows.
                    await lines.served(topic)
                    self._check_open()
                    batch = engine.append_slice(topic, columns, now=driver.loop.time())
                    if batch is None:
                        size = engine.accumulator.supply.memory_for_slice(columns)
                        granted = await waits.wait_for_memory(size, waits.max_block())
                        with engine.pool.returning(granted):
                            batch = engine.append_slice(
                                topic, columns, now=driver.loop.time(), granted=granted
                            )
                        assert batch is not None, "memory was granted for this batch"
                    summary.add(batch, columns)
                    driver.move()
                    summary.settle()
                    summary.tell()
                await asyncio.sleep(0)
            while not summary.is_over:
                await driver.until(summary.has_news)
                summary.tell()
        return summary

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as `Producer`
        """Send all that waits, and wait until everything sent before has its outcome.

        Raises:
            TimeoutError: that took longer than `timeout` seconds; the records are still sent.
        """
        async with asyncio.timeout(timeout):
            await self._lines.served()
            with self._engine.flushing() as is_over:
                await self._driver.until(is_over)

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
        self._end_fast_path()
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

    def _send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> tuple[DeliveryOutcome, int]:
        engine = self._engine
        if self._is_closing or engine.closed_error is not None:
            self._check_open()
        wall_s = engine.wall()
        prepared = None
        try:
            prepared = engine.preparation.prepare(record)
            placed = self._lines.put(prepared, wall_s)
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
