"""OffsetFetch (9): the offsets that groups have committed.

v2   all topics by null, group's error  v7   only stable offsets (KIP-447)
v3   throttle time                      v8   many groups at once (KIP-709)
v5   leader epochs (KIP-320)            v9   member and its epoch (KIP-848)
v6   flexible                           v10  topic ids in place of names (KIP-848)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestTopic:
    """Partitions of one topic, up to v7."""

    name: str = wire("string", until=7)
    """The topic."""
    partition_indexes: tuple[int, ...] = wire_array("int32", until=7)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestTopics:
    """Partitions of one topic, from v8."""

    name: str = wire("string", since=8, until=9)
    """The topic by name, up to v9."""
    topic_id: UUID = wire("uuid", since=10)
    """The topic by id, from v10."""
    partition_indexes: tuple[int, ...] = wire_array("int32", since=8)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestGroup:
    """The requested offsets of one group."""

    group_id: str = wire("string", since=8)
    """The group."""
    member_id: str | None = wire("string", since=9, nullable_since=9, default=None)
    """The member that asks; None: none is named."""
    member_epoch: int = wire("int32", since=9, default=-1)
    """Its epoch; -1: not checked."""
    topics: tuple[OffsetFetchRequestTopics, ...] | None = wire_array(
        OffsetFetchRequestTopics, since=8, nullable_since=8
    )
    """The partitions, by topic; None: all that have an offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequest:
    """Ask what these groups have committed."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 10
    flexible_since: ClassVar[int] = 6

    group_id: str = wire("string", until=7)
    """The group, up to v7."""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire_array(
        OffsetFetchRequestTopic, until=7, nullable_since=2
    )
    """The partitions, by topic, up to v7; None: all that have an offset."""
    groups: tuple[OffsetFetchRequestGroup, ...] = wire_array(OffsetFetchRequestGroup, since=8)
    """The groups, from v8."""
    require_stable: bool = wire("bool", since=7)
    """Whether to refuse offsets that an open transaction may still change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponsePartition:
    """The offset of one partition, up to v7."""

    partition_index: int = wire("int32", until=7)
    """The partition."""
    committed_offset: int = wire("int64", until=7)
    """Offset of the next record to consume; -1: none is committed."""
    committed_leader_epoch: int = wire("int32", since=5, until=7, default=-1)
    """Leader epoch of the last consumed record; -1 if it is not known."""
    metadata: str | None = wire("string", until=7, nullable_since=0)
    """Metadata that the client has stored with the offset."""
    error_code: int = wire("int16", until=7)
    """0, or why there is no offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseTopic:
    """The offsets of one topic, up to v7."""

    name: str = wire("string", until=7)
    """The topic."""
    partitions: tuple[OffsetFetchResponsePartition, ...] = wire_array(
        OffsetFetchResponsePartition, until=7
    )
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponsePartitions:
    """The offset of one partition, from v8."""

    partition_index: int = wire("int32", since=8)
    """The partition."""
    committed_offset: int = wire("int64", since=8)
    """Offset of the next record to consume; -1: none is committed."""
    committed_leader_epoch: int = wire("int32", since=8, default=-1)
    """Leader epoch of the last consumed record; -1 if it is not known."""
    metadata: str | None = wire("string", since=8, nullable_since=8)
    """Metadata that the client has stored with the offset."""
    error_code: int = wire("int16", since=8)
    """0, or why there is no offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseTopics:
    """The offsets of one topic, from v8."""

    name: str = wire("string", since=8, until=9)
    """The topic by name, up to v9."""
    topic_id: UUID = wire("uuid", since=10)
    """The topic by id, from v10."""
    partitions: tuple[OffsetFetchResponsePartitions, ...] = wire_array(
        OffsetFetchResponsePartitions, since=8
    )
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseGroup:
    """The offsets of one group."""

    group_id: str = wire("string", since=8)
    """The group."""
    topics: tuple[OffsetFetchResponseTopics, ...] = wire_array(OffsetFetchResponseTopics, since=8)
    """The offsets, by topic."""
    error_code: int = wire("int16", since=8)
    """0, or why the group has no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponse:
    """The committed offsets."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 10
    flexible_since: ClassVar[int] = 6

    throttle_time_ms: int = wire("int32", since=3)
    """Time for which a quota throttles the client, in milliseconds."""
    topics: tuple[OffsetFetchResponseTopic, ...] = wire_array(OffsetFetchResponseTopic, until=7)
    """The offsets of the group, by topic, up to v7."""
    error_code: int = wire("int16", since=2, until=7)
    """0, or why the group has no answer, up to v7."""
    groups: tuple[OffsetFetchResponseGroup, ...] = wire_array(OffsetFetchResponseGroup, since=8)
    """The offsets, by group, from v8."""
