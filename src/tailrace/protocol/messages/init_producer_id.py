"""InitProducerId (22): an id for a producer, so that its retries are not appended twice.

    v2   flexible                           v3   the producer's id and epoch (KIP-360)

v4 and v5 add errors and change no field (KIP-588, KIP-890). v6 (KIP-939) is not served: Kafka 4.3
does not advertise it.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdRequest:
    first_version, last_version, flexible_since = 0, 6, 2
    # The transactional id; None for a producer that is only idempotent.
    transactional_id: str | None = wire("string", nullable_since=0)
    transaction_timeout_ms: int = wire("int32")  # Longest time that a transaction may stay open.
    # The current id of a producer that asks for a new epoch.
    producer_id: int = wire("int64", since=3, default=-1)
    producer_epoch: int = wire("int16", since=3, default=-1)  # The current epoch of that producer.
    # Whether the producer takes part in two-phase commits (KIP-939).
    enable2_pc: bool = wire("bool", since=6)
    # Whether to leave a prepared transaction as it is, not to abort it.
    keep_prepared_txn: bool = wire("bool", since=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdResponse:
    """The id and the epoch of the producer."""

    first_version, last_version, flexible_since = 0, 6, 2
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    producer_id: int = wire("int64", default=-1)  # The producer's id; -1 with an error.
    producer_epoch: int = wire("int16")
    # Producer id of the prepared transaction; -1: there is none.
    ongoing_txn_producer_id: int = wire("int64", since=6, default=-1)
    # Its epoch; -1: there is none.
    ongoing_txn_producer_epoch: int = wire("int16", since=6, default=-1)
