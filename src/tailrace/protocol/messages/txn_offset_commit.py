"""TxnOffsetCommit (28): offsets of a consumer group that are committed with the transaction.

    v2   leader epochs (KIP-320)            v3   flexible; the member that consumed (KIP-447)

v4 adds an error and changes no field (KIP-890).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestPartition:
    """The offset to commit for one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    committed_offset: int = wire("int64")
    """Offset of the next record to consume."""
    committed_leader_epoch: int = wire("int32", since=2, default=-1)
    """Leader epoch of the last consumed record; -1 if it is not known."""
    committed_metadata: str | None = wire("string", nullable_since=0)
    """Metadata that the client stores with the offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestTopic:
    """The offsets to commit for the partitions of one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = wire_array(
        TxnOffsetCommitRequestPartition
    )
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequest:
    """Commit these offsets with the transaction."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 5
    flexible_since: ClassVar[int] = 3

    transactional_id: str = wire("string")
    """The transactional id."""
    group_id: str = wire("string")
    """The consumer group."""
    producer_id: int = wire("int64")
    """The producer's id."""
    producer_epoch: int = wire("int16")
    """The producer's epoch."""
    generation_id: int = wire("int32", since=3, default=-1)
    """Generation of the group in which the member consumed; -1: not checked."""
    member_id: str = wire("string", since=3)
    """The member that consumed."""
    group_instance_id: str | None = wire("string", since=3, nullable_since=3, default=None)
    """The member's instance id, if it is static (KIP-345)."""
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = wire_array(TxnOffsetCommitRequestTopic)
    """The offsets, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponsePartition:
    """The result for the offset of one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    error_code: int = wire("int16")
    """0, or why it was not accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponseTopic:
    """The results for the offsets of one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = wire_array(
        TxnOffsetCommitResponsePartition
    )
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponse:
    """The results for all offsets."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 5
    flexible_since: ClassVar[int] = 3

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = wire_array(TxnOffsetCommitResponseTopic)
    """The offsets, by topic."""
