"""Requests of many parts are served in slices: others get their turn in between (decision 23)."""

from typing import TypeVar

import pytest

from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import REQUEST_PARTS_MAX, encode_request
from tailrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tailrace.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.records.builder import BatchBuilder
from tailrace.testing import Outside, Peer, Watchdog, virtual_runtime
from tests.unit.broker.brokers import (
    BY_NAME_PRODUCE,
    connect,
    create_topic,
    produce_request,
    running,
    send_all,
)

M = TypeVar("M", bound=Message)


async def ask_watched(
    outside: Outside,
    peer: Peer,
    key: ApiKey,
    request: Message,
    response: type[M],
    *,
    version: int | None = None,
) -> M:
    """The answer to a request, which the broker's loop spends no more than its budget on."""
    with Watchdog(outside) as watchdog:
        answer = await peer.ask(key, request, response, version=version)
    # The peer encodes and decodes on the same loop.
    assert [each for each in watchdog.findings if "scenario" not in each] == []
    return answer


def moves(path: str, numbers: range) -> AlterReplicaLogDirsRequest:
    """A request to move these partitions of a topic that is not there."""
    topic = AlterReplicaLogDirTopic(name="nope", partitions=tuple(numbers))
    return AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=path, topics=(topic,)),))


def test_moves_of_many_partitions_are_begun_in_slices() -> None:
    """Each of 10,000 partitions gets its own answer."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            key, response = ApiKey.ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsResponse
            # What is made once for each version of a message is made before.
            await peer.ask(key, moves("data", range(1)), response)
            answer = await ask_watched(outside, peer, key, moves("data", range(10_000)), response)
            partitions = answer.results[0].partitions
            assert [each.partition_index for each in partitions] == list(range(10_000))
            assert {each.error_code for each in partitions} == {ErrorCode.REPLICA_NOT_AVAILABLE}

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_every_number_of_a_request_counts_as_a_part() -> None:
    """Partitions that are named by their number alone are bounded as those with more to say."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            frame = encode_request(
                APIS[ApiKey.ALTER_REPLICA_LOG_DIRS],
                moves("data", range(REQUEST_PARTS_MAX + 1)),
                version=2,
                correlation_id=1,
                client_id=None,
            )
            ending = outside.loop.create_task(peer.is_closed())
            await send_all(outside, peer, frame)
            assert await ending

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


@pytest.mark.parametrize("named", [None, 50_000])
def test_many_partitions_are_described_in_slices(named: int | None) -> None:
    """Where 2,000 partitions are, and how large, whether they are named or not."""
    count = 2000
    topics = None
    if named is not None:
        topics = (DescribableLogDirTopic(topic="t", partitions=tuple(range(named))),)

    async def scenario(outside: Outside) -> None:
        async with running(outside, {"log.index.size.max.bytes": "240"}) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", partitions=count)
            key, response = ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsResponse
            await peer.ask(key, DescribeLogDirsRequest(topics=()), response)
            request = DescribeLogDirsRequest(topics=topics)
            answer = await ask_watched(outside, peer, key, request, response)
            (topic,) = answer.results[0].topics
            assert [each.partition_index for each in topic.partitions] == list(range(count))

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def many_produced(*data: PartitionProduceData, acks: int = -1) -> ProduceRequest:
    """A Produce request for partitions of one topic."""
    topic = TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=(topic,))


def test_a_refused_produce_of_many_partitions_is_answered_in_slices() -> None:
    """A fault of the whole request is told of each partition, and others get their turn."""
    count = 10_000
    data = [PartitionProduceData(index=number, records=None) for number in range(count)]

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            few = produce_request("t", b"")
            await peer.ask(ApiKey.PRODUCE, few, ProduceResponse, version=BY_NAME_PRODUCE)
            answer = await ask_watched(
                outside,
                peer,
                ApiKey.PRODUCE,
                many_produced(*data, acks=7),
                ProduceResponse,
                version=BY_NAME_PRODUCE,
            )
            partitions = answer.responses[0].partition_responses
            assert [each.index for each in partitions] == list(range(count))
            assert {each.error_code for each in partitions} == {ErrorCode.INVALID_REQUIRED_ACKS}

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_batches_that_are_long_together_are_appended_in_slices() -> None:
    """Each of 30 could be appended at once, and all of them could not."""
    builder = BatchBuilder()
    builder.append(b"", b"", timestamp=0, headers=[("", None)] * 2000)
    records = builder.build()

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", partitions=30)
            first = produce_request("t", records)
            await peer.ask(ApiKey.PRODUCE, first, ProduceResponse, version=BY_NAME_PRODUCE)
            data = [PartitionProduceData(index=number, records=records) for number in range(30)]
            answer = await ask_watched(
                outside,
                peer,
                ApiKey.PRODUCE,
                many_produced(*data),
                ProduceResponse,
                version=BY_NAME_PRODUCE,
            )
            partitions = answer.responses[0].partition_responses
            assert [each.base_offset for each in partitions] == [1] + [0] * 29

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
