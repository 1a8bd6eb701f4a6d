"""The login on one connection of a broker: before its first request, and again between requests.

    ApiVersions, at most once
    SaslHandshake v0   then tokens alone, each with its size in front
    SaslHandshake v1   then tokens in SaslAuthenticate (KIP-152)
    requests           until the session ends, if it has an end
    SaslHandshake      a login again, for the same user by the same mechanism (KIP-368)

The rules are those of Kafka's SaslServerAuthenticator, and of KafkaChannel for the login again. A
login that fails is answered after a delay (KIP-306), as Kafka answers it, and the connection ends;
during the delay nothing is read. What the client is told and what the log says are two things.

Invariant: before a login, and after the end of a session, nothing reaches a handler but ApiVersions
once. A connection keeps its user: a login again for another one ends it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from struct import Struct
from typing import Final, NamedTuple, cast

from tailrace.errors import FatalError
from tailrace.model import Principal
from tailrace.protocol.answers import LoginEndedError
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Buffer, Message, Records
from tailrace.protocol.frames import (
    RequestHeader,
    decode_request,
    read_request_header,
    response_buffers,
)
from tailrace.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tailrace.runtime.limited_lines import LimitedLines
from tailrace.runtime.threads import BoundedThreads, Threads
from tailrace.security.audit import AUDIT
from tailrace.security.exchange import (
    Exchange,
    Granted,
    RefusedLoginError,
    ServerMechanism,
    Work,
    client_error,
)
from tailrace.values import dataclass

WORK_MAX: Final = 4
"""Logins by one mechanism of a listener that use threads at a time: a flood takes no more of them,
and one that waits for an issuer which hangs does not hold up those by others."""

REPEAT_S: Final = 1.0
"""Least time between two logins again of a connection, as in Kafka."""

_USER_SHOWN_MAX: Final = 100
_SIZE: Final = Struct(">i")
_CODE: Final = Struct(">ih")
"""Correlation id and error code, with which an answer to ApiVersions begins."""

Answer = list[Records] | Awaitable[list[Records]]


class RequestRefusedError(FatalError):
    """A client sends what may not come now; it gets no answer."""


class LoginThreads:
    """The threads on which logins wait; for all listeners of a broker."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._places: dict[tuple[str, str], BoundedThreads] = {}
        """By listener and mechanism."""

    async def run(self, work: Work, *, listener: str, mechanism: str) -> object:
        """The result of the work."""
        key = (listener, mechanism)
        if key not in self._places:
            self._places[key] = BoundedThreads(self._threads, WORK_MAX)
        return await self._places[key].run(work.run)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ListenerLogins:
    """The logins of one listener."""

    name: str
    """The listener's."""
    mechanisms: Mapping[str, ServerMechanism]
    """By their names, in the order in which clients see them."""
    session_ms_max: Mapping[str, int]
    """`connections.max.reauth.ms` by mechanism; 0: sessions have no end."""
    receive_bytes_max: int
    """`sasl.server.max.receive.size`"""
    failure_delay_s: float
    """`connection.failed.authentication.delay.ms`"""
    threads: LoginThreads
    now: Callable[[], float]
    """Unix seconds."""


class _State(Enum):
    START = auto()
    """Nothing has come yet."""
    VERSIONED = auto()
    """ApiVersions was answered."""
    TOKENS = auto()
    """The mechanism is known."""
    OTHER_MECHANISM = auto()
    """A login again asked for another mechanism; the connection ends with the next frame."""
    OPEN = auto()
    """The client has logged in."""


class _Request(NamedTuple):
    """Version and correlation id of a request, for its answer."""

    version: int
    correlation_id: int


