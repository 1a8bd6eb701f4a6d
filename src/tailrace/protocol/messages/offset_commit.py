"""OffsetCommit (8): commits offsets of a consumer group.

    v6   leader epochs (KIP-320)            v8   flexible
    v7   static members (KIP-345)           v10  topic ids in place of names (KIP-848)

Up to v4 a request has a retention time of its own (KIP-211). v3 adds the throttle time, v9 errors
for members of the consumer protocol (KIP-848).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestPartition:
    """The offset to commit for one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    committed_offset: int = wire("int64")
    """Offset of the next record to consume."""
    committed_leader_epoch: int = wire("int32", since=6, default=-1)
    """Leader epoch of the last consumed record; -1 if it is not known."""
    committed_metadata: str | None = wire("string", nullable_since=0)
    """Metadata that the client stores with the offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestTopic:
    """The offsets to commit for the partitions of one topic."""

    name: str = wire("string", until=9)
    """The topic by name, up to v9."""
    topic_id: UUID = wire("uuid", since=10)
    """The topic by id, from v10."""
    partitions: tuple[OffsetCommitRequestPartition, ...] = wire_array(OffsetCommitRequestPartition)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequest:
    """Store these offsets for the group."""

    first_version: ClassVar[int] = 2
    last_version: ClassVar[int] = 10
    flexible_since: ClassVar[int] = 8

    group_id: str = wire("string")
    """The group."""
    generation_id_or_member_epoch: int = wire("int32", since=1, default=-1)
    """Generation of a classic group, or epoch of a member; -1: not a member."""
    member_id: str = wire("string", since=1)
    """The member."""
    group_instance_id: str | None = wire("string", since=7, nullable_since=7, default=None)
    """The member's instance id, if it is static (KIP-345)."""
    retention_time_ms: int = wire("int64", since=2, until=4, default=-1)
    """Time to keep the offsets, in milliseconds; -1: the broker's setting."""
    topics: tuple[OffsetCommitRequestTopic, ...] = wire_array(OffsetCommitRequestTopic)
    """The offsets, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponsePartition:
    """The result for the offset of one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    error_code: int = wire("int16")
    """0, or why it was not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponseTopic:
    """The results for the offsets of one topic."""

    name: str = wire("string", until=9)
    """The topic by name, up to v9."""
    topic_id: UUID = wire("uuid", since=10)
    """The topic by id, from v10."""
    partitions: tuple[OffsetCommitResponsePartition, ...] = wire_array(
        OffsetCommitResponsePartition
    )
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponse:
    """The results for all offsets."""

    first_version: ClassVar[int] = 2
    last_version: ClassVar[int] = 10
    flexible_since: ClassVar[int] = 8

    throttle_time_ms: int = wire("int32", since=3)
    """Time for which a quota throttles the client, in milliseconds."""
    topics: tuple[OffsetCommitResponseTopic, ...] = wire_array(OffsetCommitResponseTopic)
    """The results, by topic."""
