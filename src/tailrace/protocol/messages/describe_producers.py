"""DescribeProducers (61): the state that partitions keep for producers (KIP-664)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRequest:
    """Partitions of one topic."""

    name: str = wire("string")
    """The topic."""
    partition_indexes: tuple[int, ...] = wire_array("int32")
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeProducersRequest:
    """Ask for the producers of these partitions."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    topics: tuple[TopicRequest, ...] = wire_array(TopicRequest)
    """The partitions, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """The state of one producer in one partition."""

    producer_id: int = wire("int64")
    """The producer's id."""
    producer_epoch: int = wire("int32")
    """The producer's epoch."""
    last_sequence: int = wire("int32", default=-1)
    """Sequence number of its last record; -1: none."""
    last_timestamp: int = wire("int64", default=-1)
    """Timestamp of its last batch, in milliseconds since 1970; -1: none."""
    coordinator_epoch: int = wire("int32")
    """Epoch of the coordinator that wrote its last marker."""
    current_txn_start_offset: int = wire("int64", default=-1)
    """First offset of its open transaction; -1: none is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", nullable_since=0, default=None)
    """The error message, or None."""
    active_producers: tuple[ProducerState, ...] = wire_array(ProducerState)
    """Producers with state in this partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResponse:
    """The producers of one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[PartitionResponse, ...] = wire_array(PartitionResponse)
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeProducersResponse:
    """The producers."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    topics: tuple[TopicResponse, ...] = wire_array(TopicResponse)
    """The producers, by topic and partition."""
