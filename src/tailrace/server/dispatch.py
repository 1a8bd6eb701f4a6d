"""From a request frame to the buffers of its answer, by way of a table of handlers.

A handler gets the decoded request and returns the response, or a coroutine where it has to wait,
or None where the protocol wants no answer (Produce with acks 0).

A request of many parts is decoded on a worker thread, one at a time, and its answer is encoded
there too: on the event loop it would hold up everybody (decision 23). Which one it is shows while
it is decoded, before its parts are made.

What a peer gets for a request that cannot be read is Kafka's: an unknown API or version ends the
connection, except that ApiVersions is always answered, with error 35 and what is served (KIP-511).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tailrace.errors import FatalError
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import TooManyPartsError
from tailrace.protocol.fields import Message, Records
from tailrace.protocol.frames import (
    RequestHeader,
    decode_request,
    read_request_header,
    response_buffers,
)
from tailrace.runtime.threads import Threads

PARTS_INLINE_MAX: Final = 500
"""Most parts of a request that is decoded and answered on the loop: some 2 ms of work."""

STREAMED: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
"""Requests that are many and wait often, and whose answers are as long as they are themselves. The
answer to any other that waits may be long though the request is short, as that for all topics."""

Answer = Message | None
Handler = Callable[[RequestHeader, Any], Answer | Awaitable[Answer]]
"""The request is None for an ApiVersions request of a version that is not served."""


class UnservedRequestError(FatalError):
    """A request for an API or a version that this broker does not serve."""


class CloseConnectionError(FatalError):
    """A handler wants the connection closed, which is how a failed acks=0 produce is told."""


class Dispatcher:
    """Decodes, calls, encodes."""

    def __init__(self, handlers: Mapping[ApiKey, Handler], threads: Threads) -> None:
        assert set(handlers) == set(APIS)
        self._threads = threads
        self._decoding = asyncio.Lock()
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
            try:
                request = decode_request(header, frame, position, parts_max=PARTS_INLINE_MAX)
            except TooManyPartsError:
                return self._dispatch_long(header, frame, position)
        answer = self._handlers[header.api_key](header, request)
        if isinstance(answer, Awaitable):
            return self._encode_later(header, answer, is_long=header.api_key not in STREAMED)
        return _encode(header, answer)

    async def _dispatch_long(
        self, header: RequestHeader, frame: memoryview, position: int
    ) -> list[Records]:
        # One at a time: the interpreter would run no more of them anyway, and each takes memory.
        async with self._decoding:
            request = await self._threads.run(lambda: decode_request(header, frame, position))
        answer = self._handlers[header.api_key](header, request)
        if not isinstance(answer, Awaitable):
            return await self._threads.run(lambda: _encode(header, answer))
        return await self._encode_later(header, answer, is_long=True)

    async def _encode_later(
        self, header: RequestHeader, answer: Awaitable[Answer], *, is_long: bool
    ) -> list[Records]:
        message = await answer
        if is_long:
            return await self._threads.run(lambda: _encode(header, message))
        return _encode(header, message)


def _encode(header: RequestHeader, answer: Answer) -> list[Records]:
    if answer is None:
        return []
    return response_buffers(
        APIS[header.api_key],
        answer,
        version=header.api_version,
        correlation_id=header.correlation_id,
    )
