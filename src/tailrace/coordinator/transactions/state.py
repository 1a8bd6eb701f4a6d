"""A transaction as a value, and the changes that it can go through: functions from value to value.

    Empty, CompleteX -> Empty            InitProducerId
    Empty, CompleteX, Ongoing -> Ongoing partitions are added
    Ongoing -> PrepareX                  the end is decided: by its client, by time, by a new one
    Empty, CompleteX -> PrepareAbort     a client of KIP-890 aborts without having added anything
    PrepareX -> CompleteX                all markers are written

Each function asserts its arrow; `requests` decides who may go through it.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from tailrace.coordinator.machine import TransactionalProducer
from tailrace.model import (
    NO_PRODUCER_ID,
    PRODUCER_EPOCH_MAX,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from tailrace.values import dataclass, replace

NO_EPOCH: Final = ProducerEpoch(-1)
"""No producer epoch."""
NO_TIME = -1
"""No transaction has begun."""
LAST_EPOCH_OF_CLIENTS = PRODUCER_EPOCH_MAX - 1
"""Clients never get the last one, so that every producer can be fenced with one epoch more."""

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
IDLE = COMPLETE | {TransactionStatus.EMPTY}
"""Nothing is open: a transaction may begin, and the id may expire."""


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
    """The epoch before: a repeated InitProducerId has it, and one whose client does not know that
    its transaction was aborted. No record has it: a new leader fences what this one would have
    answered again, as in Kafka."""
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
    """Whether no epoch is left after this one that a client may get."""
    return epoch >= LAST_EPOCH_OF_CLIENTS


def created(
    transactional_id: str, producer_id: ProducerId, *, timeout_ms: int, now_ms: int
) -> Transaction:
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=ProducerEpoch(0),
        previous_producer_id=producer_id,
        timeout_ms=timeout_ms,
        updated_ms=now_ms,
    )


def initialized(
    current: Transaction,
    *,
    epoch: ProducerEpoch,
    last_epoch: ProducerEpoch,
    timeout_ms: int,
    now_ms: int,
) -> Transaction:
    """With this epoch of the same producer id, and no transaction."""
    assert current.status in IDLE
    assert epoch in {current.producer_epoch, current.producer_epoch + 1}
    # The current epoch again is the answer to a repeated request, which may come a third time.
    is_repeated = epoch == current.producer_epoch
    follower = replace(
        current,
        producer_epoch=epoch,
        last_epoch=last_epoch,
        previous_producer_id=current.previous_producer_id if is_repeated else current.producer_id,
    )
    return _emptied(follower, timeout_ms, now_ms)


def rotated(
    current: Transaction,
    producer_id: ProducerId,
    *,
    has_expected: bool,
    timeout_ms: int,
    now_ms: int,
) -> Transaction:
    """With a new producer id, because the epochs of the current one are used up.

    With `has_expected` the client has named its epoch, and may repeat the request with it.
    """
    assert current.status in IDLE
    follower = replace(
        current,
        producer_id=producer_id,
        producer_epoch=ProducerEpoch(0),
        last_epoch=current.producer_epoch if has_expected else NO_EPOCH,
        previous_producer_id=current.producer_id,
    )
    return _emptied(follower, timeout_ms, now_ms)


def extended(
    current: Transaction,
    partitions: Iterable[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
) -> Transaction:
    """With these partitions in its transaction, which begins now if none is open."""
    # The timeout counts from the first partition on, and not from the last.
    is_open = current.status is TransactionStatus.ONGOING
    assert is_open or current.status in IDLE
    return replace(
        current,
        status=TransactionStatus.ONGOING,
        previous_producer_id=current.producer_id,
        partitions=current.partitions.union(partitions),
        start_ms=current.start_ms if is_open else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def prepared(
    current: Transaction,
    *,
    is_commit: bool,
    client_version: int,
    now_ms: int,
    next_producer_id: ProducerId = NO_PRODUCER_ID,
) -> Transaction:
    """With its end decided; since KIP-890 under the next epoch, which fences what comes late."""
    is_open = current.status is TransactionStatus.ONGOING
    assert is_open or (current.status in IDLE and not is_commit)
    raises_epoch = client_version >= EPOCH_PER_TRANSACTION
    # There is none after the last one; the client continues with the next producer id.
    epoch = ProducerEpoch(min(current.producer_epoch + raises_epoch, PRODUCER_EPOCH_MAX))
    status = TransactionStatus.PREPARE_COMMIT if is_commit else TransactionStatus.PREPARE_ABORT
    return replace(
        current,
        status=status,
        producer_epoch=epoch,
        last_epoch=current.producer_epoch if raises_epoch else current.last_epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=next_producer_id,
        start_ms=current.start_ms if is_open else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def aborted_by_coordinator(
    current: Transaction, now_ms: int, *, new_producer_id: ProducerId | None
) -> Transaction | None:
    """With its abort decided here, under the next epoch, which fences the client.

    If the epochs are used up, its producer continues with `new_producer_id`; None: it needs one.
    """
    # Decided before the markers: these need the last epoch of the old id.
    next_producer_id: ProducerId = NO_PRODUCER_ID
    if current.is_exhausted:
        if new_producer_id is None:
            return None
        next_producer_id = new_producer_id
    return prepared(
        current,
        is_commit=False,
        client_version=EPOCH_PER_TRANSACTION,
        now_ms=now_ms,
        next_producer_id=next_producer_id,
    )


def completed(current: Transaction, now_ms: int) -> Transaction:
    """With all markers written, and the next producer id if the epochs were used up."""
    assert current.is_prepared
    # The old id stays known, since the client may repeat the request that has ended it.
    producer = current.next_producer
    return replace(
        current,
        status=(
            TransactionStatus.COMPLETE_COMMIT
            if current.is_commit
            else TransactionStatus.COMPLETE_ABORT
        ),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def _emptied(current: Transaction, timeout_ms: int, now_ms: int) -> Transaction:
    return replace(
        current,
        status=TransactionStatus.EMPTY,
        partitions=frozenset(),
        start_ms=NO_TIME,
        timeout_ms=timeout_ms,
        updated_ms=now_ms,
    )
