"""`CutNetwork`: the connections of one node, which a test cuts: closed, or silent.

    cut(is_silent=False)   connections end, and no new one comes about, in either direction
    cut(is_silent=True)    connections stay, and nothing passes until `mend`: a cable is pulled

For single bytes, delays and half-open connections see `proxy`.

Invariant: all calls are on the loop of the network.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from weakref import WeakSet

from tailrace.runtime.files import Buffer
from tailrace.runtime.network import AcceptedSocket, Listener, Network, Socket


class CutNetwork:
    """A `Network` that is another one, as long as it is not cut."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._sockets: WeakSet[CutSocket] = WeakSet()
        self._waiting: list[Callable[[], None]] = []
        """Attempts to connect that were begun in silence."""
        self.is_cut = False
        self._is_silent = False

    def cut(self, *, is_silent: bool) -> None:
        """Let nothing pass any more."""
        self.is_cut, self._is_silent = True, is_silent
        for each in tuple(self._sockets):
            each.hold() if is_silent else each.reset()

    def mend(self) -> None:
        """Let everything pass again."""
        self.is_cut = False
        for each in tuple(self._sockets):
            each.release()
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def connect(
        self, host: str, port: int, done: Callable[[Socket | OSError], None], *, first: int = 0
    ) -> Callable[[], None]:
        """Connect as `Connector.connect`; refused while cut, and waiting in silence."""
        if not self.is_cut:

            def connected(found: Socket | OSError) -> None:
                done(found if isinstance(found, OSError) else self._pass(found))

            return self._network.connect(host, port, connected, first=first)
        if not self._is_silent:
            refused = OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            return asyncio.get_running_loop().call_soon(done, refused).cancel
        cancels: list[Callable[[], None]] = []

        def go_on() -> None:
            cancels.append(self.connect(host, port, done, first=first))

        def cancel() -> None:
            if go_on in self._waiting:
                self._waiting.remove(go_on)
            for each in cancels:
                each()

        self._waiting.append(go_on)
        return cancel

    def run_beside(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self._network.run_beside(work, done)

    def listen(self, host: str, port: int, accepted: Callable[[AcceptedSocket], None]) -> Listener:
        """Listen as `Network.listen`; who connects while it is cut is dropped, or held."""

        def let_in(socket: AcceptedSocket) -> None:
            if self.is_cut and not self._is_silent:
                socket.close()
            else:
                accepted(self._pass(socket))

        return self._network.listen(host, port, let_in)

    def _pass(self, socket: Socket) -> "CutSocket":
        passed = CutSocket(socket)
        self._sockets.add(passed)
        # Its handshake was on its way when the cut came.
        if self.is_cut:
            passed.hold() if self._is_silent else passed.reset()
        return passed


class CutSocket:
    """An `AcceptedSocket` that can fall silent, or be reset."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._is_held = False
        self._is_reset = False
        self._on_read: Callable[[], None] | None = None
        self._on_write: Callable[[], None] | None = None

    def hold(self) -> None:
        """Neither receive nor send until `release`; what the peer sends waits in the kernel."""
        if not self._is_reset:
            self._is_held = True
            self._socket.watch_reads(None)
            self._socket.watch_writes(None)

    def release(self) -> None:
        """Receive and send again."""
        if self._is_held:
            self._is_held = False
            self._watch()

    def reset(self) -> None:
        """End the connection for both ends; the owner gets an error when it reads or writes."""
        if self._is_reset:
            return
        self._is_held, self._is_reset = False, True
        self._socket.close()
        for callback in (self._on_read, self._on_write):
            if callback is not None:
                asyncio.get_running_loop().call_soon(self._tell, callback)

    @property
    def peer(self) -> str:
        return self._socket.peer

    @property
    def is_peer_gone(self) -> bool:
        if self._is_held:
            return False
        return self._is_reset or getattr(self._socket, "is_peer_gone", False)

    def receive_into(self, buffer: memoryview) -> int | None:
        self._check()
        return None if self._is_held else self._socket.receive_into(buffer)

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        self._check()
        return None if self._is_held else self._socket.send(buffers)

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        self._on_read = callback
        self._changed(callback, self._socket.watch_reads)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        self._on_write = callback
        self._changed(callback, self._socket.watch_writes)

    def close(self) -> None:
        self._on_read = self._on_write = None
        self._socket.close()

    def _check(self) -> None:
        if self._is_reset:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    def _changed(
        self,
        callback: Callable[[], None] | None,
        watch: Callable[[Callable[[], None] | None], None],
    ) -> None:
        if self._is_reset:
            if callback is not None:
                asyncio.get_running_loop().call_soon(self._tell, callback)
        elif not self._is_held:
            watch(callback)

    def _watch(self) -> None:
        # Not without one: the loop has no descriptor of a socket that its owner has closed.
        if self._on_read is not None:
            self._socket.watch_reads(self._on_read)
        if self._on_write is not None:
            self._socket.watch_writes(self._on_write)

    def _tell(self, callback: Callable[[], None]) -> None:
        # Its owner may have closed it, or may watch no more.
        if callback in (self._on_read, self._on_write):
            callback()
