"""OffsetDelete (47): removes committed offsets of a group (KIP-496)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: int = wire("int32")
    """The partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[OffsetDeleteRequestPartition, ...] = wire_array(OffsetDeleteRequestPartition)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequest:
    """Remove the offsets of these partitions."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    group_id: str = wire("string")
    """The group."""
    topics: tuple[OffsetDeleteRequestTopic, ...] = wire_array(OffsetDeleteRequestTopic)
    """The partitions, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponsePartition:
    """The result for one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    error_code: int = wire("int16")
    """0, or why the offset was not removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponseTopic:
    """The results for one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[OffsetDeleteResponsePartition, ...] = wire_array(
        OffsetDeleteResponsePartition
    )
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponse:
    """The results for the partitions."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    error_code: int = wire("int16")
    """0, or why nothing was removed."""
    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire_array(OffsetDeleteResponseTopic)
    """The results, by topic."""
