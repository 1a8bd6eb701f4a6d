"""Tests of the limits on connections: their number, and the memory of their requests."""

import asyncio
import itertools
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.broker.config import broker_config
from tailrace.errors import ConfigError
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.frames import encode_request
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tailrace.runtime.slices import Slices
from tailrace.server.listener import CLOSED_PER_TURN, SWEEP_S
from tailrace.server.receiving import (
    FIRST_BYTES,
    INPUT_BYTES,
    INPUT_BYTES_MIN,
    OBJECTS_FACTOR,
)
from tailrace.testing import Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import (
    BY_NAME_FETCH,
    BY_NAME_PRODUCE,
    batch,
    connect,
    create_topic,
    produce,
    produce_request,
    running,
)

MIB = 1024 * 1024
SMALL_POOL = {
    "socket.request.max.bytes": str(4 * MIB),
    "queued.max.request.bytes": str(8 * MIB),
    "message.max.bytes": str(4 * MIB),
}
Scenario = Callable[[Outside, RunningBroker], Awaitable[None]]


def run(scenario: Scenario, settings: dict[str, str]) -> None:
    """A scenario on a broker with these settings and the topic `t`."""

    async def main(outside: Outside) -> None:
        async with running(outside, settings) as broker:
            await create_topic(connect(outside, broker), "t")
            await scenario(outside, broker)

    with virtual_runtime() as outside:
        outside.run(main(outside))


def unfinished(size: int) -> bytes:
    """Return the beginning of a produce request of `size` bytes."""
    return struct.pack(">ihh", size, ApiKey.PRODUCE, 3)


async def send(outside: Outside, peer: Peer, data: bytes) -> bool:
    """Send as much as is taken within a second; whether that was all."""
    view = memoryview(data)
    for _ in range(1000):
        try:
            view = view[peer.socket.send([view]) or 0 :]
        except (BrokenPipeError, ConnectionError):
            return False
        if not view:
            return True
        await outside.pass_time(0.001)
    return False


def large_produce(size: int) -> bytes:
    """A whole produce request of about `size` bytes."""
    return encode_request(
        APIS[ApiKey.PRODUCE],
        produce_request("t", batch(bytes(size))),
        version=BY_NAME_PRODUCE,
        correlation_id=1,
        client_id="test",
    )


def test_unfinished_requests_hold_no_more_than_the_pool() -> None:
    """However many clients begin a large request and send most of it."""

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        peers = [connect(outside, broker) for _ in range(16)]
        data = unfinished(4 * MIB) + bytes(3 * MIB)
        await asyncio.gather(*(send(outside, peer, data) for peer in peers))
        held = broker.statistics().server
        assert 4 * MIB < held.claimed_bytes <= 8 * MIB
        assert held.buffered_bytes <= 8 * MIB + held.connection_count * 64 * 1024

    run(scenario, SMALL_POOL)


def test_connections_that_say_nothing_have_no_memory_for_requests() -> None:
    """One that sends small requests has 4 KiB, one that sends more 64 KiB, until they are idle."""

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        held = [broker.statistics().server.buffered_bytes]
        peers = [connect(outside, broker) for _ in range(100)]
        await outside.pass_time(1)
        held.append(broker.statistics().server.buffered_bytes)
        assert (await produce(peers[0], "t", batch(b"x"))).error_code == 0
        held.append(broker.statistics().server.buffered_bytes)
        assert (await produce(peers[1], "t", batch(bytes(10_000)))).error_code == 0
        held.append(broker.statistics().server.buffered_bytes)
        added = [after - before for before, after in itertools.pairwise(held)]
        assert added == [0, INPUT_BYTES_MIN, INPUT_BYTES]
        await outside.pass_time(3 * SWEEP_S)
        assert broker.statistics().server.buffered_bytes == 0
        assert (await produce(peers[1], "t", batch(b"y"))).base_offset == 2

    run(scenario, {})


