"""Eligible leader replicas (KIP-966) under a controller of our own, and what reassignments do."""

from tailrace.cluster.control.reassignments import is_reassigning
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.testing import Outside
from tests.unit.broker.brokers import batch, produce
from tests.unit.broker.controller.own_clusters import OwnCluster, own_cluster

T_1 = TopicPartition("t", 1)


async def create(cluster: OwnCluster) -> None:
    """Create `t` with two partitions on brokers 1, 2 and 3."""
    assignments = tuple(
        CreatableReplicaAssignment(partition_index=each, broker_ids=(1, 2, 3)) for each in (0, 1)
    )
    topic = CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    answer = await cluster.peer(1).ask(
        ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse
    )
    assert answer.topics[0].error_code == ErrorCode.NONE, answer
    await cluster.wait(lambda: all(cluster.end(each, T_1) == 0 for each in (1, 2, 3)))


async def reassign(cluster: OwnCluster, *replicas: int) -> None:
    """Move partition 1 of `t`."""
    partition = ReassignablePartition(partition_index=1, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=(ReassignableTopic(name="t", partitions=(partition,)),)
    )
    answer = await cluster.peer(1).ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, AlterPartitionReassignmentsResponse
    )
    assert answer.error_code == ErrorCode.NONE, answer


async def test_who_was_no_replica_meanwhile_does_not_lead(outside: Outside) -> None:
    """Its log was deleted: with it as leader, acknowledged records would be lost on all replicas.

    The controller of Kafka 4.3.1 has it in the eligible leader replicas all the same.
    """
    settings = {"min.insync.replicas": "2"}
    async with own_cluster(outside, 1, 2, 3, settings=settings) as cluster:
        await create(cluster)
        assert (await produce(cluster.peer(1), "t", batch(b"one"), partition=1)).error_code == 0
        # Fewer than min.insync.replicas, which is then as small for this partition.
        await reassign(cluster, 1)
        await cluster.wait(lambda: cluster.end(2, T_1) == cluster.end(3, T_1) == -1)
        for each in (2, 3):
            await cluster.stop(each)
        assert (await produce(cluster.peer(1), "t", batch(b"two"), partition=1)).error_code == 0
        await reassign(cluster, 1, 2, 3)
        await cluster.stop(1)
        for each in (2, 3):
            await cluster.start(each)
        await outside.pass_time(30)
        assert cluster.state(T_1).leader == -1
        await cluster.start(1)
        await cluster.wait(lambda: sorted(cluster.state(T_1).isr) == [1, 2, 3])
        assert [cluster.end(each, T_1) for each in (1, 2, 3)] == [2, 2, 2]
        assert not is_reassigning(cluster.state(T_1))
