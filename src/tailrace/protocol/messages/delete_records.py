"""DeleteRecords (21): raises the log start offset of partitions.

v2   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsPartition:
    """The new log start of one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    offset: int = wire("int64")
    """The first offset that is kept; -1: the high watermark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsTopic:
    """The new log starts of one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[DeleteRecordsPartition, ...] = wire_array(DeleteRecordsPartition)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsRequest:
    """Delete the records below these offsets."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    topics: tuple[DeleteRecordsTopic, ...] = wire_array(DeleteRecordsTopic)
    """The offsets, by topic and partition."""
    timeout_ms: int = wire("int32")
    """Longest time to wait until all replicas have deleted them, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsPartitionResult:
    """The result for one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    low_watermark: int = wire("int64")
    """The first offset of its log now; -1 with an error."""
    error_code: int = wire("int16")
    """0, or why nothing was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsTopicResult:
    """The result for one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire_array(DeleteRecordsPartitionResult)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsResponse:
    """The log starts after the request."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    topics: tuple[DeleteRecordsTopicResult, ...] = wire_array(DeleteRecordsTopicResult)
    """The results, by topic and partition."""