@pytest.mark.parametrize("given", ["-1", "0"])
def test_without_a_limit_no_request_waits(given: str) -> None:
    """`queued.max.request.bytes` of 0 or less is no limit, as in Kafka, whose default is -1."""

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        peers = [connect(outside, broker) for _ in range(16)]
        data = unfinished(4 * MIB) + bytes(3 * MIB)
        await asyncio.gather(*(send(outside, peer, data) for peer in peers))
        assert broker.statistics().server.claimed_bytes >= 16 * 4 * MIB
        honest = connect(outside, broker)
        assert await send(outside, honest, large_produce(3 * MIB))
        assert len(await honest.read_frame()) > 4

    run(scenario, SMALL_POOL | {"queued.max.request.bytes": given})


def test_a_small_request_waits_for_no_memory() -> None:
    """It is answered while others hold all that there is."""

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        peers = [connect(outside, broker) for _ in range(16)]
        data = unfinished(4 * MIB) + bytes(3 * MIB)
        await asyncio.gather(*(send(outside, peer, data) for peer in peers))
        started = outside.loop.time()
        assert (await produce(connect(outside, broker), "t", batch(b"x"))).error_code == 0
        assert outside.loop.time() - started < 0.1

    run(scenario, SMALL_POOL)


def test_a_stalled_request_is_evicted_for_a_waiting_one(caplog: pytest.LogCaptureFixture) -> None:
    """A large request is served within seconds; stalled ones are closed, with a line in ten."""

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        stalled = [connect(outside, broker) for _ in range(16)]
        data = unfinished(4 * MIB) + bytes(3 * MIB)
        await asyncio.gather(*(send(outside, peer, data) for peer in stalled))
        honest = connect(outside, broker)
        answer = asyncio.ensure_future(honest.read_frame())
        frame = large_produce(2 * MIB)
        started = outside.loop.time()
        view = memoryview(frame)
        while view:
            view = view[honest.socket.send([view]) or 0 :]
            await outside.pass_time(0.001)
        assert await answer
        assert outside.loop.time() - started < 30
        evicted = [each for each in caplog.messages if each.startswith("request_evicted")]
        assert 0 < len(evicted) <= 3
        assert evicted[0].startswith("request_evicted peer=memory:")

    run(scenario, SMALL_POOL)


