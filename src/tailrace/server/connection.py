r"""One client's connection: receives request frames and sends responses, in order.

    socket -> input (64 KiB, shared by small frames) -> frame -> dispatch -> output -> socket
                  \-> a frame that does not fit gets a buffer of its own

Requests are answered one at a time, in order, as Kafka promises. Responses to frames that arrived
together are sent together, because a system call costs as much as a small request. Nothing more is
read until the kernel has taken them. So one connection holds at most the input, one large frame and
some responses. A frame gets its own buffer when it has filled the input, and a buffer of its full
size when it has filled that one: a length alone reserves no memory. `memory` limits all connections
together: a socket is not read while its request waits for memory.
"""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import Final

from tailrace.errors import TailraceError
from tailrace.protocol.answers import CloseConnectionError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.fields import Records
from tailrace.protocol.frames import SIZE_BYTES, check_size
from tailrace.runtime.network import AcceptedSocket
from tailrace.server.dispatch import Dispatcher
from tailrace.server.large import FIRST_BYTES, LargeRequest
from tailrace.server.memory import ConnectionMemory, ReceiveTurns, RequestMemory
from tailrace.server.sending import NotCachedError, ResponseSender, StoredBytesError

logger = logging.getLogger(__name__)

INPUT_BYTES: Final = 64 * 1024
"""Fits every request but a large produce; small compared to the kernel's socket buffer."""

OBJECTS_FACTOR: Final = 8
"""Bytes of memory that a request other than Produce takes when it is decoded, for each byte of its
size: a partition in a Fetch request has 33 bytes on the wire, and 250 as an object."""

UNCOUNTED_BYTES_MAX: Final = 16 * 1024
"""A request other than Produce up to this size claims no memory for its objects: a thousand of them
take 128 MB."""

OUTPUT_BUFFERS_MAX: Final = 64
"""Buffers of responses that are collected before they are sent; a small response is one buffer."""

ORDINARY_FRAME_BYTES_MAX: Final = 8 * 1024 * 1024
"""Largest request other than Produce. Its fields become objects, up to thirty times the size of
their bytes; the records of a produce request stay bytes. Kafka's own clients send at most some
hundred kilobytes: a request for the metadata of 10,000 topics."""

_PREFIX = struct.Struct(">ih")
"""Size and api key, which decide the size limit of a frame."""


