"""Requests of many parts are served in slices: others get their turn in between (decision 23)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest

from tailrace.protocol.apis import APIS, ApiKey, api_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import (
    REQUEST_PARTS_MAX,
    encode_request,
)
from tailrace.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tailrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tailrace.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tailrace.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tailrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.records.builder import BatchBuilder
from tailrace.testing import Outside, Peer, Watchdog
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
    tries: int = 3,
) -> M:
    """The answer to a request, which the broker's loop spends no more than its budget on.

    A step that is too long is so in each try; a loaded machine makes one long now and then.
    """
    with Watchdog(outside) as watchdog:
        answer = await peer.ask(key, request, response, version=version)
    # The peer encodes and decodes on the same loop.
    findings = [each for each in watchdog.findings if not each.startswith("test_")]
    if findings and tries > 1:
        again = tries - 1
        return await ask_watched(
            outside, peer, key, request, response, version=version, tries=again
        )
    assert findings == []
    return answer


def moves(path: str, numbers: range) -> AlterReplicaLogDirsRequest:
    """A request to move these partitions of a topic that is not there."""
    topic = AlterReplicaLogDirTopic(name="nope", partitions=tuple(numbers))
    return AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=path, topics=(topic,)),))


async def test_moves_of_many_partitions_are_begun_in_slices(outside: Outside) -> None:
    """Each of 10,000 partitions gets its own answer."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        key, response = ApiKey.ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsResponse
        # What is made once for each version of a message is made before.
        await peer.ask(key, moves("data", range(1)), response)
        answer = await ask_watched(outside, peer, key, moves("data", range(10_000)), response)
        partitions = answer.results[0].partitions
        assert [each.partition_index for each in partitions] == list(range(10_000))
        assert {each.error_code for each in partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_every_number_of_a_request_counts_as_a_part(outside: Outside) -> None:
    """Partitions that are named by their number alone are bounded as those with more to say."""
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


async def test_many_partitions_are_described_in_slices(outside: Outside) -> None:
    """DescribeLogDirs of 2,000 partitions, named or not, is encoded on a thread."""
    count = 2000
    named = (DescribableLogDirTopic(topic="t", partitions=tuple(range(50_000))),)
    async with running(outside, {"log.index.size.max.bytes": "240"}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=count)
        key, response = ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsResponse
        await peer.ask(key, DescribeLogDirsRequest(topics=()), response)
        for topics in (None, named):
            request = DescribeLogDirsRequest(topics=topics)
            before_s = outside.threads.worked_s
            answer = await ask_watched(outside, peer, key, request, response)
            assert outside.threads.worked_s > before_s, f"encoded on the loop: {topics is named}"
            (topic,) = answer.results[0].topics
            assert [each.partition_index for each in topic.partitions] == list(range(count))


def many_produced(*data: PartitionProduceData, acks: int = -1) -> ProduceRequest:
    """A Produce request for partitions of one topic."""
    topic = TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=(topic,))


async def test_a_refused_produce_of_many_partitions_is_answered_in_slices(outside: Outside) -> None:
    """Every partition gets the request's error, and other clients are served in between."""
    count = 5000
    data = [PartitionProduceData(index=number, records=None) for number in range(count)]
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


async def test_batches_that_are_long_together_are_appended_in_slices(outside: Outside) -> None:
    """Each of 30 could be appended at once, and all of them could not."""
    builder = BatchBuilder()
    builder.append(b"", b"", timestamp=0, headers=[("", None)] * 2000)
    records = builder.build()
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
            tries=1,
        )
        partitions = answer.responses[0].partition_responses
        assert [each.base_offset for each in partitions] == [1] + [0] * 29


def config_resource(name: str, *, names: Iterable[str]) -> IncrementalAlterConfigsResource:
    """Settings to give to a topic."""
    return IncrementalAlterConfigsResource(
        resource_type=2,
        resource_name=name,
        configs=tuple(
            IncrementalAlterableConfig(name=each, config_operation=0, value="1") for each in names
        ),
    )


MANY = 15_000
TWICE_MANY = 35_000
"""Parts that a request has twice: to find them is all the work that there is."""
STRINGS = [f"a{number}" for number in range(MANY)]
BIG_REQUESTS: list[tuple[ApiKey, str, Message, type[Message]]] = [
    (
        ApiKey.METADATA,
        "topics",
        MetadataRequest(
            topics=(MetadataRequestTopic(name="a"),) * TWICE_MANY, allow_auto_topic_creation=False
        ),
        MetadataResponse,
    ),
    (
        ApiKey.DESCRIBE_CONFIGS,
        "resources",
        DescribeConfigsRequest(
            resources=(
                DescribeConfigsResource(
                    resource_type=9, resource_name="a", configuration_keys=None
                ),
            )
            * TWICE_MANY
        ),
        DescribeConfigsResponse,
    ),
    (
        ApiKey.DESCRIBE_CONFIGS,
        "resources",
        DescribeConfigsRequest(
            resources=(
                DescribeConfigsResource(
                    resource_type=4, resource_name="1", configuration_keys=tuple(STRINGS)
                ),
            )
        ),
        DescribeConfigsResponse,
    ),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "resources",
        IncrementalAlterConfigsRequest(
            resources=tuple(config_resource(each, names=()) for each in STRINGS[:5000])
        ),
        IncrementalAlterConfigsResponse,
    ),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "resources",
        IncrementalAlterConfigsRequest(resources=(config_resource("t", names=STRINGS),)),
        IncrementalAlterConfigsResponse,
    ),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "resources",
        IncrementalAlterConfigsRequest(
            resources=(config_resource("t", names=[f"segment.byte{n}" for n in range(256)]),)
        ),
        IncrementalAlterConfigsResponse,
    ),
    (
        ApiKey.ALTER_CONFIGS,
        "resources",
        AlterConfigsRequest(
            resources=(
                AlterConfigsResource(
                    resource_type=2,
                    resource_name="t",
                    configs=tuple(AlterableConfig(name=each, value="1") for each in STRINGS),
                ),
            )
        ),
        AlterConfigsResponse,
    ),
    (
        ApiKey.FIND_COORDINATOR,
        "coordinator_keys",
        FindCoordinatorRequest(key_type=0, coordinator_keys=tuple(STRINGS[:10_000])),
        FindCoordinatorResponse,
    ),
]


