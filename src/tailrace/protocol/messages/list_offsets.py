"""ListOffsets (2): the offset of a partition at a time, at its start or at its end.

    v1   one offset and its timestamp       v7   the largest timestamp (KIP-734)
    v2   isolation level                    v8   the start of the local log (KIP-405)
    v4   leader epochs (KIP-320)            v9   the end of the tiered log (KIP-1005)
    v6   flexible                           v10  a time limit (KIP-1075)

v11 adds a timestamp to ask for and changes no field (KIP-1023).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsPartition:
    """The requested timestamp of one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    current_leader_epoch: int = wire("int32", since=4, default=-1)
    """The leader epoch that the client knows; -1: not sent."""
    timestamp: int = wire("int64")
    """Milliseconds since 1970, or a `SpecialTimestamp`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsTopic:
    """The requested timestamps of one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[ListOffsetsPartition, ...] = wire_array(ListOffsetsPartition)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequest:
    """Ask for the offsets of these partitions at these times."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 11
    flexible_since: ClassVar[int] = 6

    replica_id: int = wire("int32")
    """The follower that asks; -1: a consumer."""
    isolation_level: int = wire("int8", since=2)
    """0: the end is the high watermark; 1: it is the last stable offset."""
    topics: tuple[ListOffsetsTopic, ...] = wire_array(ListOffsetsTopic)
    """The requested timestamps, by topic."""
    timeout_ms: int = wire("int32", since=10)
    """Longest time that a lookup in tiered storage may take, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsPartitionResponse:
    """The offset of one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    error_code: int = wire("int16")
    """0, or why there is no offset."""
    timestamp: int = wire("int64", since=1, default=-1)
    """Timestamp of the record found; -1: none."""
    offset: int = wire("int64", since=1, default=-1)
    """Its offset; -1: none."""
    leader_epoch: int = wire("int32", since=4, default=-1)
    """Its leader epoch; -1: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsTopicResponse:
    """The offsets of one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire_array(ListOffsetsPartitionResponse)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponse:
    """The requested offsets."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 11
    flexible_since: ClassVar[int] = 6

    throttle_time_ms: int = wire("int32", since=2)
    """Time for which a quota throttles the client, in milliseconds."""
    topics: tuple[ListOffsetsTopicResponse, ...] = wire_array(ListOffsetsTopicResponse)
    """The offsets, by topic."""
