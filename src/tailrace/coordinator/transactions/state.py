"""A transaction as a value: what a record of `__transaction_state` says, and one field more."""

from enum import IntEnum
from typing import Final

from tailrace.coordinator.machine import TransactionalProducer
from tailrace.model import NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from tailrace.values import dataclass

NO_EPOCH: Final = ProducerEpoch(-1)
"""No producer epoch."""
NO_TIME = -1
"""No transaction has begun."""
EPOCH_MAX = 32_767
LAST_EPOCH_OF_CLIENTS = EPOCH_MAX - 1
"""Clients never get `EPOCH_MAX`, so that every producer can be fenced with one epoch more."""

CLASSIC = 0
"""Transaction version of clients before KIP-890; version 1 changed records only."""
EPOCH_PER_TRANSACTION = 2
"""Transaction version since KIP-890: each end raises the epoch."""


class TransactionStatus(IntEnum):
    """State of a transaction, by Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Never stored: in Kafka, the id is being removed. Here it is gone with its tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """Never stored: in Kafka, an abort that the coordinator decides on is being written."""

    @property
    def label(self) -> str:
        """Kafka's name, as `PrepareCommit`."""
        return self.name.title().replace("_", "")


PREPARED = frozenset({TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT})
"""The end is decided, and markers are being written."""
COMPLETE = frozenset({TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT})
"""All markers are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The newest transaction of a transactional id, and its producer."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id before the last change."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id after the markers, if the epochs of this one are used up."""
    last_epoch: ProducerEpoch = NO_EPOCH
    """The epoch before, by which a repeated InitProducerId is known, and one whose client has not
    heard that its transaction was aborted. No record has it: a new leader fences what this one
    would have answered again, as in Kafka."""
    timeout_ms: int
    """Milliseconds for which a transaction may be open."""
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """Partitions of the open transaction."""
    updated_ms: int
    """Time of the last change."""
    start_ms: int = NO_TIME
    """When the newest transaction began."""
    client_version: int = CLASSIC
    """Transaction version of the client that changed it last."""

    @property
    def producer(self) -> TransactionalProducer:
        """Id and epoch of the producer that may write now."""
        return TransactionalProducer(self.producer_id, self.producer_epoch)

    @property
    def next_producer(self) -> TransactionalProducer:
        """Id and epoch with which the client continues after this end of a transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return TransactionalProducer(self.next_producer_id, ProducerEpoch(0))
        return self.producer

    @property
    def is_prepared(self) -> bool:
        """Whether its end is decided and not complete."""
        return self.status in PREPARED

    @property
    def is_commit(self) -> bool:
        """Whether its end is, or was, a commit."""
        return self.status in {
            TransactionStatus.PREPARE_COMMIT,
            TransactionStatus.COMPLETE_COMMIT,
        }

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left that a client may get."""
        return is_exhausted(self.producer_epoch)


def is_exhausted(epoch: ProducerEpoch) -> bool:
    """Whether no epoch is left behind this one that a client may get."""
    return epoch >= LAST_EPOCH_OF_CLIENTS
