"""`ThreadDriver`: moves a producer's bytes on the threads that call it, and on one of its own.

Whoever has reason to moves the bytes: a `send` that fills a batch, a caller that waits for a
receipt, for memory or in `flush`. So no batch waits for another thread to get the interpreter, and
a caller that waits is woken by the socket itself. The producer's own thread does what is left: it
moves the bytes while no caller does, and runs callbacks, which belong to no caller.

One thread at a time waits in the kernel for all connections: the leader. Others wait for the
leader, and one of them takes over when it leaves.

Invariant: while something is under way, some thread leads, or the producer's own thread looks
after `TICK_S` at the latest.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from math import inf

from tailrace.client.producer.batch import Outcome
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.errors import ReentrantCallError
from tailrace.client.producer.loading import load_beside
from tailrace.client.producer.receipts import DeliveryCallback
from tailrace.client.producer.user_code import call_user_code
from tailrace.runtime.polling import PollingNetwork

log = logging.getLogger(__name__)

TICK_S = 0.005
"""How long bytes may lie after the last caller has left; small next to any network's own times."""

_FAR_S = 3600.0
"""Longest time to wait in the kernel; it takes no infinite ones."""

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
        """The thread that leads, while one does."""
        self._is_parked = False
        """The own thread waits in the kernel, until `_planned` if nothing happens."""
        self._planned = inf
        self._moves = 0
        """How often a caller has moved bytes; tells the own thread that it is not needed."""
        self.is_over = False
        """The producer has ended: every receipt has its outcome, and no bytes are moved."""
        self._is_abandoned = False
        self._is_forked = False
        self._has_ended = False
        """The own thread has run its last callback."""
        self._engine: Engine

    def start(self, engine: Engine) -> None:
        """Begin; the thread dies with the process and does not keep it alive."""
        self._engine = engine
        self._followers = threading.Condition(engine.lock)
        self._tick = threading.Condition(engine.lock)
        self._thread = threading.Thread(
            target=self._run, name=f"tailrace-{engine.config.client_id}", daemon=True
        )
        self._thread.start()

    # -- for callers, before they take the lock -----------------------------------------------

    def check_step(self) -> None:
        """Raises ReentrantCallError if this thread was interrupted in a step of this producer.

        The lock is held in each step, and would let the thread in once more.
        """
        if self._engine.lock._is_owned():  # type: ignore[attr-defined]
            raise ReentrantCallError(_REENTRANT)

    def check_wait(self) -> None:
        """As `check_step`; also if it was interrupted while it led, since nobody else can then."""
        self.check_step()
        if self._is_led and self._leader == threading.get_ident():
            raise ReentrantCallError(_REENTRANT)

    # -- for callers, who hold the lock -------------------------------------------------------

    def move(self) -> None:
        """Send what may be sent and take in what has come, without waiting."""
        if self.is_over:
            return
        self._moves += 1
        self._turn(self._network.wait(0) if self._engine.sender.in_flight else [])

    def noticed(self) -> None:
        """Something new waits for a time that the own thread may not know of."""
        if self._is_parked and self._engine.sender.next_deadline(time.monotonic()) < self._planned:
            self._network.wake()

    def until(self, is_done: Callable[[], bool], deadline: float) -> bool:
        """Move bytes until `is_done()`; False if that takes until `deadline`, monotonic seconds.

        Or if the producer ends before; then every receipt has its outcome.
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
        """Give up what is left, and have the own thread end after the callbacks; again: nothing."""
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
        """End everything: a step was left in the middle, by Ctrl-C or a fault of ours.

        Nobody knows where things stand then.
        """
        self.is_over = True
        self._tick.notify()
        self._followers.notify_all()
        self._network.wake()
        self._engine.give_up(error)

    def forked(self) -> None:
        """In a child process: there is no own thread and no leader, and the sockets are shared."""
        self.is_over = self._is_forked = True
        self._is_led = self._is_parked = False

    def join(self) -> None:
        """Wait for the own thread, which is the last to use the network; without the lock.

        In a callback it does nothing, since that is called by the own thread.
        """
        if self._thread is not threading.current_thread() and not self._is_forked:
            self._thread.join()

    def abandon(self) -> None:
        """Let the own thread deliver what there is, and end; nobody waits for it."""
        # A finalizer runs between any two steps of any thread, this producer's own included: it
        # takes no lock and changes nothing but this.
        self._is_abandoned = True
        self._network.wake()

    # -- leading ------------------------------------------------------------------------------

    def _turn(self, events: list[tuple[int, int]]) -> None:
        try:
            self._network.run(events)
            self._engine.sender.poll(time.monotonic())
        except BaseException as error:
            self.give_up(error)
            raise

    def _lead(self, deadline: float) -> None:
        """Wait in the kernel, without the lock, until something happens; then turn."""
        now = time.monotonic()
        self._planned = self._engine.sender.next_deadline(now)
        timeout = max(0.0, min(deadline, self._planned, _FAR_S + now) - now)
        self._leader = threading.get_ident()
        # Ctrl-C comes behind a call: there is none from here to the `try`.
        self._is_led = True
        lock = self._engine.lock
        try:
            lock.release()
            events = self._network.wait(timeout)
            lock.acquire()
        except BaseException:
            self._regain()
            raise
        finally:
            self._is_led = False
        if not self.is_over:
            self._turn(events)
        self._followers.notify_all()

    def _follow(self, timeout: float | None = None) -> None:
        """Wait, without the lock, until a leader has moved bytes or leaves."""
        try:
            self._followers.wait(timeout)
        except BaseException:
            self._regain()
            raise

    def _regain(self) -> None:
        """Take the lock again if Ctrl-C came anywhere in a wait without it.

        The caller's `with` block releases the lock when it ends. Without it, that would fail, and
        whatever runs before would change the producer while another thread does.
        """
        lock = self._engine.lock
        if not lock._is_owned():  # type: ignore[attr-defined]
            # As `Condition` does it: no signal interrupts this.
            lock._acquire_restore((1, threading.get_ident()))  # type: ignore[attr-defined]

    # -- the own thread -----------------------------------------------------------------------

    def _run(self) -> None:
        with self._engine.lock:
            try:
                self._work()
            except BaseException as error:
                self.give_up(error)
                log.critical("a producer's thread has ended", exc_info=error)
            self._call_back()
            # Nobody begins to lead any more; a caller that does has been woken, and returns soon.
            while self._is_led:
                self._follow()
            self._network.close()
            self._call_back()
            self._has_ended = True

    def _work(self) -> None:
        """Move bytes while no caller does, and run callbacks, until the end."""
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
            self._call_back()
            load_beside()
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

    def _call_back(self) -> None:
        """Run the callbacks that are due, without the lock."""
        calls = self._engine.sender.calls
        while calls:
            call = calls.popleft()
            self._engine.lock.release()
            try:
                call_user_code(call, about="a callback")
            finally:
                self._engine.lock.acquire()

    # -- Waiting, for receipts ----------------------------------------------------------------

    def wait(self, outcome: Outcome, timeout_s: float | None) -> bool:
        """Move bytes until the outcome is there; False after `timeout_s`."""
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

    def call_back(self, outcome: Outcome, index: int, callback: DeliveryCallback) -> None:
        """Have the callback called by the own thread, or here and now if there is the outcome."""
        with self._engine.lock:
            if not outcome.is_done:
                outcome.add_callback(index, callback)
                return
        outcome.tell(index, callback)

    def call_back_soon(self, outcome: Outcome, index: int, callback: DeliveryCallback) -> None:
        """Have the callback of a record that is not sent called by the own thread."""
        with self._engine.lock:
            if not self._has_ended:
                self._engine.sender.calls.append(partial(outcome.tell, index, callback))
                self._tick.notify()
                if self._is_parked:
                    self._network.wake()
                return
        outcome.tell(index, callback)

    def awaiting(self, outcome: Outcome) -> Generator[object, None, None]:
        """Refused: a `Producer` belongs to no event loop."""
        if not outcome.is_done:
            raise TypeError("a receipt of Producer is not awaited: result(), or AsyncProducer")
        yield from ()
