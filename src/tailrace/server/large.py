"""A request that does not fit a connection's input, while it is received.

    in the input (64 KiB)  ->  a first buffer (1.1 MiB)  ->  memory of its full size

Each step is made when the one before is full, so a length alone takes no memory; the bytes that
have come are copied into the next. The pool is asked before each (`tailrace.server.memory`).
"""

from typing import Final

from tailrace.runtime.memory import LargeMemory
from tailrace.runtime.network import Socket
from tailrace.server.memory import Share, discard

FIRST_BYTES: Final = 1024 * 1024 + 64 * 1024
"""Size of the first buffer: the usual most of a produce request's records, and what stands around
them. A request that is a few bytes longer is allocated and copied anew."""

RECEIVED_BYTES_MAX: Final = 256 * 1024
"""Most bytes that are received in one turn of the loop: twenty requests that come at the same time
are copied in some milliseconds."""


class LargeRequest:
    """The bytes of one request, and how many of them have come."""

    def __init__(
        self, start: memoryview, size: int, *, share: Share, objects_bytes: int = 0
    ) -> None:
        """`start` is the full input without the length; the pool has granted the first buffer."""
        self.size = size
        self.objects_bytes = objects_bytes
        """What its fields take when it is decoded; 0 where that is not counted."""
        self.written_bytes = 0
        """So many bytes of memory have been written to, received or filled with zeros."""
        self._share = share
        self._bytes = start
        self._count = len(start)
        self._is_in_input = True
        self._memory: LargeMemory | None = None
        """Holds the bytes if they are more than `FIRST_BYTES`."""

    @property
    def held_bytes(self) -> int:
        """Memory that it takes beside the input."""
        return 0 if self._is_in_input else max(self._count, FIRST_BYTES)

    @property
    def is_whole(self) -> bool:
        """Whether all bytes have come."""
        return self._count == self.size

    def take(self) -> memoryview:
        """The whole request; this object holds it no more."""
        frame, self._bytes = self._bytes, memoryview(b"")
        return frame

    def free(self) -> None:
        """Give its memory back; nobody may use the bytes any more."""
        self._bytes = memoryview(b"")
        if self._memory is not None:
            discard(self._memory)
            self._memory = None

    def grow_if_full(self) -> bool:
        """Make the next memory if it is time for that; False when the pool has none yet."""
        if self._count < len(self._bytes):
            return True
        if self._is_in_input:
            larger = memoryview(bytearray(min(self.size, FIRST_BYTES)))
            self._is_in_input = False
            self.written_bytes += len(larger)
        elif self._share.claim(self.size):
            # Memory from the system is there when it is written to: 100 MiB of zeros, or a copy of
            # as much each time it has to grow, would take the loop a tenth of a second.
            self._memory = LargeMemory(self.size)
            larger = memoryview(self._memory)
        else:
            return False
        larger[: self._count] = self._bytes
        self._bytes = larger
        return True

    def receive(self, socket: Socket) -> int | None:
        """Receive what has come, but not too much of it; as `Socket.receive_into`."""
        # The first buffer may be filled at once: most requests have no more.
        stop = max(self._count + RECEIVED_BYTES_MAX, FIRST_BYTES)
        received = socket.receive_into(self._bytes[self._count : stop])
        self._count += received or 0
        self.written_bytes += received or 0
        self._share.received_bytes += received or 0
        return received
