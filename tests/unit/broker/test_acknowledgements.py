"""Acks of all replicas in a cluster: what is acknowledged, what waits, and what is read after."""

import asyncio
from random import Random
from uuid import UUID

import pytest

from tailrace.model import Acks, TopicPartition
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import decode_response
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.server.connection import DEFERRED_MAX
from tailrace.storage.config import log_config
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import BY_NAME_PRODUCE, batch
from tests.unit.broker.clusters import T_0, Cluster, running_cluster
from tests.unit.storage.builders import values


async def produce(
    cluster: Cluster, broker_id: int, value: bytes, *, timeout_ms: int = 1000
) -> PartitionProduceResponse:
    """The answer to one record with acks=all."""
    peer = cluster.peer(broker_id)
    send(peer, value, timeout_ms=timeout_ms)
    return await produced(peer)


def send(
    peer: Peer, value: bytes, *, topic: str = "t", timeout_ms: int = 1000, acks: int = Acks.ALL
) -> None:
    """One record, whose answer is not waited for."""
    data = PartitionProduceData(index=0, records=batch(value))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
    )
    peer.send(ApiKey.PRODUCE, request, version=BY_NAME_PRODUCE)


async def produced(peer: Peer) -> PartitionProduceResponse:
    """The next answer, which is one to `send`."""
    frame = memoryview(await peer.read_frame())
    response = decode_response(APIS[ApiKey.PRODUCE], BY_NAME_PRODUCE, frame)
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


def stored(cluster: Cluster, broker_id: int) -> list[bytes | None]:
    """The records that a broker has of the partition."""
    partition = cluster.brokers[broker_id].replicas.get(T_0)
    assert partition is not None
    return values(partition.log)


async def test_an_acknowledged_record_is_on_every_member_of_the_isr(outside: Outside) -> None:
    """The answer comes with the follower's next fetch, not after its longest wait."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        for number in range(5):
            answer = await produce(cluster, 1, b"%d" % number, timeout_ms=100)
            assert (answer.error_code, answer.base_offset) == (0, number)
            assert cluster.end(2) == number + 1


async def test_requests_of_a_connection_wait_for_followers_together(outside: Outside) -> None:
    """All are appended at once, and answered in their order; other requests begin after them."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await cluster.add_topic("alone", replicas=(1,))
        cluster.kill(2)
        peer = cluster.peer(1)
        for number in range(3):
            send(peer, b"%d" % number, timeout_ms=60_000)
        send(peer, b"at once", topic="alone")
        send(peer, b"3", timeout_ms=60_000)
        peer.send(ApiKey.METADATA, MetadataRequest(), version=APIS[ApiKey.METADATA].last_version)
        await outside.pass_time(0.1)
        assert stored(cluster, 1) == [b"0", b"1", b"2", b"3"]
        assert cluster.watermark(1, TopicPartition("alone", 0)) == 1
        answered = asyncio.ensure_future(produced(peer))
        await outside.pass_time(0.1)
        assert not answered.done()
        await cluster.start(2)
        answers = [await answered] + [await produced(peer) for _ in range(4)]
        assert [each.base_offset for each in answers] == [0, 1, 2, 0, 3]
        assert not any(each.error_code for each in answers)
        frame = memoryview(await peer.read_frame())
        last = decode_response(APIS[ApiKey.METADATA], APIS[ApiKey.METADATA].last_version, frame)
        assert isinstance(last, MetadataResponse)


