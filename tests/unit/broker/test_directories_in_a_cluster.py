"""The log directories of a broker in a cluster, as its controllers know them (KIP-858)."""

import pytest

from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tailrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.testing import Outside
from tests.unit.broker.brokers import batch, produce
from tests.unit.broker.clusters import T_0, Cluster, running_cluster

TWO = {"log.dirs": "data-1,other-1"}


def home_of(cluster: Cluster, name: TopicPartition = T_0) -> DirectoryLogs:
    """The directory in which broker 1 has a partition."""
    home = cluster.brokers[1].logs.directory_of(name)
    assert home is not None
    return home


async def in_second(cluster: Cluster) -> TopicPartition:
    """A partition of two brokers that broker 1 has in its second directory, and leads."""
    for topic in ("t", "u"):
        await cluster.add_topic(topic, replicas=(1, 2))
        if home_of(cluster, TopicPartition(topic, 0)).path == "other-1":
            break
    return TopicPartition(topic, 0)


async def test_a_directory_that_fails_at_a_start_is_told(outside: Outside) -> None:
    """Its broker has registered with it before, and must not be elected for what is in it."""
    async with running_cluster(outside, 2) as cluster:
        await cluster.start(1, TWO)
        name = await in_second(cluster)
        failed = home_of(cluster, name).directory.directory_id
        await cluster.stop(1)
        # What a compaction has made is no batch, which no start can mend.
        path = f"other-1/{name.topic}-0/00000000000000000000.log.swap"
        outside.files.open(path, create=True).close()
        outside.files.overwrite(path, b"garbage" * 20)
        broker = await cluster.start(1, TWO)
        assert [each.path for each in broker.logs.online] == ["data-1"]
        await outside.pass_time(5)
        assert failed not in cluster.controller.image.brokers[1].log_dirs
        await cluster.stop(2)
        assert cluster.state(name).leader != 1


async def test_a_directory_that_no_controller_knows_of_is_told_after_a_start(
    outside: Outside,
) -> None:
    """Its broker was killed after a move, before its report: others would fail over."""
    async with running_cluster(outside, 2) as cluster:
        await cluster.start(1, TWO)
        name = await in_second(cluster)
        cluster.controller.cut_off(1)
        to = AlterReplicaLogDir(
            path="data-1", topics=(AlterReplicaLogDirTopic(name=name.topic, partitions=(0,)),)
        )
        answer = await cluster.peer(1).ask(
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            AlterReplicaLogDirsRequest(dirs=(to,)),
            AlterReplicaLogDirsResponse,
        )
        assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
        await cluster.until(lambda: home_of(cluster, name).path == "data-1")
        directory = home_of(cluster, name).directory.directory_id
        cluster.kill(1)
        cluster.controller.reconnect(1)
        await outside.pass_time(20)
        await cluster.start(1, TWO)
        assert home_of(cluster, name).path == "data-1"
        await outside.pass_time(5)
        state = cluster.state(name)
        assert dict(zip(state.replicas, state.directories, strict=True))[1] == directory


UNCLEAN = 1


async def test_a_leader_whose_directory_was_emptied_leaves_the_others_their_records(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """It was the last one in sync. The controllers would elect it, with nothing in its log."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await produce(cluster.peer(1), "t", batch(b"on both"))
        await cluster.until(lambda: cluster.end(2) == 1)
        await cluster.stop(2)
        await produce(cluster.peer(1), "t", batch(b"on one"))
        await cluster.stop(1)
        outside.files.remove_tree("data-1")
        await cluster.start(1)
        await cluster.start(2)
        await outside.pass_time(30)
        assert (cluster.state().leader, cluster.end(1), cluster.end(2)) == (-1, 0, 1)
        assert len([each for each in caplog.messages if each.startswith("replica_emptied")]) == 1
        # An operator accepts the loss: another replica leads, and this one is filled again.
        await cluster.peer(2).ask(
            ApiKey.ELECT_LEADERS,
            ElectLeadersRequest(
                election_type=UNCLEAN,
                topic_partitions=(TopicPartitions(topic="t", partitions=(0,)),),
            ),
            ElectLeadersResponse,
        )
        await cluster.until(lambda: set(cluster.state().isr) == {1, 2})
        assert (cluster.state().leader, cluster.end(1), cluster.end(2)) == (2, 1, 1)
        directory = home_of(cluster).directory.directory_id
        await cluster.until(lambda: cluster.state().directories[0] == directory)


async def test_an_emptied_replica_that_has_no_others_is_used_again(outside: Outside) -> None:
    """Nobody else has its records, so nothing is lost by a new log."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1,))
        await produce(cluster.peer(1), "t", batch(b"v"))
        await cluster.stop(1)
        outside.files.remove_tree("data-1")
        await cluster.start(1)
        directory = home_of(cluster).directory.directory_id
        await cluster.until(lambda: cluster.state().directories == (directory,))
