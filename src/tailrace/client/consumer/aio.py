"""`AsyncConsumer`: reads records on an event loop, without a thread.

async with AsyncConsumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
    consumer.subscribe("orders")
    async for record in consumer:
        print(record.offset, record.value)
"""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from tailrace.client.consumer.config import parse_consumer_config
from tailrace.client.consumer.consumer import CLOSE_S
from tailrace.client.consumer.engine import ConsumerEngine
from tailrace.client.consumer.errors import ClosedConsumerError, WakeupError
from tailrace.client.consumer.fetched import Deserializer
from tailrace.client.consumer.metrics import OnMetrics
from tailrace.client.consumer.reading_calls import ReadingCalls
from tailrace.client.consumer.records import ConsumerRecord
from tailrace.client.drive.loop import LoopDriver
from tailrace.client.drive.operation import AwaitingFace
from tailrace.client.drive.steps import Steps
from tailrace.client.interval_call import check_on_metrics
from tailrace.client.pending import T
from tailrace.runtime.system import Runtime, system_runtime

if TYPE_CHECKING:
    from tailrace.client.keywords import ConsumerSettings


class _Loop:
    """One `async for`: while it lives, the program is at work on the record in hand."""

    def __init__(self, consumer: "AsyncConsumer") -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, ConsumerRecord]:
        return self._consumer.__anext__()


class AsyncConsumer(AwaitingFace, ReadingCalls):
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
        **more_settings: "Unpack[ConsumerSettings]",
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
            wake=self._driver.wake,
        )
        self._set_up(
            engine,
            clock=self._driver.loop.time,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_metrics=on_metrics,
        )
        self._driver.start(engine)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """See `Consumer.__iter__`."""
        self._engine.check_open()
        # An object of its own: that it is alive says that the `async for` has not ended.
        loop = _Loop(self)
        self._handling.begin_loop(loop)
        return loop

    async def __anext__(self) -> ConsumerRecord:
        """The next record; waits for it."""
        while (record := self._handling.hand_out(self._clock())) is None:
            try:
                await self._read(self._fill_ahead())
            except (WakeupError, ClosedConsumerError) as error:
                if not self._is_not_end(error):
                    raise StopAsyncIteration from None
        return record

    # -- ending --------------------------------------------------------------------------------

    async def close(self, timeout: float = CLOSE_S) -> None:
        """See `Consumer.close`."""
        await self._close(timeout, is_over=None)

    def wakeup(self) -> None:
        """See `Consumer.wakeup`."""
        self._engine.wakeup()
        self._driver.ring()

    async def _close(self, timeout: float, *, is_over: bool | None) -> None:
        """Close; `is_over` says whether the last records are handled, None: find out."""
        deadline = self._deadline(timeout)
        if self._close_later(deadline):
            return
        has_ended = True
        try:
            has_ended = await self._run(self._close_steps(deadline, is_over=is_over))
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

    # -- internal ------------------------------------------------------------------------------

    def _has_ended(self, reader: object) -> bool:
        assert isinstance(reader, asyncio.Future)
        if reader is asyncio.current_task(self._driver.loop):
            return True
        # `exception()` would count as retrieving it, and asyncio would not report it.
        return reader.done() and not reader.cancelled() and reader._exception is None

    def _woken(self) -> None:
        self._driver.wake()

    def _caller(self) -> object:
        return asyncio.current_task()

    async def _read(self, steps: Steps[T]) -> T:
        with self._reading():
            return await self._run(steps)

    async def _run(self, steps: Steps[T]) -> T:
        """Run a call, and then a `close` that a hook has called meanwhile."""
        try:
            return await self._driver.run(steps)
        finally:
            close_by = self._engine.close_by
            if close_by is not None and self._closer is None:
                await self._close(max(0.0, close_by - self._clock()), is_over=None)
