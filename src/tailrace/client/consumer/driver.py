"""`ThreadDriver`: runs a consumer's I/O on the threads that call it, and on a thread of its own.

A caller that waits does the I/O itself, so it is woken by the socket and not by another thread.
While no caller waits, the consumer's own thread does it: it fetches ahead, commits, and keeps the
member alive in its group.

One thread at a time, the leader, waits in the kernel for all connections. Other threads wait for
the leader, and one of them takes over when it leaves. The manner is that of the producer's driver.

Invariant: some thread leads, or the own thread checks after `TICK_S` at the latest.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf

from tailrace.client.consumer.engine import ConsumerEngine
from tailrace.client.consumer.errors import ConcurrentCallError
from tailrace.runtime.interrupts import uninterrupted
from tailrace.runtime.polling import Events, PollingNetwork

log = logging.getLogger(__name__)

TICK_S = 0.005
"""Longest time that bytes wait after the last caller has left; short compared to round trips."""

_FAR_S = 3600.0
"""Longest wait in the kernel, which accepts no infinite timeout."""

_REENTRANT = (
    "this thread is in the middle of another call of the same consumer, which a signal handler, a "
    "finalizer or a logging handler has interrupted; call wakeup() or close() there, or set a flag "
    "and call the consumer after the interrupted call has returned"
)


class ThreadDriver:
    """Drives one `ConsumerEngine`, whose lock it shares."""

    def __init__(self, network: PollingNetwork) -> None:
        self._network = network
        self._is_led = False
        self._leader = 0
        """The ident of the leading thread; valid while `_is_led`."""
        self._is_parked = False
        """The own thread waits in the kernel."""
        self._moves = 0
        """Number of times that a caller did I/O; while it grows, the own thread is not needed."""
        self.is_over = False
        """The consumer has ended: there is no more I/O."""
        self._is_abandoned = False
        self._is_forked = False
        self._engine: ConsumerEngine

    def start(self, engine: ConsumerEngine) -> None:
        """Start the own thread; a daemon, so it does not keep the process alive."""
        self._engine = engine
        self._followers = threading.Condition(engine.lock)
        self._tick = threading.Condition(engine.lock)
        self._thread = threading.Thread(
            target=self._run, name=f"tailrace-{engine.config.client_id}", daemon=True
        )
        self._thread.start()

    @property
    def is_interrupted(self) -> bool:
        """Whether this thread was interrupted inside a call of the consumer.

        It then holds the lock, which is reentrant and would not stop it, or is the leader, for
        which it would wait for ever.
        """
        is_leader = self._is_led and self._leader == threading.get_ident()
        return is_leader or self._engine.lock._is_owned()  # type: ignore[attr-defined]

    def check_not_interrupted(self) -> None:
        """Raise ConcurrentCallError if this thread was interrupted inside of another call."""
        if self.is_interrupted:
            raise ConcurrentCallError(_REENTRANT)

    # -- for callers, who hold the lock -------------------------------------------------------

    def move(self) -> None:
        """Send what may be sent and read what has arrived, without waiting."""
        if not self.is_over:
            self._moves += 1
            if self._is_parked:
                # It may wait for too long, since this turn may bring an earlier deadline.
                self._network.wake()
            self._turn([] if self._is_led else self._network.wait(0))

    def until(self, is_done: Callable[[], bool], deadline: float) -> bool:
        """Do I/O until `is_done()`, and return True; `deadline` is in monotonic seconds.

        Returns False after the deadline, or if the consumer ended.
        """
        try:
            while not is_done():
                now = time.monotonic()
                if self.is_over or now >= deadline:
                    return False
                if not self._is_led:
                    self._moves += 1
                    self._lead(deadline)
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

    def ring(self) -> None:
        """Have waiting threads look again, without the lock: a signal handler may call it."""
        with suppress(OSError):  # the network may have been closed
            self._network.wake()

    def stop(self) -> None:
        """End the I/O; idempotent."""
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

        The consumer's state is unknown then.
        """
        self._engine.give_up(error)
        self._over()

    def _over(self) -> None:
        self.is_over = True
        self._tick.notify()
        self._followers.notify_all()
        self._network.wake()

    def forked(self) -> None:
        """Stop in a forked child: it has no own thread and no leader, and shares the sockets."""
        self.is_over = self._is_forked = True
        self._is_led = self._is_parked = False

    def join(self) -> None:
        """Wait until the own thread, the last user of the network, has ended; without the lock."""
        if self._thread is not threading.current_thread() and not self._is_forked:
            self._thread.join()

    def abandon(self) -> None:
        """Have the own thread end a consumer that nobody can call any more."""
        # A finalizer may run at any point of any thread, the consumer's own included. So this
        # takes no lock and only sets a flag.
        self._is_abandoned = True
        self.ring()

    # -- leading ------------------------------------------------------------------------------

    def _turn(self, events: Events) -> None:
        def turn() -> None:
            try:
                self._network.run(events)
                self._engine.poll(time.monotonic())
            except BaseException as error:
                self.give_up(error)
                raise

        uninterrupted(turn)

    def _lead(self, deadline: float) -> None:
        """Wait in the kernel, without the lock, for an event or a deadline; then do the I/O."""
        now = time.monotonic()
        planned = self._engine.next_deadline(now)
        timeout = max(0.0, min(deadline, planned, _FAR_S + now) - now)
        self._leader = threading.get_ident()
        # Ctrl-C is raised at a call; there is none between here and the `try`.
        self._is_led = True
        lock = self._engine.lock
        try:
            lock.release()
            events = self._network.wait(timeout)
            lock.acquire()
        except BaseException:
            take_again(self._engine.lock)
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
            take_again(self._engine.lock)
            raise

    # -- the own thread -----------------------------------------------------------------------

    def _run(self) -> None:
        with self._engine.lock:
            try:
                self._work()
            except BaseException as error:
                self.give_up(error)
                name = self._engine.config.client_id
                log.critical("consumer_thread_failed client_id=%s", name, exc_info=error)
            # No thread begins to lead any more; one that leads now has been woken and returns soon.
            while self._is_led:
                self._follow()
            self._network.close()

    def _work(self) -> None:
        """Do the I/O while no caller does, until the consumer ends."""
        seen = -1
        while not self.is_over:
            if self._moves != seen or self._is_led:
                seen = self._moves
                self._tick.wait(TICK_S)
            else:
                self._is_parked = True
                self._lead(inf)
                self._is_parked = False
            if self._is_abandoned:
                self._engine.begin_close()
                self.stop()


def take_again(lock: threading.RLock) -> None:
    """Take a consumer's lock again if Ctrl-C interrupted a wait without it.

    The caller's `with` block releases the lock when it ends. Without the lock that would fail,
    and exception handlers would change the consumer while another thread does.
    """
    if not lock._is_owned():  # type: ignore[attr-defined]
        # Used by `Condition` too; no signal interrupts it.
        lock._acquire_restore((1, threading.get_ident()))  # type: ignore[attr-defined]
