"""`LoopWaiting`: how the receipts of an `AsyncProducer` are awaited."""

import asyncio
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING

from tailrace.client.producer.outcome import DeliveryCallback, DeliveryOutcome

if TYPE_CHECKING:
    from tailrace.client.drive.loop import LoopDriver
    from tailrace.client.producer.engine import Engine


class LoopWaiting:
    """Waits on the event loop of the producer's driver."""

    def __init__(self, driver: "LoopDriver") -> None:
        self._driver = driver
        self.engine: Engine

    def wait(self, outcome: DeliveryOutcome, timeout_s: float | None) -> bool:  # noqa: ARG002
        """Always raise TypeError: blocking here would keep the loop from getting the outcome."""
        raise TypeError("a receipt of AsyncProducer has no outcome yet: await it")

    def call_back(self, outcome: DeliveryOutcome, index: int, callback: DeliveryCallback) -> None:
        """Have the callback called by the loop."""
        if outcome.is_done:
            self._driver.loop.call_soon(outcome.tell, index, callback)
        else:
            outcome.add_callback(index, callback)

    def awaiting(self, outcome: DeliveryOutcome) -> Generator[object, None, None]:
        """Suspend the task until the outcome is there."""
        future = self._driver.loop.create_future()
        wake = partial(_wake, future)
        with self.engine.lock:
            outcome.add_watcher(wake)
            self.engine.hurry(outcome)
        self._driver.wake()
        try:
            yield from future
        finally:
            if not outcome.is_done:
                with self.engine.lock:
                    outcome.remove_watcher(wake)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
