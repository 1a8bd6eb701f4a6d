"""`LoopDriver`: runs a client's I/O on the event loop on which it was created.

    turn     a socket has news, or a deadline has come: the engine is polled, waiting tasks look
             again, and calls of user code are made

Invariant: a turn is planned whenever the engine has a deadline.
"""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

from tailrace.client.drive.engine import Engine
from tailrace.client.drive.locks import disable_in_forks
from tailrace.client.drive.steps import CallUser, Steps, T, Until
from tailrace.client.user_code import call_user_code


class LoopDriver:
    """Drives one `Engine`. All but `ring` and `abandon` must be called on the loop's thread."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = self.loop.time
        """Seconds of all deadlines."""
        self.is_over = False
        """The client has ended, and there is no more I/O."""
        self._is_abandoned = False
        self._turn_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []
        """One for each task that looks again after the next turn."""
        self._engine: Engine

    def start(self, engine: Engine) -> None:
        """Set the engine, and schedule the first turn."""
        self._engine = engine
        self.wake()
        disable_in_forks(self)

    async def run(self, steps: Steps[T]) -> T:
        """Run a call, and return its result: each part under the lock, the waits without it."""
        result = await self._take_steps(steps)
        if self.is_over:
            # A `close` returns after the last calls of user code.
            self._end_turn()
        else:
            with self._engine.lock:
                self.moved()
        return result

    async def _take_steps(self, steps: Steps[T]) -> T:
        lock = self._engine.lock
        sent: Any = None
        failure: BaseException | None = None
        try:
            while True:
                with lock:
                    request = steps.send(sent) if failure is None else steps.throw(failure)
                    sent = failure = None
                    if isinstance(request, Until):
                        self.move()
                try:
                    if isinstance(request, CallUser):
                        sent = request.function(*request.arguments)
                        if inspect.isawaitable(sent):
                            sent = await sent
                    elif isinstance(request, Until):
                        sent = await self.until(*request)
                    else:
                        await asyncio.sleep(0)
                except BaseException as error:  # noqa: BLE001 - the call handles it
                    failure = error
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()

    # -- under the lock -----------------------------------------------------------------------

    def move(self) -> None:
        """Take in what has arrived and send what may be sent, without waiting."""
        if self.is_over:
            return
        self._poll()
        engine = self._engine
        # For the others that wait, since who calls this looks by itself, and for the next poll.
        if self._waiting or engine.calls or not engine.is_done_by_one_poll:
            self.wake()
        else:
            self.noticed()

    def moved(self) -> None:
        """Have sent what a call has left to send, now or by a turn."""
        if self._engine.should_move():
            self.move()
        else:
            self.noticed()

    def noticed(self) -> None:
        """Have a turn in time if a new deadline is earlier than the timer."""
        now = self.loop.time()
        deadline = self._engine.next_deadline(now)
        if self._timer is None or deadline < self._timer.when():
            if deadline <= now:
                self.wake()
            else:
                self._plan(deadline)

    def _plan(self, deadline: float) -> None:
        """Set the timer for the next turn."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if deadline == inf else self.loop.call_at(deadline, self.wake)

    def stop(self) -> None:
        """End the engine, and take no more turns; idempotent."""
        if self.is_over:
            return
        self.is_over = True
        try:
            self._engine.end_close()
        finally:
            self._over()

    def give_up(self, error: BaseException) -> None:
        """End everything, after an interrupted step has left the engine's state unknown."""
        self.is_over = True
        self._engine.give_up(error)
        self._over()

    def _over(self) -> None:
        """Have a last turn, which wakes waiting tasks and makes calls without the lock."""
        if self._timer is not None:
            self._timer.cancel()
        self.wake()

    # -- from anywhere ------------------------------------------------------------------------

    def ring(self) -> None:
        """Have waiting tasks look again; any thread and any signal handler may call it."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self.wake)

    def abandon(self) -> None:
        """End a client that nobody can call any more; does not wait for that."""
        # A finalizer may run at any point of any thread. If the loop is closed, the sockets cannot
        # be removed from it; they are closed when they are collected.
        self._is_abandoned = True
        self.ring()

    def forked(self) -> None:
        """Stop in a forked child: its loop is a copy, and it shares the parent's sockets."""
        self.is_over = True
        self._engine.forked()

    # -- turns --------------------------------------------------------------------------------

    def wake(self) -> None:
        """Schedule a turn: something has happened."""
        # A task that is collected after its loop was closed runs its `finally` blocks, which may
        # come here; the closed loop takes no more calls.
        if self._turn_handle is None and not self.loop.is_closed():
            self._turn_handle = self.loop.call_soon(self._turn)

    def turn(self) -> None:
        """Take a turn now: for a socket that can be read, whose callback the loop has called.

        Of several sockets `wake` reads all in one turn. For a single one that costs two turns of
        the loop more: it says that the socket can be read once more before it has been read.
        """
        if self._turn_handle is not None:
            self._turn_handle.cancel()
        self._turn()

    async def until(self, is_done: Callable[[], bool], deadline: float) -> bool:
        """Wait until `is_done()`, which is checked after each turn, and return True.

        Returns False after the deadline, or if the client ended; `deadline` is in the loop's time.
        """
        loop = self.loop
        while not is_done():
            # A predicate may have asked for something that is to be sent.
            self.noticed()
            if self.is_over or loop.time() >= deadline:
                return False
            # Not one for all tasks: it would need `shield`, and so a second turn of the loop for
            # each answer.
            turned: asyncio.Future[None] = loop.create_future()
            self._waiting.append(turned)
            timer = loop.call_at(deadline, self.wake) if deadline < inf else None
            try:
                await turned
            finally:
                if timer is not None:
                    timer.cancel()
        return True

    def calls_made(self) -> Callable[[], bool]:
        """A predicate for `until`: whether the calls of user code that are due have been made."""
        calls = self._engine.calls
        if not calls or self.is_over:
            return lambda: True
        made: list[bool] = []
        calls.append(lambda: made.append(True))
        return lambda: bool(made)

    def _poll(self) -> None:
        try:
            self._engine.poll(self.loop.time())
        except BaseException as error:
            self.give_up(error)
            raise

    def _turn(self) -> None:
        self._turn_handle = None
        if not self.is_over:
            with self._engine.lock:
                self._poll()
                deadline = self._engine.next_deadline(self.loop.time())
            self._plan(deadline)
        self._end_turn()
        if self._is_abandoned and not self.is_over:
            with self._engine.lock:
                if self._engine.abandoned(self.loop.time()):
                    self.stop()

    def _end_turn(self) -> None:
        """Have waiting tasks look again, and make calls of user code; without the lock."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():  # Else its task was cancelled.
                each.set_result(None)
        calls = self._engine.calls
        # A callback that sends again can make other callbacks due, without end. Those run in the
        # next turn, so that the loop gets to its other work.
        for _ in range(len(calls)):
            call_user_code(calls.popleft(), about="callback")
        if calls:
            self.wake()
