"""A network in memory: connections that can be slow, late, cut, or give one byte at a time.

Bytes become readable in a later turn of the loop than the one that sent them, as on a real
network; `delay_s` makes that later still, in virtual time.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from tailrace.errors import ListenError
from tailrace.runtime.files import Buffer
from tailrace.runtime.network import Socket

WINDOW_BYTES = 256 * 1024
"""What a peer may have sent without being read, about a kernel's socket buffer."""


class MemorySocket:
    """One end of a connection; made in pairs by `MemoryNetwork.connect`."""

    def __init__(self, network: "MemoryNetwork", peer: str) -> None:
        self._network = network
        self._peer = peer
        self._other: MemorySocket | None = None
        self._received = bytearray()
        self._is_ended = False
        self._is_cut = False
        self._on_read: Callable[[], None] | None = None
        self._on_write: Callable[[], None] | None = None

    @property
    def peer(self) -> str:
        """The other end as HOST:PORT."""
        return self._peer

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
        room = WINDOW_BYTES - len(other._received)
        if room <= 0:
            return None
        data = b"".join(bytes(buffer) for buffer in buffers)[:room]
        self._network.carry(lambda: other._deliver(data))
        return len(data)

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Call back while there is something to receive."""
        self._on_read = callback
        self._soon(self._call_on_read)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """Call back while there is room to send."""
        self._on_write = callback
        self._soon(self._call_on_write)

    def close(self) -> None:
        """End the connection; the peer reads what was sent, then the end."""
        self._on_read = self._on_write = None
        other, self._other = self._other, None
        if other is not None:
            self._network.carry(other._end)

    def cut(self) -> None:
        """Break the connection on both ends at once; bytes on the way are lost."""
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

    def _deliver(self, data: bytes) -> None:
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
        if self._on_write is not None and self._other is not None:
            self._on_write()

    @staticmethod
    def _soon(callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(callback)


class MemoryListener:
    """An open port of a `MemoryNetwork`."""

    def __init__(self, network: "MemoryNetwork", host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._network = network

    def close(self) -> None:
        """Accept no more."""
        with contextlib.suppress(KeyError):
            del self._network.ports[self.port]


class MemoryNetwork:
    """Ports and connections of one test."""

    def __init__(self) -> None:
        self.ports: dict[int, Callable[[Socket], None]] = {}
        self.delay_s = 0.0
        """Virtual seconds that bytes are under way."""
        self.receive_bytes_max = 1 << 30
        """Most bytes that one receive gives; 1 delivers byte by byte."""
        self._next_port = 20_000

    def listen(self, host: str, port: int, accepted: Callable[[Socket], None]) -> MemoryListener:
        """Open a port; port 0 takes the next free one."""
        if port == 0:
            self._next_port += 1
            port = self._next_port
        if port in self.ports:
            raise ListenError(f"cannot listen on {host}:{port}: another listener has the port")
        self.ports[port] = accepted
        return MemoryListener(self, host, port)

    def connect(self, port: int) -> MemorySocket:
        """A client's end of a new connection to an open port.

        Raises:
            ConnectionRefusedError: nobody listens there.
        """
        accepted = self.ports.get(port)
        if accepted is None:
            raise ConnectionRefusedError(f"nobody listens on port {port}")
        ours, theirs = MemorySocket(self, f"memory:{port}"), MemorySocket(self, "memory:1")
        ours._other, theirs._other = theirs, ours
        accepted(theirs)
        return ours

    def carry(self, arrive: Callable[[], None]) -> None:
        """Have something happen on the other end, after the network's delay."""
        asyncio.get_running_loop().call_later(self.delay_s, arrive)
