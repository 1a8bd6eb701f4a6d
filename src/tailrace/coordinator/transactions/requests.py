"""Requests to a machine, and pure decisions on them: from a state to the next, or to an error.

    InitProducerId    a producer id and epoch for a transactional id
    AddPartitions     AddPartitionsToTxn, AddOffsetsToTxn, and first writes (KIP-890)
    EndTransaction    EndTxn

`handlers` and `coordinator` have the messages of the wire.
"""

from typing import NamedTuple

from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions import state
from tailrace.coordinator.transactions.state import (
    CLASSIC,
    COMPLETE,
    EPOCH_PER_TRANSACTION,
    LAST_EPOCH_OF_CLIENTS,
    NO_EPOCH,
    Transaction,
    TransactionStatus,
    is_exhausted,
)
from tailrace.model import (
    NO_PRODUCER_ID,
    PRODUCER_EPOCH_MAX,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from tailrace.protocol.errors import ErrorCode
from tailrace.values import dataclass

NO_PRODUCER = TransactionalProducer(ProducerId(-1), ProducerEpoch(-1))


class ProducerReply(NamedTuple):
    """An error, or the producer id and epoch with which a client continues."""

    error: ErrorCode
    producer: TransactionalProducer = NO_PRODUCER


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer id for a transactional id, or the next epoch of the one that it has."""

    transactional_id: str
    timeout_ms: int
    """Milliseconds for which its transactions may be open."""
    expected: TransactionalProducer | None = None
    """The producer that the client has now; None: it has none, and fences the client before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Partitions that a transaction is about to write to, or that must be in it."""

    transactional_id: str
    producer: TransactionalProducer
    partitions: frozenset[TopicPartition]
    client_version: int = CLASSIC
    """Transaction version of the client: 0, or 2 if its leader asks for it (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """The end of a transaction that its client asks for."""

    transactional_id: str
    producer: TransactionalProducer
    is_commit: bool
    client_version: int = CLASSIC
    """Transaction version of the client: 0, or 2 if each end is to raise the epoch (KIP-890)."""


def plan_init(
    current: Transaction | None,
    request: InitProducerId,
    *,
    now_ms: int,
    new_producer_id: ProducerId | None,
) -> Transaction | ErrorCode | None:
    """The next state, or why there is none; None: it needs a `new_producer_id`.

    A next state that is prepared is the abort of the open transaction: the client asks again until
    that is complete.
    """
    if current is None:
        if new_producer_id is None:
            return None
        return state.created(
            request.transactional_id,
            new_producer_id,
            timeout_ms=request.timeout_ms,
            now_ms=now_ms,
        )
    if current.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    # A client that names no producer is new, and fences the one before it. One that does continues
    # after an error (KIP-360), and is refused if it is not the newest.
    if request.expected is not None and not _is_of(current, request.expected):
        return ErrorCode.PRODUCER_FENCED
    if current.status is TransactionStatus.ONGOING:
        return state.aborted_by_coordinator(current, now_ms, new_producer_id=new_producer_id)
    is_at_end = current.is_exhausted and (
        request.expected is None or request.expected.producer_epoch == current.producer_epoch
    )
    if not is_at_end:
        return _with_next_epoch(current, request, now_ms)
    if new_producer_id is None:
        return None
    return state.rotated(
        current,
        new_producer_id,
        has_expected=request.expected is not None,
        timeout_ms=request.timeout_ms,
        now_ms=now_ms,
    )


def _is_of(current: Transaction, producer: TransactionalProducer) -> bool:
    """Whether a client has the producer id, or repeats the request that has replaced it."""
    return producer.producer_id == current.producer_id or (
        producer.producer_id == current.previous_producer_id
        and is_exhausted(producer.producer_epoch)
    )


def _with_next_epoch(
    current: Transaction, request: InitProducerId, now_ms: int
) -> Transaction | ErrorCode:
    epoch, last_epoch = ProducerEpoch(current.producer_epoch + 1), NO_EPOCH
    if request.expected is not None:
        expected_epoch = request.expected.producer_epoch
        if expected_epoch == current.producer_epoch:
            last_epoch = expected_epoch
        elif expected_epoch == current.last_epoch:
            # The client has not got the answer, or does not know that its transaction was aborted:
            # nobody else has asked since, or there were no last epoch.
            epoch, last_epoch = current.producer_epoch, expected_epoch
        else:
            return ErrorCode.PRODUCER_FENCED
    return state.initialized(
        current,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=request.timeout_ms,
        now_ms=now_ms,
    )


def plan_add(
    current: Transaction | None, request: AddPartitions, *, now_ms: int
) -> Transaction | ErrorCode:
    """The next state; or the error, which is NONE if all partitions are in the transaction."""
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # First: a client whose epochs are used up may have a producer id that counts from the
    # completion on.
    if current.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = _producer_error(current, request)
    if error is not ErrorCode.NONE:
        return error
    # An abort of Kafka before 4.3 may have left it. A transaction under it could not be fenced, nor
    # ended: a marker needs an epoch more. The client is fenced, and InitProducerId gives a new id.
    if current.producer_epoch >= PRODUCER_EPOCH_MAX:
        return ErrorCode.PRODUCER_FENCED
    # A producer names its partitions again after a lost answer: no record is needed.
    is_open = current.status is TransactionStatus.ONGOING
    if is_open and request.partitions <= current.partitions:
        return ErrorCode.NONE
    return state.extended(
        current, request.partitions, client_version=request.client_version, now_ms=now_ms
    )


def verify(current: Transaction | None, request: AddPartitions) -> dict[TopicPartition, ErrorCode]:
    """An error for each partition, which is NONE if it is in the transaction."""
    if current is None:
        error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    else:
        error = _producer_error(current, request)
        if error is ErrorCode.NONE and current.is_prepared:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is ErrorCode.NONE:
            return {
                each: ErrorCode.NONE
                if each in current.partitions
                else ErrorCode.TRANSACTION_ABORTABLE
                for each in request.partitions
            }
    return dict.fromkeys(request.partitions, error)


def _producer_error(current: Transaction, request: AddPartitions) -> ErrorCode:
    if request.producer.producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.producer.producer_epoch != current.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def plan_end(
    current: Transaction | None,
    request: EndTransaction,
    *,
    now_ms: int,
    new_producer_id: ProducerId | None,
) -> Transaction | ProducerReply | None:
    """The next state, or the reply without one; None: it needs a `new_producer_id`.

    While markers are written every client that may be the current one is asked to come again,
    whatever end it asks for: it may be the next end, of a client that has begun its next
    transaction already.
    """
    if current is None:
        return ProducerReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # A client of EndTxn 0 to 4 keeps its epoch, so its repeated request and its next one look
    # alike. Since version 5 (KIP-890) each end raises the epoch: a request with the epoch before is
    # a repetition, and is answered from the state alone.
    if request.client_version < EPOCH_PER_TRANSACTION:
        return _plan_classic_end(current, request, now_ms)
    return _plan_raising_end(current, request, now_ms=now_ms, new_producer_id=new_producer_id)


def _plan_classic_end(
    current: Transaction, request: EndTransaction, now_ms: int
) -> Transaction | ProducerReply:
    if request.producer.producer_id != current.producer_id:
        return ProducerReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.producer.producer_epoch != current.producer_epoch:
        return ProducerReply(ErrorCode.PRODUCER_FENCED)
    if current.is_prepared:
        return ProducerReply(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.status is not TransactionStatus.ONGOING:
        return _ended(current, request)
    return state.prepared(
        current, is_commit=request.is_commit, client_version=CLASSIC, now_ms=now_ms
    )


def _plan_raising_end(
    current: Transaction,
    request: EndTransaction,
    *,
    now_ms: int,
    new_producer_id: ProducerId | None,
) -> Transaction | ProducerReply | None:
    # Before producer id and epoch: where the epochs are used up, the client may have an id already
    # that counts from the completion on.
    if current.is_prepared:
        return ProducerReply(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_repeated = _is_repeated(current, request)
    is_current = request.producer.producer_epoch == current.producer_epoch
    if request.producer.producer_id != current.producer_id and not _is_overflow(current, request):
        return ProducerReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # No client ever gets this epoch: it is left for the coordinator to fence with.
    if request.producer.producer_epoch >= PRODUCER_EPOCH_MAX:
        return ProducerReply(ErrorCode.PRODUCER_FENCED)
    if not (is_current or (is_repeated and current.status in COMPLETE)):
        return ProducerReply(ErrorCode.PRODUCER_FENCED)
    # Kafka before 4.3 leaves epoch 32767 when it aborts: the client gets the next producer id.
    if is_repeated and current.producer_epoch != PRODUCER_EPOCH_MAX:
        return _ended(current, request)
    # To abort what has not begun is allowed, and raises the epoch: the client may not know whether
    # its first write has come (KIP-890). To commit it is an error of the client.
    if current.status is not TransactionStatus.ONGOING and request.is_commit:
        return ProducerReply(ErrorCode.INVALID_TXN_STATE)
    if current.is_exhausted and new_producer_id is None:
        return None
    next_producer_id: ProducerId = NO_PRODUCER_ID
    if current.is_exhausted and new_producer_id is not None:
        next_producer_id = new_producer_id
    return state.prepared(
        current,
        is_commit=request.is_commit,
        client_version=request.client_version,
        now_ms=now_ms,
        next_producer_id=next_producer_id,
    )


def _is_repeated(current: Transaction, request: EndTransaction) -> bool:
    """Whether the request has the epoch before the end that it asks for."""
    return current.producer_epoch == request.producer.producer_epoch + 1 or _is_overflow(
        current, request
    )


def _is_overflow(current: Transaction, request: EndTransaction) -> bool:
    """Whether the end has replaced the producer id of the request by a new one."""
    return (
        current.previous_producer_id == request.producer.producer_id
        and request.producer.producer_epoch == LAST_EPOCH_OF_CLIENTS
        and current.producer_epoch == 0
    )


def _ended(current: Transaction, request: EndTransaction) -> ProducerReply:
    """The reply to the end of a transaction that is complete, or was not begun."""
    if current.status is TransactionStatus.EMPTY or current.is_commit != request.is_commit:
        return ProducerReply(ErrorCode.INVALID_TXN_STATE)
    return ProducerReply(ErrorCode.NONE, current.producer)
