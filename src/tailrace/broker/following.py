"""`Following`: fetches the partitions that this broker follows from their leaders.

    follow(partition) ─► Fetch to its leader, in one session for all that it leads (KIP-227)
                              │
    the log ◄─ in slices ── answer: records, a diverging epoch, out of range, an error

Each leader has one task, one connection and one request in flight, however many partitions it
leads; only those that have changed are looked at for the next request. What an answer means for a
log is in `replication.follower_log`, and `replication.cuts` removes what it has to lose. Appends
are on the event loop, as those of leaders; what waits for a device is on threads, and the next
request comes after it: a leader never hears of records or a cut that are not yet as safe as the
settings want them.

Invariant: a partition is asked for at its log end, in the epoch in which it is followed, and an
answer to anything else changes nothing. Whatever a leader sends, the log below the high watermark
changes only after a line in the broker's log.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from tailrace.broker.kraft.settings import FollowingConfig
from tailrace.broker.peers import Peers
from tailrace.client.config import ClientConfig
from tailrace.client.fetch_session import FetchSession, SessionRequest, Wanted
from tailrace.client.nodes import Node
from tailrace.client.security import Security
from tailrace.config.settings import INT64_MAX
from tailrace.errors import StorageError, TailraceError
from tailrace.model import LeaderEpoch, Offset, SpecialTimestamp, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.replication.cuts import LogCuts
from tailrace.replication.flushes import Flushed, Flushes
from tailrace.replication.follower_log import (
    EarlyBatchError,
    FetchedPartition,
    FetchPosition,
    MisplacedAnswerError,
    append_fetched,
    cut_diverged,
    position_of,
    settle_range,
)
from tailrace.replication.partition import Partition
from tailrace.replication.quotas import ReplicationQuota
from tailrace.replication.waiting import Signal
from tailrace.runtime.background import BackgroundTasks
from tailrace.runtime.slices import Slices
from tailrace.runtime.system import Runtime
from tailrace.storage.cleaner.worker import LogCleaner
from tailrace.storage.directories import unusable
from tailrace.storage.epochs import EpochEnd
from tailrace.storage.log import has_failed
from tailrace.storage.manager import LogManager, is_shortage
from tailrace.storage.shrink import DeviceSteps, restart, truncation
from tailrace.values import dataclass, replace

logger = logging.getLogger(__name__)

REFUSALS_MAX: Final = 3
"""Answers in a row whose records are refused, before the partition is given up. Damage on the way
goes by itself; damage in the leader's log would be fetched for ever."""

CHANGES_MAX: Final = 100
"""Partitions that a request names at most: to encode 2,000 would hold the event loop for 60 ms. A
session grows by the next requests, which do not wait at the leader."""

_WITH_IDS: Final = 13
"""The first version of Fetch that names topics by their ids, as every broker of a quorum takes."""

_IDLE_S: Final = 3600.0
"""Wait without anything to fetch; `follow` ends it."""

# Answers that pass once both brokers have the same image; they are logged at a lower level.
_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

# Errors of a session that the leader has lost: it is begun again at once.
_SESSION_LOST: Final = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowingStatistics:
    """The partitions that a broker follows at one moment; totals are since it was started."""

    leader_count: int
    """Brokers that are fetched from."""
    partition_count: int
    """Partitions that are followed, in whatever state."""
    delayed_count: int
    """Partitions among these that wait for `replica.fetch.backoff.ms`, after an error or because of
    `follower.replication.throttled.rate`."""
    failed_count: int
    """Partitions among these that are not fetched until there is another leader epoch."""
    lag_max: int
    """Largest number of records below the leader's high watermark that a partition lacks."""
    request_count: int
    """Fetch requests that were sent."""
    fetched_bytes: int
    """Bytes of batches that were appended."""
    error_count: int
    """Partitions in answers, and whole requests, that ended in an error."""


@dataclass(slots=True)
class _Totals:
    """Counted for the statistics."""

    requests: int = 0
    fetched_bytes: int = 0
    errors: int = 0


