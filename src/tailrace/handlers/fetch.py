"""Fetch (1): records for consumers and for followers.

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
  - A follower reads from the leader only, up to the log end. Its offset says what it has: the
    leader notes it once for a request, after the read, and the answer has the high watermark that
    follows from it. As in Kafka, a high watermark that moves ends no wait: followers learn it with
    the next records, or when their time is over (KAFKA-9731: else each record costs two fetches).
  - A follower that is not in sync gets no records of a throttled partition while the leader exceeds
    `leader.replication.throttled.rate` (KIP-73); the answer waits for other records or its time.
  - A consumer may read from a follower too, up to the follower's high watermark. The leader sends
    one with a rack to a follower there, without records (KIP-392, `replica.selector.class`).
  - The bytes of an answer to a consumer count against its quota. One that exceeds it leaves without
    records, which the client gets later, and is not counted; no answer has more bytes than a
    client may get that was silent before.
  - Replica ids below -1 are those of tools, which read up to the log end of any replica.
Version notes: v7 has sessions; v9 checks the leader epoch (KIP-320); before v11 consumers read from
    the leader only; from v12 on a client may send the epoch of its last record, and learns where
    its log has left this one, without records (KIP-595); v13 names topics by id (UNKNOWN_TOPIC_ID;
    once the topic was found UNKNOWN_TOPIC_OR_PARTITION if it is deleted, and in a session
    INCONSISTENT_TOPIC_ID if another one has its name); v15 has the epoch
    of a follower's registration (KIP-903); v16 names the leader to who asks another (KIP-951).
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tailrace.errors import OffsetOutOfRangeError, TailraceError
from tailrace.handlers.fetch_sessions import (
    ANY_REPLICA_SINCE,
    CONSUMER,
    FUTURE_REPLICA,
    FetchContext,
    WantedPartition,
    count_of,
    replica_id_of,
)
from tailrace.handlers.services import Services, error_code, read_limit
from tailrace.model import LeaderEpoch, Offset, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from tailrace.replication.leadership import NotReplicaError
from tailrace.replication.partition import Partition
from tailrace.replication.read_replicas import nearest_replica
from tailrace.replication.traffic import TopicTraffic
from tailrace.replication.waiting import Signal, Watched
from tailrace.runtime.clock import elapsed_ms
from tailrace.runtime.files import without_waiting
from tailrace.runtime.slices import Slices, each_in_slices
from tailrace.runtime.steps import run_eagerly
from tailrace.security.quotas import Charge
from tailrace.storage.epochs import EpochEnd
from tailrace.storage.positions import ReadLimit
from tailrace.storage.reads import ReadSlice
from tailrace.values import dataclass, replace

if TYPE_CHECKING:
    from tailrace.security.authorizer import Authorizer

PARTS_INLINE_MAX: Final = 100
"""Most partitions that are read in one callback: some 2 ms of work. More are read in slices."""


PARTITION_BYTES: Final = 64
"""Bytes that each partition of an answer counts against a quota, beside its records; in Kafka they
are those that it takes, some 40 and the topic."""

IDS_SINCE: Final = 13
"""The first version that names topics by id."""

LEADER_SINCE: Final = 16
"""The first version whose answers name the leader and its address (KIP-951)."""

_ASK_ANOTHER: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The errors after which a client asks the leader that the answer names."""
_USUAL_ERRORS: Final = _ASK_ANOTHER | {
    ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_OUT_OF_RANGE,
}  # fmt: skip
"""Answers that Kafka does not count as failed (`ReplicaManager.readFromLog`)."""


@dataclass(slots=True, eq=False)
class _RequestedPartition:
    """A partition of a request, and its answer."""

    read: WantedPartition
    answer: PartitionData | None = None
    size: int = 0
    """Bytes of records in its answer."""
    is_noted: bool = False
    """Whether the leader has noted the offset of the follower that asks."""
    traffic: TopicTraffic | None = None
    """The counters of its topic; None: it was not found, or has nothing to read."""


