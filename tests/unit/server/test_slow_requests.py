"""Slow requests have a line that says where their time went, and waits on purpose are not slow."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tailrace.protocol.answers import Deferred
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.fields import Message, Records
from tailrace.protocol.frames import Caller, encode_request
from tailrace.protocol.messages.fetch import FetchRequest
from tailrace.protocol.messages.heartbeat import HeartbeatRequest
from tailrace.protocol.messages.join_group import JoinGroupRequest
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.runtime.limited_lines import WINDOW_S, LimitedLines
from tailrace.runtime.log_lines import LineFormatter
from tailrace.server.dispatch import ConnectionRepeats, Dispatch
from tailrace.server.slow_requests import HEAD_BYTES, SlowRequests, WaitingRequest
from tailrace.testing import Outside
from tests.unit.broker.brokers import (
    batch,
    connect,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    running,
)

Wrap = Callable[[Dispatch], Dispatch]


@pytest.fixture(autouse=True)
def at_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tailrace.server")


def said(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The slow requests so far, as JSON has them; they are forgotten."""
    lines = [LineFormatter(is_json=True).format(each) for each in caplog.records]
    caplog.clear()
    return [found for found in map(json.loads, lines) if "slow_request" in found.values()]


def slower(keys: set[ApiKey], seconds: float, *, is_deferred: bool = False) -> Wrap:
    """Answers that come later than they could."""

    def wrap(dispatch: Dispatch) -> Dispatch:
        def answer(
            frame: memoryview, caller: Caller, repeats: ConnectionRepeats | None
        ) -> list[Records] | Awaitable[list[Records]]:
            found = dispatch(frame, caller, repeats)
            if int.from_bytes(frame[:2], "big") not in keys:
                return found
            late: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(seconds, late.set_result, None)
            if is_deferred:
                assert isinstance(found, list)
                return Deferred([late], lambda: found, end=lambda: None)
            return after(late, found)

        return answer

    async def after(
        late: asyncio.Future[Any], found: list[Records] | Awaitable[list[Records]]
    ) -> list[Records]:
        await late
        return found if isinstance(found, list) else await found

    return wrap


@pytest.mark.parametrize("is_deferred", [False, True])
async def test_a_slow_request_says_where_its_time_went(
    outside: Outside, caplog: pytest.LogCaptureFixture, *, is_deferred: bool
) -> None:
    """The line has client, request and stages; more of the same are counted for each API."""
    wrap = slower({ApiKey.PRODUCE if is_deferred else ApiKey.METADATA}, 3, is_deferred=is_deferred)
    async with running(outside, wrap_dispatch=wrap) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        for _ in range(2):
            if is_deferred:
                await produce(peer, "t", batch(b"a"))
            else:
                await peer.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)
        [found] = said(caplog)
        api = "Produce" if is_deferred else "Metadata"
        assert found["local_ms"] <= 1000
        assert found["queue_ms"] <= 1000
        stages = {"total_ms": 3000, "remote_ms": 3000, "send_ms": 0, "throttle_ms": 0}
        assert found.items() >= {
            "level": "WARN", "event": "slow_request", "api": api, "client_id": "test",
            "principal": "User:ANONYMOUS", "listener": "PLAINTEXT", **stages,
        }.items()  # fmt: skip
        await outside.pass_time(WINDOW_S)
    [counted] = said(caplog)
    assert counted["event"] == "repeated"
    assert counted.items() >= {"api": api, "address": "memory", "count": 2}.items()


