"""TxnOffsetCommit (28): offsets of a consumer group that are committed with the transaction.

    v2   leader epochs (KIP-320)            v3   flexible; the member that consumed (KIP-447)

v4 adds an error and changes no field (KIP-890).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestPartition:
    partition_index: int = wire("int32")
    committed_offset: int = wire("int64")  # Offset of the next record to consume.
    # Leader epoch of the last consumed record; -1 if it is not known.
    committed_leader_epoch: int = wire("int32", since=2, default=-1)
    # Metadata that the client stores with the offset.
    committed_metadata: str | None = wire("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestTopic:
    name: str = wire("string")
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = wire_array(
        TxnOffsetCommitRequestPartition
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequest:
    first_version, last_version, flexible_since = 0, 5, 3
    transactional_id: str = wire("string")
    group_id: str = wire("string")
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")
    # Generation of the group in which the member consumed; -1: not checked.
    generation_id: int = wire("int32", since=3, default=-1)
    member_id: str = wire("string", since=3)  # The member that consumed.
    # The member's instance id, if it is static (KIP-345).
    group_instance_id: str | None = wire("string", since=3, nullable_since=3, default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = wire_array(TxnOffsetCommitRequestTopic)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponsePartition:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponseTopic:
    name: str = wire("string")
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = wire_array(
        TxnOffsetCommitResponsePartition
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponse:
    first_version, last_version, flexible_since = 0, 5, 3
    throttle_time_ms: int = wire("int32")
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = wire_array(TxnOffsetCommitResponseTopic)
