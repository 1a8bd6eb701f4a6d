"""DescribeTransactions (65): transactions by id, and their partitions (KIP-664)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsRequest:
    first_version, last_version, flexible_since = 0, 0, 0
    transactional_ids: tuple[str, ...] = wire_array("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicData:
    topic: str = wire("string")
    partitions: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    error_code: int = wire("int16")
    transactional_id: str = wire("string")
    transaction_state: str = wire("string")
    transaction_timeout_ms: int = wire("int32")  # Longest time that a transaction may stay open.
    # Time of the start; since 1970; -1: none is open.
    transaction_start_time_ms: int = wire("int64")
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")
    topics: tuple[TopicData, ...] = wire_array(TopicData)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse:
    first_version, last_version, flexible_since = 0, 0, 0
    throttle_time_ms: int = wire("int32")
    transaction_states: tuple[TransactionState, ...] = wire_array(TransactionState)