class _ColdReadError(Exception):
    """The page cache does not have the index or the headers to find a partition's records."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        super().__init__()


def _right_to_read(
    authorizer: "Authorizer", header: RequestHeader, *, is_follower: bool
) -> Callable[[str | None], bool] | None:
    """Whether the client may read a topic; None: it may read all of them."""
    from tailrace.security.acls import CLUSTER_NAME
    from tailrace.security.needs import NEEDS

    by_topic, of_followers = NEEDS[ApiKey.FETCH]
    if not is_follower:
        # A topic of an id that nobody knows is answered as such.
        return lambda name: (
            name is None
            or authorizer.allows(header, by_topic.operation, by_topic.resource, name=name)
        )
    if authorizer.allows(header, of_followers.operation, of_followers.resource, name=CLUSTER_NAME):
        return None
    return lambda _: False


def handle_fetch(
    services: Services, header: RequestHeader, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    """The available records, or an awaitable for a response that has to wait."""
    version = header.api_version
    if _is_long(request):
        return _begin_later(services, header, request)
    # The session takes its changes over and is read in one callback, so that no other request of
    # the session comes in between.
    now_s = asyncio.get_running_loop().time()
    charge = _charge_or_none(services, header, request)
    context = services.fetch_sessions.begin(
        request, uses_topic_ids=version >= IDS_SINCE, now_s=now_s
    )
    if isinstance(context, ErrorCode):
        return FetchResponse(error_code=context)
    reading = _Reading(services, header, request, context=context, charge=charge)
    # A session may have many partitions although the request names few.
    if context.count() > PARTS_INLINE_MAX:
        return _read(reading) if charge is None else charge.timed(_read(reading))
    # Most fetches are answered here, without a coroutine.
    answer = reading.answer_or_none(now_s)
    if answer is not None:
        return answer
    return run_eagerly(_read(reading)) if charge is None else charge.timed(_read(reading))


def _charge_or_none(
    services: Services, header: RequestHeader, request: FetchRequest
) -> Charge | None:
    charge = services.quotas.fetch_charge_or_none(header)
    # As in Kafka, followers are not clients: KIP-73 has a quota for them.
    return None if charge is None or replica_id_of(request) >= 0 else charge


async def _begin_later(
    services: Services, header: RequestHeader, request: FetchRequest
) -> FetchResponse:
    charge = _charge_or_none(services, header, request)
    now_s = asyncio.get_running_loop().time()
    context = await services.fetch_sessions.begin_in_slices(
        request, Slices(), uses_topic_ids=header.api_version >= IDS_SINCE, now_s=now_s
    )
    if isinstance(context, ErrorCode):
        return FetchResponse(error_code=context)
    reading = _Reading(services, header, request, context=context, charge=charge)
    return await (_read(reading) if charge is None else charge.timed(_read(reading)))


async def _read(reading: "_Reading") -> FetchResponse:
    """The response when it has enough bytes, or when the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + reading.wait_ms / 1000
    slices = Slices()
    try:
        # In the order of the session: who had records last comes last, when the bytes may be used
        # up (KIP-74).
        for part in reading.unread:
            if not (reading.follower_id is not None and reading.has_all(part)):
                await reading.read_or_wait(part)
            if slices.is_over:
                await slices.rest()
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

    # Of the class, so that requests of consumers pay nothing for it.
    _throttled: dict[_RequestedPartition, bool] | None = None
    """The throttled partitions of a follower, and whether the last read left their records out."""
    _left_out: int = 0
    """Bytes that were there, and were not sent because the first batch had no room."""

    # Likewise, so that it costs nothing where there is no authorizer.
    _may_read: Callable[[str | None], bool] | None = None
    """Whether the client may read a topic, None one that is not known; None: it may read all."""

    def __init__(
        self,
        services: Services,
        header: RequestHeader,
        request: FetchRequest,
        *,
        context: FetchContext,
        charge: Charge | None,
    ) -> None:
        version = header.api_version
        self.answered: list[_RequestedPartition] = []
        """The partitions with an answer, in the order of their turns."""
        self.unread: Iterator[_RequestedPartition] = map(_RequestedPartition, context.partitions())
        """The partitions of the request that were not read yet, in the order of their turns."""
        # The broker itself closes connections that are idle for `connections.max.idle.ms`.
        self.wait_ms = min(request.max_wait_ms, services.fetch_wait_ms_max)
        self._services = services
        self._request = request
        self._context = context
        self._version = version
        # As `replica_id_of`, without the call: every small fetch of a consumer would pay for it.
        replica_id = request.replica_id
        if replica_id == CONSUMER:
            replica_id = request.replica_state.replica_id
        # Kafka's tools for debugging are consumers too, as -2 (FetchRequest.isConsumer).
        is_consumer = replica_id < 0 and replica_id != FUTURE_REPLICA
        self.follower_id = replica_id if replica_id >= 0 else None
        """The broker that asks as a follower; None: no broker does."""
        if self.follower_id is not None:
            # One time for all of its partitions, as in Kafka.
            self._asked_at_ms = elapsed_ms(services.clock)
        self._needs_leader = version < ANY_REPLICA_SINCE if is_consumer else replica_id >= 0
        """Whether only the leader of a partition may answer."""
        self._limit = read_limit(request.isolation_level) if is_consumer else ReadLimit.LOG_END
        may_go = services.sends_to_nearest and not self._needs_leader
        self._rack = request.rack_id if may_go else ""
        """The rack of a consumer that may be sent to another replica; empty: it may not."""
        # One that may be sent away is looked at with each append, as before its first wait.
        self.signal = Signal(
            has_log_ends=not is_consumer or bool(self._rack), has_watermarks=is_consumer
        )
        # 0 and less count as 0: the first batch comes all the same (KIP-74).
        self._bytes_max = min(max(request.max_bytes, 0), services.fetch_bytes_max)
        self._charge = charge
        """The quota of a consumer; None: it has none."""
        if charge is not None:
            # More would be throttled each time, and the consumer get nothing for ever. At least one
            # byte, for which a request of many partitions waits: without any it would not wait.
            allowed = max(charge.bytes_max - PARTITION_BYTES * context.count(), 1)
            self._bytes_max = int(min(self._bytes_max, allowed))
        self._size = 0
        """Bytes of records in all answers together."""
        self._has_parts = False
        """Whether a partition was read, or has no news."""
        self._is_urgent = False
        """Whether an answer has an error, or a log that has to be cut."""
        self._parts: dict[Watched, _RequestedPartition] = {}
        self._endpoints: tuple[NodeEndpoint, ...] = ()
        """Addresses of the leaders that answers name."""
        if services.authorizer is not None:
            self._may_read = _right_to_read(
                services.authorizer, header, is_follower=self.follower_id is not None
            )

    @property
    def is_enough(self) -> bool:
        """Whether the response can be sent now."""
        # Never wait for more bytes than the response may have.
        bytes_min = min(self._request.min_bytes, self._bytes_max)
        # Nothing to read is enough too: Kafka answers a request without partitions at once.
        return self._is_urgent or self._size + self._left_out >= bytes_min or not self._has_parts

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
            if self.follower_id is not None and self.has_all(part):
                continue
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
        if self._charge is not None:
            count = sum(map(self._is_news, self.answered))
            throttled = self._throttled_or_none(self._charge, count)
            if throttled is not None:
                return throttled
        take = self._context.take
        taken = [
            part
            for part in self.answered
            if part.answer is not None and take(part.read, part.answer)
        ]
        self._count(taken)
        return FetchResponse(
            session_id=self._context.end(now_s),
            responses=_topics_of(taken),
            node_endpoints=self._endpoints,
        )

    async def response_in_slices(self, slices: Slices) -> FetchResponse:
        """The same for a request of many partitions."""
        loop = asyncio.get_running_loop()
        code = self._context.check()
        if code is not ErrorCode.NONE:
            return FetchResponse(error_code=code, session_id=self._context.end(loop.time()))
        if self._charge is not None:
            count = sum(await each_in_slices(self.answered, self._is_news, slices))
            throttled = self._throttled_or_none(self._charge, count)
            if throttled is not None:
                return throttled
        taken = []
        for part in self.answered:
            if part.answer is not None and self._context.take(part.read, part.answer):
                taken.append(part)
            await slices.turn()
        self._count(taken)
        if len(taken) > PARTS_INLINE_MAX:
            await slices.rest()  # Making and encoding the response takes another slice.
        return FetchResponse(
            session_id=self._context.end(loop.time()),
            responses=_topics_of(taken),
            node_endpoints=self._endpoints,
        )

    def _is_news(self, part: _RequestedPartition) -> bool:
        return part.answer is not None and self._context.is_news(part.read, part.answer)

    def _throttled_or_none(self, charge: Charge, count: int) -> FetchResponse | None:
        """The answer to a consumer that exceeds its quota; None: it does not.

        `count` are the partitions that the answer would have.
        """
        size = self._size + PARTITION_BYTES * count
        throttle_ms = charge.settle(size=size)
        if not throttle_ms:
            return None
        # In the session the partitions keep what the client has got last, so that they are news.
        charge.take_back(size)
        return FetchResponse(throttle_time_ms=throttle_ms, session_id=self._context.throttled_id)

    def changed(self) -> list[_RequestedPartition]:
        """The partitions that have changed since the last call."""
        changed = [self._parts[each] for each in self.signal.take_changed()]
        if self._throttled is not None:
            # No append tells when the rate is kept again, so these are looked at whenever others
            # are, and once more when the time is over.
            changed += [each for each, is_held in self._throttled.items() if is_held]
            return list(dict.fromkeys(changed))
        return changed

    def unwatch(self) -> None:
        """Stop watching all partitions."""
        for watched in self._parts:
            watched.remove(self.signal)

    def has_all(self, part: _RequestedPartition) -> bool:
        """Whether a follower has all records of a partition; its fetch is noted, and it waits.

        Most partitions of most clusters are so, and each of their followers asks for them twice a
        second; under load each fetch begins so. It takes half of the CPU of `read`, which gets all
        other cases, and all errors.
        """
        topic, topic_id, wanted, cached = part.read
        services = self._services
        if cached is None or services.replicas.held or self._may_read is not None:
            return False
        known = services.find_topic(topic, topic_id)
        if known is None:
            return False
        if cached.place is None:
            cached.place = TopicPartition(known.name, wanted.partition)
        try:
            partition = services.replicas.find_replica(cached.place)
            log = partition.log
            positions = log.positions
            log_end = positions.log_end
            if (
                partition.leader_epoch != wanted.current_leader_epoch
                or log_end != wanted.fetch_offset
            ):
                return False
            log.check_usable()
            # KIP-595: with the same last epoch and the same end the logs do not diverge. A leader
            # has an entry for its epoch before the first record, and its followers have none.
            last_epoch = wanted.last_fetched_epoch
            if (
                log.epochs.latest != last_epoch
                and partition.divergence(log_end, LeaderEpoch(last_epoch)) is not None
            ):
                return False
            self._note(part, partition, log_end=log_end)
        except (TailraceError, OSError):
            part.is_noted = False  # `read` meets the error again, and answers it.
            return False
        self._parts[partition.appended] = part
        partition.appended.add(self.signal)
        self._has_parts = True
        # The high watermark has often moved just now, by this fetch.
        if (
            positions.high_watermark != cached.high_watermark
            or positions.log_start != cached.log_start_offset
        ):
            self._put(part, _without_records(wanted, partition))
        return True

    def read(self, part: _RequestedPartition) -> None:
        """Read a partition; a partition that was named before is skipped.

        Raises:
            _ColdReadError: a device must be read.
        """
        topic, topic_id, wanted, _ = part.read
        known = self._services.find_topic(topic, topic_id)
        if self._may_read is not None:
            # By its name also where it does not exist, which nobody shall learn.
            asked: str | None = topic
            if self._version >= IDS_SINCE:
                asked = None if known is None else known.name
            if not self._may_read(asked):
                self._put_urgent(part, _failed(wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                return
        # Looked up at each read: the deletion of a topic ends the wait of a request by this error.
        if known is None:
            self._put_urgent(part, self._unknown(part))
            return
        name = TopicPartition(known.name, wanted.partition)
        partition = None
        try:
            partition = self._services.replicas.find_replica(name)
            part.traffic = partition.traffic
            # A partition that the request names twice is answered once.
            if self._parts.setdefault(partition.appended, part) is not part:
                return
            # Before the read: an append in between is noticed.
            partition.appended.add(self.signal)
            # Before the offset (KIP-320): it may be of another leader's log, and
            # OFFSET_OUT_OF_RANGE would make the client reset its position. Before the role, as in
            # Kafka: with an older epoch the client learns that its metadata is what is old.
            partition.check_epoch(LeaderEpoch(wanted.current_leader_epoch))
            if self._needs_leader:
                partition.check_leader()
                self._check_follower(partition)
            offset = Offset(wanted.fetch_offset)
            if self._rack:
                nearest = self._nearest(partition, offset)
                if nearest is not None:
                    self._put_urgent(part, _elsewhere(wanted, partition, nearest))
                    return
            # KIP-595: the follower or consumer has records of an epoch that this log does not have.
            if wanted.last_fetched_epoch >= 0:
                end = partition.divergence(offset, LeaderEpoch(wanted.last_fetched_epoch))
                if end is not None:
                    self._put_urgent(part, _diverging(wanted, partition, end))
                    return
            bytes_max, is_first_whole = self._room_for(part)
            found = partition.read(
                offset,
                bytes_max=bytes_max,
                is_first_whole=is_first_whole,
                limit=self._limit,
            )
            if self.follower_id is not None:
                found = self._noted(part, partition, found, log_end=partition.log.end_offset)
        except BlockingIOError:
            assert partition is not None
            # Without an answer: the partition stays watched, and a worker thread reads it.
            raise _ColdReadError(partition) from None
        except (TailraceError, OSError) as error:
            self._put_urgent(part, self._refused(wanted, name, error, partition=partition))
        else:
            self._put_found(part, found)

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
        # Before the read: what comes meanwhile does not keep a follower from being in sync.
        epoch, log_end = partition.leader_epoch, partition.log.end_offset
        try:
            found = await partition.read_from_device(
                self._services.device_reads,
                Offset(part.read.wanted.fetch_offset),
                bytes_max=bytes_max,
                is_first_whole=is_first_whole,
                limit=self._limit,
            )
            if self.follower_id is not None:
                # What was read, and what the follower has, are of another log by now: in between
                # this broker may have followed, cut its log, and led again.
                partition.check_epoch(epoch)
                partition.check_leader()
                found = self._noted(part, partition, found, log_end=log_end)
        except (TailraceError, OSError) as error:
            self._put_urgent(
                part, self._refused(part.read.wanted, partition.name, error, partition=partition)
            )
        else:
            self._put_found(part, found)

    # -- followers and near replicas ----------------------------------------------------------

    def _check_follower(self, partition: Partition) -> None:
        """Check that a follower is a replica; before its offset, which else may be any.

        Raises:
            NotReplicaError: it is none, or not yet as far as this leader knows.
        """
        follower_id, leadership = self.follower_id, partition.leadership
        if follower_id is None or (leadership is not None and follower_id in leadership.followers):
            return
        raise NotReplicaError(
            f"broker {follower_id} is not a replica of {partition.name} in leader epoch "
            f"{partition.leader_epoch}"
        )

    def _note(self, part: _RequestedPartition, partition: Partition, *, log_end: Offset) -> None:
        """Note what a follower has, at the first read.

        Raises:
            NotLeaderError, NotReplicaError, StaleFollowerError: as `Partition.note_fetch`.
        """
        assert self.follower_id is not None
        # Once for a request, as in Kafka: while it waits the follower gets nothing, and a later
        # time or log end would make it look in sync.
        if not part.is_noted:
            part.is_noted = True
            wanted = part.read.wanted
            partition.note_fetch(
                self.follower_id,
                broker_epoch=self._request.replica_state.replica_epoch,
                offset=Offset(wanted.fetch_offset),
                log_start=Offset(wanted.log_start_offset),
                log_end=log_end,
                now_ms=self._asked_at_ms,
            )

    def _noted(
        self, part: _RequestedPartition, partition: Partition, found: ReadSlice, *, log_end: Offset
    ) -> ReadSlice:
        """Note what a follower has; the slice with the watermark after that; raises as `_note`."""
        self._note(part, partition, log_end=log_end)
        positions = partition.log.positions
        found = found._replace(
            high_watermark=positions.high_watermark, last_stable_offset=positions.last_stable
        )
        quota, leadership = self._services.leader_quota, partition.leadership
        if not quota.is_throttled(partition.log) or leadership is None:
            return found
        # After it is noted, as in Kafka: what a throttled follower has already counts.
        is_held = self.follower_id not in leadership.isr and quota.is_exceeded()
        if self._throttled is None:
            self._throttled = {}
        self._throttled[part] = is_held and bool(found.records)
        return found._replace(records=None) if is_held else found

    def _count(self, taken: Iterable[_RequestedPartition]) -> None:
        """Count the bytes of an answer, which is made now."""
        is_follower = self.follower_id is not None
        for part in taken:
            traffic = part.traffic
            if traffic is None:
                continue
            traffic.fetch_requests += 1
            if is_follower:
                traffic.replication_bytes_out += part.size
            else:
                traffic.bytes_out += part.size
            if part.answer is not None and part.answer.error_code not in _USUAL_ERRORS:
                traffic.failed_fetch_requests += 1
        if self._throttled is not None:
            # Only now, as in Kafka: one answer may be as large as the request allows, and the next
            # ones wait for it. Kafka counts the few bytes around the records too.
            self._services.leader_quota.record(sum(each.size for each in self._throttled))

    def _nearest(self, partition: Partition, offset: Offset) -> int | None:
        """The follower in the consumer's rack that it should ask instead; None: this broker."""
        # Only the leader knows how far the others are; a follower answers who comes.
        if partition.leadership is None:
            return None
        rack_of, listener = self._services.cluster.rack_of, self._services.listener
        return nearest_replica(
            partition.leadership,
            leader_id=self._services.node_id,
            offset=offset,
            rack=self._rack,
            rack_of=lambda broker_id: rack_of(broker_id, listener),
        )

    async def _wait_for_log(self, part: _RequestedPartition) -> None:
        topic, topic_id, wanted, _ = part.read
        known = self._services.find_topic(topic, topic_id)
        if known is not None:
            name = TopicPartition(known.name, wanted.partition)
            await self._services.replicas.new_logs.wait_for(name)

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

    def _put_found(self, part: _RequestedPartition, found: ReadSlice) -> None:
        if found.is_first_incomplete:
            # As in Kafka: a client would take a part of a batch for one that is larger than its
            # limit, and a follower for damage. Their bytes count for fetch.min.bytes all the same,
            # or the request would wait for what has no room either.
            self._left_out += len(found.records or b"")
            found = found._replace(records=None, aborted=())
        self._put(part, self._answer(part.read.wanted, found))

    def _put(self, part: _RequestedPartition, answer: PartitionData) -> None:
        if part.answer is None:
            self.answered.append(part)
        self._has_parts = True
        part.answer = answer
        size = len(answer.records or b"")
        self._size += size - part.size
        part.size = size

    def _put_urgent(self, part: _RequestedPartition, answer: PartitionData) -> None:
        # Kafka answers at once too: an error, a divergence and another replica do not go away by
        # waiting.
        self._is_urgent = True
        self._put(part, answer)

    # -- refusals -----------------------------------------------------------------------------

    def _unknown(self, part: _RequestedPartition) -> PartitionData:
        """The answer where no topic has the name or the id."""
        wanted = part.read.wanted
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # As Kafka, which looks an id up once: from then on it goes by the name, in the request and
        # in the session, and another topic may have that by now.
        name = self._context.name_of(part.read)
        if name is not None and self._services.has_partition(
            successor := TopicPartition(name, wanted.partition)
        ):
            try:
                self._services.replicas.find_replica(successor)
            except TailraceError as error:
                return self._refused(wanted, successor, error, partition=None)
            code = ErrorCode.INCONSISTENT_TOPIC_ID
        elif name is None and part.answer is None and self._version >= IDS_SINCE:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        return _failed(wanted, code)

    def _refused(
        self,
        wanted: FetchPartition,
        name: TopicPartition,
        error: TailraceError | OSError,
        *,
        partition: Partition | None,
    ) -> PartitionData:
        if isinstance(error, OffsetOutOfRangeError):
            return PartitionData(
                partition_index=wanted.partition,
                error_code=ErrorCode.OFFSET_OUT_OF_RANGE,
                high_watermark=-1 if partition is None else partition.log.positions.high_watermark,
                log_start_offset=error.log_start_offset,
                records=b"",
            )
        code = error_code(error)
        if isinstance(error, NotReplicaError) and wanted.current_leader_epoch < 0:
            # Before v9, as in Kafka: nobody knows which of the two has the older state.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._version < LEADER_SINCE or code not in _ASK_ANOTHER:
            return _failed(wanted, code)
        return replace(_failed(wanted, code), current_leader=self._leader_of(name))

    def _leader_of(self, name: TopicPartition) -> LeaderIdAndEpoch:
        """The leader that a client should ask instead; its address goes into the response."""
        cluster, listener = self._services.cluster, self._services.listener
        leader = cluster.leader_of(name, listener)
        if leader is None:
            return LeaderIdAndEpoch()
        # Followers know the brokers from the image; as in Kafka they get none.
        if leader.endpoint is not None and self.follower_id is None:
            endpoint = NodeEndpoint(
                node_id=leader.node_id,
                host=leader.endpoint.host,
                port=leader.endpoint.port,
                rack=cluster.rack_of(leader.node_id, listener),
            )
            if endpoint not in self._endpoints:
                self._endpoints += (endpoint,)
        return LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)


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


def _without_records(wanted: FetchPartition, partition: Partition) -> PartitionData:
    positions = partition.log.positions
    return PartitionData(
        partition_index=wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=positions.high_watermark,
        last_stable_offset=positions.last_stable,
        log_start_offset=partition.log.start_offset,
        records=b"",
    )


def _diverging(wanted: FetchPartition, partition: Partition, end: EpochEnd) -> PartitionData:
    return replace(
        _without_records(wanted, partition),
        diverging_epoch=EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset),
    )


def _elsewhere(wanted: FetchPartition, partition: Partition, replica: int) -> PartitionData:
    """The answer that sends a consumer to another replica, without records."""
    return replace(_without_records(wanted, partition), preferred_read_replica=replica)
