"""AlterPartitionReassignments (45): gives partitions other replicas, or cancels that (KIP-455).

v1   whether the number of replicas may change
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignablePartition:
    partition_index: int = wire("int32")
    # The brokers; None: cancel the reassignment that is under way.
    replicas: tuple[int, ...] | None = wire_array("int32", nullable_since=0, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignableTopic:
    name: str = wire("string")
    partitions: tuple[ReassignablePartition, ...] = wire_array(ReassignablePartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsRequest:
    first_version, last_version, flexible_since = 0, 1, 0
    timeout_ms: int = wire("int32", default=60_000)
    # Whether a partition may get more or fewer replicas than it has.
    allow_replication_factor_change: bool = wire("bool", since=1, default=True)
    topics: tuple[ReassignableTopic, ...] = wire_array(ReassignableTopic)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignablePartitionResponse:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignableTopicResponse:
    name: str = wire("string")
    partitions: tuple[ReassignablePartitionResponse, ...] = wire_array(
        ReassignablePartitionResponse
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsResponse:
    first_version, last_version, flexible_since = 0, 1, 0
    throttle_time_ms: int = wire("int32")
    # Whether a partition may get more or fewer replicas than it has.
    allow_replication_factor_change: bool = wire("bool", since=1, default=True)
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    responses: tuple[ReassignableTopicResponse, ...] = wire_array(ReassignableTopicResponse)
