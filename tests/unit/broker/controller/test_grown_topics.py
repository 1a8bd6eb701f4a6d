"""Topics of coordinators that get more partitions while brokers serve them."""

from tailrace.model import OFFSETS_TOPIC
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.testing import Outside
from tests.unit.broker.controller.own_clusters import OwnCluster, own_cluster

FEW = {"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "1"}


async def coordinators(cluster: OwnCluster, broker_id: int) -> list[tuple[int, int]]:
    """The error and the node that a broker names for some groups."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=tuple("abcdefgh"))
    answer = await cluster.peer(broker_id).ask(
        ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse
    )
    return [(each.error_code, each.node_id) for each in answer.coordinators]


async def test_all_brokers_look_for_a_group_where_it_has_stayed(outside: Outside) -> None:
    """Also one that nobody has asked for a group before the topic has grown."""
    async with own_cluster(outside) as cluster:
        for each in (1, 2, 3):
            await cluster.start(each, FEW)
        await coordinators(cluster, 1)
        await cluster.until(lambda image: image.topic(OFFSETS_TOPIC) is not None)
        await outside.pass_time(1)
        before = await coordinators(cluster, 1)
        assert {code for code, _ in before} == {ErrorCode.NONE}
        topic = CreatePartitionsTopic(name=OFFSETS_TOPIC, count=7, assignments=None)
        answer = await cluster.peer(1).ask(
            ApiKey.CREATE_PARTITIONS,
            CreatePartitionsRequest(topics=(topic,), timeout_ms=10_000),
            CreatePartitionsResponse,
        )
        assert answer.results[0].error_code == ErrorCode.NONE
        await outside.pass_time(1)
        assert [await coordinators(cluster, each) for each in (1, 2, 3)] == [before] * 3
