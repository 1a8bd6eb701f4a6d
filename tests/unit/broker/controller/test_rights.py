"""Rights at a controller: of nodes, and of the clients whose requests brokers forward."""

import pytest

from tailrace.broker.kraft.lifecycle import RegistrationError
from tailrace.model import Principal
from tailrace.protocol.apis import ApiKey, api_of
from tailrace.protocol.envelopes import principal_bytes
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import decode_response
from tailrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tailrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from tailrace.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from tailrace.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from tailrace.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tailrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.elect_leaders import ElectLeadersRequest
from tailrace.protocol.messages.envelope import EnvelopeResponse
from tailrace.protocol.messages.fetch import FetchRequest, FetchResponse
from tailrace.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.security.authorizer_config import STANDARD_AUTHORIZER
from tailrace.testing import Outside
from tests.unit.broker.controller.own_clusters import OwnCluster, own_cluster
from tests.unit.broker.controller.test_own_controller import creation, envelope
from tests.unit.broker.principals import User, by_client_id

NODES = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
"""Nodes connect in plain text here, and are super users."""
STRANGERS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
"""A controller to which nobody has logged in who may do anything."""
ALICE = principal_bytes(Principal("User", "alice"))
ADMIN = principal_bytes(Principal("User", "ANONYMOUS"))
DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
EVERYTHING = DescribeAclsRequest(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


async def as_client(cluster: OwnCluster, request: Message, principal: bytes) -> Message:
    """The controller's answer to a request that a broker forwards for a client."""
    api = api_of(type(request))
    found = await cluster.ask().ask(
        ApiKey.ENVELOPE, envelope(api.key, request, principal=principal), EnvelopeResponse
    )
    assert found.error_code == ErrorCode.NONE, found
    # A response in an envelope has no size, and its correlation id is four bytes.
    return decode_response(api, api.last_version, memoryview(bytes(found.response_data or b"")))


def entry(principal: str, operation: int, *, resource: int = 2, name: str = "t") -> AclCreation:
    """An entry that allows an operation."""
    return AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=3,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=3,
    )


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (FetchRequest(replica_id=1), FetchResponse),
        (FetchSnapshotRequest(), FetchSnapshotResponse),
        (BrokerRegistrationRequest(broker_id=1), BrokerRegistrationResponse),
        (BrokerHeartbeatRequest(broker_id=1), BrokerHeartbeatResponse),
        (AlterPartitionRequest(broker_id=1), AlterPartitionResponse),
        (AssignReplicasToDirsRequest(broker_id=1), AssignReplicasToDirsResponse),
        (AllocateProducerIdsRequest(broker_id=1), AllocateProducerIdsResponse),
        (envelope(ApiKey.CREATE_TOPICS, creation("t"), principal=ALICE), EnvelopeResponse),
        (DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse),
        (EVERYTHING, DescribeAclsResponse),
    ],
)
async def test_a_node_needs_rights_on_the_cluster(
    outside: Outside, request_: Message, answer: type[Message]
) -> None:
    """A node without rights on the cluster gets an error, reads no metadata and changes none."""
    async with own_cluster(outside, settings=STRANGERS) as cluster:
        found = await cluster.ask().ask(api_of(type(request_)).key, request_, answer)
        assert getattr(found, "error_code") == DENIED  # noqa: B009 - messages of several classes


async def test_a_forwarded_request_needs_the_rights_of_its_client(outside: Outside) -> None:
    """The broker that forwards it is a super user, and its client is none."""
    async with own_cluster(outside, 1, settings=NODES) as cluster:

        async def create(principal: bytes) -> ErrorCode:
            answer = await as_client(cluster, creation("t"), principal)
            [topic] = getattr(answer, "topics")  # noqa: B009
            return ErrorCode(topic.error_code)

        assert await create(ALICE) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        made = CreateAclsRequest(creations=(entry("User:alice", 5),))
        refused = await as_client(cluster, made, ALICE)
        assert {each.error_code for each in getattr(refused, "results")} == {DENIED}  # noqa: B009
        await as_client(cluster, made, ADMIN)
        assert await create(ALICE) is ErrorCode.NONE
        refused = await as_client(cluster, ElectLeadersRequest(topic_partitions=None), ALICE)
        assert getattr(refused, "error_code") == DENIED  # noqa: B009


