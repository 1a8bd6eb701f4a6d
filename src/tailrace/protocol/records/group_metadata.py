"""Records of type 2 of `__consumer_offsets`: classic groups and their members.

    v1   rebalance timeout                  v3   static members (KIP-345)
    v2   time of the state (KIP-211)        v4   flexible

Kafka 4.3 writes v3.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataKey:
    """The key: the group."""

    record_type: ClassVar[int] = 2
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    group: str = wire("string")
    """The group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """A member of the group."""

    member_id: str = wire("string")
    """The member."""
    group_instance_id: str | None = wire("string", since=3, nullable_since=3, default=None)
    """The member's instance id, if it is static (KIP-345)."""
    client_id: str = wire("string")
    """The client id of the member."""
    client_host: str = wire("string")
    """The address that it connects from, with Java's slash in front."""
    rebalance_timeout: int = wire("int32", since=1, default=-1)
    """Milliseconds that a rebalance waits for it; -1: its session timeout."""
    session_timeout: int = wire("int32")
    """Longest time between two heartbeats of the member, in milliseconds."""
    subscription: bytes = wire("bytes")
    """Metadata that it sent for the chosen protocol."""
    assignment: bytes = wire("bytes")
    """Its part of the assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue:
    """A group as of its last rebalance."""

    record_type: ClassVar[int] = 2
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 4
    flexible_since: ClassVar[int] = 4

    protocol_type: str = wire("string")
    """`consumer` for consumers; empty before the first member."""
    generation: int = wire("int32")
    """Generation of the group."""
    protocol: str | None = wire("string", nullable_since=0)
    """The chosen protocol; None in an empty group."""
    leader: str | None = wire("string", nullable_since=0)
    """The member that assigns the partitions; None in an empty group."""
    current_state_timestamp: int = wire("int64", since=2, default=-1)
    """Time of the last change of state, in milliseconds since 1970; -1: not known."""
    members: tuple[MemberMetadata, ...] = wire_array(MemberMetadata)
    """Its members."""