async def test_each_of_the_waiting_requests_has_its_own_time(outside: Outside) -> None:
    """One whose time is over is answered after those before it."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        cluster.kill(2)
        peer = cluster.peer(1)
        for timeout_ms in (800, 200, 400):
            send(peer, b"value", timeout_ms=timeout_ms)
        answered = asyncio.ensure_future(produced(peer))
        await outside.pass_time(0.7)
        assert not answered.done()
        await outside.pass_time(0.2)
        assert answered.done()
        codes = [each.error_code for each in (await answered, await produced(peer))]
        assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 2
        assert (await produced(peer)).error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_a_connection_has_a_limit_of_waiting_requests(outside: Outside) -> None:
    """The others are not received, and are appended when there is room."""
    count = DEFERRED_MAX + 10
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        cluster.kill(2)
        peer = cluster.peer(1)
        for number in range(count):
            # Those that repeat one may be appended, and wait, as one.
            send(peer, b"value", timeout_ms=60_000 + number)
        await outside.pass_time(0.1)
        assert cluster.end(1) == DEFERRED_MAX
        await cluster.start(2)
        assert [(await produced(peer)).base_offset for _ in range(count)] == list(range(count))


async def test_a_request_that_ends_the_connection_lets_earlier_ones_be_answered(
    outside: Outside,
) -> None:
    """With acks=0 an error has no other way to a client."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        cluster.kill(2)
        peer = cluster.peer(1)
        send(peer, b"first", timeout_ms=60_000)
        send(peer, b"lost", topic="unknown", acks=Acks.NONE)
        send(peer, b"not looked at")
        await outside.pass_time(0.1)
        assert stored(cluster, 1) == [b"first"]
        await cluster.start(2)
        answer = await produced(peer)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert await peer.is_closed()
        assert stored(cluster, 1) == [b"first"]


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_waiting_requests_end_with_their_connection(
    outside: Outside, caplog: pytest.LogCaptureFixture, *, is_stopped: bool
) -> None:
    """A client that goes leaves nothing waiting; a broker that stops says that it leads no more."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        cluster.kill(2)
        peer = cluster.peer(1)
        for _ in range(3):
            send(peer, b"value", timeout_ms=3_600_000)
        await outside.pass_time(0.1)
        if is_stopped:
            await cluster.stop(1)
            codes = [(await produced(peer)).error_code for _ in range(3)]
            assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
            assert await peer.is_closed()
        else:
            peer.socket.close()
            await outside.pass_time(60)
            assert cluster.brokers[1].statistics().server.connection_count == 0
            await cluster.start(2)
            assert (await produce(cluster, 1, b"next")).base_offset == 3
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_a_leader_that_was_replaced_acknowledges_nothing(outside: Outside) -> None:
    """It does not know it yet; its record waits in vain, and is cut when it follows."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await produce(cluster, 1, b"first")
        cluster.controller.cut_off(1)
        await cluster.until(lambda: cluster.state().leader == 2)
        late = asyncio.ensure_future(produce(cluster, 1, b"lost", timeout_ms=60_000))
        await outside.pass_time(1)
        answer = await produce(cluster, 2, b"second")
        assert (answer.error_code, answer.base_offset) == (0, 1)
        assert not late.done()
        assert stored(cluster, 1) == [b"first", b"lost"]
        cluster.controller.reconnect(1)
        refused = await late
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (2, 1)
        await cluster.until(lambda: set(cluster.state().isr) == {1, 2})
        await cluster.until(lambda: cluster.watermark(1) == 2)
        assert stored(cluster, 1) == stored(cluster, 2) == [b"first", b"second"]


async def test_a_follower_that_stops_in_order_is_not_waited_for(outside: Outside) -> None:
    """The controller takes it out of the ISR first; it joins again when it has caught up."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await produce(cluster, 1, b"first")
        await cluster.stop(2)
        answer = await produce(cluster, 1, b"second", timeout_ms=100)
        assert (answer.error_code, answer.base_offset) == (0, 1)
        assert cluster.state().isr == (1,)
        await cluster.start(2)
        await cluster.until(lambda: set(cluster.state().isr) == {1, 2})
        assert stored(cluster, 2) == [b"first", b"second"]


async def test_a_killed_leader_starts_below_what_nobody_else_has(outside: Outside) -> None:
    """The high watermark of its checkpoint counts, and what is above it is replicated first."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await produce(cluster, 1, b"first")
        await outside.pass_time(6)
        cluster.kill(2)
        late = asyncio.ensure_future(produce(cluster, 1, b"second", timeout_ms=60_000))
        await cluster.until(lambda: cluster.end(1) == 2)
        cluster.kill(1)
        with pytest.raises(EOFError):
            await late
        logs = DirectoryLogs.from_checkpoints(
            outside.files,
            open_log_directory(outside.files, "data-1", node_id=1, new_id=UUID(int=1)),
            clock=outside.clock,
            chance=Random(0),
            has_other_replicas=True,
        )
        log = logs.open(T_0, topic_id=cluster.state().topic_id, config=log_config({}))
        assert (log.positions.high_watermark, log.end_offset) == (1, 2)
        logs.abandon()
        logs.release()
        await cluster.start(1)
        await cluster.start(2)
        await cluster.until(lambda: set(cluster.state().isr) == {1, 2})
        await cluster.until(lambda: cluster.watermark(2) == cluster.end(1))
        assert stored(cluster, 1) == stored(cluster, 2)
        assert stored(cluster, 1)[0] == b"first"
