"""Requests of a broker to other nodes."""

import asyncio

import pytest

from tailrace.broker.peers import Peers
from tailrace.client.config import ClientConfig
from tailrace.client.errors import UnreachableBrokerError
from tailrace.client.nodes import Node
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from tailrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from tailrace.testing import Outside
from tailrace.testing.cluster import ScriptedCluster
from tailrace.testing.script import FaultKind
from tests.unit.broker.brokers import connect, create_topic, running


async def test_a_node_answers_each_request(outside: Outside) -> None:
    """Requests that are under way at the same time get their own answers, in full versions."""
    async with running(outside) as broker:
        node = Node(1, *broker.endpoint)
        peers = Peers(ClientConfig(client_id="broker-2"), outside.runtime)
        asked = DescribeClusterRequest()
        answers = await asyncio.gather(
            *(peers.ask(node, asked, DescribeClusterResponse, timeout_ms=1000) for _ in range(9))
        )
        assert {each.brokers[0].broker_id for each in answers} == {1}
        assert peers.version_of(1, ApiKey.FETCH) == 18
        peers.close()


async def test_a_node_that_is_not_there_is_an_error_at_once(outside: Outside) -> None:
    """The caller decides when to ask again."""
    peers = Peers(ClientConfig(), outside.runtime)
    with pytest.raises(UnreachableBrokerError, match="no connection"):
        await peers.ask(
            Node(7, "memory", 7), DescribeClusterRequest(), DescribeClusterResponse, timeout_ms=1000
        )
    peers.close()


async def test_an_answer_that_does_not_come_in_time_is_an_error(outside: Outside) -> None:
    """The connection is closed then, since its next answer would be the late one."""
    async with running(outside) as broker:
        await create_topic(connect(outside, broker), "t")
        waits = FetchRequest(
            replica_id=-1,
            max_wait_ms=60_000,
            min_bytes=1,
            topics=(
                FetchTopic(
                    topic_id=broker.controller.image.topics["t"].topic_id,
                    partitions=(FetchPartition(partition=0, partition_max_bytes=1),),
                ),
            ),
        )
        peers = Peers(ClientConfig(), outside.runtime)
        with pytest.raises(UnreachableBrokerError, match="no answer to Fetch"):
            await peers.ask(Node(1, *broker.endpoint), waits, FetchResponse, timeout_ms=500)
        peers.close()


async def test_a_node_is_asked_at_its_newest_address(outside: Outside) -> None:
    """The old connection is closed though it lives, and what waits for its answer is an error."""
    cluster = ScriptedCluster(outside, nodes=2)
    cluster.start()
    peers = Peers(ClientConfig(), outside.runtime)
    old, new = (Node(1, cluster.host, each.port) for each in cluster.nodes.values())

    async def ask(node: Node) -> int:
        answer = await peers.ask(
            node, DescribeQuorumRequest(), DescribeQuorumResponse, timeout_ms=60_000
        )
        return answer.topics[0].partitions[0].leader_id

    assert await ask(old) == 1
    cluster.script.add(ApiKey.DESCRIBE_QUORUM, FaultKind.LOSE)
    waiting = asyncio.ensure_future(ask(old))
    await outside.pass_time(0.1)
    assert await ask(new) == 2
    with pytest.raises(UnreachableBrokerError, match="another address"):
        await waiting
    await outside.pass_time(1)
    assert not any(each.is_open for each in cluster.nodes[1].channels)
    assert await ask(new) == 2
    peers.close()
