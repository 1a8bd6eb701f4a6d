"""OffsetFetch (9): the offsets that groups have committed.

v2   all topics by null, group's error  v7   only stable offsets (KIP-447)
v3   throttle time                      v8   many groups at once (KIP-709)
v5   leader epochs (KIP-320)            v9   member and its epoch (KIP-848)
v6   flexible                           v10  topic ids in place of names (KIP-848)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestTopic:
    """Partitions of one topic, up to v7."""

    name: str = wire("string", until=7)
    partition_indexes: tuple[int, ...] = wire_array("int32", until=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestTopics:
    """Partitions of one topic, from v8."""

    name: str = wire("string", since=8, until=9)
    topic_id: UUID = wire("uuid", since=10)
    partition_indexes: tuple[int, ...] = wire_array("int32", since=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestGroup:
    group_id: str = wire("string", since=8)
    # The member that asks; None: none is named.
    member_id: str | None = wire("string", since=9, nullable_since=9, default=None)
    member_epoch: int = wire("int32", since=9, default=-1)  # Its epoch; -1: not checked.
    # The partitions, by topic; None: all that have an offset.
    topics: tuple[OffsetFetchRequestTopics, ...] | None = wire_array(
        OffsetFetchRequestTopics, since=8, nullable_since=8
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequest:
    first_version, last_version, flexible_since = 1, 10, 6
    group_id: str = wire("string", until=7)
    # The partitions, by topic; None: all that have an offset.
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire_array(
        OffsetFetchRequestTopic, until=7, nullable_since=2
    )
    groups: tuple[OffsetFetchRequestGroup, ...] = wire_array(OffsetFetchRequestGroup, since=8)
    # Whether to refuse offsets that an open transaction may still change.
    require_stable: bool = wire("bool", since=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponsePartition:
    """The offset of one partition, up to v7."""

    partition_index: int = wire("int32", until=7)
    # Offset of the next record to consume; -1: none is committed.
    committed_offset: int = wire("int64", until=7)
    # Leader epoch of the last consumed record; -1 if it is not known.
    committed_leader_epoch: int = wire("int32", since=5, until=7, default=-1)
    # Metadata that the client has stored with the offset.
    metadata: str | None = wire("string", until=7, nullable_since=0)
    error_code: int = wire("int16", until=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseTopic:
    """The offsets of one topic, up to v7."""

    name: str = wire("string", until=7)
    partitions: tuple[OffsetFetchResponsePartition, ...] = wire_array(
        OffsetFetchResponsePartition, until=7
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponsePartitions:
    """The offset of one partition, from v8."""

    partition_index: int = wire("int32", since=8)
    # Offset of the next record to consume; -1: none is committed.
    committed_offset: int = wire("int64", since=8)
    # Leader epoch of the last consumed record; -1 if it is not known.
    committed_leader_epoch: int = wire("int32", since=8, default=-1)
    # Metadata that the client has stored with the offset.
    metadata: str | None = wire("string", since=8, nullable_since=8)
    error_code: int = wire("int16", since=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseTopics:
    """The offsets of one topic, from v8."""

    name: str = wire("string", since=8, until=9)
    topic_id: UUID = wire("uuid", since=10)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = wire_array(
        OffsetFetchResponsePartitions, since=8
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseGroup:
    group_id: str = wire("string", since=8)
    topics: tuple[OffsetFetchResponseTopics, ...] = wire_array(OffsetFetchResponseTopics, since=8)
    error_code: int = wire("int16", since=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponse:
    first_version, last_version, flexible_since = 1, 10, 6
    throttle_time_ms: int = wire("int32", since=3)
    # The offsets of the group, by topic.
    topics: tuple[OffsetFetchResponseTopic, ...] = wire_array(OffsetFetchResponseTopic, until=7)
    error_code: int = wire("int16", since=2, until=7)
    groups: tuple[OffsetFetchResponseGroup, ...] = wire_array(OffsetFetchResponseGroup, since=8)
