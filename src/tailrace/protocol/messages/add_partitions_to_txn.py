"""AddPartitionsToTxn (24): a producer takes partitions into its transaction, then writes to them.

    v2   PRODUCER_FENCED                    v3   flexible

Up to v3, the versions of producers: from v4 on brokers ask each other, for many transactions at
once (KIP-890).
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
    """Take these partitions in."""

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
    """What became of one partition."""

    partition_index: int = wire("int32")
    """The partition."""
    partition_error_code: int = wire("int16")
    """0, or why it is not in the transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnTopicResult:
    """What became of the partitions of one topic."""

    name: str = wire("string")
    """The topic."""
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = wire_array(
        AddPartitionsToTxnPartitionResult
    )
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnResponse:
    """What became of each; all are in, or none is."""

    flexible_since: ClassVar[int] = 3

    throttle_time_ms: int = wire("int32")
    """How long the client is held back by a quota."""
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = wire_array(
        AddPartitionsToTxnTopicResult
    )
    """The partitions, by topic."""
