"""`AsyncProducer`: sends records from an event loop, without a thread.

    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        metadata = await producer.send("flights", b"JFK")

A record that cannot get into a batch yet, for want of memory or of metadata, waits in the line of
its topic, and its receipt with it. So `send` never blocks the loop, and order is kept.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import inf
from types import TracebackType
from typing import Self

from tailrace import kernels
from tailrace.client.producer.arguments import plain_topic
from tailrace.client.producer.batch import Outcome, Prepared, ProducerBatch
from tailrace.client.producer.config import parse_producer_config
from tailrace.client.producer.engine import Engine, Parts
from tailrace.client.producer.errors import (
    BufferExhaustedError,
    ClosedProducerError,
    MetadataTimeoutError,
    RejectedRecordError,
    TransactionAbortedError,
)
from tailrace.client.producer.explanations import why_no_memory, why_no_topic
from tailrace.client.producer.face import Face
from tailrace.client.producer.hooks import BatchHook
from tailrace.client.producer.interceptors import ProducerInterceptor
from tailrace.client.producer.loading import is_worth_waiting, load_beside
from tailrace.client.producer.many import SendSummary, check_columns
from tailrace.client.producer.partitioners import Partitioner
from tailrace.client.producer.placement import NO_PARTITION
from tailrace.client.producer.receipts import DeliveryCallback, ProducerRecord, RecordMetadata
from tailrace.client.producer.serializers import Serializer
from tailrace.client.producer.transacting import LoopTransactions
from tailrace.client.producer.transactions.requests import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
)
from tailrace.client.producer.user_code import call_user_code
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.runtime import Runtime, system_runtime

log = logging.getLogger(__name__)


class Queued(Outcome):
    """A record in line, and later in a batch."""

    __slots__ = ("batch", "deadline", "index", "prepared", "wall_s")

    def __init__(
        self, prepared: Prepared, driver: "LoopDriver", *, wall_s: float, deadline: float
    ) -> None:
        super().__init__(TopicPartition(prepared.record.topic, -1), driver)
        self.prepared = prepared
        self.deadline = deadline
        """The loop's time at which it gives up waiting in line."""
        self.wall_s = wall_s
        self.batch: ProducerBatch | None = None
        self.index = 0

    def place_of(self, index: int) -> RecordMetadata:
        """The record's place in its batch's partition."""
        return super().place_of(index) if self.batch is None else self.batch.place_of(self.index)

    def error_of(self, index: int) -> Exception | None:
        """Why the record failed, or None."""
        return super().error_of(index) if self.batch is None else self.batch.error_of(self.index)


