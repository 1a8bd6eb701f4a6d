"""Records of type 8 of `__consumer_offsets`: the current assignment of a member (KIP-848)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentKey:
    """The key: the group and the member."""

    record_type: ClassVar[int] = 8
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    group_id: str = wire("string")
    """The group."""
    member_id: str = wire("string")
    """The member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: UUID = wire("uuid")
    """The topic by id."""
    partitions: tuple[int, ...] = wire_array("int32")
    """Its partitions."""
    assignment_epochs: tuple[int, ...] | None = wire_array("int32", nullable_since=0, tag=0)
    """For each partition, the member epoch in which it was assigned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    """The epoch and the partitions of the member."""

    record_type: ClassVar[int] = 8
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    member_epoch: int = wire("int32")
    """Epoch of the member."""
    previous_member_epoch: int = wire("int32")
    """Epoch of the member before the current one."""
    state: int = wire("int8")
    """0: stable, 1: gives up partitions, 2: waits for partitions, by Kafka's number."""
    assigned_partitions: tuple[TopicPartitions, ...] = wire_array(TopicPartitions)
    """The partitions that it owns, by topic."""
    partitions_pending_revocation: tuple[TopicPartitions, ...] = wire_array(TopicPartitions)
    """The partitions that it gives up, by topic."""
