"""JoinGroup (11): a member joins a classic group, and waits until the others have joined too.

v1   rebalance timeout                  v6   flexible
v2   throttle time                      v7   protocol type in the answer (KIP-559)
v4   an id before joining (KIP-394)     v8   reason (KIP-800)
v5   static members (KIP-345)           v9   a leader that assigns nothing (KIP-814)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequestProtocol:
    name: str = wire("string")  # The protocol; for consumers, the name of an assignor.
    # Metadata for the leader; for consumers, a `ConsumerProtocolSubscription`.
    metadata: bytes = wire("bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequest:
    first_version, last_version, flexible_since = 0, 9, 6
    group_id: str = wire("string")
    session_timeout_ms: int = wire("int32")  # Longest time between two heartbeats of the member.
    # Milliseconds that a rebalance waits for this member; -1: the session timeout.
    rebalance_timeout_ms: int = wire("int32", since=1, default=-1)
    member_id: str = wire("string")  # The member; empty for one that has no id yet.
    # The member's instance id, if it is static (KIP-345).
    group_instance_id: str | None = wire("string", since=5, nullable_since=5, default=None)
    # Kind of the group: `consumer`, or a name that other clients have chosen.
    protocol_type: str = wire("string")
    # The protocols that it supports, the preferred one first.
    protocols: tuple[JoinGroupRequestProtocol, ...] = wire_array(JoinGroupRequestProtocol)
    # The reason, for the broker's log (KIP-800).
    reason: str | None = wire("string", since=8, nullable_since=8, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponseMember:
    """A member and its metadata, for the leader."""

    member_id: str = wire("string")
    # The member's instance id, if it is static (KIP-345).
    group_instance_id: str | None = wire("string", since=5, nullable_since=5, default=None)
    metadata: bytes = wire("bytes")  # Metadata that the member has sent for the chosen protocol.


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponse:
    first_version, last_version, flexible_since = 0, 9, 6
    throttle_time_ms: int = wire("int32", since=2)
    error_code: int = wire("int16")
    generation_id: int = wire("int32", default=-1)  # Generation of the group; -1 with an error.
    # Kind of the group: `consumer`, or a name that other clients have chosen.
    protocol_type: str | None = wire("string", since=7, nullable_since=7, default=None)
    # The protocol that all members have in common, such as an assignor's name.
    protocol_name: str | None = wire("string", nullable_since=7)
    leader: str = wire("string")  # The member that assigns the partitions.
    # Whether the leader leaves the assignment as it is.
    skip_assignment: bool = wire("bool", since=9)
    member_id: str = wire("string")  # The id of this member.
    # All members if this one is the leader, else empty.
    members: tuple[JoinGroupResponseMember, ...] = wire_array(JoinGroupResponseMember)