class LoopDriver:
    """Moves a producer's bytes on the event loop that it was made on."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._turn_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turned: asyncio.Future[None] | None = None
        self._is_over = False
        self._engine: Engine

    def start(self, engine: Engine) -> None:
        """Begin."""
        self._engine = engine
        self.stirred()

    def stirred(self) -> None:
        """Something has happened: take a turn soon."""
        if self._turn_handle is None and not self._is_over:
            self._turn_handle = self.loop.call_soon(self._turn)

    def move(self) -> None:
        """Send what may be sent, without waiting."""
        self._engine.sender.poll(self.loop.time())
        self.stirred()

    def noticed(self) -> None:
        """Something new waits for a time that the timer may not know of."""
        deadline = self._engine.sender.next_deadline(self.loop.time())
        if self._timer is None or deadline < self._timer.when():
            self.stirred()

    async def turned(self) -> None:
        """Give way until the next turn is over.

        Raises:
            ClosedProducerError: there will be none.
        """
        if self._is_over:
            raise ClosedProducerError("the producer was closed meanwhile")
        if self._turned is None:
            self._turned = self.loop.create_future()
        await asyncio.shield(self._turned)

    def stop(self) -> None:
        """Turn no more, after the callbacks that are due."""
        self._is_over = True
        for handle in (self._turn_handle, self._timer):
            if handle is not None:
                handle.cancel()
        self._end_turn()

    def abandon(self) -> None:
        """End everything: nobody holds the producer any more."""
        if self._engine.begin_close():
            self._engine.end_close()
            self.stop()

    def _turn(self) -> None:
        self._turn_handle = None
        engine = self._engine
        with engine.lock:
            now = self.loop.time()
            try:
                engine.sender.poll(now)
            except BaseException as error:
                self._is_over = True
                engine.give_up(error)
                self._end_turn()
                raise
            deadline = engine.sender.next_deadline(now)
        load_beside()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if deadline == inf else self.loop.call_at(deadline, self.stirred)
        self._end_turn()

    def _end_turn(self) -> None:
        """Wake who waits for the turn, and run the callbacks that are due."""
        turned, self._turned = self._turned, None
        if turned is not None:
            turned.set_result(None)
        calls = self._engine.sender.calls
        while calls:
            call_user_code(calls.popleft(), about="a callback")

    # -- Waiting, for receipts ----------------------------------------------------------------

    def wait(self, outcome: Outcome, timeout_s: float | None) -> bool:  # noqa: ARG002
        """Refused: it would keep the loop from bringing the outcome."""
        raise TypeError("a receipt of AsyncProducer has no outcome yet: await it")

    def call_back(self, outcome: Outcome, index: int, callback: DeliveryCallback) -> None:
        """Have the callback called by the loop."""
        if outcome.is_done:
            self.loop.call_soon(outcome.tell, index, callback)
        else:
            outcome.add_callback(index, callback)

    def forked(self) -> None:
        """In a child process nothing turns: its loop is a copy, and the sockets are shared."""
        self._is_over = True

    def awaiting(self, outcome: Outcome) -> Generator[object, None, None]:
        """Give way until the outcome is there."""
        future = self.loop.create_future()
        with self._engine.lock:
            outcome.add_watcher(partial(_wake, future))
            self._engine.hurry(outcome)
        self.stirred()
        yield from future


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class AsyncProducer(Face):
    """Sends records to a Kafka cluster from the event loop that it is made on.

    The same as `Producer`, but for how it waits: `await` a receipt, `flush()` and `close()`. `send`
    returns a receipt at once, always. While there is no memory, or nothing is known of the topic,
    the record waits in line, for `max.block.ms` at most; when as many bytes wait in line as
    `buffer.memory` has, the next receipt fails at once, so await some before you go on.

    Raises:
        ConfigError: unknown or contradictory settings, all of them at once.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        hooks: Sequence[BatchHook] = (),
        runtime: Runtime | None = None,
        **more_settings: object,
    ) -> None:
        config = parse_producer_config({**(settings or {}), **more_settings})
        outside = runtime or system_runtime()
        self._driver = LoopDriver()
        self._lines: dict[str, deque[Queued]] = {}
        self._line_bytes = 0
        self._pumps: set[asyncio.Task[None]] = set()
        engine = Engine(
            config,
            Parts(
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
        self._driver.start(engine)

    async def send_many(
        self, topic: str, rows: object, *, progress: Callable[[int], object] | None = None
    ) -> SendSummary:
        """Send many rows and wait until each has its outcome; see `Producer.send_many`."""
        from tailrace.client.producer.columns import chunks_of

        engine, driver = self._engine, self._driver
        check_columns(engine.parts)
        topic = plain_topic(topic)
        engine.check_name(topic)
        summary = SendSummary(topic, progress)
        with summary.accounting():
            for chunk in chunks_of(rows):
                engine.check_open()
                await self._wait_for_topic(ProducerRecord(topic), self._max_block())
                summary.row_count += chunk.row_count
                if is_worth_waiting(summary.row_count):
                    await asyncio.to_thread(kernels.load)
                plan = engine.plan(topic, chunk)
                summary.refuse(plan.refused)
                for columns in plan.slices:
                    engine.check_open()
                    batch = engine.append_slice(topic, columns, now=driver.loop.time())
                    if batch is None:
                        size = engine.accumulator.supply.memory_for_slice(columns)
                        granted = await self._wait_for_memory(size, self._max_block())
                        with engine.returning(granted):
                            batch = engine.append_slice(
                                topic, columns, now=driver.loop.time(), granted=granted
                            )
                        assert batch is not None, "memory was granted for this batch"
                    summary.add(batch)
                    driver.move()
                    summary.settle()
                    summary.tell()
                await asyncio.sleep(0)
            while not summary.is_over:
                await self._until(summary.has_news)
                summary.tell()
        return summary

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as `Producer`
        """Send all that waits, and wait until everything sent before has its outcome.

        Raises:
            TimeoutError: that took longer than `timeout` seconds; it goes on.
        """
        async with asyncio.timeout(timeout):
            await self._serve_lines()
            with self._engine.flushing() as is_over:
                await self._until(is_over)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Records sent in the block are visible together, or never; see `Producer.transaction`."""
        async with self._transactions().transaction():
            yield

    async def finish_transaction(self) -> None:
        """Wait again for a commit of unknown outcome; see `Producer.finish_transaction`."""
        await self._transactions().finish()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: str | ConsumerGroupMetadata,
    ) -> None:
        """Commit a group's offsets with the transaction; see `Producer`."""
        await self._transactions().send_offsets(offsets, group)

    def _transactions(self) -> LoopTransactions:
        # Kept, it would be a cycle of references, and a dropped producer be found late.
        return LoopTransactions(
            self._engine,
            until=self._until,
            serve_lines=self._serve_lines,
            end_lines=self._end_lines,
        )

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as `Producer`
        """Send what waits, wait for the outcomes, and end; again does nothing.

        Whatever has no outcome after `timeout` seconds gets a `ClosedProducerError`; 0 gives up
        everything at once. A transaction that is open is aborted, so that readers of committed
        records need not wait for `transaction.timeout.ms`: its records that are not sent yet get a
        `TransactionAbortedError`. For the end of a transaction it waits `max.block.ms` at most;
        what became of a commit under way `finish_transaction` tells, also after the close.
        """
        engine = self._engine
        if engine.closed_error is not None:
            return
        try:
            async with asyncio.timeout(timeout):
                if timeout != 0 and engine.abort_open():
                    self._end_lines(TransactionAbortedError("not sent: the producer was closed"))
                while self._lines:
                    await self._serve_lines()
                engine.begin_close()
                await self._until(lambda: not engine.accumulator.incomplete)
                async with asyncio.timeout_at(self._max_block()):
                    await self._until(engine.is_settled)
        except TimeoutError:
            pass
        finally:
            engine.begin_close()
            self._end_lines(ClosedProducerError("the producer was closed"))
            engine.end_close()
            self._driver.stop()
            await asyncio.gather(*self._pumps, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_leaving = kind is not None and not issubclass(kind, Exception)
        await self.close(0 if is_leaving else None)

    # -- the long way of a record -------------------------------------------------------------

    def _send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> tuple[Outcome, int]:
        engine = self._engine
        engine.check_open()
        wall_s = engine.wall()
        prepared = None
        try:
            prepared = engine.prepare(record)
            topic = prepared.record.topic
            placed: tuple[Outcome, int] | None = None
            if topic not in self._lines:
                placed = self._place(prepared, wall_s, granted=0)
            if placed is None:
                placed = self._get_in_line(prepared, wall_s), 0
        except ClosedProducerError:
            raise
        except TailraceError as error:
            refused = engine.refuse(prepared.record if prepared else record, error)
            if on_delivery is not None:
                self._driver.call_back(refused, 0, on_delivery)
            return refused, 0
        self._placed(*placed, on_delivery)
        self._set_off()
        return placed

    def _place(
        self, prepared: Prepared, wall_s: float, *, granted: int
    ) -> tuple[ProducerBatch, int] | None:
        """Put the record into a batch if that is possible now; then `_set_off` is due."""
        engine = self._engine
        record = prepared.record
        count = engine.metadata.partition_count(record.topic)
        if count is None or (record.partition or 0) >= count:
            return None
        partition = engine.placement.choose(prepared, count)
        with engine.lock:
            now = self._driver.loop.time()
            return engine.append(prepared, partition, now=now, wall_s=wall_s, granted=granted)

    def _set_off(self) -> None:
        """Send what a record has made ready, now that all who want to hear of it are noted."""
        with self._engine.lock:
            if self._engine.should_move():
                self._driver.move()
            else:
                self._driver.noticed()

    def _get_in_line(self, prepared: Prepared, wall_s: float) -> Queued:
        topic = prepared.record.topic
        if self._engine.transactions is not None:
            self._engine.transactions.may_append(TopicPartition(topic, NO_PARTITION))
        if self._line_bytes + prepared.size > self._engine.config.buffer_memory:
            raise BufferExhaustedError(
                f"buffer.memory is full, and {self._line_bytes} bytes wait in line for it: await "
                "receipts, flush() or send_many() before you send more, or raise buffer.memory"
            )
        queued = Queued(prepared, self._driver, wall_s=wall_s, deadline=self._max_block())
        self._line_bytes += prepared.size
        line = self._lines.get(topic)
        if line is None:
            self._lines[topic] = deque((queued,))
            pump = self._driver.loop.create_task(self._pump(topic), name=f"line-of-{topic}")
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)
        else:
            line.append(queued)
        return queued

    async def _serve_lines(self) -> None:
        """Wait until all that is in line now is in a batch, or has failed."""
        if self._pumps:
            await asyncio.wait(self._pumps)

    def _end_lines(self, error: Exception) -> None:
        """Fail all that is in line."""
        for pump in self._pumps:
            pump.cancel()
        lines, self._lines = self._lines, {}
        self._line_bytes = 0
        for line in lines.values():
            for queued in line:
                self._end_queued(queued, error)

    async def _pump(self, topic: str) -> None:
        """Serve the line of a topic until it is empty."""
        line = self._lines[topic]
        try:
            while line:
                queued = line[0]
                try:
                    await self._serve(queued)
                except TailraceError as error:
                    self._end_queued(queued, error)
                except asyncio.CancelledError as error:
                    # Unless the line was ended, the loop ends, or a partitioner has raised it.
                    for each in line if self._lines.get(topic) is line else ():
                        self._end_queued(each, _unserved(each, error))
                        self._line_bytes -= each.prepared.size
                    raise
                except BaseException as error:  # noqa: BLE001 - nobody awaits this task
                    # A partitioner has raised SystemExit or the like.
                    self._end_queued(queued, _unserved(queued, error))
                line.popleft()
                self._line_bytes -= queued.prepared.size
        finally:
            if self._lines.get(topic) is line:
                del self._lines[topic]

    async def _serve(self, queued: Queued) -> None:
        prepared, record, granted = queued.prepared, queued.prepared.record, 0
        try:
            while True:
                await self._wait_for_topic(record, queued.deadline)
                placed = self._place(prepared, queued.wall_s, granted=granted)
                if placed is not None:
                    break
                if not granted:
                    size = self._engine.accumulator.supply.memory_for(prepared.size)
                    granted = await self._wait_for_memory(size, queued.deadline)
        except BaseException:
            if granted:
                self._engine.pool.deallocate(granted)
            raise
        self._join(queued, *placed)

    def _join(self, queued: Queued, batch: ProducerBatch, index: int) -> None:
        """The record is in a batch now, and ends with it."""
        queued.batch, queued.index, queued.partition = batch, index, batch.partition
        batch.is_forgotten |= queued.is_forgotten

        def finish() -> None:
            ended = queued.finish()
            self._engine.sender.calls += (each.run_callbacks for each in ended if each.callbacks)

        batch.add_watcher(finish)
        if queued.watchers:
            self._engine.hurry(batch)
        self._set_off()

    def _end_queued(self, queued: Queued, error: Exception) -> None:
        queued.failure = error
        self._engine.note_refused(queued.partition.topic, error)
        queued.finish()
        queued.run_callbacks()

    async def _wait_for_topic(self, record: ProducerRecord, deadline: float) -> None:
        engine = self._engine
        topic, partition = record.topic, record.partition
        started = self._driver.loop.time()

        def is_known() -> bool:
            engine.check_topic(topic)
            count = engine.metadata.partition_count(topic)
            if count is None or (partition or 0) < count:
                return count is not None
            engine.metadata.request_topic(topic)
            self._driver.noticed()
            return False

        engine.metadata.add_topic(topic, started)
        if is_known():
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._until(is_known)
        except TimeoutError:
            waited = self._driver.loop.time() - started
            raise MetadataTimeoutError(why_no_topic(engine, record, waited)) from None

    async def _wait_for_memory(self, size: int, deadline: float) -> int:
        engine = self._engine
        started = self._driver.loop.time()
        answers: list[Exception | None] = []
        waiter = engine.pool.wait(size, answers.append)
        engine.accumulator.hurry_all()
        try:
            async with asyncio.timeout_at(deadline):
                await self._until(lambda: bool(answers))
        except TimeoutError:
            # Granted in the last instant, it is as good as in time.
            if engine.pool.cancel(waiter):
                engine.metrics.buffer_exhausted_total += 1
                waited = self._driver.loop.time() - started
                raise BufferExhaustedError(why_no_memory(engine, waited)) from None
        except BaseException:
            if not engine.pool.cancel(waiter) and answers == [None]:
                engine.pool.deallocate(size)
            raise
        engine.metrics.bufferpool_wait_s += self._driver.loop.time() - started
        if answers[0] is not None:
            raise answers[0]
        return size

    def _max_block(self) -> float:
        return self._driver.loop.time() + self._engine.config.max_block_ms / 1000

    async def _until(self, is_over: Callable[[], bool]) -> None:
        """Give way until `is_over()`, looked at after each turn."""
        self._driver.stirred()
        while not is_over():
            await self._driver.turned()

    def _dropped(self) -> None:
        # A finalizer runs between any two steps, of any thread. Without its loop, a socket cannot
        # be taken off it, and is closed when it is collected.
        with suppress(RuntimeError):
            self._driver.loop.call_soon_threadsafe(self._driver.abandon)


def _unserved(queued: Queued, error: BaseException) -> RejectedRecordError:
    # By its class alone: the text of an exception is code of the program's as well.
    found = RejectedRecordError(
        f"{queued.partition.topic}: choosing a partition failed: {type(error).__name__}"
    )
    found.__cause__ = error
    return found
