"""DeleteRecords (21): where the logs of partitions are to start from now on.

v2   flexible
"""

from dataclasses import dataclass
from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsPartition:
    """What is to go from one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    offset: int = wire("int64")
    """The first offset that stays; -1: the high watermark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsTopic:
    """What is to go from one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[DeleteRecordsPartition, ...] = wire_array(DeleteRecordsPartition)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsRequest:
    """Delete the records below these offsets."""

    flexible_since: ClassVar[int] = 2

    topics: tuple[DeleteRecordsTopic, ...] = wire_array(DeleteRecordsTopic)
    """The offsets, by topic and partition."""
    timeout_ms: int = wire("int32")
    """How long to wait until all replicas have deleted them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsPartitionResult:
    """What became of one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    low_watermark: int = wire("int64")
    """The first offset of its log now; -1 with an error."""
    error_code: int = wire("int16")
    """0, or why nothing was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsTopicResult:
    """What became of one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire_array(DeleteRecordsPartitionResult)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsResponse:
    """Where the logs start now."""

    flexible_since: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32")
    """How long the client is held back by a quota."""
    topics: tuple[DeleteRecordsTopicResult, ...] = wire_array(DeleteRecordsTopicResult)
    """The outcome, by topic and partition."""
