"""Bytes on the socket that are no request: the connection ends, the broker lives."""

import struct

import pytest

from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import FRAME_BYTES_MAX, encode_request
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.testing import Outside, virtual_runtime
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running

GOOD = encode_request(
    APIS[ApiKey.METADATA], MetadataRequest(), version=12, correlation_id=1, client_id="x"
)


def frame(*parts: bytes) -> bytes:
    """Bytes behind their true size."""
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


REFUSED = {
    "an api that does not exist": frame(struct.pack(">hhih", 999, 0, 1, -1)),
    "an api that is not served": frame(struct.pack(">hhih", ApiKey.VOTE, 0, 1, -1)),
    "a version that is not served": frame(struct.pack(">hhih", ApiKey.METADATA, 99, 1, -1)),
    "a frame above the limit": struct.pack(">ih", FRAME_BYTES_MAX + 1, ApiKey.PRODUCE),
    "a large frame that is not a produce": struct.pack(">ih", 9 * 2**20, ApiKey.METADATA),
    "a negative size": struct.pack(">ih", -1, ApiKey.METADATA),
    "an empty frame": struct.pack(">ih", 0, ApiKey.METADATA),
    "a header that ends early": frame(struct.pack(">hh", ApiKey.METADATA, 12), b"\0"),
    "a body that ends early": frame(GOOD[4:-1]),
    "a count that lies": frame(struct.pack(">hhih", 3, 1, 1, -1), struct.pack(">i", 2**31 - 1)),
    "a client id that is not text": frame(struct.pack(">hhih", 3, 1, 1, 2), b"\xff\xfe"),
    "another protocol": b"GET / HTTP/1.1\r\nHost: example\r\n\r\n",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_nonsense_ends_its_connection_and_no_other(data: bytes) -> None:
    """The connection that sent nonsense is closed; the next one is served."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            bad, good = connect(outside, broker), connect(outside, broker)
            bad.send_bytes(data)
            assert await bad.is_closed()
            answer = await good.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)
            assert answer.controller_id == 1

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_an_unknown_version_of_api_versions_is_answered_as_v0() -> None:
    """ApiVersions of an unknown version gets error 35 and the list in v0's form (KIP-511)."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            peer.send_bytes(frame(struct.pack(">hhih", ApiKey.API_VERSIONS, 77, 5, -1)))
            answer = await peer.read_frame()
            correlation_id, code, count = struct.unpack_from(">ihi", answer)
            assert (correlation_id, code) == (5, ErrorCode.UNSUPPORTED_VERSION)
            assert count == len(APIS)
            assert len(answer) == 10 + 6 * count

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_length_that_lies_costs_its_sender_the_bytes() -> None:
    """A connection that claims 100 MB and sends a little holds no more than a first buffer."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer, other = connect(outside, broker), connect(outside, broker)
            peer.send_bytes(struct.pack(">ih", FRAME_BYTES_MAX, ApiKey.PRODUCE) + bytes(100))
            await other.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)
            await outside.pass_time(0.1)
            assert broker.statistics().buffered_bytes < 2 * 2**20

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_requests_may_come_byte_by_byte() -> None:
    """A network that delivers one byte at a time changes nothing but the pace."""

    async def scenario(outside: Outside) -> None:
        outside.network.receive_bytes_max = 1
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t")
            assert (await produce(peer, "t", batch(b"slow"))).base_offset == 0

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_large_produce_arrives_whole() -> None:
    """A batch larger than the buffer that connections share with small frames is appended whole."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", configs={"max.message.bytes": "4000000"})
            small = await produce(peer, "t", batch(b"x" * 150_000))
            assert small.base_offset == 0

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_cut_connection_is_forgotten() -> None:
    """A peer that vanishes in the middle of a request leaves no connection behind."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer, other = connect(outside, broker), connect(outside, broker)
            peer.send_bytes(GOOD[:10])
            await other.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)
            peer.socket.cut()
            await outside.pass_time(0.1)
            assert broker.statistics().connection_count == 1
            await other.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_silent_connection_is_closed() -> None:
    """After connections.max.idle.ms without a byte a connection ends; one that asks stays."""

    async def scenario(outside: Outside) -> None:
        async with running(outside, {"connections.max.idle.ms": "60000"}) as broker:
            silent, busy = connect(outside, broker), connect(outside, broker)
            silent.send_bytes(GOOD[:5])
            for _ in range(4):
                await outside.pass_time(30)
                await busy.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)
            assert await silent.is_closed()
            assert broker.statistics().connection_count == 1

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
