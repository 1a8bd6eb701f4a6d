"""Questions of admin clients: the cluster, pages of topics, resources, leaders, reassignments."""

import pytest

from tailrace.handlers.services import CLUSTER_OPERATIONS, NO_OPERATIONS, TOPIC_OPERATIONS
from tailrace.model import METADATA_TOPIC, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from tailrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tailrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tailrace.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tailrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import connect, create_topic, running

NODE = 1
PREFERRED, UNCLEAN = 0, 1


async def describe_cluster(
    peer: Peer, request: DescribeClusterRequest, version: int
) -> DescribeClusterResponse:
    """The broker's answer at a version."""
    key = ApiKey.DESCRIBE_CLUSTER
    return await peer.ask(key, request, DescribeClusterResponse, version=version)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_cluster_is_this_broker(outside: Outside, version: int) -> None:
    """DescribeCluster names this broker as the only one and as the controller."""
    async with running(outside) as broker:
        found = await describe_cluster(connect(outside, broker), DescribeClusterRequest(), version)
        (node,) = found.brokers
        assert (found.error_code, found.controller_id) == (ErrorCode.NONE, NODE)
        assert (node.broker_id, node.host, node.port) == (NODE, *broker.endpoint)
        assert found.cluster_id
        assert found.cluster_authorized_operations == NO_OPERATIONS


async def test_operations_on_a_cluster_are_told_if_asked_for(outside: Outside) -> None:
    """Without an authorizer they are all of Kafka's operations on a cluster."""
    async with running(outside) as broker:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        found = await describe_cluster(connect(outside, broker), request, 2)
        assert found.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (1, ErrorCode.NONE),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
async def test_endpoints_of_brokers_alone_are_described(
    outside: Outside, kind: int, code: ErrorCode
) -> None:
    """Controllers have other endpoints, and other types do not exist."""
    async with running(outside) as broker:
        request = DescribeClusterRequest(endpoint_type=kind)
        found = await describe_cluster(connect(outside, broker), request, 2)
        assert found.error_code == code
        assert bool(found.brokers) is (code is ErrorCode.NONE)


async def describe_topics(
    peer: Peer, *names: str, cursor: tuple[str, int] | None = None, limit: int = 2000
) -> DescribeTopicPartitionsResponse:
    """The broker's page of topics."""
    at = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
    request = DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=name) for name in names),
        response_partition_limit=limit,
        cursor=at,
    )
    key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    return await peer.ask(key, request, DescribeTopicPartitionsResponse)


