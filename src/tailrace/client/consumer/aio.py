"""`AsyncConsumer`: reads records on an event loop, without a thread.

async with AsyncConsumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
    consumer.subscribe("orders")
    async for record in consumer:
        print(record.offset, record.value)
"""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tailrace.client.consumer.arguments import Partitions
from tailrace.client.consumer.base_consumer import BaseConsumer
from tailrace.client.consumer.config import parse_consumer_config
from tailrace.client.consumer.consumer import CLOSE_S
from tailrace.client.consumer.engine import ConsumerEngine
from tailrace.client.consumer.errors import ClosedConsumerError, WakeupError
from tailrace.client.consumer.metrics import OnMetrics
from tailrace.client.consumer.records import ConsumerRecord, OffsetAndTimestamp
from tailrace.client.consumer.rows import Deserializer
from tailrace.client.consumer.steps import Call, Steps
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.client.interval_call import check_on_metrics
from tailrace.client.listings import PartitionInfo
from tailrace.client.pending import T
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.runtime.system import Runtime, system_runtime

if TYPE_CHECKING:
    import pyarrow as pa


class LoopDriver:
    """Runs a consumer's I/O on the event loop on which it was created."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._turn_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turned: asyncio.Future[None] | None = None
        self.is_over = False
        self._engine: ConsumerEngine

    def start(self, engine: ConsumerEngine) -> None:
        """Set the engine, and schedule the first turn."""
        self._engine = engine
        self.stirred()

    def stirred(self) -> None:
        """Schedule a turn: something has happened."""
        # A task that is collected after its loop was closed runs its `finally` blocks, which may
        # come here; the closed loop takes no more calls.
        if self._turn_handle is None and not self.loop.is_closed() and not self.is_over:
            self._turn_handle = self.loop.call_soon(self._turn)

    def move(self) -> None:
        """Take in what has arrived and send what is due, without waiting."""
        if not self.is_over:
            self._poll()
            self.stirred()

    async def until(self, is_done: Callable[[], bool], deadline: float) -> bool:
        """Wait until `is_done()`, which is checked after each turn; False at the deadline."""
        loop = self.loop
        while not is_done():
            left = deadline - loop.time()
            if self.is_over or left <= 0:
                return False
            if self._turned is None:
                self._turned = loop.create_future()
            turned = asyncio.shield(self._turned)
            timer = loop.call_at(deadline, self.stirred) if deadline < inf else None
            try:
                await turned
            finally:
                if timer is not None:
                    timer.cancel()
        return True

    def stop(self) -> None:
        """End the I/O; idempotent."""
        if not self.is_over:
            self.is_over = True
            for handle in (self._turn_handle, self._timer):
                if handle is not None:
                    handle.cancel()
            self._engine.end_close()
            self._end_turn()

    def _poll(self) -> None:
        try:
            self._engine.poll(self.loop.time())
        except BaseException as error:
            self.is_over = True
            self._engine.give_up(error)
            self._end_turn()
            raise

    def _turn(self) -> None:
        self._turn_handle = None
        if self.is_over:
            self._end_turn()
            return
        with self._engine.lock:
            self._poll()
            now = self.loop.time()
            deadline = self._engine.next_deadline(now)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if deadline == inf else self.loop.call_at(deadline, self.stirred)
        self._end_turn()

    def _end_turn(self) -> None:
        turned, self._turned = self._turned, None
        if turned is not None and not turned.done():
            turned.set_result(None)


class _Loop:
    """One `async for`: while it lives, the program is at work on the record in hand."""

    def __init__(self, consumer: "AsyncConsumer") -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, ConsumerRecord]:
        return self._consumer.__anext__()


class AsyncConsumer(BaseConsumer):
    """Reads records of a Kafka cluster from the event loop on which it is created.

    The same as `Consumer`, except that the methods that wait are coroutines, iteration is
    `async for`, and hooks may be coroutine functions. It has no thread: while no task of the loop
    runs for long, it fetches ahead and keeps the member alive in its group.

    Raises:
        ConfigError: unknown or contradictory settings, all of them at once.
        TypeError: `settings` is no mapping of names to values.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        on_metrics: OnMetrics | None = None,
        runtime: Runtime | None = None,
        **more_settings: object,
    ) -> None:
        check_on_metrics(on_metrics)
        config = parse_consumer_config(settings, more_settings)
        outside = runtime or system_runtime()
        self._driver = LoopDriver()
        engine = ConsumerEngine(
            config,
            network=outside.network,
            wall=time.time if runtime is None else lambda: outside.clock.now_ms() / 1000,
            chance=outside.chance,
            stirred=self._driver.stirred,
        )
        self._settle(
            engine,
            clock=self._driver.loop.time,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_metrics=on_metrics,
        )
        self._driver.start(engine)

    # -- reading ------------------------------------------------------------------------------

    async def poll(self, timeout: float | None = 1.0) -> list[ConsumerRecord]:
        """See `Consumer.poll`."""
        with self._reading(asyncio.current_task()):
            deadline = self._deadline(timeout, is_poll=True)
            count = self._engine.config.max_poll_records
            return await self._run(self._polls.poll(deadline, count))

    async def poll_columns(
        self, timeout: float | None = 1.0, *, columns: Sequence[str] | None = None
    ) -> "pa.RecordBatch":
        """See `Consumer.poll_columns`."""
        with self._reading(asyncio.current_task()):
            deadline = self._deadline(timeout, is_poll=True)
            return await self._run(self._polls.columns(deadline, columns))

    async def to_arrow(
        self,
        timeout: float | None = None,
        *,
        columns: Sequence[str] | None = None,
        bytes_max: int | None = None,
    ) -> "pa.Table":
        """See `Consumer.to_arrow`."""
        with self._reading(asyncio.current_task()):
            deadline = self._deadline(timeout, is_poll=True)
            return await self._run(self._polls.table(deadline, columns, bytes_max=bytes_max))

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """See `Consumer.__iter__`."""
        self._engine.check_open()
        loop = _Loop(self)
        self._handling.begin_loop(loop)
        return loop

    async def __anext__(self) -> ConsumerRecord:
        """The next record; waits for it."""
        while (record := self._handling.hand_out(self._clock())) is None:
            try:
                with self._reading(asyncio.current_task()):
                    await self._run(self._polls.look_ahead(self._engine.config.max_poll_records))
            except (WakeupError, ClosedConsumerError) as error:
                if not self._is_not_end(error):
                    raise StopAsyncIteration from None
        return record

    # -- positions and offsets ----------------------------------------------------------------

    async def position(
        self, partition: TopicPartition | tuple[str, int], timeout: float | None = None
    ) -> int:
        """See `Consumer.position`."""
        return await self._run(self._offsets.position(partition, self._deadline(timeout)))

    async def seek_to_time(
        self, timestamp_ms: int, *partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """See `Consumer.seek_to_time`."""
        deadline = self._deadline(timeout)
        return await self._run(self._offsets.seek_to_time(timestamp_ms, partitions, deadline))

    async def beginning_offsets(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """See `Consumer.beginning_offsets`."""
        deadline = self._deadline(timeout)
        return await self._run(self._offsets.ends(partitions, SpecialTimestamp.EARLIEST, deadline))

    async def end_offsets(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """See `Consumer.end_offsets`."""
        deadline = self._deadline(timeout)
        return await self._run(self._offsets.ends(partitions, SpecialTimestamp.LATEST, deadline))

    async def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """See `Consumer.offsets_for_times`."""
        return await self._run(self._offsets.offsets(timestamps, self._deadline(timeout)))

    async def lag(self, timeout: float | None = None) -> dict[TopicPartition, int]:
        """See `Consumer.lag`."""
        return await self._run(self._offsets.lag(self._deadline(timeout)))

    async def commit(self, offsets: object = None, *, timeout: float | None = None) -> None:
        """See `Consumer.commit`."""
        await self._run(self._group.commit(offsets, self._deadline(timeout)))

    async def committed(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See `Consumer.committed`."""
        return await self._run(self._group.committed(partitions, self._deadline(timeout)))

    async def unsubscribe(self, timeout: float | None = None) -> None:
        """See `Consumer.unsubscribe`."""
        with self._engine.lock:
            self._settle_last()
        with self._reading(asyncio.current_task()):
            await self._run(self._group.unsubscribe(self._deadline(timeout)))

    # -- topics -------------------------------------------------------------------------------

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """See `Consumer.partitions_for`."""
        return await self._run(self._offsets.partitions_for(topic, self._deadline(timeout)))

    async def list_topics(
        self, timeout: float | None = None
    ) -> Mapping[str, tuple[PartitionInfo, ...]]:
        """See `Consumer.list_topics`."""
        return await self._run(self._offsets.list_topics(self._deadline(timeout)))

    # -- ending -------------------------------------------------------------------------------

    async def close(self, timeout: float = CLOSE_S) -> None:
        """See `Consumer.close`."""
        await self._close(timeout, is_over=None)

    def wakeup(self) -> None:
        """See `Consumer.wakeup`."""
        self._engine.wakeup()
        with suppress(RuntimeError):  # the loop is closed
            self._driver.loop.call_soon_threadsafe(self._driver.stirred)

    async def _close(self, timeout: float, *, is_over: bool | None) -> None:
        """Close; `is_over` says whether the last records are handled, None: find out."""
        deadline = self._deadline(timeout)
        has_ended = True
        try:
            with self._engine.lock:
                self._settle_last(is_over=is_over)
            closer = asyncio.current_task()
            has_ended = await self._run(self._group.close(deadline, closer, self._woken))
        finally:
            if has_ended:
                with self._engine.lock:
                    self._engine.begin_close()
                    self._driver.stop()

    async def __aenter__(self) -> Self:
        """The consumer itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an exception, the record in hand or the last poll is not committed."""
        await self._close(CLOSE_S, is_over=kind is None)

    # -- internal -----------------------------------------------------------------------------

    def _has_ended(self, reader: object) -> bool:
        assert isinstance(reader, asyncio.Future)
        if reader is asyncio.current_task(self._driver.loop):
            return True
        # `exception()` would count as retrieving it, and asyncio would not report it.
        return reader.done() and not reader.cancelled() and reader._exception is None

    def _woken(self) -> None:
        self._driver.stirred()

    async def _run(self, steps: Steps[T]) -> T:
        """Run an operation: each part of it under the lock, and the waits without."""
        lock, driver = self._engine.lock, self._driver
        try:
            sent: Any = None
            failure: BaseException | None = None
            while True:
                with lock:
                    request = steps.send(sent) if failure is None else steps.throw(failure)
                sent = failure = None
                if isinstance(request, Call):
                    try:
                        sent = request.function(*request.arguments)
                        if inspect.isawaitable(sent):
                            sent = await sent
                    except BaseException as error:  # noqa: BLE001 - the operation handles it
                        failure = error
                else:
                    driver.move()
                    sent = await driver.until(request.is_done, request.deadline)
        except StopIteration as end:
            if self._engine.fetches.is_stirred:
                driver.stirred()
            result: T = end.value
            return result
        finally:
            steps.close()
