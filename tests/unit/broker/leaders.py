"""A scripted leader that answers followers from its logs, and a broker's followers without it.

The leader obeys Kafka's rules for Fetch of followers, fetch sessions and ListOffsets; `spoil` makes
it lie. Its high watermark is what the follower that asks has, so it has two replicas.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from tailrace.broker.following import Following
from tailrace.broker.kraft.settings import FollowingConfig
from tailrace.client.config import ClientConfig
from tailrace.client.nodes import Node
from tailrace.model import LeaderEpoch, TopicPartition
from tailrace.protocol import frames
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tailrace.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tailrace.replication.flushes import Flushes
from tailrace.replication.partition import Partition
from tailrace.replication.quotas import ReplicationQuota
from tailrace.storage.cleaner.worker import CleanerConfig, LogCleaner
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager
from tailrace.storage.positions import ReadLimit
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import MemoryFiles, Outside
from tailrace.testing.network import MemorySocket
from tests.unit.storage.builders import NOW, batch, settings
from tests.unit.storage.test_manager import manager

if TYPE_CHECKING:
    from tailrace.protocol.fields import Message

LEADER = 1
FOLLOWER = 2
BROKER_EPOCH = 70

Spoil = Callable[[FetchRequest, FetchResponse], FetchResponse | None]
"""Changes an answer; None closes the connection in place of it."""


def place(number: int = 0, topic: str = "flights") -> TopicPartition:
    return TopicPartition(topic, number)


def id_of(topic: str) -> UUID:
    return UUID(bytes=topic.encode().ljust(16, b"."))


def create_log(logs: LogManager, name: TopicPartition, **given: object) -> Log:
    """The log of a new partition."""
    config = settings(**{"segment_bytes": 10_000, "segment_index_bytes": 1200, **given})
    return logs.create(name, topic_id=id_of(name.topic), config=config)


class ScriptedLeader:
    """A node that leads the partitions that have a log here."""

    def __init__(self, outside: Outside, *, port: int = 0) -> None:
        self.outside = outside
        self.logs: dict[TopicPartition, Log] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.files = MemoryFiles()
        self.manager = manager(self.files)
        self.requests: list[FetchRequest] = []
        self.list_requests = 0
        self.spoil: Spoil = lambda _, answer: answer
        self.delay_s = 0.001
        """Time that an answer takes, so that virtual time passes."""
        self.offset_of: Callable[[int], int] = lambda offset: offset
        """Changes the offsets in answers to ListOffsets."""
        self.list_codes: list[ErrorCode] = []
        """Errors of the next answers to ListOffsets."""
        self.has_sessions = True
        self.connections = 0
        self._session: dict[tuple[UUID, int], FetchPartition] = {}
        self._told: dict[tuple[UUID, int], tuple[int, int]] = {}
        self._session_id = self._session_epoch = 0
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._sockets: list[MemorySocket] = []
        self._listener = outside.network.listen("memory", port, self._accepted)
        self.node = Node(LEADER, "memory", self._listener.port)

    # -- what it leads ------------------------------------------------------------------------

    def raise_log_start(self, offset: int) -> None:
        """Remove the records below an offset."""
        log = self.logs[place()]
        log.advance_high_watermark(offset)
        raise_log_start(log, offset)

    def lead(self, name: TopicPartition | None = None, *, epoch: int = 0) -> Log:
        """Lead a partition in an epoch, with the log that it has, or with an empty one."""
        name = name or place()
        if name not in self.logs:
            self.logs[name] = create_log(self.manager, name)
        self.epochs[name] = epoch
        self._changed.set()
        return self.logs[name]

    def write(self, *values: bytes, name: TopicPartition | None = None) -> None:
        """Append one batch for each value."""
        name = name or place()
        log = self.logs[name]
        for value in values:
            log.append(
                memoryview(batch(value)),
                leader_epoch=LeaderEpoch(self.epochs[name]),
                now_ms=self.outside.clock.now_ms(),
            )
        self._changed.set()

    def lose_sessions(self) -> None:
        self._session_id += 1
        self._session_epoch = 0
        self._session.clear()

    async def close(self) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for socket in self._sockets:
            socket.close()

    # -- requests -----------------------------------------------------------------------------

    def _accepted(self, socket: object) -> None:
        assert isinstance(socket, MemorySocket)
        self.connections += 1
        self._sockets.append(socket)
        self._tasks.append(asyncio.ensure_future(self._serve(socket)))

    async def _serve(self, socket: MemorySocket) -> None:
        with suppress(OSError):
            while size := await socket.receive(4):
                frame = memoryview(await socket.receive(int.from_bytes(size, "big")))
                header, position = frames.read_request_header(frame, apis=APIS)
                api = APIS[header.api_key]
                body = frames.decode_body(api.request, header.api_version, frame, position=position)
                await self.outside.pass_time(self.delay_s)
                answer: Message | None
                if isinstance(body, FetchRequest):
                    self.requests.append(body)
                    fetched = await self._fetch(body)
                    # The script of this moment, which may be newer than the request.
                    answer = self.spoil(body, fetched)
                elif isinstance(body, ListOffsetsRequest):
                    self.list_requests += 1
                    answer = self._offsets(body)
                else:
                    answer = ApiVersionsResponse(
                        api_keys=tuple(
                            ApiVersion(
                                api_key=key,
                                min_version=APIS[key].first_version,
                                max_version=APIS[key].last_version,
                            )
                            for key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.API_VERSIONS)
                        )
                    )
                if answer is None:
                    socket.close()
                    return
                data = memoryview(
                    frames.encode_response(
                        api,
                        answer,
                        version=header.api_version,
                        correlation_id=header.correlation_id,
                    )
                )
                while data:
                    sent = socket.send([data])
                    if sent is None:
                        await self.outside.pass_time(0.001)
                    data = data[sent or 0 :]

    async def _fetch(self, request: FetchRequest) -> FetchResponse:
        assert request.replica_state.replica_epoch == BROKER_EPOCH
        error = self._take_session(request)
        if error:
            return FetchResponse(error_code=error)
        session_id = self._session_id if self.has_sessions else 0
        deadline = self.outside.loop.time() + request.max_wait_ms / 1000
        is_full = request.session_epoch == 0
        while True:
            self._changed.clear()
            topics: dict[UUID, list[PartitionData]] = {}
            for key, asked in self._session.items():
                data = self._read(key, asked)
                known = (data.high_watermark, data.log_start_offset)
                is_news = data.error_code or data.records or data.diverging_epoch.end_offset >= 0
                if is_full or is_news or known != self._told.get(key):
                    topics.setdefault(key[0], []).append(data)
                    self._told[key] = known
            left = deadline - self.outside.loop.time()
            if topics or left <= 0:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        return FetchResponse(
            session_id=session_id,
            responses=tuple(
                FetchableTopicResponse(topic_id=topic_id, partitions=tuple(parts))
                for topic_id, parts in topics.items()
            ),
        )

    def _take_session(self, request: FetchRequest) -> int:
        if request.session_epoch <= 0:
            self._session_id += 1
            self._session_epoch = 0
            self._session = {}
            self._told = {}
        elif request.session_id != self._session_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        elif request.session_epoch != self._session_epoch + 1:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        else:
            self._session_epoch += 1
        for forgotten in request.forgotten_topics_data:
            for number in forgotten.partitions:
                self._session.pop((forgotten.topic_id, number), None)
        for topic in request.topics:
            for each in topic.partitions:
                self._session[topic.topic_id, each.partition] = each
                self._told.pop((topic.topic_id, each.partition), None)
        return 0

    def _read(self, key: tuple[UUID, int], asked: FetchPartition) -> PartitionData:
        name = next(
            (each for each in self.logs if (id_of(each.topic), each.partition) == key), None
        )
        if name is None:
            return _refusal(key[1], ErrorCode.UNKNOWN_TOPIC_ID)
        log, epoch = self.logs[name], self.epochs[name]
        if asked.current_leader_epoch != epoch:
            is_old = asked.current_leader_epoch < epoch
            return _refusal(
                key[1],
                ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH,
            )
        last_epoch = LeaderEpoch(asked.last_fetched_epoch)
        if last_epoch >= 0:
            end = log.epochs.end_offset_for(last_epoch, log_end=log.end_offset)
            if last_epoch == epoch:
                end = end._replace(epoch=last_epoch, end_offset=log.end_offset)
            if end.epoch >= 0 and (end.epoch < last_epoch or end.end_offset < asked.fetch_offset):
                return PartitionData(
                    partition_index=key[1],
                    error_code=0,
                    high_watermark=log.positions.high_watermark,
                    diverging_epoch=EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset),
                    records=b"",
                )
        if not log.start_offset <= asked.fetch_offset <= log.end_offset:
            return _refusal(key[1], ErrorCode.OFFSET_OUT_OF_RANGE)
        log.advance_high_watermark(asked.fetch_offset)
        found = log.read(
            asked.fetch_offset,
            bytes_max=asked.partition_max_bytes,
            is_first_whole=True,
            limit=ReadLimit.LOG_END,
        )
        return PartitionData(
            partition_index=key[1],
            error_code=0,
            high_watermark=log.positions.high_watermark,
            log_start_offset=log.start_offset,
            records=b"" if found.records is None else bytes(found.read()),
        )

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            parts = []
            for each in topic.partitions:
                log = self.logs[TopicPartition(topic.name, each.partition_index)]
                offset = log.end_offset if each.timestamp == -1 else log.start_offset
                parts.append(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=self.list_codes.pop() if self.list_codes else 0,
                        offset=self.offset_of(offset),
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(parts)))
        return ListOffsetsResponse(topics=tuple(topics))


def _refusal(number: int, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=number, error_code=code, high_watermark=-1, records=b"")


class Follower:
    """The logs of a broker that follows."""

    def __init__(self, outside: Outside, *, is_durable: bool = False, **given: int) -> None:
        self.outside = outside
        self.manager = manager(outside.files)
        limits = CleanerConfig(map_bytes_max=2**20, io_bytes_per_second=float("inf"))
        self.cleaner = LogCleaner(self.manager, limits, outside.clock)
        self.partitions: dict[TopicPartition, Partition] = {}
        self.quota = ReplicationQuota(
            "follower", outside.clock, node_id=FOLLOWER, window_count=11, window_s=1
        )
        self.following = Following(
            ClientConfig(),
            FollowingConfig(**given),
            outside.runtime,
            logs=self.manager,
            flushes=Flushes(self.manager, outside.threads),
            cleaner=self.cleaner,
            node_id=FOLLOWER,
            broker_epoch=lambda: BROKER_EPOCH,
            is_durable=is_durable,
            quota=self.quota,
        )

    def partition(self, name: TopicPartition | None = None, **given: object) -> Partition:
        """A partition, with an empty log if it is new."""
        name = name or place()
        if name not in self.partitions:
            log = create_log(self.manager, name, **given)
            home = self.manager.home_of(log)
            self.partitions[name] = Partition(
                log, on_failure=lambda error: self.manager.refused(home, error)
            )
        return self.partitions[name]

    def log(self, name: TopicPartition | None = None) -> Log:
        return self.partition(name).log

    def write(self, *values: bytes, epoch: int = 0, name: TopicPartition | None = None) -> None:
        """Append batches as a former leader."""
        log = self.log(name)
        known = log.positions.high_watermark
        for value in values:
            log.append(memoryview(batch(value)), leader_epoch=LeaderEpoch(epoch), now_ms=NOW)
        assert log.positions.high_watermark == known

    def follow(
        self, leader: ScriptedLeader, *, epoch: int = 0, name: TopicPartition | None = None
    ) -> None:
        """Follow a partition of the leader."""
        name = name or place()
        self.following.follow(
            self.partition(name),
            topic_id=id_of(name.topic),
            leader=leader.node,
            epoch=LeaderEpoch(epoch),
        )


def content(log: Log) -> list[bytes]:
    """The batches of a log, as they are stored."""
    return [bytes(each.view) for each in log.batches(log.start_offset)]
