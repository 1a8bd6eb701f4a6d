"""Functions for all handlers of transactions: they find the coordinator, and ask it."""

import asyncio
from collections.abc import Callable

from tailrace.coordinator.errors import CoordinatorLoadInProgressError
from tailrace.coordinator.transactions.coordinator import TransactionCoordinator
from tailrace.coordinator.transactions.requests import AddPartitions
from tailrace.errors import StorageError
from tailrace.handlers.services import Services
from tailrace.model import ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode


def coordinator_of(services: Services) -> TransactionCoordinator:
    """The coordinator of the transactions whose partitions this broker leads."""

    async def new_producer_id() -> ProducerId:
        try:
            return await services.next_producer_id()
        except StorageError as error:
            # Kafka's answer while the controller has given it no block of ids; producers retry it.
            raise CoordinatorLoadInProgressError(str(error)) from error

    return TransactionCoordinator(
        services.transactions, new_producer_id, services.transaction_settings
    )


async def ask_coordinator(
    services: Services,
    request: AddPartitions,
    *,
    is_adding: bool,
    begin_again: Callable[[], None],
) -> dict[TopicPartition, ErrorCode]:
    """Whether partitions are in a transaction: NONE, or an error, for each; by its coordinator.

    With `is_adding` they are added to it, all or none (KIP-890). While the markers of the
    transaction before are written, that is tried again for a short time. `begin_again` is called
    after each answer: such a marker takes the guard of a verification that has begun, also one that
    came while a coordinator on another broker had this question on its way. A marker of this
    transaction has a newer epoch, and `begin_again` finds it.

    Raises:
        InvalidProducerEpochError: of `begin_again`.
    """
    settings = services.transaction_settings
    if not is_adding:
        # No retries here: older producers get an error on which they send the batch again.
        return await _ask_once(services, request, is_adding=False)
    loop = asyncio.get_running_loop()
    # Kafka's `add.partitions.to.txn.retry.backoff.max.ms` and `.ms`: 100 and 20. The producer's own
    # pause is longer, and it would send all records once more.
    deadline = loop.time() + settings.retry_ms_max / 1000
    pause_s = settings.retry_ms / 1000
    while True:
        errors = await _ask_once(services, request, is_adding=True)
        begin_again()
        # All have the same: they are added all or none.
        is_concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
        if not is_concurrent or loop.time() + pause_s > deadline:
            return errors
        await asyncio.sleep(pause_s)


async def _ask_once(
    services: Services, request: AddPartitions, *, is_adding: bool
) -> dict[TopicPartition, ErrorCode]:
    """The answer of the coordinator, on this broker or on another."""
    # Asked at each attempt: the coordinator may have moved.
    elsewhere = services.verdicts_elsewhere
    if elsewhere is not None:
        errors = await elsewhere(request, is_adding=is_adding)
        if errors is not None:
            return errors
    coordinator = coordinator_of(services)
    if is_adding:
        return dict.fromkeys(request.partitions, await coordinator.add_partitions(request))
    return await coordinator.verify_partitions(request)


def error_of_verification(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """The error for a producer whose partition is not in its transaction, by its coordinator.

    Older producers do not know TRANSACTION_ABORTABLE.
    """
    # As in Kafka: producers expect the older code from Produce and TxnOffsetCommit.
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    # KIP-890: for older producers Kafka puts this code in its place.
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error
