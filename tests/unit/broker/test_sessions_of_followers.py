"""Followers whose fetch sessions find no room at their leader."""

import pytest

from tailrace.handlers import fetch_sessions
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tailrace.protocol.messages.produce import ProduceResponse
from tailrace.testing import Outside
from tests.unit.broker.brokers import BY_NAME_FETCH, BY_NAME_PRODUCE, batch, produce_request
from tests.unit.broker.clusters import Cluster, running_cluster

COUNT = 120
"""More partitions than a follower names in one request."""


async def hold_sessions(cluster: Cluster, count: int) -> None:
    """Have a consumer keep a session of so many partitions at broker 1."""
    topic = FetchTopic(
        topic="other",
        partitions=tuple(
            FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
            for number in range(count)
        ),
    )
    request = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=(topic,))
    answer = await cluster.peer(1).ask(ApiKey.FETCH, request, FetchResponse, version=BY_NAME_FETCH)
    assert answer.session_id > 0


async def test_a_follower_gets_all_partitions_beside_the_sessions_of_consumers(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session has room for its first request, and none for all of its partitions."""
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", COUNT + 30)
    async with running_cluster(outside, 1, 2) as cluster:
        await hold_sessions(cluster, 40)
        cluster.controller.add_topic("t", assignments=[[1, 2]] * COUNT)
        names = [TopicPartition("t", number) for number in range(COUNT)]
        await cluster.until(lambda: all(cluster.end(2, each) == 0 for each in names))
        peer = cluster.peer(1)
        for number in range(COUNT):
            request = produce_request("t", batch(b"v"), partition=number, acks=1)
            answer = await peer.ask(
                ApiKey.PRODUCE, request, ProduceResponse, version=BY_NAME_PRODUCE
            )
            [sent] = answer.responses[0].partition_responses
            assert sent.error_code == ErrorCode.NONE
        await outside.pass_time(5)
        assert [cluster.end(2, each) for each in names] == [1] * COUNT
