"""AddPartitionsToTxn (24): partitions that a transaction is about to write to.

Versions: 0 to 5; 0 to 3 from producers, from 4 on from brokers.
Behaviour: all partitions are added, or none: beside one that cannot be, the others get
    OPERATION_NOT_ATTEMPTED. Producers may not add partitions of internal topics
    (TOPIC_AUTHORIZATION_FAILED, as in Kafka).
Version notes: below v2 a fenced producer gets INVALID_PRODUCER_EPOCH; v4 has many transactions, to
    add their partitions or only to verify them (KIP-890).
"""

from tailrace.coordinator.transactions.add_partitions_to_txn import add_partitions_to_txn
from tailrace.handlers.services import Services
from tailrace.handlers.transactions import coordinator_of
from tailrace.model import INTERNAL_TOPICS, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

OF_BROKERS_SINCE = 4


async def handle_add_partitions_to_txn(
    services: Services, header: RequestHeader, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add partitions to transactions, or verify that they are in them."""
    topics = services.controller.image.topics

    def check(partition: TopicPartition) -> ErrorCode:
        if header.api_version < OF_BROKERS_SINCE and partition.topic in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = topics.get(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    return await add_partitions_to_txn(
        coordinator_of(services), request, version=header.api_version, check=check
    )
