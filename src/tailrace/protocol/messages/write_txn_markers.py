"""WriteTxnMarkers (27): the coordinator tells leaders of partitions that transactions have ended.

    v1   flexible                           v2   the version of the transaction (KIP-1228)

Only brokers send it.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: str = wire("string")
    """The topic."""
    partition_indexes: tuple[int, ...] = wire_array("int32")
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarker:
    """The end of one transaction."""

    producer_id: int = wire("int64")
    """The producer's id."""
    producer_epoch: int = wire("int16")
    """The producer's epoch."""
    transaction_result: bool = wire("bool")
    """Whether it is committed; else it is aborted."""
    topics: tuple[WritableTxnMarkerTopic, ...] = wire_array(WritableTxnMarkerTopic)
    """The partitions that need a marker, by topic."""
    coordinator_epoch: int = wire("int32")
    """Leader epoch of the coordinator's partition of `__transaction_state`."""
    transaction_version: int = wire("int8", since=2)
    """0 or 1: before KIP-890; 2: each transaction has a new epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTxnMarkersRequest:
    """Write markers for these transactions."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 1

    markers: tuple[WritableTxnMarker, ...] = wire_array(WritableTxnMarker)
    """The transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerPartitionResult:
    """The result for one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    error_code: int = wire("int16")
    """0, or why it has no marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerTopicResult:
    """The results for one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = wire_array(
        WritableTxnMarkerPartitionResult
    )
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerResult:
    """The results for one transaction."""

    producer_id: int = wire("int64")
    """The producer's id."""
    topics: tuple[WritableTxnMarkerTopicResult, ...] = wire_array(WritableTxnMarkerTopicResult)
    """The results, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTxnMarkersResponse:
    """The results for all transactions."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 1

    markers: tuple[WritableTxnMarkerResult, ...] = wire_array(WritableTxnMarkerResult)
    """The results, by producer id."""
