"""DescribeGroups (15): the state and the members of classic groups.

v1   throttle time                      v5   flexible
v3   authorized operations (KIP-430)    v6   an error for an unknown group (KIP-1043)
v4   static members (KIP-345)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsRequest:
    """Describe these groups."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 6
    flexible_since: ClassVar[int] = 5

    groups: tuple[str, ...] = wire_array("string")
    """The groups."""
    include_authorized_operations: bool = wire("bool", since=3)
    """Whether to say what the client may do with each group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroupMember:
    """A member of a group."""

    member_id: str = wire("string")
    """The member."""
    group_instance_id: str | None = wire("string", since=4, nullable_since=4, default=None)
    """The member's instance id, if it is static (KIP-345)."""
    client_id: str = wire("string")
    """The client id of the member."""
    client_host: str = wire("string")
    """The address that the member connects from."""
    member_metadata: bytes = wire("bytes")
    """Metadata that it sent for the chosen protocol; empty unless the group is stable."""
    member_assignment: bytes = wire("bytes")
    """Its part of the assignment; empty unless the group is stable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """The state of one group."""

    error_code: int = wire("int16")
    """0, or why it is not described."""
    error_message: str | None = wire("string", since=6, nullable_since=6, default=None)
    """The error message, or None."""
    group_id: str = wire("string")
    """The group."""
    group_state: str = wire("string")
    """State of the group, by Kafka's name."""
    protocol_type: str = wire("string")
    """Kind of the group: `consumer`, or a name that other clients have chosen."""
    protocol_data: str = wire("string")
    """The chosen protocol; empty unless the group is stable."""
    members: tuple[DescribedGroupMember, ...] = wire_array(DescribedGroupMember)
    """Its members."""
    authorized_operations: int = wire("int32", since=3, default=-2_147_483_648)
    """Operations that the client may perform on the group, as bits; -2147483648: not requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsResponse:
    """The states of the groups."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 6
    flexible_since: ClassVar[int] = 5

    throttle_time_ms: int = wire("int32", since=1)
    """Time for which a quota throttles the client, in milliseconds."""
    groups: tuple[DescribedGroup, ...] = wire_array(DescribedGroup)
    """The groups."""
