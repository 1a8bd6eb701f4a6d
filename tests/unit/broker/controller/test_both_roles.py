"""A node that is the only controller of a cluster and one of its brokers."""

import errno

import pytest

from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.cluster.control.reassignments import is_reassigning
from tailrace.errors import ConfigError, DirectoryError, ListenError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.describe_quorum import DescribeQuorumResponse
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tailrace.testing import DiskFault, Outside
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running
from tests.unit.broker.controller.own_clusters import PORT, T_0, OwnCluster, cluster_of_both
from tests.unit.broker.controller.test_own_controller import QUORUM, creation

LOG = "__cluster_metadata-0"


async def reassign(cluster: OwnCluster, *replicas: int) -> None:
    """Move partition 0 of `t`, and wait until that is done."""
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=(ReassignableTopic(name="t", partitions=(partition,)),)
    )
    answer = await cluster.peer(1).ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, AlterPartitionReassignmentsResponse
    )
    assert answer.error_code == ErrorCode.NONE, answer
    await cluster.wait(lambda: not is_reassigning(cluster.state()))
    await cluster.wait(lambda: sorted(cluster.state().isr) == sorted(replicas))


# -- life -------------------------------------------------------------------------------------


async def test_alone_it_serves_and_decides(outside: Outside) -> None:
    """Topics, records and producer ids need no other node."""
    async with cluster_of_both(outside) as cluster:
        await cluster.add_topic(replicas=(1,))
        assert (await produce(cluster.peer(1), "t", batch(b"one"))).error_code == 0
        given = await cluster.peer(1).ask(
            ApiKey.INIT_PRODUCER_ID,
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
            InitProducerIdResponse,
        )
        assert given.error_code == ErrorCode.NONE
        assert cluster.end(1) == 1


async def test_it_says_where_both_listen_and_how_they_are(outside: Outside) -> None:
    """People, tools and metrics see the broker and the controller of one process."""
    async with cluster_of_both(outside, 2) as cluster:
        both = cluster.brokers[1]
        port = both.endpoint[1]
        assert both.addresses == f"PLAINTEXT://memory:{port},CONTROLLER://memory:{PORT}"
        found = both.statistics()
        assert found.controller is not None
        assert (found.controller.broker_count, found.controller.observer_count) == (2, 1)
        assert found.metadata is not None
        assert found.metadata.applied_offset == found.controller.watermark - 1
        assert cluster.brokers[2].statistics().controller is None


