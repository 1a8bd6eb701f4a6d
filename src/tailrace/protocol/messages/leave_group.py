"""LeaveGroup (13): members leave a classic group, or an administrator removes them.

v1   throttle time                      v4   flexible
v3   several members (KIP-345)          v5   reason (KIP-800)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """A member that leaves."""

    member_id: str = wire("string", since=3)
    """The member; empty: it is named by its instance id."""
    group_instance_id: str | None = wire("string", since=3, nullable_since=3, default=None)
    """The member's instance id, if it is static (KIP-345)."""
    reason: str | None = wire("string", since=5, nullable_since=5, default=None)
    """The reason, for the broker's log (KIP-800)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupRequest:
    """Remove these members."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 5
    flexible_since: ClassVar[int] = 4

    group_id: str = wire("string")
    """The group."""
    member_id: str = wire("string", until=2)
    """The member, up to v2."""
    members: tuple[MemberIdentity, ...] = wire_array(MemberIdentity, since=3)
    """The members, from v3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberResponse:
    """The result for one member."""

    member_id: str = wire("string", since=3)
    """The member."""
    group_instance_id: str | None = wire("string", since=3, nullable_since=3)
    """The member's instance id, if it is static (KIP-345)."""
    error_code: int = wire("int16", since=3)
    """0, or why it was not removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse:
    """The results, by member."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 5
    flexible_since: ClassVar[int] = 4

    throttle_time_ms: int = wire("int32", since=1)
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or why nothing was done; up to v2 the result for the member."""
    members: tuple[MemberResponse, ...] = wire_array(MemberResponse, since=3)
    """The results, from v3."""
