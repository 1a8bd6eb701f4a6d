"""DescribeProducers (61): the producers that partitions know, and their open transactions.

Versions: 0.
Behaviour: a partition that the request names often is answered once.
"""

from tailrace.cluster.topic_rules import check_topic_name
from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code, error_message
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tailrace.runtime.slices import Slices, each_in_slices
from tailrace.storage.snapshots import KnownProducer


async def handle_describe_producers(
    services: Services, _: RequestHeader, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describe the producers of each partition."""
    slices = Slices()
    answered: dict[str, dict[int, PartitionResponse]] = {}
    for topic in request.topics:
        partitions = answered.setdefault(topic.name, {})
        for number in topic.partition_indexes:
            if number not in partitions:
                name = TopicPartition(topic.name, number)
                partitions[number] = await _describe(services, name, slices)
            await slices.turn()
    return DescribeProducersResponse(
        topics=tuple(
            TopicResponse(name=name, partitions=tuple(partitions.values()))
            for name, partitions in answered.items()
        )
    )


async def _describe(
    services: Services, partition: TopicPartition, slices: Slices
) -> PartitionResponse:
    await services.replicas.new_logs.wait_for(partition)
    try:
        check_topic_name(partition.topic)
        # Followers answer too: `kafka-transactions find-hanging --broker-id` asks one broker for
        # all its replicas.
        producers = services.replicas.find_replica(partition).log.producers.items()
    except TailraceError as error:
        return PartitionResponse(
            partition_index=partition.partition,
            error_code=error_code(error),
            error_message=error_message(error),
        )
    return PartitionResponse(
        partition_index=partition.partition,
        error_code=ErrorCode.NONE,
        active_producers=tuple(await each_in_slices(producers, _state, slices)),
    )


def _state(item: tuple[int, KnownProducer]) -> ProducerState:
    producer_id, known = item
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=known.epoch,
        last_sequence=known.last_sequence,
        last_timestamp=known.timestamp,
        coordinator_epoch=known.coordinator_epoch,
        current_txn_start_offset=known.transaction_start,
    )
