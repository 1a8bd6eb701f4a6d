"""AddPartitionsToTxn in both its forms: of producers until version 3, of brokers from version 4.

A producer names the partitions of one transaction before it writes to them. A broker that gets a
first write names those of many transactions at once, to add them or only to verify them (KIP-890).
Of each transaction all partitions are added or none: beside one that cannot be, the others are not
attempted.
"""

from collections.abc import Callable, Iterable, Mapping

from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions.coordinator import TransactionCoordinator, for_version
from tailrace.coordinator.transactions.requests import AddPartitions
from tailrace.coordinator.transactions.state import CLASSIC, EPOCH_PER_TRANSACTION
from tailrace.model import ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tailrace.runtime.slices import Slices, gather_in_parts

Check = Callable[[TopicPartition], ErrorCode]
"""NONE, or why a partition cannot be added: there is none, or the client may not write to it."""


async def add_partitions_to_txn(
    coordinator: TransactionCoordinator,
    request: AddPartitionsToTxnRequest,
    *,
    version: int,
    check: Check,
) -> AddPartitionsToTxnResponse:
    """The response to a request in this version."""
    slices = Slices()
    if version < 4:
        errors = await _add(
            coordinator,
            AddPartitions(
                transactional_id=request.v3_and_below_transactional_id,
                producer=TransactionalProducer(
                    ProducerId(request.v3_and_below_producer_id),
                    ProducerEpoch(request.v3_and_below_producer_epoch),
                ),
                partitions=await _partitions(request.v3_and_below_topics, slices),
                client_version=CLASSIC,
            ),
            check,
            slices=slices,
        )
        known = {
            each: for_version(error, version, fenced_since=2) for each, error in errors.items()
        }
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=await _results(request.v3_and_below_topics, known, slices)
        )
    # Beside each other: ids may be in different partitions, and each waits for a commit.
    results = await gather_in_parts(
        _add_or_verify(coordinator, each, check) for each in request.transactions
    )
    return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))


async def _add_or_verify(
    coordinator: TransactionCoordinator, transaction: AddPartitionsToTxnTransaction, check: Check
) -> AddPartitionsToTxnResult:
    slices = Slices()
    request = AddPartitions(
        transactional_id=transaction.transactional_id,
        producer=TransactionalProducer(
            ProducerId(transaction.producer_id), ProducerEpoch(transaction.producer_epoch)
        ),
        partitions=await _partitions(transaction.topics, slices),
        client_version=EPOCH_PER_TRANSACTION,
    )
    if transaction.verify_only:
        errors = await _refused(request.partitions, check, slices)
        if not errors:
            errors = await coordinator.verify_partitions(request)
    else:
        errors = await _add(coordinator, request, check, slices=slices)
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=await _results(transaction.topics, errors, slices),
    )


async def _add(
    coordinator: TransactionCoordinator, request: AddPartitions, check: Check, *, slices: Slices
) -> dict[TopicPartition, ErrorCode]:
    refused = await _refused(request.partitions, check, slices)
    if refused:
        return refused
    return dict.fromkeys(request.partitions, await coordinator.add_partitions(request))


async def _refused(
    partitions: Iterable[TopicPartition], check: Check, slices: Slices
) -> dict[TopicPartition, ErrorCode]:
    """An error for each partition if one of them cannot be added; else nothing."""
    errors = {}
    for each in partitions:
        errors[each] = check(each)
        await slices.turn()
    # As in Kafka one partition that cannot be added keeps out all others of its transaction.
    if not any(errors.values()):
        return {}
    return {each: error or ErrorCode.OPERATION_NOT_ATTEMPTED for each, error in errors.items()}


async def _partitions(
    topics: Iterable[AddPartitionsToTxnTopic], slices: Slices
) -> frozenset[TopicPartition]:
    partitions = set()
    for topic in topics:
        for number in topic.partitions:
            partitions.add(TopicPartition(topic.name, number))
            await slices.turn()
    return frozenset(partitions)


async def _results(
    topics: Iterable[AddPartitionsToTxnTopic],
    errors: Mapping[TopicPartition, ErrorCode],
    slices: Slices,
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    results = []
    for topic in topics:
        of_topic = []
        for number in topic.partitions:
            error = errors[TopicPartition(topic.name, number)]
            of_topic.append(
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=error
                )
            )
            await slices.turn()
        results.append(
            AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=tuple(of_topic))
        )
    return tuple(results)
