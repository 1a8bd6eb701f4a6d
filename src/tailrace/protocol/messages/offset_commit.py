"""OffsetCommit (8): commits offsets of a consumer group.

    v6   leader epochs (KIP-320)            v8   flexible
    v7   static members (KIP-345)           v10  topic ids in place of names (KIP-848)

Up to v4 a request has a retention time of its own (KIP-211). v3 adds the throttle time, v9 errors
for members of the consumer protocol (KIP-848).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestPartition:
    partition_index: int = wire("int32")
    committed_offset: int = wire("int64")  # Offset of the next record to consume.
    # Leader epoch of the last consumed record; -1 if it is not known.
    committed_leader_epoch: int = wire("int32", since=6, default=-1)
    # Metadata that the client stores with the offset.
    committed_metadata: str | None = wire("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestTopic:
    name: str = wire("string", until=9)
    topic_id: UUID = wire("uuid", since=10)
    partitions: tuple[OffsetCommitRequestPartition, ...] = wire_array(OffsetCommitRequestPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequest:
    first_version, last_version, flexible_since = 2, 10, 8
    group_id: str = wire("string")
    # Generation of a classic group, or epoch of a member; -1: not a member.
    generation_id_or_member_epoch: int = wire("int32", since=1, default=-1)
    member_id: str = wire("string", since=1)
    # The member's instance id, if it is static (KIP-345).
    group_instance_id: str | None = wire("string", since=7, nullable_since=7, default=None)
    # Time to keep the offsets; -1: the broker's setting.
    retention_time_ms: int = wire("int64", since=2, until=4, default=-1)
    topics: tuple[OffsetCommitRequestTopic, ...] = wire_array(OffsetCommitRequestTopic)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponsePartition:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponseTopic:
    name: str = wire("string", until=9)
    topic_id: UUID = wire("uuid", since=10)
    partitions: tuple[OffsetCommitResponsePartition, ...] = wire_array(
        OffsetCommitResponsePartition
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponse:
    first_version, last_version, flexible_since = 2, 10, 8
    throttle_time_ms: int = wire("int32", since=3)
    topics: tuple[OffsetCommitResponseTopic, ...] = wire_array(OffsetCommitResponseTopic)
