"""Fetch (1): records for consumers.

Versions: 4 to 18.
Behaviour:
  - Answers at once if `min_bytes` are available (or `max_bytes`, if that is less), a partition has
    an error, or `max_wait_ms` is 0. Otherwise it answers when enough has been appended or the time
    is over, after half of `connections.max.idle.ms` at the latest.
  - Many partitions are read in slices. While a request waits, only changed partitions are read
    again. A partition that is named twice is answered once.
  - The first partition with records returns its first batch whole, whatever the limits; after that
    the limits of request, partition and broker apply, and a slice may end inside a batch (KIP-74).
  - Records are sent as slices of the log's files, which are read when the socket has room; their
    bytes are not checked.
  - Bytes in the page cache are found at once. Reads from a device run on a worker thread, and other
    clients are served meanwhile. If the device refuses after the response header was sent, the
    connection ends, and the next request gets KAFKA_STORAGE_ERROR.
  - A request that repeats the one before on its connection, but for the offset, may be answered by
    `repeated_fetch`, with the same bytes.
  - In a session (KIP-227) a request names what has changed, and the answer has only partitions with
    news: records, another high watermark or log start, an error. `fetch_sessions` has the rules.
  - A read_committed consumer gets records below the last stable offset, and the list of aborted
    transactions among them; it drops their batches itself.
Version notes: v7 has sessions; v9 checks the leader epoch (KIP-320); from v12 on a client may send
    the epoch of its last record, and learns where its log has left this one, without records
    (KIP-595); v13 names topics by id.
Not done: followers, a nearer replica (KIP-392).
"""

import asyncio
import itertools
from collections.abc import Awaitable, Iterator
from typing import Final
from uuid import UUID

from tailrace.errors import OffsetOutOfRangeError, TailraceError
from tailrace.handlers.fetch_sessions import FetchContext, WantedPartition, count_of
from tailrace.handlers.services import Services, error_code, read_limit
from tailrace.model import LeaderEpoch, Offset, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tailrace.replication.partition import Partition
from tailrace.replication.waiting import Signal, Watched
from tailrace.runtime.files import without_waiting
from tailrace.runtime.slices import Slices
from tailrace.runtime.steps import run_eagerly
from tailrace.storage.epochs import EpochEnd
from tailrace.storage.positions import ReadLimit
from tailrace.storage.reads import ReadSlice
from tailrace.values import dataclass

PARTS_INLINE_MAX: Final = 100
"""Most partitions that are read in one callback: some 2 ms of work. More are read in slices."""


IDS_SINCE: Final = 13
"""The first version that names topics by id."""


@dataclass(slots=True, eq=False)
class _RequestedPartition:
    """A partition of a request, and its answer."""

    read: WantedPartition
    answer: PartitionData | None = None
    size: int = 0
    """Bytes of records in its answer."""


class _ColdReadError(Exception):
    """The page cache does not have the index or the headers to find a partition's records."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        super().__init__()


def handle_fetch(
    services: Services, header: RequestHeader, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    """The available records, or an awaitable for a response that has to wait."""
    uses_topic_ids = header.api_version >= IDS_SINCE
    if _is_long(request):
        return _begin_later(services, request, uses_topic_ids=uses_topic_ids)
    # The session takes its changes over and is read in one callback, so that no other request of
    # the session comes in between.
    now_s = asyncio.get_running_loop().time()
    context = services.fetch_sessions.begin(request, uses_topic_ids=uses_topic_ids, now_s=now_s)
    if isinstance(context, ErrorCode):
        return FetchResponse(error_code=context)
    reading = _Reading(services, request, context)
    # A session may have many partitions although the request names few.
    if context.count() > PARTS_INLINE_MAX:
        return _read(reading)
    # Most fetches are answered here, without a coroutine.
    return reading.answer_or_none(now_s) or run_eagerly(_read(reading))


async def _begin_later(
    services: Services, request: FetchRequest, *, uses_topic_ids: bool
) -> FetchResponse:
    now_s = asyncio.get_running_loop().time()
    context = await services.fetch_sessions.begin_in_slices(
        request, Slices(), uses_topic_ids=uses_topic_ids, now_s=now_s
    )
    if isinstance(context, ErrorCode):
        return FetchResponse(error_code=context)
    return await _read(_Reading(services, request, context))


async def _read(reading: "_Reading") -> FetchResponse:
    """The response when it has enough bytes, or when the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + reading.wait_ms / 1000
    slices = Slices()
    try:
        # In the order of the session: who had records last comes last, when the bytes may be used
        # up (KIP-74).
        for part in reading.unread:
            await reading.read_or_wait(part)
            await slices.turn()
        # A request with max_wait_ms 0 is answered with what is there, however little.
        is_in_time = reading.wait_ms > 0
        while is_in_time and not reading.is_enough:
            is_in_time = await reading.signal.wait_until(deadline)
            slices = Slices()
            # Also when the time is over: records may have come in the same turn of the loop.
            for part in reading.changed():
                await reading.read_or_wait(part)
                await slices.turn()
        if len(reading.answered) <= PARTS_INLINE_MAX:
            return reading.response(loop.time())
        return await reading.response_in_slices(slices)
    finally:
        reading.unwatch()


