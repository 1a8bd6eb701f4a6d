"""All partitions of this broker, by name.

In a cluster of one node every log that is added is led. Else `assign` says which are led and which
follow, and what changes, in the order of the images; a log that is not there yet is made.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tailrace.errors import StorageError
from tailrace.model import LeaderEpoch, TopicPartition
from tailrace.replication.new_logs import NewLogs
from tailrace.replication.partition import (
    ClusterView,
    NotLeaderError,
    Partition,
    UnknownPartitionError,
)
from tailrace.replication.traffic import Traffic
from tailrace.runtime.clock import elapsed_ms
from tailrace.runtime.slices import Slices
from tailrace.runtime.threads import Threads
from tailrace.storage.config import LogConfig
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import PartitionRecord
    from tailrace.replication.leadership import IsrChange

logger = logging.getLogger(__name__)

RESERVED_IDS: Final = 100
"""Ids of log directories below this one name no directory (KIP-858)."""

CompactionEnd = Callable[[TopicPartition], None]
"""Called with a partition whose settings no longer enable compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatistics:
    """The partitions of a broker at one moment."""

    partition_count: int
    """Partitions that are served."""
    offline_count: int
    """Partitions that cannot be served, because their directory has failed."""
    leader_count: int
    """Partitions that this broker leads, of those that are served; all counts below are of them."""
    under_replicated_count: int
    """Partitions whose ISR lacks a replica."""
    at_min_count: int
    """Partitions whose ISR is just large enough for acks=all; also those of one replica."""
    under_min_count: int
    """Partitions whose ISR is too small for acks=all."""


