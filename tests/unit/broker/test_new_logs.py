"""The logs of new partitions are made behind the answer, and nobody notices."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.handlers.create_topics import PARTITIONS_AT_ONCE
from tailrace.model import OFFSETS_TOPIC, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from tailrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tailrace.replication.new_logs import (
    DELAY_MAX_S,
    QUIET_S,
    RETRY_S,
    TOGETHER_MAX,
    WORKERS_MAX,
)
from tailrace.testing import DiskFault, Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import (
    batch,
    connect,
    fetch,
    fetch_request,
    produce,
    request_topic,
    running,
)
from tests.unit.broker.test_configs import alter, set_to
from tests.unit.broker.test_groups import find

NAME = TopicPartition("t", 0)

AHEAD = 2 * WORKERS_MAX * TOGETHER_MAX
"""More partitions than are made at a time."""


async def metadata(peer: Peer, topic: str) -> MetadataResponsePartition:
    """The answer to Metadata for partition 0."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    answer = await peer.ask(ApiKey.METADATA, request, MetadataResponse)
    return answer.topics[0].partitions[0]


async def produce_code(peer: Peer) -> int:
    """The answer to a Produce."""
    return (await produce(peer, "t", batch(b"v"))).error_code


async def fetch_code(peer: Peer) -> int:
    """The answer to a Fetch."""
    return (await fetch(peer, fetch_request("t", 0))).error_code


async def list_offsets_code(peer: Peer) -> int:
    """The answer to a ListOffsets."""
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(name="t", partitions=(wanted,)),))
    answer = await peer.ask(ApiKey.LIST_OFFSETS, request, ListOffsetsResponse)
    return answer.topics[0].partitions[0].error_code


async def delete_records_code(peer: Peer) -> int:
    """The answer to a DeleteRecords."""
    wanted = DeleteRecordsPartition(partition_index=0, offset=-1)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(wanted,)),))
    answer = await peer.ask(ApiKey.DELETE_RECORDS, request, DeleteRecordsResponse)
    return answer.topics[0].partitions[0].error_code


async def end_of_epoch_code(peer: Peer) -> int:
    """The answer to an OffsetForLeaderEpoch."""
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)
    topic = OffsetForLeaderTopic(topic="t", partitions=(wanted,))
    request = OffsetForLeaderEpochRequest(topics=(topic,))
    answer = await peer.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, request, OffsetForLeaderEpochResponse)
    return answer.topics[0].partitions[0].error_code


async def describe_producers_code(peer: Peer) -> int:
    """The answer to a DescribeProducers."""
    request = DescribeProducersRequest(topics=(TopicRequest(name="t", partition_indexes=(0,)),))
    answer = await peer.ask(ApiKey.DESCRIBE_PRODUCERS, request, DescribeProducersResponse)
    return answer.topics[0].partitions[0].error_code


ASKS: list[Callable[[Peer], Awaitable[int]]] = [
    produce_code,
    fetch_code,
    list_offsets_code,
    delete_records_code,
    end_of_epoch_code,
    describe_producers_code,
]


@pytest.mark.parametrize("ask", ASKS)
async def test_requests_for_a_new_partition_wait_for_its_log(
    outside: Outside, ask: Callable[[Peer], Awaitable[int]]
) -> None:
    """CreateTopics is answered while the device hangs, the leader is told, and no request fails."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        hanging = outside.hang("/t-0")
        assert (await request_topic(peer, "t")).error_code == ErrorCode.NONE
        told = await metadata(peer, "t")
        assert (told.error_code, told.leader_id, told.leader_epoch) == (ErrorCode.NONE, 1, 0)
        asked = asyncio.ensure_future(ask(peer))
        await outside.pass_time(1)
        assert hanging.waiting
        assert not asked.done()
        assert broker.replicas.get(NAME) is None
        hanging.release()
        assert await asked == ErrorCode.NONE


async def test_new_partitions_of_a_topic_are_served_as_those_of_a_new_one(outside: Outside) -> None:
    """CreatePartitions is answered while the device hangs, and a Produce waits for the log."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await request_topic(peer, "t")
        hanging = outside.hang("/t-1")
        wanted = CreatePartitionsTopic(name="t", count=2, assignments=None)
        grown = CreatePartitionsRequest(topics=(wanted,))
        answer = await peer.ask(ApiKey.CREATE_PARTITIONS, grown, CreatePartitionsResponse)
        assert answer.results[0].error_code == ErrorCode.NONE
        asked = asyncio.ensure_future(produce(peer, "t", batch(b"v"), partition=1))
        await outside.pass_time(1)
        assert not asked.done()
        hanging.release()
        assert (await asked).error_code == ErrorCode.NONE


