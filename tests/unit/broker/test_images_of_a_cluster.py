"""Images that a broker of a cluster takes while something keeps it from doing all that they ask."""

import errno

from tailrace.model import OFFSETS_TOPIC, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.testing import DiskFault, Outside, Peer
from tests.unit.broker.clusters import Cluster, running_cluster

NAMED = 7
"""A version of OffsetCommit that names topics."""


def delete(cluster: Cluster, topic: str) -> None:
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=topic),))
    cluster.controller.do(ApiKey.DELETE_TOPICS, request)


async def commit(peer: Peer, topic: str) -> int:
    """The code of a commit of a group without members."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=(OffsetCommitRequestTopic(name=topic, partitions=(partition,)),),
    )
    answer = await peer.ask(ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, version=NAMED)
    return answer.topics[0].partitions[0].error_code


async def test_images_are_taken_while_groups_forget_a_topic(outside: Outside) -> None:
    """Their tombstones wait for a follower that is gone, and other partitions do not."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(OFFSETS_TOPIC, replicas=(1, 2))
        await cluster.add_topic(replicas=(1, 2))
        peer = cluster.peer(1)
        while await commit(peer, "t"):
            await outside.pass_time(0.1)
        cluster.kill(2)
        delete(cluster, "t")
        await outside.pass_time(0.5)
        cluster.controller.add_topic("u", assignments=[[1]])
        await outside.pass_time(0.5)
        assert cluster.end(1, TopicPartition("u", 0)) == 0


async def test_a_directory_that_refuses_a_deletion_goes_alone(outside: Outside) -> None:
    """The broker serves on with the others."""
    async with running_cluster(outside, 2) as cluster:
        broker = await cluster.start(1, {"log.dirs": "data-1,other-1"})
        for topic in ("t", "u"):
            await cluster.add_topic(topic, replicas=(1, 2))
        other = broker.logs.directories[1]
        [name] = [
            each for each in broker.replicas.names() if broker.logs.directory_of(each) is other
        ]
        outside.files.faults.append(
            DiskFault(operation="rename", path_part="other-1/", error=errno.EIO)
        )
        delete(cluster, name.topic)
        await outside.pass_time(1)
        assert other.failure is not None
        assert broker.end_reason is None
        await cluster.add_topic("v", replicas=(1, 2))
        await cluster.until(lambda: cluster.state(TopicPartition("v", 0)).leader == 1)
