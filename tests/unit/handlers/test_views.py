"""Brokers and partitions as a broker of a cluster answers them: Metadata and its like."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import UUID

import pytest

from tailrace.cluster.image import Topic
from tailrace.cluster.topic_rules import NewTopic
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.transactions.settings import TransactionSettings
from tailrace.errors import TailraceError
from tailrace.handlers.cluster import handle_describe_cluster
from tailrace.handlers.describe_configs import handle_list_config_resources
from tailrace.handlers.describe_topic_partitions import handle_describe_topic_partitions
from tailrace.handlers.metadata import handle_metadata
from tailrace.handlers.views import view_of
from tailrace.protocol.answers import LongAnswer
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID, Message
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tailrace.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from tailrace.protocol.metadata_records import RemoveTopicRecord
from tailrace.security.audit import Audit
from tests.unit.cluster.followed import A, B, Followed, broker, topic

# Each test that waits runs on the loop of this fixture.
pytestmark = pytest.mark.usefixtures("outside")

NEWEST = 13
HEADER = RequestHeader(
    api_key=ApiKey.METADATA, api_version=NEWEST, correlation_id=1, client_id="client"
)
LOST, UNASSIGNED, HERE, ELSEWHERE = UUID(int=2), UUID(int=1), UUID(int=77), UUID(int=78)

M = TypeVar("M", bound=Message)


class Answering:
    """Handlers of one broker whose images a test publishes."""

    def __init__(self, *records: Message) -> None:
        self.followed = Followed()
        self.asked_for: list[NewTopic] = []
        self.refused: dict[str, TailraceError] = {}
        self.services = cast(
            "Any",
            SimpleNamespace(
                audit=Audit(),
                authorizer=None,
                node_id=1,
                listener="PLAINTEXT",
                cluster_id="cluster",
                cluster=self.followed.cluster,
                controller=None,
                find_topic=self._find_topic,
                create_topics=self._create,
                auto_create_topics=True,
                group_settings=GroupSettings(),
                transaction_settings=TransactionSettings(),
                partitions_per_answer_max=2000,
            ),
        )
        self.followed.publish(*records)

    def _find_topic(self, name: str, topic_id: UUID) -> Topic | None:
        return self.followed.cluster.image.find_topic(name, topic_id)

    async def _create(
        self, missing: Sequence[NewTopic], client: RequestHeader | None
    ) -> Mapping[str, TailraceError]:
        assert client is not None
        self.asked_for += missing
        return self.refused

    async def metadata(self, *names: str, version: int = NEWEST) -> MetadataResponse:
        wanted = tuple(MetadataRequestTopic(name=name) for name in names) or None
        return await self.of(
            MetadataResponse, handle_metadata, MetadataRequest(topics=wanted), version
        )

    async def partition(self, version: int = NEWEST) -> MetadataResponsePartition:
        """The first partition of the only topic."""
        [found] = (await self.metadata(version=version)).topics
        return found.partitions[0]

    async def cluster(self, *, include_fenced: bool = False) -> DescribeClusterResponse:
        request = DescribeClusterRequest(include_fenced_brokers=include_fenced)
        return await self.of(DescribeClusterResponse, handle_describe_cluster, request)

    async def described(
        self, *names: str, cursor: Cursor | None = None, limit: int = 2000
    ) -> DescribeTopicPartitionsResponse:
        request = DescribeTopicPartitionsRequest(
            topics=tuple(TopicRequest(name=name) for name in names),
            cursor=cursor,
            response_partition_limit=limit,
        )
        return await self.of(
            DescribeTopicPartitionsResponse, handle_describe_topic_partitions, request
        )

    async def of(self, _: type[M], handle: Any, request: Message, version: int = NEWEST) -> M:
        found = handle(self.services, HEADER._replace(api_version=version), request)
        if isinstance(found, LongAnswer):
            found = found.make()
        return cast("M", found if hasattr(found, "first_version") else await found)


async def test_brokers_that_are_alive_are_listed_with_their_racks() -> None:
    """One that is fenced, or has not the listener of the request, is none to connect to."""
    answering = Answering(
        broker(1), broker(2, fenced=True), broker(3, listeners=["INSIDE"]), broker(4)
    )
    found = await answering.metadata()
    assert [(each.node_id, each.host, each.rack) for each in found.brokers] == [
        (1, "p1", "r1"),
        (4, "p4", "r4"),
    ]


async def test_any_broker_that_is_alive_is_named_as_the_controller() -> None:
    """Each forwards what clients ask of a controller, so that none of them has all of it to do."""
    answering = Answering(broker(1), broker(2, fenced=True), broker(4))
    named = {(await answering.metadata()).controller_id for _ in range(4)}
    named |= {(await answering.cluster()).controller_id for _ in range(4)}
    assert named == {1, 4}


async def test_without_a_broker_there_is_no_controller() -> None:
    """So it is before the first broker of a cluster is unfenced."""
    answering = Answering(broker(1, fenced=True))
    assert ((await answering.metadata()).controller_id, (await answering.cluster()).brokers) == (
        -1,
        (),
    )


async def test_fenced_brokers_are_described_if_they_are_asked_for() -> None:
    """DescribeCluster can list them (KIP-1073), and says that they are fenced."""
    answering = Answering(broker(1), broker(2, fenced=True))
    found = await answering.cluster(include_fenced=True)
    assert [(each.broker_id, each.rack, each.is_fenced) for each in found.brokers] == [
        (1, "r1", False),
        (2, "r2", True),
    ]
    assert [each.broker_id for each in (await answering.cluster()).brokers] == [1]


@pytest.mark.parametrize("version", range(NEWEST + 1))
async def test_a_topic_has_the_leaders_and_replicas_of_the_image(version: int) -> None:
    """In every version: ids, epochs, and the partitions of other brokers too."""
    answering = Answering(broker(1), broker(2), broker(3), *topic("a", A, 3))
    [found] = (await answering.metadata("a", version=version)).topics
    assert (found.error_code, found.name, found.topic_id) == (ErrorCode.NONE, "a", A)
    assert [(each.partition_index, each.leader_id) for each in found.partitions] == [
        (0, 1),
        (1, 2),
        (2, 1),
    ]
    first = found.partitions[0]
    assert (first.error_code, first.leader_epoch) == (ErrorCode.NONE, 5)
    assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ((1, 2), (1, 2), ())


@pytest.mark.parametrize("version", [0, 1, 5, 6, NEWEST])
@pytest.mark.parametrize("leader", [-1, 9])
async def test_a_leader_that_is_not_registered_is_not_available(version: int, leader: int) -> None:
    """The epoch is that of the image, so that clients do not take an older leader again."""
    answering = Answering(broker(1), broker(2), *topic("a", A, leader=leader))
    found = await answering.partition(version)
    assert (found.error_code, found.leader_id, found.leader_epoch) == (
        ErrorCode.LEADER_NOT_AVAILABLE,
        -1,
        5,
    )


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.LEADER_NOT_AVAILABLE),
        (5, ErrorCode.LEADER_NOT_AVAILABLE),
        (6, ErrorCode.LISTENER_NOT_FOUND),
        (NEWEST, ErrorCode.LISTENER_NOT_FOUND),
    ],
)
async def test_a_leader_without_the_listener_is_not_found(version: int, code: ErrorCode) -> None:
    """Clients up to v5 do not know the error, and would not ask again."""
    answering = Answering(broker(1, listeners=["INSIDE"]), broker(2), *topic("a", A))
    found = await answering.partition(version)
    assert (found.error_code, found.leader_id, found.offline_replicas) == (code, -1, (1,))


@pytest.mark.parametrize("kept", [1, 2])
async def test_a_replica_that_is_not_alive_is_offline(kept: int) -> None:
    """It stays among the replicas, and in the ISR while the controller has it there."""
    others = [broker(2, fenced=True), broker(3)] if kept == 1 else [broker(2), broker(3)][:1]
    answering = Answering(broker(1), *others, *topic("a", A, replicas=(1, 2, 3), isr=(1, 2)))
    found = await answering.partition()
    assert (found.error_code, found.replica_nodes, found.isr_nodes) == (
        ErrorCode.NONE,
        (1, 2, 3),
        (1, 2),
    )
    assert found.offline_replicas == ((2,) if kept == 1 else (3,))


@pytest.mark.parametrize(
    ("isr", "code"),
    [((1, 3), ErrorCode.REPLICA_NOT_AVAILABLE), ((1, 2), ErrorCode.REPLICA_NOT_AVAILABLE)],
)
async def test_the_oldest_clients_are_told_of_replicas_that_are_gone(
    isr: tuple[int, ...], code: ErrorCode
) -> None:
    """In v0 they are left out of both lists, with an error that names no replica."""
    answering = Answering(
        broker(1), broker(2, fenced=True), broker(3), *topic("a", A, replicas=(1, 2, 3), isr=isr)
    )
    found = await answering.partition(0)
    assert (found.error_code, found.leader_id, found.replica_nodes) == (code, 1, (1, 3))
    assert found.isr_nodes == tuple(each for each in isr if each != 2)


@pytest.mark.parametrize(
    ("directories", "offline"),
    [
        ((HERE, HERE), ()),
        ((HERE, ELSEWHERE), (2,)),
        ((LOST, HERE), (1,)),
        ((UNASSIGNED, UUID(int=0)), ()),
        ((), ()),
    ],
)
async def test_a_replica_in_a_failed_directory_is_offline(
    directories: tuple[UUID, ...], offline: tuple[int, ...]
) -> None:
    """By the directories that its broker has registered; unassigned ones may be anywhere."""
    answering = Answering(
        broker(1, directories=(HERE,)),
        broker(2, directories=(HERE,)),
        *topic("a", A, directories=directories),
    )
    assert (await answering.partition()).offline_replicas == offline


async def test_a_broker_that_registers_no_directories_has_all() -> None:
    """Its registration is of before there were any (KAFKA-16162)."""
    answering = Answering(broker(1), broker(2), *topic("a", A, directories=(HERE, ELSEWHERE)))
    assert (await answering.partition()).offline_replicas == ()


async def test_a_missing_topic_is_asked_of_the_controller() -> None:
    """The client is answered at once, and asks again until the image has the topic."""
    answering = Answering(broker(1))
    [found] = (await answering.metadata("new")).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answering.asked_for == [NewTopic("new")]
    answering.followed.publish(*topic("new", B))
    [found] = (await answering.metadata("new")).topics
    assert (found.error_code, found.topic_id) == (ErrorCode.NONE, B)
    assert len(answering.asked_for) == 1


async def test_an_internal_topic_is_asked_for_with_its_settings() -> None:
    """A client may look at it before the first group or transaction has it created."""
    answering = Answering(broker(1))
    await answering.metadata("__consumer_offsets", "__transaction_state")
    groups, transactions = answering.asked_for
    assert (groups.partition_count, groups.configs["compression.type"]) == (50, "producer")
    assert transactions.configs["min.insync.replicas"] == "2"


async def test_a_name_that_is_none_is_not_asked_of_the_controller() -> None:
    """Nor one that collides with another, nor that of the metadata log."""
    answering = Answering(broker(1), *topic("a.b", A))
    found = (await answering.metadata("a_b", "a b", "__cluster_metadata")).topics
    assert [each.error_code for each in found] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert answering.asked_for == []


async def test_topics_are_described_with_their_eligible_leaders() -> None:
    """And with those that were in the ISR last, where nobody is left there (KIP-966)."""
    answering = Answering(
        broker(1),
        *topic("a", A, leader=-1, isr=(), eligible_leader_replicas=(2,), last_known_elr=(1,)),
        *topic("b", B),
    )
    first, second = (await answering.described()).topics
    [found] = first.partitions
    # No error in this API, though there is no leader.
    assert (found.error_code, found.leader_id, found.isr_nodes) == (ErrorCode.NONE, -1, ())
    assert (found.eligible_leader_replicas, found.last_known_elr) == ((2,), (1,))
    assert found.offline_replicas == (2,)
    assert second.partitions[0].eligible_leader_replicas == ()


async def test_brokers_have_settings_also_while_they_are_fenced() -> None:
    """A tool that lists what can be configured finds each of them."""
    answering = Answering(broker(1), broker(2, fenced=True), *topic("a", A))
    request = ListConfigResourcesRequest(resource_types=(ResourceType.BROKER, ResourceType.TOPIC))
    found = await answering.of(
        ListConfigResourcesResponse, handle_list_config_resources, request, 1
    )
    assert [(each.resource_type, each.resource_name) for each in found.config_resources] == [
        (ResourceType.TOPIC, "a"),
        (ResourceType.BROKER, "1"),
        (ResourceType.BROKER, "2"),
    ]


async def test_topics_are_described_page_by_page() -> None:
    """The cursor says where the next page begins, also inside of a topic."""
    answering = Answering(broker(1), broker(2), *topic("a", A, 2), *topic("b", B, 3))
    page = await answering.described(limit=3)
    assert [(each.name, len(each.partitions)) for each in page.topics] == [("a", 2), ("b", 1)]
    assert page.next_cursor == Cursor(topic_name="b", partition_index=1)
    page = await answering.described(cursor=page.next_cursor)
    [rest] = page.topics
    assert ([each.partition_index for each in rest.partitions], page.next_cursor) == ([1, 2], None)


def test_an_answer_is_of_one_image() -> None:
    """A topic that goes while a long answer is made in slices is described to its end."""
    answering = Answering(broker(1), broker(2), *topic("a", A))
    view = view_of(answering.services)
    found = view.find_topic("a", NO_UUID)
    assert found is not None
    answering.followed.publish(RemoveTopicRecord(topic_id=A))
    assert view.find_topic("a", NO_UUID) is found
    assert view.partition(found, 0).leader_id == 1
