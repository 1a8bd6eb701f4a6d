"""`LoopWaits`: how a coroutine of `AsyncProducer` waits for metadata and for memory."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from tailrace.client.listings import Listing
from tailrace.client.producer.errors import BufferExhaustedError
from tailrace.client.producer.intake.record import ProducerRecord
from tailrace.client.producer.waiting.explanations import why_no_memory
from tailrace.client.producer.waiting.topic_wait import TopicWait, listed_in

if TYPE_CHECKING:
    from tailrace.client.producer.engine import Engine
    from tailrace.client.producer.waiting.loop_driver import LoopDriver
    from tailrace.client.producer.waiting.queued_record import QueuedRecord


class LoopWaits:
    """The waits of one producer; deadlines are in the loop's time."""

    def __init__(self, engine: "Engine", driver: "LoopDriver") -> None:
        self._engine = engine
        self._driver = driver

    def max_block(self) -> float:
        """The loop's time `max.block.ms` from now."""
        return self._driver.loop.time() + self._engine.config.max_block_ms / 1000

    async def wait_for_topic(
        self, record: ProducerRecord, deadline: float, queued: "QueuedRecord | None" = None
    ) -> bool:
        """Wait until the topic's metadata is known and has the record's partition.

        Returns False if `queued` failed meanwhile, or left the line because it is not awaited.
        """
        loop = self._driver.loop
        request = None if queued is None else queued.request
        wait = TopicWait(self._engine, record, started=loop.time(), request=request)

        def is_over() -> bool:
            if queued is not None and queued.is_done:
                return True
            if wait.is_over():
                return True
            self._driver.noticed()
            return False

        if not is_over():
            try:
                async with asyncio.timeout_at(deadline):
                    await self._driver.until(is_over)
            except TimeoutError:
                raise wait.timed_out(loop.time()) from None
        return queued is None or not queued.is_done

    async def listed(self, topics: list[str] | None, deadline: float) -> Listing:
        """These topics, or all, with their partitions."""
        pending = self._engine.sender.listings.ask(topics)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._driver.until(lambda: pending.is_done)
        finally:
            pending.is_abandoned = True
        return listed_in(self._engine, pending)

    async def wait_for_memory(
        self, size: int, deadline: float, queued: "QueuedRecord | None" = None
    ) -> int:
        """Wait for `size` bytes of the pool and take them; returns `size`.

        Returns 0 and takes nothing if `queued` failed meanwhile.
        """
        engine = self._engine
        started = self._driver.loop.time()
        answers: list[Exception | None] = []
        waiter = engine.pool.wait(size, answers.append)
        engine.accumulator.hurry_all()
        try:
            async with asyncio.timeout_at(deadline):
                await self._driver.until(
                    lambda: bool(answers) or (queued is not None and queued.is_done)
                )
        except TimeoutError:
            # If the pool granted the memory just before the timeout, use it.
            if engine.pool.cancel(waiter):
                engine.metrics.buffer_exhausted_total += 1
                waited = self._driver.loop.time() - started
                raise BufferExhaustedError(why_no_memory(engine, waited)) from None
        except BaseException:
            if not engine.pool.cancel(waiter) and answers == [None]:
                engine.pool.deallocate(size)
            raise
        engine.metrics.bufferpool_wait_s += self._driver.loop.time() - started
        if not answers and engine.pool.cancel(waiter):
            return 0
        if answers[0] is not None:
            raise answers[0]
        return size
