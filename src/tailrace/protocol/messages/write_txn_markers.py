"""WriteTxnMarkers (27): the coordinator tells leaders of partitions that transactions have ended.

    v1   flexible                           v2   the version of the transaction (KIP-1228)

Only brokers send it.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerTopic:
    name: str = wire("string")
    partition_indexes: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarker:
    """The end of one transaction."""

    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")
    transaction_result: bool = wire("bool")  # Whether it is committed; else it is aborted.
    topics: tuple[WritableTxnMarkerTopic, ...] = wire_array(WritableTxnMarkerTopic)
    # Leader epoch of the coordinator's partition of `__transaction_state`.
    coordinator_epoch: int = wire("int32")
    # 0 or 1: before KIP-890; 2: each transaction has a new epoch.
    transaction_version: int = wire("int8", since=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTxnMarkersRequest:
    first_version, last_version, flexible_since = 1, 2, 1
    markers: tuple[WritableTxnMarker, ...] = wire_array(WritableTxnMarker)  # The transactions.


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerPartitionResult:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerTopicResult:
    name: str = wire("string")
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = wire_array(
        WritableTxnMarkerPartitionResult
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerResult:
    producer_id: int = wire("int64")
    topics: tuple[WritableTxnMarkerTopicResult, ...] = wire_array(WritableTxnMarkerTopicResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTxnMarkersResponse:
    first_version, last_version, flexible_since = 1, 2, 1
    markers: tuple[WritableTxnMarkerResult, ...] = wire_array(WritableTxnMarkerResult)
