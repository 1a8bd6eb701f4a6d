"""From a request frame to the buffers of its answer, by way of a table of handlers.

A handler gets the decoded request and returns the response, or a coroutine where it has to wait,
or None where the protocol wants no answer (Produce with acks 0).

What a peer gets for a request that cannot be read is Kafka's: an unknown API or version ends the
connection, except that ApiVersions is always answered, with error 35 and what is served (KIP-511).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tailrace.errors import FatalError
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.fields import Message, Records
from tailrace.protocol.frames import (
    RequestHeader,
    decode_request,
    read_request_header,
    response_buffers,
)

Answer = Message | None
Handler = Callable[[RequestHeader, Any], Answer | Awaitable[Answer]]
"""The request is None for an ApiVersions request of a version that is not served."""


class UnservedRequestError(FatalError):
    """A request for an API or a version that this broker does not serve."""


class CloseConnectionError(FatalError):
    """A handler wants the connection closed, which is how a failed acks=0 produce is told."""


class Dispatcher:
    """Decodes, calls, encodes."""

    def __init__(self, handlers: Mapping[ApiKey, Handler]) -> None:
        assert set(handlers) == set(APIS)
        self._handlers = {int(key): handler for key, handler in handlers.items()}

    def dispatch(self, frame: memoryview) -> list[Records] | Awaitable[list[Records]]:
        """The answer to a frame, now or later; an empty list is no answer.

        Raises (also from the awaitable):
            MalformedMessageError: the frame is not a request.
            UnservedRequestError: the API or the version is not served.
            CloseConnectionError: the handler asks for it.
        """
        header, position = read_request_header(frame)
        if header.api is None:
            if header.api_key != ApiKey.API_VERSIONS:
                raise UnservedRequestError(
                    f"api key {header.api_key} version {header.api_version} is not served"
                )
            header, request = header._replace(api_version=0), None
        else:
            request = decode_request(header, frame, position)
        answer = self._handlers[header.api_key](header, request)
        if isinstance(answer, Awaitable):
            return _encode_later(header, answer)
        return _encode(header, answer)


async def _encode_later(header: RequestHeader, answer: Awaitable[Answer]) -> list[Records]:
    return _encode(header, await answer)


def _encode(header: RequestHeader, answer: Answer) -> list[Records]:
    if answer is None:
        return []
    return response_buffers(
        APIS[header.api_key],
        answer,
        version=header.api_version,
        correlation_id=header.correlation_id,
    )
