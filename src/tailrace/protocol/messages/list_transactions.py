"""ListTransactions (66): the transactions that a broker coordinates (KIP-664).

v1   by duration (KIP-994)              v2   by a pattern of ids (KIP-1152)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactionsRequest:
    first_version, last_version, flexible_since = 0, 2, 0
    # Only transactions in these states; empty: all.
    state_filters: tuple[str, ...] = wire_array("string")
    # Only transactions of these producer ids; empty: all.
    producer_id_filters: tuple[int, ...] = wire_array("int64")
    # Only transactions open for at least this time, in ms; -1: all.
    duration_filter: int = wire("int64", since=1, default=-1)
    # Only ids that match this regular expression; None: all.
    transactional_id_pattern: str | None = wire("string", since=2, nullable_since=2, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    transactional_id: str = wire("string")
    producer_id: int = wire("int64")
    transaction_state: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactionsResponse:
    first_version, last_version, flexible_since = 0, 2, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    # The requested states that the broker does not know.
    unknown_state_filters: tuple[str, ...] = wire_array("string")
    transaction_states: tuple[TransactionState, ...] = wire_array(TransactionState)