@dataclass(slots=True, eq=False)
class _Followed:
    """A partition in one leader epoch."""

    partition: Partition
    topic_id: UUID
    epoch: LeaderEpoch
    fallback: Offset
    """Its high watermark when it began to follow."""
    refusal_count: int = 0
    """Answers in a row whose records were refused."""
    refused_code: int = ErrorCode.NONE
    """The error of the last answer."""
    lag: int | None = None
    """Records below the leader's high watermark that it lacks; None: not known yet."""
    flush: Flushed | None = None
    """A flush that is repeated before the partition is asked for, as a shortage has refused it."""

    @property
    def name(self) -> TopicPartition:
        return self.partition.name


class _Asked(NamedTuple):
    """A partition in the session, as the leader knows it."""

    followed: _Followed
    position: FetchPosition


class _Shared(NamedTuple):
    """Settings and services that the fetchers of all leaders share."""

    client: ClientConfig
    security: Security | None
    config: FollowingConfig
    runtime: Runtime
    logs: LogManager
    flushes: Flushes
    cleaner: LogCleaner
    node_id: int
    broker_epoch: Callable[[], int]
    is_durable: bool
    quota: ReplicationQuota
    totals: _Totals


class Following:
    """The partitions that this broker follows; on the event loop."""

    def __init__(
        self,
        client: ClientConfig,
        config: FollowingConfig,
        runtime: Runtime,
        *,
        logs: LogManager,
        flushes: Flushes,
        cleaner: LogCleaner,
        node_id: int,
        broker_epoch: Callable[[], int],
        is_durable: bool,
        quota: ReplicationQuota,
        security: Security | None = None,
    ) -> None:
        """Fetch nothing yet; `security` has encryption and login of connections to other brokers.

        With `is_durable` a leader hears of records when they are on the device
        (`tailrace.durability`). `quota` is the rate of throttled replicas.
        """
        client = replace(
            client,
            client_id=f"broker-{node_id}-fetcher-0",
            request_timeout_ms=max(config.socket_timeout_ms, config.wait_max_ms),
        )
        self._totals = _Totals()
        self._shared = _Shared(
            client, security, config, runtime, logs, flushes, cleaner, node_id, broker_epoch,
            is_durable, quota, self._totals,
        )  # fmt: skip
        self._fetchers: dict[int, _Fetcher] = {}
        self._fetcher_of: dict[TopicPartition, _Fetcher] = {}
        self._tasks = BackgroundTasks()
        self._is_closed = False

    def follow(
        self, partition: Partition, *, topic_id: UUID, leader: Node, epoch: LeaderEpoch
    ) -> None:
        """Fetch a partition from its leader from now on.

        In an epoch in which it is followed already nothing changes, but for the leader's address.
        After `close` nothing is fetched.
        """
        # A stop makes the logs that are still expected, and serves them. Fetched records would be
        # appended while a thread closes the logs, and the next start would trust them.
        if self._is_closed:
            return
        name = partition.name
        followed = _Followed(partition, topic_id, epoch, partition.log.positions.high_watermark)
        before = self._fetcher_of.get(name)
        if before is not None:
            known = before.partitions[name]
            if (
                known.partition is partition
                and known.epoch == epoch
                and before.node.id == leader.id
                and known.topic_id == topic_id
            ):
                if before.node == leader:
                    return
                followed = known
            self.stop([name])
        self._fetcher_of[name] = fetcher = self._fetcher(leader)
        fetcher.add(followed)

    def _fetcher(self, leader: Node) -> "_Fetcher":
        known = self._fetchers.get(leader.id)
        if known is not None and known.node == leader:
            return known
        fetcher = self._fetchers[leader.id] = _Fetcher(leader, self._shared)
        if known is not None:
            # The broker came back with another address; nobody answers at the old one.
            for followed in list(known.partitions.values()):
                known.remove(followed.name)
                fetcher.add(followed)
                self._fetcher_of[followed.name] = fetcher
        self._tasks.start(self._run(fetcher))
        return fetcher

    async def _run(self, fetcher: "_Fetcher") -> None:
        try:
            await fetcher.run()
        finally:
            # In the step in which it has found nothing to fetch: no partition can come in between.
            if self._fetchers.get(fetcher.node.id) is fetcher:
                del self._fetchers[fetcher.node.id]

    def stop(self, names: Iterable[TopicPartition]) -> None:
        """Fetch these no more; an answer that is under way changes nothing in their logs."""
        for name in names:
            fetcher = self._fetcher_of.pop(name, None)
            if fetcher is not None:
                fetcher.remove(name)

    async def close(self) -> None:
        """Fetch nothing more, and close all connections; logs may be closed after that."""
        self._is_closed = True
        self._fetcher_of.clear()
        await self._tasks.end()

    def statistics(self) -> FollowingStatistics:
        """Looks at each followed partition."""
        fetchers = self._fetchers.values()
        return FollowingStatistics(
            leader_count=len(fetchers),
            partition_count=len(self._fetcher_of),
            delayed_count=sum(len(each.delayed) for each in fetchers),
            failed_count=sum(
                len(each.partitions) - len(each.active) - len(each.delayed) for each in fetchers
            ),
            lag_max=max(
                (known.lag or 0 for each in fetchers for known in each.partitions.values()),
                default=0,
            ),
            request_count=self._totals.requests,
            fetched_bytes=self._totals.fetched_bytes,
            error_count=self._totals.errors,
        )


