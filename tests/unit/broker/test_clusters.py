"""Brokers of one cluster: who leads, who follows, and what is acknowledged."""

import errno

import pytest

from tailrace.broker.kraft.channel import NoControllerError
from tailrace.broker.kraft.lifecycle import RegistrationError
from tailrace.model import Offset
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.records.builder import BatchBuilder
from tailrace.runtime.clock import elapsed_ms
from tailrace.testing import Outside
from tailrace.testing.files import DiskFault
from tailrace.testing.script import FaultKind
from tailrace.values import replace
from tests.unit.broker.brokers import batch, fetch, fetch_request, produce
from tests.unit.broker.clusters import T_0, running_cluster


async def test_a_broker_joins_and_leaves_a_cluster(outside: Outside) -> None:
    """It registers, is unfenced, and hands over what it leads before it stops."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        assert cluster.state().leader == 1
        await cluster.stop(1)
        state = cluster.state()
        assert (state.leader, state.isr) == (2, (2,))
        assert cluster.controller.image.brokers[1].fenced


async def test_a_broker_starts_together_with_its_controllers(outside: Outside) -> None:
    """They refuse to say which cluster they are of until they have read their log."""
    async with running_cluster(outside) as cluster:
        cluster.controller.script.add(
            ApiKey.DESCRIBE_CLUSTER,
            FaultKind.ERROR,
            error=ErrorCode.UNSUPPORTED_VERSION,
            times=3,
        )
        await cluster.start(1)
        assert cluster.brokers[1].cluster.broker_epoch >= 0


async def test_a_broker_tells_how_far_it_follows(outside: Outside) -> None:
    """Its statistics have the metadata log, and the partitions that it fetches."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        found = cluster.brokers[2].statistics()
        assert found.metadata is not None
        assert found.metadata.applied_offset > 0
        assert found.metadata.failures == 0
        assert found.following is not None
        assert (found.following.leader_count, found.following.partition_count) == (1, 1)


async def test_any_broker_describes_the_quorum(outside: Outside) -> None:
    """It forwards the request: the controller is the leader, and brokers are observers."""
    async with running_cluster(outside, 1, 2) as cluster:
        topic = TopicData(
            topic_name="__cluster_metadata", partitions=(PartitionData(partition_index=0),)
        )
        answer = await cluster.peer(2).ask(
            ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(topics=(topic,)), DescribeQuorumResponse
        )
        assert answer.error_code == ErrorCode.NONE
        [found] = answer.topics[0].partitions
        assert found.leader_id == cluster.controller.leader_id
        assert {each.replica_id for each in found.observers} >= {1, 2}


@pytest.mark.parametrize("cluster_id", ["x\nnode.id=9", "a b", "a\\b", "x" * 300, ""])
async def test_a_cluster_without_a_usable_id_is_not_joined(
    outside: Outside, cluster_id: str
) -> None:
    """The directory stays empty: its next start would find another cluster there, or node."""
    async with running_cluster(outside) as cluster:
        cluster.controller.script.add(
            ApiKey.DESCRIBE_CLUSTER,
            FaultKind.EDIT,
            edit=lambda answer: replace(answer, cluster_id=cluster_id),
            times=100,
        )
        with pytest.raises(RegistrationError, match="the controllers"):
            await cluster.start(1)
        assert not outside.files.exists("data-1/meta.properties")


async def test_a_broker_does_not_take_the_id_of_a_controller(outside: Outside) -> None:
    """The start ends before anything is registered or written."""
    async with running_cluster(outside) as cluster:
        controller_id = cluster.controller.leader_id
        with pytest.raises(RegistrationError, match=f"{controller_id} is the id of a controller"):
            await cluster.start(controller_id)
        assert not cluster.controller.image.brokers
        assert not outside.files.exists(f"data-{controller_id}/meta.properties")


async def test_a_start_without_controllers_names_the_setting(outside: Outside) -> None:
    """The addresses may be wrong, which nothing but the operator can know."""
    async with running_cluster(outside) as cluster:
        cluster.controller.kill()
        with pytest.raises(NoControllerError, match=r"check controller\.quorum\.bootstrap"):
            await cluster.start(1)
        cluster.controller.move(100)


async def test_what_is_acknowledged_is_on_all_replicas_in_sync(outside: Outside) -> None:
    """The answer to acks=all comes when both followers have the batch."""
    async with running_cluster(outside, 1, 2, 3) as cluster:
        await cluster.add_topic()
        answer = await produce(cluster.peer(1), "t", batch(b"a", b"b"))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        assert [cluster.end(each) for each in (1, 2, 3)] == [2, 2, 2]
        found = await fetch(cluster.peer(1), fetch_request("t", 0))
        assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, 2)


async def test_another_replica_leads_after_a_kill(outside: Outside) -> None:
    """It has all that was acknowledged, and the killed one follows it when it is back."""
    async with running_cluster(outside, 1, 2, 3) as cluster:
        await cluster.add_topic()
        await produce(cluster.peer(1), "t", batch(b"a"))
        cluster.kill(1)
        await cluster.controller.until(lambda _: cluster.state().leader != 1)
        leader = cluster.state().leader
        while (await produce(cluster.peer(leader), "t", batch(b"b"))).error_code:
            await outside.pass_time(0.1)
        await cluster.start(1)
        await cluster.controller.until(lambda _: set(cluster.state().isr) == {1, 2, 3})
        assert {cluster.end(each) for each in (1, 2, 3)} == {2}