def test_a_start_makes_the_logs_that_a_kill_has_left() -> None:
    """A topic whose folder nobody began is there after the next start, and takes records."""

    async def kill(outside: Outside) -> None:
        broker = await start_broker(
            broker_config({"log.dirs": "data", "listeners": "memory:0"}), outside.runtime
        )
        outside.hang("data/recovery-point")
        peer = connect(outside, broker)
        assert (await request_topic(peer, "t")).error_code == ErrorCode.NONE
        broker.kill()
        await outside.pass_time(10)
        assert not outside.files.is_directory("data/t-0")

    async def look(outside: Outside) -> None:
        async with running(outside) as broker:
            assert (await produce(connect(outside, broker), "t", batch(b"v"))).base_offset == 0

    with virtual_runtime() as outside:
        outside.run(kill(outside))
        files = outside.files
    with virtual_runtime(files=files.crash()) as outside:
        outside.run(look(outside))


async def test_a_stop_makes_the_logs_that_are_left(outside: Outside) -> None:
    """A reader of the directory finds each partition afterwards."""
    async with running(outside) as broker:
        outside.threads.seconds_per_run = 0.1
        await request_topic(connect(outside, broker), "t", partitions=AHEAD)
        assert not outside.files.is_directory("data/t-0")
    assert {f"t-{number}" for number in range(AHEAD)} <= set(outside.files.list("data"))


async def test_a_log_that_is_waited_for_is_made_before_the_others(outside: Outside) -> None:
    """It needs not wait for all that were created before."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        count = 5 * AHEAD
        outside.threads.seconds_per_run = 1
        await request_topic(peer, "t", partitions=count)
        began = outside.loop.time()
        assert (await produce(peer, "t", batch(b"v"), partition=count - 1)).base_offset == 0
        assert outside.loop.time() - began <= 2
        assert broker.replicas.get(TopicPartition("t", count - 2)) is None
        outside.threads.seconds_per_run = 0


async def test_logs_wait_while_topics_are_created(outside: Outside) -> None:
    """For a second at most, and a request for one of them has it made at once."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        made = []
        for number in range(30):
            await request_topic(peer, f"t{number}")
            await outside.pass_time(QUIET_S * 0.9)
            made.append(outside.files.is_directory("data/t0-0"))
            if number == 3:
                assert (await produce(peer, "t3", batch(b"v"))).error_code == ErrorCode.NONE
        assert made.index(True) in range(10, int(DELAY_MAX_S / QUIET_S / 0.9) + 2)
        await outside.pass_time(QUIET_S * 2)
        assert all(outside.files.is_directory(f"data/t{number}-0") for number in range(30))


