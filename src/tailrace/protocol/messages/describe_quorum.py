"""DescribeQuorum (55): the leader and the replicas of a log of controllers (KIP-595).

v1   times of followers (KIP-836)        v2   directories and addresses (KIP-853)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData:
    """A partition to describe."""

    partition_index: int = wire("int32")
    """The partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicData:
    """Partitions of one topic."""

    topic_name: str = wire("string")
    """The topic by name."""
    partitions: tuple[PartitionData, ...] = wire_array(PartitionData)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumRequest:
    """Show the replicas of these partitions; there is `__cluster_metadata-0` alone."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 0

    topics: tuple[TopicData, ...] = wire_array(TopicData)
    """The topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """A replica, as the leader knows it."""

    replica_id: int = wire("int32")
    """Its node."""
    replica_directory_id: UUID = wire("uuid", since=2)
    """Its log directory; zeros: not known."""
    log_end_offset: int = wire("int64")
    """The end of its log; -1: not known."""
    last_fetch_timestamp: int = wire("int64", since=1, default=-1)
    """Time of its last fetch, in milliseconds since 1970; -1: not known, or the leader."""
    last_caught_up_timestamp: int = wire("int64", since=1, default=-1)
    """When it last had all of the leader's log, in milliseconds since 1970; -1: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumResponsePartitionData:
    """The replicas of one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", since=2, nullable_since=2)
    """The error message, or None."""
    leader_id: int = wire("int32")
    """The broker; -1: not known."""
    leader_epoch: int = wire("int32")
    """Its epoch; -1: not known."""
    high_watermark: int = wire("int64")
    """The offset after the last record that a majority has."""
    current_voters: tuple[ReplicaState, ...] = wire_array(ReplicaState)
    """The replicas that vote."""
    observers: tuple[ReplicaState, ...] = wire_array(ReplicaState)
    """The replicas that only follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumResponseTopicData:
    """Partitions of one topic."""

    topic_name: str = wire("string")
    """The topic by name."""
    partitions: tuple[DescribeQuorumResponsePartitionData, ...] = wire_array(
        DescribeQuorumResponsePartitionData
    )
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address of a node."""

    name: str = wire("string", since=2)
    """The listener's name."""
    host: str = wire("string", since=2)
    """Host name to connect to."""
    port: int = wire("uint16", since=2)
    """Port to connect to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node and its addresses."""

    node_id: int = wire("int32", since=2)
    """The node."""
    listeners: tuple[Listener, ...] = wire_array(Listener, since=2)
    """Its addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumResponse:
    """The replicas."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 0

    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", since=2, nullable_since=2)
    """The error message, or None."""
    topics: tuple[DescribeQuorumResponseTopicData, ...] = wire_array(
        DescribeQuorumResponseTopicData
    )
    """The topics."""
    nodes: tuple[Node, ...] = wire_array(Node, since=2)
    """The nodes that vote."""
