"""Receive a request that does not fit a connection's input.

    in the input (64 KiB)  ->  a first buffer (1.1 MiB)  ->  memory of its full size

The next buffer is allocated when the one before is full, so a length alone reserves no memory; the
received bytes are copied. Each allocation is claimed from the pool first (`server.memory`).
"""

from typing import Final

from tailrace.runtime.memory import LargeMemory
from tailrace.runtime.network import Socket
from tailrace.server.memory import ConnectionMemory, discard

FIRST_BYTES: Final = 1024 * 1024 + 64 * 1024
"""Size of the first buffer: the default `max.message.bytes`, and room for the rest of a produce
request. A request that is a few bytes larger is copied to a new buffer."""

RECEIVED_BYTES_MAX: Final = 256 * 1024
"""Most bytes that are received in one turn of the loop: twenty requests at the same time are copied
in some milliseconds."""


class LargeRequest:
    """The buffer of one large request, and how much of it is received."""

    def __init__(
        self, start: memoryview, size: int, *, share: ConnectionMemory, objects_bytes: int = 0
    ) -> None:
        """`start` is the full input without the length; the pool has granted the first buffer."""
        self.size = size
        self.objects_bytes = objects_bytes
        """Memory for its decoded objects, in bytes; 0 if that is not counted."""
        self.written_bytes = 0
        """Bytes of memory that were written: received, or filled with zeros."""
        self._share = share
        self._bytes = start
        self._count = len(start)
        self._is_in_input = True
        self._memory: LargeMemory | None = None
        """The buffer of a request larger than `FIRST_BYTES`."""

    @property
    def held_bytes(self) -> int:
        """Memory in use besides the input, in bytes."""
        return 0 if self._is_in_input else max(self._count, FIRST_BYTES)

    @property
    def is_whole(self) -> bool:
        """Whether all bytes are received."""
        return self._count == self.size

    def take(self) -> memoryview:
        """Return the complete request; this object keeps no reference to it."""
        frame, self._bytes = self._bytes, memoryview(b"")
        return frame

    def free(self) -> None:
        """Release its memory; the bytes must not be used any more."""
        self._bytes = memoryview(b"")
        if self._memory is not None:
            discard(self._memory)
            self._memory = None

    def grow_if_full(self) -> bool:
        """Allocate the next buffer if this one is full; False if the pool has no memory yet."""
        if self._count < len(self._bytes):
            return True
        if self._is_in_input:
            larger = memoryview(bytearray(min(self.size, FIRST_BYTES)))
            self._is_in_input = False
            self.written_bytes += len(larger)
        elif self._share.claim(self.size):
            # The system allocates this memory when it is written to. A bytearray of 100 MiB, or
            # copies whenever a smaller one grows, would block the loop for a tenth of a second.
            self._memory = LargeMemory(self.size)
            larger = memoryview(self._memory)
        else:
            return False
        larger[: self._count] = self._bytes
        self._bytes = larger
        return True

    def receive(self, socket: Socket) -> int | None:
        """Receive at most `RECEIVED_BYTES_MAX` bytes; returns as `Socket.receive_into`."""
        # The first buffer may be filled in one turn: most requests are not larger.
        stop = max(self._count + RECEIVED_BYTES_MAX, FIRST_BYTES)
        received = socket.receive_into(self._bytes[self._count : stop])
        self._count += received or 0
        self.written_bytes += received or 0
        self._share.received_bytes += received or 0
        return received
