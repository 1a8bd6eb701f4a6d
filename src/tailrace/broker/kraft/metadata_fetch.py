"""`MetadataFetch`: follows the metadata log of the quorum, as an observer (KIP-595, KIP-630).

It is the `MetadataSource` of a broker whose controllers are other nodes.

    any server of the settings ─► the leader and its epoch ─► Fetch from the leader, one after the
                                                              other, each a long poll
    records             appended, and applied below the high watermark
    diverging epoch     the log is cut, and the next Fetch asks again
    snapshot            fetched in parts, in place of the log
    leader silent       the next server of the settings is asked who leads

The image is published when all that was committed at that moment is in it, and after each answer
from then on. All that touches files or decodes records is done on a thread, one step at a time.

What a controller answers is not trusted: damage and contradictions change nothing, are logged, and
are asked again after a pause, of another server. Four things end `run` instead, since going on
would not help, or would be wrong: another cluster's id before the first image, committed records
that the quorum has lost, a device that fails, and a committed record that cannot be applied. After
the last one Kafka's brokers go on without the record once they have loaded the log, and fail at
their next start. Here the broker ends at once, with the sentence: with a partition or a rule of
access missing it would serve what it must not, and the controller sees it as alive.

Invariant: each image that is published is the replay of all records up to its offset, and offsets
only grow.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from itertools import cycle
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from tailrace.broker.kraft.metadata_source import Publish
from tailrace.broker.kraft.settings import MetadataFetchConfig
from tailrace.broker.peers import Peers
from tailrace.client.errors import (
    RemoteRetriableError,
    UnreachableBrokerError,
    UnsupportedBrokerError,
    error_words,
)
from tailrace.client.nodes import AuthenticationError, Backoff, Node
from tailrace.cluster.metadata.folder import TOPIC_ID
from tailrace.cluster.metadata.image import EVERYTHING_CHANGED, NOTHING_CHANGED, ImageChange
from tailrace.cluster.metadata.observer import (
    NO_LEADER,
    DivergedError,
    LeaderContradictionError,
    ObserverLog,
)
from tailrace.cluster.metadata.snapshot_download import SnapshotDownload
from tailrace.errors import (
    CorruptionError,
    FatalError,
    InvalidRecordError,
    RetriableError,
    TailraceError,
)
from tailrace.model import METADATA_TOPIC
from tailrace.protocol.errors import ErrorCode, MalformedRecordError
from tailrace.protocol.fields import Records
from tailrace.protocol.messages import fetch, fetch_snapshot
from tailrace.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from tailrace.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from tailrace.records.batch import UnsupportedMagicError
from tailrace.runtime.system import Runtime
from tailrace.storage.manager import is_shortage
from tailrace.values import dataclass

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_WAIT_MS: Final = 500
"""Time that a leader may wait for news before it answers; a constant in Kafka too."""
FETCH_VERSION_MIN: Final = 17
"""Since Kafka 3.9. From 16 on an answer has the address of the leader."""
_PAUSE_MAX_MS: Final = 1000
"""Longest pause between attempts: an election takes a second or two."""
_REDIRECTS_MAX: Final = 10
"""Most answers in a row that name another leader: more elections than that take a while."""
_TIDY_AGAIN_S: Final = 60.0
"""Pause after a snapshot could not be written: Kafka looks as often."""

_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""Errors of a node that is not the leader, or not of this epoch."""
_DAMAGE: Final = (CorruptionError, InvalidRecordError, UnsupportedMagicError, MalformedRecordError)
_ASK_AGAIN: Final = (
    RetriableError,
    LeaderContradictionError,
    AuthenticationError,
    UnsupportedBrokerError,
)
"""Errors after which another server, or the same one later, may do better."""


