"""DescribeQuorum (55): the leader and the replicas of a log of controllers (KIP-595).

v1   times of followers (KIP-836)        v2   directories and addresses (KIP-853)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData:
    partition_index: int = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicData:
    topic_name: str = wire("string")
    partitions: tuple[PartitionData, ...] = wire_array(PartitionData)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumRequest:
    """Show the replicas of these partitions; there is `__cluster_metadata-0` alone."""

    first_version, last_version, flexible_since = 0, 2, 0
    topics: tuple[TopicData, ...] = wire_array(TopicData)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """A replica, as the leader knows it."""

    replica_id: int = wire("int32")  # Node id of the replica.
    replica_directory_id: UUID = wire("uuid", since=2)  # Its log directory; zeros: not known.
    log_end_offset: int = wire("int64")  # The end of its log; -1: not known.
    # Time of its last fetch, in ms since 1970; -1: not known, or the leader.
    last_fetch_timestamp: int = wire("int64", since=1, default=-1)
    # When it last had all of the leader's log, in ms since 1970; -1: not known.
    last_caught_up_timestamp: int = wire("int64", since=1, default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumResponsePartitionData:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", since=2, nullable_since=2)
    leader_id: int = wire("int32")  # The broker; -1: not known.
    leader_epoch: int = wire("int32")  # Its epoch; -1: not known.
    high_watermark: int = wire("int64")  # The offset after the last record that a majority has.
    current_voters: tuple[ReplicaState, ...] = wire_array(ReplicaState)
    observers: tuple[ReplicaState, ...] = wire_array(ReplicaState)  # The replicas that only follow.


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumResponseTopicData:
    topic_name: str = wire("string")
    partitions: tuple[DescribeQuorumResponsePartitionData, ...] = wire_array(
        DescribeQuorumResponsePartitionData
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    name: str = wire("string", since=2)
    host: str = wire("string", since=2)
    port: int = wire("uint16", since=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    node_id: int = wire("int32", since=2)
    listeners: tuple[Listener, ...] = wire_array(Listener, since=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumResponse:
    first_version, last_version, flexible_since = 0, 2, 0
    error_code: int = wire("int16")
    error_message: str | None = wire("string", since=2, nullable_since=2)
    topics: tuple[DescribeQuorumResponseTopicData, ...] = wire_array(
        DescribeQuorumResponseTopicData
    )
    nodes: tuple[Node, ...] = wire_array(Node, since=2)
