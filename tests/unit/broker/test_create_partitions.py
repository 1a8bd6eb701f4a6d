"""CreatePartitions: topics grow while they are served, and survive a crash in between."""

from contextlib import suppress

import pytest

from tailrace.coordinator.shards import partition_of
from tailrace.model import OFFSETS_TOPIC, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tailrace.testing import (
    DiskFault,
    MemoryFiles,
    Outside,
    Peer,
    ProcessKilledError,
    virtual_runtime,
)
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running
from tests.unit.broker.test_groups import commit, committed, find
from tests.unit.broker.transactional import begin, group_offset

NODE = 1


def wanted(
    name: str, count: int, assignments: tuple[tuple[int, ...], ...] | None = None
) -> CreatePartitionsTopic:
    """One topic of a request."""
    given = None
    if assignments is not None:
        given = tuple(CreatePartitionsAssignment(broker_ids=each) for each in assignments)
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


async def grow_all(
    peer: Peer, *topics: CreatePartitionsTopic, is_dry_run: bool = False, version: int = 3
) -> tuple[CreatePartitionsTopicResult, ...]:
    """The broker's answers to a CreatePartitions request."""
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=is_dry_run)
    key = ApiKey.CREATE_PARTITIONS
    return (await peer.ask(key, request, CreatePartitionsResponse, version=version)).results


async def grow(peer: Peer, count: int) -> int:
    """The code for the topic `t`."""
    (answer,) = await grow_all(peer, wanted("t", count))
    return answer.error_code


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_a_topic_grows_and_keeps_growing_after_a_restart(
    outside: Outside, version: int
) -> None:
    """New partitions take records at once, and are there with them after a stop."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"retention.ms": "-1"})
        (answer,) = await grow_all(peer, wanted("t", 3), version=version)
        assert (answer.name, answer.error_code, answer.error_message) == ("t", 0, None)
        for number in range(3):
            sent = await produce(peer, "t", batch(b"x"), partition=number)
            assert (sent.error_code, sent.base_offset) == (ErrorCode.NONE, 0)
    async with running(outside) as broker:
        topic = broker.controller.image.topics["t"]
        assert (topic.partitions, topic.configs) == ((0, 1, 2), {"retention.ms": "-1"})
        log = broker.replicas.find(TopicPartition("t", 2)).log
        assert (log.end_offset, log.config.retention_ms) == (1, -1)
        assert await grow(connect(outside, broker), 4) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted("t", 2), ErrorCode.INVALID_PARTITIONS),
        (wanted("t", 1), ErrorCode.INVALID_PARTITIONS),
        (wanted("t", -1), ErrorCode.INVALID_PARTITIONS),
        (wanted("t", 10_001), ErrorCode.POLICY_VIOLATION),
        (wanted("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (wanted("nope", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (wanted("", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (wanted("t", 4, ((NODE,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", 4, ((NODE,), (NODE,), (NODE,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", 4, ((NODE,), (2,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", 4, ((NODE,), ())), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", 4, ((NODE, NODE), (NODE,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", 4, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", 4, ((NODE,), (NODE,))), ErrorCode.NONE),
        (wanted("t", 3), ErrorCode.NONE),
    ],
)
async def test_what_is_no_increase_is_refused(
    outside: Outside, topic: CreatePartitionsTopic, code: ErrorCode
) -> None:
    """A refused topic is as it was; a dry run refuses the same and changes nothing."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=2)
        before = broker.controller.image
        for is_dry_run in (True, False):
            (answer,) = await grow_all(peer, topic, is_dry_run=is_dry_run)
            assert (answer.name, answer.error_code) == (topic.name, code)
            assert bool(answer.error_message) is (code is not ErrorCode.NONE)
            if is_dry_run or code is not ErrorCode.NONE:
                assert broker.controller.image == before
        count = topic.count if code is ErrorCode.NONE else 2
        assert broker.controller.image.topics["t"].partition_count == count


