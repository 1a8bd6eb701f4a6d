"""ConsumerGroupDescribe (69): the state and the members of groups (KIP-848).

v1   type of each member (KIP-1099)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribeRequest:
    first_version, last_version, flexible_since = 0, 1, 0
    group_ids: tuple[str, ...] = wire_array("string")
    include_authorized_operations: bool = wire("bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    topic_id: UUID = wire("uuid")
    topic_name: str = wire("string")
    partitions: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = wire_array(TopicPartitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str = wire("string")
    # The member's instance id, if it is static (KIP-345).
    instance_id: str | None = wire("string", nullable_since=0, default=None)
    rack_id: str | None = wire("string", nullable_since=0, default=None)
    member_epoch: int = wire("int32")
    client_id: str = wire("string")
    client_host: str = wire("string")
    subscribed_topic_names: tuple[str, ...] = wire_array("string")
    subscribed_topic_regex: str | None = wire("string", nullable_since=0, default=None)
    assignment: Assignment = wire(Assignment)  # The partitions that the member owns.
    target_assignment: Assignment = wire(Assignment)
    # -1: not known, 0: of the classic protocol, 1: of the consumer protocol.
    member_type: int = wire("int8", since=1, default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0, default=None)
    group_id: str = wire("string")
    group_state: str = wire("string")
    group_epoch: int = wire("int32")
    assignment_epoch: int = wire("int32")  # Epoch of the group that the target assignment is for.
    assignor_name: str = wire("string")
    members: tuple[Member, ...] = wire_array(Member)
    # Operations that the client may perform on the group, as bits; -2147483648: not requested.
    authorized_operations: int = wire("int32", default=-2_147_483_648)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribeResponse:
    first_version, last_version, flexible_since = 0, 1, 0
    throttle_time_ms: int = wire("int32")
    groups: tuple[DescribedGroup, ...] = wire_array(DescribedGroup)
