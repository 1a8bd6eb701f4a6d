"""Add partitions to a transaction: AddPartitionsToTxn, AddOffsetsToTxn, first writes (KIP-890)."""

from tailrace.coordinator.transactions import transitions
from tailrace.coordinator.transactions.requests import AddPartitions
from tailrace.coordinator.transactions.state import EPOCH_MAX, Transaction, TransactionStatus
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode


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
    if current.producer_epoch >= EPOCH_MAX:
        return ErrorCode.PRODUCER_FENCED
    is_open = current.status is TransactionStatus.ONGOING
    if is_open and request.partitions <= current.partitions:
        return ErrorCode.NONE
    return transitions.extended(
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
