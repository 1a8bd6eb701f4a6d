"""OffsetForLeaderEpoch (23): where a leader epoch ends in a log, to find where two logs diverge.

v2   current leader epoch (KIP-320)     v4   flexible
v3   follower's id (KIP-392)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderPartition:
    partition: int = wire("int32")
    # The leader epoch that the client knows; -1: not sent.
    current_leader_epoch: int = wire("int32", since=2, default=-1)
    leader_epoch: int = wire("int32")  # The epoch whose end is asked for.


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderTopic:
    topic: str = wire("string")
    partitions: tuple[OffsetForLeaderPartition, ...] = wire_array(OffsetForLeaderPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochRequest:
    first_version, last_version, flexible_since = 2, 4, 4
    # The follower that asks; -1: a consumer, -2: one that may see above the high watermark.
    replica_id: int = wire("int32", since=3, default=-2)
    topics: tuple[OffsetForLeaderTopic, ...] = wire_array(OffsetForLeaderTopic)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffset:
    error_code: int = wire("int16")
    partition: int = wire("int32")
    # The largest epoch that is not above the requested one; -1: none.
    leader_epoch: int = wire("int32", since=1, default=-1)
    end_offset: int = wire("int64", default=-1)  # The offset after its last record; -1: none.


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderTopicResult:
    topic: str = wire("string")
    partitions: tuple[EpochEndOffset, ...] = wire_array(EpochEndOffset)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochResponse:
    first_version, last_version, flexible_since = 2, 4, 4
    throttle_time_ms: int = wire("int32", since=2)
    topics: tuple[OffsetForLeaderTopicResult, ...] = wire_array(OffsetForLeaderTopicResult)
