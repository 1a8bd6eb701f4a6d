"""Abort transactions that are open for too long, and remove ids that nobody uses."""

from collections.abc import Iterator
from itertools import islice

from tailrace.coordinator.transactions.state import Transaction, TransactionStatus
from tailrace.coordinator.transactions.transitions import IDLE

LOOKED_AT_MAX = 5_000
"""Ids that are looked at in one turn of the event loop."""
BATCH_BYTES_MAX = 500_000
"""Size of one batch of tombstones, about half of what `max.message.bytes` is by default."""
_TOMBSTONE_BYTES = 32
"""Size of a tombstone without its id, at most."""


def is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    """Whether the coordinator aborts it, because its client has not ended it in time."""
    return (
        transaction.status is TransactionStatus.ONGOING
        and transaction.start_ms + transaction.timeout_ms < now_ms
    )


def is_expired(transaction: Transaction, expiration_ms: int, *, now_ms: int) -> bool:
    """Whether its id is removed, because nobody has used it for so long."""
    return transaction.status in IDLE and transaction.updated_ms + expiration_ms <= now_ms


def take_expired(
    transactions: Iterator[Transaction | None], expiration_ms: int, *, now_ms: int
) -> tuple[list[str], bool]:
    """The next expired ids, whose tombstones fit into one batch, and whether these are all.

    An id that does not fit into a batch beside others is the last of its batch.
    """
    expired: list[str] = []
    size = looked_at = 0
    for transaction in islice(transactions, LOOKED_AT_MAX):
        looked_at += 1
        if transaction is not None and is_expired(transaction, expiration_ms, now_ms=now_ms):
            expired.append(transaction.transactional_id)
            size += len(transaction.transactional_id.encode()) + _TOMBSTONE_BYTES
            if size > BATCH_BYTES_MAX:
                return expired, False
    return expired, looked_at < LOOKED_AT_MAX
