"""`ThreadWaiting`: how the receipts of a `Producer` wait, and who calls their callbacks."""

from collections.abc import Generator
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from tailrace.client.producer.outcome import DeliveryCallback, DeliveryOutcome

if TYPE_CHECKING:
    from tailrace.client.drive.thread import ThreadDriver
    from tailrace.client.producer.engine import Engine


class ThreadWaiting:
    """Waits by the producer's driver."""

    def __init__(self, driver: "ThreadDriver") -> None:
        self._driver = driver
        self.engine: Engine

    def wait(self, outcome: DeliveryOutcome, timeout_s: float | None) -> bool:
        """Do I/O until the outcome is there; return False after `timeout_s`."""
        engine, driver = self.engine, self._driver
        deadline = inf if timeout_s is None else driver.clock() + timeout_s
        driver.check_not_interrupted()
        with engine.lock:
            if outcome.is_done:
                return True
            engine.hurry(outcome)
            if engine.accumulator.ready:
                driver.move()
            in_time = driver.until(lambda: outcome.is_done, deadline)
            if driver.is_over:
                engine.lose(outcome)
            return in_time or outcome.is_done

    def call_back(self, outcome: DeliveryOutcome, index: int, callback: DeliveryCallback) -> None:
        """Have the own thread call the callback; if the outcome is there, call it here at once."""
        with self.engine.lock:
            if not outcome.is_done:
                outcome.add_callback(index, callback)
                return
        outcome.tell(index, callback)

    def call_back_soon(
        self, outcome: DeliveryOutcome, index: int, callback: DeliveryCallback
    ) -> None:
        """Have the own thread call the callback of a record that was refused."""
        with self.engine.lock:
            if not self._driver.has_made_calls:
                self._driver.call_soon(partial(outcome.tell, index, callback))
                return
        outcome.tell(index, callback)

    def awaiting(self, outcome: DeliveryOutcome) -> Generator[object, None, None]:
        """Raise TypeError unless the outcome is there: a `Producer` belongs to no event loop."""
        if not outcome.is_done:
            raise TypeError(
                "a receipt of Producer cannot be awaited: call result(), or use AsyncProducer"
            )
        yield from ()