async def test_every_replica_describes_its_producers(outside: Outside) -> None:
    """`kafka-transactions find-hanging --broker-id` asks one broker for all its replicas."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        sent = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
        sent.append(None, b"a", timestamp=1_700_000_000_000)
        assert (await produce(cluster.peer(1), "t", sent.build())).error_code == ErrorCode.NONE
        topic = TopicRequest(name="t", partition_indexes=(0,))
        for broker in (1, 2):
            answer = await cluster.peer(broker).ask(
                ApiKey.DESCRIBE_PRODUCERS,
                DescribeProducersRequest(topics=(topic,)),
                DescribeProducersResponse,
            )
            [[partition]] = [each.partitions for each in answer.topics]
            assert partition.error_code == ErrorCode.NONE
            assert [each.producer_id for each in partition.active_producers] == [7]


async def test_a_deleted_topic_changes_no_isr_of_its_successor(outside: Outside) -> None:
    """A change that its partition proposes late is of the old topic, whatever has its name now."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        before = cluster.brokers[1].replicas.find(T_0)
        delete = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),))
        cluster.controller.do(ApiKey.DELETE_TOPICS, delete)
        await cluster.add_topic(replicas=(1, 2))
        await cluster.until(lambda: cluster.brokers[1].replicas.get(T_0) is not before)
        # It has led in the epochs of the new one, and knows of no fetch since.
        before.log.positions.log_end = Offset(1)
        before.check_followers(elapsed_ms(outside.clock) + 60_000)
        await outside.pass_time(1)
        assert (cluster.state().isr, cluster.state().partition_epoch) == ((1, 2), 0)


async def test_a_clock_that_is_set_back_keeps_no_member_in_the_isr(outside: Outside) -> None:
    """A follower that does not fetch leaves it by the time that passes, before it is fenced."""
    async with running_cluster(outside, 2) as cluster:
        await cluster.start(1, {"replica.lag.time.max.ms": "4000"})
        await cluster.add_topic(replicas=(1, 2))
        cluster.kill(2)
        partition = cluster.brokers[1].replicas.find(T_0)
        partition.append(memoryview(bytearray(batch(b"a"))), now_ms=outside.clock.now_ms())
        outside.clock.set(outside.clock.now_ms() - 3_600_000)
        await outside.pass_time(7)
        assert cluster.state().isr == (1,)
        assert cluster.watermark(1) == 1


async def test_a_producer_begins_while_the_controllers_are_away(outside: Outside) -> None:
    """A broker has asked for producer ids before the first producer needs one."""
    async with running_cluster(outside, 1) as cluster:
        await outside.pass_time(1)
        cluster.controller.kill()
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        answer = await cluster.peer(1).ask(ApiKey.INIT_PRODUCER_ID, asked, InitProducerIdResponse)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.NONE, 0)
        cluster.controller.move(100)


async def test_a_full_disk_has_a_line_when_it_fills_and_when_it_has_room(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither refused appends nor checkpoints, which find room, add lines in between."""
    caplog.set_level("INFO")

    def lines() -> list[str]:
        return [each.split()[0] for each in caplog.messages if each.startswith("disk_")]

    async with running_cluster(outside, 1) as cluster:
        for name in ("t", "u"):
            await cluster.add_topic(name, replicas=(1,))
        fault = DiskFault(operation="write", path_part=".log", error=errno.ENOSPC)
        outside.files.faults.append(fault)
        for _ in range(5):
            for name in ("t", "u"):
                answer = await produce(cluster.peer(1), name, batch(b"a"))
                assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            await outside.pass_time(100)
        assert lines() == ["disk_full"]
        assert cluster.brokers[1].logs.statistics().full_count == 1
        outside.files.faults.clear()
        assert (await produce(cluster.peer(1), "t", batch(b"a"))).error_code == ErrorCode.NONE
        await outside.pass_time(100)
        assert lines() == ["disk_full", "disk_has_room"]
        assert cluster.brokers[1].logs.statistics().full_count == 0


async def test_a_disk_has_room_when_what_it_refused_is_deleted(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """No append comes any more that could show it."""
    caplog.set_level("INFO")
    async with running_cluster(outside, 1) as cluster:
        await cluster.add_topic("t", replicas=(1,))
        fault = DiskFault(operation="write", path_part="t-0", error=errno.ENOSPC)
        outside.files.faults.append(fault)
        await produce(cluster.peer(1), "t", batch(b"a"))
        deleted = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1000)
        cluster.controller.do(ApiKey.DELETE_TOPICS, deleted)
        await outside.pass_time(100)
        assert "disk_has_room" in caplog.text


async def test_a_broker_that_has_no_room_for_the_metadata_leads_nothing(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """It would not learn of its elections; it continues when there is room."""
    caplog.set_level("INFO")
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await cluster.add_topic("alone", replicas=(1,))
        path = "data-1/__cluster_metadata"
        outside.files.faults.append(
            DiskFault(operation="write", path_part=path, error=errno.ENOSPC)
        )
        # Anything, which this broker cannot write.
        cluster.controller.add_topic("u", assignments=[[2]])
        await cluster.controller.until(lambda _: cluster.state().leader == 2)
        await outside.pass_time(60)
        assert cluster.state().isr == (2,)
        assert caplog.text.count("metadata_disk_full") == 1
        assert "metadata_not_fetched" not in caplog.text
        # Its image still says that it leads.
        for topic in ("t", "alone"):
            answer = await produce(cluster.peer(1), topic, batch(b"lost"))
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        outside.files.faults.clear()
        await cluster.controller.until(lambda _: set(cluster.state().isr) == {1, 2})
        assert (await produce(cluster.peer(2), "t", batch(b"a"))).error_code == ErrorCode.NONE
        assert cluster.end(1) == 1
        assert (await produce(cluster.peer(1), "alone", batch(b"a"))).error_code == ErrorCode.NONE
