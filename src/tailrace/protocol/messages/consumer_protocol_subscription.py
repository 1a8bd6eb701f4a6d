"""The subscription of a consumer in JoinGroup, for the leader of its group.

    v1   partitions that it owns (KIP-429)  v3   rack (KIP-881)
    v2   generation (KIP-792)

A version stands in front of it, as int16. A reader takes a newer version for the newest that it
knows.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartition:
    """Partitions of one topic."""

    topic: str = wire("string", since=1)
    """The topic."""
    partitions: tuple[int, ...] = wire_array("int32", since=1)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerProtocolSubscription:
    """The topics that a consumer subscribes to, and the partitions that it owns."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 3
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    topics: tuple[str, ...] = wire_array("string")
    """The topics that the consumer subscribes to."""
    user_data: bytes | None = wire("bytes", nullable_since=0, default=None)
    """Data of the assignor's own."""
    owned_partitions: tuple[TopicPartition, ...] = wire_array(TopicPartition, since=1)
    """The partitions that the consumer owns, by topic."""
    generation_id: int = wire("int32", since=2, default=-1)
    """The generation in which it got them; -1: not known."""
    rack_id: str | None = wire("string", since=3, nullable_since=3, default=None)
    """The consumer's rack, where it has one."""
