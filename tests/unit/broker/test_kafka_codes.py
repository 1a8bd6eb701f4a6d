"""Wrong fields of requests, and the codes with which Kafka answers them.

Each row has a request, the version at which it is sent, and the codes in its answer, in order. The
broker has the topic `t` of one partition, and stays as it is.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from uuid import UUID

import pytest

from tailrace.protocol.apis import APIS, Api, ApiKey, api_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID, Message
from tailrace.protocol.frames import decode_response, encode_request
from tailrace.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from tailrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.testing import Outside
from tests.unit.broker.brokers import connect, create_topic, running

E = ErrorCode
TOPIC, BROKER = 2, 4
T_ID = UUID(int=0x7A11)
"""Stands for the id of `t` in a row."""
UNKNOWN_ID = UUID(int=99)
LAST = -1
"""The highest served version."""

Row = tuple[Message, int, list[ErrorCode]]


def creating(*topics: CreatableTopic) -> CreateTopicsRequest:
    """A request for topics."""
    return CreateTopicsRequest(topics=topics, validate_only=True)


def new(
    name: str = "new",
    *,
    partitions: int = 1,
    replicas: int = 1,
    configs: dict[str, str | None] | None = None,
    assignments: dict[int, tuple[int, ...]] | None = None,
) -> CreatableTopic:
    """A topic to be created; with assignments it has no counts."""
    has_counts = assignments is None
    return CreatableTopic(
        name=name,
        num_partitions=partitions if has_counts else -1,
        replication_factor=replicas if has_counts else -1,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in (assignments or {}).items()
        ),
        configs=tuple(
            CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()
        ),
    )


def deleting(*topics: tuple[str | None, UUID]) -> DeleteTopicsRequest:
    """A request to delete topics, each by name, by id, or wrongly."""
    return DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics)
    )


def asking(*topics: tuple[str | None, UUID]) -> MetadataRequest:
    """A request for metadata that creates nothing."""
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name, topic_id=each) for name, each in topics),
        allow_auto_topic_creation=False,
    )


def describing(*resources: tuple[int, str]) -> DescribeConfigsRequest:
    """A request for settings."""
    return DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(resource_type=kind, resource_name=name)
            for kind, name in resources
        )
    )


def altering(
    *changes: tuple[str, int, str | None], name: str = "t", kind: int = TOPIC, times: int = 1
) -> IncrementalAlterConfigsRequest:
    """A request to change settings of one resource, which it names once or oftener."""
    resource = IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            IncrementalAlterableConfig(name=setting, config_operation=operation, value=value)
            for setting, operation, value in changes
        ),
    )
    return IncrementalAlterConfigsRequest(resources=(resource,) * times, validate_only=True)


def replacing(
    *configs: tuple[str, str | None], name: str = "t", kind: int = TOPIC, times: int = 1
) -> AlterConfigsRequest:
    """A request to replace the settings of one resource."""
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(AlterableConfig(name=name, value=value) for name, value in configs),
    )
    return AlterConfigsRequest(resources=(resource,) * times, validate_only=True)


def looking(*wanted: tuple[str, int, int], epoch: int = -1) -> ListOffsetsRequest:
    """A request for offsets: topic, partition and timestamp."""
    return ListOffsetsRequest(
        replica_id=-1,
        topics=tuple(
            ListOffsetsTopic(
                name=topic,
                partitions=(
                    ListOffsetsPartition(
                        partition_index=number, timestamp=timestamp, current_leader_epoch=epoch
                    ),
                ),
            )
            for topic, number, timestamp in wanted
        ),
    )


def moving(path: str, topic: str, number: int) -> AlterReplicaLogDirsRequest:
    """A request to move a partition to a directory."""
    topics = (AlterReplicaLogDirTopic(name=topic, partitions=(number,)),)
    return AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=path, topics=topics),))


CREATE_TOPICS: list[Row] = [
    (creating(new()), LAST, [E.NONE]),
    (creating(new(partitions=-1, replicas=-1)), LAST, [E.NONE]),
    (creating(new("t")), LAST, [E.TOPIC_ALREADY_EXISTS]),
    (creating(new("")), LAST, [E.INVALID_TOPIC_EXCEPTION]),
    (creating(new("..")), LAST, [E.INVALID_TOPIC_EXCEPTION]),
    (creating(new("a b")), LAST, [E.INVALID_TOPIC_EXCEPTION]),
    (creating(new("x" * 250)), LAST, [E.INVALID_TOPIC_EXCEPTION]),
    (creating(new("__cluster_metadata")), LAST, [E.INVALID_REQUEST]),
    (creating(new("a.b"), new("a_b")), LAST, [E.NONE, E.NONE]),
    (creating(new(partitions=0)), LAST, [E.INVALID_PARTITIONS]),
    (creating(new(partitions=-2)), LAST, [E.INVALID_PARTITIONS]),
    (creating(new(partitions=10_001)), LAST, [E.POLICY_VIOLATION]),
    (creating(new("a", partitions=9999), new("b", partitions=2)), LAST, [E.POLICY_VIOLATION] * 2),
    (creating(new(replicas=0)), LAST, [E.INVALID_REPLICATION_FACTOR]),
    (creating(new(replicas=2)), LAST, [E.INVALID_REPLICATION_FACTOR]),
    (creating(new("a"), new("a")), LAST, [E.INVALID_REQUEST] * 2),
    (creating(new(configs={"nonsense": "1"})), LAST, [E.INVALID_CONFIG]),
    (creating(new(configs={"retention.ms": "soon"})), LAST, [E.INVALID_CONFIG]),
    (creating(new(configs={"retention.ms": None})), LAST, [E.INVALID_CONFIG]),
    (creating(new(assignments={0: (1,), 1: (1,)})), LAST, [E.NONE]),
    (creating(new(assignments={0: (1,), 2: (1,)})), LAST, [E.INVALID_REPLICA_ASSIGNMENT]),
    (creating(new(assignments={-1: (1,)})), LAST, [E.INVALID_REPLICA_ASSIGNMENT]),
    (creating(new(assignments={0: (2,)})), LAST, [E.INVALID_REPLICA_ASSIGNMENT]),
    (creating(new(assignments={0: (1, 1)})), LAST, [E.INVALID_REPLICA_ASSIGNMENT]),
    (creating(new(assignments={0: ()})), LAST, [E.INVALID_REPLICA_ASSIGNMENT]),
]

DELETE_TOPICS: list[Row] = [
    (deleting(("nope", NO_UUID)), LAST, [E.UNKNOWN_TOPIC_OR_PARTITION]),
    (deleting(("", NO_UUID)), LAST, [E.UNKNOWN_TOPIC_OR_PARTITION]),
    (deleting((None, UNKNOWN_ID)), LAST, [E.UNKNOWN_TOPIC_ID]),
    (deleting((None, NO_UUID)), LAST, [E.INVALID_REQUEST]),
    (deleting(("t", T_ID)), LAST, [E.INVALID_REQUEST]),
    (deleting(("t", NO_UUID), ("t", NO_UUID)), LAST, [E.INVALID_REQUEST]),
    (deleting((None, T_ID), (None, T_ID)), LAST, [E.INVALID_REQUEST]),
    (deleting(("t", NO_UUID), (None, T_ID)), LAST, [E.INVALID_REQUEST] * 2),
    (DeleteTopicsRequest(topic_names=("t", "t")), 5, [E.INVALID_REQUEST]),
    (DeleteTopicsRequest(topic_names=("nope",)), 1, [E.UNKNOWN_TOPIC_OR_PARTITION]),
]

METADATA: list[Row] = [
    (asking(("t", NO_UUID)), LAST, [E.NONE]),
    (asking((None, T_ID)), LAST, [E.NONE]),
    (asking(("nope", NO_UUID)), LAST, [E.UNKNOWN_TOPIC_OR_PARTITION]),
    (asking(("a b", NO_UUID)), LAST, [E.INVALID_TOPIC_EXCEPTION]),
    (asking(("", NO_UUID)), LAST, [E.INVALID_TOPIC_EXCEPTION]),
    (asking((None, UNKNOWN_ID)), LAST, [E.UNKNOWN_TOPIC_ID]),
    (asking((None, NO_UUID)), 12, [E.UNKNOWN_TOPIC_ID]),
    (asking((None, NO_UUID), ("t", NO_UUID)), 10, [E.INVALID_REQUEST] * 2),
    (asking(("t", T_ID)), 11, [E.INVALID_REQUEST]),
]

DESCRIBE_CONFIGS: list[Row] = [
    (describing((TOPIC, "t"), (BROKER, "1"), (BROKER, "")), LAST, [E.NONE] * 3),
    (describing((TOPIC, "nope")), LAST, [E.UNKNOWN_TOPIC_OR_PARTITION]),
    (describing((TOPIC, "a b")), LAST, [E.INVALID_TOPIC_EXCEPTION]),
    (describing((TOPIC, "")), LAST, [E.INVALID_TOPIC_EXCEPTION]),
    (describing((BROKER, "2")), LAST, [E.INVALID_REQUEST]),
    (describing((BROKER, "one")), LAST, [E.INVALID_REQUEST]),
    (describing((TOPIC, "t"), (3, "t")), LAST, [E.INVALID_REQUEST] * 2),
    (describing((TOPIC, "t"), (0, "")), 1, [E.INVALID_REQUEST] * 2),
]

ALTER_CONFIGS: list[Row] = [
    (replacing(("retention.ms", "5")), LAST, [E.NONE]),
    (replacing(("retention.ms", "5"), name="nope"), LAST, [E.UNKNOWN_TOPIC_OR_PARTITION]),
    (replacing(("retention.ms", "5"), name=""), LAST, [E.INVALID_REQUEST]),
    (replacing(("retention.ms", "5"), name="a b"), LAST, [E.INVALID_TOPIC_EXCEPTION]),
    (replacing(("retention.ms", None)), LAST, [E.INVALID_REQUEST]),
    (replacing(("retention.ms", "x")), LAST, [E.INVALID_CONFIG]),
    (replacing(("nonsense", "x")), LAST, [E.INVALID_CONFIG]),
    (replacing(("retention.ms", "5"), ("retention.ms", "6")), LAST, [E.INVALID_REQUEST]),
    (replacing(("retention.ms", "5"), times=2), LAST, [E.INVALID_REQUEST] * 2),
    (replacing(("retention.ms", "5"), kind=3), LAST, [E.INVALID_REQUEST]),
    (replacing(("log.dirs", "x"), name="1", kind=BROKER), LAST, [E.INVALID_REQUEST]),
    (altering(("retention.ms", 0, "5")), LAST, [E.NONE]),
    (altering(("retention.ms", 1, None)), LAST, [E.NONE]),
    (altering(("cleanup.policy", 2, "compact")), LAST, [E.NONE]),
    (altering(("retention.ms", 2, "5")), LAST, [E.INVALID_CONFIG]),
    (altering(("retention.ms", 3, "5")), LAST, [E.INVALID_CONFIG]),
    (altering(("retention.ms", 0, None)), LAST, [E.INVALID_REQUEST]),
    (altering(("retention.ms", 0, "x")), LAST, [E.INVALID_CONFIG]),
    (altering(("nonsense", 0, "x")), LAST, [E.INVALID_CONFIG]),
    (altering(("retention.ms", 0, "5"), ("retention.ms", 0, "6")), LAST, [E.INVALID_REQUEST]),
    (altering(("retention.ms", 0, "5"), times=2), LAST, [E.INVALID_REQUEST] * 2),
    (altering(("retention.ms", 0, "5"), name="nope"), LAST, [E.UNKNOWN_TOPIC_OR_PARTITION]),
    (altering(("retention.ms", 0, "5"), name=""), LAST, [E.INVALID_REQUEST]),
    (altering(("retention.ms", 0, "5"), kind=7), LAST, [E.INVALID_REQUEST]),
]

LIST_OFFSETS: list[Row] = [
    (looking(("t", 0, -1)), LAST, [E.NONE]),
    (looking(("t", 0, -1), ("t", 1, -1)), LAST, [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]),
    (looking(("nope", 0, -1)), LAST, [E.UNKNOWN_TOPIC_OR_PARTITION]),
    (looking(("t", -1, -1)), LAST, [E.UNKNOWN_TOPIC_OR_PARTITION]),
    (looking(("t", 0, -1), ("t", 0, -2)), LAST, [E.INVALID_REQUEST]),
    (looking(("t", 0, -1), epoch=0), LAST, [E.NONE]),
    (looking(("t", 0, -1), epoch=7), LAST, [E.UNKNOWN_LEADER_EPOCH]),
    (looking(("t", 0, -1), epoch=-2), LAST, [E.FENCED_LEADER_EPOCH]),
    (looking(("t", 0, -3)), 7, [E.NONE]),
    (looking(("t", 0, -3)), 6, [E.UNSUPPORTED_VERSION]),
    (looking(("t", 0, -4)), 7, [E.UNSUPPORTED_VERSION]),
    (looking(("t", 0, -5)), 8, [E.UNSUPPORTED_VERSION]),
    (looking(("t", 0, -6)), 10, [E.UNSUPPORTED_VERSION]),
    (looking(("t", 0, -6)), 11, [E.NONE]),
    (looking(("t", 0, -7)), LAST, [E.UNSUPPORTED_VERSION]),
]

OTHERS: list[Row] = [
    (moving("elsewhere", "t", 0), LAST, [E.LOG_DIR_NOT_FOUND]),
    (moving("data", "t", 0), LAST, [E.NONE]),
    (moving("data", "t", 1), LAST, [E.UNKNOWN_TOPIC_OR_PARTITION]),
    (moving("data", "nope", 0), LAST, [E.UNKNOWN_TOPIC_OR_PARTITION]),
    (
        ApiVersionsRequest(client_software_name="a-1.b", client_software_version="2"),
        LAST,
        [E.NONE],
    ),
    (
        ApiVersionsRequest(client_software_name="-a", client_software_version="2"),
        3,
        [E.INVALID_REQUEST],
    ),
    (
        ApiVersionsRequest(client_software_name="a", client_software_version=""),
        LAST,
        [E.INVALID_REQUEST],
    ),
    (ApiVersionsRequest(), 2, [E.NONE]),
]

ROWS = [
    *CREATE_TOPICS, *DELETE_TOPICS, *METADATA, *DESCRIBE_CONFIGS, *ALTER_CONFIGS, *LIST_OFFSETS,
    *OTHERS,
]  # fmt: skip


def codes(message: object, without: str) -> Iterator[int]:
    """The codes in an answer: of its innermost elements that have one, but not in `without`."""
    values = {field.name: getattr(message, field.name) for field in fields(message)}  # type: ignore[arg-type]
    inner = [
        code
        for name, value in values.items()
        if isinstance(value, tuple) and name != without
        for each in value
        if is_dataclass(each)
        for code in codes(each, without)
    ]
    yield from inner
    if not inner and "error_code" in values:
        yield values["error_code"]


@pytest.mark.parametrize(
    "row", ROWS, ids=[f"{number}-{type(row[0]).__name__}" for number, row in enumerate(ROWS)]
)
async def test_a_wrong_field_gets_kafkas_code(outside: Outside, row: Row) -> None:
    """The connection stays open, and the broker as it is."""
    request, version, expected = row
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        before = broker.controller.image
        topic_id = before.topics["t"].topic_id
        api = api_of(type(request))
        version = api.last_version if version == LAST else version
        asked = encode_request(api, request, version=version, correlation_id=9, client_id=None)
        peer.send_bytes(asked.replace(T_ID.bytes, topic_id.bytes))
        response = decode_response(api, version, memoryview(await peer.read_frame()))
        # A topic's metadata has partitions, which have codes of their own.
        without = "partitions" if api.key is ApiKey.METADATA else ""
        assert [E(code) for code in codes(response, without)] == expected
        assert broker.controller.image == before


UNSERVED = [
    (api.key, version)
    for api in APIS.values()
    for version in (api.first_version - 1, api.last_version + 1)
    if api.key is not ApiKey.API_VERSIONS
] + [(key, 0) for key in (ApiKey.VOTE, ApiKey.SHARE_FETCH, 4, 999, -1)]


@pytest.mark.parametrize(("key", "version"), UNSERVED)
async def test_a_version_that_is_not_served_ends_the_connection(
    outside: Outside, key: int, version: int
) -> None:
    """Kafka does so too, also for Produce before v3, which it only advertises."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
        frame = head + bytes(4) + b"\xff\xff" + bytes(20)
        peer.send_bytes(len(frame).to_bytes(4, "big") + frame)
        assert await peer.is_closed()


def test_produce_alone_is_advertised_from_version_0() -> None:
    """Other APIs are advertised from the first version that is served (KAFKA-18659)."""

    def is_more(api: Api) -> bool:
        return api.advertised_first_version < api.first_version

    assert [api.key for api in APIS.values() if is_more(api)] == [ApiKey.PRODUCE]