async def test_a_topic_is_deleted_by_who_may_delete_it(outside: Outside) -> None:
    """By its id too, which tells a name to who may describe the topic only."""
    async with own_cluster(outside, 1, settings=NODES) as cluster:
        await as_client(cluster, creation("t"), ADMIN)
        topic_id = cluster.image.topic_ids["t"]
        request = DeleteTopicsRequest(
            topics=(DeleteTopicState(name=None, topic_id=topic_id),), timeout_ms=1000
        )

        async def delete() -> tuple[str | None, ErrorCode]:
            answer = await as_client(cluster, request, ALICE)
            [result] = getattr(answer, "responses")  # noqa: B009
            return result.name, ErrorCode(result.error_code)

        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await delete() == (None, refused)
        describe, may_delete = (entry("User:alice", each) for each in (8, 6))
        await as_client(cluster, CreateAclsRequest(creations=(describe,)), ADMIN)
        assert await delete() == ("t", refused)
        await as_client(cluster, CreateAclsRequest(creations=(may_delete,)), ADMIN)
        assert await delete() == ("t", ErrorCode.NONE)


async def test_brokers_decide_by_the_entries_that_the_controller_has_made(
    outside: Outside,
) -> None:
    """A change comes to them with the metadata log, and counts from the next request on."""
    async with own_cluster(outside, settings=NODES) as cluster:
        await cluster.start(1, {**NODES, "super.users": "User:nobody"})
        await as_client(cluster, creation("t"), ADMIN)
        await outside.pass_time(1)
        peer = cluster.peer(1)
        request = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))

        async def code() -> ErrorCode:
            [topic] = (await peer.ask(ApiKey.METADATA, request, MetadataResponse)).topics
            return ErrorCode(topic.error_code)

        assert await code() is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        made = CreateAclsRequest(creations=(entry("User:ANONYMOUS", 8),))
        await as_client(cluster, made, ADMIN)
        await outside.pass_time(1)
        assert await code() is ErrorCode.NONE


async def test_what_a_client_misses_is_created_by_its_own_rights(outside: Outside) -> None:
    """The broker needs no more than the right of brokers, but for the id of a new cluster."""
    async with own_cluster(outside, settings=NODES) as cluster:
        rights = (
            entry("User:ANONYMOUS", 9, resource=4, name="kafka-cluster"),
            entry("User:alice", 5, name="mine"),
            entry("User:alice", 8, name="*"),
        )
        await as_client(cluster, CreateAclsRequest(creations=rights), ADMIN)
        await cluster.start(1, NODES)
        await cluster.stop(1)
        await cluster.controller.stop()
        await cluster.start_controller(STRANGERS)
        with pytest.raises(RegistrationError, match="storage format --cluster-id"):
            await cluster.start(2, STRANGERS)
        await cluster.start(1, STRANGERS, wrap_dispatch=by_client_id)
        client = User(cluster.peer(1), "alice")
        for name, code in (("mine", 0), ("other", ErrorCode.TOPIC_AUTHORIZATION_FAILED)):
            request = MetadataRequest(
                topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=True
            )
            await client.ask(request, MetadataResponse)
            await outside.pass_time(1)
            [topic] = (await client.ask(request, MetadataResponse)).topics
            assert (topic.error_code, name in cluster.image.topic_ids) == (code, not code)


async def test_entries_are_described_by_the_controller_too(outside: Outside) -> None:
    """With the same answer as a broker gives."""
    async with own_cluster(outside, settings=NODES) as cluster:
        await cluster.start(1, NODES)
        await as_client(cluster, CreateAclsRequest(creations=(entry("User:alice", 3),)), ADMIN)
        await outside.pass_time(1)
        asked = [cluster.ask(), cluster.peer(1)]
        answers = [
            await each.ask(ApiKey.DESCRIBE_ACLS, EVERYTHING, DescribeAclsResponse) for each in asked
        ]
        assert answers[0] == answers[1]
        [resource] = answers[0].resources
        assert [each.principal for each in resource.acls] == ["User:alice"]
