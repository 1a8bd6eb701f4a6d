"""A controller on the doubles' network that answers as a test says."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from tailrace.broker.kraft.channel import ControllerChannel, Controllers
from tailrace.client.config import ClientConfig, parse_client_config
from tailrace.client.nodes import Node
from tailrace.protocol.apis import APIS, BETWEEN_NODES, ApiKey, api_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import decode_body, encode_response, read_request_header
from tailrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tailrace.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tailrace.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tailrace.testing import MemorySocket, Outside
from tailrace.testing.frame_socket import FrameSocket

SERVED = {**APIS, **BETWEEN_NODES}

CLIENT = ClientConfig(client_id="1", request_timeout_ms=5000)
"""The connections of a broker to its controllers."""


LOGIN = parse_client_config(
    {
        # Not used: each request of a channel names its controller.
        "bootstrap.servers": "memory:1",
        "client.id": "1",
        "request.timeout.ms": "5000",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "broker",
        "sasl.password": "wrong",
    }
)
"""The same with a login."""


class Silence:
    """Stands for an answer that never comes."""


SILENCE = Silence()


class ScriptedController:
    """Answers requests of the kinds in `answers`."""

    def __init__(self, outside: Outside, node_id: int = 3000) -> None:
        self.answers: dict[type[Message], Callable[[Any], Any]] = {}
        """For each kind of request a function: its answer, bytes that are none, or a future."""
        self.requests: list[Any] = []
        """Every request that was received, in order."""
        self.versions: dict[ApiKey, tuple[int, int]] = {}
        """First and last version of an API, where they are not ours."""
        self.asked_versions: list[int] = []
        """The version of each request."""
        self.connection_count = 0
        self._outside = outside
        self._sockets: list[MemorySocket] = []
        self._listener = outside.network.listen("memory", 0, self._accepted)
        self.node = Node(node_id, "memory", self._listener.port)

    def kill(self) -> None:
        """Close the port and all connections."""
        self._listener.close()
        for each in self._sockets:
            each.cut()
        self._sockets.clear()

    def revive(self) -> None:
        """Open the same port again."""
        self._listener = self._outside.network.listen("memory", self.node.port, self._accepted)

    def of(self, kind: type[Message]) -> list[Any]:
        """The requests of one kind so far."""
        return [each for each in self.requests if isinstance(each, kind)]

    def _accepted(self, socket: Any) -> None:
        self.connection_count += 1
        self._sockets.append(socket)
        connection = FrameSocket(socket, on_frame=lambda frame: self._serve(connection, frame))
        connection.start()

    def _serve(self, connection: FrameSocket, frame: memoryview) -> None:
        header, position = read_request_header(frame, apis=SERVED)
        api = SERVED[header.api_key]

        def send(answer: Any) -> None:
            correlation_id = header.correlation_id
            connection.send(
                encode_response(
                    api, answer, version=header.api_version, correlation_id=correlation_id
                )
            )

        if api.key is ApiKey.API_VERSIONS:
            send(versions_answer(self.versions))
            return
        request = decode_body(api.request, header.api_version, frame, position=position)
        self.requests.append(request)
        self.asked_versions.append(header.api_version)
        answer = self.answers[type(request)](request)
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda done: send(done.result()))
        elif isinstance(answer, bytes):
            connection.send(answer)
        elif not isinstance(answer, Silence):
            send(answer)


def versions_answer(versions: Mapping[ApiKey, tuple[int, int]]) -> ApiVersionsResponse:
    """All APIs in our versions, but for the APIs that are in `versions`."""
    return ApiVersionsResponse(
        api_keys=tuple(
            ApiVersion(api_key=int(key), min_version=first, max_version=last)
            for key, api in SERVED.items()
            for first, last in [versions.get(ApiKey(key), (api.first_version, api.last_version))]
            if last >= first
        )
    )


def standby(kind: type[Message]) -> Callable[[Any], Message]:
    """Answers of a controller that is not the active one."""
    answer = api_of(kind).response
    return lambda _: answer(error_code=ErrorCode.NOT_CONTROLLER)  # type: ignore[call-arg]


def refuse_logins(controller: ScriptedController) -> None:
    """Have a controller refuse the user of each connection."""
    controller.answers[SaslHandshakeRequest] = lambda _: SaslHandshakeResponse(
        mechanisms=("PLAIN",)
    )
    controller.answers[SaslAuthenticateRequest] = lambda _: SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no such user"
    )


def channel_to(
    outside: Outside, *controllers: ScriptedController, config: ClientConfig = CLIENT
) -> tuple[Controllers, ControllerChannel]:
    """A channel that knows these controllers."""
    known = Controllers([each.node for each in controllers])
    return known, ControllerChannel(known, config, outside.runtime)