def pages(found: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    """The topics of a page with the numbers of their partitions."""
    return [
        (topic.name, [each.partition_index for each in topic.partitions]) for topic in found.topics
    ]


def cursor_of(found: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    """Topic and partition to go on with, or None."""
    at = found.next_cursor
    return None if at is None else (at.topic_name, at.partition_index)


async def test_topics_are_described_in_the_order_of_their_names(outside: Outside) -> None:
    """Every topic, with leader and replicas, if the request names none."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "b", partitions=2)
        await create_topic(peer, "a")
        found = await describe_topics(peer)
        assert pages(found) == [("a", [0]), ("b", [0, 1])]
        assert found.next_cursor is None
        topic = found.topics[0]
        assert topic.topic_id == broker.controller.image.topics["a"].topic_id
        assert topic.topic_authorized_operations == TOPIC_OPERATIONS
        (partition,) = topic.partitions
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, NODE, 0)
        assert partition.replica_nodes == partition.isr_nodes == (NODE,)
        assert partition.eligible_leader_replicas == partition.offline_replicas == ()


async def test_topics_that_do_not_exist_are_told(outside: Outside) -> None:
    """A missing topic and an impossible name have their codes, among those that exist."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "m")
        found = await describe_topics(peer, "z", "m", "a b", "m")
        assert pages(found) == [("a b", []), ("m", [0]), ("z", [])]
        assert [topic.error_code for topic in found.topics] == [
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


async def test_pages_follow_the_cursor_to_the_end(outside: Outside) -> None:
    """Each page has as many partitions as the limit, and together they have all of them once."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        for name, count in (("a", 2), ("b", 4), ("c", 1)):
            await create_topic(peer, name, partitions=count)
        seen, cursor = [], None
        while True:
            found = await describe_topics(peer, cursor=cursor, limit=3)
            seen.append(pages(found))
            cursor = cursor_of(found)
            if cursor is None:
                break
        assert seen == [
            [("a", [0, 1]), ("b", [0])],
            [("b", [1, 2, 3])],
            [("c", [0])],
        ]


async def test_the_broker_limits_a_page_too(outside: Outside) -> None:
    """`max.request.partition.size.limit` counts if the client asks for more; one is the least."""
    async with running(outside, {"max.request.partition.size.limit": "2"}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=3)
        found = await describe_topics(peer, limit=100)
        assert (pages(found), cursor_of(found)) == ([("t", [0, 1])], ("t", 2))
        found = await describe_topics(peer, limit=-5)
        assert (pages(found), cursor_of(found)) == ([("t", [0])], ("t", 1))


@pytest.mark.parametrize(
    ("names", "cursor"), [(("b", "c"), ("a", 0)), (("b", "c"), ("b", -1)), ((), ("b", -1))]
)
async def test_a_wrong_cursor_is_refused(
    outside: Outside, names: tuple[str, ...], cursor: tuple[str, int]
) -> None:
    """Its topic must be among the named ones, and its partition not negative."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "b")
        found = await describe_topics(peer, *names, cursor=cursor)
        assert pages(found) == [(name, []) for name in names]
        assert {each.error_code for each in found.topics} <= {ErrorCode.INVALID_REQUEST}


async def test_a_cursor_behind_the_last_partition_ends_its_topic(outside: Outside) -> None:
    """Partitions may have gone since the last page; the next topic follows."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "a")
        await create_topic(peer, "b")
        found = await describe_topics(peer, cursor=("a", 7))
        assert (pages(found), cursor_of(found)) == ([("a", []), ("b", [0])], None)


async def list_resources(peer: Peer, *kinds: int, version: int = 1) -> ListConfigResourcesResponse:
    """The broker's answer at a version."""
    request = ListConfigResourcesRequest(resource_types=kinds)
    key = ApiKey.LIST_CONFIG_RESOURCES
    return await peer.ask(key, request, ListConfigResourcesResponse, version=version)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), [("t", 2), ("1", 4), ("1", 8)]),
        ((2,), [("t", 2)]),
        ((4,), [("1", 4)]),
        ((8, 16, 32), [("1", 8)]),
        ((4, 2), [("t", 2), ("1", 4)]),
    ],
)
async def test_resources_with_settings_are_listed(
    outside: Outside, kinds: tuple[int, ...], expected: list[tuple[str, int]]
) -> None:
    """Topics, the broker and its loggers are; groups and client metrics have no settings yet."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        found = await list_resources(peer, *kinds)
        assert found.error_code == ErrorCode.NONE
        listed = [(each.resource_name, each.resource_type) for each in found.config_resources]
        assert listed == expected


async def test_an_unknown_type_of_resource_is_refused(outside: Outside) -> None:
    """The code is UNSUPPORTED_VERSION, as in Kafka."""
    async with running(outside) as broker:
        found = await list_resources(connect(outside, broker), 2, 3)
        assert (found.error_code, found.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())


async def test_version_0_lists_client_metrics_alone(outside: Outside) -> None:
    """There are none, so a broker with topics answers with an empty list."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        found = await list_resources(peer, version=0)
        assert (found.error_code, found.config_resources) == (ErrorCode.NONE, ())


async def elect(
    peer: Peer, kind: int, named: dict[str, tuple[int, ...]] | None
) -> tuple[int, dict[tuple[str, int], int]]:
    """The code of the answer, and that of each partition."""
    wanted = None
    if named is not None:
        wanted = tuple(TopicPartitions(topic=name, partitions=n) for name, n in named.items())
    request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
    found = await peer.ask(ApiKey.ELECT_LEADERS, request, ElectLeadersResponse)
    return found.error_code, {
        (topic.topic, each.partition_id): each.error_code
        for topic in found.replica_election_results
        for each in topic.partition_result
    }


