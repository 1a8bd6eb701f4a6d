"""From a request frame to the buffers of its answer, by way of a table of handlers.

A handler gets the decoded request and returns the response, or a coroutine where it has to wait,
or None where the protocol wants no answer (Produce with acks 0).

A request of many parts is decoded on a worker thread, one at a time, and its answer is encoded
there too: on the event loop it would hold up everybody (decision 23). The decoder counts the parts
and gives up at the first one too many, before it has made objects of them.

A short request may have a long answer, as Metadata for all topics. Its handler returns a
`LongAnswer`, and few of them are made and encoded at the same time: they take memory, and clients
can ask for as many as there are connections.

What a peer gets for a request that cannot be read is Kafka's: an unknown API or version ends the
connection, except that ApiVersions is always answered, with error 35 and what is served (KIP-511).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
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
from tailrace.runtime.threads import BoundedThreads, Threads

PARTS_INLINE_MAX: Final = 500
"""Most parts of a request that is decoded and answered on the loop: some 2 ms of work."""

LONG_ANSWERS_MAX: Final = 2
"""Most long answers that are made at the same time: for 10,000 partitions one takes about 2 MB."""

Answer = Message | None


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """An answer of many parts, which is made when there is a place for it."""

    make: Callable[[], Answer | Awaitable[Answer]]
    waits_for_device: bool = False
    """Such answers have places of their own: a device that hangs must not hold up the others."""


Handler = Callable[[RequestHeader, Any], Answer | Awaitable[Answer] | LongAnswer]
"""The request is None for an ApiVersions request of a version that is not served."""


class UnservedRequestError(FatalError):
    """A request for an API or a version that this broker does not serve."""


class CloseConnectionError(FatalError):
    """A handler wants the connection closed, which is how a failed acks=0 produce is told."""


class Dispatcher:
    """Decodes, calls, encodes."""

    def __init__(self, handlers: Mapping[ApiKey, Handler], threads: Threads) -> None:
        assert set(handlers) == set(APIS)
        # One at a time: the interpreter would run no more of them anyway, and each takes memory.
        self._decoding = BoundedThreads(threads, 1)
        self._encoding = BoundedThreads(threads, 1)
        self._places = {
            waits_for_device: asyncio.Semaphore(LONG_ANSWERS_MAX)
            for waits_for_device in (False, True)
        }
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
        if isinstance(answer, LongAnswer):
            return self._encode_long(header, answer)
        if isinstance(answer, Awaitable):
            return self._encode_later(header, answer)
        return _encode(header, answer)

    async def _encode_later(
        self, header: RequestHeader, answer: Awaitable[Answer]
    ) -> list[Records]:
        return _encode(header, await answer)

    async def _dispatch_long(
        self, header: RequestHeader, frame: memoryview, position: int
    ) -> list[Records]:
        decode = partial(decode_request, header, frame, position)
        request = await self._decoding.run(decode)
        del frame, decode  # The frame's memory is not needed while the answer waits.
        answer = self._handlers[header.api_key](header, request)
        if isinstance(answer, LongAnswer):
            return await self._encode_long(header, answer)
        return await self._encode_on_thread(header, answer)

    async def _encode_long(self, header: RequestHeader, answer: LongAnswer) -> list[Records]:
        async with self._places[answer.waits_for_device]:
            return await self._encode_on_thread(header, answer.make())

    async def _encode_on_thread(
        self, header: RequestHeader, answer: Answer | Awaitable[Answer]
    ) -> list[Records]:
        message = await answer if isinstance(answer, Awaitable) else answer
        return await self._encoding.run(lambda: _encode(header, message))


def _encode(header: RequestHeader, answer: Answer) -> list[Records]:
    if answer is None:
        return []
    return response_buffers(
        APIS[header.api_key],
        answer,
        version=header.api_version,
        correlation_id=header.correlation_id,
    )