class ConnectionLogin:
    """The login of one connection; made on its event loop."""

    def __init__(self, logins: ListenerLogins, peer: str, lines: LimitedLines) -> None:
        self._logins = logins
        self._lines = lines
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._state = _State.START
        self._has_requests = False
        """Whether tokens come in requests: SaslHandshake v1."""
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._ends_at = float("inf")
        """End of the session, on the loop's clock."""
        self._began_again_at = float("-inf")
        self._user = ""
        self.principal: Principal | None = None
        """The client; None before its login."""

    @property
    def is_open(self) -> bool:
        """Whether the client has logged in, and is not about to do it again."""
        return self._state is _State.OPEN

    @property
    def receive_bytes_max(self) -> int:
        """Size of the largest frame that is taken before the login."""
        return self._logins.receive_bytes_max

    def takes(self, key: int | None) -> bool:
        """Whether the next frame, which has this API key, is one for `take`."""
        if self._state is not _State.OPEN:
            return True
        if self._ends_at == float("inf"):
            # A SaslHandshake is answered with ILLEGAL_SASL_STATE then, by its handler.
            return False
        now = self._loop.time()
        if key == ApiKey.SASL_HANDSHAKE and now - self._began_again_at >= REPEAT_S:
            return True
        return now >= self._ends_at

    def take(self, frame: memoryview, answer_versions: Callable[[memoryview], Answer]) -> Answer:
        """The answer to a frame of the login; `answer_versions` answers an ApiVersions request.

        Raises (also from the awaitable):
            LoginEndedError: the login has failed; the answer is to be sent, and the connection
                closed.
        """
        try:
            match self._state:
                case _State.TOKENS:
                    return self._take_token(frame)
                case _State.OTHER_MECHANISM:
                    raise RequestRefusedError(
                        f"a login again has to use {self._mechanism}, as the first one"
                    )
                case _:
                    return self._take_request(frame, answer_versions)
        except FatalError as error:
            return self._end(error, [])

    def refused(self, reason: str) -> None:
        """Note that the connection ends in its login, for bytes that are no frame."""
        self._note(reason, user="")

    # -- requests before the tokens ---------------------------------------------------------------

    def _take_request(
        self, frame: memoryview, answer_versions: Callable[[memoryview], Answer]
    ) -> Answer:
        header, position = read_request_header(frame)
        key = header.api_key
        is_again = self._state is _State.OPEN
        if key == ApiKey.API_VERSIONS and self._state is _State.START:
            return self._answer_versions(answer_versions(frame))
        if key != ApiKey.SASL_HANDSHAKE:
            if is_again:
                raise RequestRefusedError(f"the session of {self._user!r} has ended")
            raise RequestRefusedError(f"a request with the API key {key} comes before the login")
        if header.api is None:
            raise RequestRefusedError(f"SaslHandshake has no version {header.api_version}")
        request = decode_request(header, frame, position, api=APIS[ApiKey.SASL_HANDSHAKE])
        assert isinstance(request, SaslHandshakeRequest)
        return self._shake_hands(header, request.mechanism, is_again=is_again)

    def _answer_versions(self, answer: Answer) -> Answer:
        if not isinstance(answer, list):
            return self._answer_versions_later(answer)
        # An answer may be in several buffers.
        _, code = _CODE.unpack_from(b"".join(cast("list[Buffer]", answer)), _SIZE.size)
        # A client that is asked to try an older version, or another name, tries again.
        if not code:
            self._state = _State.VERSIONED
        return answer

    async def _answer_versions_later(self, answer: Awaitable[list[Records]]) -> list[Records]:
        found = self._answer_versions(await answer)
        assert isinstance(found, list)
        return found

    def _shake_hands(self, header: RequestHeader, mechanism: str, *, is_again: bool) -> Answer:
        names = tuple(self._logins.mechanisms)
        is_known = mechanism in names
        body = SaslHandshakeResponse(
            error_code=ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            mechanisms=names,
        )
        request = _Request(header.api_version, header.correlation_id)
        answer = _response(body, ApiKey.SASL_HANDSHAKE, request)
        if not is_known:
            error = RequestRefusedError(
                f"the mechanism {mechanism[:40]!r} is none of {', '.join(names)}"
            )
            return self._end(error, answer)
        self._has_requests = header.api_version >= 1
        if is_again:
            self._began_again_at = self._loop.time()
            if mechanism != self._mechanism:
                self._state = _State.OTHER_MECHANISM
                return answer
        self._mechanism = mechanism
        self._exchange = None
        self._state = _State.TOKENS
        return answer

    # -- tokens -----------------------------------------------------------------------------------

    def _take_token(self, frame: memoryview) -> Answer:
        request = None
        token = bytes(frame)
        if self._has_requests:
            header, position = read_request_header(frame)
            if header.api_key != ApiKey.SASL_AUTHENTICATE or header.api is None:
                raise RequestRefusedError(
                    f"a request with the API key {header.api_key} in version "
                    f"{header.api_version} comes instead of SaslAuthenticate"
                )
            decoded = decode_request(header, frame, position, api=header.api)
            assert isinstance(decoded, SaslAuthenticateRequest)
            request = _Request(header.api_version, header.correlation_id)
            token = bytes(decoded.auth_bytes)
        try:
            if self._exchange is None:
                self._exchange = self._logins.mechanisms[self._mechanism].exchange(token)
                step = self._step(None)
            else:
                step = self._step(token)
            if isinstance(step, Work):
                return self._work(step, request)
            return self._answered(step, request)
        except RefusedLoginError as error:
            return self._refuse(error, request)

    def _step(self, given: object) -> bytes | Work | Granted:
        assert self._exchange is not None
        try:
            return self._exchange.send(given)
        except StopIteration as done:
            granted: Granted = done.value
            return granted

    async def _work(self, step: Work, request: _Request | None) -> list[Records]:
        found: bytes | Work | Granted = step
        try:
            while isinstance(found, Work):
                done = await self._logins.threads.run(
                    found, listener=self._logins.name, mechanism=self._mechanism
                )
                found = self._step(done)
            return self._answered(found, request)
        except RefusedLoginError as error:
            return await self._refuse(error, request)

    def _answered(self, found: bytes | Granted, request: _Request | None) -> list[Records]:
        if isinstance(found, bytes):
            return _token_answer(found, request)
        principal = Principal("User", found.name)
        if self.principal is not None and principal != self.principal:
            raise client_error(
                f"Cannot change principals during re-authentication from "
                f"{self.principal.type}.{self.principal.name}: {principal.type}.{principal.name}",
                user=found.name,
            )
        session_ms = self._session_ms(found)
        self._ends_at = (
            float("inf") if session_ms is None else self._loop.time() + session_ms / 1000
        )
        self.principal, self._user = principal, found.name
        self._exchange = None
        self._state = _State.OPEN
        AUDIT.debug(
            "login peer=%s listener=%s mechanism=%s user=%s",
            self._peer, self._logins.name, self._mechanism, found.name,
        )  # fmt: skip
        return _token_answer(found.answer, request, session_ms=session_ms or 0)

    def _session_ms(self, granted: Granted) -> int | None:
        """Length of the session, which ends with what the client has shown; None: without end."""
        limits = []
        if granted.expires_at is not None:
            limits.append(int((granted.expires_at - self._logins.now()) * 1000))
        # 0 means that they have no end.
        if limit := self._logins.session_ms_max.get(self._mechanism, 0):
            limits.append(limit)
        return max(0, min(limits)) if limits else None

    # -- the end ----------------------------------------------------------------------------------

    def _refuse(
        self, error: RefusedLoginError, request: _Request | None
    ) -> Awaitable[list[Records]]:
        answer: list[Records] = []
        # A token without a request gets no answer: its client has no field for an error.
        if request is not None:
            kind = "authentication" if self.principal is None else "re-authentication"
            message = error.message or (
                f"Authentication failed during {kind} due to invalid credentials with SASL "
                f"mechanism {self._mechanism}"
            )
            body = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message
            )
            answer = _response(body, ApiKey.SASL_AUTHENTICATE, request)
        return self._end(error, answer)

    def _end(self, error: FatalError, answer: list[Records]) -> Awaitable[list[Records]]:
        # Before the delay, so that the log has the order in which they came.
        self._note(str(error), user=error.user if isinstance(error, RefusedLoginError) else "")
        return self._end_later(str(error), answer)

    async def _end_later(self, reason: str, answer: list[Records]) -> list[Records]:
        await asyncio.sleep(self._logins.failure_delay_s)
        raise LoginEndedError(reason, answer)

    def _note(self, reason: str, *, user: str) -> None:
        # The name is quoted, so that a client cannot make a line of its own.
        self._lines.log(
            AUDIT, logging.WARNING,
            "login_refused peer=%s listener=%s mechanism=%s user=%.*r reason=%s",
            self._logins.name, self._mechanism or "-", _USER_SHOWN_MAX, user or self._user, reason,
            peer=self._peer,
        )  # fmt: skip


def _token_answer(token: bytes, request: _Request | None, *, session_ms: int = 0) -> list[Records]:
    if request is None:
        return [_SIZE.pack(len(token)) + token]
    body = SaslAuthenticateResponse(
        error_code=ErrorCode.NONE, auth_bytes=token, session_lifetime_ms=session_ms
    )
    return _response(body, ApiKey.SASL_AUTHENTICATE, request)


def _response(body: Message, key: ApiKey, request: _Request) -> list[Records]:
    return response_buffers(
        APIS[key], body, version=request.version, correlation_id=request.correlation_id
    )