def test_a_slow_client_stays_while_no_request_waits_for_memory() -> None:
    """A slow client may take any time while there is memory."""

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        slow = connect(outside, broker)
        frame = large_produce(MIB)
        answer = asyncio.ensure_future(slow.read_frame())
        for start in range(0, len(frame), MIB // 10):
            await send(outside, slow, frame[start : start + MIB // 10])
            await outside.pass_time(30)
        assert await answer
        assert broker.statistics().server.claimed_bytes == 0

    run(scenario, SMALL_POOL)


def test_memory_is_given_back_when_a_client_goes() -> None:
    """A client that disconnects returns its memory, and its pending claims are dropped."""

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        peers = [connect(outside, broker) for _ in range(16)]
        data = unfinished(4 * MIB) + bytes(3 * MIB)
        await asyncio.gather(*(send(outside, peer, data) for peer in peers))
        for peer in peers:
            peer.socket.close()
        # Of a socket that is not read nobody learns that it was closed before its turn comes.
        await outside.pass_time(20)
        assert broker.statistics().server.claimed_bytes == 0

    run(scenario, SMALL_POOL)


def wide_fetch(*, parts: int, max_wait_ms: int, offset: int = 0) -> FetchRequest:
    """A Fetch request that is large, since it names one partition many times."""
    entry = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=MIB)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=MIB if max_wait_ms else 1,
        topics=(FetchTopic(topic="t", partitions=(entry,) * parts),),
        rack_id="r" * 1000,
    )


def test_a_fetch_that_waits_does_not_keep_the_memory_that_others_wait_for() -> None:
    """One that has been answered for ten seconds goes when somebody needs its memory."""
    settings = {"socket.request.max.bytes": "200000", "queued.max.request.bytes": "200000"}

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        hog = connect(outside, broker)
        hog.send(ApiKey.FETCH, wide_fetch(parts=900, max_wait_ms=25_000), version=BY_NAME_FETCH)
        await outside.pass_time(1)
        assert broker.statistics().server.claimed_bytes == 200_000
        started = outside.loop.time()
        answer = await produce(connect(outside, broker), "t", batch(bytes(100_000)))
        assert answer.error_code == 0
        assert outside.loop.time() - started < 15
        assert await hog.is_closed()

    run(scenario, settings)


def test_a_slow_reader_of_an_answer_holds_no_memory_of_its_request() -> None:
    """The request's memory goes back when the answer is made, and not when it has been taken."""

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        peer = connect(outside, broker)
        await create_topic(peer, "many", partitions=80)
        for number in range(80):
            await produce(peer, "many", batch(bytes(8000)), partition=number)
        few = wide_fetch(parts=1, max_wait_ms=0)
        entry = few.topics[0].partitions[0]
        parts = tuple(replace(entry, partition=number) for number in range(80))
        request = replace(
            few, topics=(FetchTopic(topic="many", partitions=parts),), rack_id="r" * 20_000
        )
        peer.send(ApiKey.FETCH, request, version=BY_NAME_FETCH)
        await outside.pass_time(1)
        assert broker.statistics().server.claimed_bytes == 0
        assert len(await peer.read_frame()) > MIB // 2

    run(scenario, SMALL_POOL)


def test_a_length_alone_reserves_no_memory_for_objects() -> None:
    """A mebibyte is reserved when 64 KiB have come; eight times its size for a whole request."""

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        peer = connect(outside, broker)
        start = struct.pack(">ih", 4 * MIB, ApiKey.FETCH)
        peer.send_bytes(start + bytes(INPUT_BYTES - len(start) - 1))
        await outside.pass_time(0.1)
        assert broker.statistics().server.claimed_bytes == 0
        peer.send_bytes(bytes(1))
        await outside.pass_time(0.1)
        assert broker.statistics().server.claimed_bytes == FIRST_BYTES
        peer.socket.close()
        for parts in (900, 4000):
            peer = connect(outside, broker)
            request = wide_fetch(parts=parts, max_wait_ms=25_000, offset=1)
            await produce(peer, "t", batch(b"x"))
            frame = encode_request(
                APIS[ApiKey.FETCH],
                request,
                version=BY_NAME_FETCH,
                correlation_id=1,
                client_id="test",
            )
            peer.send_bytes(frame[:-1])
            await outside.pass_time(0.1)
            is_large = len(frame) > INPUT_BYTES
            assert broker.statistics().server.claimed_bytes == (len(frame) - 4 if is_large else 0)
            peer.send_bytes(frame[-1:])
            await outside.pass_time(0.1)
            assert broker.statistics().server.claimed_bytes == (len(frame) - 4) * OBJECTS_FACTOR
            peer.socket.cut()
            await outside.pass_time(30)
            assert broker.statistics().server.claimed_bytes == 0

    run(scenario, SMALL_POOL)


def test_new_memory_for_many_requests_is_made_in_turns() -> None:
    """A hundred that begin at the same moment do not have it filled with zeros in one go."""

    async def main(outside: Outside) -> None:
        async with running(outside) as broker:
            peers = [connect(outside, broker) for _ in range(100)]
            await outside.pass_time(1)
            for peer in peers:
                peer.send_bytes(unfinished(4 * MIB) + bytes(INPUT_BYTES // 2))
            await outside.pass_time(1)
            for peer in peers:
                peer.send_bytes(bytes(INPUT_BYTES))
            turns = Slices()
            buffered = [broker.statistics().server.buffered_bytes]
            for _ in range(300):
                await turns.rest()
                buffered.append(broker.statistics().server.buffered_bytes)
            made = [after - before for before, after in itertools.pairwise(buffered)]
            assert sum(made) == 100 * FIRST_BYTES
            assert max(made) == FIRST_BYTES

    with virtual_runtime() as outside:
        outside.run(main(outside))


def test_a_request_waits_for_the_memory_of_its_objects() -> None:
    """It is decoded when others have given back theirs, and answered then."""

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        holder, peer = connect(outside, broker), connect(outside, broker)
        await produce(peer, "t", batch(bytes(2000)))
        assert await send(outside, holder, unfinished(4 * MIB) + bytes(2 * MIB))
        held = broker.statistics().server.claimed_bytes
        for parts in (1900, 17_000):
            peer = connect(outside, broker)
            request = wide_fetch(parts=parts, max_wait_ms=0, offset=5)
            frame = encode_request(
                APIS[ApiKey.FETCH],
                request,
                version=BY_NAME_FETCH,
                correlation_id=1,
                client_id="test",
            )
            assert await send(outside, peer, frame)
            answer = asyncio.ensure_future(peer.read_frame())
            await outside.pass_time(0.1)
            assert answer.done() == (held + (len(frame) - 4) * OBJECTS_FACTOR <= 8 * MIB)
            assert await answer
        assert broker.statistics().server.claimed_bytes < held

    run(scenario, SMALL_POOL)


def test_more_connections_of_one_address_are_closed_at_once() -> None:
    """An override replaces the limit for its address, as in Kafka."""
    settings = {
        "max.connections.per.ip": "2",
        "max.connections.per.ip.overrides": "10.0.0.9:3,10.0.0.10:0,[2001:db8:0:0:0:0:0:1]:3",
    }

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        port = broker.endpoint[1]
        # The last two as a socket for both versions shows an address of version 4, and in short.
        for address, allowed in (
            ("10.0.0.1", 2), ("10.0.0.9", 3), ("10.0.0.10", 0), ("::ffff:10.0.0.11", 2),
            ("::ffff:10.0.0.10", 0), ("2001:db8::1", 3),
        ):  # fmt: skip
            peers = [Peer(outside.network.open(port, address=address)) for _ in range(allowed)]
            for peer in peers:
                assert (await produce(peer, "t", batch(b"x"))).error_code == 0
            assert await Peer(outside.network.open(port, address=address)).is_closed()
            if peers:
                peers[0].socket.close()
                await outside.pass_time(0.1)
                again = Peer(outside.network.open(port, address=address))
                assert (await produce(again, "t", batch(b"x"))).error_code == 0

    run(scenario, settings)


@pytest.mark.parametrize("end", ["close", "cut"])
def test_connections_of_a_client_that_ends_are_closed_in_turns(end: str) -> None:
    """A hundred that are closed or reset at the same moment do not stop the others meanwhile."""

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        before = broker.statistics().server.connection_count
        peers = [connect(outside, broker) for _ in range(100)]
        await outside.pass_time(0.1)
        for peer in peers:
            getattr(peer.socket, end)()
        counts: list[int] = []

        def count_in_each_turn() -> None:
            counts.append(broker.statistics().server.connection_count)
            if counts[-1] > before:
                asyncio.get_running_loop().call_soon(count_in_each_turn)

        count_in_each_turn()
        await outside.pass_time(1)
        assert counts[0] == before + 100
        assert counts[-1] == before
        assert max(more - less for more, less in itertools.pairwise(counts)) <= CLOSED_PER_TURN

    run(scenario, {})


def test_refused_connections_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The first refusal of an address is logged, and their number some seconds later."""
    caplog.set_level("INFO", "tailrace.server.listener")

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        port = broker.endpoint[1]
        for _ in range(100):
            assert await Peer(outside.network.open(port, address="10.0.0.10")).is_closed()
        await outside.pass_time(2 * SWEEP_S)
        first, counted = [each for each in caplog.messages if "refused" in each]
        assert first.startswith("connection_refused peer=10.0.0.10:")
        assert counted == (
            "repeated name=connection_refused address=10.0.0.10 count=100 seconds=10"
        )

    run(scenario, {"max.connections.per.ip.overrides": "10.0.0.10:0"})


def test_at_the_limit_of_all_new_connections_wait() -> None:
    """They are served when one of the others has gone."""

    async def scenario(outside: Outside, broker: RunningBroker) -> None:
        await outside.pass_time(0.1)
        room = 3 - broker.statistics().server.connection_count
        peers = [connect(outside, broker) for _ in range(room)]
        waiting = connect(outside, broker)
        answer = asyncio.ensure_future(produce(waiting, "t", batch(b"x")))
        await outside.pass_time(5)
        assert not answer.done()
        peers[0].socket.close()
        assert (await answer).error_code == 0

    run(scenario, {"max.connections": "3"})


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"queued.max.request.bytes": "1000"}, "socket.request.max.bytes"),
        ({"max.connections.per.ip.overrides": "10.0.0.9"}, "ADDRESS:COUNT"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, str], part: str
) -> None:
    """The message says with which value they would go together."""
    with pytest.raises(ConfigError, match=part):
        broker_config({"log.dirs": "data", **settings})
