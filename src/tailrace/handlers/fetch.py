"""Fetch (1): records for consumers.

Versions: 4 to 18.
Behaviour:
  - Answers at once when `min_bytes` are there, a partition has an error, or `max_wait_ms` is 0;
    otherwise when enough has been appended or the time is over.
  - The first partition with records gives its first batch whole, whatever the limits; after that
    the limits of request, partition and broker hold, and a slice may end inside a batch (KIP-74).
  - Records leave as slices of the log's files, which are read when the socket has room; no byte of
    them is looked at.
  - What the page cache has is found at once. Where a device must be asked, a worker thread does it,
    and other clients are served meanwhile. A device that refuses while records are on their way
    ends the connection; the next request is told (KAFKA_STORAGE_ERROR).
  - A reader of committed records gets what lies below the last stable offset, and which producers'
    aborted transactions begin among it; the consumer drops their batches itself.
Version notes: from v7 a session is never made (session id 0), so that clients send full requests;
    v9 checks the leader epoch (KIP-320); v13 names topics by id.
Not done: fetch sessions (KIP-227), followers, a nearer replica (KIP-392).
"""

import asyncio
from collections.abc import Awaitable, Callable
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
from tailrace.replication.device_reads import DeviceReads
from tailrace.replication.partition import Partition
from tailrace.replication.waiting import Signal
from tailrace.runtime.files import without_waiting
from tailrace.storage.positions import ReadLimit
from tailrace.storage.reads import ReadSlice


@dataclass(slots=True)
class _Room:
    """How far a request may read, and how many bytes the response may still take."""

    limit: ReadLimit
    bytes_left: int
    is_empty: bool = True


class _ColdReadError(Exception):
    """The page cache does not have what it takes to find a partition's records."""

    def __init__(
        self, wanted: FetchPartition, read: Callable[[DeviceReads], Awaitable[ReadSlice]]
    ) -> None:
        self.wanted = wanted
        self.read = read
        """Finds them; may wait for a device."""
        super().__init__()


_Found = dict[int, ReadSlice | TailraceError | OSError]
"""What devices have said of partitions of a request, by the identity of what asks for them."""


def handle_fetch(
    services: Services, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    """The records that are there, or later those that come within the time allowed."""
    try:
        response, is_enough = _read(services, request, {})
    except _ColdReadError:
        return _wait(services, request)
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
            response, is_enough = await _read_cold(services, request)
            if is_enough or not await signal.wait_until(deadline):
                return response
    finally:
        for one in watched:
            one.remove(signal)


async def _read_cold(services: Services, request: FetchRequest) -> tuple[FetchResponse, bool]:
    """As `_read`; what the page cache does not have is looked up on a worker thread."""
    found: _Found = {}
    while True:
        try:
            return _read(services, request, found)
        except _ColdReadError as cold:
            try:
                found[id(cold.wanted)] = await cold.read(services.device_reads)
            except (TailraceError, OSError) as error:
                found[id(cold.wanted)] = error


def _partitions(services: Services, request: FetchRequest) -> list[Partition]:
    found = []
    for wanted in request.topics:
        topic = services.find_topic(wanted.topic, wanted.topic_id)
        for partition in wanted.partitions if topic is not None else ():
            assert topic is not None
            found.append(services.replicas.get(TopicPartition(topic.name, partition.partition)))
    return [partition for partition in found if partition is not None]


def _read(services: Services, request: FetchRequest, found: _Found) -> tuple[FetchResponse, bool]:
    """A response, and whether it is worth sending now.

    Raises:
        _ColdReadError: a device must be asked, and `found` does not have what it says.
    """
    bytes_max = min(max(request.max_bytes, 0), services.fetch_bytes_max)
    room = _Room(read_limit(request.isolation_level), bytes_max)
    with without_waiting:
        responses = tuple(
            _read_topic(services, wanted, room, found=found) for wanted in request.topics
        )
    partitions = [partition for topic in responses for partition in topic.partitions]
    size = sum(len(partition.records or b"") for partition in partitions)
    has_error = any(partition.error_code for partition in partitions)
    is_enough = has_error or not partitions or size >= request.min_bytes
    return FetchResponse(session_id=0, responses=responses), is_enough


def _read_topic(
    services: Services, wanted: FetchTopic, room: _Room, *, found: _Found
) -> FetchableTopicResponse:
    topic = services.find_topic(wanted.topic, wanted.topic_id)
    return FetchableTopicResponse(
        topic=wanted.topic,
        topic_id=wanted.topic_id,
        partitions=tuple(
            _read_partition(services, topic, partition, room=room, found=found)
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
    services: Services, topic: Topic, wanted: FetchPartition, *, room: _Room, found: _Found
) -> PartitionData:
    high_watermark = -1
    try:
        partition = services.replicas.find(TopicPartition(topic.name, wanted.partition))
        partition.check_epoch(wanted.current_leader_epoch)
        high_watermark = partition.log.positions.high_watermark
        known = found.get(id(wanted))
        if isinstance(known, Exception):
            raise known
        part = _slice_of(partition, wanted, room=room, known=known)
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
    records = part.records
    if records is not None:
        room.bytes_left = max(room.bytes_left - len(records), 0)
        room.is_empty = False
    return PartitionData(
        partition_index=wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=part.high_watermark,
        last_stable_offset=part.last_stable_offset,
        log_start_offset=part.log_start_offset,
        aborted_transactions=_aborted(part) if room.limit is ReadLimit.LAST_STABLE else None,
        records=records or b"",
    )


def _slice_of(
    partition: Partition, wanted: FetchPartition, *, room: _Room, known: ReadSlice | None
) -> ReadSlice:
    """What is read of a partition; `known` is the answer that a device gave a moment ago."""
    bytes_max = min(max(wanted.partition_max_bytes, 0), room.bytes_left)
    is_first_whole = room.is_empty
    if known is not None:
        return known if is_first_whole else known.upto(bytes_max)

    try:
        return partition.read(
            wanted.fetch_offset,
            bytes_max=bytes_max,
            is_first_whole=is_first_whole,
            limit=room.limit,
        )
    except BlockingIOError:
        raise _ColdReadError(
            wanted,
            lambda reads: partition.read_from_device(
                reads,
                wanted.fetch_offset,
                bytes_max=bytes_max,
                is_first_whole=is_first_whole,
                limit=room.limit,
            ),
        ) from None


def _aborted(found: ReadSlice) -> tuple[AbortedTransaction, ...]:
    return tuple(
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in found.aborted
    )


def _failed(wanted: FetchPartition, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition, error_code=code, high_watermark=-1, records=b""
    )
