"""AlterPartitionReassignments (45): gives partitions other replicas, or cancels that (KIP-455).

v1   whether the number of replicas may change
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignablePartition:
    """The new replicas of one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    replicas: tuple[int, ...] | None = wire_array("int32", nullable_since=0, default=None)
    """The brokers; None: cancel the reassignment that is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignableTopic:
    """The new replicas of one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[ReassignablePartition, ...] = wire_array(ReassignablePartition)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsRequest:
    """Reassign these partitions."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 0

    timeout_ms: int = wire("int32", default=60_000)
    """Longest time to wait for the result, in milliseconds."""
    allow_replication_factor_change: bool = wire("bool", since=1, default=True)
    """Whether a partition may get more or fewer replicas than it has."""
    topics: tuple[ReassignableTopic, ...] = wire_array(ReassignableTopic)
    """The topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignablePartitionResponse:
    """The result for one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignableTopicResponse:
    """The results for one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[ReassignablePartitionResponse, ...] = wire_array(
        ReassignablePartitionResponse
    )
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsResponse:
    """The results for the partitions."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    allow_replication_factor_change: bool = wire("bool", since=1, default=True)
    """Whether a partition may get more or fewer replicas than it has."""
    error_code: int = wire("int16")
    """0, or why nothing was done."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""
    responses: tuple[ReassignableTopicResponse, ...] = wire_array(ReassignableTopicResponse)
    """The results, by topic."""
