"""DescribeTopicPartitions (75): topics in pages, with the replicas that may lead (KIP-966)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRequest:
    name: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The first partition of a page."""

    topic_name: str = wire("string")  # The first topic of the page.
    partition_index: int = wire("int32")  # The first partition of the page.


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsRequest:
    first_version, last_version, flexible_since = 0, 0, 0
    topics: tuple[TopicRequest, ...] = wire_array(TopicRequest)  # The topics; empty: all.
    response_partition_limit: int = wire("int32", default=2_000)  # Most partitions in the answer.
    # Start of the page; None: the first topic.
    cursor: Cursor | None = wire(Cursor, nullable_since=0, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsResponsePartition:
    error_code: int = wire("int16")
    partition_index: int = wire("int32")
    leader_id: int = wire("int32")  # The broker that leads; -1: none.
    leader_epoch: int = wire("int32", default=-1)  # The leader epoch of the partition.
    # All replicas; the first is the preferred leader.
    replica_nodes: tuple[int, ...] = wire_array("int32")
    isr_nodes: tuple[int, ...] = wire_array("int32")
    # Replicas that are not in sync and have all committed records; None: not known.
    eligible_leader_replicas: tuple[int, ...] | None = wire_array(
        "int32", nullable_since=0, default=None
    )
    # Replicas that were the last to be eligible; None: not known.
    last_known_elr: tuple[int, ...] | None = wire_array("int32", nullable_since=0, default=None)
    offline_replicas: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsResponseTopic:
    error_code: int = wire("int16")
    name: str | None = wire("string", nullable_since=0)  # The topic; None for an unknown id.
    topic_id: UUID = wire("uuid")
    is_internal: bool = wire("bool")  # Whether the topic holds Kafka's own state.
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = wire_array(
        DescribeTopicPartitionsResponsePartition
    )
    # Operations that the client may perform on the topic, as bits.
    topic_authorized_operations: int = wire("int32", default=-2_147_483_648)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsResponse:
    first_version, last_version, flexible_since = 0, 0, 0
    throttle_time_ms: int = wire("int32")
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = wire_array(
        DescribeTopicPartitionsResponseTopic
    )
    # Start of the next page; None: this page is the last.
    next_cursor: Cursor | None = wire(Cursor, nullable_since=0, default=None)
