"""`RequestInput`: receives the request frames of one connection, and cuts them apart.

    small frames        share the input (4 KiB, and 64 KiB as soon as that was full)
    one that is larger  in the input -> a first buffer (1.1 MiB) -> memory of its full size

Invariant: a length that was received reserves no memory; only bytes that were received do. The next
buffer is made when the one before is full, and is claimed from the pool first (`memory`).
"""

import struct
from typing import Final

from tailrace.protocol.answers import RepeatedAnswers
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.frames import SIZE_BYTES, check_size
from tailrace.runtime.memory import LargeMemory
from tailrace.runtime.network import Socket
from tailrace.server.dispatch import ConnectionRepeats
from tailrace.server.memory import ConnectionMemory, discard
from tailrace.server.slow_requests import HEAD_BYTES

INPUT_BYTES_MIN: Final = 4 * 1024
"""Size of the input at first: most clients send one small request at a time."""

INPUT_BYTES: Final = 64 * 1024
"""Fits every request but a large produce; small compared to the kernel's socket buffer."""

OBJECTS_FACTOR: Final = 8
"""Bytes of memory that a request other than Produce takes when it is decoded, for each byte of its
size: a partition in a Fetch request has 33 bytes on the wire, and 250 as an object."""

UNCOUNTED_BYTES_MAX: Final = 16 * 1024
"""A request other than Produce up to this size claims no memory for its objects: a thousand of them
take 128 MB."""

ORDINARY_FRAME_BYTES_MAX: Final = 8 * 1024 * 1024
"""Largest request other than Produce. Its fields become objects, up to thirty times the size of
their bytes; the records of a produce request stay bytes. Kafka's own clients send at most some
hundred kilobytes: a request for the metadata of 10,000 topics."""

FIRST_BYTES: Final = 1024 * 1024 + 64 * 1024
"""Size of the first buffer: the default `max.message.bytes`, and room for the rest of a produce
request. A request that is a few bytes larger is copied to a new buffer."""

RECEIVED_BYTES_MAX: Final = 256 * 1024
"""Most bytes that are received in one turn of the loop: twenty requests at the same time are copied
in some milliseconds."""

_SIZE = struct.Struct(">i")
_PREFIX = struct.Struct(">ih")
"""Size and api key, which decide the size limit of a frame."""


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
        return self._count == self.size

    @property
    def key(self) -> int:
        """Its API key."""
        return int.from_bytes(self._bytes[:2], "big")

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


