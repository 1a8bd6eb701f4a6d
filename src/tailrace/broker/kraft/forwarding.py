"""`Forwarding`: requests of clients that the active controller answers (KIP-590).

    client ─ CreateTopics ─► broker ─ Envelope{the same bytes, principal, address} ─► controller
           ◄─ the answer's bytes, as they are ──────────────────────────────────────

It wraps the function that answers frames: the broker's handlers never see these requests. Those to
alter settings are cut in two where the broker decides about a part (`forwarded_configs`).

ApiVersions of this broker names for these APIs only versions that the controller has too, since
its answer passes as it is. A client that has asked before another controller became the active one
may still send a later version. Its connection is closed then, and it asks again, as in Kafka.

The time that this broker spends on them is counted for the quota of the client. Its throttle time
is that or the controller's, whichever is longer, and this broker's connection is what is not read
meanwhile (`RequestHandlerHelper.sendForwardedResponse`).

A client gets REQUEST_TIMED_OUT if no controller answers within a minute. Whether the change was
made is not known then, as with any lost answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from itertools import count
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar, cast

from tailrace.broker.kraft.channel import (
    FORWARD_TIMEOUT_MS,
    ControllerChannel,
    Controllers,
    ForwardRefusedError,
    NoControllerError,
)
from tailrace.client.errors import (
    AuthenticationError,
    ClosedAdminError,
    UnsupportedBrokerError,
)
from tailrace.client.nodes import Node
from tailrace.errors import TailraceError
from tailrace.handlers.refusals import refusal
from tailrace.protocol.answers import CloseConnectionError, Throttled
from tailrace.protocol.apis import APIS, ApiKey, api_of
from tailrace.protocol.envelopes import address_bytes, principal_bytes
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message, Records
from tailrace.protocol.frames import (
    NOBODY,
    Caller,
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_request_header,
    response_buffers,
)
from tailrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from tailrace.runtime.threads import Threads
from tailrace.security.quotas import Charge, ClientQuotas
from tailrace.server.dispatch import ConnectionRepeats, Dispatch
from tailrace.values import replace

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

FORWARDED: Final = frozenset({
    ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS, ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
})  # fmt: skip
"""The APIs whose requests pass as they are (`KafkaApis.forwardToController`)."""

ALTERING: Final = frozenset({ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
"""The APIs whose requests pass in part."""

# A broker refuses requests for tokens of connections without a login, before it would forward them.
CUT: Final = FORWARDED | ALTERING | {
    ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN
}  # fmt: skip
"""The APIs of which a client is offered the controller's versions (`ApiKeys.forwardable`)."""

_THROTTLED: Final = (FORWARDED | ALTERING) - {ApiKey.DESCRIBE_QUORUM}
"""The APIs whose answers have a throttle time: as their first field, in all served versions."""

_WRAPPED: Final = frozenset(map(int, FORWARDED | ALTERING | {ApiKey.API_VERSIONS}))
_VERSIONS_KEPT_MAX: Final = 32
"""Most answers to ApiVersions that are kept: one for each version, and each change of features."""

_VERSIONS_VERSION: Final = 2

_SIZE: Final = Struct(">i")
_HEAD_BYTES: Final = 8
"""Size and correlation id of a response frame."""


class _Received(NamedTuple):
    """A request of a client."""

    header: RequestHeader
    frame: bytes
    """Its bytes without the size."""
    position: int
    """The beginning of the body."""

    def decode(self) -> Message:
        return decode_request(self.header, memoryview(self.frame), self.position)

    def with_part(self, part: Message) -> "_Received":
        """The same request with another body: the head is as long as before."""
        header = self.header
        frame = encode_request(
            APIS[header.api_key],
            part,
            version=header.api_version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
        )
        return self._replace(frame=frame[_SIZE.size :])


