"""The operator's settings for transactions, under Kafka's names."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Limits and times of transactions, in milliseconds."""

    timeout_ms_max: int = 900_000
    """`transaction.max.timeout.ms`: the longest timeout that a client may ask for."""
    id_expiration_ms: int = 604_800_000
    """`transactional.id.expiration.ms`: how long an id stays after its last transaction."""
    abort_interval_ms: int = 10_000
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`: time between two searches for
    transactions that have been open for too long."""
    expiry_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`: time between two searches for
    ids to remove."""
