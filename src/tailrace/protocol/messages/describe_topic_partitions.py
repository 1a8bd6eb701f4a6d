"""DescribeTopicPartitions (75): topics in pages, with the replicas that may lead (KIP-966)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRequest:
    """A topic by name."""

    name: str = wire("string")
    """The topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The first partition of a page."""

    topic_name: str = wire("string")
    """The first topic of the page."""
    partition_index: int = wire("int32")
    """The first partition of the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsRequest:
    """Describe these topics."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    topics: tuple[TopicRequest, ...] = wire_array(TopicRequest)
    """The topics; empty: all."""
    response_partition_limit: int = wire("int32", default=2_000)
    """Most partitions in the answer."""
    cursor: Cursor | None = wire(Cursor, nullable_since=0, default=None)
    """Start of the page; None: the first topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsResponsePartition:
    """A partition and its replicas."""

    error_code: int = wire("int16")
    """0, or what is wrong with the partition."""
    partition_index: int = wire("int32")
    """The partition."""
    leader_id: int = wire("int32")
    """The broker that leads; -1: none."""
    leader_epoch: int = wire("int32", default=-1)
    """The leader epoch of the partition."""
    replica_nodes: tuple[int, ...] = wire_array("int32")
    """All replicas; the first is the preferred leader."""
    isr_nodes: tuple[int, ...] = wire_array("int32")
    """The replicas that are in sync."""
    eligible_leader_replicas: tuple[int, ...] | None = wire_array(
        "int32", nullable_since=0, default=None
    )
    """Replicas that are not in sync and have all committed records; None: not known."""
    last_known_elr: tuple[int, ...] | None = wire_array("int32", nullable_since=0, default=None)
    """Replicas that were the last to be eligible; None: not known."""
    offline_replicas: tuple[int, ...] = wire_array("int32")
    """The offline replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsResponseTopic:
    """A topic and its partitions."""

    error_code: int = wire("int16")
    """0, or what is wrong with the topic."""
    name: str | None = wire("string", nullable_since=0)
    """The topic; None for an unknown id."""
    topic_id: UUID = wire("uuid")
    """The topic's id."""
    is_internal: bool = wire("bool")
    """Whether the topic holds Kafka's own state."""
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = wire_array(
        DescribeTopicPartitionsResponsePartition
    )
    """Its partitions."""
    topic_authorized_operations: int = wire("int32", default=-2_147_483_648)
    """Operations that the client may perform on the topic, as bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsResponse:
    """One page of topics."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = wire_array(
        DescribeTopicPartitionsResponseTopic
    )
    """The topics."""
    next_cursor: Cursor | None = wire(Cursor, nullable_since=0, default=None)
    """Start of the next page; None: this page is the last."""
