"""Records of type 5 of `__consumer_offsets`: members of the consumer protocol (KIP-848).

The default of `classic_member_metadata` is an empty struct, not None, as in Kafka: a member without
the tag is one of the classic protocol. For a member of the consumer protocol the record ends with
`01 00 01 00`: one tag, number 0, one byte, null.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from dataclasses import dataclass
from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataKey:
    """What a record is about."""

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
    """What is known of a member that uses the classic protocol."""

    session_timeout_ms: int = wire("int32")
    """How long the member may be silent, in milliseconds."""
    supported_protocols: tuple[ClassicProtocol, ...] = wire_array(ClassicProtocol)
    """The protocols that it supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataValue:
    """A member."""

    record_type: ClassVar[int] = 5
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    instance_id: str | None = wire("string", nullable_since=0)
    """Its name, if it is a static member (KIP-345)."""
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
    """How long the member may take to give up partitions, in milliseconds."""
    server_assignor: str | None = wire("string", nullable_since=0)
    """The assignor that the broker is to use; None: the group's own choice."""
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        ClassicMemberMetadata, nullable_since=0, tag=0
    )
    """None for a member of the consumer protocol."""
