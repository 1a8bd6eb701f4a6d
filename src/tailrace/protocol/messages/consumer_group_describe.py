"""ConsumerGroupDescribe (69): the state and the members of groups (KIP-848).

v1   type of each member (KIP-1099)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribeRequest:
    """Describe these groups."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 0

    group_ids: tuple[str, ...] = wire_array("string")
    """The groups."""
    include_authorized_operations: bool = wire("bool")
    """Whether to say what the client may do with each group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: UUID = wire("uuid")
    """The topic by id."""
    topic_name: str = wire("string")
    """The topic by name."""
    partitions: tuple[int, ...] = wire_array("int32")
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Partitions of a member."""

    topic_partitions: tuple[TopicPartitions, ...] = wire_array(TopicPartitions)
    """The partitions, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a group."""

    member_id: str = wire("string")
    """The member."""
    instance_id: str | None = wire("string", nullable_since=0, default=None)
    """The member's instance id, if it is static (KIP-345)."""
    rack_id: str | None = wire("string", nullable_since=0, default=None)
    """The consumer's rack, where it has one."""
    member_epoch: int = wire("int32")
    """Epoch of the member."""
    client_id: str = wire("string")
    """The client id of the member."""
    client_host: str = wire("string")
    """The address that the member connects from."""
    subscribed_topic_names: tuple[str, ...] = wire_array("string")
    """The topics that the member subscribes to."""
    subscribed_topic_regex: str | None = wire("string", nullable_since=0, default=None)
    """A regular expression of the topics that the member subscribes to."""
    assignment: Assignment = wire(Assignment)
    """The partitions that the member owns."""
    target_assignment: Assignment = wire(Assignment)
    """The partitions that the group assigns to the member."""
    member_type: int = wire("int8", since=1, default=-1)
    """-1: not known, 0: of the classic protocol, 1: of the consumer protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """The state of one group."""

    error_code: int = wire("int16")
    """0, or why it is not described."""
    error_message: str | None = wire("string", nullable_since=0, default=None)
    """The error message, or None."""
    group_id: str = wire("string")
    """The group."""
    group_state: str = wire("string")
    """State of the group, by Kafka's name."""
    group_epoch: int = wire("int32")
    """Epoch of the group."""
    assignment_epoch: int = wire("int32")
    """Epoch of the group that the target assignment is for."""
    assignor_name: str = wire("string")
    """The assignor in use."""
    members: tuple[Member, ...] = wire_array(Member)
    """Its members."""
    authorized_operations: int = wire("int32", default=-2_147_483_648)
    """Operations that the client may perform on the group, as bits; -2147483648: not requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribeResponse:
    """The states of the groups."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    groups: tuple[DescribedGroup, ...] = wire_array(DescribedGroup)
    """The groups."""