async def test_logs_whose_checkpoint_is_refused_are_tried_again(outside: Outside) -> None:
    """It is written once for several of them, and has an entry for each in the end."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        outside.files.faults.append(
            DiskFault(operation="rename", path_part="recovery-point", error=errno.ENOSPC)
        )
        await request_topic(peer, "t", partitions=5)
        assert await produce_code(peer) == ErrorCode.KAFKA_STORAGE_ERROR
        outside.files.faults.clear()
        await outside.pass_time(RETRY_S)
        for number in range(5):
            assert (await produce(peer, "t", batch(b"v"), partition=number)).base_offset == 0
        written = outside.files.content("data/recovery-point-offset-checkpoint").decode()
        assert [f"t {number} 0" in written for number in range(5)] == [True] * 5


async def test_a_log_that_no_directory_takes_is_tried_again(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """Its partition has no leader while the disk is full, and takes records when there is room."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        outside.files.faults.append(
            DiskFault(operation="make_directory", path_part="t-0", error=errno.ENOSPC)
        )
        assert (await request_topic(peer, "t")).error_code == ErrorCode.NONE
        assert await produce_code(peer) == ErrorCode.KAFKA_STORAGE_ERROR
        told = await metadata(peer, "t")
        assert (told.error_code, told.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        await outside.pass_time(RETRY_S)
        assert await produce_code(peer) == ErrorCode.KAFKA_STORAGE_ERROR
        # A full disk may stay so for hours, and each partition of the directory waits.
        assert caplog.text.count("log_refused partition=t-0") == 1
        outside.files.faults.clear()
        await outside.pass_time(RETRY_S)
        assert await produce_code(peer) == ErrorCode.NONE
        assert (await metadata(peer, "t")).leader_id == 1


@pytest.mark.parametrize("number", [0, AHEAD - 1])
async def test_a_topic_may_go_before_its_logs_are_there(outside: Outside, number: int) -> None:
    """No folder is left, a request that has waited is told, and the name is free."""
    async with running(outside, {"log.segment.delete.delay.ms": "0"}) as broker:
        peer, other = connect(outside, broker), connect(outside, broker)
        outside.threads.seconds_per_run = 1
        await request_topic(peer, "t", partitions=AHEAD)
        asked = asyncio.ensure_future(produce(other, "t", batch(b"v"), partition=number))
        request = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1000)
        answer = await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
        assert answer.responses[0].error_code == ErrorCode.NONE
        assert (await asked).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        outside.threads.seconds_per_run = 0
        left = [name for name in outside.files.list("data") if name.startswith("t-")]
        assert not [name for name in left if not name.endswith("-delete")]
        assert (await request_topic(peer, "t")).error_code == ErrorCode.NONE
        assert (await produce(peer, "t", batch(b"v"))).base_offset == 0


async def test_settings_that_change_while_a_log_is_made_hold_for_it(outside: Outside) -> None:
    """Whether it is begun or waits."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        outside.threads.seconds_per_run = 1
        await request_topic(peer, "t", partitions=AHEAD)
        await alter(peer, set_to("flush.ms", "7"))
        outside.threads.seconds_per_run = 0
        for number in range(AHEAD):
            await produce(peer, "t", batch(b"v"), partition=number)
            log = broker.replicas.find(TopicPartition("t", number)).log
            assert log.config.flush_ms == 7


async def test_topics_of_a_request_are_one_change(outside: Outside) -> None:
    """They are synced together; of two names that collide the second is refused."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await outside.pass_time(1)  # The registration of the broker is a change too.
        outside.threads.seconds_per_run = 1
        names = ["a", "b.c", "b_c", "d"]
        topics = tuple(
            CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names
        )
        request = CreateTopicsRequest(topics=topics)
        began = len(outside.files.operations)
        answer = await peer.ask(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse)
        assert [topic.name for topic in answer.topics] == names
        assert [topic.error_code for topic in answer.topics] == [
            ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE,
        ]  # fmt: skip
        synced = [path for kind, path in outside.files.operations[began:] if kind == "sync"]
        assert len([path for path in synced if "__cluster_metadata-0" in path]) == 2
        outside.threads.seconds_per_run = 0


async def test_many_topics_are_saved_in_parts(outside: Outside) -> None:
    """A request for more partitions than are saved together creates all of its topics."""
    async with running(outside, {"log.index.size.max.bytes": "1000"}) as broker:
        peer = connect(outside, broker)
        count = PARTITIONS_AT_ONCE // 2
        topics = tuple(
            CreatableTopic(name=f"t{number}", num_partitions=count, replication_factor=1)
            for number in range(3)
        )
        request = CreateTopicsRequest(topics=topics)
        answer = await peer.ask(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse)
        assert [topic.num_partitions for topic in answer.topics] == [count] * 3
        assert {"t0", "t1", "t2"} <= broker.controller.image.topics.keys()


async def test_a_coordinator_is_named_when_its_log_is_there(outside: Outside) -> None:
    """FindCoordinator waits: a client of a partition without a shard would look elsewhere."""
    async with running(outside, {"offsets.topic.num.partitions": "2"}) as broker:
        hanging = outside.hang(f"/{OFFSETS_TOPIC}-1")
        peers = [connect(outside, broker) for _ in range(2)]
        asked = [asyncio.ensure_future(find(peer, 0)) for peer in peers]
        await outside.pass_time(1)
        assert OFFSETS_TOPIC in broker.controller.image.topics
        assert not any(each.done() for each in asked)
        hanging.release()
        await asyncio.gather(*asked)
        assert broker.replicas.get(TopicPartition(OFFSETS_TOPIC, 1)) is not None
