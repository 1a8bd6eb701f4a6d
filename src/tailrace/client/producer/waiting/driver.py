"""`ThreadDriver`: runs a producer's I/O on the threads that call it, and on a thread of its own.

Calling threads do the I/O: a `send` that fills a batch, and callers that wait for a receipt, for
memory or in `flush`. So no batch waits until another thread gets the interpreter, and a waiting
caller is woken by the socket itself. The producer's own thread does the I/O while no caller does,
and runs the callbacks.

One thread at a time, the leader, waits in the kernel for all connections. Other threads wait for
the leader, and one of them takes over when it leaves.

Invariant: while requests are in flight or batches wait, some thread leads, or the producer's own
thread checks after `TICK_S` at the latest.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from math import inf

from tailrace.client.producer.engine import Engine
from tailrace.client.producer.errors import ReentrantCallError
from tailrace.client.producer.outcome import DeliveryCallback, DeliveryOutcome
from tailrace.client.producer.user_code import call_user_code
from tailrace.runtime.interrupts import uninterrupted
from tailrace.runtime.polling import Events, PollingNetwork

log = logging.getLogger(__name__)

TICK_S = 0.005
"""Longest time that bytes wait after the last caller has left; short compared to round trips."""

_FAR_S = 3600.0
"""Longest wait in the kernel, which accepts no infinite timeout."""

_REENTRANT = (
    "this thread is in the middle of another call of the same producer, which a signal handler, a "
    "finalizer or a logging handler has interrupted; set a flag in the handler, and call the "
    "producer after the interrupted call has returned"
)


class ThreadDriver:
    """Drives one `Engine`, whose lock it shares."""

    def __init__(self, network: PollingNetwork) -> None:
        self._network = network
        self._is_led = False
        self._leader = 0
        """The ident of the leading thread; valid while `_is_led`."""
        self._is_parked = False
        """The own thread waits in the kernel, until `_planned` at the latest."""
        self._planned = inf
        self._moves = 0
        """Number of times that a caller did I/O; while it grows, the own thread is not needed."""
        self.is_over = False
        """The producer has ended: every receipt has its outcome, and there is no more I/O."""
        self._is_abandoned = False
        self._is_forked = False
        self._has_ended = False
        """The own thread has run its last callback."""
        self._engine: Engine

    def start(self, engine: Engine) -> None:
        """Start the own thread; a daemon, so it does not keep the process alive."""
        self._engine = engine
        self._followers = threading.Condition(engine.lock)
        self._tick = threading.Condition(engine.lock)
        self.calls = _Calls(engine, self._network, tick=self._tick, followers=self._followers)
        self._thread = threading.Thread(
            target=self._run, name=f"tailrace-{engine.config.client_id}", daemon=True
        )
        self._thread.start()

    # -- for callers, before they take the lock -----------------------------------------------

    def check_wait(self) -> None:
        """Do `check_not_interrupted`; raise also if this thread was interrupted while it led.

        Waiting for a leader would never end then, since this thread is the leader.
        """
        check_not_interrupted(self._engine)
        if self._is_led and self._leader == threading.get_ident():
            raise ReentrantCallError(_REENTRANT)

    # -- for callers, who hold the lock -------------------------------------------------------

    def move(self) -> None:
        """Send what may be sent and read what has arrived, without waiting."""
        if self.is_over:
            return
        self._moves += 1
        self._turn(self._network.wait(0) if self._engine.sender.in_flight else [])

    def noticed(self) -> None:
        """Wake the own thread if a new deadline is earlier than the one it waits for."""
        if self._is_parked and self._engine.sender.next_deadline(time.monotonic()) < self._planned:
            self._network.wake()

    def until(self, is_done: Callable[[], bool], deadline: float) -> bool:
        """Do I/O until `is_done()`, and return True; `deadline` is in monotonic seconds.

        Returns False after the deadline, or if the producer ended; then every receipt has its
        outcome.
        """
        self.move()
        return self._until(is_done, deadline)

    def _until(self, is_done: Callable[[], bool], deadline: float) -> bool:
        try:
            while not is_done():
                if self.is_over:
                    return False
                now = time.monotonic()
                if now >= deadline:
                    return False
                if not self._is_led:
                    self._moves += 1
                    self._lead(deadline)
                elif self._leader == threading.get_ident():
                    raise ReentrantCallError(_REENTRANT)
                else:
                    if self._is_parked:
                        self._network.wake()
                    self._follow(min(deadline - now, _FAR_S))
            return True
        finally:
            self._followers.notify()

    def stop(self) -> None:
        """Fail what is left, and end the own thread after the callbacks; idempotent."""
        if self.is_over:
            return
        try:
            self._engine.end_close()
        except BaseException as error:
            self.give_up(error)
            raise
        self.is_over = True
        self._tick.notify()
        self._followers.notify_all()
        if self._is_led:
            self._network.wake()

    def give_up(self, error: BaseException) -> None:
        """End everything, after a bug of ours or an exhausted memory has interrupted a step.

        The producer's state is unknown then.
        """
        self.is_over = True
        self._tick.notify()
        self._followers.notify_all()
        self._network.wake()
        self._engine.give_up(error)

    def forked(self) -> None:
        """Stop in a forked child: it has no own thread and no leader, and shares the sockets."""
        self.is_over = self._is_forked = True
        self._is_led = self._is_parked = False

    def join(self) -> None:
        """Wait until the own thread, the last user of the network, has ended; without the lock.

        Does nothing in a callback, because the own thread runs it.
        """
        if self._thread is not threading.current_thread() and not self._is_forked:
            self._thread.join()

    def abandon(self) -> None:
        """Have the own thread deliver what is left, and then end; does not wait for that."""
        # A finalizer may run at any point of any thread, the producer's own included. So this
        # takes no lock and only sets a flag.
        self._is_abandoned = True
        self._network.wake()

    # -- leading ------------------------------------------------------------------------------

    def _turn(self, events: Events) -> None:
        def turn() -> None:
            try:
                self._network.run(events)
                self._engine.sender.poll(time.monotonic())
            except BaseException as error:
                self.give_up(error)
                raise

        uninterrupted(turn)

    def _lead(self, deadline: float) -> None:
        """Wait in the kernel, without the lock, for an event or a deadline; then do the I/O."""
        now = time.monotonic()
        self._planned = self._engine.sender.next_deadline(now)
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
            _take_again(self._engine.lock)
            raise
        finally:
            self._is_led = False
        if not self.is_over:
            self._turn(events)
        self._followers.notify_all()

    def _follow(self, timeout: float | None = None) -> None:
        """Wait, without the lock, until the leader has done I/O or leaves."""
        try:
            self._followers.wait(timeout)
        except BaseException:
            _take_again(self._engine.lock)
            raise

    # -- the own thread -----------------------------------------------------------------------

    def _run(self) -> None:
        with self._engine.lock:
            try:
                self._work()
            except BaseException as error:
                self.give_up(error)
                name = self._engine.config.client_id
                log.critical("producer_thread_failed client_id=%s", name, exc_info=error)
            self.calls.make()
            # No thread begins to lead any more; one that leads now has been woken and returns soon.
            while self._is_led:
                self._follow()
            self._network.close()
            self.calls.make()
            self._has_ended = True

    def _work(self) -> None:
        """Do the I/O while no caller does, and run callbacks, until the producer ends."""
        engine = self._engine
        seen, end_by = -1, inf
        while not self.is_over:
            if self._moves != seen or self._is_led:
                seen = self._moves
                self._tick.wait(TICK_S)
            else:
                self._is_parked = True
                self._lead(end_by)
                self._is_parked = False
            self.calls.make()
            if self._is_abandoned:
                if engine.begin_close():
                    engine.abort_open()
                    config = engine.config
                    limit_ms = config.delivery_timeout_ms + config.max_block_ms
                    end_by = time.monotonic() + limit_ms / 1000
                is_idle = not engine.accumulator.incomplete and engine.is_settled()
                if is_idle and engine.abort_open():
                    is_idle = False
                    self.move()
                if is_idle or time.monotonic() >= end_by:
                    self.stop()

    # -- Waiting, for receipts ----------------------------------------------------------------

    def wait(self, outcome: DeliveryOutcome, timeout_s: float | None) -> bool:
        """Do I/O until the outcome is there; return False after `timeout_s`."""
        deadline = inf if timeout_s is None else time.monotonic() + timeout_s
        self.check_wait()
        with self._engine.lock:
            if outcome.is_done:
                return True
            self._engine.hurry(outcome)
            if self._engine.accumulator.ready:
                self.move()
            in_time = self._until(lambda: outcome.is_done, deadline)
            if self.is_over:
                self._engine.lose(outcome)
            return in_time or outcome.is_done

    def call_back(self, outcome: DeliveryOutcome, index: int, callback: DeliveryCallback) -> None:
        """Have the own thread call the callback; if the outcome is there, call it here at once."""
        with self._engine.lock:
            if not outcome.is_done:
                outcome.add_callback(index, callback)
                return
        outcome.tell(index, callback)

    def call_back_soon(
        self, outcome: DeliveryOutcome, index: int, callback: DeliveryCallback
    ) -> None:
        """Have the own thread call the callback of a record that was refused."""
        with self._engine.lock:
            if not self._has_ended:
                self.calls.add(partial(outcome.tell, index, callback))
                return
        outcome.tell(index, callback)

    def awaiting(self, outcome: DeliveryOutcome) -> Generator[object, None, None]:
        """Raise TypeError unless the outcome is there: a `Producer` belongs to no event loop."""
        if not outcome.is_done:
            raise TypeError(
                "a receipt of Producer cannot be awaited: call result(), or use AsyncProducer"
            )
        yield from ()


def check_not_interrupted(engine: Engine) -> None:
    """Raise ReentrantCallError if this thread was interrupted inside a call of the producer.

    It then holds the lock, which is reentrant and would not stop it.
    """
    if engine.lock._is_owned():  # type: ignore[attr-defined]
        raise ReentrantCallError(_REENTRANT)


def _take_again(lock: threading.RLock) -> None:
    """Take a producer's lock again if Ctrl-C interrupted a wait without it.

    The caller's `with` block releases the lock when it ends. Without the lock that would fail,
    and exception handlers would change the producer while another thread does.
    """
    if not lock._is_owned():  # type: ignore[attr-defined]
        # Used by `Condition` too; no signal interrupts it.
        lock._acquire_restore((1, threading.get_ident()))  # type: ignore[attr-defined]


class _Calls:
    """The calls of user code that are due, which the own thread makes; under the lock."""

    def __init__(
        self,
        engine: Engine,
        network: PollingNetwork,
        *,
        tick: threading.Condition,
        followers: threading.Condition,
    ) -> None:
        self._lock = engine.lock
        self._due = engine.sender.calls
        self._tick = tick
        self._followers = followers
        self._network = network
        self._maker: int | None = None
        """The ident of the thread that is in a call."""

    def add(self, call: Callable[[], None]) -> None:
        """Add a call, and wake the own thread."""
        self._due.append(call)
        self._tick.notify()
        self._network.wake()

    def are_made(self) -> Callable[[], bool]:
        """A function that returns whether those that are due now have been made.

        It is True at once in such a call, which could not wait for itself.
        """
        has_run = self._maker == threading.get_ident() or not (self._due or self._maker)

        def run() -> None:
            nonlocal has_run
            with self._lock:
                has_run = True
                self._followers.notify_all()
                self._network.wake()

        if not has_run:
            self.add(run)
        return lambda: has_run

    def make(self) -> None:
        """Make those that are due, without the lock."""
        while self._due:
            call = self._due.popleft()
            self._maker = threading.get_ident()
            self._lock.release()
            try:
                call_user_code(call, about="callback")
            finally:
                self._lock.acquire()
                self._maker = None
