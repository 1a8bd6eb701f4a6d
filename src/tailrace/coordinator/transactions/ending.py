"""End a transaction by EndTxn.

A client of version 0 to 4 keeps its epoch, so its repeated request and its next one look alike. A
client of version 5 (KIP-890) gets a new epoch with each end: a request with the epoch before is
a repetition, and is answered from the state alone.

While markers are written every client that may be the current one is asked to come again, whatever
end it asks for: it may be the next end, of a client that has begun its next transaction already.
"""

from tailrace.coordinator.transactions import transitions
from tailrace.coordinator.transactions.requests import EndTransaction, ProducerReply
from tailrace.coordinator.transactions.state import (
    CLASSIC,
    COMPLETE,
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    LAST_EPOCH_OF_CLIENTS,
    Transaction,
    TransactionStatus,
)
from tailrace.model import NO_PRODUCER_ID, ProducerId
from tailrace.protocol.errors import ErrorCode


def plan_end(
    current: Transaction | None,
    request: EndTransaction,
    *,
    now_ms: int,
    new_producer_id: ProducerId | None,
) -> Transaction | ProducerReply | None:
    """The next state, or the reply without one; None: it needs a `new_producer_id`."""
    if current is None:
        return ProducerReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.client_version < EPOCH_PER_TRANSACTION:
        return _plan_classic(current, request, now_ms)
    return _plan(current, request, now_ms=now_ms, new_producer_id=new_producer_id)


def _plan_classic(
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
    return transitions.prepared(
        current, is_commit=request.is_commit, client_version=CLASSIC, now_ms=now_ms
    )


def _plan(
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
    if request.producer.producer_epoch >= EPOCH_MAX:
        return ProducerReply(ErrorCode.PRODUCER_FENCED)
    if not (is_current or (is_repeated and current.status in COMPLETE)):
        return ProducerReply(ErrorCode.PRODUCER_FENCED)
    # Kafka before 4.3 leaves epoch 32767 when it aborts: the client gets the next producer id.
    if is_repeated and current.producer_epoch != EPOCH_MAX:
        return _ended(current, request)
    if current.status is not TransactionStatus.ONGOING and request.is_commit:
        return ProducerReply(ErrorCode.INVALID_TXN_STATE)
    if current.is_exhausted and new_producer_id is None:
        return None
    next_producer_id: ProducerId = NO_PRODUCER_ID
    if current.is_exhausted and new_producer_id is not None:
        next_producer_id = new_producer_id
    return transitions.prepared(
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