class Replicas:
    """The partitions that this broker leads or follows, over the logs of its directories."""

    def __init__(
        self,
        logs: LogManager,
        threads: Threads,
        *,
        cluster: ClusterView | None = None,
    ) -> None:
        """`cluster` is None where this broker is all of it."""
        self.traffic = Traffic()
        """Counts what the partitions take and give out."""
        self._logs = logs
        self._cluster = cluster
        self._assigned: dict[TopicPartition, PartitionRecord] = {}
        """The newest state of partitions whose logs are not there yet."""
        self._verifies_transactions = False
        """Whether a transaction begins in a log only with a guard."""
        self._partitions: dict[TopicPartition, Partition] = {}
        self._offline: dict[TopicPartition, str] = {}
        """Partitions that cannot be served, with the reason: their directory has failed, or none
        takes their log."""
        self.held: set[TopicPartition] = set()
        """Partitions whose appends wait for a short time; see `holding` and `new_logs`."""
        self.new_logs = NewLogs(
            logs, threads, held=self.held, add=self.add, refuse=self.set_offline
        )
        """Partitions whose logs are not made yet: requests for them wait."""
        self.on_compaction_end: CompactionEnd = lambda _: None
        self.on_led: Callable[[TopicPartition], None] = lambda _: None
        """Called with a partition that this broker leads from now on, or in a new epoch."""
        self.on_gone: Callable[[TopicPartition], None] = lambda _: None
        """Called with a partition that it does not lead any more."""
        self.on_followed: Callable[[Partition], None] = lambda _: None
        """Called with a partition that it follows from now on, or in a new epoch."""
        self.on_isr_change: Callable[[Partition, IsrChange], None] = lambda _, __: None
        """Called with what a partition proposes to the controller; the answer goes to its `confirm`
        or `reject`."""
        self.on_placed: Callable[[Log], None] = lambda _: None
        """Called with a log that is served from now on, also after a move to another directory."""
        self.on_rolled: Callable[[Log], None] = lambda _: None
        """Called with a log that has rolled a new segment."""

    def get(self, name: TopicPartition) -> Partition | None:
        """A partition in either role, or None; an offline one refuses every call."""
        return self._partitions.get(name)

    def names(self) -> tuple[TopicPartition, ...]:
        """All partitions whose logs are open, in either role."""
        return tuple(self._partitions)

    @property
    def offline_count(self) -> int:
        """Partitions that cannot be served, for want of their log directories."""
        return len(self._offline)

    def is_offline(self, name: TopicPartition) -> bool:
        """Whether the partition cannot be served, for want of its log directory."""
        return name in self._offline

    def is_led(self, name: TopicPartition) -> bool:
        """Whether this broker leads the partition, and can serve it, perhaps a little later."""
        if name in self._offline:
            return False
        partition, state = self._partitions.get(name), self._assigned.get(name)
        if partition is not None:
            return partition.is_leader
        if state is not None:
            return self._cluster is not None and state.leader == self._cluster.node_id
        return name in self.new_logs

    def statistics(self) -> ReplicaStatistics:
        """Partitions right now; looks at each of them."""
        served = [each for name, each in self._partitions.items() if name not in self._offline]
        led = [each for each in served if each.is_leader]
        spares = [each.insync_spare for each in led]
        leaderships = [each.leadership for each in led if each.leadership is not None]
        return ReplicaStatistics(
            partition_count=len(served),
            offline_count=len(self._offline),
            leader_count=len(led),
            under_replicated_count=sum(each.is_under_replicated for each in leaderships),
            at_min_count=spares.count(0),
            under_min_count=sum(spare < 0 for spare in spares),
        )

    def find(self, name: TopicPartition) -> Partition:
        """A partition that this broker leads.

        Raises:
            NotLeaderError: another broker leads it, or none does.
            StorageError, UnknownPartitionError: as `find_replica`.
        """
        partition = self.find_replica(name)
        if not partition.is_leader:
            partition.check_leader()
        return partition

    def find_replica(self, name: TopicPartition) -> Partition:
        """A partition that can be served, in either role.

        Raises:
            StorageError: its log directory has failed.
            NotLeaderError: other brokers have it.
            UnknownPartitionError: there is no such partition.
        """
        # Not UnknownPartitionError: the partition is here, for all that this broker knows.
        reason = self._offline.get(name)
        if reason is not None:
            raise StorageError(f"{name} is offline: {reason}")
        partition = self._partitions.get(name)
        if partition is None:
            raise self._missing(name)
        return partition

    def _missing(self, name: TopicPartition) -> NotLeaderError | UnknownPartitionError:
        if self._cluster is not None and self._cluster.has_partition(name):
            # The metadata of the client is older than the image, and lets it ask here.
            return NotLeaderError(f"{name} is not on this broker; refresh the metadata")
        return UnknownPartitionError(f"{name} is not on this broker")

    def add(self, log: Log) -> None:
        """Serve the partition of an open log, in the role that it has."""
        name, home = log.partition, self._logs.home_of(log)
        if home.failure is None:
            self._offline.pop(name, None)  # No directory took the log before.
        log.on_rolled = self._note_rolled
        log.producers.verifications.is_required = self._verifies_transactions
        before = self._partitions.get(name)
        traffic = self.traffic.join(name.topic) if before is None else before.traffic
        partition = self._partitions[name] = Partition(
            log,
            on_failure=lambda error: self._logs.refused(home, error),
            on_room=lambda: self._logs.took_append(home),
            cluster=self._cluster,
            traffic=traffic,
            propose=self._propose,
        )
        partition.on_free = self._release
        state = self._assigned.pop(name, None)
        self.on_placed(log)
        if self._cluster is None:
            self.on_led(name)
        elif state is not None:
            self._take(self._cluster, partition, state)

    def assign(
        self,
        name: TopicPartition,
        topic_id: uuid.UUID,
        state: "PartitionRecord",
        *,
        config: LogConfig,
    ) -> None:
        """Lead or follow a partition as the image says; its log is made if there is none.

        A partition of that name with another topic id is closed before. States come in the order of
        their images; one that is known already changes nothing.
        """
        assert self._cluster is not None
        partition = self._partitions.get(name)
        if name in self._offline:
            # Its directory has failed, or a full one refuses the log: `add` takes the state then.
            self._assigned[name] = state
        elif partition is not None:
            self._take(self._cluster, partition, state)
        else:
            self._assigned[name] = state
            if name not in self.new_logs:
                self.new_logs.expect(
                    [name],
                    topic_id=topic_id,
                    config=config,
                    directory_id=directory_of(state, self._cluster.node_id),
                )

    def _take(self, cluster: ClusterView, partition: Partition, state: "PartitionRecord") -> None:
        if state.leader == cluster.node_id:
            if partition.lead(state, now_ms=elapsed_ms(cluster.clock)):
                logger.info(
                    "leadership_begun partition=%s leader_epoch=%d offset=%d isr=%s",
                    partition.name, state.leader_epoch, partition.log.end_offset,
                    ",".join(map(str, state.isr)),
                )  # fmt: skip
                if not partition.takes_appends.is_set():
                    # It was cut as a follower, and a start would trust checkpoints from before.
                    self.held.add(partition.name)
                self.on_led(partition.name)
            return
        was_leader = partition.is_leader
        is_new = partition.follow(state)
        if was_leader and not partition.is_leader:
            self.on_gone(partition.name)
        if is_new:
            logger.info(
                "following_begun partition=%s leader=%d leader_epoch=%d offset=%d",
                partition.name, state.leader, state.leader_epoch, partition.log.end_offset,
            )  # fmt: skip
            self.on_followed(partition)

    def step_down(self) -> None:
        """Lead nothing until `assign` brings newer states: others lead, which the image lacks.

        The controller has fenced this broker, and with that changed the state of all that it led.
        Else a client that has lost all other brokers would find an old leader here, which takes
        records that are cut away later, and refuses a producer for what it has written elsewhere.
        """
        for name, partition in self._partitions.items():
            if partition.is_leader:
                partition.step_down()
                self.on_gone(name)

    def _release(self, partition: Partition) -> None:
        # A new log of the same name is held for itself.
        if self._partitions.get(partition.name) is partition:
            self.held.discard(partition.name)

    async def check_followers(self, now_ms: int) -> None:
        """Propose changes of the ISR for members that do not keep up; call it each half lag."""
        slices = Slices()
        for name in tuple(self._partitions):
            partition = self._partitions.get(name)
            if partition is not None and name not in self._offline:
                partition.check_followers(now_ms)
            await slices.turn()

    def set_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Lead partitions in these epochs, which are those of the cluster's state."""
        for name, partition in self._partitions.items():
            partition.raise_epoch(LeaderEpoch(epochs.get(name, 0)))

    def exchange(self, name: TopicPartition, log: Log) -> None:
        """Replace the log of a partition by its moved copy; waiting fetches are woken."""
        home, partition = self._logs.home_of(log), self._partitions[name]
        log.on_rolled = self._note_rolled
        partition.exchange(
            log,
            on_failure=lambda error: self._logs.refused(home, error),
            on_room=lambda: self._logs.took_append(home),
        )
        self.on_placed(log)

    @contextmanager
    def holding(self, name: TopicPartition) -> Iterator[None]:
        """Appends to the partition wait, in their order, until the block ends."""
        partition = self._partitions[name]
        self.held.add(name)
        partition.hold_appends()
        try:
            yield
        finally:
            partition.take_appends()

    async def wait_until_free(self, name: TopicPartition) -> None:
        """Wait until a partition takes appends; returns at once if it is not held or unknown."""
        await self.new_logs.wait_for(name)
        partition = self._partitions.get(name)
        if partition is not None:
            await partition.takes_appends.wait()

    def _propose(self, partition: Partition, change: "IsrChange") -> None:
        # Looked up at each call, as `on_rolled`.
        self.on_isr_change(partition, change)

    def _note_rolled(self, log: Log) -> None:
        # Looked up at each call: `on_rolled` is set after the first logs are opened.
        self.on_rolled(log)

    def configure(self, topic: str, config: LogConfig) -> None:
        """Apply other settings to every log of a topic, from its next call on.

        Index sizes and the jitter of `segment.ms` apply from the next segment on.
        """
        # Those that are being made, too: a thread may have begun with the old settings.
        self.new_logs.configure(topic, config)
        for name, partition in self._partitions.items():
            if name.topic == topic:
                self._configure(partition, config)

    async def configure_all(self, config_of: Callable[[str], LogConfig | None]) -> None:
        """Apply other settings to the logs of all topics, as `configure`; None: none known."""
        slices = Slices()
        configs: dict[str, LogConfig | None] = {}
        # In turns: there may be ten thousand, and topics come and go meanwhile.
        for name in tuple(self._partitions):
            if name.topic not in configs:
                configs[name.topic] = config_of(name.topic)
            config, partition = configs[name.topic], self._partitions.get(name)
            if config is not None and partition is not None:
                self._configure(partition, config)
            await slices.turn()
        self.new_logs.configure_all(config_of)

    def verify_transactions(self, *, is_required: bool) -> None:
        """Begin transactions only with a guard from now on, or also without one."""
        self._verifies_transactions = is_required
        for partition in self._partitions.values():
            partition.log.producers.verifications.is_required = is_required

    def _configure(self, partition: Partition, config: LogConfig) -> None:
        # A compaction under way would delete records that the new policy keeps.
        was_compacted = partition.log.config.is_compacted
        partition.log.config = config
        if was_compacted and not config.is_compacted:
            self.on_compaction_end(partition.log.partition)
        if self._cluster is not None and partition.is_leader:
            # `min.insync.replicas` may be lower.
            partition.move_watermark(elapsed_ms(self._cluster.clock))

    def set_offline(self, name: TopicPartition, reason: str) -> None:
        """Answer requests for a partition with a storage error from now on, waiting ones too."""
        self._offline[name] = reason
        partition = self._partitions.get(name)
        if partition is not None:
            partition.end(StorageError(f"{name} is offline: {reason}"))
            if partition.is_leader:
                self.on_gone(name)

    def directory_failed(self, directory: DirectoryLogs) -> None:
        for log in directory:
            self.set_offline(log.partition, directory.failure or "")

    def close(self, name: TopicPartition, *, unique_id: str) -> Callable[[], None]:
        """Take a partition out of service; waiting requests are woken.

        Returns a function that renames the folder, as `LogManager.take_out`: it may run on another
        thread, and raises StorageError. Files are deleted after `file.delete.delay.ms`. An unknown
        partition is ignored. The folder of an offline partition is discarded by the next start that
        finds it.
        """
        # Now, since the rename may run on a thread: no request may find the log then.
        self._offline.pop(name, None)
        self._assigned.pop(name, None)
        partition = self._partitions.pop(name, None)
        if partition is not None:
            self.traffic.leave(name.topic)
            partition.leave_directory()
        rest = self._logs.take_out(name, unique_id)
        if partition is not None:
            self.held.discard(name)
            was_leader = partition.is_leader
            partition.resign(self._missing(name))
            if was_leader:
                self.on_gone(name)
        return rest


def directory_of(state: "PartitionRecord", node_id: int) -> uuid.UUID | None:
    """The log directory of a broker's replica as the controllers have it; None: not assigned."""
    found = dict(zip(state.replicas, state.directories, strict=False)).get(node_id)
    # The first hundred ids are reserved: not assigned yet, lost, or from before there were any.
    return None if found is None or found.int < RESERVED_IDS else found
