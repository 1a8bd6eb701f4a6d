"""Records of `__transaction_state`: transactions by id.

v1   flexible; producer ids of other transactions in tags (KIP-890)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogKey:
    """The key: the transactional id."""

    record_type: ClassVar[int] = 0
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    transactional_id: str = wire("string")
    """The transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsSchema:
    """Partitions of one topic."""

    topic: str = wire("string")
    """The topic."""
    partition_ids: tuple[int, ...] = wire_array("int32")
    """Its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValue:
    """The state of a transaction."""

    record_type: ClassVar[int] = 0
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 1

    producer_id: int = wire("int64")
    """The producer's id."""
    previous_producer_id: int = wire("int64", since=1, tag=0, default=-1)
    """Producer id of the transaction before; -1: none, or the same."""
    next_producer_id: int = wire("int64", since=1, tag=1, default=-1)
    """Producer id of the next transaction, when the epochs of this one are used up; -1: the
    same."""
    producer_epoch: int = wire("int16")
    """The producer's epoch."""
    next_producer_epoch: int = wire("int16", since=1, tag=3, default=-1)
    """Epoch of the next producer id; -1: none."""
    transaction_timeout_ms: int = wire("int32")
    """Longest time that a transaction may stay open, in milliseconds."""
    transaction_status: int = wire("int8")
    """State of the transaction, by Kafka's number."""
    transaction_partitions: tuple[PartitionsSchema, ...] | None = wire_array(
        PartitionsSchema, nullable_since=0
    )
    """The partitions in it, by topic; None: none is open."""
    transaction_last_update_timestamp_ms: int = wire("int64")
    """Time of the last change, in milliseconds since 1970."""
    transaction_start_timestamp_ms: int = wire("int64")
    """Time of the start, in milliseconds since 1970; -1: none is open."""
    client_transaction_version: int = wire("int16", since=1, tag=2)
    """Version of the producer's transactions: 2 since KIP-890, 0 before."""
