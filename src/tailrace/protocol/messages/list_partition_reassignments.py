"""ListPartitionReassignments (46): the partitions that are getting other replicas (KIP-455)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsTopics:
    name: str = wire("string")
    partition_indexes: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsRequest:
    first_version, last_version, flexible_since = 0, 0, 0
    timeout_ms: int = wire("int32", default=60_000)
    # The partitions, by topic; None: all.
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = wire_array(
        ListPartitionReassignmentsTopics, nullable_since=0, default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingPartitionReassignment:
    partition_index: int = wire("int32")
    replicas: tuple[int, ...] = wire_array("int32")
    adding_replicas: tuple[int, ...] = wire_array("int32")
    removing_replicas: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingTopicReassignment:
    name: str = wire("string")
    partitions: tuple[OngoingPartitionReassignment, ...] = wire_array(OngoingPartitionReassignment)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsResponse:
    first_version, last_version, flexible_since = 0, 0, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    topics: tuple[OngoingTopicReassignment, ...] = wire_array(OngoingTopicReassignment)