class Forwarding:
    """Has the active controller answer what this broker cannot decide; for one loop."""

    def __init__(
        self, controllers: Controllers, channel: ControllerChannel, threads: Threads
    ) -> None:
        """`channel` is for these requests, which may take a minute, and those like them."""
        self._controllers = controllers
        self._channel = channel
        self._threads = threads
        self._offered: Mapping[int, range] | None = None
        """The controller's versions by API; None: not known yet, and nothing is cut."""
        self._cut: dict[bytes, bytes] = {}
        """Answers to ApiVersions without what the controller lacks, by what they were."""
        self._asking: asyncio.Task[None] | None = None
        self._numbers = count(1)

    def start(self) -> None:
        """Learn the versions of the active controller, and of each one that takes its place."""
        self._controllers.on_active = self._ask_versions
        if self._controllers.active is not None:
            self._ask_versions(self._controllers.active)

    def close(self) -> None:
        """Learn no more versions; requests under way end with their channel."""
        if self._asking is not None:
            self._asking.cancel()

    def wrap(self, dispatch: Dispatch, quotas: ClientQuotas) -> Dispatch:
        """`dispatch`, but for the requests that a controller answers; `quotas` are of clients."""

        def answer(
            frame: memoryview, caller: Caller = NOBODY, repeats: ConnectionRepeats | None = None
        ) -> list[Records] | Awaitable[list[Records]]:
            # Before all else, since each Produce and Fetch comes here too.
            key = int.from_bytes(frame[:2], "big")
            if key not in _WRAPPED:
                return dispatch(frame, caller, repeats)
            if key == ApiKey.API_VERSIONS:
                found = dispatch(frame, caller, repeats)
                assert isinstance(found, list), "ApiVersions is answered at once"
                return self._without_missing(found, frame)
            header, position = read_request_header(frame, caller=caller)
            if header.api is None:
                return dispatch(frame, caller, repeats)  # It refuses that.
            # A copy, since the frame's memory belongs to the connection.
            charge = quotas.charge_or_none(header, len(frame))
            received = _Received(header, bytes(frame), position)
            answered = (
                self._alter(dispatch, received, charge)
                if key in ALTERING
                else self._forward(received, charge)
            )
            if charge is not None:
                charge.pause()
            return answered

        return answer

    async def ask(self, request: Message, answer: type[M], *, client: RequestHeader) -> M:
        """The controller's answer to a request that this broker makes for a client.

        That is how a Metadata request creates a topic; `client` is its header.

        Raises:
            NoControllerError, ForwardRefusedError, UnsupportedBrokerError, AuthenticationError: as
                `ControllerChannel.forward`.
        """
        api = api_of(type(request))
        offered = None if self._offered is None else self._offered.get(api.key)
        version = min(api.last_version, offered[-1]) if offered else api.last_version
        frame = encode_request(
            api,
            request,
            version=version,
            correlation_id=next(self._numbers),
            client_id=client.client_id,
        )
        found = decode_response(
            api, version, memoryview(await self._sent(frame[_SIZE.size :], client.caller))
        )
        assert isinstance(found, answer), "the class is that of the API"
        return found

    # -- one request --------------------------------------------------------------------------

    async def _forward(self, received: _Received, charge: Charge | None) -> list[Records]:
        sent = self._sent(received.frame, received.header.caller)
        try:
            answer = await (sent if charge is None else charge.timed(sent))
        except (ForwardRefusedError, NoControllerError, UnsupportedBrokerError,
                AuthenticationError) as error:  # fmt: skip
            code = _code_for_client(error, received.header)
            # Only now is the request decoded, and on a thread: it may have many parts.
            return await self._threads.run(partial(_refused, received, code))
        throttle_ms = 0
        position = _throttle_position(received.header, answer)
        if position:
            [throttle_ms] = _SIZE.unpack_from(answer, position)
        own_ms = 0 if charge is None else charge.settle()
        if own_ms > throttle_ms:
            throttle_ms = own_ms
            if position:
                rest = answer[position + _SIZE.size :]
                answer = b"".join((answer[:position], _SIZE.pack(own_ms), rest))
        buffers: list[Records] = [_SIZE.pack(len(answer)), answer]
        return Throttled(buffers, throttle_ms) if throttle_ms > 0 else buffers

    async def _sent(self, frame: bytes, caller: Caller) -> bytes:
        return await self._channel.forward(
            frame,
            principal=principal_bytes(caller.principal),
            client_address=address_bytes(caller.host),
        )

    # -- settings -----------------------------------------------------------------------------

    async def _alter(
        self, dispatch: Dispatch, received: _Received, charge: Charge | None
    ) -> list[Records]:
        # Imported with the first of them, as the handlers are (decision 24).
        from tailrace.broker.kraft.forwarded_configs import AlterRequest, Decider, alter, deciders

        header = received.header
        request: Any = await self._threads.run(received.decode)
        if all(each is Decider.CONTROLLER for each in deciders(request)):
            return await self._forward(received, charge)
        throttle_ms = 0

        def results_of(answer: list[Records]) -> Sequence[Any]:
            nonlocal throttle_ms
            if isinstance(answer, Throttled):
                throttle_ms = max(throttle_ms, answer.throttle_ms)
            return _results(header, answer)

        async def here(part: AlterRequest) -> Sequence[Any]:
            # It counts the time of this part.
            found = dispatch(memoryview(received.with_part(part).frame), header.caller, None)
            return results_of(found if isinstance(found, list) else await found)

        async def forward(part: AlterRequest) -> Sequence[Any]:
            return results_of(await self._forward(received.with_part(part), charge))

        results = await alter(request, here=here, forward=forward)
        api = APIS[header.api_key]
        make: Any = api.response
        buffers = response_buffers(
            api,
            make(throttle_time_ms=throttle_ms, responses=tuple(results)),
            version=header.api_version,
            correlation_id=header.correlation_id,
        )
        return Throttled(buffers, throttle_ms) if throttle_ms else buffers

    # -- versions -----------------------------------------------------------------------------

    def _ask_versions(self, _: Node) -> None:
        if self._asking is not None:
            self._asking.cancel()
        self._asking = asyncio.ensure_future(self._learn_versions())

    async def _learn_versions(self) -> None:
        # Without `Asker`, which is for what is sent until it succeeds, and logs a reason once: this
        # is asked once for each controller. Requests of clients (`_forward`) end with the error.
        try:
            answer = await self._channel.ask(
                ApiVersionsRequest(),
                ApiVersionsResponse,
                timeout_ms=FORWARD_TIMEOUT_MS,
                # The last without the name of the asker's software, which a controller checks.
                last_version=_VERSIONS_VERSION,
            )
        except (TailraceError, ClosedAdminError) as error:
            # The next controller that answers is asked again; until then the last one's count.
            logger.info("controller_versions_unknown reason=%s", error)
            return
        self._offered = {
            each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys
        }
        self._cut.clear()

    def _without_missing(self, answer: list[Records], frame: memoryview) -> list[Records]:
        """An answer to ApiVersions with the versions that a controller answers too."""
        if self._offered is None:
            # Nothing is cut in Kafka either before there was a connection.
            return answer
        data = b"".join(cast("list[bytes]", answer))
        # The rest is the same for many clients.
        head, rest = data[_SIZE.size : _HEAD_BYTES], data[_HEAD_BYTES:]
        cut = self._cut.get(rest)
        if cut is None:
            if len(self._cut) >= _VERSIONS_KEPT_MAX:
                self._cut.clear()
            cut = self._cut[rest] = self._cut_versions(data, frame)
        found: list[Records] = [_SIZE.pack(len(head) + len(cut)), head, cut]
        return Throttled(found, answer.throttle_ms) if isinstance(answer, Throttled) else found

    def _cut_versions(self, data: bytes, frame: memoryview) -> bytes:
        header, _ = read_request_header(frame)
        api = APIS[ApiKey.API_VERSIONS]
        # A version that is not served is answered in version 0 (KIP-511).
        version = 0 if header.api is None else header.api_version
        answer = decode_response(api, version, memoryview(data)[_SIZE.size :])
        assert isinstance(answer, ApiVersionsResponse), "the class is that of the API"
        kept = tuple(filter(None, map(self._common, answer.api_keys)))
        return encode_response(
            api, replace(answer, api_keys=kept), version=version, correlation_id=0
        )[_HEAD_BYTES:]

    def _common(self, ours: ApiVersion) -> ApiVersion | None:
        """The versions of an API that both have; None if there is none."""
        if ours.api_key not in CUT:
            return ours
        assert self._offered is not None, "nothing is cut before"
        theirs = self._offered.get(ours.api_key, range(0))
        first = max(ours.min_version, theirs.start)
        last = min(ours.max_version, theirs.stop - 1)
        return replace(ours, min_version=first, max_version=last) if first <= last else None


