"""OffsetForLeaderEpoch (23): where a leader epoch ends in a log, to find where two logs diverge.

v2   current leader epoch (KIP-320)     v4   flexible
v3   follower's id (KIP-392)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderPartition:
    """The requested epoch of one partition."""

    partition: int = wire("int32")
    """The partition."""
    current_leader_epoch: int = wire("int32", since=2, default=-1)
    """The leader epoch that the client knows; -1: not sent."""
    leader_epoch: int = wire("int32")
    """The epoch whose end is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderTopic:
    """The requested epochs of one topic."""

    topic: str = wire("string")
    """The topic."""
    partitions: tuple[OffsetForLeaderPartition, ...] = wire_array(OffsetForLeaderPartition)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochRequest:
    """Ask where these epochs end."""

    first_version: ClassVar[int] = 2
    last_version: ClassVar[int] = 4
    flexible_since: ClassVar[int] = 4

    replica_id: int = wire("int32", since=3, default=-2)
    """The follower that asks; -1: a consumer, -2: one that may see above the high watermark."""
    topics: tuple[OffsetForLeaderTopic, ...] = wire_array(OffsetForLeaderTopic)
    """The epochs, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffset:
    """The end of one epoch."""

    error_code: int = wire("int16")
    """0, or why there is none."""
    partition: int = wire("int32")
    """The partition."""
    leader_epoch: int = wire("int32", since=1, default=-1)
    """The largest epoch that is not above the requested one; -1: none."""
    end_offset: int = wire("int64", default=-1)
    """The offset after its last record; -1: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderTopicResult:
    """The ends of the epochs of one topic."""

    topic: str = wire("string")
    """The topic."""
    partitions: tuple[EpochEndOffset, ...] = wire_array(EpochEndOffset)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochResponse:
    """The ends of the epochs."""

    first_version: ClassVar[int] = 2
    last_version: ClassVar[int] = 4
    flexible_since: ClassVar[int] = 4

    throttle_time_ms: int = wire("int32", since=2)
    """Time for which a quota throttles the client, in milliseconds."""
    topics: tuple[OffsetForLeaderTopicResult, ...] = wire_array(OffsetForLeaderTopicResult)
    """The ends, by topic."""