class Observer(NamedTuple):
    """This node, as its requests name it."""

    node_id: int
    cluster_id: str
    directory_id: UUID
    """The id of the metadata.log.dir."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFetchStatistics:
    """The state at one moment."""

    leader: Node | None
    """The active controller; None: not known."""
    epoch: int
    """The epoch in which it leads."""
    applied_offset: int
    """The last offset that is in the published image; -1: none was published."""
    end_offset: int
    """The offset after the last record of the log here."""
    high_watermark: int
    """The offset after the last record here that is committed; -1: not known yet."""
    failures: int
    """Requests in a row that have brought nothing."""


class OtherClusterError(FatalError):
    """The controllers are those of another cluster."""


class RefusedAnswerError(RetriableError):
    """An answer cannot be right; nothing of it is used, and the request is sent again."""


class _Next(Enum):
    """The step after an answer."""

    ASK_LEADER = "another leader or epoch is known now"
    TAKE = "the answer is that of the leader"


class MetadataFetch:
    """The metadata of one broker, followed by a task that calls `run`; for one loop."""

    def __init__(
        self,
        log: ObserverLog,
        peers: Peers,
        runtime: Runtime,
        *,
        config: MetadataFetchConfig,
        observer: Observer,
        servers: Sequence[Node],
        publish: Publish,
    ) -> None:
        """`servers` are those of the settings: voters with their ids, others with ids below 0.

        `publish` gets the image, what differs from the last one, and the offset of its last record.
        """
        assert servers, "there is nobody to ask"
        self.leader: Node | None = None
        """The active controller, as far as this broker knows."""
        self.on_leader: Callable[[Node | None], None] = lambda _: None
        """Called when `leader` has changed."""
        self.applied_offset = -1
        """The last offset that is in the published image; -1: none was published."""
        self.caught_up = asyncio.Event()
        """Set by the first publication."""
        self.has_room = True
        """False while the disk is full: the image does not follow until there is room."""
        self._log = log
        self._peers = peers
        self._threads = runtime.threads
        self._config = config
        self._observer = observer
        self._voters = {each.id: each for each in servers if each.id >= 0}
        self._servers = cycle(servers)
        self._publish = publish
        self._download: SnapshotDownload | None = None
        self._is_leader_lost = False
        self._failures = 0
        self._warned: set[tuple[str, int, type[Exception]]] = set()
        """The failures since the last success that the log has a line of."""
        self._redirects = 0
        self._pauses = Backoff(config.retry_backoff_ms, _PAUSE_MAX_MS, runtime.chance)
        self._tidy_at_s = 0.0

    @property
    def kraft_version(self) -> int:
        """1 if the log names the voters, 0 if the settings do (KIP-853)."""
        return self._log.kraft_version

    @property
    def epoch(self) -> int:
        """The epoch in which `leader` leads."""
        return self._log.epoch

    def statistics(self) -> MetadataFetchStatistics:
        """The leader, how far its log is here, and the failures."""
        return MetadataFetchStatistics(
            leader=self.leader,
            epoch=self._log.epoch,
            applied_offset=self.applied_offset,
            end_offset=self._log.end_offset,
            high_watermark=self._log.high_watermark,
            failures=self._failures,
        )

    async def run(self) -> None:
        """Follow the log until cancelled; a step on a thread is waited for then.

        Raises:
            OtherClusterError: the first controllers that answer are of another cluster.
            DivergedError: the quorum is not the one that this node has followed.
            MetadataFaultError, UnknownRecordError, UnsupportedCodecError, DirectoryError: a
                committed record, or the level of a feature, cannot be applied.
            CorruptionError: the device has damaged the log; the next start drops what is damaged.
            OSError: the device fails.
        """
        while True:
            node = self.leader
            if node is None or self._is_leader_lost:
                node = next(self._servers)
            try:
                await self._ask(node)
            except DivergedError:
                raise
            except OtherClusterError as error:
                # A broker that serves has the right files. Who answers there is a controller with
                # an empty directory, or an address that was given away: records are served on.
                if not self.caught_up.is_set():
                    raise
                await self._pause(node, error)
            except _ASK_AGAIN as error:
                await self._pause(node, error)
            except OSError as error:
                # A full disk is no reason to end: an operator can make room.
                if isinstance(error, TailraceError) or not is_shortage(error):
                    raise
                self._note_full(error)
                await self._pause(node)

    async def stop(self) -> None:
        """Close the connections; `run` has ended."""
        self._peers.close()

    def close(self) -> None:
        """Put the log on the device, and close its files.

        Raises:
            OSError: the device refuses; the next start fetches what is missing.
        """
        self._log.close()

    def abandon(self) -> None:
        """Close connections and files as a killed process would."""
        self._peers.close()
        self._log.abandon()

    def _note_full(self, error: OSError) -> None:
        if not self.has_room:
            return
        self.has_room = False
        logger.error(
            "metadata_disk_full reason=%s consequence=%s next=%s", error,
            "this broker cannot follow the cluster, and has others lead its partitions",
            "make room on that disk: the broker continues by itself",
        )  # fmt: skip

    async def _pause(self, node: Node, error: Exception | None = None) -> None:
        """Wait before the next request; `error` is what the controller has done, if anything."""
        self._is_leader_lost = True
        self._failures += 1
        if error is not None:
            self._warn(node, error)
        await asyncio.sleep(self._pauses.pause_s(self._failures - 1))

    def _warn(self, node: Node, error: Exception) -> None:
        # Each kind of failure of a controller once: it may be away for hours.
        # By address: the same one may be known with and without its id.
        failure = (node.host, node.port, type(error))
        if failure not in self._warned:
            self._warned.add(failure)
            logger.warning(
                "metadata_not_fetched asked=%s failures=%d reason=%s consequence=%s",
                node, self._failures, error,
                "the cluster's state stays as it is known; the next controller is asked",
            )  # fmt: skip

    async def _on_thread(self, step: Callable[[], T]) -> T:
        running = asyncio.ensure_future(self._threads.run(step))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # The owner closes the log next, which no thread may be writing to then.
            await asyncio.wait([running])
            raise

    # -- requests -----------------------------------------------------------------------------

    async def _ask(self, node: Node) -> None:
        log = self._log
        epoch = log.epoch
        answer = await self._peers.ask(
            node,
            self._request(),
            FetchResponse,
            timeout_ms=self._config.request_timeout_ms,
            first_version=FETCH_VERSION_MIN,
        )
        about = f"Fetch of the metadata log from {node}"
        self._check_code(answer.error_code, about=about)
        found = _only_partition(answer)
        if found is None:
            raise RefusedAnswerError(f"{about}: the answer is not for that partition alone")
        addresses = {each.node_id: (each.host, each.port) for each in answer.node_endpoints}
        current = found.current_leader
        code = found.error_code
        step = await self._note_leader(
            node, current.leader_id, current.leader_epoch, addresses=addresses, code=code
        )
        if step is _Next.ASK_LEADER:
            return
        # Asked in an older epoch, a leader answers with an error, and no node but the leader has
        # another answer.
        self._check_code(code, about=about)
        assert log.epoch == epoch, "one step at a time"
        leader = self.leader
        assert leader is not None
        if found.snapshot_id.end_offset >= 0 or found.snapshot_id.epoch >= 0:
            # A snapshot has committed records only.
            if 0 <= found.high_watermark < found.snapshot_id.end_offset:
                raise RefusedAnswerError(
                    f"{about}: a snapshot for offset {found.snapshot_id.end_offset}, and the high "
                    f"watermark is {found.high_watermark}"
                )
            await self._fetch_snapshot(leader, found.snapshot_id)
        elif found.diverging_epoch.epoch >= 0 or found.diverging_epoch.end_offset >= 0:
            diverging = found.diverging_epoch
            logger.warning(
                "metadata_log_diverges leader=%s log_end=%d last_epoch=%d leader_epoch=%d "
                "leader_end=%d consequence=uncommitted records are cut",
                leader, log.end_offset, log.last_epoch, diverging.epoch, diverging.end_offset,
            )  # fmt: skip
            await self._on_thread(
                partial(log.cut, epoch=diverging.epoch, end_offset=diverging.end_offset)
            )
        else:
            await self._take(found)
        if self._failures:
            logger.info(
                "metadata_fetched_again leader=%s failures=%d log_end=%d",
                leader, self._failures, log.end_offset,
            )  # fmt: skip
            self._failures = 0
            # The leader sends what could not be written until it is written.
            self.has_room = True
            self._warned.clear()
        await self._tidy()

    def _request(self) -> FetchRequest:
        log, observer = self._log, self._observer
        asked = fetch.FetchPartition(
            partition=0,
            current_leader_epoch=log.epoch,
            fetch_offset=log.end_offset,
            last_fetched_epoch=log.last_epoch,
            # The leader sends as much as `max_bytes` has room for, as to Kafka's observers.
            partition_max_bytes=0,
            replica_directory_id=observer.directory_id,
            # With it the leader answers at once when the watermark moves (KIP-1166).
            high_watermark=log.high_watermark,
        )
        return FetchRequest(
            cluster_id=observer.cluster_id,
            replica_state=fetch.ReplicaState(replica_id=observer.node_id),
            # With a time limit that is shorter than Kafka's wait, no answer would come in time.
            max_wait_ms=min(MAX_WAIT_MS, self._config.request_timeout_ms // 2),
            min_bytes=0,
            max_bytes=self._config.bytes_max,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=(fetch.FetchTopic(topic_id=TOPIC_ID, partitions=(asked,)),),
            rack_id="",
        )

    def _check_code(self, code: int, *, about: str) -> None:
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise OtherClusterError(
                f"{about}: its cluster has another id than {self._observer.cluster_id}, which "
                "meta.properties of this broker has; correct controller.quorum.bootstrap.servers, "
                "or format this broker for that cluster; a controller that has lost its disk needs "
                "this id and a copy of __cluster_metadata-0 of a broker; nothing was changed"
            )
        if code:
            raise RemoteRetriableError(code, about=about)

    async def _note_leader(
        self,
        node: Node,
        leader_id: int,
        epoch: int,
        *,
        addresses: dict[int, tuple[str, int]],
        code: int,
    ) -> _Next:
        """Take what an answer says of the leader, before anything else of it.

        Raises:
            RefusedAnswerError, RemoteRetriableError: the node knows no leader, or an older one.
            LeaderContradictionError: as `ObserverLog.follow`.
        """
        log, before = self._log, (self.leader, self._log.epoch)
        if epoch < log.epoch:
            # It has been away; or its error is of another kind, and names no leader.
            if code and code not in _MOVED:
                raise RemoteRetriableError(code, about=f"Fetch of the metadata log from {node}")
            raise RefusedAnswerError(
                f"{node} knows epoch {epoch} of the quorum, and {log.epoch} has begun; if it stays "
                "so, its log was restored from an older copy"
            )
        # `quorum-state` would keep it, and the next start would take this node for a voter.
        if leader_id == self._observer.node_id:
            raise RefusedAnswerError(
                f"{node} names {leader_id} as leader, which is the node.id of this broker; if a "
                "controller has it too, give the broker another one"
            )
        if leader_id < NO_LEADER:
            raise RefusedAnswerError(f"{node} names {leader_id} as leader, which cannot be")
        is_known = (leader_id, epoch) == (log.leader_id, log.epoch)
        if leader_id == NO_LEADER:
            if epoch > log.epoch:
                await self._follow(NO_LEADER, epoch)
            self._set_leader(None)
            raise RefusedAnswerError(f"{node} knows no leader of the quorum in epoch {epoch}")
        if not is_known:
            await self._follow(leader_id, epoch)
        if leader_id in addresses:
            self._set_leader(Node(leader_id, *addresses[leader_id]))
        elif leader_id in self._voters:
            self._set_leader(self._voters[leader_id])
        elif self.leader is None or self.leader.id != leader_id:
            self._set_leader(None)
            raise RefusedAnswerError(f"{node} names {leader_id} as leader without its address")
        # A server of the settings may be the leader, under an id that is not known there.
        if is_known and code not in _MOVED and (node.id < 0 or node.id == leader_id):
            self._is_leader_lost, self._redirects = False, 0
            return _Next.TAKE
        # Without news the leader would be asked the same again at once, and so for ever by nodes
        # that send each to the other.
        has_news = self._is_leader_lost or before != (self.leader, log.epoch)
        self._redirects += 1
        if not has_news or self._redirects > _REDIRECTS_MAX:
            self._redirects = 0
            raise RefusedAnswerError(
                f"{node} sends this broker to {self.leader} of epoch {epoch} again: "
                f"{error_words(code)}"
            )
        self._is_leader_lost = False
        return _Next.ASK_LEADER

    async def _follow(self, leader_id: int, epoch: int) -> None:
        # On the device before anything is done in the epoch (KIP-595).
        voters = tuple(self._voters)
        await self._on_thread(partial(self._log.follow, leader_id, epoch, voters=voters))
        logger.info("metadata_leader id=%d epoch=%d", leader_id, epoch)

    def _set_leader(self, leader: Node | None) -> None:
        if leader != self.leader:
            self.leader = leader
            self.on_leader(leader)

    # -- answers of the leader ----------------------------------------------------------------

    async def _take(self, found: PartitionData) -> None:
        """Append and apply what the leader has sent."""
        log, records = self._log, found.records
        # Most answers of an idle cluster: no thread for nothing.
        if not records and found.high_watermark == log.high_watermark == log.next_offset:
            self._publish_if_due(NOTHING_CHANGED, leader_watermark=found.high_watermark)
            return

        def take() -> ImageChange:
            if records:
                try:
                    count = log.append(_view(records))
                except _DAMAGE as error:
                    raise RefusedAnswerError(
                        f"{self.leader} has sent records that cannot be right: {error}"
                    ) from error
                # It would be sent again and again.
                if not count:
                    raise RefusedAnswerError(
                        f"{self.leader} has sent {len(records)} bytes without a whole batch"
                    )
            return log.commit(found.high_watermark)

        change = await self._on_thread(take)
        self._publish_if_due(change, leader_watermark=found.high_watermark)

    def _publish_if_due(self, change: ImageChange, *, leader_watermark: int) -> None:
        log = self._log
        if not self.caught_up.is_set():
            # As Kafka's loader: all that was committed when the leader answered, and something.
            # Without a level of `metadata.version` there is no cluster yet.
            is_current = 0 <= leader_watermark <= log.next_offset
            if not is_current or log.is_in_transaction or not log.image.features:
                return
            change = EVERYTHING_CHANGED
        # Records of an open transaction are not in the image, so the offset stays before them.
        offset = self.applied_offset if log.is_in_transaction else log.next_offset - 1
        if change == NOTHING_CHANGED and offset == self.applied_offset:
            return
        self.applied_offset = offset
        self._publish(log.image, change, offset)
        if not self.caught_up.is_set():
            logger.info(
                "metadata_caught_up offset=%d leader=%s epoch=%d topics=%d brokers=%d",
                offset, self.leader, log.epoch, len(log.image.topics), len(log.image.brokers),
            )  # fmt: skip
            self.caught_up.set()

    async def _fetch_snapshot(self, leader: Node, wanted: fetch.SnapshotId) -> None:
        """Fetch a snapshot of the leader, and install it.

        Parts that have come are kept when the leader is lost, and the rest is asked for when it has
        the same snapshot then.
        """
        log, download = self._log, self._download
        if download is None or download.found[:2] != (wanted.end_offset, wanted.epoch):
            await self._abandon_download()
            download = log.begin_download(end_offset=wanted.end_offset, epoch=wanted.epoch)
            self._download = download
            logger.info(
                "metadata_snapshot_begins leader=%s offset=%d epoch=%d log_end=%d",
                leader, wanted.end_offset, wanted.epoch, log.end_offset,
            )  # fmt: skip
        try:
            while not download.is_whole:
                await self._fetch_part(leader, download)
            change = await self._on_thread(partial(log.install, download))
        except UnreachableBrokerError:
            raise
        except _DAMAGE as error:
            await self._abandon_download()
            raise RefusedAnswerError(
                f"{leader} has sent a snapshot that is damaged: {error}"
            ) from error
        except Exception:
            await self._abandon_download()
            raise
        self._download = None
        logger.info(
            "metadata_snapshot_installed offset=%d epoch=%d bytes=%d",
            wanted.end_offset, wanted.epoch, download.position,
        )  # fmt: skip
        if self.caught_up.is_set():
            self._publish_if_due(change, leader_watermark=-1)

    async def _fetch_part(self, leader: Node, download: SnapshotDownload) -> None:
        log, observer = self._log, self._observer
        snapshot = fetch_snapshot.SnapshotId(
            end_offset=download.found.next_offset, epoch=download.found.epoch
        )
        asked = fetch_snapshot.PartitionSnapshot(
            partition=0,
            current_leader_epoch=log.epoch,
            snapshot_id=snapshot,
            position=download.position,
            replica_directory_id=observer.directory_id,
        )
        request = FetchSnapshotRequest(
            cluster_id=observer.cluster_id,
            replica_id=observer.node_id,
            max_bytes=self._config.snapshot_bytes_max,
            topics=(fetch_snapshot.TopicSnapshot(name=METADATA_TOPIC, partitions=(asked,)),),
        )
        answer = await self._peers.ask(
            leader,
            request,
            FetchSnapshotResponse,
            timeout_ms=self._config.request_timeout_ms,
            first_version=1,
        )
        about = f"FetchSnapshot from {leader}"
        # Kafka 4.3.1 answers -1 where a snapshot is gone, since it cannot encode the error. The
        # next Fetch names the snapshot that there is instead.
        self._check_code(answer.error_code, about=about)
        parts = [part for topic in answer.topics for part in topic.partitions]
        if len(parts) != 1 or parts[0].index != 0 or answer.topics[0].name != METADATA_TOPIC:
            raise RefusedAnswerError(f"{about}: the answer is not for that partition alone")
        [part] = parts
        self._check_code(part.error_code, about=about)
        if part.snapshot_id != snapshot:
            raise RefusedAnswerError(
                f"{about}: the answer is for snapshot {part.snapshot_id.end_offset}-"
                f"{part.snapshot_id.epoch}, and {snapshot.end_offset}-{snapshot.epoch} was asked"
            )
        await self._on_thread(
            lambda: download.add(
                _view(part.unaligned_records), position=part.position, size=part.size
            )
        )

    async def _abandon_download(self) -> None:
        download, self._download = self._download, None
        if download is not None:
            await self._on_thread(download.abandon)

    async def _tidy(self) -> None:
        """Write a snapshot if one is due, and remove old ones."""
        now_s = asyncio.get_running_loop().time()
        if not self._log.is_tidying_due() or now_s < self._tidy_at_s:
            return
        try:
            await self._on_thread(self._log.tidy)
        except OSError as error:
            # The log is as before, and grows until there is room again.
            self._tidy_at_s = now_s + _TIDY_AGAIN_S
            logger.warning("metadata_snapshot_failed reason=%s", error)


def _only_partition(answer: FetchResponse) -> PartitionData | None:
    """The answer for the metadata log, if there is none for anything else."""
    parts = [part for topic in answer.responses for part in topic.partitions]
    if len(parts) != 1 or parts[0].partition_index != 0 or answer.responses[0].topic_id != TOPIC_ID:
        return None
    return parts[0]


def _view(records: Records) -> memoryview:
    assert isinstance(records, memoryview), "a client decodes records as views of the frame"
    return records
