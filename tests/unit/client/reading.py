"""A cluster that can be read, and a network for a reader that waits, both on virtual time."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import crc32c

from tailrace.client import ClusterReader
from tailrace.model import IsolationLevel, SpecialTimestamp, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tailrace.protocol.messages.metadata import MetadataResponse
from tailrace.records import layout
from tailrace.records.batch import stamp
from tailrace.records.builder import BatchBuilder
from tailrace.records.control import build_end_marker
from tailrace.runtime.network import Socket
from tailrace.runtime.polling import Events
from tailrace.testing import Outside, virtual_runtime
from tailrace.testing.cluster import Request, ScriptedCluster, ScriptedNode
from tailrace.testing.script import Fault

FLIGHTS = TopicPartition("flights", 0)


class NotedSocket:
    """A connection that says when it calls back."""

    def __init__(self, socket: Socket, news: asyncio.Event) -> None:
        self._socket = socket
        self._news = news
        self.peer = socket.peer
        self.receive_into = socket.receive_into
        self.send = socket.send
        self.close = socket.close

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """See `Socket.watch_reads`."""
        self._socket.watch_reads(noted(callback, self._news))

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """See `Socket.watch_writes`."""
        self._socket.watch_writes(noted(callback, self._news))


def noted(callback: Callable[[], None] | None, news: asyncio.Event) -> Callable[[], None] | None:
    """The callback, which says that it was called."""
    if callback is None:
        return None
    called = callback

    def note() -> None:
        news.set()
        called()

    return note


class LoopNetwork:
    """The memory network for one caller that waits: the loop runs while it does."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._news = asyncio.Event()

    def connect(
        self, host: str, port: int, done: Callable[[Socket | OSError], None], *, first: int = 0
    ) -> Callable[[], None]:
        """See `Connector.connect`."""

        def settled(what: Socket | OSError) -> None:
            self._news.set()
            done(what if isinstance(what, OSError) else NotedSocket(what, self._news))

        return self._outside.network.connect(host, port, settled, first=first)

    def run_beside(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """See `Connector.run_beside`."""

        def noted_done() -> None:
            self._news.set()
            done()

        self._outside.network.run_beside(work, noted_done)

    def wait(self, timeout_s: float | None) -> Events:
        """Let the loop run until something has been called back, or time has gone by."""
        with _outside_of_loop(self._outside):
            self._outside.run(self._wait(timeout_s))
        return []

    def run(self, events: Events) -> None:
        """All has been called already."""

    def wake(self) -> None:
        """End the present wait, or the next one."""
        self._news.set()

    def close(self) -> None:
        """Do nothing: nothing is held."""

    async def _wait(self, timeout_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), timeout_s)
        self._news.clear()


@contextmanager
def _outside_of_loop(outside: Outside) -> Iterator[None]:
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outside.loop)


@contextmanager
def waiting_world() -> Iterator[tuple[Outside, LoopNetwork]]:
    """A world whose loop runs only while somebody waits."""
    with virtual_runtime() as outside:
        asyncio._set_running_loop(outside.loop)
        try:
            yield outside, LoopNetwork(outside)
        finally:
            asyncio._set_running_loop(None)


def reader(outside: Outside, network: LoopNetwork, bootstrap: str, **more: Any) -> ClusterReader:
    """A reader on virtual time."""
    return ClusterReader(
        bootstrap,
        open_network=lambda: network,
        monotonic=outside.loop.time,
        chance=outside.runtime.chance,
        **more,
    )


