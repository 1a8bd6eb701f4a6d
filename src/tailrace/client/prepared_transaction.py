"""`PreparedTransaction`: an open transaction that somebody else than its producer ends."""

from typing import NamedTuple


class PreparedTransaction(NamedTuple):
    """An open transaction whose records are all in the log; its numbers suffice to end it.

    It is a few numbers, which may be kept in a file: `Producer.prepare_transaction` gives it,
    `Admin.end_transactions` commits or aborts it. Until then, or until `transaction.timeout.ms`
    has passed, readers of committed records wait at its first one.
    """

    transactional_id: str
    """The transactional id of its producer."""
    producer_id: int
    """The id that the producer had."""
    producer_epoch: int
    """Its epoch; a producer that uses the transactional id later has another."""
    transaction_version: int = 0
    """Level of the feature `transaction.version` that it began under (KIP-890)."""
