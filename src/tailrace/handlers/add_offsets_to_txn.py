"""AddOffsetsToTxn (25): a group whose offsets are committed with a transaction.

Versions: 0 to 4.
Behaviour: adds the group's partition of `__consumer_offsets` to the transaction, under the rules of
    AddPartitionsToTxn.
Version notes: below v2 a fenced producer gets INVALID_PRODUCER_EPOCH.
"""

from tailrace.coordinator.placement import partition_of
from tailrace.handlers.services import Services
from tailrace.handlers.transactions import coordinator_of
from tailrace.model import OFFSETS_TOPIC, TopicPartition
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)


async def handle_add_offsets_to_txn(
    services: Services, header: RequestHeader, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add the partition of a group."""
    topic = services.controller.image.topics.get(OFFSETS_TOPIC)
    # Clients look for the coordinator of the group next, and that creates the topic.
    count = services.group_settings.partition_count if topic is None else topic.partition_count
    number = partition_of(request.group_id, count)
    return await coordinator_of(services).add_offsets(
        request, header.api_version, partition=TopicPartition(OFFSETS_TOPIC, number)
    )
