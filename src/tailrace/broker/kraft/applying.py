"""`Applying`: brings the replicas of this broker to each image that the metadata log leads to.

    publish(image) ─► what has changed ─► removed    closed before the image is shown
                                      ├─► led        served in the new epoch
                                      ├─► followed   fetched from their leader
                                      └─► settings   of logs, of this broker

Kafka's BrokerMetadataPublisher and ReplicaManager.applyDelta. One image after the other; those that
come meanwhile are taken together, since only the last one counts.

After a crash: the next start makes the same of the image that it finds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.following import Following
from tailrace.broker.kraft.directory_reports import DirectoryReports
from tailrace.broker.kraft.replica_changes import AssignedReplica, replica_changes
from tailrace.client.nodes import Node
from tailrace.cluster.image import TOPIC_RESOURCE, ClusterImage, Topic
from tailrace.cluster.metadata.image import (
    BROKER_RESOURCE,
    ImageChange,
    MetadataImage,
)
from tailrace.cluster.partition_change import DIRECTORIES_SINCE
from tailrace.cluster.state import FollowedCluster
from tailrace.errors import StorageError
from tailrace.model import TopicPartition
from tailrace.replication.partition import Partition
from tailrace.replication.replicas import Replicas, directory_of
from tailrace.runtime.ids import random_uuid
from tailrace.runtime.slices import Slices
from tailrace.runtime.system import Runtime
from tailrace.storage.config import LogConfig
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import PartitionRecord

logger = logging.getLogger(__name__)


class _Published(NamedTuple):
    """The newest image, and all that has changed since the one that was taken."""

    image: MetadataImage
    change: ImageChange
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedTo:
    """The parts of a broker that images are applied to."""

    cluster: FollowedCluster
    replicas: Replicas
    following: Following
    reports: DirectoryReports
    logs: LogManager
    log_config: Callable[[str], LogConfig | None]
    """The settings of a topic's logs, by the image that is shown."""
    forget_topic: Callable[[Topic], Awaitable[None]]
    """Has the groups of this broker forget what they have committed for a deleted topic."""
    note_topics: Callable[[], None]
    """Called when another image is shown, for what depends on how topics were at first."""
    use_settings: Callable[[], Awaitable[None]]
    """Has the broker use the changes of settings that the shown image has."""
    is_stopping: Callable[[], bool]
    """Whether the controlled shutdown has begun."""


