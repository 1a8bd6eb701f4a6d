"""CreatePartitions (37): adds partitions to topics that exist.

v2   flexible

v1 changes when a throttled client gets its response, v3 adds an error for quotas (KIP-599).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsAssignment:
    broker_ids: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsTopic:
    name: str = wire("string")
    count: int = wire("int32")  # New number of partitions; the partitions that exist are included.
    # The brokers for each new partition; None: the broker chooses.
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire_array(
        CreatePartitionsAssignment, nullable_since=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsRequest:
    first_version, last_version, flexible_since = 0, 3, 2
    topics: tuple[CreatePartitionsTopic, ...] = wire_array(CreatePartitionsTopic)
    timeout_ms: int = wire("int32")
    validate_only: bool = wire("bool")  # Whether to check the request and change nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsTopicResult:
    name: str = wire("string")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsResponse:
    first_version, last_version, flexible_since = 0, 3, 2
    throttle_time_ms: int = wire("int32")
    results: tuple[CreatePartitionsTopicResult, ...] = wire_array(CreatePartitionsTopicResult)
