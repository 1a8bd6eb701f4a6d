"""Give a transactional id its producer id and epoch by InitProducerId.

A client that gives nothing is new: it fences the one before it. A client that gives its id and
epoch (KIP-360) goes on after an error, and is refused if it is not the newest. An open transaction
is aborted first, and the client asks again until that is complete.
"""

from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions import transitions
from tailrace.coordinator.transactions.requests import InitProducerId
from tailrace.coordinator.transactions.state import (
    NO_EPOCH,
    Transaction,
    TransactionStatus,
    is_exhausted,
)
from tailrace.model import ProducerEpoch, ProducerId
from tailrace.protocol.errors import ErrorCode


def plan_init(
    current: Transaction | None,
    request: InitProducerId,
    *,
    now_ms: int,
    new_producer_id: ProducerId | None,
) -> Transaction | ErrorCode | None:
    """The next state, or why there is none; None: it needs a `new_producer_id`.

    A next state that is prepared is the abort of the open transaction.
    """
    if current is None:
        if new_producer_id is None:
            return None
        return transitions.created(
            request.transactional_id,
            new_producer_id,
            timeout_ms=request.timeout_ms,
            now_ms=now_ms,
        )
    if current.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if request.expected is not None and not _is_of(current, request.expected):
        return ErrorCode.PRODUCER_FENCED
    if current.status is TransactionStatus.ONGOING:
        return transitions.aborted_by_coordinator(current, now_ms, new_producer_id=new_producer_id)
    if not _is_at_end(current, request):
        return _with_next_epoch(current, request, now_ms)
    if new_producer_id is None:
        return None
    return transitions.rotated(
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


def _is_at_end(current: Transaction, request: InitProducerId) -> bool:
    return current.is_exhausted and (
        request.expected is None or request.expected.producer_epoch == current.producer_epoch
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
    return transitions.initialized(
        current,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=request.timeout_ms,
        now_ms=now_ms,
    )
