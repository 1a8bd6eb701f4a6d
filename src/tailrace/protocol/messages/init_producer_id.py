"""InitProducerId (22): an id for a producer, so that its retries are not appended twice.

    v2   flexible                           v3   the producer's id and epoch (KIP-360)

v4 and v5 add errors and change no field (KIP-588, KIP-890). v6 (KIP-939) is not here: Kafka 4.3
does not advertise it.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdRequest:
    """Ask for a producer id."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 6
    flexible_since: ClassVar[int] = 2

    transactional_id: str | None = wire("string", nullable_since=0)
    """The transactional id; None for a producer that is only idempotent."""
    transaction_timeout_ms: int = wire("int32")
    """Longest time that a transaction may stay open, in milliseconds."""
    producer_id: int = wire("int64", since=3, default=-1)
    """The current id of a producer that asks for a new epoch."""
    producer_epoch: int = wire("int16", since=3, default=-1)
    """The current epoch of that producer."""
    enable2_pc: bool = wire("bool", since=6)
    """Whether the producer takes part in two-phase commits (KIP-939)."""
    keep_prepared_txn: bool = wire("bool", since=6)
    """Whether to leave a prepared transaction as it is, not to abort it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdResponse:
    """The id and the epoch of the producer."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 6
    flexible_since: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or why there is none."""
    producer_id: int = wire("int64", default=-1)
    """The producer's id; -1 with an error."""
    producer_epoch: int = wire("int16")
    """The producer's epoch."""
    ongoing_txn_producer_id: int = wire("int64", since=6, default=-1)
    """Producer id of the prepared transaction; -1: there is none."""
    ongoing_txn_producer_epoch: int = wire("int16", since=6, default=-1)
    """Its epoch; -1: there is none."""