async def test_a_fetch_that_waits_for_records_is_not_slow(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """It may wait as long as it wants to; what comes on top of that is counted."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await fetch(peer, fetch_request("t", 0, max_wait_ms=30_000))
        assert said(caplog) == []
    async with running(outside, wrap_dispatch=slower({ApiKey.FETCH}, 7)) as broker:
        peer = connect(outside, broker)
        await fetch(peer, fetch_request("t", 0, max_wait_ms=5000))
        [found] = said(caplog)
        assert (found["total_ms"], found["remote_ms"]) == (2000, 7000)


async def test_an_answer_that_its_client_does_not_read_is_a_slow_send(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The time until the kernel has taken all of it."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        for _ in range(8):
            await produce(peer, "t", batch(b"x" * 50_000))
        peer.send(ApiKey.FETCH, fetch_request("t", 0), version=12)
        await outside.pass_time(4)
        await peer.read_frame()
        [found] = said(caplog)
        assert (found["api"], found["remote_ms"]) == ("Fetch", 0)
        assert found["total_ms"] >= found["send_ms"] >= 4000


async def test_requests_that_are_answered_at_once_are_looked_at_too(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """Also those that repeat one and are not decoded: each has its own correlation id."""
    limit = {"tailrace.slow.request.ms": "0"}
    async with running(outside, limit) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        for number in (1, 2, 3):
            said(caplog)
            request = produce_request("t", batch(b"a"), acks=1)
            api = APIS[ApiKey.PRODUCE]
            peer.send_bytes(
                encode_request(api, request, version=9, correlation_id=number, client_id="c")
            )
            await peer.read_frame()
            [found] = said(caplog)
            assert (found["api"], found["version"], found["client_id"]) == ("Produce", 9, "c")
            assert found["correlation_id"] == number
            await outside.pass_time(WINDOW_S)
        # A request that has only begun is not the one before it.
        peer.send_bytes((100).to_bytes(4, "big") + bytes(20))
        await outside.pass_time(0)
        assert said(caplog) == []


async def test_no_request_is_slow_without_a_limit(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The setting -1 ends the lines."""
    wrap = slower({ApiKey.METADATA}, 60)
    async with running(outside, {"tailrace.slow.request.ms": "-1"}, wrap_dispatch=wrap) as broker:
        peer = connect(outside, broker)
        await peer.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)
        assert said(caplog) == []


@pytest.mark.parametrize(
    ("request_", "version", "slow"),
    [
        (FetchRequest(max_wait_ms=8000), 4, 1),
        (FetchRequest(max_wait_ms=8000), 12, 1),
        (FetchRequest(max_wait_ms=8000), 18, 1),
        (FetchRequest(max_wait_ms=9500), 18, 0),
        (JoinGroupRequest(group_id="g"), 9, 0),
        (HeartbeatRequest(group_id="g"), 4, 1),
    ],
)
async def test_the_time_for_which_a_request_may_wait_is_read_in_it(
    outside: Outside,  # noqa: ARG001 - the loop of the lines
    caplog: pytest.LogCaptureFixture,
    *,
    request_: Message,
    version: int,
    slow: int,
) -> None:
    """A Fetch has it in front of its partitions, and a member may wait for others."""
    [api] = [each for each in APIS.values() if each.request is type(request_)]
    frame = encode_request(api, request_, version=version, correlation_id=1, client_id="c" * 99)
    head = frame[4:][:HEAD_BYTES]
    requests = SlowRequests(1000, LimitedLines())
    requests.look_at(ten_seconds(head), Caller("a:1"))
    assert len(said(caplog)) == slow


async def test_no_bytes_of_a_request_are_an_error_here(
    outside: Outside,  # noqa: ARG001 - the loop of the lines
) -> None:
    """A token of a login, a header that is cut, a client id that is no text."""
    requests = SlowRequests(1000, LimitedLines())
    for key in (b"\0\1", b"\0\3", b"\x7f\xff"):
        for rest in (b"", b"\0", b"\0\4" + b"\xff" * 4, b"\0\4" + b"\xff" * 4 + b"\0\1\xff\xff"):
            requests.look_at(ten_seconds(key + rest), Caller("a:1"))


def ten_seconds(head: bytes) -> WaitingRequest:
    """A request that was answered ten seconds after it had begun to wait."""
    request = WaitingRequest(head, begun_at=0.0, since=0.0, local_s=0.0)
    request.answered_at = 10.0
    return request
