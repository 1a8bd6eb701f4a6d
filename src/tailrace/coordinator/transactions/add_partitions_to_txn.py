"""AddPartitionsToTxn in both its forms: of producers until version 3, of brokers from version 4.

A producer names the partitions of one transaction before it writes to them. A broker that gets a
first write names those of many transactions at once, to add them or only to verify them (KIP-890).
Of each transaction all partitions are added or none: beside one that cannot be, the others are not
attempted.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions.coordinator import TransactionCoordinator, for_version
from tailrace.coordinator.transactions.requests import AddPartitions
from tailrace.coordinator.transactions.state import CLASSIC, EPOCH_PER_TRANSACTION
from tailrace.model import TopicPartition
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
    if version < 4:
        errors = await _add(
            coordinator,
            AddPartitions(
                transactional_id=request.v3_and_below_transactional_id,
                producer=TransactionalProducer(
                    request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
                ),
                partitions=_partitions(request.v3_and_below_topics),
                client_version=CLASSIC,
            ),
            check,
        )
        known = {
            each: for_version(error, version, fenced_since=2) for each, error in errors.items()
        }
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_results(request.v3_and_below_topics, known)
        )
    results = await asyncio.gather(
        *(_add_or_verify(coordinator, each, check) for each in request.transactions)
    )
    return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))


async def _add_or_verify(
    coordinator: TransactionCoordinator, transaction: AddPartitionsToTxnTransaction, check: Check
) -> AddPartitionsToTxnResult:
    request = AddPartitions(
        transactional_id=transaction.transactional_id,
        producer=TransactionalProducer(transaction.producer_id, transaction.producer_epoch),
        partitions=_partitions(transaction.topics),
        client_version=EPOCH_PER_TRANSACTION,
    )
    if transaction.verify_only:
        errors = _refused(request.partitions, check)
        if not errors:
            errors = await coordinator.verify_partitions(request)
    else:
        errors = await _add(coordinator, request, check)
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=_results(transaction.topics, errors),
    )


async def _add(
    coordinator: TransactionCoordinator, request: AddPartitions, check: Check
) -> dict[TopicPartition, ErrorCode]:
    refused = _refused(request.partitions, check)
    if refused:
        return refused
    return dict.fromkeys(request.partitions, await coordinator.add_partitions(request))


def _refused(partitions: Iterable[TopicPartition], check: Check) -> dict[TopicPartition, ErrorCode]:
    """An error for each partition if one of them cannot be added; else nothing."""
    errors = {each: check(each) for each in partitions}
    if not any(errors.values()):
        return {}
    return {each: error or ErrorCode.OPERATION_NOT_ATTEMPTED for each, error in errors.items()}


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.name, number) for topic in topics for number in topic.partitions
    )


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], errors: Mapping[TopicPartition, ErrorCode]
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=number,
                    partition_error_code=errors[TopicPartition(topic.name, number)],
                )
                for number in topic.partitions
            ),
        )
        for topic in topics
    )