def _throttle_position(header: RequestHeader, answer: bytes) -> int:
    """The position of the throttle time in an answer; 0: it has none."""
    if header.api_key not in _THROTTLED:
        return 0
    # After the correlation id.
    position = _SIZE.size
    if APIS[header.api_key].has_response_tags(header.api_version):
        position += 1
    return position if len(answer) >= position + _SIZE.size else 0


def _code_for_client(error: TailraceError, header: RequestHeader) -> ErrorCode:
    """The code of a client's answer to a request that could not be forwarded.

    Raises:
        CloseConnectionError: the client has to ask for the versions again.
    """
    title, peer = ApiKey(header.api_key).title, header.caller.peer
    if isinstance(error, NoControllerError):
        logger.info("forwarding_timed_out api=%s peer=%s reason=%s", title, peer, error)
        return ErrorCode.REQUEST_TIMED_OUT
    if isinstance(error, ForwardRefusedError) and error.code == ErrorCode.UNSUPPORTED_VERSION:
        raise CloseConnectionError(
            f"the controller does not have {title} version {header.api_version}; the client may "
            "connect again, and is offered what the controller has"
        ) from error
    # An error of the envelope is not the client's: it says that this broker may not forward.
    logger.warning("forwarding_failed api=%s peer=%s reason=%s", title, peer, error)
    return ErrorCode.UNKNOWN_SERVER_ERROR


def _refused(received: _Received, code: ErrorCode) -> list[Records]:
    header = received.header
    api = APIS[header.api_key]
    return response_buffers(
        api,
        refusal(api, received.decode(), code),
        version=header.api_version,
        correlation_id=header.correlation_id,
    )


def _results(header: RequestHeader, answer: Sequence[Records]) -> Sequence[Any]:
    """The results of a part of a request to alter settings."""
    data = b"".join(cast("Sequence[bytes]", answer))
    api = APIS[header.api_key]
    found: Any = decode_response(api, header.api_version, memoryview(data)[_SIZE.size :])
    results: Sequence[Any] = found.responses
    return results
