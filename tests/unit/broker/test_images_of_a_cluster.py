"""Images that a broker of a cluster takes while something keeps it from doing all that they ask."""

import errno
import logging

import pytest

from tailrace.model import OFFSETS_TOPIC, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.replication.new_logs import QUIET_S
from tailrace.testing import DiskFault, Outside, Peer
from tests.unit.broker.clusters import T_0, Cluster, running_cluster

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


async def test_a_topic_that_goes_while_its_logs_are_made_is_not_followed(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The log appears when the image has no such topic any more, and nothing asks for it."""
    caplog.set_level(logging.INFO)
    async with running_cluster(outside, 1, 2) as cluster:
        cluster.controller.add_topic("t", assignments=[[1, 2]])
        await cluster.until(lambda: T_0 in cluster.brokers[2].replicas.new_logs)
        # The threads that make the logs, which nobody waits for, begin in this time.
        await outside.pass_time(QUIET_S - 0.02)
        outside.threads.seconds_per_run = 1.0
        await outside.pass_time(0.04)
        outside.threads.seconds_per_run = 0.0
        delete(cluster, "t")
        await outside.pass_time(0.5)
        assert T_0 in cluster.brokers[2].replicas.new_logs
        await outside.pass_time(5)
        assert cluster.end(2) == -1
        assert "following_begun partition=t-0" in caplog.text
        assert "fetch_refused" not in caplog.text


async def test_a_topic_whose_settings_contradict_the_broker_s_own_is_served(
    outside: Outside,
) -> None:
    """The controllers have taken them, and do not know this broker's defaults."""
    own = {"log.cleaner.min.compaction.lag.ms": "1000"}
    async with running_cluster(outside) as cluster:
        await cluster.start(1, own)
        cluster.controller.add_topic("t", assignments=[[1]], configs={"max.compaction.lag.ms": "5"})
        await cluster.until(lambda: cluster.end(1) == 0)
        await cluster.stop(1)
        broker = await cluster.start(1, own)
        assert broker.replicas.find_replica(T_0).log.config.max_compaction_lag_ms == 1000


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
