"""Turns a request frame into the buffers of its answer, with the API's handler.

A request with many elements (topics, partitions) is decoded on a worker thread, one at a time, and
its response is encoded there too, so that the event loop is not blocked (decision 23). The decoder
counts the elements, and stops before it creates objects if there are too many.

A connection may repeat a request; `ConnectionRepeats` answers those that need no decoding
(decisions 37, 39 and 68).

A short request may have a long response, such as Metadata for all topics. Its handler returns a
`LongAnswer`. Only a few of these are made and encoded at the same time, because they take memory,
and each connection can request one.

The costs of a request are counted where its client has a quota (`tailrace.security.quotas`). An
answer with a throttle time, which a handler may have set, is a `Throttled` one.

Invalid requests are handled as in Kafka: an unknown API or version ends the connection, except that
ApiVersions is always answered, with error 35 and the list of served APIs (KIP-511).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from tailrace.errors import FatalError
from tailrace.protocol.answers import (
    PARTS_INLINE_MAX,
    Answer,
    Deferred,
    Handler,
    LongAnswer,
    RepeatedAnswers,
    Repeats,
    Throttled,
)
from tailrace.protocol.apis import APIS, Api, ApiKey
from tailrace.protocol.errors import TooManyPartsError
from tailrace.protocol.fields import Message, Records
from tailrace.protocol.frames import (
    NOBODY,
    Caller,
    RequestHeader,
    decode_request,
    read_request_header,
    response_buffers,
)
from tailrace.runtime.threads import BoundedThreads, Threads
from tailrace.security.quotas import Charge, ClientQuotas, QuotaKind, percent
from tailrace.values import replace

T = TypeVar("T")

LONG_ANSWERS_MAX: Final = 2
"""Most long responses that are made at a time: for 10,000 partitions one takes about 2 MB."""

REPEATED: Final = frozenset({int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.OFFSET_COMMIT)})
"""The APIs whose requests a connection repeats."""


class UnservedRequestError(FatalError):
    """A request for an API or a version that this broker does not serve."""


class ConnectionRepeats:
    """The requests that a connection repeats, by API; many connections have none."""

    __slots__ = ("_header", "_known", "_open", "_quotas")

    def __init__(
        self, open_repeats: Callable[[int], Repeats] | None, quotas: ClientQuotas | None = None
    ) -> None:
        """`open_repeats` gives what remembers requests of one connection and one API key.

        None: nothing does.
        """
        self._open = open_repeats
        self._quotas = quotas
        self._known: dict[int, Repeats] = {}
        self._header: RequestHeader | None = None
        """The header of the last request that was learned."""

    def learn(
        self, header: RequestHeader, request: Message, *, answer: Answer, frame: memoryview
    ) -> None:
        """Remember a request that was answered; see `Repeats.learn`."""
        if self._open is None:
            return
        if header.api_key not in self._known:
            self._known[header.api_key] = self._open(header.api_key)
        self._header = header
        self._known[header.api_key].learn(header, request, answer=answer, frame=frame)

    def take(
        self, received: bytearray, start: int, limit: int, *, frame_bytes_max: int
    ) -> tuple[int, RepeatedAnswers] | None:
        """Answer the requests at `start` that repeat one; see `Repeats.take`."""
        quotas, of_time, begun_s = self._quotas, None, 0.0
        # The first request that is looked up after a change learns of it, as all decoded ones are.
        if quotas is not None and quotas.has_times and self._header is not None:
            user = self._header.caller.principal.name
            of_time = quotas.find(QuotaKind.REQUEST_TIME, user, self._header.client_id)
            begun_s = quotas.clock.monotonic_s()
            # These answers have no throttle time: a client above its quota gets one that has.
            if of_time is not None and not of_time.has_room(0, int(begun_s * 1000)):
                return None
        for known in self._known.values():
            taken = known.take(received, start, limit, frame_bytes_max=frame_bytes_max)
            if taken is not None:
                if quotas is not None and of_time is not None:
                    spent_s = quotas.clock.monotonic_s() - begun_s
                    of_time.record(percent(spent_s), int(begun_s * 1000))
                return taken
        return None


Dispatch = Callable[
    [memoryview, Caller, ConnectionRepeats | None], list[Records] | Awaitable[list[Records]]
]
"""Gives the response to a frame of a client, as `Dispatcher.dispatch` does."""


class RequestAnswers(NamedTuple):
    """The way in which a server answers its connections."""

    dispatch: Dispatch
    open_repeats: Callable[[int], Repeats] | None = None
    """Gives what remembers the requests of one connection, for one of the APIs in `REPEATED`.

    None: every request is decoded.
    """
    quotas: ClientQuotas | None = None
    """The quotas of its clients; None: there are none."""


class Dispatcher:
    """Decodes requests, calls their handlers, and encodes the responses."""

    def __init__(
        self,
        find_handler: Callable[[int], Handler],
        threads: Threads,
        *,
        apis: Mapping[int, Api] = APIS,
        quotas: ClientQuotas | None = None,
    ) -> None:
        """`apis` are those that are served; ApiVersions is among them.

        `quotas` are those whose costs are counted here: bytes to produce, and time.
        """
        self._apis = apis
        self._quotas = quotas
        self._find_handler = find_handler
        """Gives the handler of a served API by its key."""
        # One at a time: the interpreter would run no more of them anyway, and each takes memory.
        self._decoding = BoundedThreads(threads, 1)
        self._encoding = BoundedThreads(threads, 1)
        self._places = {
            waits_for_device: asyncio.Semaphore(LONG_ANSWERS_MAX)
            for waits_for_device in (False, True)
        }

    def with_handlers(self, find_handler: Callable[[int], Handler]) -> "Dispatcher":
        """Another one for other handlers, which has the limits in common with this one."""
        other = copy(self)
        other._find_handler = find_handler
        return other

    def dispatch(
        self, frame: memoryview, caller: Caller = NOBODY, repeats: ConnectionRepeats | None = None
    ) -> list[Records] | Awaitable[list[Records]]:
        """The response to a frame of `caller`, now or later; an empty list means no response.

        A `Throttled` one if the client has exceeded a quota.

        A `Deferred` where the next request may begin before. `repeats` are those of the connection,
        which remember a request that is answered at once.

        Raises (also from the awaitable):
            MalformedMessageError: the frame is not a request.
            UnservedRequestError: the API or the version is not served.
            CloseConnectionError: the handler closes the connection.
        """
        header, position = read_request_header(frame, apis=self._apis, caller=caller)
        quotas = self._quotas
        charge = None if quotas is None else quotas.charge_or_none(header, len(frame))
        api = self._apis.get(header.api_key)
        if api is None or not api.is_served(header.api_version):
            # A newer client asks in a version that is not known here, and has to learn those that
            # are: it is answered with error 35 and the list (KIP-511).
            if header.api_key != ApiKey.API_VERSIONS:
                raise UnservedRequestError(
                    f"api key {header.api_key} version {header.api_version} is not served"
                )
            header, request = header._replace(api_version=0), None
        else:
            try:
                request = decode_request(
                    header, frame, position, api=api, parts_max=PARTS_INLINE_MAX
                )
            except TooManyPartsError:
                # Before objects are made of its parts: on a thread (decision 23).
                return self._dispatch_long(header, frame, position, api=api, charge=charge)
        answer = self._find_handler(header.api_key)(header, request)
        if charge is not None:
            charge.pause()
        if isinstance(answer, LongAnswer):
            return self._encode_long(header, answer, charge)
        if isinstance(answer, Awaitable) and not isinstance(answer, Deferred):
            return self._encode_later(header, answer, charge)
        if isinstance(answer, Deferred):
            found: list[Records] | Deferred[list[Records]]
            # Learned before it is made: the frame's memory is not this request's any more then.
            encode = partial(self._settle_and_encode, header, charge=charge)
            found, answer = answer.then(encode), answer.expected
        else:
            found = self._settle_and_encode(header, answer, charge=charge)
        if header.api_key in REPEATED and repeats is not None and request is not None:
            repeats.learn(header, request, answer=answer, frame=frame)
        return found

    async def _encode_later(
        self, header: RequestHeader, answer: Awaitable[Answer], charge: Charge | None
    ) -> list[Records]:
        found = await (answer if charge is None else charge.timed(answer))
        return self._settle_and_encode(header, found, charge=charge)

    async def _dispatch_long(
        self,
        header: RequestHeader,
        frame: memoryview,
        position: int,
        *,
        api: Api,
        charge: Charge | None,
    ) -> list[Records]:
        decode = partial(decode_request, header, frame, position, api=api)
        if charge is not None:
            charge.pause()
            decode = partial(_timed, charge, decode)
        request = await self._decoding.run(decode)
        del frame, decode  # The frame's memory is not needed while the answer waits.
        if charge is not None:
            charge.resume()
        answer = self._find_handler(header.api_key)(header, request)
        if charge is not None:
            charge.pause()
        if isinstance(answer, LongAnswer):
            return await self._encode_long(header, answer, charge)
        return await self._encode_on_thread(header, answer, charge)

    async def _encode_long(
        self, header: RequestHeader, answer: LongAnswer, charge: Charge | None
    ) -> list[Records]:
        # Those that wait for a device do not take the places of the others.
        async with self._places[answer.waits_for_device]:
            made = answer.make() if charge is None else _timed(charge, answer.make)
            return await self._encode_on_thread(header, made, charge)

    async def _encode_on_thread(
        self, header: RequestHeader, answer: Answer | Awaitable[Answer], charge: Charge | None
    ) -> list[Records]:
        if isinstance(answer, Awaitable):
            answer = await (answer if charge is None else charge.timed(answer))
        message, throttle_ms = _settled(answer, charge)
        encode = partial(self._encode, header, message)
        if charge is None:
            buffers = await self._encoding.run(encode)
        else:
            buffers = await self._encoding.run(partial(_timed, charge, encode))
            charge.end()
        return Throttled(buffers, throttle_ms) if throttle_ms else buffers

    def _settle_and_encode(
        self, header: RequestHeader, answer: Answer, *, charge: Charge | None
    ) -> list[Records]:
        message, throttle_ms = _settled(answer, charge)
        if charge is None:
            buffers = self._encode(header, message)
        else:
            buffers = _timed(charge, partial(self._encode, header, message))
            charge.end()
        return Throttled(buffers, throttle_ms) if throttle_ms else buffers

    def _encode(self, header: RequestHeader, answer: Answer) -> list[Records]:
        if answer is None:
            return []
        return response_buffers(
            self._apis[header.api_key],
            answer,
            version=header.api_version,
            correlation_id=header.correlation_id,
        )


def _settled(answer: Answer, charge: Charge | None) -> tuple[Answer, int]:
    """The answer with the time for which its client is throttled, and that time."""
    # Some answers have no such field, and others have it from a version on.
    own_ms: int = getattr(answer, "throttle_time_ms", 0)
    if charge is None:
        return answer, own_ms
    throttle_ms = charge.settle(is_answered=answer is not None)
    if throttle_ms <= own_ms:
        return answer, own_ms
    if answer is not None and hasattr(answer, "throttle_time_ms"):
        fields: Any = {"throttle_time_ms": throttle_ms}
        answer = replace(answer, **fields)
    return answer, throttle_ms


def _timed(charge: Charge, work: Callable[[], T]) -> T:
    charge.resume()
    try:
        return work()
    finally:
        charge.pause()
