"""The quota of changes to topics: on a node alone, and where a broker forwards to a controller."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import alter_client_quotas as altering
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import connect, running
from tests.unit.broker.controller.own_clusters import own_cluster

EVERYTHING = MetadataRequest(topics=None)
NONE, EXCEEDED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED

Started = Callable[[Outside], AbstractAsyncContextManager[Callable[[], Peer]]]


@asynccontextmanager
async def node_alone(outside: Outside) -> AsyncIterator[Callable[[], Peer]]:
    """Connections to a node that is its own controller."""
    async with running(outside) as broker:
        yield lambda: connect(outside, broker)


@asynccontextmanager
async def broker_of_cluster(outside: Outside) -> AsyncIterator[Callable[[], Peer]]:
    """Connections to a broker that forwards what changes topics."""
    async with own_cluster(outside, 1) as cluster:
        yield lambda: cluster.peer(1)


@pytest.fixture(params=[node_alone, broker_of_cluster])
def started(request: pytest.FixtureRequest) -> Started:
    """Each kind of node that clients ask to change topics."""
    found: Started = request.param
    return found


async def limit(peer: Peer, rate: float) -> None:
    """Set the quota of the connection's client id."""
    entity = (altering.EntityData(entity_type="client-id", entity_name="test"),)
    ops = (altering.OpData(key="controller_mutation_rate", value=rate, remove=False),)
    request = altering.AlterClientQuotasRequest(
        entries=(altering.EntryData(entity=entity, ops=ops),), validate_only=False
    )
    answer = await peer.ask(ApiKey.ALTER_CLIENT_QUOTAS, request, altering.AlterClientQuotasResponse)
    assert answer.entries[0].error_code == NONE


async def create(
    peer: Peer, *counts: int, version: int = 7, prefix: str = "t", dry: bool = False
) -> tuple[list[ErrorCode], int]:
    """The codes of new topics with so many partitions each, and the throttle time."""
    topics = tuple(
        CreatableTopic(name=f"{prefix}{number}", num_partitions=count, replication_factor=1)
        for number, count in enumerate(counts)
    )
    request = CreateTopicsRequest(topics=topics, validate_only=dry)
    answer = await peer.ask(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse, version=version)
    return [ErrorCode(each.error_code) for each in answer.topics], answer.throttle_time_ms


async def grow(peer: Peer, count: int, *, version: int = 3) -> tuple[ErrorCode, int]:
    """The code of a topic that is to have so many partitions, and the throttle time."""
    topic = CreatePartitionsTopic(name="t0", count=count, assignments=None)
    request = CreatePartitionsRequest(topics=(topic,), timeout_ms=1000, validate_only=False)
    answer = await peer.ask(
        ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse, version=version
    )
    return ErrorCode(answer.results[0].error_code), answer.throttle_time_ms


async def delete(peer: Peer, *names: str, version: int = 6) -> tuple[list[ErrorCode], int]:
    """The codes of topics that are deleted, and the throttle time."""
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=name) for name in names) if version >= 6 else (),
        topic_names=() if version >= 6 else names,
        timeout_ms=1000,
    )
    answer = await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse, version=version)
    return [ErrorCode(each.error_code) for each in answer.responses], answer.throttle_time_ms


async def asked_s(outside: Outside, peer: Peer) -> float:
    """The virtual seconds until a request that is sent now is answered."""
    begun = outside.clock.monotonic_s()
    await peer.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), ApiVersionsResponse, version=0)
    return outside.clock.monotonic_s() - begun


async def test_topics_are_created_until_the_quota_is_used_up(
    outside: Outside, started: Started
) -> None:
    """One request may overdraw it; the next one is refused with the time to wait, and waits."""
    async with started(outside) as peers:
        await limit(peers(), 1)
        peer = peers()
        assert await create(peer, 15) == ([NONE], 0)
        (code,), throttle_ms = await create(peer, 1, prefix="u")
        assert code == EXCEEDED
        assert 3500 < throttle_ms <= 4000
        waited_s = await asked_s(outside, peer)
        assert waited_s == pytest.approx(throttle_ms / 1000, abs=0.1)
        await outside.pass_time(0.01)
        assert await create(peer, 1, prefix="u") == ([NONE], 0)