class Applying:
    """Takes images in their order; on the event loop."""

    def __init__(self, broker: AppliedTo, runtime: Runtime) -> None:
        self._broker = broker
        self._runtime = runtime
        self._published: _Published | None = None
        self._news = asyncio.Event()
        self._gone: asyncio.Queue[Topic] = asyncio.Queue()
        """Deleted topics that groups have not forgotten yet."""
        self._emptied: set[TopicPartition] = set()
        """Partitions without a leader whose log here was lost, which is logged once."""
        broker.replicas.on_followed = self._fetch
        broker.replicas.on_placed = self._report_directory

    def publish(self, image: MetadataImage, change: ImageChange, offset: int) -> None:
        """Take an image; `change` is what differs from the one before."""
        before = self._published
        if before is not None:
            change = before.change.with_later(change)
        self._published = _Published(image, change, offset)
        self._news.set()

    async def run(self) -> None:
        """Apply images until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            published, self._published = self._published, None
            if published is not None:
                await self._apply(published)

    async def forget_gone(self) -> None:
        """Have groups forget the topics that images remove, until cancelled; beside `run`."""
        # Beside the images: tombstones wait for the replicas of each group's partition, and may get
        # them only by the next image. Kafka's publisher waits for all groups, up to five seconds.
        while True:
            topic = await self._gone.get()
            try:
                await self._broker.forget_topic(topic)
            except Exception:
                # As offsets in partitions that are not active: they stay until they expire.
                logger.exception("offsets_not_deleted topic=%s", topic.name)

    async def _apply(self, published: _Published) -> None:
        broker, cluster = self._broker, self._broker.cluster
        image, change, offset = published
        changes = replica_changes(
            cluster.metadata, image, node_id=cluster.node_id, topics=change.topics
        )
        slices = Slices()
        for name in changes.removed:
            # A log that is being made would appear after its partition is gone.
            await broker.replicas.new_logs.forget(name)
        # In one step: another topic of the same name must not be found with the old log. Not before
        # that wait, in which a partition begins to follow whose log was just made.
        broker.following.stop(changes.removed)
        homes = [broker.logs.directory_of(name) for name in changes.removed]
        rests = [
            broker.replicas.close(name, unique_id=random_uuid(self._runtime.chance).hex)
            for name in changes.removed
        ]
        shown = cluster.image
        cluster.publish(image, change, offset=offset)
        broker.note_topics()
        gone = _gone(shown, cluster.image, change)
        if rests:
            refused = await self._runtime.threads.run(lambda: _do_all(rests))
            for home, error in zip(homes, refused, strict=True):
                # The folder stays, and the next start sets it aside. The other directories serve.
                if error is not None and home is not None:
                    broker.logs.settle(home, error)
        await self._configure(change, slices)
        broker.following.stop(each.name for each in changes.led)
        for each in (*changes.led, *changes.followed):
            self.assign(each)
            await slices.turn()
        if change.brokers:
            await self._fetch_all(slices)
        for topic in gone:
            # Offsets are kept by the topic's name, which may be in use again.
            if topic.name not in cluster.image.topics:
                self._gone.put_nowait(topic)

    def assign(self, replica: AssignedReplica) -> None:
        """Lead or follow a partition as the shown image says."""
        broker = self._broker
        config = broker.log_config(replica.name.topic)
        assert config is not None, "the image has the topic"
        broker.replicas.assign(replica.name, replica.topic_id, replica.state, config=config)
        partition = broker.replicas.get(replica.name)
        if partition is not None:
            # Also at a start: the process may have ended between a move and its report.
            self._report_directory(partition.log)
        # Also where it was followed before, in the same epoch: the leader may be gone, or be back.
        if partition is not None and not partition.is_leader:
            self._fetch(partition)

    def _fetch(self, partition: Partition) -> None:
        """Fetch a partition from its leader, if that is alive, and the log is in service."""
        cluster, name = self._broker.cluster, partition.name
        topic = cluster.image.topics.get(name.topic)
        endpoint = None
        if topic is not None and partition.leader_id >= 0:
            endpoint = cluster.endpoint(partition.leader_id)
        is_offline = self._broker.replicas.is_offline(name)
        if topic is None or endpoint is None or is_offline or self._is_let_go(name):
            # As Kafka: nothing is fetched until an image has a leader that is alive, nor into a
            # directory that has failed.
            self._broker.following.stop([name])
            return
        self._broker.following.follow(
            partition,
            topic_id=topic.topic_id,
            leader=Node(partition.leader_id, endpoint.host, endpoint.port),
            epoch=partition.leader_epoch,
        )

    def _is_let_go(self, name: TopicPartition) -> bool:
        """Whether the controlled shutdown has taken this broker out of the partition's ISR."""
        broker = self._broker
        if not broker.is_stopping():
            return False
        # As Kafka: fetches would show the leader a replica that keeps up, which the controllers
        # refuse in the ISR while its broker stops (KIP-841).
        state = broker.cluster.partition(name)
        return state is not None and broker.cluster.node_id not in state.isr

    async def _fetch_all(self, slices: Slices) -> None:
        # A broker that comes back, or at another address, is fetched from again, also where it has
        # led in this epoch before.
        for name in self._broker.replicas.names():
            partition = self._broker.replicas.get(name)
            if partition is not None and not partition.is_leader:
                self._fetch(partition)
            await slices.turn()

    async def _configure(self, change: ImageChange, slices: Slices) -> None:
        broker = self._broker
        if change.configs is None:
            await broker.use_settings()
            await broker.replicas.configure_all(broker.log_config)
            return
        if any(each.type == BROKER_RESOURCE for each in change.configs):
            await broker.use_settings()
        for each in change.configs:
            config = broker.log_config(each.name) if each.type == TOPIC_RESOURCE else None
            if config is not None:
                broker.replicas.configure(each.name, config)
                await slices.turn()

    def _report_directory(self, log: Log) -> None:
        """Tell the controllers where a replica is, if they have it elsewhere (KIP-858)."""
        broker, name = self._broker, log.partition
        # Controllers have no place for it below this level, and would refuse it for ever.
        if broker.cluster.metadata.metadata_version < DIRECTORIES_SINCE:
            return
        state = broker.cluster.partition(name)
        topic = broker.cluster.image.topics.get(name.topic)
        node_id = broker.cluster.node_id
        if state is None or topic is None or node_id not in state.replicas:
            return
        home = broker.logs.home_of(log)
        directory = home.directory.directory_id
        assigned = dict(zip(state.replicas, state.directories, strict=False)).get(node_id)
        # That a directory has failed, heartbeats say; nothing is placed in it after that.
        if assigned == directory or home.failure is not None:
            return
        # Controllers elect the last known leader, and the last member of an ISR, once its replica
        # is in a directory again. If it is empty now, all others would cut their logs to nothing.
        if state.leader < 0 and len(state.replicas) > 1 and self._is_emptied(log, state):
            if name not in self._emptied:
                self._emptied.add(name)
                logger.error(
                    "replica_emptied partition=%s path=%s consequence=the partition has no leader, "
                    "and this replica, whose log directory is gone, is not offered as one "
                    "next=bring back that directory; or the other replicas, and elect one of them "
                    "uncleanly, without the records that only this one had",
                    name, log.folder.path,
                )  # fmt: skip
            return
        self._emptied.discard(name)
        broker.reports.assign(name, topic.topic_id, directory)

    def _is_emptied(self, log: Log, state: "PartitionRecord") -> bool:
        """Whether a log is new, and the directory that the controllers know it in is gone."""
        broker = self._broker
        assigned = directory_of(state, broker.cluster.node_id)
        own = {each.directory.directory_id for each in broker.logs.directories}
        return assigned is not None and assigned not in own and log.end_offset == 0


def _gone(before: ClusterImage, after: ClusterImage, change: ImageChange) -> list[Topic]:
    """The topics that an image has no more."""
    if before.topics is after.topics:
        return []
    known: Iterable[Topic | None] = before.topics.values()
    if change.topics is not None:
        known = map(before.topic_by_id, change.topics)
    return [each for each in known if each is not None and after.topic_by_id(each.topic_id) is None]


def _do_all(rests: Iterable[Callable[[], None]]) -> list[OSError | None]:
    """Call each; the error of the device for each, or None."""
    errors: list[OSError | None] = []
    for rest in rests:
        try:
            rest()
        except StorageError as error:
            # The cause tells a full disk.
            cause = error.__cause__
            errors.append(cause if isinstance(cause, OSError) else error)
        else:
            errors.append(None)
    return errors
