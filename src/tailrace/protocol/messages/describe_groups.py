"""DescribeGroups (15): the state and the members of classic groups.

v1   throttle time                      v5   flexible
v3   authorized operations (KIP-430)    v6   an error for an unknown group (KIP-1043)
v4   static members (KIP-345)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsRequest:
    first_version, last_version, flexible_since = 0, 6, 5
    groups: tuple[str, ...] = wire_array("string")
    include_authorized_operations: bool = wire("bool", since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroupMember:
    member_id: str = wire("string")
    # The member's instance id, if it is static (KIP-345).
    group_instance_id: str | None = wire("string", since=4, nullable_since=4, default=None)
    client_id: str = wire("string")
    client_host: str = wire("string")
    # Metadata that it sent for the chosen protocol; empty unless the group is stable.
    member_metadata: bytes = wire("bytes")
    # Its part of the assignment; empty unless the group is stable.
    member_assignment: bytes = wire("bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", since=6, nullable_since=6, default=None)
    group_id: str = wire("string")
    group_state: str = wire("string")
    # Kind of the group: `consumer`, or a name that other clients have chosen.
    protocol_type: str = wire("string")
    protocol_data: str = wire("string")  # The chosen protocol; empty unless the group is stable.
    members: tuple[DescribedGroupMember, ...] = wire_array(DescribedGroupMember)
    # Operations that the client may perform on the group, as bits; -2147483648: not requested.
    authorized_operations: int = wire("int32", since=3, default=-2_147_483_648)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsResponse:
    first_version, last_version, flexible_since = 0, 6, 5
    throttle_time_ms: int = wire("int32", since=1)
    groups: tuple[DescribedGroup, ...] = wire_array(DescribedGroup)
