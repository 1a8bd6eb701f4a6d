"""The assignment of a consumer in SyncGroup, from the leader of its group.

All versions are alike: they follow those of ConsumerProtocolSubscription. A version stands in front
of it, as int16.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartition:
    """Partitions of one topic."""

    topic: str = wire("string")
    """The topic."""
    partitions: tuple[int, ...] = wire_array("int32")
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerProtocolAssignment:
    """The partitions that the leader assigns to a consumer."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 3
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    assigned_partitions: tuple[TopicPartition, ...] = wire_array(TopicPartition)
    """The partitions, by topic."""
    user_data: bytes | None = wire("bytes", nullable_since=0, default=None)
    """Data of the assignor's own."""