class _Reading:
    """The answers of a request, by partition; a later read replaces an earlier one.

    The signal watches every partition from before its first read on, so that `changed` includes
    partitions that were appended to in between.
    """

    def __init__(self, services: Services, request: FetchRequest, context: FetchContext) -> None:
        self.answered: list[_RequestedPartition] = []
        """The partitions with an answer, in the order of their turns."""
        self.unread: Iterator[_RequestedPartition] = map(_RequestedPartition, context.partitions())
        """The partitions of the request that were not read yet, in the order of their turns."""
        self.signal = Signal()
        # The broker itself closes connections that are idle for `connections.max.idle.ms`.
        self.wait_ms = min(request.max_wait_ms, services.fetch_wait_ms_max)
        self._services = services
        self._request = request
        self._context = context
        self._limit = read_limit(request.isolation_level)
        # 0 and less count as 0: the first batch comes all the same (KIP-74).
        self._bytes_max = min(max(request.max_bytes, 0), services.fetch_bytes_max)
        self._size = 0
        """Bytes of records in all answers together."""
        self._is_urgent = False
        """Whether an answer has an error, or a log that has to be cut."""
        self._parts: dict[Watched, _RequestedPartition] = {}

    @property
    def is_enough(self) -> bool:
        """Whether the response can be sent now."""
        # Never wait for more bytes than the response may have.
        bytes_min = min(self._request.min_bytes, self._bytes_max)
        # Nothing to read is enough too: Kafka answers a request without partitions at once.
        return self._is_urgent or self._size >= bytes_min or not self.answered

    def answer_or_none(self, now_s: float) -> FetchResponse | None:
        """The response if nothing has to be waited for; else None, and `_read` continues."""
        try:
            # While logs are made (decision 55) one may have to be waited for, which needs a
            # coroutine.
            if self._services.replicas.held or not self._read_cached():
                return None
            if not self.is_enough and self.wait_ms > 0:
                return None
        except BaseException:
            self.unwatch()
            raise
        self.unwatch()
        return self.response(now_s)

    def _read_cached(self) -> bool:
        """Read until a device is needed; returns whether every partition was read."""
        for part in self.unread:
            try:
                with without_waiting:
                    self.read(part)
            except _ColdReadError:
                self.unread = itertools.chain((part,), self.unread)
                return False
        return True

    def response(self, now_s: float) -> FetchResponse:
        """The response with what was read; ends the request in its session."""
        # First: the answers are of the partitions as they were before another request changed them.
        code = self._context.check()
        if code is not ErrorCode.NONE:
            return FetchResponse(error_code=code, session_id=self._context.end(now_s))
        taken = [part for part in self.answered if self._take(part)]
        return FetchResponse(session_id=self._context.end(now_s), responses=_topics_of(taken))

    async def response_in_slices(self, slices: Slices) -> FetchResponse:
        """The same for a request of many partitions."""
        loop = asyncio.get_running_loop()
        code = self._context.check()
        if code is not ErrorCode.NONE:
            return FetchResponse(error_code=code, session_id=self._context.end(loop.time()))
        taken = []
        for part in self.answered:
            if self._take(part):
                taken.append(part)
            await slices.turn()
        if len(taken) > PARTS_INLINE_MAX:
            await slices.rest()  # Making and encoding the response takes another slice.
        return FetchResponse(session_id=self._context.end(loop.time()), responses=_topics_of(taken))

    def changed(self) -> list[_RequestedPartition]:
        """The partitions that have changed since the last call."""
        return [self._parts[each] for each in self.signal.take_changed()]

    def unwatch(self) -> None:
        """Stop watching all partitions."""
        for watched in self._parts:
            watched.remove(self.signal)

    def read(self, part: _RequestedPartition) -> None:
        """Read a partition; a partition that was named before is skipped.

        Raises:
            _ColdReadError: a device must be read.
        """
        topic, topic_id, wanted = part.read
        known = self._services.find_topic(topic, topic_id)
        # Looked up at each read: the deletion of a topic ends the wait of a request by this error.
        if known is None:
            self._put(part, _failed(wanted, _unknown_code(topic_id)))
            return
        partition = None
        try:
            partition = self._services.replicas.find(TopicPartition(known.name, wanted.partition))
            # A partition that the request names twice is answered once.
            if self._parts.setdefault(partition.appended, part) is not part:
                return
            # Before the read: an append in between is noticed.
            partition.appended.add(self.signal)
            # Before the offset (KIP-320): it may be of another leader's log, and
            # OFFSET_OUT_OF_RANGE would make the client reset its position.
            partition.check_epoch(LeaderEpoch(wanted.current_leader_epoch))
            # KIP-595: the follower or consumer has records of an epoch that this log does not have.
            end = partition.divergence(
                Offset(wanted.fetch_offset), LeaderEpoch(wanted.last_fetched_epoch)
            )
            if end is not None:
                self._put(part, _diverging(wanted, partition, end))
                return
            bytes_max, is_first_whole = self._room_for(part)
            found = partition.read(
                Offset(wanted.fetch_offset),
                bytes_max=bytes_max,
                is_first_whole=is_first_whole,
                limit=self._limit,
            )
        except BlockingIOError:
            assert partition is not None
            # Without an answer: the partition stays watched, and a worker thread reads it.
            raise _ColdReadError(partition) from None
        except (TailraceError, OSError) as error:
            self._put(part, _refused(wanted, partition, error))
        else:
            self._put(part, self._answer(wanted, found))

    async def read_or_wait(self, part: _RequestedPartition) -> None:
        """Read a part as `read` does; if that needs the device, read on a worker thread."""
        if self._services.replicas.held:
            await self._wait_for_log(part)
        try:
            with without_waiting:
                self.read(part)
        except _ColdReadError as cold:
            partition = cold.partition
        else:
            return
        bytes_max, is_first_whole = self._room_for(part)
        try:
            found = await partition.read_from_device(
                self._services.device_reads,
                Offset(part.read.wanted.fetch_offset),
                bytes_max=bytes_max,
                is_first_whole=is_first_whole,
                limit=self._limit,
            )
        except (TailraceError, OSError) as error:
            self._put(part, _refused(part.read.wanted, partition, error))
        else:
            self._put(part, self._answer(part.read.wanted, found))

    async def _wait_for_log(self, part: _RequestedPartition) -> None:
        topic, topic_id, wanted = part.read
        known = self._services.find_topic(topic, topic_id)
        if known is not None:
            name = TopicPartition(known.name, wanted.partition)
            await self._services.replicas.new_logs.wait_for(name)

    def _take(self, part: _RequestedPartition) -> bool:
        """Tell the session of an answer; returns whether it belongs into the response."""
        assert part.answer is not None
        return self._context.take(part.read, part.answer)

    def _room_for(self, part: _RequestedPartition) -> tuple[int, bool]:
        """The byte limit of a partition, and whether its first batch is returned whole."""
        others = self._size - part.size
        bytes_left = max(self._bytes_max - others, 0)
        # KIP-74: the first batch of the answer is whole, whatever the limits, or a consumer with a
        # small limit would never get past a large batch.
        return min(max(part.read.wanted.partition_max_bytes, 0), bytes_left), not others

    def _answer(self, wanted: FetchPartition, found: ReadSlice) -> PartitionData:
        is_committed = self._limit is ReadLimit.LAST_STABLE
        return PartitionData(
            partition_index=wanted.partition,
            error_code=ErrorCode.NONE,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            aborted_transactions=_aborted(found) if is_committed else None,
            records=found.records or b"",
        )

    def _put(self, part: _RequestedPartition, answer: PartitionData) -> None:
        if part.answer is None:
            self.answered.append(part)
        part.answer = answer
        size = len(answer.records or b"")
        self._size += size - part.size
        part.size = size
        # Kafka answers at once too: an error or a divergence does not go away by waiting.
        if answer.error_code or answer.diverging_epoch.epoch >= 0:
            self._is_urgent = True


