"""ListOffsets (2): the offset of a partition at a time, at its start or at its end.

    v1   one offset and its timestamp       v7   the largest timestamp (KIP-734)
    v2   isolation level                    v8   the start of the local log (KIP-405)
    v4   leader epochs (KIP-320)            v9   the end of the tiered log (KIP-1005)
    v6   flexible                           v10  a time limit (KIP-1075)

v11 adds a timestamp to ask for and changes no field (KIP-1023).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsPartition:
    partition_index: int = wire("int32")
    # The leader epoch that the client knows; -1: not sent.
    current_leader_epoch: int = wire("int32", since=4, default=-1)
    timestamp: int = wire("int64")  # In ms since 1970, or a `SpecialTimestamp`.


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsTopic:
    name: str = wire("string")
    partitions: tuple[ListOffsetsPartition, ...] = wire_array(ListOffsetsPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequest:
    first_version, last_version, flexible_since = 1, 11, 6
    replica_id: int = wire("int32")  # The follower that asks; -1: a consumer.
    # 0: the end is the high watermark; 1: it is the last stable offset.
    isolation_level: int = wire("int8", since=2)
    topics: tuple[ListOffsetsTopic, ...] = wire_array(ListOffsetsTopic)
    # Longest time that a lookup in tiered storage may take.
    timeout_ms: int = wire("int32", since=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsPartitionResponse:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")
    timestamp: int = wire("int64", since=1, default=-1)  # Timestamp of the record found; -1: none.
    offset: int = wire("int64", since=1, default=-1)  # Its offset; -1: none.
    leader_epoch: int = wire("int32", since=4, default=-1)  # Its leader epoch; -1: none.


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsTopicResponse:
    name: str = wire("string")
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire_array(ListOffsetsPartitionResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponse:
    first_version, last_version, flexible_since = 1, 11, 6
    throttle_time_ms: int = wire("int32", since=2)
    topics: tuple[ListOffsetsTopicResponse, ...] = wire_array(ListOffsetsTopicResponse)
