"""Brokers of one cluster answer alike about it, each from the image that it follows."""

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tailrace.testing import Outside
from tests.unit.broker.clusters import Cluster, running_cluster

ALL = (1, 2, 3)
GROUP, TRANSACTION = 0, 1


async def metadata(cluster: Cluster, broker_id: int, *names: str) -> MetadataResponse:
    """The answer of a broker about topics."""
    wanted = tuple(MetadataRequestTopic(name=name) for name in names)
    return await cluster.peer(broker_id).ask(
        ApiKey.METADATA, MetadataRequest(topics=wanted), MetadataResponse
    )


async def topic(cluster: Cluster, broker_id: int, name: str = "t") -> MetadataResponseTopic:
    """The answer of a broker about one topic."""
    [found] = (await metadata(cluster, broker_id, name)).topics
    return found


async def coordinator(
    cluster: Cluster, broker_id: int, key: str, *, kind: int = GROUP
) -> tuple[int, int]:
    """The error and the node that a broker names for a key."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
    found = await cluster.peer(broker_id).ask(
        ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse
    )
    [of_key] = found.coordinators
    return of_key.error_code, of_key.node_id


async def test_each_broker_names_all_and_the_leader(outside: Outside) -> None:
    """Also one that has no replica of the topic."""
    async with running_cluster(outside, *ALL) as cluster:
        await cluster.add_topic(replicas=(2, 3))
        for each in ALL:
            found = await metadata(cluster, each, "t")
            assert {node.node_id: node.port for node in found.brokers} == {
                number: broker.endpoint[1] for number, broker in cluster.brokers.items()
            }
            assert found.controller_id in ALL
            [part] = found.topics[0].partitions
            assert (part.error_code, part.leader_id, part.replica_nodes, part.isr_nodes) == (
                ErrorCode.NONE,
                2,
                (2, 3),
                (2, 3),
            )


async def test_a_broker_that_is_killed_is_offline_until_it_is_back(outside: Outside) -> None:
    """The others name another leader in a newer epoch, and the replica as offline."""
    async with running_cluster(outside, *ALL) as cluster:
        await cluster.add_topic()
        before = (await topic(cluster, 2)).partitions[0]
        cluster.kill(1)
        await cluster.controller.until(lambda _: cluster.state().leader != 1)
        while {each.node_id for each in (await metadata(cluster, 2)).brokers} != {2, 3}:
            await outside.pass_time(0.01)
        found = await metadata(cluster, 2, "t")
        [part] = found.topics[0].partitions
        assert part.leader_id in {2, 3}
        assert part.leader_epoch > before.leader_epoch
        assert (part.replica_nodes, part.offline_replicas) == (before.replica_nodes, (1,))
        described = await cluster.peer(3).ask(
            ApiKey.DESCRIBE_CLUSTER,
            DescribeClusterRequest(include_fenced_brokers=True),
            DescribeClusterResponse,
        )
        assert {each.broker_id: each.is_fenced for each in described.brokers} == {
            1: True,
            2: False,
            3: False,
        }


async def test_a_topic_that_is_missing_is_created_once(outside: Outside) -> None:
    """The controller creates it, though all brokers ask; each has it in its image soon."""
    async with running_cluster(outside, *ALL) as cluster:
        for each in ALL:
            found = await topic(cluster, each, "new")
            assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await cluster.controller.until(lambda image: "new" in image.topic_ids)
        answers = set()
        for each in ALL:
            while (found := await topic(cluster, each, "new")).error_code:
                await outside.pass_time(0.01)
            answers.add((found.topic_id, len(found.partitions)))
        assert answers == {(cluster.controller.image.topic_ids["new"], 1)}


async def test_all_brokers_name_the_same_coordinator(outside: Outside) -> None:
    """The topic of the groups is created for the first who asks; the one that is named serves."""
    async with running_cluster(outside, *ALL) as cluster:
        first = await coordinator(cluster, 1, "g")
        assert first == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        named = set()
        for each in ALL:
            while (found := await coordinator(cluster, each, "g"))[0]:
                await outside.pass_time(0.01)
            named.add(found)
        [(code, node)] = named
        assert code == ErrorCode.NONE
        state = cluster.controller.image.topic("__consumer_offsets")
        assert state is not None
        assert {len(part.replicas) for part in state.partitions.values()} == {3}
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        answer = ErrorCode.NOT_COORDINATOR
        while answer in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}:
            await outside.pass_time(0.01)
            beat = await cluster.peer(node).ask(ApiKey.HEARTBEAT, request, HeartbeatResponse)
            answer = ErrorCode(beat.error_code)
        assert answer is ErrorCode.UNKNOWN_MEMBER_ID
        other = next(each for each in ALL if each != node)
        beat = await cluster.peer(other).ask(ApiKey.HEARTBEAT, request, HeartbeatResponse)
        assert beat.error_code == ErrorCode.NOT_COORDINATOR


async def test_the_topic_of_transactions_has_the_minimum_isr_that_is_set(outside: Outside) -> None:
    """Kafka's default is two of three."""
    async with running_cluster(outside, *ALL) as cluster:
        while (await coordinator(cluster, 2, "x", kind=TRANSACTION))[0]:
            await outside.pass_time(0.01)
        settings = cluster.controller.image.configs_of(ResourceType.TOPIC, "__transaction_state")
        assert settings["min.insync.replicas"] == "2"


async def test_each_broker_lists_those_that_have_settings(outside: Outside) -> None:
    """A tool then asks each of them for its own."""
    async with running_cluster(outside, 1, 2) as cluster:
        request = ListConfigResourcesRequest(resource_types=(ResourceType.BROKER,))
        found = await cluster.peer(1).ask(
            ApiKey.LIST_CONFIG_RESOURCES, request, ListConfigResourcesResponse
        )
        assert [each.resource_name for each in found.config_resources] == ["1", "2"]