async def test_a_topic_that_is_named_twice_does_not_grow(outside: Outside) -> None:
    """It is answered once, and the other topics of the request grow."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await create_topic(peer, "u")
        answers = await grow_all(peer, wanted("t", 2), wanted("u", 2), wanted("t", 3))
        assert {each.name: each.error_code for each in answers} == {
            "t": ErrorCode.INVALID_REQUEST,
            "u": ErrorCode.NONE,
        }
        assert len(answers) == 2
        topics = broker.controller.image.topics
        assert (topics["t"].partitions, topics["u"].partitions) == ((0,), (0, 1))


async def test_groups_stay_where_they_are_while_their_topic_grows(outside: Outside) -> None:
    """A group keeps its partition, and so its offsets, though more partitions would change it."""
    async with running(outside, {"offsets.topic.num.partitions": "3"}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await find(peer)
        assert await commit(peer, 7) == ErrorCode.NONE
        (answer,) = await grow_all(peer, wanted(OFFSETS_TOPIC, 7))
        assert answer.error_code == ErrorCode.NONE
        assert partition_of("g", 3) != partition_of("g", 7)
        assert await committed(peer) == {"t": 7}


@pytest.mark.parametrize("knows_epochs", [False, True])
async def test_offsets_of_a_transaction_are_committed_after_their_topic_has_grown(
    outside: Outside,
    knows_epochs: bool,  # noqa: FBT001
) -> None:
    """The marker goes to the partition that the group has kept."""
    few = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "1"}
    async with running(outside, few) as broker:
        client = await begin(outside, broker, knows_epochs=knows_epochs)
        assert await group_offset(client.peer) == -1
        (answer,) = await grow_all(client.peer, wanted(OFFSETS_TOPIC, 7))
        assert answer.error_code == ErrorCode.NONE
        if not knows_epochs:
            assert await client.add_offsets() is ErrorCode.NONE
        assert await client.commit_offset(7) is ErrorCode.NONE
        assert await client.end() is ErrorCode.NONE
        assert await group_offset(client.peer) == 7


async def test_a_disk_that_refuses_leaves_the_topic_as_it_was(outside: Outside) -> None:
    """If the cluster's state cannot be saved, no partition stays behind."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        outside.files.faults.append(DiskFault(operation="write", path_part="__cluster_metadata"))
        assert await grow(peer, 3) == ErrorCode.KAFKA_STORAGE_ERROR
        outside.files.faults.clear()
        sent = await produce(peer, "t", batch(b"x"), partition=1)
        assert sent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.controller.image.topics["t"].partitions == (0,)
        assert await grow(peer, 3) == ErrorCode.NONE


def test_a_topic_that_grew_is_whole_after_a_crash() -> None:
    """Killed at any file operation, a topic has its old partitions or all."""
    counts: set[int] = set()
    answered: list[int] = []
    operation = -1
    while not answered:
        operation += 1
        disks: list[MemoryFiles] = []

        async def crash(
            outside: Outside,
            operation: int = operation,
            disks: list[MemoryFiles] = disks,
        ) -> None:
            async with running(outside) as broker:
                peer = connect(outside, broker)
                await create_topic(peer, "t", configs={"retention.ms": "5"})
                disk = outside.files
                disk.stop_at = len(disk.operations) + operation
                asked = outside.loop.create_task(grow(peer, 3))
                with suppress(ProcessKilledError):
                    await outside.pass_time(0.1)
                if asked.done():
                    answered.append(asked.result())
                asked.cancel()
                disks.append(disk.crash(keep_unsynced=True))
                raise ProcessKilledError

        async def look(outside: Outside) -> None:
            async with running(outside) as broker:
                topic = broker.controller.image.topics["t"]
                assert topic.configs == {"retention.ms": "5"}
                assert topic.partitions in ((0,), (0, 1, 2))
                assert not answered or topic.partitions == (0, 1, 2)
                counts.add(len(topic.partitions))
                peer = connect(outside, broker)
                for number in topic.partitions:
                    assert (
                        await produce(peer, "t", batch(b"x"), partition=number)
                    ).base_offset == 0

        with virtual_runtime() as outside, suppress(ProcessKilledError):
            outside.run(crash(outside))
        with virtual_runtime(files=disks[0]) as outside:
            outside.run(look(outside))
    assert answered == [ErrorCode.NONE]
    assert counts == {1, 3}
