"""ListTransactions (66): the transactions that a broker coordinates (KIP-664).

v1   by duration (KIP-994)              v2   by a pattern of ids (KIP-1152)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactionsRequest:
    """Ask for the transactions of this broker."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 0

    state_filters: tuple[str, ...] = wire_array("string")
    """Only transactions in these states; empty: all."""
    producer_id_filters: tuple[int, ...] = wire_array("int64")
    """Only transactions of these producer ids; empty: all."""
    duration_filter: int = wire("int64", since=1, default=-1)
    """Only transactions open for at least so many milliseconds; -1: all."""
    transactional_id_pattern: str | None = wire("string", since=2, nullable_since=2, default=None)
    """Only ids that match this regular expression; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """A transaction."""

    transactional_id: str = wire("string")
    """The transactional id."""
    producer_id: int = wire("int64")
    """The producer's id."""
    transaction_state: str = wire("string")
    """State of the transaction, by Kafka's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactionsResponse:
    """The transactions of the broker."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or why there is no list."""
    unknown_state_filters: tuple[str, ...] = wire_array("string")
    """The requested states that the broker does not know."""
    transaction_states: tuple[TransactionState, ...] = wire_array(TransactionState)
    """The transactions."""