async def test_others_join_and_replicate(outside: Outside) -> None:
    """The controller is the one voter of the quorum, and only the other broker observes its log."""
    async with cluster_of_both(outside, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        assert (await produce(cluster.peer(1), "t", batch(b"one"))).error_code == 0
        assert [cluster.end(each) for each in (1, 2)] == [1, 1]
        answer = await cluster.peer(2).ask(ApiKey.DESCRIBE_QUORUM, QUORUM, DescribeQuorumResponse)
        [partition] = answer.topics[0].partitions
        assert partition.leader_id == 1
        assert [each.replica_id for each in partition.current_voters] == [1]
        assert [each.replica_id for each in partition.observers] == [2]


async def test_after_a_kill_it_serves_at_once(outside: Outside) -> None:
    """It does not wait for the end of a session that only its own last process had (9 s)."""
    async with cluster_of_both(outside, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await cluster.add_topic("u", replicas=(1,))
        assert (await produce(cluster.peer(1), "u", batch(b"one"))).error_code == 0
        epoch, start_s = cluster.node.epoch, outside.loop.time()
        cluster.kill(1)
        await cluster.start_both()
        assert outside.loop.time() - start_s < 1
        assert cluster.node.epoch > epoch
        await cluster.wait(lambda: cluster.end(1, T_0) == 0)
        assert (await produce(cluster.peer(1), "u", batch(b"two"))).error_code == 0
        await cluster.wait(lambda: sorted(cluster.state().isr) == [1, 2])


async def test_a_broker_keeps_its_session_while_the_other_node_starts(outside: Outside) -> None:
    """Only the node's own broker is known to be gone, and others are not fenced for that."""
    async with cluster_of_both(outside, 2) as cluster:
        epoch = cluster.image.brokers[2].broker_epoch
        cluster.kill(1)
        await cluster.start_both()
        await outside.pass_time(5)
        assert cluster.image.brokers[2].broker_epoch == epoch
        assert not cluster.image.brokers[2].fenced


async def test_a_stop_hands_over_while_the_controller_works(outside: Outside) -> None:
    """Another broker leads before it is gone, and the next start knows that it was orderly."""
    async with cluster_of_both(outside, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        assert cluster.state().leader == 1
        epoch = cluster.image.brokers[1].broker_epoch
        start_s = outside.loop.time()
        await cluster.stop(1)
        assert outside.loop.time() - start_s < 3
        assert cluster.state().leader == 2
        assert (await produce(cluster.peer(2), "t", batch(b"one"))).error_code == 0
        disk = cluster.disks[1]
        file = disk.open("data/.kafka_cleanshutdown")
        assert f'"brokerEpoch":{epoch}' in bytes(file.read(0, file.size())).decode()
        await cluster.start_both()
        await cluster.wait(lambda: sorted(cluster.state().isr) == [1, 2])
        assert cluster.end(1) == 1


async def test_a_start_that_fails_leaves_the_directory_to_the_next(outside: Outside) -> None:
    """Whichever of its two ports is in use, nothing stays locked or open."""
    cluster = OwnCluster(outside)
    taken = outside.network.listen("memory", 7, lambda _: None)
    for listeners in (f"PLAINTEXT://memory:7,CONTROLLER://memory:{PORT}",
                      "PLAINTEXT://memory:0,CONTROLLER://memory:7"):  # fmt: skip
        with pytest.raises(ListenError):
            await cluster.start_both(settings={"listeners": listeners})
    taken.close()
    await cluster.start_both()
    await cluster.stop(1)


# -- from one node to several, and back -------------------------------------------------------


async def test_a_single_node_becomes_the_first_of_a_cluster(outside: Outside) -> None:
    """With a listener of controllers its topics, records and ids go on, and replicas are added."""
    cluster = OwnCluster(outside)
    cluster.disks[1] = outside.files
    async with running(outside) as broker:
        await create_topic(connect(outside, broker), "t")
        assert (await produce(connect(outside, broker), "t", batch(b"one"))).error_code == 0
        topic_id = broker.cluster.image.topics["t"].topic_id
    await cluster.start_both()
    found = cluster.image.topic("t")
    assert found is not None
    assert found.topic_id == topic_id
    assert cluster.state().leader == 1
    await cluster.start(2)
    await reassign(cluster, 1, 2)
    assert (await produce(cluster.peer(1), "t", batch(b"two"))).error_code == 0
    await cluster.stop(1)
    assert cluster.state().leader == 2
    assert cluster.end(2) == 2
    await cluster.stop(2)


async def test_a_killed_single_node_becomes_the_first_of_a_cluster(outside: Outside) -> None:
    """Its logs are recovered, and it leads them again."""
    cluster = OwnCluster(outside)
    cluster.disks[1] = outside.files
    broker = await start_broker(
        broker_config({"log.dirs": "data", "listeners": "memory:0"}), cluster.runtime(1)
    )
    await create_topic(connect(outside, broker), "t")
    assert (await produce(connect(outside, broker), "t", batch(b"one"))).error_code == 0
    broker.kill()
    await cluster.start_both()
    await cluster.wait(lambda: cluster.end(1) == 1)
    assert (await produce(cluster.peer(1), "t", batch(b"two"))).error_code == 0
    await cluster.stop(1)


async def test_it_becomes_a_single_node_again_when_the_others_are_gone(outside: Outside) -> None:
    """While another broker is registered that is refused: it would have no controller."""
    cluster = OwnCluster(outside)
    cluster.disks[1] = outside.files
    await cluster.start_both()
    await cluster.start(2)
    await cluster.add_topic(replicas=(1, 2))
    assert (await produce(cluster.peer(1), "t", batch(b"one"))).error_code == 0
    await reassign(cluster, 1)
    await cluster.stop(2)
    await cluster.stop(1)
    with pytest.raises(DirectoryError, match=r"other brokers are registered \(2\)"):
        async with running(outside):
            pass
    await cluster.start_both()
    answer = await cluster.peer(1).ask(
        ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=2), UnregisterBrokerResponse
    )
    assert answer.error_code == ErrorCode.NONE
    await cluster.stop(1)
    async with running(outside) as broker:
        assert broker.controller_node is None
        assert (await produce(connect(outside, broker), "t", batch(b"two"))).error_code == 0
    await cluster.start_both()
    assert cluster.end(1) == 2
    await cluster.stop(1)


async def test_partitions_without_metadata_are_not_passed_over(outside: Outside) -> None:
    """A cluster that began beside them would not know their topics; a single node adopts them."""
    cluster = OwnCluster(outside)
    cluster.disks[1] = outside.files
    async with running(outside) as broker:
        await create_topic(connect(outside, broker), "t")
        assert (await produce(connect(outside, broker), "t", batch(b"one"))).error_code == 0
    for name in outside.files.list(f"data/{LOG}"):
        outside.files.remove(f"data/{LOG}/{name}")
    with pytest.raises(DirectoryError, match="its node has partitions: start it once with no"):
        await cluster.start_both()
    async with running(outside):
        pass
    await cluster.start_both()
    assert cluster.end(1) == 1
    await cluster.stop(1)


# -- faults -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        DiskFault(operation="sync", path_part=LOG),
        DiskFault(operation="write", path_part=LOG, error=errno.ENOSPC),
    ],
    ids=["broken", "full"],
)
async def test_a_device_that_fails_ends_both(outside: Outside, fault: DiskFault) -> None:
    """The stop waits for no approval that cannot come, and the next start continues."""
    async with cluster_of_both(outside, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        disk = cluster.disks[1]
        disk.faults.append(fault)
        cluster.peer(2).send(ApiKey.CREATE_TOPICS, creation("u"))
        both = cluster.brokers[1]
        await both.failed.wait()
        assert "device of the metadata log has failed" in (both.end_reason or "")
        start_s = outside.loop.time()
        await cluster.stop(1)
        assert outside.loop.time() - start_s < 1
        disk.faults.clear()
        await cluster.start_both()
        await cluster.wait(lambda: sorted(cluster.state().isr) == [1, 2])
        await cluster.add_topic("v", replicas=(1, 2))


# -- settings ---------------------------------------------------------------------------------

BOTH = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "log.dirs": "data",
}


