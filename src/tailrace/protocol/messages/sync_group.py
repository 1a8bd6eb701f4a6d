"""SyncGroup (14): the leader of a classic group assigns, and each member receives its part.

v1   throttle time                      v4   flexible
v3   static members (KIP-345)           v5   protocol type and name (KIP-559)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupRequestAssignment:
    """The assignment of one member."""

    member_id: str = wire("string")
    """The member."""
    assignment: bytes = wire("bytes")
    """Its part; for consumers, a `ConsumerProtocolAssignment`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupRequest:
    """Ask for the assignment of this member."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 5
    flexible_since: ClassVar[int] = 4

    group_id: str = wire("string")
    """The group."""
    generation_id: int = wire("int32")
    """Generation of the group."""
    member_id: str = wire("string")
    """The member."""
    group_instance_id: str | None = wire("string", since=3, nullable_since=3, default=None)
    """The member's instance id, if it is static (KIP-345)."""
    protocol_type: str | None = wire("string", since=5, nullable_since=5, default=None)
    """Kind of the group: `consumer`, or a name that other clients have chosen."""
    protocol_name: str | None = wire("string", since=5, nullable_since=5, default=None)
    """The protocol that all members have in common, such as an assignor's name."""
    assignments: tuple[SyncGroupRequestAssignment, ...] = wire_array(SyncGroupRequestAssignment)
    """The assignments of all members, from the leader; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupResponse:
    """The assignment of the member."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 5
    flexible_since: ClassVar[int] = 4

    throttle_time_ms: int = wire("int32", since=1)
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or why there is none."""
    protocol_type: str | None = wire("string", since=5, nullable_since=5, default=None)
    """Kind of the group: `consumer`, or a name that other clients have chosen."""
    protocol_name: str | None = wire("string", since=5, nullable_since=5, default=None)
    """The protocol that all members have in common, such as an assignor's name."""
    assignment: bytes = wire("bytes")
    """Its part; for consumers, a `ConsumerProtocolAssignment`."""
