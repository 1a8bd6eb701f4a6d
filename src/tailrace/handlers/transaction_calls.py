"""The calls of transactional producers to their coordinator, and of those who look at transactions.

Not here: InitProducerId, which producers without transactions need too, and TxnOffsetCommit, which
is for the coordinator of the group.
"""

from tailrace.coordinator.errors import RefusedError
from tailrace.coordinator.groups.topics import compile_pattern
from tailrace.coordinator.shards import partition_of
from tailrace.coordinator.transactions.add_partitions_to_txn import add_partitions_to_txn
from tailrace.handlers.services import Services
from tailrace.handlers.transactions import coordinator_of
from tailrace.model import INTERNAL_TOPICS, OFFSETS_TOPIC, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from tailrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tailrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tailrace.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tailrace.runtime.slices import Slices

# KIP-890: v4 is for brokers that verify a batch, and clients do not go beyond v3.
OF_BROKERS_SINCE = 4


async def handle_add_partitions_to_txn(
    services: Services, header: RequestHeader, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """AddPartitionsToTxn (24): partitions that a transaction is about to write to.

    Versions: 0 to 5; 0 to 3 from producers, from 4 on from brokers.
    Behaviour: all partitions are added, or none: beside one that cannot be, the others get
        OPERATION_NOT_ATTEMPTED. Producers may not add partitions of internal topics
        (TOPIC_AUTHORIZATION_FAILED, as in Kafka).
    Version notes: below v2 a fenced producer gets INVALID_PRODUCER_EPOCH; v4 has many transactions,
        to add their partitions or only to verify them (KIP-890).
    """
    image = services.cluster.image

    def check(partition: TopicPartition) -> ErrorCode:
        # Producers add `__consumer_offsets` by AddOffsetsToTxn; brokers may name it themselves
        # (v4).
        if header.api_version < OF_BROKERS_SINCE and partition.topic in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        is_known = image.has(partition)
        return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # Checked before the coordinator is asked: Kafka, too, adds nothing if one partition is wrong.
    return await add_partitions_to_txn(
        coordinator_of(services), request, version=header.api_version, check=check
    )


async def handle_add_offsets_to_txn(
    services: Services, header: RequestHeader, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """AddOffsetsToTxn (25): a group whose offsets are committed with a transaction.

    Versions: 0 to 4.
    Behaviour: adds the group's partition of `__consumer_offsets` to the transaction, under the
        rules of AddPartitionsToTxn.
    Version notes: below v2 a fenced producer gets INVALID_PRODUCER_EPOCH.
    """
    # By the count that the group's coordinator goes by, also where the topic has grown since.
    number = services.groups.number_of(request.group_id)
    if number is None:
        # Clients look for the coordinator of the group next, and that creates the topic.
        number = partition_of(request.group_id, services.group_settings.partition_count)
    return await coordinator_of(services).add_offsets(
        request, header.api_version, partition=TopicPartition(OFFSETS_TOPIC, number)
    )


async def handle_end_txn(
    services: Services, header: RequestHeader, request: EndTxnRequest
) -> EndTxnResponse:
    """EndTxn (26): commit or abort a transaction.

    Versions: 0 to 5.
    Behaviour: the answer comes when the decision is in the log and the markers are written; where
        these take longer than 5 ms, they follow.
    Version notes: below v2 a fenced producer gets INVALID_PRODUCER_EPOCH; v5 raises the epoch and
        returns it (KIP-890).
    """
    # With the markers written: when we answered before them, as Kafka does, the client's next
    # request came too early each time, and cost a pause of 20 to 100 ms (decision 61).
    return await coordinator_of(services).end(request, header.api_version)


async def handle_describe_transactions(
    services: Services, _: RequestHeader, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """DescribeTransactions (65): the newest transaction of each id, with its partitions.

    Versions: 0.
    Behaviour: an id that the request names often is answered once.
    """
    coordinator, slices = coordinator_of(services), Slices()
    described = []
    # Once each: a short request could ask for a large transaction many times.
    for transactional_id in dict.fromkeys(request.transactional_ids):
        described.append(await coordinator.describe(transactional_id, lambda _: True))
        await slices.turn()
    return DescribeTransactionsResponse(transaction_states=tuple(described))


async def handle_list_transactions(
    services: Services, _: RequestHeader, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """ListTransactions (66): the transactions that this broker coordinates.

    Versions: 0 to 2.
    Version notes: v1 filters by duration, v2 by a pattern in RE2's syntax that matches the whole id
        (INVALID_REGULAR_EXPRESSION). While a partition is loaded there is no list, but
        COORDINATOR_LOAD_IN_PROGRESS.
    """
    if not request.transactional_id_pattern:
        return await coordinator_of(services).list_transactions(request, lambda _: True)
    try:
        # KIP-1152. RE2's syntax, as in Kafka: no pattern of a client can hold up the loop (decision
        # 32).
        pattern = compile_pattern(request.transactional_id_pattern)
    except RefusedError as error:
        return ListTransactionsResponse(error_code=error.code)
    return await coordinator_of(services).list_transactions(
        request, lambda transactional_id: pattern.fullmatch(transactional_id) is not None
    )