async def test_each_topic_of_a_request_is_counted(outside: Outside, started: Started) -> None:
    """The topics after the one that uses it up are refused, and those before it are made."""
    async with started(outside) as peers:
        await limit(peers(), 1)
        codes, throttle_ms = await create(peers(), 8, 8, 8)
        assert codes == [NONE, NONE, EXCEEDED]
        assert 4500 < throttle_ms <= 5000
        assert (await delete(peers(), "t2"))[0] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_an_older_client_is_delayed(outside: Outside, started: Started) -> None:
    """Its requests are done, and its connection waits."""
    async with started(outside) as peers:
        await limit(peers(), 1)
        peer = peers()
        codes, throttle_ms = await create(peer, 15, 6, version=5)
        assert codes == [NONE, NONE]
        assert 9500 < throttle_ms <= 10_000
        assert await asked_s(outside, peer) == pytest.approx(throttle_ms / 1000, abs=0.1)
        codes, throttle_ms = await delete(peer, "t0", version=4)
        assert codes == [NONE]
        assert 14_500 < throttle_ms <= 15_000


async def test_topics_are_grown_within_the_quota(outside: Outside, started: Started) -> None:
    """New partitions count; before v3 the topic grows, and its client waits."""
    async with started(outside) as peers:
        await create(peers(), 1)
        await limit(peers(), 1)
        assert await grow(peers(), 16) == (NONE, 0)
        code, throttle_ms = await grow(peers(), 17)
        assert code == EXCEEDED
        assert 3500 < throttle_ms <= 4000
        code, throttle_ms = await grow(peers(), 17, version=2)
        assert code == NONE
        assert 4500 < throttle_ms <= 5000


async def test_topics_are_deleted_within_the_quota(outside: Outside, started: Started) -> None:
    """A topic counts as many as its partitions; from v5 on it is refused and stays."""
    async with started(outside) as peers:
        await create(peers(), 15, 1)
        await limit(peers(), 1)
        assert await delete(peers(), "t0") == ([NONE], 0)
        for version in (5, 6):
            codes, throttle_ms = await delete(peers(), "t1", version=version)
            assert codes == [EXCEEDED]
            assert 3500 < throttle_ms <= 4000
        assert (await delete(peers(), "t1", version=4))[0] == [NONE]


async def test_topics_are_made_on_the_way_within_the_quota(
    outside: Outside, started: Started
) -> None:
    """Topics that Metadata creates count for its client, who asks again for those not there."""
    async with started(outside) as peers:
        await limit(peers(), 1)
        names = [f"made{number}" for number in range(40)]
        request = MetadataRequest(topics=tuple(MetadataRequestTopic(name=each) for each in names))

        async def made() -> int:
            answer = await peers().ask(ApiKey.METADATA, request, MetadataResponse)
            await outside.pass_time(0.1)
            answer = await peers().ask(ApiKey.METADATA, EVERYTHING, MetadataResponse)
            return len(answer.topics)

        # As many as may come at once: 11 windows of a second, and one that overdraws.
        first = await made()
        assert 10 <= first <= 13
        assert (await create(peers(), 1))[0] == [EXCEEDED]
        await outside.pass_time(5)
        assert first + 3 <= await made() <= first + 7


async def test_refused_topics_cost_nothing_and_dry_runs_do(
    outside: Outside, started: Started
) -> None:
    """A fault is found before anything is counted; a dry run counts, as in Kafka."""
    async with started(outside) as peers:
        await limit(peers(), 1)
        for _ in range(3):
            assert (await create(peers(), 0, -5))[0] == [ErrorCode.INVALID_PARTITIONS] * 2
        assert await create(peers(), 20, dry=True) == ([NONE], 0)
        assert (await create(peers(), 1))[0] == [EXCEEDED]
