"""Acks of all replicas in a cluster: what is acknowledged, what waits, and what is read after."""

import asyncio
from random import Random
from uuid import UUID

import pytest

from tailrace.model import Acks
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.storage.config import log_config
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.testing import Outside
from tests.unit.broker.brokers import BY_NAME_PRODUCE, batch
from tests.unit.broker.clusters import T_0, Cluster, running_cluster
from tests.unit.storage.builders import values


async def produce(
    cluster: Cluster, broker_id: int, value: bytes, *, timeout_ms: int = 1000
) -> PartitionProduceResponse:
    """The answer to one record with acks=all."""
    data = PartitionProduceData(index=0, records=batch(value))
    request = ProduceRequest(
        acks=Acks.ALL,
        timeout_ms=timeout_ms,
        topic_data=(TopicProduceData(name="t", partition_data=(data,)),),
    )
    response = await cluster.peer(broker_id).ask(
        ApiKey.PRODUCE, request, ProduceResponse, version=BY_NAME_PRODUCE
    )
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
