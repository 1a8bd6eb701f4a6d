"""CreatePartitions (37): adds partitions to topics that exist.

v2   flexible

v1 changes when a throttled client gets its response, v3 adds an error for quotas (KIP-599).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsAssignment:
    """The brokers for the replicas of one new partition."""

    broker_ids: tuple[int, ...] = wire_array("int32")
    """The brokers; the first is the preferred leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsTopic:
    """The new size of one topic."""

    name: str = wire("string")
    """The topic."""
    count: int = wire("int32")
    """New number of partitions; the partitions that exist are included."""
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire_array(
        CreatePartitionsAssignment, nullable_since=0
    )
    """The brokers for each new partition; None: the broker chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsRequest:
    """Add partitions to these topics."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 3
    flexible_since: ClassVar[int] = 2

    topics: tuple[CreatePartitionsTopic, ...] = wire_array(CreatePartitionsTopic)
    """The topics."""
    timeout_ms: int = wire("int32")
    """Longest time to wait for the result, in milliseconds."""
    validate_only: bool = wire("bool")
    """Whether to check the request and change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsTopicResult:
    """The result for one topic."""

    name: str = wire("string")
    """The topic."""
    error_code: int = wire("int16")
    """0, or why it has no new partitions."""
    error_message: str | None = wire("string", nullable_since=0, default=None)
    """The error message, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsResponse:
    """The results for the topics."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 3
    flexible_since: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    results: tuple[CreatePartitionsTopicResult, ...] = wire_array(CreatePartitionsTopicResult)
    """The results."""