class Connection:
    """Reads, dispatches and answers until the peer closes or sends an invalid request."""

    def __init__(
        self,
        socket: AcceptedSocket,
        dispatcher: Dispatcher,
        *,
        sending: ResponseSender,
        frame_bytes_max: int,
        memory: RequestMemory,
        turns: ReceiveTurns,
        on_lost: Callable[["Connection"], None],
        on_close: Callable[["Connection"], None],
    ) -> None:
        """`on_lost` has to close the connection, now or in a later turn of the loop."""
        self._socket = socket
        self._dispatcher = dispatcher
        self._sending = sending
        self._frame_bytes_max = frame_bytes_max
        self._on_lost = on_lost
        self._on_close = on_close
        self._input = bytearray(INPUT_BYTES)
        self._start = self._end = 0
        self._large: LargeRequest | None = None
        """The large request that is being received."""
        self._answered_large: LargeRequest | None = None
        """The large request that is being answered."""
        self._turns = turns
        self._share = ConnectionMemory(memory, granted=self._on_granted, evict=self.close)
        self._is_share_used = False
        """Whether the request that is being answered holds memory of the pool."""
        self._output: list[Records] = []
        self._answering: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        """The task that reads the next bytes to send from a device."""
        self._is_closed = False
        self._is_reading = False
        self._is_lost = False
        """Whether the client has closed, and the server was told."""
        self._is_peer_gone = False
        """Result of the last check in `has_lost_peer`."""
        self._is_blocked = False
        """Whether responses wait for room in the kernel's buffer, or for a device."""
        self._loop = asyncio.get_running_loop()
        self._active_at = self._loop.time()
        self._read_more()

    @property
    def peer(self) -> str:
        """The client's address, for log lines."""
        return self._socket.peer

    @property
    def buffered_bytes(self) -> int:
        """Memory for requests that are not completely received, in bytes."""
        return len(self._input) + (self._large.held_bytes if self._large is not None else 0)

    @property
    def idle_s(self) -> float:
        """Seconds since bytes were last received or sent, also while a request is answered."""
        return self._loop.time() - self._active_at

    def has_lost_peer(self) -> bool:
        """Whether the peer had closed at the last call, and still at this one.

        Needed while the socket is not read. Two calls, so that a request in progress has time to
        complete: the records of a producer with acks=0 that has closed must be appended.
        """
        was_gone = self._is_peer_gone
        has_more = self._is_reading or self._start < self._end
        self._is_peer_gone = not has_more and self._socket.is_peer_gone
        return was_gone and self._is_peer_gone

    def close(self) -> None:
        """End the connection; a request in progress is cancelled."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._answering is not None:
            # Cancel in the next turn: a task that is cancelled before it begins never awaits its
            # coroutine, and Python would warn about that.
            self._loop.call_soon(self._answering.cancel)
        if self._reading is not None:
            self._loop.call_soon(self._reading.cancel)
        self._socket.close()
        self._output.clear()
        for large in (self._large, self._answered_large):
            if large is not None:
                large.free()
        self._large = self._answered_large = None
        self._input = bytearray()
        self._share.end()
        self._on_close(self)

    def _read_more(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._socket.watch_reads(self._on_readable)

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._socket.watch_reads(None)

    def _watch(self) -> None:
        """Read the socket, unless the connection waits for a response or for memory."""
        if self._is_closed or self._is_lost:
            return
        share = self._share
        is_waiting = self._is_blocked or share.is_waiting or share.is_queued
        if self._answering is None and not is_waiting:
            self._read_more()
        else:
            self._pause()

    def _on_readable(self) -> None:
        if self._large is None:
            self._guard(self._receive_and_work)
        elif not self._turns.ask(self._receive_large):
            self._share.is_queued = True
            self._pause()

    def _receive_large(self) -> int:
        """Continue to receive a large request; returns how many bytes of memory were written."""
        self._share.is_queued = False
        if self._is_closed:
            return 0
        assert self._large is not None, "a request ended while it was its turn to be received"
        large = self._large
        before = large.written_bytes
        self._guard(self._receive_and_work)
        self._watch()
        return large.written_bytes - before

    def _guard(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - one connection's trouble is not the broker's
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Log the reason and end the connection."""
        match error:
            case ConnectionError():
                logger.debug("connection_lost peer=%s reason=%s", self.peer, error)
                self._lose()
                return
            case StoredBytesError():
                # The response header has been sent, so no error code can be sent any more.
                error.stored.failed(error.reason)
                logger.warning("answer_broken_off peer=%s reason=%s", self.peer, error)
            case CloseConnectionError():
                logger.info("connection_closed peer=%s reason=%s", self.peer, error)
            case TailraceError():
                logger.warning("request_refused peer=%s reason=%s", self.peer, error)
            case _:
                logger.error("request_failed peer=%s", self.peer, exc_info=error)
        self.close()

    def _lose(self) -> None:
        """Note that the client has closed or reset the connection."""
        self._pause()
        if not self._is_lost:
            self._is_lost = True
            self._on_lost(self)

    def _receive_and_work(self) -> None:
        if self._receive():
            self._work()

    def _receive(self) -> bool:
        """Receive from the socket; returns False if there are no new bytes."""
        if self._large is not None:
            if not self._large.grow_if_full():
                self._pause()
                return False
            received = self._large.receive(self._socket)
        else:
            if self._start == self._end:
                self._start = self._end = 0
            elif self._end == len(self._input):
                rest = self._input[self._start : self._end]
                self._input[: len(rest)] = rest
                self._start, self._end = 0, len(rest)
            with memoryview(self._input) as view:
                received = self._socket.receive_into(view[self._end :])
            self._end += received or 0
        if received == 0:
            self._lose()
        self._active_at = self._loop.time()
        return bool(received)

    def _work(self) -> None:
        """Answer the complete frames, until a response waits or the kernel's buffer is full."""
        while not self._is_closed and self._answering is None and not self._is_blocked:
            frame = self._next_frame()
            if frame is None:
                break
            answer = self._dispatcher.dispatch(frame)
            del frame  # So that its memory is freed as soon as it is answered.
            if isinstance(answer, list):
                self._answered()
                self._output += answer
                if len(self._output) >= OUTPUT_BUFFERS_MAX:
                    self._flush()
            else:
                self._answering = asyncio.ensure_future(self._answer(answer))
        self._flush()
        self._watch()

    def _answered(self) -> None:
        """Release the request's memory before the response is sent, which may take long."""
        if self._is_share_used:
            self._is_share_used = False
            self._share.release()
            if self._answered_large is not None:
                self._answered_large.free()
                self._answered_large = None

    def _next_frame(self) -> memoryview | None:
        if self._large is not None:
            large = self._large
            if not large.is_whole or not self._share.claim(large.objects_bytes):
                return None
            self._answered_large, self._large = large, None
            self._share.became_whole()
            self._is_share_used = True
            return large.take()
        available = self._end - self._start
        if available < _PREFIX.size:
            return None
        size, key = _PREFIX.unpack_from(self._input, self._start)
        limit = self._frame_bytes_max
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
            self._start = body + size
            return memoryview(self._input)[body : body + size]
        # A large frame stays in the input until that is full, so that a client that sends a length
        # and few bytes reserves no memory.
        if available == len(self._input) and self._share.claim(min(size, FIRST_BYTES)):
            start = memoryview(self._input)[SIZE_BYTES:]
            self._large = LargeRequest(start, size, share=self._share, objects_bytes=objects_bytes)
            self._start = self._end = 0
        return None

    async def _answer(self, answer: Awaitable[list[Records]]) -> None:
        try:
            buffers = await answer
        except Exception as error:  # noqa: BLE001 - as in _guard
            self._answering = None
            self._fail(error)
            return
        self._answering = None
        self._answered()
        self._output += buffers
        self._guard(self._work)

    def _flush(self) -> None:
        """Send what the kernel takes; wait for room for the rest."""
        while self._output and not self._is_closed and not self._is_blocked:
            before = self._output
            try:
                self._output, has_room = self._sending.send(self._socket, before)
            except NotCachedError:
                self._is_blocked = True
                self._reading = asyncio.ensure_future(self._read_from_device())
                return
            if self._output is not before:
                self._active_at = self._loop.time()
            if not has_room:
                self._is_blocked = True
                self._socket.watch_writes(self._on_writable)

    async def _read_from_device(self) -> None:
        try:
            self._output = await self._sending.from_device(self._output)
        except StoredBytesError as error:
            self._fail(error)
            return
        finally:
            self._reading = None
        self._is_blocked = False
        self._guard(self._flush_and_work)

    def _on_granted(self) -> None:
        if not self._is_closed:
            self._guard(self._work)

    def _on_writable(self) -> None:
        self._socket.watch_writes(None)
        self._is_blocked = False
        self._guard(self._flush_and_work)

    def _flush_and_work(self) -> None:
        self._flush()
        self._work()