@dataclass(slots=True)
class ReadableLog:
    """The batches of one partition, and what is known of its transactions."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """With the offset after each."""
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer id, first and last offset of each aborted transaction."""
    open: dict[int, int] = field(default_factory=dict)
    """First offset of each open transaction, by producer id."""
    start: int = 0
    """The first offset that can be read."""
    local_start: int = 0
    """The first offset that is not in remote storage alone (KIP-405)."""
    epoch: int = 0
    """Leader epoch of what is written from now on."""
    prefix: bytes = b""
    """Stands before the offset in each value."""

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.batches[-1][0] if self.batches else self.start

    def end_for(self, isolation: int) -> int:
        """The first offset that a reader does not get."""
        is_committed = isolation == IsolationLevel.READ_COMMITTED
        return min([self.end, *self.open.values()]) if is_committed else self.end

    def write(self, count: int, *, producer_id: int = -1) -> None:
        """Append a batch whose values are its offsets; of a transaction, if there is a producer."""
        first = self.end
        builder = (
            BatchBuilder()
            if producer_id < 0
            else BatchBuilder(
                producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
            )
        )
        for offset in range(first, first + count):
            builder.append(None, b"%s%d" % (self.prefix, offset), timestamp=offset)
        if producer_id >= 0:
            self.open.setdefault(producer_id, first)
        self.append(bytearray(builder.build()), count)

    def write_some(self, count: int, left: list[int]) -> None:
        """Append a batch of so many offsets, of which compaction has left these."""
        builder = BatchBuilder()
        for delta in left:
            value = b"%d" % (self.end + delta)
            builder.append(None, value, timestamp=0, offset_delta=delta)
        data = bytearray(builder.build())
        layout.LENGTH.pack_into(data, layout.LAST_OFFSET_DELTA_POSITION, count - 1)
        crc = crc32c.crc32c(memoryview(data)[layout.ATTRIBUTES_POSITION :])
        layout.CRC.pack_into(data, layout.CRC_POSITION, crc)
        self.append(data, count)

    def finish(self, producer_id: int, *, is_commit: bool) -> None:
        """End a producer's transaction."""
        first = self.open.pop(producer_id)
        if not is_commit:
            self.aborted.append((producer_id, first, self.end))
        self.append(
            build_end_marker(
                producer_id, 0, is_commit=is_commit, coordinator_epoch=0, timestamp=self.end
            ),
            1,
        )

    def append(self, data: bytearray, count: int) -> None:
        """Append a batch that takes so many offsets."""
        stamp(memoryview(data), base_offset=self.end, leader_epoch=self.epoch)
        self.batches.append((self.end + count, bytes(data)))

    def truncate(self, end: int) -> None:
        """Lose all batches that have an offset from `end` on."""
        self.batches = [each for each in self.batches if each[0] <= end]

    def data(self, offset: int, *, size_max: int, isolation: int) -> PartitionData:
        """Return a leader's answer: whole batches, at least one of them."""
        end = self.end_for(isolation)
        if not self.start <= offset <= end:
            return PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        taken: list[bytes] = []
        behind = offset
        for after, batch in self.batches:
            if offset < after <= end and (not taken or sum(map(len, taken)) < size_max):
                taken.append(batch)
                behind = after
        return PartitionData(
            high_watermark=self.end,
            last_stable_offset=self.end_for(IsolationLevel.READ_COMMITTED),
            log_start_offset=self.start,
            aborted_transactions=tuple(
                AbortedTransaction(producer_id=producer_id, first_offset=first)
                for producer_id, first, last in self.aborted
                if first < behind and last >= offset
            )
            if isolation
            else None,
            records=b"".join(taken),
        )


class ReadableCluster(ScriptedCluster):
    """A scripted cluster whose nodes answer Fetch and ListOffsets of `flights-0` too."""

    def __init__(self, outside: Outside, *, nodes: int = 1) -> None:
        super().__init__(outside, nodes=nodes)
        self.create_topic("flights")
        self.flights = ReadableLog()
        self.topic_id = UUID(int=1)
        """The id of `flights`, for clients that ask in a version that has it."""
        self.answer_bytes = 2**31
        """An answer to Fetch ends with the batch that reaches this size."""
        self.before_request: Callable[[], object] = lambda: None
        """Called with each request of a client, before it is answered."""

    def make_again(self, log: ReadableLog, topic_id: UUID) -> None:
        """Delete `flights`, and create it again with another id and other records."""
        self.flights, self.topic_id = log, topic_id

    def act(self, node: ScriptedNode, request: Request, fault: Fault | None) -> Message | None:
        """Answer as a broker does; only the partition's leader answers for the partition."""
        body = request.body
        if request.api.key != ApiKey.API_VERSIONS:
            self.before_request()
        if isinstance(body, FetchRequest):
            (wanted,) = body.topics[0].partitions
            has_id = request.version > 12
            error = self._error(node, body.topics[0].topic_id if has_id else self.topic_id)
            found = (
                PartitionData(error_code=error)
                if error
                else self.flights.data(
                    wanted.fetch_offset,
                    size_max=min(body.max_bytes, self.answer_bytes),
                    isolation=body.isolation_level,
                )
            )
            return FetchResponse(
                responses=(
                    FetchableTopicResponse(
                        topic=FLIGHTS.topic,
                        topic_id=body.topics[0].topic_id,
                        partitions=(found,),
                    ),
                )
            )
        if isinstance(body, ListOffsetsRequest):
            (asked,) = body.topics[0].partitions
            return offsets_answer(
                self._offset(asked, body.isolation_level), self._error(node, self.topic_id)
            )
        answer = super().act(node, request, fault)
        if isinstance(answer, MetadataResponse):
            topics = tuple(
                replace(each, topic_id=self.topic_id) if each.name == FLIGHTS.topic else each
                for each in answer.topics
            )
            return replace(answer, topics=topics)
        return answer

    def _error(self, node: ScriptedNode, topic_id: UUID) -> ErrorCode:
        led = self.partitions.get(FLIGHTS)
        if led is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic_id != self.topic_id:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.NONE if led.leader == node.id else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _offset(self, asked: ListOffsetsPartition, isolation: int) -> int:
        end = self.flights.end_for(isolation)
        if asked.timestamp == SpecialTimestamp.EARLIEST:
            return self.flights.start
        if asked.timestamp == SpecialTimestamp.EARLIEST_LOCAL:
            return max(self.flights.start, self.flights.local_start)
        if asked.timestamp == SpecialTimestamp.LATEST:
            return end
        # The timestamps of records are their offsets; -1 says that none is that new.
        return asked.timestamp if asked.timestamp < end else -1


def offsets_answer(offset: int, error: ErrorCode = ErrorCode.NONE) -> ListOffsetsResponse:
    """An answer about `flights-0`."""
    found = ListOffsetsPartitionResponse(error_code=error, offset=offset)
    return ListOffsetsResponse(
        topics=(ListOffsetsTopicResponse(name=FLIGHTS.topic, partitions=(found,)),)
    )