def _is_long(request: FetchRequest) -> bool:
    topics, forgotten = request.topics, request.forgotten_topics_data
    if len(topics) + len(forgotten) > PARTS_INLINE_MAX:
        return True
    forgotten_count = sum(len(topic.partitions) for topic in forgotten) if forgotten else 0
    return count_of(topics) + forgotten_count > PARTS_INLINE_MAX


def _topics_of(parts: list[_RequestedPartition]) -> tuple[FetchableTopicResponse, ...]:
    """The answers of the partitions, neighbours of one topic together."""
    return tuple(
        FetchableTopicResponse(
            topic=topic,
            topic_id=topic_id,
            partitions=tuple(part.answer for part in group if part.answer is not None),
        )
        # Neighbours only, as the order of partitions is that of their turns; a topic may come
        # twice.
        for (topic, topic_id), group in itertools.groupby(parts, lambda part: part.read[:2])
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


def _diverging(wanted: FetchPartition, partition: Partition, end: EpochEnd) -> PartitionData:
    positions = partition.log.positions
    return PartitionData(
        partition_index=wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=positions.high_watermark,
        last_stable_offset=positions.last_stable,
        log_start_offset=partition.log.start_offset,
        diverging_epoch=EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset),
        records=b"",
    )


def _unknown_code(topic_id: UUID) -> ErrorCode:
    if topic_id == NO_UUID:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.UNKNOWN_TOPIC_ID


def _refused(
    wanted: FetchPartition, partition: Partition | None, error: TailraceError | OSError
) -> PartitionData:
    if not isinstance(error, OffsetOutOfRangeError):
        return _failed(wanted, error_code(error))
    return PartitionData(
        partition_index=wanted.partition,
        error_code=ErrorCode.OFFSET_OUT_OF_RANGE,
        high_watermark=-1 if partition is None else partition.log.positions.high_watermark,
        log_start_offset=error.log_start_offset,
        records=b"",
    )
