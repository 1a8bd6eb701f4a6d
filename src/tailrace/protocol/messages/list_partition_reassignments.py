"""ListPartitionReassignments (46): the partitions that are getting other replicas (KIP-455)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsTopics:
    """Partitions of one topic."""

    name: str = wire("string")
    """The topic."""
    partition_indexes: tuple[int, ...] = wire_array("int32")
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsRequest:
    """Ask which of these partitions are being reassigned."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    timeout_ms: int = wire("int32", default=60_000)
    """Longest time to wait for the result, in milliseconds."""
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = wire_array(
        ListPartitionReassignmentsTopics, nullable_since=0, default=None
    )
    """The partitions, by topic; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingPartitionReassignment:
    """A partition that is being reassigned."""

    partition_index: int = wire("int32")
    """The partition."""
    replicas: tuple[int, ...] = wire_array("int32")
    """All its replicas, old and new."""
    adding_replicas: tuple[int, ...] = wire_array("int32")
    """The replicas that it gets."""
    removing_replicas: tuple[int, ...] = wire_array("int32")
    """The replicas that it loses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingTopicReassignment:
    """The partitions of one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[OngoingPartitionReassignment, ...] = wire_array(OngoingPartitionReassignment)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsResponse:
    """The reassignments that are under way."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or why there is no answer."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""
    topics: tuple[OngoingTopicReassignment, ...] = wire_array(OngoingTopicReassignment)
    """The partitions, by topic."""