class _Fetcher:
    """Fetches from one leader; Kafka's `ReplicaFetcherThread`, as a task."""

    def __init__(self, node: Node, shared: _Shared) -> None:
        self.node = node
        self.partitions: dict[TopicPartition, _Followed] = {}
        self.active: set[TopicPartition] = set()
        """Partitions that are asked for."""
        self.delayed: dict[TopicPartition, float] = {}
        """When those that have met an error are asked for again, the earliest first. All others
        have failed."""
        self._shared = shared
        self._session = FetchSession()
        self._asked: dict[TopicPartition, _Asked] = {}
        """The partitions of the session."""
        self._by_id: dict[tuple[UUID, int], _Asked] = {}
        self._changed: dict[TopicPartition, None] = {}
        """Partitions that differ from what the leader knows: only these are looked at for the next
        request, since there may be thousands."""
        self._added: list[_Followed] = []
        """Partitions that were not looked at yet."""
        self._cuts = LogCuts(shared.logs, shared.cleaner, shared.runtime.threads)
        self._woken = Signal()
        self._unreachable: type[TailraceError] | None = None
        """The class of the error that the last request has ended with; None: it was answered."""

    # -- which partitions ---------------------------------------------------------------------

    def add(self, followed: _Followed) -> None:
        name = followed.name
        self.partitions[name] = followed
        self._added.append(followed)
        self.active.add(name)
        self._changed[name] = None
        self._woken.fire()

    def remove(self, name: TopicPartition) -> None:
        del self.partitions[name]
        self._rest(name)
        self._woken.fire()

    def _rest(self, name: TopicPartition) -> None:
        """Leave a partition out of the next requests."""
        self.active.discard(name)
        self.delayed.pop(name, None)
        self._changed[name] = None

    def _delay(self, followed: _Followed) -> None:
        if self._is_current(followed):
            self._rest(followed.name)
            self.delayed[followed.name] = self._now() + self._shared.config.backoff_ms / 1000

    def _end_delays(self) -> None:
        now = self._now()
        # All delays are of one length, so they end in the order in which they began.
        while self.delayed:
            name, due = next(iter(self.delayed.items()))
            if due > now:
                return
            del self.delayed[name]
            followed = self.partitions[name]
            if self._is_flushed(followed):
                self.active.add(name)
                self._changed[name] = None
            else:
                self._delay(followed)

    def _is_flushed(self, followed: _Followed) -> bool:
        """Whether no flush has to be waited for; one that was refused is asked for again."""
        flush, log = followed.flush, followed.partition.log
        if flush is not None and flush.done():
            is_refused = flush.result() is not None and self._shared.logs.is_in_service(log)
            flush = self._shared.flushes.ask(log, is_whole=False) if is_refused else None
        followed.flush = flush
        return flush is None

    def _is_current(self, followed: _Followed) -> bool:
        return self.partitions.get(followed.name) is followed

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- requests -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch until there is no partition left."""
        # A connection of its own: a Fetch that waits for records holds up what comes after it.
        peers = Peers(self._shared.client, self._shared.runtime, security=self._shared.security)
        try:
            while self.partitions or self._cuts.are_waiting:
                if not await self._step_safely(peers):
                    await asyncio.sleep(self._shared.config.backoff_ms / 1000)
        finally:
            peers.close()

    async def _step(self, peers: Peers) -> bool:
        """Fetch once, or wait until there is something to fetch; False: the leader needs a pause.

        Raises:
            TailraceError: the leader has not answered.
        """
        await self._checkpoint_cuts()
        self._end_delays()
        if self.active:
            is_answered = await self._fetch(peers)
            if self._unreachable is not None:
                logger.info("leader_reachable leader=%s", self.node)
                self._unreachable = None
            return is_answered
        due = next(iter(self.delayed.values()), self._now() + _IDLE_S)
        if self._cuts.are_waiting:
            # Of partitions that this broker leads by now, whose appends wait for room.
            due = min(due, self._now() + self._shared.config.backoff_ms / 1000)
        await self._woken.wait_until(due)
        return True

    async def _step_safely(self, peers: Peers) -> bool:
        try:
            return await self._step(peers)
        except TailraceError as error:
            self._shared.totals.errors += 1
            self._begin_session()
            # Once for a kind of reason: a broker may be down for hours, and come back in a version
            # that this one cannot follow.
            if type(error) is not self._unreachable:
                logger.warning("leader_unreachable leader=%s reason=%s", self.node, error)
            self._unreachable = type(error)
            return False
        except Exception:
            # The others would be left without their leader's records for want of one check here:
            # Kafka's fetcher thread logs such an error too, and ends (ShutdownableThread).
            self._shared.totals.errors += 1
            self._begin_session()
            logger.exception("fetch_broke_off leader=%s", self.node)
            return False

    async def _fetch(self, peers: Peers) -> bool:
        """Ask for what has changed, and take the answer; False if it fits no session."""
        await self._cut_without_epochs()
        self._delay_throttled()
        if not self.active:
            return True
        plan = self._plan()
        self._shared.totals.requests += 1
        answer = await peers.ask(
            self.node,
            self._request(plan),
            FetchResponse,
            timeout_ms=self._shared.client.request_timeout_ms,
            first_version=_WITH_IDS,
        )
        parts = [
            (self._by_id.get((topic.topic_id, data.partition_index)), data)
            for topic in answer.responses
            for data in topic.partitions
        ]
        names = [None if asked is None else asked.followed.name for asked, _ in parts]
        if not self._session.is_answer(answer, names):
            self._begin_session()
            # A leader that loses even the session that it is asked to begin gets a pause.
            if answer.error_code in _SESSION_LOST and plan.session_epoch:
                return True
            self._shared.totals.errors += 1
            logger.warning(
                "fetch_session_refused leader=%s code=%s partitions=%d",
                self.node, _code_name(answer.error_code), len(parts),
            )  # fmt: skip
            return False
        # The memory of the answer is used again for the next one, if nobody looks at it.
        del answer
        await self._take_all(peers, parts)
        return True

    def _delay_throttled(self) -> None:
        """Leave throttled partitions out of the requests while they exceed their rate (KIP-73)."""
        quota = self._shared.quota
        if not quota.is_exceeded():
            return
        for followed in [self.partitions[name] for name in self.active]:
            # As Kafka: one that has all below the high watermark keeps up, whatever the rate, or it
            # would leave the ISR.
            if followed.lag != 0 and quota.is_throttled(followed.partition.log):
                self._delay(followed)

    def _plan(self) -> SessionRequest:
        wanted: dict[TopicPartition, Wanted | None] = {}
        for name in tuple(islice(self._changed, CHANGES_MAX)):
            del self._changed[name]
            before = self._asked.pop(name, None)
            if before is not None:
                self._by_id.pop((before.followed.topic_id, name.partition), None)
            wanted[name] = None
            if name in self.active:
                followed = self.partitions[name]
                log = followed.partition.log
                asked = _Asked(followed, position_of(log))
                self._asked[name] = self._by_id[(followed.topic_id, name.partition)] = asked
                wanted[name] = Wanted(
                    followed.topic_id,
                    asked.position.offset,
                    followed.epoch,
                    # What is appended at a time has to fit one segment.
                    min(self._shared.config.fetch_max_bytes, log.config.segment_bytes),
                    asked.position.last_epoch,
                    asked.position.log_start,
                )
        return self._session.plan_changes(wanted)

    def _begin_session(self) -> None:
        """Begin a session with the next request: the leader may not know the old one any more."""
        self._session.restart()
        self._asked.clear()
        self._by_id.clear()
        self._changed = dict.fromkeys(each for each in self.partitions if each in self.active)

    def _request(self, plan: SessionRequest) -> FetchRequest:
        config, node_id = self._shared.config, self._shared.node_id
        return FetchRequest(
            replica_id=node_id,
            # The leader refuses an epoch from before a restart of this broker (KIP-903).
            replica_state=ReplicaState(
                replica_id=node_id, replica_epoch=self._shared.broker_epoch()
            ),
            max_wait_ms=0 if self._changed else config.wait_max_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.response_max_bytes,
            isolation_level=0,
            session_id=plan.session_id,
            session_epoch=plan.session_epoch,
            topics=plan.topics,
            forgotten_topics_data=plan.forgotten,
            rack_id="",
        )

    # -- answers ------------------------------------------------------------------------------

    async def _take_all(
        self, peers: Peers, parts: list[tuple[_Asked | None, PartitionData]]
    ) -> None:
        slices = Slices()
        flushed: list[tuple[_Followed, Flushed]] = []
        parts.reverse()
        while parts:
            asked, data = parts.pop()
            # It may have gone, or be followed in another epoch, since it was asked for.
            if asked is not None and self._is_current(asked.followed):
                flush = await self._take(peers, asked, data)
                if flush is not None:
                    flushed.append((asked.followed, flush))
            await slices.turn()
        for followed, flush in flushed:
            error = await asyncio.shield(flush)
            # Else the leader would count records that this machine may lose.
            if error is not None and is_shortage(error):
                followed.flush = flush
                self._delay(followed)
            elif error is not None:
                self._fail(followed)
        await self._checkpoint_cuts()

    async def _take(self, peers: Peers, asked: _Asked, data: PartitionData) -> Flushed | None:
        """Act on the answer for one partition; returns the flush that the next request awaits."""
        followed, log = asked.followed, asked.followed.partition.log
        try:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._settle_range(peers, asked)
            elif data.error_code:
                self._refused(followed, data.error_code)
            elif data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
                end = EpochEnd(
                    LeaderEpoch(data.diverging_epoch.epoch),
                    Offset(data.diverging_epoch.end_offset),
                )
                await self._cut(
                    followed,
                    cut_diverged(log, end, asked=asked.position, fallback=followed.fallback),
                )
            else:
                return await self._append(asked, data)
        except MisplacedAnswerError:
            # Asked again at the place that it has now.
            self._changed[followed.name] = None
        except OSError as error:
            self._device_refused(followed, error)
        except TailraceError as error:
            self._records_refused(followed, asked.position.offset, error)
        except Exception:
            logger.exception(
                "partition_not_followed partition=%s leader=%s", followed.name, self.node
            )
            self._fail(followed)
        return None

    async def _append(self, asked: _Asked, data: PartitionData) -> Flushed | None:
        followed, partition = asked.followed, asked.followed.partition
        log, config = partition.log, self._shared
        records = data.records or b""
        assert isinstance(records, bytes | bytearray | memoryview)
        fetched = FetchedPartition(memoryview(records), data.high_watermark, data.log_start_offset)
        watermark = log.positions.high_watermark
        now_ms = config.runtime.clock.now_ms()
        followed.refused_code = ErrorCode.NONE
        if not partition.takes_appends.is_set():
            # A move completes, or an earlier cut waits for its checkpoints.
            self._delay(followed)
            return None
        try:
            size = append_fetched(
                log, fetched, asked=asked.position, epoch=followed.epoch, now_ms=now_ms
            )
        except EarlyBatchError as early:
            await self._cut(followed, restart(log, early.first_offset))
            await self._checkpoint_cuts()
            if not self._is_current(followed) or followed.name not in self.active:
                return None
            if partition.log is not log:
                return None  # It has moved, and its copy is asked for.
            size = append_fetched(
                log, fetched, asked=position_of(log), epoch=followed.epoch, now_ms=now_ms
            )
        followed.lag = max(data.high_watermark - log.end_offset, 0)
        if config.quota.is_throttled(log):
            config.quota.record(len(records))
        if position_of(log) != asked.position:
            self._changed[followed.name] = None
        if size or log.positions.high_watermark != watermark:
            partition.followed(has_appended=size > 0)
        if size:
            followed.refusal_count = 0
            config.totals.fetched_bytes += size
            partition.traffic.replication_bytes_in += size
            return config.flushes.ask_before_answer(log, is_durable=config.is_durable)
        if records:
            # Batches of a leader epoch that the image here does not have yet; or no whole batch,
            # which no sound leader sends. It would send the same again at once.
            self._delay(followed)
        return None

    def _records_refused(self, followed: _Followed, offset: Offset, error: TailraceError) -> None:
        self._shared.totals.errors += 1
        followed.refusal_count += 1
        logger.error(
            "fetched_records_refused partition=%s leader=%s offset=%d attempt=%d reason=%s",
            followed.name, self.node, offset, followed.refusal_count, error,
        )  # fmt: skip
        if followed.refusal_count < REFUSALS_MAX:
            self._delay(followed)
            return
        logger.error(
            "partition_not_followed partition=%s leader=%s offset=%d reason=the leader has sent "
            "unusable answers %d times; look for damage there with `tailrace log verify`, it is "
            "fetched again in the next leader epoch",
            followed.name, self.node, offset, REFUSALS_MAX,
        )  # fmt: skip
        self._fail(followed)

    def _refused(self, followed: _Followed, code: int) -> None:
        self._shared.totals.errors += 1
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            # There is a newer leader, and the image that names it is on its way.
            logger.info("leader_epoch_fenced partition=%s epoch=%d", followed.name, followed.epoch)
            self._fail(followed)
            return
        # Once, as it is asked again each second: a leader may not know for hours that it leads, and
        # has thousands of partitions.
        if code != followed.refused_code:
            followed.refused_code = code
            logger.log(
                logging.INFO if code in _PASSING else logging.ERROR,
                "fetch_refused partition=%s leader=%s code=%s",
                followed.name, self.node, _code_name(code),
            )  # fmt: skip
        self._delay(followed)

    def _fail(self, followed: _Followed) -> None:
        """Fetch a partition no more, until there is another leader epoch."""
        if self._is_current(followed):
            self._rest(followed.name)

    def _device_refused(self, followed: _Followed, error: OSError) -> None:
        self._shared.totals.errors += 1
        log, logs = followed.partition.log, self._shared.logs
        # A partition that was deleted meanwhile has closed its files, which is no failure.
        if not logs.is_in_service(log):
            pass
        elif has_failed(log) and not isinstance(error, StorageError):
            # Half a cut. Also for a full disk, as after a flush: this replica could be elected, and
            # serve nobody, if no controller heard of it.
            reason = f"a cut failed; {unusable(log.folder.path, error)}"
            logs.fail(logs.home_of(log), StorageError(reason))
        else:
            followed.partition.failed(error)
        if is_shortage(error) and not has_failed(log):
            self._delay(followed)
        else:
            self._fail(followed)

    # -- cuts ---------------------------------------------------------------------------------

    async def _cut_without_epochs(self) -> None:
        """Cut new partitions whose logs have no leader epochs to their high watermark.

        A leader cannot say by epochs where such a log diverges from its own, as one of format v1.
        """
        while self._added:
            followed = self._added.pop()
            log = followed.partition.log
            watermark = log.positions.high_watermark
            if log.epochs.latest >= 0 or log.end_offset <= watermark:
                continue
            if self._is_current(followed):
                logger.info(
                    "log_cut path=%s offset=%d log_end=%d reason=it has no leader epochs",
                    log.folder.path, watermark, log.end_offset,
                )  # fmt: skip
                try:
                    await self._cut(followed, truncation(log, watermark))
                except OSError as error:
                    self._device_refused(followed, error)
        await self._checkpoint_cuts()

    async def _cut(self, followed: _Followed, steps: DeviceSteps) -> None:
        """Remove records of a log; the partition takes no appends until `_checkpoint_cuts`.

        Raises:
            OSError: as `steps`.
        """
        await self._cuts.cut(
            followed.partition, steps, is_current=lambda: self._is_current(followed)
        )
        self._changed[followed.name] = None

    async def _checkpoint_cuts(self) -> None:
        for each in await self._cuts.checkpoint():
            if each.name in self.partitions:
                self._delay(self.partitions[each.name])

    # -- out of range -------------------------------------------------------------------------

    async def _settle_range(self, peers: Peers, asked: _Asked) -> None:
        """Bring the log into the range of its leader, after asking for that."""
        followed = asked.followed
        end = await self._leader_offset(peers, asked, SpecialTimestamp.LATEST)
        if end is None:
            return
        start = await self._leader_offset(peers, asked, SpecialTimestamp.EARLIEST)
        if start is None:
            return
        steps = settle_range(
            followed.partition.log, leader_start=start, leader_end=end, asked=asked.position
        )
        if steps is None:
            # The leader's log has grown meanwhile, if it did not lie.
            self._delay(followed)
        else:
            await self._cut(followed, steps)
            followed.lag = max(end - followed.partition.log.end_offset, 0)

    async def _leader_offset(
        self, peers: Peers, asked: _Asked, timestamp: SpecialTimestamp
    ) -> Offset | None:
        """An end of the leader's log; None if the partition has to wait, or is not followed."""
        followed = asked.followed
        name = followed.name
        wanted = ListOffsetsPartition(
            partition_index=name.partition,
            current_leader_epoch=followed.epoch,
            timestamp=timestamp,
        )
        request = ListOffsetsRequest(
            replica_id=self._shared.node_id,
            isolation_level=0,
            topics=(ListOffsetsTopic(name=name.topic, partitions=(wanted,)),),
        )
        try:
            answer = await peers.ask(
                self.node,
                request,
                ListOffsetsResponse,
                timeout_ms=self._shared.client.request_timeout_ms,
            )
        except TailraceError as error:
            logger.warning(
                "offsets_not_listed partition=%s leader=%s reason=%s", name, self.node, error
            )
            self._delay(followed)
            return None
        if not self._is_current(followed):
            return None
        for topic in answer.topics:
            for each in topic.partitions:
                if (topic.name, each.partition_index) != name:
                    continue
                if each.error_code:
                    self._refused(followed, each.error_code)
                    return None
                if 0 <= each.offset < INT64_MAX:
                    return Offset(each.offset)
        self._refused(followed, ErrorCode.UNKNOWN_SERVER_ERROR)
        return None


def _code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
