"""DescribeProducers (61): the state that partitions keep for producers (KIP-664)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRequest:
    name: str = wire("string")
    partition_indexes: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeProducersRequest:
    first_version, last_version, flexible_since = 0, 0, 0
    topics: tuple[TopicRequest, ...] = wire_array(TopicRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int32")
    last_sequence: int = wire("int32", default=-1)  # Sequence number of its last record; -1: none.
    # Timestamp of its last batch, in ms since 1970; -1: none.
    last_timestamp: int = wire("int64", default=-1)
    coordinator_epoch: int = wire("int32")  # Epoch of the coordinator that wrote its last marker.
    # First offset of its open transaction; -1: none is open.
    current_txn_start_offset: int = wire("int64", default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResponse:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0, default=None)
    # Producers with state in this partition.
    active_producers: tuple[ProducerState, ...] = wire_array(ProducerState)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResponse:
    name: str = wire("string")
    partitions: tuple[PartitionResponse, ...] = wire_array(PartitionResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeProducersResponse:
    first_version, last_version, flexible_since = 0, 0, 0
    throttle_time_ms: int = wire("int32")
    topics: tuple[TopicResponse, ...] = wire_array(TopicResponse)