@pytest.mark.parametrize(
    ("kind", "without_leader"),
    [
        (PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
async def test_a_leader_is_not_elected_again(
    outside: Outside, kind: int, without_leader: ErrorCode
) -> None:
    """A partition with a leader needs no election; one without has no replica to elect."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=2)
        broker.replicas.set_offline(TopicPartition("t", 1), "broken")
        assert await elect(peer, kind, {"t": (0, 1, 2), "nope": (0,)}) == (
            ErrorCode.NONE,
            {
                ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
                ("t", 1): without_leader,
                ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("nope", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            },
        )
        assert await elect(peer, kind, None) == (ErrorCode.NONE, {("t", 1): without_leader})


async def test_an_election_for_all_names_each_topic(outside: Outside) -> None:
    """A topic whose partitions all have their leader is there with an empty list."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
        found = await peer.ask(ApiKey.ELECT_LEADERS, request, ElectLeadersResponse)
        results = found.replica_election_results
        assert [(each.topic, each.partition_result) for each in results] == [("t", ())]


async def test_an_unknown_kind_of_election_is_refused(outside: Outside) -> None:
    """INVALID_REQUEST for the request and for each partition that it names."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        code = ErrorCode.INVALID_REQUEST
        assert await elect(peer, 2, {"t": (0,)}) == (code, {("t", 0): code})
        assert await elect(peer, 2, None) == (code, {})


@pytest.mark.parametrize(
    ("topic", "partition", "replicas", "code"),
    [
        ("t", 0, (NODE,), ErrorCode.NONE),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 0, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (NODE, NODE), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (NODE, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (-1,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 1, (NODE,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nope", 0, (NODE,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
async def test_a_partition_stays_on_the_only_broker(
    outside: Outside,
    topic: str,
    partition: int,
    replicas: tuple[int, ...] | None,
    code: ErrorCode,
    version: int,
) -> None:
    """Its present assignment is accepted; others, and what cannot be cancelled, are refused."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        wanted = ReassignablePartition(partition_index=partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=(ReassignableTopic(name=topic, partitions=(wanted,)),)
        )
        found = await peer.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            request,
            AlterPartitionReassignmentsResponse,
            version=version,
        )
        (answer,) = found.responses[0].partitions
        assert (found.error_code, answer.error_code) == (ErrorCode.NONE, code)
        assert bool(answer.error_message) is (code is not ErrorCode.NONE)


@pytest.mark.parametrize("named", [None, ("t", "nope")])
async def test_no_partition_is_being_reassigned(
    outside: Outside, named: tuple[str, ...] | None
) -> None:
    """The list is empty for all topics, for one that is there, and for one that is not."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        topics = None
        if named is not None:
            topics = tuple(
                ListPartitionReassignmentsTopics(name=name, partition_indexes=(0,))
                for name in named
            )
        request = ListPartitionReassignmentsRequest(topics=topics)
        key = ApiKey.LIST_PARTITION_REASSIGNMENTS
        found = await peer.ask(key, request, ListPartitionReassignmentsResponse)
        assert (found.error_code, found.topics) == (ErrorCode.NONE, ())


@pytest.mark.parametrize("is_asked", [False, True])
async def test_operations_are_told_with_the_metadata_if_asked_for(
    outside: Outside, *, is_asked: bool
) -> None:
    """Metadata has those on the cluster, and those on each topic."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        request = MetadataRequest(
            topics=None,
            include_cluster_authorized_operations=is_asked,
            include_topic_authorized_operations=is_asked,
        )
        found = await peer.ask(ApiKey.METADATA, request, MetadataResponse, version=10)
        cluster = CLUSTER_OPERATIONS if is_asked else NO_OPERATIONS
        topic = TOPIC_OPERATIONS if is_asked else NO_OPERATIONS
        assert found.cluster_authorized_operations == cluster
        assert [each.topic_authorized_operations for each in found.topics] == [topic]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_quorum_is_this_broker(outside: Outside, version: int) -> None:
    """It is the only voter of the metadata log, whose end grows; other logs have no quorum."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        asked = DescribeQuorumRequest(
            topics=tuple(
                TopicData(topic_name=name, partitions=(PartitionData(partition_index=number),))
                for name, number in ((METADATA_TOPIC, 0), (METADATA_TOPIC, 1), ("t", 0))
            )
        )
        ends = []
        for name in ("t", "u"):
            await create_topic(peer, name)
            answer = await peer.ask(
                ApiKey.DESCRIBE_QUORUM, asked, DescribeQuorumResponse, version=version
            )
            mine, *others = [part for topic in answer.topics for part in topic.partitions]
            assert [each.error_code for each in others] == [3, 3]
            assert (mine.error_code, mine.leader_id, mine.leader_epoch) == (0, NODE, 1)
            assert [each.replica_id for each in mine.current_voters] == [NODE]
            assert mine.current_voters[0].log_end_offset == mine.high_watermark
            ends.append(mine.high_watermark)
        assert ends[0] < ends[1]
