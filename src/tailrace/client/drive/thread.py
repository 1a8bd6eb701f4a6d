"""`ThreadDriver`: runs a client's I/O on the threads that call it, and on a thread of its own.

Calling threads do the I/O: a `send` that fills a batch, and all callers that wait. So a waiting
caller is woken by the socket itself, and nothing waits until another thread gets the interpreter.
While no caller does it, the client's own thread does: it sends what lingers, fetches ahead, and
keeps the member alive in its group. It also makes the calls of user code.

One thread at a time, the leader, waits in the kernel for all connections. Other threads wait for
the leader, and one of them takes over when it leaves.

A client that only asks has no own thread (`ClusterReader`, `Admin`): its connections are served
while a call waits.

Invariant: some thread leads, or the own thread checks after `TICK_S` at the latest.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, Protocol

from tailrace.client.drive.engine import Engine
from tailrace.client.drive.locks import disable_in_forks, is_owned, take_again
from tailrace.client.drive.steps import CallUser, Steps, T, Until
from tailrace.client.user_code import call_user_code
from tailrace.runtime.interrupts import uninterrupted
from tailrace.runtime.network import Connector
from tailrace.runtime.polling import Events

log = logging.getLogger(__name__)

TICK_S = 0.005
"""Longest time that bytes wait after the last caller has left; short compared to round trips."""

_FAR_S = 3600.0
"""Longest wait in the kernel, which accepts no infinite timeout."""


class WaitingNetwork(Connector, Protocol):
    """A network that one thread at a time waits in; see `PollingNetwork`."""

    def wait(self, timeout_s: float | None) -> Events:
        """Wait for news of a socket, for `wake`, or `timeout_s`; None waits without limit."""
        ...

    def run(self, events: Events) -> None:
        """Call back what `wait` has found."""
        ...

    def wake(self) -> None:
        """Make `wait` return at once; from any thread."""
        ...

    def close(self) -> None:
        """Release its file descriptors."""
        ...


class ThreadDriver:
    """Drives one `Engine`, whose lock it shares."""

    def __init__(
        self, network: WaitingNetwork, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._network = network
        self.clock = clock
        """Seconds of all deadlines."""
        self._is_led = False
        self._leader = 0
        """The ident of the leading thread; valid while `_is_led`."""
        self._is_parked = False
        """The own thread waits in the kernel, until `_planned` at the latest."""
        self._planned = inf
        self._moves = 0
        """Number of times that a caller did I/O; while it grows, the own thread is not needed."""
        self.is_over = False
        """The client has ended, and there is no more I/O."""
        self.has_made_calls = False
        """The own thread has made its last call of user code."""
        self._is_abandoned = False
        self._is_forked = False
        self._caller: int | None = None
        """The ident of the thread that is in a call of user code."""
        self._engine: Engine

    def start(self, engine: Engine, *, has_thread: bool = True) -> None:
        """Start the own thread; a daemon, so it does not keep the process alive.

        Without it, nothing happens between calls, and no calls of user code are made: for clients
        that only ask, thousands of which may come and go in a process.
        """
        self._engine = engine
        self._has_thread = has_thread
        self._followers = threading.Condition(engine.lock)
        self._tick = threading.Condition(engine.lock)
        self._thread = threading.Thread(
            target=self._run, name=f"tailrace-{engine.client_id}", daemon=True
        )
        if has_thread:
            self._thread.start()
        disable_in_forks(self)

    # -- for callers, before they take the lock -----------------------------------------------

    @property
    def is_interrupted(self) -> bool:
        """Whether this thread was interrupted inside a call of the same client.

        It then holds the lock, which is reentrant and would not stop it, or is the leader, for
        which it would wait for ever.
        """
        is_leader = self._is_led and self._leader == threading.get_ident()
        return is_leader or is_owned(self._engine.lock)

    def check_not_interrupted(self) -> None:
        """Raise the engine's `reentrant_error` if this thread was interrupted in another call."""
        if self.is_interrupted:
            raise self._engine.reentrant_error()

    def run(self, steps: Steps[T]) -> T:
        """Run a call, and return its result: waits under the lock, user code without it.

        Raises:
            ReentrantCallError, ConcurrentCallError: by a signal handler, see `reentrant_error`.
        """
        self.check_not_interrupted()
        with self._engine.lock:
            return self.run_locked(steps)

    def run_locked(self, steps: Steps[T]) -> T:
        """Do `run`, for a caller who holds the lock."""
        result = self._take_steps(steps)
        self.moved()
        return result

    def _take_steps(self, steps: Steps[T]) -> T:
        sent: Any = None
        failure: BaseException | None = None
        try:
            while True:
                request = steps.send(sent) if failure is None else steps.throw(failure)
                sent = failure = None
                try:
                    if isinstance(request, CallUser):
                        sent = self._without_lock(request)
                    elif isinstance(request, Until):
                        self.move()
                        sent = self.until(*request)
                except BaseException as error:  # noqa: BLE001 - the call handles it
                    failure = error
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()

    def _without_lock(self, request: CallUser) -> object:
        lock = self._engine.lock
        try:
            lock.release()
            return request.function(*request.arguments)
        finally:
            take_again(lock)

    # -- for callers, who hold the lock -------------------------------------------------------

    def move(self) -> None:
        """Send what may be sent and read what has arrived, without waiting."""
        if not self.is_over:
            self._moves += 1
            self._turn(self._network.wait(0))
            self.noticed()

    def moved(self) -> None:
        """Have sent what a call has left to send, now or by the own thread."""
        if self._engine.should_move():
            self.move()
        else:
            self.noticed()

    def noticed(self) -> None:
        """Wake the own thread if a new deadline is earlier than the one it waits for."""
        if self._is_parked and self._engine.next_deadline(self.clock()) < self._planned:
            self._network.wake()

    def until(self, is_done: Callable[[], bool], deadline: float) -> bool:
        """Do I/O until `is_done()`, and return True; `deadline` is in monotonic seconds.

        Returns False after the deadline, or if the client ended.
        """
        try:
            while not is_done():
                now = self.clock()
                if self.is_over or now >= deadline:
                    return False
                if not self._is_led:
                    self._moves += 1
                    self._lead(deadline)
                elif self._leader == threading.get_ident():
                    raise self._engine.reentrant_error()
                else:
                    if self._is_parked:
                        self._network.wake()
                    self._follow(min(deadline - now, _FAR_S))
            return True
        finally:
            self._followers.notify()

    def wake(self) -> None:
        """Have a waiting thread look again: something was changed by another thread."""
        self._followers.notify_all()
        if self._is_led:
            self._network.wake()

    def stop(self) -> None:
        """End the engine, and the own thread after the calls of user code; idempotent."""
        if self.is_over:
            return
        try:
            self._engine.end_close()
        except BaseException as error:
            self.give_up(error)
            raise
        self._over()

    def give_up(self, error: BaseException) -> None:
        """End everything, after a bug of ours or an exhausted memory has interrupted a step.

        The engine's state is unknown then.
        """
        self._over()
        self._engine.give_up(error)

    def _over(self) -> None:
        self.is_over = True
        self._tick.notify()
        self._followers.notify_all()
        self._network.wake()
        self._close_unused()

    def _close_unused(self) -> None:
        """Close the network of a client without an own thread, when nobody waits in it."""
        # A thread that waits in it closes it when it leaves: a descriptor must not be closed under
        # a wait.
        if not self._has_thread and not self._is_led:
            self._network.close()

    # -- from anywhere ------------------------------------------------------------------------

    def ring(self) -> None:
        """Have waiting threads look again, without the lock: a signal handler may call it."""
        with suppress(OSError):  # the network may have been closed
            self._network.wake()

    def abandon(self) -> None:
        """Have the own thread end a client that nobody can call; does not wait for that."""
        # A finalizer may run at any point of any thread, the client's own included. So this
        # takes no lock and only sets a flag.
        self._is_abandoned = True
        self.ring()

    def join(self) -> None:
        """Wait until the own thread, the last user of the network, has ended; without the lock.

        Does nothing in a callback, because the own thread runs it.
        """
        is_own = self._thread is threading.current_thread()
        if self._has_thread and not is_own and not self._is_forked:
            self._thread.join()

    def forked(self) -> None:
        """Stop in a forked child: it has no own thread and no leader, and shares the sockets."""
        self.is_over = self._is_forked = True
        self._is_led = self._is_parked = False
        self._engine.forked()

    # -- calls of user code, under the lock ---------------------------------------------------

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have the own thread make a call."""
        self._engine.calls.append(call)
        self._tick.notify()
        self._network.wake()

    def calls_made(self) -> Callable[[], bool]:
        """A predicate for `until`: whether the calls that are due now have been made.

        It is true at once in such a call, which could not wait for itself.
        """
        has_run = self._caller == threading.get_ident() or not (self._engine.calls or self._caller)

        def run() -> None:
            nonlocal has_run
            with self._engine.lock:
                has_run = True
                self._followers.notify_all()
                self._network.wake()

        if not has_run:
            self.call_soon(run)
        return lambda: has_run

    def _make_calls(self) -> None:
        """Make those that are due, without the lock."""
        engine = self._engine
        while engine.calls:
            call = engine.calls.popleft()
            self._caller = threading.get_ident()
            engine.lock.release()
            try:
                call_user_code(call, about="callback")
            finally:
                engine.lock.acquire()
                self._caller = None

    # -- leading ------------------------------------------------------------------------------

    def _turn(self, events: Events) -> None:
        def turn() -> None:
            try:
                self._network.run(events)
                self._engine.poll(self.clock())
            except BaseException as error:
                self.give_up(error)
                raise

        uninterrupted(turn)

    def _lead(self, deadline: float) -> None:
        """Wait in the kernel, without the lock, for an event or a deadline; then do the I/O."""
        now = self.clock()
        self._planned = self._engine.next_deadline(now)
        timeout = max(0.0, min(deadline, self._planned, _FAR_S + now) - now)
        self._leader = threading.get_ident()
        # Ctrl-C is raised at a call; there is none between here and the `try`.
        self._is_led = True
        lock = self._engine.lock
        try:
            lock.release()
            events = self._network.wait(timeout)
            lock.acquire()
        except BaseException:
            take_again(lock)
            raise
        finally:
            self._is_led = False
            if self.is_over:
                self._close_unused()
        if not self.is_over:
            self._turn(events)
        self._followers.notify_all()

    def _follow(self, timeout: float | None = None) -> None:
        """Wait, without the lock, until the leader has done I/O or leaves."""
        try:
            self._followers.wait(timeout)
        except BaseException:
            take_again(self._engine.lock)
            raise

    # -- the own thread -----------------------------------------------------------------------

    def _run(self) -> None:
        engine = self._engine
        with engine.lock:
            try:
                self._work()
            except BaseException as error:
                self.give_up(error)
                log.critical(
                    "%s_thread_failed client_id=%s", engine.kind, engine.client_id, exc_info=error
                )
            self._make_calls()
            # No thread begins to lead any more; one that leads now has been woken and returns soon.
            while self._is_led:
                self._follow()
            self._network.close()
            self._make_calls()
            self.has_made_calls = True

    def _work(self) -> None:
        """Do the I/O while no caller does, and make calls, until the client ends."""
        seen = -1
        while not self.is_over:
            if self._moves != seen or self._is_led:
                seen = self._moves
                self._tick.wait(TICK_S)
            else:
                self._is_parked = True
                self._lead(inf)
                self._is_parked = False
            self._make_calls()
            if self._is_abandoned and self._engine.abandoned(self.clock()):
                self.stop()
