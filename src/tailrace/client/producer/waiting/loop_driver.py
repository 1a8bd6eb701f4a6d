"""`LoopDriver`: runs a producer's I/O on the event loop on which it was created.

Not here: records that wait in line for memory or metadata (`lines`).
"""

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from math import inf

from tailrace.client.producer.engine import Engine
from tailrace.client.producer.errors import ClosedProducerError
from tailrace.client.producer.outcome import DeliveryCallback, DeliveryOutcome
from tailrace.client.producer.user_code import call_user_code


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

    async def until_called(self) -> None:
        """Wait until the callbacks that are due now have run."""
        calls = self._engine.sender.calls
        if calls and not self._is_over:
            called: list[bool] = []
            calls.append(lambda: called.append(True))
            await self.until(lambda: bool(called))

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
