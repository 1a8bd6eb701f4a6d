"""Bytes on the socket that are no request: the connection ends, the broker lives."""

import struct

import pytest

from tailrace.model import Codec, TopicPartition
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import FRAME_BYTES_MAX, encode_request
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.records.builder import BatchBuilder
from tailrace.replication.validation import UNPACKED_BYTES_MAX
from tailrace.testing import Outside
from tests.unit.broker.brokers import (
    BY_NAME_FETCH,
    BY_NAME_PRODUCE,
    batch,
    connect,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    running,
)

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
async def test_nonsense_ends_its_connection_and_no_other(outside: Outside, data: bytes) -> None:
    """The connection that sent nonsense is closed; the next one is served."""
    async with running(outside) as broker:
        bad, good = connect(outside, broker), connect(outside, broker)
        bad.send_bytes(data)
        assert await bad.is_closed()
        answer = await good.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)
        assert answer.controller_id == 1


async def test_a_flood_of_nonsense_does_not_fill_the_log(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The first refused request of an address has a line with the reason, the others a count."""
    async with running(outside) as broker:
        for data in REFUSED.values():
            peer = connect(outside, broker)
            peer.send_bytes(data)
            assert await peer.is_closed()
        await outside.pass_time(10)
        first, counted = [each for each in caplog.messages if "request_refused" in each]
        assert "reason=api key 999 version 0 is not served" in first
        assert counted == (
            f"repeated name=request_refused address=memory count={len(REFUSED)} seconds=10"
        )


async def test_an_unknown_version_of_api_versions_is_answered_as_v0(outside: Outside) -> None:
    """ApiVersions of an unknown version gets error 35 and the list in v0's form (KIP-511)."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        peer.send_bytes(frame(struct.pack(">hhih", ApiKey.API_VERSIONS, 77, 5, -1)))
        answer = await peer.read_frame()
        correlation_id, code, count = struct.unpack_from(">ihi", answer)
        assert (correlation_id, code) == (5, ErrorCode.UNSUPPORTED_VERSION)
        assert count == len(APIS)
        assert len(answer) == 10 + 6 * count


async def test_a_length_that_lies_costs_its_sender_the_bytes(outside: Outside) -> None:
    """A connection that claims 100 MB and sends a little holds no more than a first buffer."""
    async with running(outside) as broker:
        peer, other = connect(outside, broker), connect(outside, broker)
        peer.send_bytes(struct.pack(">ih", FRAME_BYTES_MAX, ApiKey.PRODUCE) + bytes(100))
        await other.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)
        await outside.pass_time(0.1)
        assert broker.statistics().server.buffered_bytes < 2 * 2**20


async def test_requests_may_come_byte_by_byte(outside: Outside) -> None:
    """A network that delivers one byte at a time changes nothing but the pace."""
    outside.network.receive_bytes_max = 1
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        assert (await produce(peer, "t", batch(b"slow"))).base_offset == 0


async def test_a_large_produce_arrives_whole(outside: Outside) -> None:
    """A batch larger than the buffer that connections share with small frames is appended whole."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"max.message.bytes": "4000000"})
        small = await produce(peer, "t", batch(b"x" * 150_000))
        assert small.base_offset == 0


async def test_a_cut_connection_is_forgotten(outside: Outside) -> None:
    """A peer that vanishes in the middle of a request leaves no connection behind."""
    async with running(outside) as broker:
        peer, other = connect(outside, broker), connect(outside, broker)
        peer.send_bytes(GOOD[:10])
        await other.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)
        peer.socket.cut()
        await outside.pass_time(0.1)
        assert broker.statistics().server.connection_count == 1
        await other.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)


async def test_a_fetch_waits_no_longer_than_half_of_what_a_connection_may_be_silent(
    outside: Outside,
) -> None:
    """A larger `max_wait_ms` is cut, because the connection and its memory are held meanwhile."""
    async with running(outside, {"connections.max.idle.ms": "60000"}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        started = outside.loop.time()
        found = await fetch(peer, fetch_request("t", 0, max_wait_ms=10**6))
        assert found.error_code == ErrorCode.NONE
        assert outside.loop.time() - started == pytest.approx(30, abs=1)


async def test_a_request_before_nonsense_is_answered(outside: Outside) -> None:
    """Both arrive together; the first one's answer leaves before the connection is closed."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        peer.send_bytes(GOOD + REFUSED["a body that ends early"])
        assert len(await peer.read_frame()) > 4
        assert await peer.is_closed()


