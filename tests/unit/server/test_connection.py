"""A connection whose requests fail in ways that no handler should, or have long answers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

import pytest

from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.protocol.answers import Deferred
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.fields import Records
from tailrace.protocol.frames import Caller
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.runtime.files import Buffer, FileSlice
from tailrace.runtime.limited_lines import LimitedLines
from tailrace.runtime.slices import Slices
from tailrace.server.connection import Connection
from tailrace.server.dispatch import ConnectionRepeats, Dispatch, RequestAnswers
from tailrace.server.memory import ReceiveTurns, RequestMemory
from tailrace.server.sending import ResponseSender
from tailrace.server.slow_requests import SlowRequests
from tailrace.testing import Outside
from tests.unit.broker.brokers import connect


class BrokenSlice:
    """Bytes of a file that the page cache does not have, and that no thread can read either."""

    path = "data/there-0/00000000000000000000.log"

    def __init__(self, failure: BaseException) -> None:
        self._failures = [BlockingIOError(), failure]

    def __len__(self) -> int:
        return 100

    def read_into(self, _: memoryview) -> int:
        """See `FileSlice`."""
        raise self._failures.pop(0)

    def after(self, size: int) -> Self:
        """See `FileSlice`."""
        raise NotImplementedError

    def failed(self, error: OSError) -> None:
        """See `FileSlice`."""
        raise NotImplementedError


class LongSlice:
    """More bytes of a file than are sent in many slices of time, all of them in the page cache."""

    path = "data/there-0/00000000000000000000.log"

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read_into(self, buffer: memoryview) -> int:
        """See `FileSlice`."""
        return min(len(buffer), self._size)

    def after(self, size: int) -> "LongSlice":
        """See `FileSlice`."""
        return LongSlice(self._size - size)

    def failed(self, error: OSError) -> None:
        """See `FileSlice`."""
        raise NotImplementedError


class EagerSocket:
    """A connection whose peer sends one request, and takes everything at once."""

    peer = "eager:1"
    is_peer_gone = False

    def __init__(self, request: bytes) -> None:
        self.sent = 0
        self._request = request

    def receive_into(self, buffer: memoryview) -> int | None:
        """See `Socket`."""
        request, self._request = self._request, b""
        buffer[: len(request)] = request
        return len(request) or None

    def send(self, buffers: Sequence[Buffer]) -> int:
        """See `Socket`."""
        size = sum(map(len, buffers))
        self.sent += size
        return size

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """See `Socket`."""
        if callback is not None:
            asyncio.get_running_loop().call_soon(callback)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """See `Socket`."""
        if callback is not None:
            asyncio.get_running_loop().call_soon(callback)

    def close(self) -> None:
        """See `Socket`."""


def test_a_long_answer_leaves_turns_to_other_callbacks() -> None:
    """A client that takes an answer as fast as it is sent does not keep the loop to itself."""
    size = 1 << 36
    socket = EagerSocket(bytes.fromhex("00000004 00000000"))
    # Without these two, a double that lacks a method would leave the test waiting for ever.
    closed: list[Connection] = []
    faults: list[dict[str, Any]] = []

    async def turns() -> int:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        lines = LimitedLines()
        connection = Connection(
            socket,
            RequestAnswers(lambda *_: [LongSlice(size)]),
            listener="PLAINTEXT",
            sending=ResponseSender(_from_device),
            frame_bytes_max=1000,
            memory=RequestMemory(1000),
            turns=ReceiveTurns(),
            lines=lines,
            slow=SlowRequests(-1, lines),
            on_lost=closed.append,
            on_close=closed.append,
        )
        connection.start_reading()
        count = 0
        while socket.sent < size:
            assert not closed, "the connection ended before its answer was sent"
            assert not faults, faults
            await Slices().rest()
            count += 1
        connection.close()
        return count

    assert asyncio.run(turns()) > 10


async def _from_device(stored: FileSlice, size: int) -> bytes:
    raise NotImplementedError


@pytest.mark.parametrize("is_deferred", [False, True])
async def test_a_request_whose_handler_is_cancelled_ends_its_connection(
    outside: Outside, caplog: pytest.LogCaptureFixture, *, is_deferred: bool
) -> None:
    """The client does not wait for ever, the log says why, and other connections are served."""
    abandoned: list[asyncio.Future[list[Records]]] = []

    def around(dispatch: Dispatch) -> Dispatch:
        def answer(
            frame: memoryview, caller: Caller, repeats: ConnectionRepeats | None
        ) -> list[Records] | Awaitable[list[Records]]:
            if abandoned:
                return dispatch(frame, caller, repeats)
            waiting: asyncio.Future[list[Records]] = asyncio.get_running_loop().create_future()
            abandoned.append(waiting)
            return Deferred([waiting], waiting.result, end=lambda: None) if is_deferred else waiting

        return answer

    config = broker_config({"log.dirs": "data", "listeners": "memory:0"})
    broker = await start_broker(config, outside.runtime, wrap_dispatch=around)
    try:
        asking = asyncio.ensure_future(
            connect(outside, broker).ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)
        )
        await outside.pass_time(1)
        abandoned[0].cancel()
        await asyncio.wait([asking], timeout=1)
        assert asking.done()
        assert asking.exception() is not None
        assert "what the request waits for was cancelled" in caplog.text
        peer = connect(outside, broker)
        assert (await peer.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)).brokers
    finally:
        await broker.stop()


@pytest.mark.parametrize("failure", [ValueError, asyncio.CancelledError])
async def test_an_answer_whose_read_from_a_device_fails_ends_its_connection(
    outside: Outside, caplog: pytest.LogCaptureFixture, failure: type[BaseException]
) -> None:
    """A fault of any kind in that read ends the connection, and the log says why."""

    def around(_: Dispatch) -> Dispatch:
        # An error of pytest's parameters would keep the frames that it came through, for ever.
        return lambda *_: [BrokenSlice(failure())]

    config = broker_config({"log.dirs": "data", "listeners": "memory:0"})
    broker = await start_broker(config, outside.runtime, wrap_dispatch=around)
    try:
        asking = asyncio.ensure_future(
            connect(outside, broker).ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)
        )
        await asyncio.wait([asking], timeout=1)
        assert asking.done()
        assert asking.exception() is not None
        assert "request_failed" in caplog.text
    finally:
        await broker.stop()
