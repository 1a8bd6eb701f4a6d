"""LeaveGroup (13): members leave a classic group, or an administrator removes them.

v1   throttle time                      v4   flexible
v3   several members (KIP-345)          v5   reason (KIP-800)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    member_id: str = wire("string", since=3)  # The member; empty: it is named by its instance id.
    # The member's instance id, if it is static (KIP-345).
    group_instance_id: str | None = wire("string", since=3, nullable_since=3, default=None)
    # The reason, for the broker's log (KIP-800).
    reason: str | None = wire("string", since=5, nullable_since=5, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupRequest:
    first_version, last_version, flexible_since = 0, 5, 4
    group_id: str = wire("string")
    member_id: str = wire("string", until=2)
    members: tuple[MemberIdentity, ...] = wire_array(MemberIdentity, since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberResponse:
    member_id: str = wire("string", since=3)
    # The member's instance id, if it is static (KIP-345).
    group_instance_id: str | None = wire("string", since=3, nullable_since=3)
    error_code: int = wire("int16", since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse:
    first_version, last_version, flexible_since = 0, 5, 4
    throttle_time_ms: int = wire("int32", since=1)
    # 0, or why nothing was done; up to v2 the result for the member.
    error_code: int = wire("int16")
    members: tuple[MemberResponse, ...] = wire_array(MemberResponse, since=3)
