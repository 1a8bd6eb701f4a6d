"""Records of type 7 of `__consumer_offsets`: the target assignment of a member (KIP-848)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberKey:
    """The key: the group and the member."""

    record_type: ClassVar[int] = 7
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    group_id: str = wire("string")
    """The group."""
    member_id: str = wire("string")
    """The member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartition:
    """Partitions of one topic."""

    topic_id: UUID = wire("uuid")
    """The topic by id."""
    partitions: tuple[int, ...] = wire_array("int32")
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberValue:
    """The target assignment of the member."""

    record_type: ClassVar[int] = 7
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    topic_partitions: tuple[TopicPartition, ...] = wire_array(TopicPartition)
    """The partitions, by topic."""
