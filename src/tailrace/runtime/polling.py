"""A network for programs without an event loop: one thread waits, without holding a lock.

    events = network.wait(timeout_s)       # in the kernel, without the caller's lock
    with lock:
        network.run(events)                # the callbacks, with the lock
        ...                                # the work that they, or a caller of `wake`, made due

Sockets and connecting are in `network`. There are no timers here.

Invariant: `wake` is never lost. A caller that changes something under the lock and then wakes finds
the thread either before its next `run` or before its next `wait`, which then returns at once.
"""

import contextlib
import os
import selectors
import threading
from collections import deque
from collections.abc import Callable

from tailrace.runtime.network import Connecting, Socket, start_beside

Events = list[tuple[selectors.SelectorKey, int]]
"""Sockets with news, and whether they can be read or written."""

# The kernel's own list of sockets (Linux, macOS): it may change while a thread waits, and two
# threads may wait. Python's `poll` can do neither; `select` can if it is woken for each change.
_Selector: type[selectors.BaseSelector] = (
    getattr(selectors, "EpollSelector", None)
    or getattr(selectors, "KqueueSelector", None)
    or selectors.SelectSelector
)


class PollingNetwork:
    """Outgoing connections whose callbacks run inside of `run`; `open` makes one.

    All methods but `wake` and `call_soon_threadsafe` must be called by one thread at a time. A
    socket may be closed between `wait` and `run`: its callbacks are removed, and a newer socket
    with the same descriptor gets a spurious callback.
    """

    def __init__(self, selector: selectors.BaseSelector, *, alarm: int, bell: int) -> None:
        self._selector = selector
        self._alarm, self._bell = alarm, bell
        """A pair of sockets: a byte that is written to the bell ends a `wait`."""
        self._is_closed = False
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._soon: deque[Callable[[], None]] = deque()
        self._is_woken = False
        # Prevents a name lookup that ends late from writing to a closed descriptor.
        self._closing = threading.Lock()

    @classmethod
    def open(cls) -> "PollingNetwork":
        """A network with no connections yet; `close` releases its descriptors.

        Raises:
            OSError: no descriptor is left.
        """
        alarm, bell = os.pipe()
        try:
            os.set_blocking(alarm, False)
            selector = _Selector()
            selector.register(alarm, selectors.EVENT_READ)
        except OSError:
            os.close(alarm)
            os.close(bell)
            raise
        return cls(selector, alarm=alarm, bell=bell)

    def connect(
        self, host: str, port: int, done: Callable[[Socket | OSError], None], *, first: int = 0
    ) -> Callable[[], None]:
        """Open a connection; see `Connector.connect`. `done` is called by a later `run`."""
        connecting = Connecting(self, done, first=first)
        connecting.start(host, port)
        return connecting.cancel

    def run_beside(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run `work` on a thread; a later `run` calls `done`; see `Connector.run_beside`."""
        start_beside(self, work, done)

    def wait(self, timeout_s: float | None) -> Events:
        """Wait for news of a socket, for `wake`, or `timeout_s`; None waits without limit."""
        return self._selector.select(timeout_s)

    def run(self, events: Events) -> None:
        """Call back what `wait` has found."""
        for key, mask in events:
            descriptor = key.fd
            if descriptor == self._alarm:
                with contextlib.suppress(BlockingIOError):  # a `run` in between has read it
                    os.read(descriptor, 64)
                self._is_woken = False
                for _ in range(len(self._soon)):
                    self._soon.popleft()()
                continue
            if mask & selectors.EVENT_READ:
                reader = self._readers.get(descriptor)
                if reader is not None:
                    reader()
            if mask & selectors.EVENT_WRITE:
                writer = self._writers.get(descriptor)
                if writer is not None:
                    writer()

    def wake(self) -> None:
        """Make `wait` return at once; from any thread, and cheap if `wake` was just called."""
        if not self._is_woken:
            self._is_woken = True
            os.write(self._bell, b"!")

    def close(self) -> None:
        """Close the descriptors; `wait` must have returned. Sockets stay open."""
        with self._closing:
            if not self._is_closed:
                self._is_closed = self._is_woken = True
                self._selector.close()
                os.close(self._alarm)
                os.close(self._bell)

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        """Call back in the next `run`; from any thread.

        Raises:
            RuntimeError: the network was closed.
        """
        with self._closing:
            if self._is_closed:
                raise RuntimeError("the network was closed")
            self._soon.append(callback)
            self.wake()

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call back while there is something to receive."""
        before = self._mask(descriptor)
        self._readers[descriptor] = callback
        self._watch(descriptor, before)

    def remove_reader(self, descriptor: int) -> None:
        before = self._mask(descriptor)
        self._readers.pop(descriptor, None)
        self._watch(descriptor, before)

    def add_writer(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call back while there is room to send."""
        before = self._mask(descriptor)
        self._writers[descriptor] = callback
        self._watch(descriptor, before)

    def remove_writer(self, descriptor: int) -> None:
        before = self._mask(descriptor)
        self._writers.pop(descriptor, None)
        self._watch(descriptor, before)

    def _mask(self, descriptor: int) -> int:
        return (selectors.EVENT_READ if descriptor in self._readers else 0) | (
            selectors.EVENT_WRITE if descriptor in self._writers else 0
        )

    def _watch(self, descriptor: int, before: int) -> None:
        """Update the epoll registration of a descriptor, if its mask has changed."""
        mask = self._mask(descriptor)
        if mask == before or self._is_closed:
            return
        if not before:
            self._selector.register(descriptor, mask)
        elif mask:
            self._selector.modify(descriptor, mask)
        else:
            self._selector.unregister(descriptor)
        if _Selector is selectors.SelectSelector:
            self.wake()
