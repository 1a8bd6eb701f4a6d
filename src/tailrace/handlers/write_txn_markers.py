"""WriteTxnMarkers (27): end transactions in partitions that this broker leads.

Versions: 1 to 2.
Behaviour: from coordinators, and from an operator who ends a hanging transaction. A partition of
    `__consumer_offsets` takes its marker through the groups, whose pending offsets count or vanish
    with it; while it is loaded, the answer is NOT_LEADER_OR_FOLLOWER, as in Kafka. A marker counts
    when it is committed, as a record with acks=all; after 30 seconds it is REQUEST_TIMED_OUT, and
    may be committed yet.
Version notes: in v2 a marker of transaction version 2 must have a newer epoch than the open
    transaction (KIP-1228).
"""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Final

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
from tailrace.runtime.slices import Slices

# Kafka's `request.timeout.ms` of a broker, by its default.
TIMEOUT_S: Final = 30.0
"""Longest wait for a marker to be committed; its coordinator sends it again then."""

AT_ONCE_MAX: Final = 2000
"""Most markers that wait beside each other: those of two whole requests of our own coordinators.
Anybody may send a request with many more."""


async def handle_write_txn_markers(
    services: Services, _: RequestHeader, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write each marker to its partitions."""
    markers = LocalMarkers(services.coordinator_log, services.groups, services.clock)
    wanted = (
        (TopicPartition(topic.name, number), marker)
        for asked in request.markers
        for marker in (_marker(asked),)
        for topic in asked.topics
        for number in topic.partition_indexes
    )
    codes: list[ErrorCode] = []
    while len(part := await _written(markers, islice(wanted, AT_ONCE_MAX))) == AT_ONCE_MAX:
        codes += part
    each_code = iter(codes + part)
    return WriteTxnMarkersResponse(
        markers=tuple([_result(asked, each_code) for asked in request.markers])
    )


async def _written(
    markers: LocalMarkers, wanted: Iterator[tuple[TopicPartition, Marker]]
) -> list[ErrorCode]:
    """A code for each marker."""
    slices = Slices()
    writes: list[asyncio.Task[ErrorCode]] = []
    # Side by side, since each waits for its own partition to be committed. Each is appended by the
    # first step of its task, and tasks begin in their order: two markers of a producer keep theirs.
    for partition, marker in wanted:
        writes.append(asyncio.ensure_future(_write(markers, partition, marker)))
        await slices.turn()
    if not writes:
        return []
    try:
        await asyncio.wait(writes, timeout=TIMEOUT_S)
        return [each.result() if each.done() else ErrorCode.REQUEST_TIMED_OUT for each in writes]
    finally:
        # What is in the log stays there, whether or not somebody waits for its commit.
        for each in writes:
            each.cancel()


def _marker(asked: WritableTxnMarker) -> Marker:
    return Marker(
        producer_id=ProducerId(asked.producer_id),
        producer_epoch=ProducerEpoch(asked.producer_epoch),
        is_commit=asked.transaction_result,
        coordinator_epoch=LeaderEpoch(asked.coordinator_epoch),
        transaction_version=asked.transaction_version,
    )


def _result(asked: WritableTxnMarker, codes: Iterator[ErrorCode]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=tuple(
            [
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=tuple(
                        [
                            WritableTxnMarkerPartitionResult(
                                partition_index=number, error_code=next(codes)
                            )
                            for number in topic.partition_indexes
                        ]
                    ),
                )
                for topic in asked.topics
            ]
        ),
    )


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
