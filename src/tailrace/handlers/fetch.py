"""Fetch (1): records for consumers.

Versions: 4 to 18.
Behaviour:
  - Answers at once when `min_bytes` are there, a partition has an error, or `max_wait_ms` is 0;
    otherwise when enough has been appended or the time is over.
  - The first partition with records gives its first batch whole, whatever the limits; after that
    the limits of request, partition and broker hold, and a slice may end inside a batch (KIP-74).
  - Records leave as mapped slices of the log: no byte of them is copied or looked at.
  - A reader of committed records gets what lies below the last stable offset, and which producers'
    aborted transactions begin among it; the consumer drops their batches itself.
Version notes: from v7 a session is never made (session id 0), so that clients send full requests;
    v9 checks the leader epoch (KIP-320); v13 names topics by id.
Not done: fetch sessions (KIP-227), followers, a nearer replica (KIP-392).
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from tailrace.cluster.image import Topic
from tailrace.errors import OffsetOutOfRangeError, TailraceError
from tailrace.handlers.services import Services, error_code, read_limit
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tailrace.replication.partition import Partition
from tailrace.replication.waiting import Signal
from tailrace.storage.positions import ReadLimit
from tailrace.storage.reads import ReadSlice


@dataclass(slots=True)
class _Room:
    """How far a request may read, and how many bytes the response may still take."""

    limit: ReadLimit
    bytes_left: int
    is_empty: bool = True


def handle_fetch(
    services: Services, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    """The records that are there, or later those that come within the time allowed."""
    response, is_enough = _read(services, request)
    if is_enough or request.max_wait_ms <= 0:
        return response
    return _wait(services, request)


async def _wait(services: Services, request: FetchRequest) -> FetchResponse:
    deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
    signal = Signal()
    watched = [partition.appended for partition in _partitions(services, request)]
    for one in watched:
        one.add(signal)
    try:
        while True:
            # Read after watching: what was appended in between has fired nobody.
            response, is_enough = _read(services, request)
            if is_enough or not await signal.wait_until(deadline):
                return response
    finally:
        for one in watched:
            one.remove(signal)


def _partitions(services: Services, request: FetchRequest) -> list[Partition]:
    found = []
    for wanted in request.topics:
        topic = services.find_topic(wanted.topic, wanted.topic_id)
        for partition in wanted.partitions if topic is not None else ():
            assert topic is not None
            found.append(services.replicas.get(TopicPartition(topic.name, partition.partition)))
    return [partition for partition in found if partition is not None]


def _read(services: Services, request: FetchRequest) -> tuple[FetchResponse, bool]:
    """A response, and whether it is worth sending now."""
    bytes_max = min(max(request.max_bytes, 0), services.fetch_bytes_max)
    room = _Room(read_limit(request.isolation_level), bytes_max)
    responses = tuple(_read_topic(services, wanted, room) for wanted in request.topics)
    partitions = [partition for topic in responses for partition in topic.partitions]
    size = sum(len(partition.records or b"") for partition in partitions)
    has_error = any(partition.error_code for partition in partitions)
    is_enough = has_error or not partitions or size >= request.min_bytes
    return FetchResponse(session_id=0, responses=responses), is_enough


def _read_topic(services: Services, wanted: FetchTopic, room: _Room) -> FetchableTopicResponse:
    topic = services.find_topic(wanted.topic, wanted.topic_id)
    return FetchableTopicResponse(
        topic=wanted.topic,
        topic_id=wanted.topic_id,
        partitions=tuple(
            _read_partition(services, topic, partition, room=room)
            if topic is not None
            else _failed(
                partition,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if wanted.topic_id == NO_UUID
                else ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for partition in wanted.partitions
        ),
    )


def _read_partition(
    services: Services, topic: Topic, wanted: FetchPartition, *, room: _Room
) -> PartitionData:
    high_watermark = -1
    try:
        partition = services.replicas.find(TopicPartition(topic.name, wanted.partition))
        partition.check_epoch(wanted.current_leader_epoch)
        high_watermark = partition.log.positions.high_watermark
        found = partition.read(
            wanted.fetch_offset,
            bytes_max=min(max(wanted.partition_max_bytes, 0), room.bytes_left),
            is_first_whole=room.is_empty,
            limit=room.limit,
        )
    except OffsetOutOfRangeError as error:
        return PartitionData(
            partition_index=wanted.partition,
            error_code=ErrorCode.OFFSET_OUT_OF_RANGE,
            high_watermark=high_watermark,
            log_start_offset=error.log_start_offset,
            records=b"",
        )
    except (TailraceError, OSError) as error:
        return _failed(wanted, error_code(error))
    room.bytes_left = max(room.bytes_left - len(found.view), 0)
    room.is_empty = room.is_empty and not found.view
    return PartitionData(
        partition_index=wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=_aborted(found) if room.limit is ReadLimit.LAST_STABLE else None,
        records=found.view,
    )


def _aborted(found: ReadSlice) -> tuple[AbortedTransaction, ...]:
    return tuple(
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in found.aborted
    )


def _failed(wanted: FetchPartition, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition, error_code=code, high_watermark=-1, records=b""
    )
