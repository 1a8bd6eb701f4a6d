"""WriteTxnMarkers (27): end transactions in partitions that this broker leads.

Versions: 1 to 2.
Behaviour: from coordinators, and from an operator who ends a hanging transaction. A partition of
    `__consumer_offsets` takes its marker through the groups, whose pending offsets count or vanish
    with it; while it is loaded, the answer is NOT_LEADER_OR_FOLLOWER, as in Kafka.
Version notes: in v2 a marker of transaction version 2 must have a newer epoch than the open
    transaction (KIP-1228).
"""

from tailrace.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from tailrace.coordinator.transactions.markers import LocalMarkers, Marker
from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code
from tailrace.model import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tailrace.runtime.slices import gather_in_parts


async def handle_write_txn_markers(
    services: Services, _: RequestHeader, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write each marker to its partitions."""
    markers = LocalMarkers(services.coordinator_log, services.groups, services.clock)
    return WriteTxnMarkersResponse(
        # One after the other, so that two markers of a producer keep their order.
        markers=tuple([await _written(markers, each) for each in request.markers])
    )


async def _written(markers: LocalMarkers, asked: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = Marker(
        producer_id=ProducerId(asked.producer_id),
        producer_epoch=ProducerEpoch(asked.producer_epoch),
        is_commit=asked.transaction_result,
        coordinator_epoch=LeaderEpoch(asked.coordinator_epoch),
        transaction_version=asked.transaction_version,
    )
    topics = []
    for topic in asked.topics:
        # Side by side, since each waits for its own partition to be committed.
        codes = await gather_in_parts(
            _write(markers, TopicPartition(topic.name, number), marker)
            for number in topic.partition_indexes
        )
        results = tuple(
            WritableTxnMarkerPartitionResult(partition_index=number, error_code=code)
            for number, code in zip(topic.partition_indexes, codes, strict=True)
        )
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
    return WritableTxnMarkerResult(producer_id=asked.producer_id, topics=tuple(topics))


async def _write(markers: LocalMarkers, partition: TopicPartition, marker: Marker) -> ErrorCode:
    # No batch can have them: -1 means a producer without an id.
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        return ErrorCode.INVALID_REQUEST
    try:
        await markers.write(partition, marker)
    except (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError):
        # A transaction coordinator does not expect these three errors, so Kafka translates them
        # too. It retries this one.
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    except (TailraceError, OSError) as error:
        return error_code(error)
    return ErrorCode.NONE
