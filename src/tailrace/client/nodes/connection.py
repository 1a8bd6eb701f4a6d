"""One connection to a broker: requests out, answers in, in their order.

    set up (versions, login) -> ready -> closed

    send -> frame -> unsent (bytes that the socket buffer has no room for) -> socket
    socket -> input -> frame -> the oldest request in flight
    socket ----------> large frame, which needs no copy

Not here: which connections there are, when one is opened, and time limits; see `pool`.

Invariant: whatever bytes a broker sends, `work` ends in answers or in one `NodeError`. A large
frame first gets `LARGE_BYTES` of memory, or as much as the last one had; then `LARGE_GROWTH` times
as much as has arrived of it, but never more than `FRAME_BYTES_MAX`, or less than twice as much of
memory that was used before (`FrameMemory`), of which it keeps up to 16 MiB. A connection cannot be
used after an error, because its position in the stream is unknown.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from tailrace.client.errors import (
    AuthenticationError,
    DisconnectedError,
    MalformedAnswerError,
    NodeError,
    UnsupportedVersionError,
)
from tailrace.client.nodes.handshake import Step, Steps
from tailrace.client.nodes.sasl import Blocking
from tailrace.client.nodes.versions import THROTTLED_SINCE
from tailrace.protocol import frames
from tailrace.protocol.apis import Api
from tailrace.protocol.errors import MalformedMessageError, UnencodableMessageError
from tailrace.protocol.fields import Buffer, Message
from tailrace.runtime.network import Socket, without_front
from tailrace.security.errors import TlsError

INPUT_BYTES: Final = 16 * 1024
"""Holds every answer that a producer gets, except metadata of some hundred topics."""

LARGE_BYTES: Final = 256 * 1024
"""First allocation for a frame that does not fit the input, if its size field claims as much."""

LARGE_GROWTH: Final = 16
"""Factor by which that allocation grows when it is full: a 4 MiB answer is copied once, early."""

THROTTLE_MS_MAX: Final = 300_000
"""Longest throttle time that is kept, in ms: requests in flight wait that much longer, and the
field allows 24 days."""

ID_LIMIT: Final = 1 << 31
"""Correlation ids are int32 and start again at 0."""

KEPT_COUNT: Final = 4
"""One that is received into, two answers that wait (see `fetching`), and one that is decoded."""

KEPT_BYTES_MAX: Final = (4 << 20) + (64 << 10)
"""Larger memory is not kept: the default of `max.partition.fetch.bytes`, and what is around it."""

_SIZE = Struct(">i")

RequestOutcome = Message | NodeError | None
"""The result of a request: its answer, an error, or None if it asked for no answer."""

Done = Callable[[RequestOutcome], None]

RunBeside = Callable[[Callable[[], None], Callable[[], None]], None]
"""See `Connector.run_beside`."""


class InFlight(NamedTuple):
    """A request whose answer has not come yet."""

    correlation_id: int
    api: Api
    version: int
    done: Done
    deadline: float
    has_answer: bool


class Connection:
    """A connection from its first byte on; results of requests are appended to `outcomes`."""

    def __init__(
        self,
        socket: Socket,
        outcomes: deque[tuple[Done, RequestOutcome]],
        *,
        client_id: str,
        steps: Steps,
        run_beside: RunBeside,
        touched: Callable[[], None],
        readable: Callable[[], None],
    ) -> None:
        self.in_flight: deque[InFlight] = deque()
        self.is_ready = False
        self.versions: dict[int, int] = {}
        """The version of each request by API key, once the connection is ready."""
        self.session_s = float("inf")
        """Seconds for which it may be used, once it is ready."""
        self.throttle_ms = 0
        """Throttle time of the last answers; the reader of this field resets it to 0."""
        self._socket = socket
        self._outcomes = outcomes
        self._client_id = client_id
        self._touched = touched
        self._readable = readable
        self._steps = steps
        self._run_beside = run_beside
        self.awaited = ""
        """The subject of the work that the setup waits for; empty if it waits for the broker."""
        self._result: bytes | NodeError | None = None
        """The result of that work, until `work` takes it."""
        self._correlation_id = 0
        self._unsent: list[Buffer] = []
        self._is_blocked = False
        self._unanswered_count = 0
        """Requests in flight that get no answer."""
        self._error: NodeError | None = None
        # One buffer for all small answers: a request that takes 100 us should not pay for 16 KiB of
        # new memory.
        self._input = bytearray(INPUT_BYTES)
        self._filled = 0
        self._memory = FrameMemory()
        # Empty until a frame needs it, and again after that: an idle connection holds 16 KiB.
        self._large = bytearray()
        """Memory for a frame that does not fit the input; may be smaller or larger than it."""
        self._large_size = 0
        """Bytes that this frame will have; 0 if there is none."""
        self._large_seen = 0
        """Size of the last complete large frame: the next one gets as much memory at once."""

    def start(self) -> None:
        """Send the first request of the setup; the caller keeps the time limit.

        Raises:
            UnsupportedVersionError: the client id cannot be encoded.
        """
        self._socket.watch_reads(self._readable)
        self._take_step(next(self._steps))

    def send(
        self,
        body: Message,
        done: Done,
        *,
        api: Api,
        version: int,
        deadline: float,
        has_answer: bool,
    ) -> None:
        """Send a request after those that wait; if the connection is broken, `work` raises.

        Raises:
            UnsupportedVersionError: this version cannot carry the request.
        """
        correlation_id = self._correlation_id
        # A new number for each, so that an answer to an older request cannot be taken for this one.
        self._correlation_id = (correlation_id + 1) % ID_LIMIT
        try:
            buffers = frames.request_buffers(
                api,
                body,
                version=version,
                correlation_id=correlation_id,
                client_id=self._client_id,
            )
        except UnencodableMessageError as error:
            raise UnsupportedVersionError(f"the request cannot be sent: {error}") from error
        self.in_flight.append(InFlight(correlation_id, api, version, done, deadline, has_answer))
        self._unsent = self._unsent + buffers if self._unsent else buffers
        if not self._is_blocked:
            try:
                self._flush()
            except OSError as error:
                # `work` raises it: who sends cannot end a connection while others wait for its
                # answers.
                self._error = self._broken(error)
                self._touched()
        if not has_answer:
            # Its result is due when its bytes have left, which the next `work` finds out.
            self._unanswered_count += 1
            self._touched()

    def work(self) -> None:
        """Read what has arrived and send what waits.

        Raises:
            NodeError: the connection cannot be used any more.
        """
        if self._error is not None:
            raise self._error
        if isinstance(self._result, NodeError):
            raise self._result
        try:
            if self._result is not None:
                result, self._result = self._result, None
                self.awaited = ""
                self._set_up(result)
            self._receive()
            if self._unsent:
                self._flush()
        except OSError as error:
            raise self._broken(error) from error
        except MalformedMessageError as error:
            raise MalformedAnswerError(f"{self._socket.peer}: {error}{self._hint()}") from error
        if self._unanswered_count and not self._unsent:
            self._release_unanswered()

    def postpone(self, seconds: float) -> None:
        """Extend every request in flight by the throttle time, which is no delay of the broker."""
        self.in_flight = deque(
            each._replace(deadline=each.deadline + seconds) for each in self.in_flight
        )

    def close(self, error: NodeError) -> None:
        """Close the connection; requests in flight end with `error`, in their order."""
        self._socket.close()
        if self.is_ready:
            # Requests of the handshake have no caller.
            self._outcomes.extend((each.done, error) for each in self.in_flight)
        self.is_ready = False
        self.in_flight.clear()
        self._unsent = []
        # The generator may wait for an answer; its `finally` blocks run now and not at some
        # collection.
        self._steps.close()

    def _take_step(self, step: Step) -> None:
        if isinstance(step, Blocking):
            self.awaited = step.subject
            self._run_beside(lambda: self._run(step), self._touched)
            return
        api, version, body = step
        self.send(body, _nothing, api=api, version=version, deadline=float("inf"), has_answer=True)

    def _run(self, step: Blocking) -> None:
        """Do the work of a step, on another thread."""
        try:
            self._result = step.run()
        except NodeError as error:
            self._result = error
        # Also SystemExit of a callback: the connection would wait for its result until the setup
        # times out.
        except BaseException as error:  # noqa: BLE001 - an error that ends the thread is lost
            self._result = AuthenticationError(f"{step.subject} failed: {error!r}")

    def _flush(self) -> None:
        """Send what the socket takes; it calls back when there is room for the rest."""
        while self._unsent:
            sent = self._socket.send(self._unsent)
            if sent is None:
                if not self._is_blocked:
                    self._is_blocked = True
                    self._socket.watch_writes(self._touched)
                return
            self._unsent = without_front(self._unsent, sent)
        if self._is_blocked:
            self._is_blocked = False
            self._socket.watch_writes(None)

    def _receive(self) -> None:
        while True:
            with memoryview(self._large if self._large_size else self._input) as view:
                limit = min(len(view), self._large_size or INPUT_BYTES)
                received = self._socket.receive_into(view[self._filled : limit])
                if received is None:
                    return
                if not received:
                    raise ConnectionResetError("the broker closed the connection")
                self._filled += received
                is_full = self._filled == limit
                if not self._large_size:
                    self._take_frames(view)
            if self._large_size and self._filled == min(len(self._large), self._large_size):
                self._grow_large()
            # A short read has emptied the socket; another would cost a system call to say so.
            if not is_full:
                return

    def _take_frames(self, view: memoryview) -> None:
        """Process the complete frames of the input; each answer gets its own copy."""
        start = 0
        filled = self._filled
        while filled - start >= frames.SIZE_BYTES:
            body = start + frames.SIZE_BYTES
            (size,) = _SIZE.unpack_from(view, start)
            frames.check_size(size, limit=frames.FRAME_BYTES_MAX)
            if filled < body + size:
                if size > INPUT_BYTES - frames.SIZE_BYTES:
                    self._large = self._memory.take(min(size, max(LARGE_BYTES, self._large_seen)))
                    self._large_size = size
                    self._large[: filled - body] = view[body:filled]
                    self._filled = filled - body
                    return
                break
            start = body + size
            # A copy: fields of the answer may be views of its bytes, and the next ones overwrite
            # the input.
            self._take_answer(memoryview(bytes(view[body:start])))
        if start:
            view[: filled - start] = view[start:filled]
            self._filled = filled - start

    def _grow_large(self) -> None:
        """Make room for more of a large frame, or process it if it is complete."""
        frame, filled = self._large, self._filled
        if filled < self._large_size:
            # By what has arrived, not by what the size field claims: ten bytes of a hostile peer
            # must not cost a gigabyte.
            self._large = bytearray(min(self._large_size, filled * LARGE_GROWTH))
            self._large[:filled] = frame
            return
        self._large = bytearray()
        self._large_seen = filled
        self._large_size = self._filled = 0
        self._memory.keep(frame)
        self._take_answer(memoryview(frame)[:filled])

    def _take_answer(self, frame: memoryview) -> None:
        correlation_id = frames.read_correlation_id(frame)
        in_flight = self.in_flight
        # A broker works in order: an answer says that the requests before it, which get none
        # (acks=0), were received.
        while in_flight and not in_flight[0].has_answer:
            self._unanswered_count -= 1
            self._outcomes.append((in_flight.popleft().done, None))
        if not in_flight or in_flight[0].correlation_id != correlation_id:
            expected = in_flight[0].correlation_id if in_flight else "nothing"
            raise MalformedMessageError(
                f"request {correlation_id} is answered, {expected} is due", position=0
            )
        _, api, version, done, _, _ = in_flight[0]
        answer = frames.decode_response(api, version, frame)
        in_flight.popleft()
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        # Older versions are answered after the throttle time, newer ones before it (KIP-219).
        if throttle_ms > 0 and version >= THROTTLED_SINCE.get(api.key, 1):
            self.throttle_ms = max(self.throttle_ms, min(throttle_ms, THROTTLE_MS_MAX))
        if self.is_ready:
            self._outcomes.append((done, answer))
        else:
            self._set_up(answer)

    def _set_up(self, answer: Message | bytes) -> None:
        try:
            step = self._steps.send(answer)
        except StopIteration as end:
            self.versions = end.value.versions
            self.session_s = end.value.session_s
            self.is_ready = True
        else:
            self._take_step(step)

    def _release_unanswered(self) -> None:
        """Finish all requests that get no answer; everything has been sent."""
        in_flight, self.in_flight = self.in_flight, deque()
        for each in in_flight:
            if each.has_answer:
                self.in_flight.append(each)
            else:
                self._outcomes.append((each.done, None))
        self._unanswered_count = 0

    def _broken(self, error: OSError) -> NodeError:
        if self.is_ready:
            return DisconnectedError(f"{self._socket.peer}: the connection broke: {error}")
        if isinstance(error, TlsError):
            return AuthenticationError(
                f"{self._socket.peer}: no TLS connection: {error}; check ssl.truststore.location, "
                "ssl.endpoint.identification.algorithm, and whether the port speaks TLS"
            )
        return DisconnectedError(
            f"{self._socket.peer}: the connection broke before the first request: {error}; does "
            "the port speak Kafka with this security.protocol?"
        )

    def _hint(self) -> str:
        """Advice if the received bytes look like TLS or HTTP; else an empty string."""
        match bytes(self._input[:2]):
            # The first bytes of an alert and of a handshake of TLS. A plain client gets them as a
            # frame of 352 MB.
            case b"\x15\x03" | b"\x16\x03":
                return "; the port speaks TLS: set security.protocol to SSL or SASL_SSL"
            case b"HT":
                return "; the port speaks HTTP, not Kafka"
        return ""


def _nothing(_outcome: RequestOutcome) -> None:
    """Ignore the answer: `_set_up` handles answers of the setup itself."""


class FrameMemory:
    """Memory of the large frames of one connection, used again once nobody looks at it.

    Fetched records stay in the memory that they were received into, until they were decoded. New
    memory for each answer costs more than to receive it: Python zeroes it, and the kernel gives and
    takes back its pages. Memory is given out only if no view of it exists.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """Memory of at least `size` bytes, less than twice as many; its content is undefined."""
        for index, each in enumerate(self._kept):
            if size <= len(each) < 2 * size and _is_free(each):
                return self._kept.pop(index)
        return bytearray(size)

    def keep(self, memory: bytearray) -> None:
        """Note memory that others may still look at, for a later `take`."""
        if len(memory) <= KEPT_BYTES_MAX:
            # The oldest goes: its records were decoded first.
            del self._kept[: len(self._kept) + 1 - KEPT_COUNT]
            self._kept.append(memory)


def _is_free(memory: bytearray) -> bool:
    """Whether there is no view: Python refuses to resize a `bytearray` that has one."""
    try:
        # There is no other way to ask whether somebody has a view of it.
        last = memory.pop()
    except BufferError:
        return False
    memory.append(last)
    return True
