"""A network in memory: connections can be slow, delayed, cut, or deliver one byte at a time.

As on a real network, bytes become readable in a later turn of the loop than the one that sent them;
`delay_s` adds virtual time, of all connections or of one. Whatever they are set to, the bytes of a
connection keep their order; those of two connections need not.
"""

import asyncio
import errno
import heapq
import itertools
import socket
from collections.abc import Callable, Sequence

from tailrace.errors import ListenError
from tailrace.runtime.files import Buffer
from tailrace.runtime.network import AcceptedSocket, Socket

WINDOW_BYTES = 256 * 1024
"""Bytes that may be sent and not yet received; about a kernel's socket buffer."""


class MemorySocket:
    """One end of a connection; `MemoryNetwork` creates them in pairs."""

    def __init__(self, network: "MemoryNetwork", peer: str) -> None:
        self.loses_sends = False
        """Whether sent bytes are accepted and never arrive."""
        self.delay_s = 0.0
        """Virtual seconds that what this end sends takes longer than by the network's delay."""
        self._arrives_at = 0.0
        """When the last bytes of this end arrive."""
        self._network = network
        self._peer = peer
        self._other: MemorySocket | None = None
        self._received = bytearray()
        self._coming_bytes = 0
        self._held: list[Callable[[], None]] | None = None
        self._is_ended = False
        self._is_cut = False
        self._is_closed = False
        self._on_read: Callable[[], None] | None = None
        self._on_write: Callable[[], None] | None = None

    @property
    def peer(self) -> str:
        """The other end as HOST:PORT."""
        return self._peer

    @property
    def is_peer_gone(self) -> bool:
        """Whether the peer has closed, and all bytes were received."""
        return self._is_cut or (self._is_ended and not self._received)

    def receive_into(self, buffer: memoryview) -> int | None:
        """Bytes received, 0 at the end, None when there is nothing yet."""
        if self._is_cut:
            raise ConnectionResetError("the connection was cut")
        if not self._received:
            return 0 if self._is_ended else None
        size = min(len(buffer), len(self._received), self._network.receive_bytes_max)
        buffer[:size] = self._received[:size]
        del self._received[:size]
        if self._other is not None:
            self._other._soon(self._other._call_on_write)
        return size

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Bytes taken over, None when the peer's window is full."""
        other = self._other
        if self._is_cut or other is None:
            raise BrokenPipeError("the peer has closed")
        room = other._room_bytes
        if room <= 0:
            return None
        data = bytearray()
        for buffer in buffers:
            data += memoryview(buffer)[: room - len(data)]
        if not self.loses_sends:
            other._coming_bytes += len(data)
            self._carry(lambda: other._deliver(bytes(data)))
        return len(data)

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Call back while there is something to receive.

        Raises:
            ValueError: this end is closed; a loop of asyncio refuses its descriptor then.
        """
        if self._is_closed and callback is not None:
            raise ValueError("the socket is closed")
        self._on_read = callback
        self._soon(self._call_on_read)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """Call back while there is room to send."""
        self._on_write = callback
        self._soon(self._call_on_write)

    def close(self) -> None:
        """End the connection; the peer reads what was sent, then the end."""
        self._is_closed = True
        self._on_read = self._on_write = None
        other, self._other = self._other, None
        if other is not None:
            self._carry(other._end)

    def hold(self) -> None:
        """Delay all bytes that this end sends from now on, and its close, until `release`."""
        self._held = [] if self._held is None else self._held

    def release(self) -> None:
        """Deliver the held bytes in order, and stop holding."""
        held, self._held = self._held or [], None
        for arrive in held:
            self._carry(arrive)

    def cut(self) -> None:
        """Break the connection on both ends at once; undelivered bytes are lost."""
        for end in (self, self._other):
            if end is not None:
                end._is_cut = True
                end._soon(end._call_on_read)

    async def receive(self, size: int) -> bytes:
        """Wait for exactly `size` bytes; fewer at the end of the connection. For tests."""
        data = bytearray()
        chunk = bytearray(65536)
        while len(data) < size:
            received = self.receive_into(memoryview(chunk)[: size - len(data)])
            if received == 0:
                break
            if received is None:
                readable = asyncio.Event()
                self.watch_reads(readable.set)
                await readable.wait()
                self.watch_reads(None)
            else:
                data += chunk[:received]
        return bytes(data)

    def _carry(self, arrive: Callable[[], None]) -> None:
        if self._held is None:
            # A shorter delay must not let bytes overtake those that were sent before.
            self._arrives_at = self._network.carry(
                arrive, delay_s=self.delay_s, earliest=self._arrives_at
            )
        else:
            self._held.append(arrive)

    def _deliver(self, data: bytes) -> None:
        self._coming_bytes -= len(data)
        self._received += data
        self._call_on_read()

    def _end(self) -> None:
        self._is_ended = True
        self._other = None
        self._call_on_read()

    def _call_on_read(self) -> None:
        is_readable = self._received or self._is_ended or self._is_cut
        if is_readable and self._on_read is not None:
            self._on_read()
            self._soon(self._call_on_read)

    def _call_on_write(self) -> None:
        other = self._other
        if self._on_write is None or other is None:
            return
        # Like the kernel, call back only if there is room, or the calls would never end.
        if self._is_cut or other._room_bytes > 0:
            self._on_write()

    @property
    def _room_bytes(self) -> int:
        """Bytes that may be sent to this end before it receives some."""
        return WINDOW_BYTES - len(self._received) - self._coming_bytes

    @staticmethod
    def _soon(callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(callback)


class MemoryListener:
    """An open port of a `MemoryNetwork`."""

    def __init__(
        self,
        network: "MemoryNetwork",
        host: str,
        port: int,
        *,
        accepted: Callable[[AcceptedSocket], None],
    ) -> None:
        self.accepted = accepted
        self.is_paused = False
        self.waiting: list[AcceptedSocket] = []
        self.host = host
        self.port = port
        self._network = network

    def pause(self) -> None:
        """Let new connections wait."""
        self.is_paused = True

    def resume(self) -> None:
        """Accept the waiting connections, and new ones."""
        self.is_paused = False
        while self.waiting and not self.is_paused:
            self.accepted(self.waiting.pop(0))

    def close(self) -> None:
        """Accept no more."""
        # Once: another process may have opened the port since.
        if self._network.ports.get(self.port) is self:
            del self._network.ports[self.port]


class MemoryNetwork:
    """Ports and connections of one test."""

    def __init__(self) -> None:
        self.ports: dict[int, MemoryListener] = {}
        self.delay_s = 0.0
        """Virtual seconds until sent bytes arrive."""
        self.receive_bytes_max = 1 << 30
        """Most bytes that one receive returns; 1 delivers byte by byte."""
        self.unknown_hosts: set[str] = set()
        """Host names whose lookup fails."""
        self.silent_ports: set[int] = set()
        """Ports where a connection is neither accepted nor refused."""
        self.connections: list[MemorySocket] = []
        """The client end of every connection, in order of creation."""
        self.firsts: list[int] = []
        """The argument `first` of each call of `connect`."""
        self._next_port = 20_000
        self._under_way: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def listen(
        self, host: str, port: int, accepted: Callable[[AcceptedSocket], None]
    ) -> MemoryListener:
        """Open a port; port 0 takes the next free one."""
        if port == 0:
            self._next_port += 1
            port = self._next_port
        if port in self.ports:
            raise ListenError(f"cannot listen on {host}:{port}: another listener has the port")
        listener = MemoryListener(self, host, port, accepted=accepted)
        self.ports[port] = listener
        return listener

    def connect(
        self, host: str, port: int, done: Callable[[Socket | OSError], None], *, first: int = 0
    ) -> Callable[[], None]:
        """Open a connection in a later turn; see `Connector.connect`. All hosts are one."""
        self.firsts.append(first)
        is_ended = False

        def cancel() -> None:
            nonlocal is_ended
            is_ended = True

        def settle() -> None:
            if is_ended or port in self.silent_ports:
                return
            if host in self.unknown_hosts:
                done(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
                return
            try:
                done(self.open(port))
            except ConnectionRefusedError as error:
                done(error)

        self.carry(settle)
        return cancel

    def run_beside(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run `work` and `done` in a later turn of the loop: no thread, so the order is fixed."""

        def run() -> None:
            work()
            done()

        self.carry(run)

    def open(self, port: int, *, address: str = "memory") -> MemorySocket:
        """A client's end of a new connection from an address to an open port, at once.

        Raises:
            ConnectionRefusedError: the port is not open.
        """
        listener = self.ports.get(port)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on port {port}")
        ours, theirs = MemorySocket(self, f"memory:{port}"), MemorySocket(self, f"{address}:1")
        ours._other, theirs._other = theirs, ours
        self.connections.append(ours)
        if listener.is_paused:
            listener.waiting.append(theirs)
        else:
            listener.accepted(theirs)
        return ours

    def carry(
        self, arrive: Callable[[], None], *, delay_s: float = 0.0, earliest: float = 0.0
    ) -> float:
        """Call `arrive` after the network's delay and `delay_s`, and not before `earliest`.

        Calls that are due at the same time keep their order, which the loop's timers do not
        guarantee. Returns when it is due, as the time of the loop.
        """
        loop = asyncio.get_running_loop()
        at = max(loop.time() + self.delay_s + delay_s, earliest)
        heapq.heappush(self._under_way, (at, next(self._numbers), arrive))
        loop.call_at(at, self._arrive)
        return at

    def _arrive(self) -> None:
        heapq.heappop(self._under_way)[2]()
