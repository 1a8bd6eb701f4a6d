"""A connection whose requests fail in ways that no handler should."""

import asyncio

import pytest

from tailrace.broker.broker import start_broker
from tailrace.broker.config import broker_config
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.fields import Records
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.server.dispatch import ConnectionRepeats, Dispatch
from tailrace.testing import Outside
from tests.unit.broker.brokers import connect


async def test_a_request_whose_handler_is_cancelled_ends_its_connection(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The client does not wait for ever, the log says why, and other connections are served."""
    abandoned: list[asyncio.Future[list[Records]]] = []

    def around(dispatch: Dispatch) -> Dispatch:
        def answer(
            frame: memoryview, peer: str, repeats: ConnectionRepeats | None
        ) -> list[Records] | asyncio.Future[list[Records]]:
            if abandoned:
                return dispatch(frame, peer, repeats)  # type: ignore[return-value]
            abandoned.append(asyncio.get_running_loop().create_future())
            return abandoned[0]

        return answer

    config = broker_config({"log.dirs": "data", "listeners": "memory:0"})
    broker = await start_broker(config, outside.runtime, around=around)
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
