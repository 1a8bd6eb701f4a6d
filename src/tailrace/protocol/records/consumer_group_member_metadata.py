"""Records of type 5 of `__consumer_offsets`: members of the consumer protocol (KIP-848).

The default of `classic_member_metadata` is an empty struct, not None, as in Kafka: a member without
the tag is one of the classic protocol. For a member of the consumer protocol the record ends with
`01 00 01 00`: one tag, number 0, one byte, null.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataKey:
    """The key: the group and the member."""

    record_type: ClassVar[int] = 5
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    group_id: str = wire("string")
    """The group."""
    member_id: str = wire("string")
    """The member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProtocol:
    """A protocol that the member supports."""

    name: str = wire("string")
    """The protocol: the name of an assignor."""
    metadata: bytes = wire("bytes")
    """Its subscription: a `ConsumerProtocolSubscription`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata:
    """Timeout and protocols of a member that uses the classic protocol."""

    session_timeout_ms: int = wire("int32")
    """Longest time between two heartbeats of the member, in milliseconds."""
    supported_protocols: tuple[ClassicProtocol, ...] = wire_array(ClassicProtocol)
    """The protocols that it supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataValue:
    """The member and the topics that it subscribes to."""

    record_type: ClassVar[int] = 5
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    instance_id: str | None = wire("string", nullable_since=0)
    """The member's instance id, if it is static (KIP-345)."""
    rack_id: str | None = wire("string", nullable_since=0)
    """The consumer's rack, where it has one."""
    client_id: str = wire("string")
    """The client id of the member."""
    client_host: str = wire("string")
    """The address that the member connects from."""
    subscribed_topic_names: tuple[str, ...] = wire_array("string")
    """The topics that the member subscribes to."""
    subscribed_topic_regex: str | None = wire("string", nullable_since=0)
    """The regular expression of its topics; Kafka writes an empty one for none."""
    rebalance_timeout_ms: int = wire("int32", default=-1)
    """Time in which the member has to give up partitions, in milliseconds."""
    server_assignor: str | None = wire("string", nullable_since=0)
    """The assignor that the broker is to use; None: the group's own choice."""
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        ClassicMemberMetadata, nullable_since=0, tag=0
    )
    """None for a member of the consumer protocol."""