@pytest.mark.parametrize(("key", "parts", "request_", "response"), BIG_REQUESTS)
async def test_what_comes_before_and_behind_the_work_is_in_slices_too(
    outside: Outside, key: ApiKey, parts: str, request_: Message, response: type[Message]
) -> None:
    """To look for what a request has twice, or to make a list of it, is also work."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        # Without ids of topics, so that the request fits the window of a connection.
        version = 9 if key is ApiKey.METADATA else APIS[key].last_version
        # With the first request of an API its handler is imported, and with that of a version the
        # methods of its messages are compiled: some milliseconds, once in the life of a process.
        small: Message = replace(cast("Any", request_), **{parts: getattr(request_, parts)[:1]})
        await peer.ask(key, small, response, version=version)
        await ask_watched(outside, peer, key, request_, response, version=version)


async def test_a_topic_of_many_partitions_is_deleted_in_slices(outside: Outside) -> None:
    """Its logs are closed one after the other, and all of them are when the answer leaves."""
    count = 1000
    async with running(outside, {"log.index.size.max.bytes": "240"}) as broker:
        peer = connect(outside, broker)
        key, response = ApiKey.DELETE_TOPICS, DeleteTopicsResponse
        await create_topic(peer, "t", partitions=count)
        await peer.ask(key, DeleteTopicsRequest(topics=()), response)
        request = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),))
        answer = await ask_watched(outside, peer, key, request, response, tries=1)
        assert answer.responses[0].error_code == ErrorCode.NONE
        assert list(broker.logs) == []
        folders = [name for name in outside.files.list("data") if name.startswith("t-")]
        assert len(folders) == count
        assert all(name.endswith("-delete") for name in folders)


async def test_a_wrong_assignment_of_many_partitions_is_told(outside: Outside) -> None:
    """The message fits the wire, whatever numbers the request has."""
    assignments = tuple(
        CreatableReplicaAssignment(partition_index=number + 1, broker_ids=(1,))
        for number in range(10_000)
    )
    topic = CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    async with running(outside) as broker:
        peer = connect(outside, broker)
        request = CreateTopicsRequest(topics=(topic,))
        answer = await peer.ask(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse, version=4)
        assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        more = (*assignments, CreatableReplicaAssignment(partition_index=0, broker_ids=(1,)))
        request = CreateTopicsRequest(topics=(replace(topic, assignments=more),))
        answer = await peer.ask(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.POLICY_VIOLATION


NUMBERS = tuple(range(5000))
NAMES = tuple(f"t{number}" for number in range(5000))


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (
            ElectLeadersRequest(topic_partitions=(TopicPartitions(topic="t", partitions=NUMBERS),)),
            ElectLeadersResponse,
        ),
        (
            AlterPartitionReassignmentsRequest(
                topics=(
                    ReassignableTopic(
                        name="t",
                        partitions=tuple(ReassignablePartition(partition_index=n) for n in NUMBERS),
                    ),
                )
            ),
            AlterPartitionReassignmentsResponse,
        ),
        (
            OffsetForLeaderEpochRequest(
                topics=(
                    OffsetForLeaderTopic(
                        topic="t",
                        partitions=tuple(
                            OffsetForLeaderPartition(partition=n, leader_epoch=0) for n in NUMBERS
                        ),
                    ),
                )
            ),
            OffsetForLeaderEpochResponse,
        ),
        (
            CreatePartitionsRequest(
                topics=tuple(
                    CreatePartitionsTopic(name=name, count=1, assignments=None) for name in NAMES
                ),
                timeout_ms=1,
                validate_only=False,
            ),
            CreatePartitionsResponse,
        ),
        (
            DescribeTopicPartitionsRequest(topics=tuple(TopicRequest(name=n) for n in NAMES)),
            DescribeTopicPartitionsResponse,
        ),
    ],
    ids=["elect", "reassign", "epochs", "grow", "describe"],
)
async def test_questions_about_many_partitions_are_answered_in_slices(
    outside: Outside, request_: Message, response: type[Message]
) -> None:
    """Admin requests with thousands of elements do not hold up the loop."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=2)
        key = api_of(type(request_)).key
        # What is made once for each version of a message is made before.
        await peer.ask(key, request_, response)
        await ask_watched(outside, peer, key, request_, response)
