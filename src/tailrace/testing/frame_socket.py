"""`FrameSocket`: a scripted node's end of a connection: whole requests in, bytes out.

Shared by `cluster` and `controller`. What a request means, and faults, are theirs.
"""

from collections.abc import Callable

from tailrace.protocol.frames import SIZE_BYTES
from tailrace.runtime.network import Socket

_CHUNK_BYTES = 1 << 16


class FrameSocket:
    """Cuts what a socket receives into frames, and sends what it has room for; on its loop."""

    def __init__(
        self,
        socket: Socket,
        *,
        on_frame: Callable[[memoryview], None],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_frame` gets each frame without its size, `on_end` is called once at the end."""
        self.is_open = True
        self._socket = socket
        self._on_frame = on_frame
        self._on_end = on_end
        self._received = bytearray()
        self._unsent = bytearray()

    def start(self) -> None:
        """Begin to read."""
        self._socket.watch_reads(self._readable)

    def close(self) -> None:
        """End the connection; what was not sent is lost."""
        if self.is_open:
            self.is_open = False
            self._socket.close()
            self._on_end()

    def send(self, data: bytes = b"") -> None:
        """Send bytes, the rest of them when there is room."""
        self._unsent += data
        while self._unsent and self.is_open:
            try:
                sent = self._socket.send([bytes(self._unsent)])
            except OSError:
                self.close()
                return
            if not sent:
                self._socket.watch_writes(self.send)
                return
            del self._unsent[:sent]
        if self.is_open:
            self._socket.watch_writes(None)

    def _readable(self) -> None:
        chunk = bytearray(_CHUNK_BYTES)
        while self.is_open:
            try:
                count = self._socket.receive_into(memoryview(chunk))
            except OSError:
                count = 0
            if count is None:
                return
            if not count:
                self.close()
                return
            self._received += chunk[:count]
            self._take_frames()

    def _take_frames(self) -> None:
        while self.is_open and len(self._received) >= SIZE_BYTES:
            end = SIZE_BYTES + int.from_bytes(self._received[:SIZE_BYTES], "big")
            if len(self._received) < end:
                return
            # A copy, since the rest of the buffer moves.
            frame = memoryview(bytes(self._received[SIZE_BYTES:end]))
            del self._received[:end]
            self._on_frame(frame)
