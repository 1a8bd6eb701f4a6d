"""SyncGroup (14): the leader of a classic group assigns, and each member receives its part.

v1   throttle time                      v4   flexible
v3   static members (KIP-345)           v5   protocol type and name (KIP-559)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupRequestAssignment:
    member_id: str = wire("string")
    assignment: bytes = wire("bytes")  # Its part; for consumers, a `ConsumerProtocolAssignment`.


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupRequest:
    first_version, last_version, flexible_since = 0, 5, 4
    group_id: str = wire("string")
    generation_id: int = wire("int32")
    member_id: str = wire("string")
    # The member's instance id, if it is static (KIP-345).
    group_instance_id: str | None = wire("string", since=3, nullable_since=3, default=None)
    # Kind of the group: `consumer`, or a name that other clients have chosen.
    protocol_type: str | None = wire("string", since=5, nullable_since=5, default=None)
    # The protocol that all members have in common, such as an assignor's name.
    protocol_name: str | None = wire("string", since=5, nullable_since=5, default=None)
    # The assignments of all members, from the leader; else empty.
    assignments: tuple[SyncGroupRequestAssignment, ...] = wire_array(SyncGroupRequestAssignment)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupResponse:
    first_version, last_version, flexible_since = 0, 5, 4
    throttle_time_ms: int = wire("int32", since=1)
    error_code: int = wire("int16")
    # Kind of the group: `consumer`, or a name that other clients have chosen.
    protocol_type: str | None = wire("string", since=5, nullable_since=5, default=None)
    # The protocol that all members have in common, such as an assignor's name.
    protocol_name: str | None = wire("string", since=5, nullable_since=5, default=None)
    assignment: bytes = wire("bytes")  # Its part; for consumers, a `ConsumerProtocolAssignment`.
