"""DeleteRecords (21): raises the log start offset of partitions.

v2   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsPartition:
    """The new log start of one partition."""

    partition_index: int = wire("int32")
    offset: int = wire("int64")  # The first offset that is kept; -1: the high watermark.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsTopic:
    name: str = wire("string")
    partitions: tuple[DeleteRecordsPartition, ...] = wire_array(DeleteRecordsPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsRequest:
    first_version, last_version, flexible_since = 0, 2, 2
    topics: tuple[DeleteRecordsTopic, ...] = wire_array(DeleteRecordsTopic)
    timeout_ms: int = wire("int32")  # Longest time to wait until all replicas have deleted them.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsPartitionResult:
    partition_index: int = wire("int32")
    low_watermark: int = wire("int64")  # The first offset of its log now; -1 with an error.
    error_code: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsTopicResult:
    name: str = wire("string")
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire_array(DeleteRecordsPartitionResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsResponse:
    first_version, last_version, flexible_since = 0, 2, 2
    throttle_time_ms: int = wire("int32")
    topics: tuple[DeleteRecordsTopicResult, ...] = wire_array(DeleteRecordsTopicResult)
