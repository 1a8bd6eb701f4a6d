"""DescribeTransactions (65): transactions by id, and their partitions (KIP-664)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsRequest:
    """Describe these transactions."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    transactional_ids: tuple[str, ...] = wire_array("string")
    """The transactional ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicData:
    """Partitions of one topic."""

    topic: str = wire("string")
    """The topic."""
    partitions: tuple[int, ...] = wire_array("int32")
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """The state of one transaction."""

    error_code: int = wire("int16")
    """0, or why it is not described."""
    transactional_id: str = wire("string")
    """The transactional id."""
    transaction_state: str = wire("string")
    """State of the transaction, by Kafka's name."""
    transaction_timeout_ms: int = wire("int32")
    """Longest time that a transaction may stay open, in milliseconds."""
    transaction_start_time_ms: int = wire("int64")
    """Time of the start, in milliseconds since 1970; -1: none is open."""
    producer_id: int = wire("int64")
    """The producer's id."""
    producer_epoch: int = wire("int16")
    """The producer's epoch."""
    topics: tuple[TopicData, ...] = wire_array(TopicData)
    """The partitions of the open transaction, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse:
    """The transactions."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    transaction_states: tuple[TransactionState, ...] = wire_array(TransactionState)
    """The transactions."""
