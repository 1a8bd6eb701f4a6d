"""AddPartitionsToTxn (24): a producer adds partitions to its transaction before it writes to them.

    v2   PRODUCER_FENCED                    v3   flexible

Only v0 to v3, which producers use: v4 and later are for brokers, with many transactions in one
request (KIP-890).
"""

from dataclasses import dataclass
from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: str = wire("string")
    """The topic."""
    partitions: tuple[int, ...] = wire_array("int32")
    """The partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnRequest:
    """Add these partitions to the transaction."""

    flexible_since: ClassVar[int] = 3

    v3_and_below_transactional_id: str = wire("string")
    """The transactional id."""
    v3_and_below_producer_id: int = wire("int64")
    """The producer's id."""
    v3_and_below_producer_epoch: int = wire("int16")
    """Its epoch."""
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = wire_array(AddPartitionsToTxnTopic)
    """The partitions, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnPartitionResult:
    """The result for one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    partition_error_code: int = wire("int16")
    """0, or why it is not in the transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnTopicResult:
    """The results for the partitions of one topic."""

    name: str = wire("string")
    """The topic."""
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = wire_array(
        AddPartitionsToTxnPartitionResult
    )
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnResponse:
    """The result for each partition: all are added, or none is."""

    flexible_since: ClassVar[int] = 3

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = wire_array(
        AddPartitionsToTxnTopicResult
    )
    """The partitions, by topic."""
