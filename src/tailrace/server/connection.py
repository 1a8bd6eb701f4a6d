r"""One client's connection: receives request frames and sends responses, in order.

    socket -> input (64 KiB, shared by small frames) -> frame -> dispatch -> output -> socket
                  \-> a frame that does not fit gets a buffer of its own

Requests are answered one at a time, in order, as Kafka promises. A Produce that has been appended,
and waits for followers, does not hold up the next Produce: followers fetch the batches of both at
once. Its answer leaves first all the same (decision 83). Responses to frames that arrived together
are sent together, because a system call costs as much as a small request. Nothing more is read
until the kernel has taken them, nor while the client is throttled. So one connection holds at most
the input, one large frame and some responses. A frame gets its own buffer when it has filled the
input, and a buffer of its full size when it has filled that one: a length alone reserves no memory.
`memory` limits all connections together: a socket is not read while its request waits for memory.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tailrace.errors import TailraceError
from tailrace.model import Principal
from tailrace.protocol.answers import (
    CloseConnectionError,
    Deferred,
    LoginEndedError,
    Throttled,
)
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.fields import Records
from tailrace.protocol.frames import Caller
from tailrace.runtime import slices
from tailrace.runtime.limited_lines import LimitedLines
from tailrace.runtime.network import AcceptedSocket
from tailrace.runtime.slices import SLICE_S
from tailrace.security.audit import AUDIT
from tailrace.security.errors import TlsError
from tailrace.server.dispatch import ConnectionRepeats, RequestAnswers
from tailrace.server.memory import ConnectionMemory, ReceiveTurns, RequestMemory
from tailrace.server.receiving import RequestInput
from tailrace.server.sending import NotCachedError, ResponseSender, StoredBytesError
from tailrace.server.slow_requests import HEAD_BYTES, SlowRequests, WaitingRequest

if TYPE_CHECKING:
    from tailrace.security.authenticator import ConnectionLogin

T = TypeVar("T")

logger = logging.getLogger(__name__)

OUTPUT_BUFFERS_MAX: Final = 64
"""Buffers of responses that are collected before they are sent; a small response is one buffer."""

DEFERRED_MAX: Final = 64
"""Answers of a connection that wait at a time, where those of repeated requests that were received
together count as one: each takes some 2 KB. A producer with more requests
in flight gains nothing by it: followers fetch a megabyte of 16 KB batches at once then."""


class Connection:
    """Reads, dispatches and answers until the peer closes or sends an invalid request.

    It reads from `start_reading` on.
    """

    def __init__(
        self,
        socket: AcceptedSocket,
        answers: RequestAnswers,
        *,
        listener: str,
        sending: ResponseSender,
        frame_bytes_max: int,
        memory: RequestMemory,
        turns: ReceiveTurns,
        lines: LimitedLines,
        slow: SlowRequests,
        on_lost: Callable[["Connection"], None],
        on_close: Callable[["Connection"], None],
        login: "ConnectionLogin | None" = None,
        is_identified: bool = True,
    ) -> None:
        """`on_lost` has to close the connection, now or in a later turn of the loop.

        `login` takes what comes before the client has logged in; None: it need not.
        """
        self._socket = socket
        self._caller = Caller(socket.peer, listener=listener)
        self._dispatch = answers.dispatch
        self._repeats = ConnectionRepeats(answers.open_repeats, answers.quotas)
        self._sending = sending
        self._on_lost = on_lost
        self._on_close = on_close
        self._turns = turns
        self._lines = lines
        self._slow = slow
        self._login = login
        self._frame_bytes_max = frame_bytes_max
        self._share = ConnectionMemory(memory, granted=self._continue, evict=self._evict)
        self.requests = RequestInput(
            self._share,
            frame_bytes_max=frame_bytes_max if login is None else login.receive_bytes_max,
        )
        """Requests that have been received and not been answered."""
        self._output: list[Records] = []
        self._answering: asyncio.Task[None] | None = None
        self._deferred: deque[_Deferred | list[Records]] = deque()
        """An answer that waits, and those that leave after it."""
        self._failure: Exception | None = None
        """The error that ends the connection after these."""
        self._reading: asyncio.Task[None] | None = None
        """The task that reads the next bytes to send from a device."""
        self._is_closed = False
        self._is_reading = False
        self._is_lost = False
        """Whether the client has closed, and `on_lost` was called."""
        self._is_peer_gone = False
        """Result of the last check in `has_lost_peer`."""
        self._is_blocked = False
        """Whether responses wait for room in the kernel's buffer, for a device, or for a turn."""
        self._is_resting = False
        """Whether more requests are answered in the next turn of the loop."""
        self._muted: asyncio.TimerHandle | None = None
        """Ends the time for which the client is throttled: none of its requests is answered."""
        self._loop = asyncio.get_running_loop()
        self._active_at = self._received_at = self._loop.time()
        self._queued_s = 0.0
        """Time for which the next request has waited for memory, or for those before it."""
        self._answered: WaitingRequest | None = None
        """The request that was answered last, if its answer was waited for, until it is sent."""
        self._sending_since: float | None = None
        """Since when the answer to it waits for room in the kernel's buffer, or for a device."""
        self.is_identified = is_identified
        """Whether the client may send requests: it has shaken hands and logged in if it has to."""

    def start_reading(self) -> None:
        """Read requests as they arrive; does nothing while the socket is read."""
        if not self._is_reading:
            self._is_reading = True
            self._socket.watch_reads(self._on_readable)

    def identify(self, principal: Principal) -> None:
        """Hand the next requests on with the name by which the client is known now."""
        self._caller = self._caller._replace(principal=principal)
        # After the handshake of TLS a login may follow.
        if not self.is_identified and (self._login is None or self._login.principal is not None):
            self.is_identified = True
            self._active_at = self._loop.time()

    @property
    def peer(self) -> str:
        return self._socket.peer

    @property
    def idle_s(self) -> float:
        """Seconds since bytes were last received or sent, also while a request is answered.

        Seconds since the connection was accepted as long as the client is not identified.
        """
        return self._loop.time() - self._active_at

    def has_lost_peer(self) -> bool:
        """Whether the peer had closed at the last call, and still at this one.

        Needed while the socket is not read. Two calls, so that a request in progress has time to
        complete: the records of a producer with acks=0 that has closed must be appended.
        """
        # Two sweeps in a row: a producer with acks=0 sends and closes, and its records count.
        was_gone = self._is_peer_gone
        has_more = self._is_reading or self.requests.has_bytes
        self._is_peer_gone = not has_more and self._socket.is_peer_gone
        return was_gone and self._is_peer_gone

    def close(self) -> None:
        """End the connection; a request in progress is cancelled."""
        if self._is_closed:
            return
        self._is_closed = True
        for each in self._deferred:
            if isinstance(each, _Deferred):
                each.answer.cancel()
        self._deferred.clear()
        if self._muted is not None:
            self._muted.cancel()
        if self._answering is not None:
            # Cancel in the next turn: a task that is cancelled before it begins never awaits its
            # coroutine, and Python would warn about that.
            self._loop.call_soon(self._answering.cancel)
        if self._reading is not None:
            self._loop.call_soon(self._reading.cancel)
        self._socket.close()
        self._output.clear()
        self.requests.free()
        self._share.end()
        self._on_close(self)

    def end_idle(self) -> None:
        """Close the connection, because the client has been silent for too long."""
        self._log(logging.INFO, "connection_idle peer=%s")
        self.close()

    def _evict(self) -> None:
        self._log(
            logging.WARNING,
            "request_evicted peer=%s held_bytes=%d reason=others wait for queued.max.request.bytes",
            self._share.held_bytes,
        )  # fmt: skip
        self.close()

    def _log(self, level: int, message: str, *values: object) -> None:
        """Log a line that a client can cause at any time."""
        self._lines.log(logger, level, message, *values, peer=self.peer)

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._socket.watch_reads(None)

    def _watch(self) -> None:
        """Read the socket, unless the connection waits for a response or for memory.

        While a request is answered the socket stays watched until something comes (`_on_readable`):
        most clients send their next request after the answer, so that nothing has to change.
        """
        if self._is_closed or self._is_lost:
            return
        share = self._share
        is_waiting = self._is_blocked or self._is_resting or self._muted is not None
        if is_waiting or share.wanted_bytes or share.is_queued:
            self._pause()
        elif self._answering is None:
            self.start_reading()

    def _on_readable(self) -> None:
        # A request comes while another is answered: one at a time, in order, as Kafka promises.
        if self._answering is not None or self._is_held:
            self._pause()
        elif self.requests.large is None:
            self._guard(self._receive_and_work)
        elif not self._turns.ask(self._receive_large):
            self._share.is_queued = True
            self._pause()

    @property
    def _is_held(self) -> bool:
        """Whether the next request has to wait for the answers that are deferred."""
        # Only a Produce may begin before: others could see that the batches are not acknowledged.
        return bool(self._deferred) and (
            self._failure is not None
            or len(self._deferred) >= DEFERRED_MAX
            or self.requests.next_key not in (None, ApiKey.PRODUCE)
        )

    def _receive_large(self) -> int:
        """Continue to receive a large request; returns how many bytes of memory were written."""
        self._share.is_queued = False
        if self._is_closed:
            return 0
        large = self.requests.large
        assert large is not None, "a request ended while it was its turn to be received"
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
            case TlsError():
                # It may be that of a client that has to show a certificate.
                self._lines.log(
                    AUDIT, logging.INFO, "tls_failed peer=%s listener=%s reason=%s",
                    self._caller.listener, error, peer=self.peer,
                )  # fmt: skip
            case LoginEndedError():
                # Its reason is in the log already, as part of a count if there are many.
                self._output += error.answer
            case CloseConnectionError():
                self._log(logging.INFO, "connection_closed peer=%s reason=%s", error)
            case TailraceError() if self._login is not None and not self._login.is_open:
                self._login.refused(str(error))
            case TailraceError():
                self._log(logging.WARNING, "request_refused peer=%s reason=%s", error)
            case _:
                logger.error("request_failed peer=%s", self.peer, exc_info=error)
        if not isinstance(error, StoredBytesError):
            with suppress(OSError, StoredBytesError):
                self._flush()  # Answers to the requests before the one that failed.
        self.close()

    def _fail_in_turn(self, error: Exception) -> None:
        """End the connection for the error of a request, after the answers to those before it."""
        if self._deferred:
            self._failure = error
        else:
            self._fail(error)

    def _lose(self) -> None:
        """Note that the client has closed or reset the connection."""
        self._pause()
        if not self._is_lost:
            self._is_lost = True
            self._on_lost(self)

    def _receive_and_work(self) -> None:
        if not self.requests.has_room():
            self._pause()
            return
        received = self.requests.receive(self._socket)
        # 0: the client has closed. What it has sent before is still answered.
        if received == 0:
            if self._deferred:
                self._pause()  # Received again after the answers.
            else:
                self._lose()
        # Bytes of a handshake or a login do not prolong it.
        if received is not None and self.is_identified:
            self._active_at = self._received_at = self._loop.time()
        if received:
            self._work()

    def _work(self) -> None:
        """Answer the complete frames, until a response waits or the kernel's buffer is full.

        After a slice of time the rest waits for the next turn: there may be hundreds.
        """
        started, has_answered = slices.now(), False
        while self.requests.has_any and not (
            self._is_closed
            or self._answering
            or self._is_blocked
            or self._is_resting
            or self._muted is not None
            or self._is_held
        ):
            now = slices.now()
            if now - started >= SLICE_S:
                self._is_resting = True
                self._loop.call_soon(self._continue)
                break
            # Before repeated requests, which a session that has ended must not be answered either.
            login = self._login
            is_login = login is not None and login.takes(self.requests.next_key)
            repeated = None if is_login else self.requests.take_repeated(self._repeats)
            if repeated is not None:
                has_answered = True
                if isinstance(repeated, Deferred):
                    self._defer(repeated, self._waiting(self.requests.last_head(), now))
                elif repeated:
                    self._collect(repeated if isinstance(repeated, list) else [repeated])
                continue
            try:
                frame = self.requests.next_frame()
                if frame is None:
                    break
                answer = (
                    self._dispatch(frame, self._caller, self._repeats)
                    if login is None or not is_login
                    else self._log_in(login, frame)
                )
            except Exception as error:  # noqa: BLE001 - as in _guard
                self._fail_in_turn(error)
                break
            if isinstance(answer, list):
                del frame  # So that its memory is freed as soon as it is answered.
                has_answered = True
                self.requests.answered()
                self._collect(answer)
                continue
            request = self._waiting(b"" if is_login else bytes(frame[:HEAD_BYTES]), now)
            del frame
            if isinstance(answer, Deferred):
                self.requests.answered()
                self._defer(answer, request)
            else:
                self._answering = asyncio.ensure_future(self._answer(answer, request))
        spent_s = self._flush() - started
        if has_answered and spent_s + self._queued_s > self._slow.limit_s:
            self._note_slice(spent_s)
        self._watch()

    def _waiting(self, head: bytes, begun: float) -> WaitingRequest:
        """A request that waits from now on; it came to its handler at `begun`."""
        return WaitingRequest(
            head,
            begun_at=self._received_at,
            since=self._loop.time(),
            local_s=slices.now() - begun,
        )

    def _note_slice(self, spent_s: float) -> None:
        """Look at the last request of a long slice, which was answered at once.

        Those before it have taken less than `SLICE_S` together.
        """
        # One that waits is looked at when it is answered.
        if self._answering is not None or self._deferred:
            return
        now = self._loop.time()
        request = WaitingRequest(
            self.requests.last_head(),
            begun_at=now - spent_s - self._queued_s,
            since=now,
            local_s=spent_s,
        )
        if self._sending_since is None:
            self._slow.look_at(request, self._caller)
        else:
            self._answered = request

    def _log_in(
        self, login: "ConnectionLogin", frame: memoryview
    ) -> list[Records] | Awaitable[list[Records]]:
        """The answer to a frame of the login."""
        answer = login.take(frame, lambda asked: self._dispatch(asked, self._caller, None))
        if isinstance(answer, list):
            self._note_login(login)
            return answer
        return self._log_in_later(login, answer)

    async def _log_in_later(
        self, login: "ConnectionLogin", answer: Awaitable[list[Records]]
    ) -> list[Records]:
        found = await answer
        self._note_login(login)
        return found

    def _note_login(self, login: "ConnectionLogin") -> None:
        if login.principal is not None:
            self.identify(login.principal)
        self.requests.frame_bytes_max = (
            self._frame_bytes_max if login.is_open else login.receive_bytes_max
        )

    def _defer(self, answer: Deferred[list[Records]], request: WaitingRequest) -> None:
        self._deferred.append(_Deferred(answer, request))
        for each in answer.waiting:
            each.add_done_callback(self._on_settled)

    def _on_settled(self, _: asyncio.Future[object]) -> None:
        first = self._deferred[0] if self._deferred else None
        # Else it waits for more, or an earlier call has sent it with those before it.
        if isinstance(first, _Deferred) and first.answer.is_done:
            self._guard(self._answer_deferred)

    def _answer_deferred(self) -> None:
        now = self._loop.time()
        while self._deferred:
            first = self._deferred[0]
            if isinstance(first, _Deferred):
                if not first.answer.is_done:
                    break
                request = first.request
                try:
                    first = first.answer.take()
                except asyncio.CancelledError as error:
                    raise _abandoned() from error
                if now - request.begun_at > self._slow.limit_s:
                    self._note_answer(request, first)
                    self._slow.look_at(request, self._caller)
            self._deferred.popleft()
            self._mute_if_throttled(first)
            self._output += first
        if self._failure is not None and not self._deferred:
            raise self._failure
        self._work()

    def _note_answer(self, request: WaitingRequest, answer: list[Records]) -> None:
        request.answered_at = self._loop.time()
        request.throttle_ms = answer.throttle_ms if isinstance(answer, Throttled) else 0

    def _mute_if_throttled(self, answer: list[Records]) -> None:
        """Read the client no more for the time that its answer says (KIP-219)."""
        if not isinstance(answer, Throttled) or self._is_closed:
            return
        end_s = self._loop.time() + answer.throttle_ms / 1000
        if self._muted is not None:
            if self._muted.when() >= end_s:
                return
            self._muted.cancel()
        self._muted = self._loop.call_at(end_s, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self._received_at = self._loop.time()  # Its client knows that it waits.
        self._guard(self._work)

    def _collect(self, answer: list[Records]) -> None:
        self._mute_if_throttled(answer)
        if self._deferred:
            self._deferred.append(answer)
            return
        # Sent together: a system call costs as much as a small request.
        self._output += answer
        if len(self._output) >= OUTPUT_BUFFERS_MAX:
            self._flush()

    async def _answer(self, answer: Awaitable[list[Records]], request: WaitingRequest) -> None:
        try:
            buffers = await _not_abandoned(answer)
        except Exception as error:  # noqa: BLE001 - as in _guard
            self._answering = None
            self._fail_in_turn(error)
            return
        self._answering = None
        self.requests.answered()
        self._note_answer(request, buffers)
        self._answered = request
        self._collect(buffers)
        self._guard(self._work)
        if self._sending_since is None:
            self._answered = None
            self._slow.look_at(request, self._caller)

    def _flush(self) -> float:
        """Send what the kernel takes; wait for room for the rest. Returns when it began.

        After a slice of time the rest waits for the next turn, since a client may read as fast as
        an answer of 50 MB is sent.
        """
        started = slices.now()
        while self._output and not self._is_closed and not self._is_blocked:
            before = self._output
            try:
                self._output, has_room = self._sending.send(self._socket, before)
            except NotCachedError:
                self._block()
                self._reading = asyncio.ensure_future(self._read_from_device())
                return started
            if self._output is not before and self.is_identified:
                self._active_at = self._loop.time()
            is_slice_over = self._output and slices.now() - started >= SLICE_S
            if not has_room or is_slice_over:
                self._block()
                self._socket.watch_writes(self._on_writable)
        return started

    def _block(self) -> None:
        self._is_blocked = True
        if self._sending_since is None:
            self._sending_since = now = self._loop.time()
            if self._answered is None:
                head = self.requests.last_head()
                self._answered = WaitingRequest(head, begun_at=now, since=now, local_s=0.0)

    def _note_sent(self) -> None:
        """Look at the request whose answer the kernel has taken at last."""
        since, request = self._sending_since, self._answered
        if self._output or since is None or request is None:
            return
        self._sending_since = self._answered = None
        self._slow.look_at(request, self._caller, send_s=self._loop.time() - since)

    async def _read_from_device(self) -> None:
        try:
            self._output = await _not_abandoned(self._sending.from_device(self._output))
        except Exception as error:  # noqa: BLE001 - as in _guard
            self._reading = None
            self._fail(error)
            return
        self._reading = None
        self._is_blocked = False
        self._guard(self._flush_and_work)

    def _continue(self) -> None:
        """Answer more requests, when memory was granted or after a slice of time."""
        self._is_resting = False
        if not self._is_closed:
            self._queued_s = self._loop.time() - self._received_at
            self._guard(self._work)
            self._queued_s = 0.0

    def _on_writable(self) -> None:
        self._socket.watch_writes(None)
        self._is_blocked = False
        self._guard(self._flush_and_work)

    def _flush_and_work(self) -> None:
        self._flush()
        self._note_sent()
        self._work()


class _Deferred(NamedTuple):
    """An answer that waits, and its request."""

    answer: Deferred[list[Records]]
    request: WaitingRequest


async def _not_abandoned(awaited: Awaitable[T]) -> T:
    """Wait; a client must not wait for ever if what its request waits for is cancelled.

    Raises:
        RuntimeError: it was cancelled, and not the task that waits for it.
    """
    try:
        return await awaited
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise _abandoned() from error


def _abandoned() -> RuntimeError:
    return RuntimeError("what the request waits for was cancelled")
