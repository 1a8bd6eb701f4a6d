"""A network for programs without an event loop: one thread waits, without holding a lock.

    events = network.wait(timeout_s)       # in the kernel, without the caller's lock
    with lock:
        network.run(events)                # the callbacks, with the lock
        ...                                # the work that they, or a caller of `wake`, made due

Sockets and connecting are in `network`. There are no timers here.

Invariant: no `wake` is lost. A thread that changes something under the lock and then calls `wake`
reaches the waiting thread before its next `run`, or before its next `wait`, which then returns at
once. Linux only (epoll, eventfd).
"""

import contextlib
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable

from tailrace.runtime.network import Connecting, Socket

EVENTS_MAX = 256
"""Most events that one `wait` returns; the others come with the next."""

if sys.platform == "linux":
    _READABLE = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR
    _WRITABLE = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR


class PollingNetwork:
    """Outgoing connections whose callbacks run inside of `run`.

    All methods but `wake` and `call_soon_threadsafe` must be called by one thread at a time. A
    socket may be closed between `wait` and `run`: its callbacks are removed, and a newer socket
    with the same descriptor gets a spurious callback.
    """

    def __init__(self) -> None:
        self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self._epoll = select.epoll()
        except OSError:  # no descriptor is left
            os.close(self._alarm)
            raise
        self._epoll.register(self._alarm, select.EPOLLIN)
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._soon: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._closing = threading.Lock()
        """Prevents a name lookup that ends late from writing to a closed descriptor."""

    def connect(
        self, host: str, port: int, done: Callable[[Socket | OSError], None], *, first: int = 0
    ) -> Callable[[], None]:
        """Open a connection; see `Connector.connect`. `done` is called by a later `run`."""
        connecting = Connecting(self, done, first=first)
        connecting.start(host, port)
        return connecting.cancel

    def wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        """Wait for an event of a socket, for `wake`, or `timeout_s`; None waits without limit."""
        return self._epoll.poll(None if timeout_s is None else max(timeout_s, 0), EVENTS_MAX)

    def run(self, events: list[tuple[int, int]]) -> None:
        """Call the callbacks for the events from `wait`."""
        for descriptor, mask in events:
            if descriptor == self._alarm:
                with contextlib.suppress(BlockingIOError):  # a `run` in between has read it
                    os.eventfd_read(descriptor)
                self._is_woken = False
                for _ in range(len(self._soon)):
                    self._soon.popleft()()
                continue
            if mask & _READABLE:
                reader = self._readers.get(descriptor)
                if reader is not None:
                    reader()
            if mask & _WRITABLE:
                writer = self._writers.get(descriptor)
                if writer is not None:
                    writer()

    def wake(self) -> None:
        """Make `wait` return at once; from any thread, and cheap if `wake` was just called."""
        if not self._is_woken:
            self._is_woken = True
            os.eventfd_write(self._alarm, 1)

    def close(self) -> None:
        """Close the descriptors; `wait` must have returned. Sockets stay open."""
        with self._closing:
            if not self._epoll.closed:
                self._is_woken = True
                self._epoll.close()
                os.close(self._alarm)

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        """Call back in the next `run`; from any thread.

        Raises:
            RuntimeError: the network was closed.
        """
        with self._closing:
            if self._epoll.closed:
                raise RuntimeError("the network was closed")
            self._soon.append(callback)
            self.wake()

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call back while there is something to receive."""
        before = self._mask(descriptor)
        self._readers[descriptor] = callback
        self._watch(descriptor, before)

    def remove_reader(self, descriptor: int) -> None:
        """Stop that."""
        before = self._mask(descriptor)
        self._readers.pop(descriptor, None)
        self._watch(descriptor, before)

    def add_writer(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call back while there is room to send."""
        before = self._mask(descriptor)
        self._writers[descriptor] = callback
        self._watch(descriptor, before)

    def remove_writer(self, descriptor: int) -> None:
        """Stop that."""
        before = self._mask(descriptor)
        self._writers.pop(descriptor, None)
        self._watch(descriptor, before)

    def _mask(self, descriptor: int) -> int:
        return (select.EPOLLIN if descriptor in self._readers else 0) | (
            select.EPOLLOUT if descriptor in self._writers else 0
        )

    def _watch(self, descriptor: int, before: int) -> None:
        """Update the epoll registration of a descriptor, if its mask has changed."""
        mask = self._mask(descriptor)
        if mask == before or self._epoll.closed:
            return
        if not before:
            self._epoll.register(descriptor, mask)
        elif mask:
            self._epoll.modify(descriptor, mask)
        else:
            self._epoll.unregister(descriptor)