def test_what_counts_with_a_listener_of_the_controller() -> None:
    """Settings of other brokers and of the controller count; without the listener neither do."""
    given = BOTH | {"broker.rack": "a", "default.replication.factor": "3",
                    "auto.leader.rebalance.enable": "false"}  # fmt: skip
    config = broker_config(given)
    assert config.has_controllers
    assert not config.ignored
    assert config.controller_listener is not None
    assert [each.name for each in config.listeners] == ["PLAINTEXT"]
    alone = given | {"listeners": "PLAINTEXT://:9092", "default.replication.factor": "1"}
    assert not broker_config(alone).has_controllers
    assert {"broker.rack", "auto.leader.rebalance.enable"} <= set(broker_config(alone).ignored)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"controller.quorum.voters": "1@a:1,2@b:1"}, "of several controllers is Apache"),
        ({"controller.quorum.bootstrap.servers": "a:1,b:2"}, "are several controllers"),
        ({"listeners": "CONTROLLER://:9093"}, "no listener is for clients"),
        ({"listeners": "A://:1,C://:2,D://:3", "controller.listener.names": "C,D"},
         "a controller has one listener"),
        ({"controller.listener.names": "CONTROLLER,D"}, "D is none of the listeners"),
        ({"inter.broker.listener.name": "CONTROLLER"}, "none of the advertised listeners"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "does not say what CONTROLLER"),
        ({"advertised.listeners": "PLAINTEXT://a:1,CONTROLLER://0.0.0.0:2"}, "cannot connect to"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(settings: dict[str, str], reason: str) -> None:
    """They are refused by Kafka too, but for several controllers, which are Kafka's."""
    with pytest.raises(ConfigError, match=reason):
        broker_config(BOTH | settings)