async def test_a_silent_connection_is_closed(outside: Outside) -> None:
    """After connections.max.idle.ms without a byte a connection ends; one that asks stays."""
    async with running(outside, {"connections.max.idle.ms": "60000"}) as broker:
        silent, busy = connect(outside, broker), connect(outside, broker)
        silent.send_bytes(GOOD[:5])
        for _ in range(4):
            await outside.pass_time(30)
            await busy.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)
        assert await silent.is_closed()
        assert broker.statistics().server.connection_count == 1


async def test_a_silent_connection_stays_where_none_is_idle(outside: Outside) -> None:
    """With a negative `connections.max.idle.ms` none is closed, as in Kafka."""
    async with running(outside, {"connections.max.idle.ms": "-1"}) as broker:
        silent = connect(outside, broker)
        silent.send_bytes(GOOD[:5])
        await outside.pass_time(86_400)
        assert broker.statistics().server.connection_count == 1
        silent.send_bytes(GOOD[5:])
        assert len(await silent.read_frame()) > 4


async def test_a_connection_that_is_answered_is_closed_when_it_is_idle(outside: Outside) -> None:
    """A request that waits does not prolong connections.max.idle.ms, as in Kafka."""
    async with running(outside, {"connections.max.idle.ms": "4000"}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        outside.threads.seconds_per_run = 25
        builder = BatchBuilder(codec=Codec.GZIP)
        builder.append(None, bytes(UNPACKED_BYTES_MAX), timestamp=1)
        request = produce_request("t", builder.build())
        peer.send(ApiKey.PRODUCE, request, version=BY_NAME_PRODUCE)
        started = outside.loop.time()
        assert await peer.is_closed()
        assert outside.loop.time() - started < 10
        outside.threads.seconds_per_run = 0


async def test_a_connection_whose_peer_has_gone_ends_while_it_is_answered(outside: Outside) -> None:
    """Clients that ask for what takes long and leave do not use up the connections."""
    async with running(outside) as broker:
        stays = connect(outside, broker)
        await create_topic(stays, "t")
        peers = [connect(outside, broker) for _ in range(100)]
        request = fetch_request("t", 0, max_wait_ms=25_000)
        for peer in (stays, *peers):
            peer.send(ApiKey.FETCH, request, version=BY_NAME_FETCH)
        await outside.pass_time(1)
        for number, peer in enumerate(peers):
            (peer.socket.cut if number % 2 else peer.socket.close)()
        await outside.pass_time(11)
        assert broker.statistics().server.connection_count == 1
        assert await stays.read_frame()


async def test_records_of_a_client_that_has_gone_are_appended(outside: Outside) -> None:
    """A producer that wants no answer may close at once, although its batches take some seconds."""
    async with running(outside) as broker:
        await create_topic(connect(outside, broker), "t")
        await outside.pass_time(4)
        outside.threads.seconds_per_run = 4
        peer = connect(outside, broker)
        builder = BatchBuilder(codec=Codec.GZIP)
        builder.append(None, b"x", timestamp=1)
        request = produce_request("t", builder.build(), acks=0)
        for _ in range(3):
            peer.send(ApiKey.PRODUCE, request, version=BY_NAME_PRODUCE)
        peer.socket.close()
        await outside.pass_time(20)
        outside.threads.seconds_per_run = 0
        log = broker.logs.get(TopicPartition("t", 0))
        assert log is not None
        assert log.end_offset == 3
