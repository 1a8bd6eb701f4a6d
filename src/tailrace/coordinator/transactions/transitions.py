"""The changes that a transaction can go through, each as a function from value to value.

    Empty, CompleteX -> Empty            InitProducerId
    Empty, CompleteX, Ongoing -> Ongoing partitions are added
    Ongoing -> PrepareX                  the end is decided: by its client, by time, by a new one
    Empty, CompleteX -> PrepareAbort     a client of KIP-890 aborts without having added anything
    PrepareX -> CompleteX                all markers are written

Each function asserts its arrow; who may go through it is decided before.
"""

from collections.abc import Iterable

from tailrace.coordinator.transactions.state import (
    COMPLETE,
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    NO_EPOCH,
    NO_TIME,
    Transaction,
    TransactionStatus,
)
from tailrace.model import NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from tailrace.values import replace

IDLE = COMPLETE | {TransactionStatus.EMPTY}
"""Nothing is open: a transaction may begin, and the id may expire."""


def created(
    transactional_id: str, producer_id: ProducerId, *, timeout_ms: int, now_ms: int
) -> Transaction:
    """The first state of a transactional id."""
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
    """With this epoch of the same producer id, and no transaction.

    The current epoch again is the answer to a repeated request, which may come a third time.
    """
    assert current.status in IDLE
    assert epoch in {current.producer_epoch, current.producer_epoch + 1}
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
    # There is none behind the last one; the client goes on with the next producer id.
    epoch = ProducerEpoch(min(current.producer_epoch + raises_epoch, EPOCH_MAX))
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
    """With its abort decided here, under the next epoch.

    If the epochs are used up, its producer goes on with `new_producer_id`; None: it needs one.
    """
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
