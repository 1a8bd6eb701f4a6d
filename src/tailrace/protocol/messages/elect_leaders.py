"""ElectLeaders (43): makes the preferred replica of a partition its leader, or any that is alive.

v1   unclean elections (KIP-460)        v2   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = wire("string")
    """The topic."""
    partitions: tuple[int, ...] = wire_array("int32")
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersRequest:
    """Elect leaders for these partitions."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    election_type: int = wire("int8", since=1)
    """0: the preferred replica, 1: any live replica if none is in sync."""
    topic_partitions: tuple[TopicPartitions, ...] | None = wire_array(
        TopicPartitions, nullable_since=0
    )
    """The partitions, by topic; None: all."""
    timeout_ms: int = wire("int32", default=60_000)
    """Longest time to wait for the result, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    """The result for one partition."""

    partition_id: int = wire("int32")
    """The partition."""
    error_code: int = wire("int16")
    """0, or why it has no new leader."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaElectionResult:
    """The results for one topic."""

    topic: str = wire("string")
    """The topic."""
    partition_result: tuple[PartitionResult, ...] = wire_array(PartitionResult)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersResponse:
    """The results for the partitions."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16", since=1)
    """0, or why no election was held."""
    replica_election_results: tuple[ReplicaElectionResult, ...] = wire_array(ReplicaElectionResult)
    """The results, by topic."""
