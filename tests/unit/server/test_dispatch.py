"""Tests of how many requests are decoded and how many answers are made at the same time."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from tailrace.cluster.metadata.image import QuotaEntity
from tailrace.protocol.answers import PARTS_INLINE_MAX, Handler, LongAnswer, Throttled
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.fields import Records
from tailrace.protocol.frames import RequestHeader, decode_response, encode_request
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.security.quotas import ClientQuotas, QuotaConfig
from tailrace.server.dispatch import LONG_ANSWERS_MAX, Dispatcher
from tailrace.testing import Outside, virtual_runtime
from tests.unit.broker.brokers import connect, create_topic, running


class Asking:
    """Requests to a dispatcher whose APIs are all served by one handler."""

    def __init__(self, outside: Outside, handler: Handler) -> None:
        self._dispatcher = Dispatcher(lambda _: handler, outside.threads)

    def ask(self, request: MetadataRequest) -> asyncio.Future[list[Records]]:
        """The answer to a request, later."""
        frame = encode_request(
            APIS[ApiKey.METADATA], request, version=12, correlation_id=1, client_id="test"
        )
        answer = self._dispatcher.dispatch(memoryview(frame)[4:])
        assert not isinstance(answer, list)
        return asyncio.ensure_future(answer)


ALL = MetadataRequest(topics=None)
LONG = MetadataRequest(topics=(MetadataRequestTopic(name="t"),) * (PARTS_INLINE_MAX + 1))


async def answer_later(_: RequestHeader, __: MetadataRequest) -> MetadataResponse:
    """A handler that waits."""
    return MetadataResponse()


def answer_long(_: RequestHeader, __: MetadataRequest) -> LongAnswer:
    """A handler whose answers are long."""
    return LongAnswer(MetadataResponse)


@pytest.mark.parametrize(("handler", "request_of_each"), [(answer_later, LONG), (answer_long, ALL)])
async def test_clients_that_leave_do_not_pile_up_threads(
    outside: Outside, handler: Handler, request_of_each: MetadataRequest
) -> None:
    """Decoding or encoding that runs on a thread ends, and no other one begins."""
    asking = Asking(outside, handler)
    outside.threads.seconds_per_run = 100
    for _ in range(20):
        answer = asking.ask(request_of_each)
        await outside.pass_time(1)
        answer.cancel()
    assert outside.threads.runs_at_once_max == 1
    await outside.pass_time(200)
    last = asking.ask(request_of_each)
    await outside.pass_time(201)
    assert last.done()


async def test_a_short_answer_does_not_wait_behind_long_ones(outside: Outside) -> None:
    """It is encoded on the loop, although its handler had to wait."""
    outside.threads.seconds_per_run = 100
    asking = Asking(outside, answer_later)
    long = asking.ask(LONG)
    await outside.pass_time(1)
    short = asking.ask(ALL)
    await outside.pass_time(1)
    assert short.done()
    assert not long.done()
    await long


async def test_metadata_of_many_partitions_is_a_long_answer(outside: Outside) -> None:
    """The request's content decides, and not its size, in the first version and the last.

    One broker answers both versions, because 500 partitions take long to create.
    """
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "small")

        async def threads_for(version: int, *names: str) -> int:
            outside.threads.runs_at_once_max = 0
            topics = tuple(MetadataRequestTopic(name=name) for name in names)
            request = MetadataRequest(topics=topics if names or not version else None)
            await peer.ask(ApiKey.METADATA, request, MetadataResponse, version=version)
            return outside.threads.runs_at_once_max

        for version in (0, 12):
            assert await threads_for(version) == 0, version
            assert await threads_for(version, "small") == 0, version
        await create_topic(peer, "large", partitions=PARTS_INLINE_MAX)
        for version in (0, 12):
            assert await threads_for(version) == 1, version
            assert await threads_for(version, "small") == 0, version
            assert await threads_for(version, "large") == 1, version


def test_few_long_answers_are_made_at_the_same_time() -> None:
    """Others wait until one is encoded; those that wait for a device hold up only their like."""

    async def scenario(outside: Outside) -> None:
        at_once, most, hanging = 0, 0, asyncio.Event()

        async def make() -> MetadataResponse:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await outside.pass_time(1)
            at_once -= 1
            return MetadataResponse()

        async def hang() -> MetadataResponse:
            await hanging.wait()
            return MetadataResponse()

        def handle(_: RequestHeader, request: MetadataRequest) -> LongAnswer:
            waits = bool(request.topics)
            return LongAnswer(hang if waits else make, waits_for_device=waits)

        ask = Asking(outside, handle).ask
        one = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
        waiting = [ask(one) for _ in range(10)]
        gone, *others = [ask(ALL) for _ in range(11)]
        await outside.pass_time(0.5)
        gone.cancel()
        at_once -= 1
        await asyncio.gather(*others)
        assert most == LONG_ANSWERS_MAX
        assert not any(answer.done() for answer in waiting)
        hanging.set()
        await asyncio.gather(*waiting)

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


# -- costs of requests ----------------------------------------------------------------------------

QUOTAS = {QuotaEntity((("client-id", "test"),)): {"request_percentage": 10.0}}
"""A tenth of a core: with windows of 5 s a client may take 5 s of it at once."""


def work_at_once(outside: Outside) -> Handler:
    """A handler that takes 600 ms."""

    def handle(_: RequestHeader, __: MetadataRequest) -> MetadataResponse:
        outside.clock.pause(0.6)
        return MetadataResponse()

    return handle


def work_later(outside: Outside) -> Handler:
    """A handler that takes as much in two steps, between which it waits for long."""

    async def handle(_: RequestHeader, __: MetadataRequest) -> MetadataResponse:
        outside.clock.pause(0.3)
        await outside.pass_time(30)
        outside.clock.pause(0.3)
        return MetadataResponse()

    return handle


def work_long(outside: Outside) -> Handler:
    """A handler with a long answer, which takes as much to make."""

    def make() -> MetadataResponse:
        outside.clock.pause(0.3)
        return MetadataResponse()

    def handle(_: RequestHeader, __: MetadataRequest) -> LongAnswer:
        outside.clock.pause(0.3)
        return LongAnswer(make)

    return handle


@pytest.mark.parametrize("asked", [ALL, LONG])
@pytest.mark.parametrize("handler", [work_at_once, work_later, work_long])
async def test_the_time_of_a_request_is_counted(
    outside: Outside, handler: Callable[[Outside], Handler], asked: MetadataRequest
) -> None:
    """However it is handled: nine requests of 600 ms are within a tenth of the windows.

    Time in which a request waits for others is not its client's.
    """
    quotas = ClientQuotas(lambda: QUOTAS, outside.clock, QuotaConfig(window_s=5))
    dispatcher = Dispatcher(lambda _: handler(outside), outside.threads, quotas=quotas)
    throttled = []
    for _ in range(10):
        frame = encode_request(
            APIS[ApiKey.METADATA], asked, version=12, correlation_id=1, client_id="test"
        )
        answer = dispatcher.dispatch(memoryview(frame)[4:])
        buffers = answer if isinstance(answer, list) else await answer
        found = decode_response(APIS[ApiKey.METADATA], 12, memoryview(joined(buffers))[4:])
        assert isinstance(found, MetadataResponse)
        throttle_ms = buffers.throttle_ms if isinstance(buffers, Throttled) else 0
        assert found.throttle_time_ms == throttle_ms
        throttled.append(throttle_ms > 0)
    # 5.4 s are a tenth of 54.8 s, and after the next window has begun 6 s are more than of 50.4 s.
    assert throttled == [False] * 9 + [handler is not work_later]


def joined(buffers: list[Records]) -> bytes:
    """The bytes of an answer without records."""
    return b"".join(cast("list[bytes]", buffers))