class RequestInput:
    """The bytes of requests that are not answered yet."""

    def __init__(self, share: ConnectionMemory, *, frame_bytes_max: int) -> None:
        self._share = share
        self.frame_bytes_max = frame_bytes_max
        """Size of the largest frame that is taken from now on."""
        # Made when bytes come: thousands of connections may say nothing.
        self._input = bytearray()
        self._view = memoryview(self._input)
        self._start = self._end = 0
        self._head_at = 0
        """Position of the last request that was taken; below 0: it was a large one."""
        self._large_head = b""
        self.large: LargeRequest | None = None
        """The large request that is being received."""
        self._answered_large: LargeRequest | None = None
        """The large request that is being answered."""
        self._is_share_used = False
        """Whether the request that is being answered holds memory of the pool."""

    @property
    def held_bytes(self) -> int:
        """Memory for requests that are not completely received, in bytes."""
        return len(self._input) + (self.large.held_bytes if self.large is not None else 0)

    @property
    def has_bytes(self) -> bool:
        """Whether the input has bytes that no frame was made of."""
        return self._start < self._end

    @property
    def has_any(self) -> bool:
        """Whether bytes were received that are not answered; maybe of an incomplete request."""
        return self._start < self._end or self.large is not None

    @property
    def next_key(self) -> int | None:
        """API key of the next request; None: its first bytes have not been received yet."""
        if self.large is not None:
            return self.large.key
        if self._end - self._start < _PREFIX.size:
            return None
        key: int = _PREFIX.unpack_from(self._input, self._start)[1]
        return key

    def last_head(self) -> bytes:
        """The first bytes of the last request that was taken, until more are received."""
        if self._head_at < 0:
            return self._large_head
        body = self._head_at + SIZE_BYTES
        return bytes(self._view[body : body + HEAD_BYTES])

    def has_room(self) -> bool:
        """Whether bytes can be received; False while a large request waits for memory."""
        return self.large is None or self.large.grow_if_full()

    def receive(self, socket: Socket) -> int | None:
        """Receive once, after `has_room`; returns as `Socket.receive_into`."""
        if self.large is not None:
            return self.large.receive(socket)
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._input):
            # A frame that begins near the end: it moves to the front, to be received whole.
            rest = self._input[self._start : self._end]
            self._input[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        if not self._input:
            self._move_to(INPUT_BYTES_MIN)
        received = socket.receive_into(self._view[self._end :] if self._end else self._view)
        self._end += received or 0
        if self._end == len(self._input) < INPUT_BYTES:
            self._move_to(INPUT_BYTES)
        return received

    def release_empty(self) -> None:
        """Release the input, if it has no bytes of a request; the next bytes get another one."""
        if not self.has_any:
            self._start = self._end = 0
            self._move_to(0)

    def _move_to(self, size: int) -> None:
        """Take another input; frames that are in use keep the one before."""
        moved = bytearray(size)
        moved[: self._end] = self._input[: self._end]
        self._input = moved
        self._view = memoryview(moved)

    def next_frame(self) -> memoryview | None:
        """The next complete frame, which may be used until it is answered; None if there is none.

        Raises:
            ProtocolError: as `check_size`.
        """
        if self.large is not None:
            large = self.large
            if not large.is_whole or not self._share.claim(large.objects_bytes):
                return None
            self._answered_large, self.large = large, None
            self._share.became_whole()
            self._is_share_used = True
            frame = large.take()
            self._head_at, self._large_head = -1, bytes(frame[:HEAD_BYTES])
            return frame
        available = self._end - self._start
        if available < SIZE_BYTES:
            return None
        (size,) = _SIZE.unpack_from(self._input, self._start)
        key = self.next_key
        # Only a token of a login is shorter than an API key, and may be empty.
        if key is None and not 0 <= size < _PREFIX.size - SIZE_BYTES:
            return None
        limit = self.frame_bytes_max
        # Refused by its length alone, before any memory is claimed for it.
        if size > ORDINARY_FRAME_BYTES_MAX and key != ApiKey.PRODUCE:
            limit = min(limit, ORDINARY_FRAME_BYTES_MAX)
        check_size(size, limit=limit)
        body = self._start + SIZE_BYTES
        # Memory for decoded objects is claimed when the request is complete, and not before: the
        # length field may be wrong.
        is_counted = key != ApiKey.PRODUCE and size > UNCOUNTED_BYTES_MAX
        objects_bytes = size * OBJECTS_FACTOR if is_counted else 0
        if size + SIZE_BYTES <= available:
            if is_counted:
                if not self._share.claim(objects_bytes):
                    return None
                self._share.became_whole()
                self._is_share_used = True
            self._head_at = self._start
            self._start = body + size
            return self._view[body : body + size]
        # A large frame stays in the input until that is full, so that a client that sends a length
        # and few bytes reserves no memory.
        if available == len(self._input) and self._share.claim(min(size, FIRST_BYTES)):
            start = self._view[SIZE_BYTES:]
            self.large = LargeRequest(start, size, share=self._share, objects_bytes=objects_bytes)
            self._start = self._end = 0
        return None

    def take_repeated(self, repeats: ConnectionRepeats) -> RepeatedAnswers | None:
        """Answers to the next frames, if they repeat a known request; else None.

        They may be empty, because not every request has an answer.
        """
        available = self._end - self._start
        if available < SIZE_BYTES or self.large is not None:
            return None
        if available < SIZE_BYTES + _SIZE.unpack_from(self._input, self._start)[0]:
            return None
        taken = repeats.take(
            self._input, self._start, self._end, frame_bytes_max=self.frame_bytes_max
        )
        if taken is None:
            return None
        self._head_at = self._start
        self._start, answers = taken
        return answers

    def answered(self) -> None:
        """Release the request's memory before the response is sent, which may take long."""
        # A client that reads its response slowly does not keep the memory of its request.
        if self._is_share_used:
            self._is_share_used = False
            self._share.release()
            if self._answered_large is not None:
                self._answered_large.free()
                self._answered_large = None

    def free(self) -> None:
        """Release all memory, when the connection is closed."""
        for large in (self.large, self._answered_large):
            if large is not None:
                large.free()
        self.large = self._answered_large = None
        self._input = bytearray()
        self._view = memoryview(self._input)
