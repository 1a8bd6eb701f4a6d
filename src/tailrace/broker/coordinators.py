"""The coordinators of a broker: their partitions are loaded as the broker begins to lead them.

The modules of a coordinator are imported by the first load, so that a start does not grow.

Invariant: each partition that this broker leads has a shard before the first request is answered.
While it loads, clients have to ask again (COORDINATOR_LOAD_IN_PROGRESS), and never to look for
another broker (NOT_COORDINATOR): librdkafka 2.16 does not repeat an OffsetFetch after that code,
and its consumer reads nothing more (confluentinc/librdkafka#5586).
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tailrace.broker.config import BrokerConfig
from tailrace.cluster.image import Topic as ImageTopic
from tailrace.cluster.state import ClusterState
from tailrace.coordinator.groups.settings import ConsumerSettings
from tailrace.coordinator.groups.topics import Topic
from tailrace.coordinator.machine import RecordCodec
from tailrace.coordinator.shard import BulkReplay, PartitionLog, Shard
from tailrace.coordinator.shards import Shards
from tailrace.coordinator.statistics import (
    GroupCounts,
    GroupsStatistics,
    ShardsStatistics,
    TransactionCounts,
    TransactionsStatistics,
    groups_statistics,
    transactions_statistics,
)
from tailrace.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, ProducerId, TopicPartition
from tailrace.replication.device_reads import DeviceReads
from tailrace.replication.flushes import Flushes
from tailrace.replication.replicas import Replicas
from tailrace.runtime.system import Runtime
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.broker.transaction_peers import TransactionPeers
    from tailrace.coordinator.groups.machine import GroupMachine
    from tailrace.coordinator.transactions.between_brokers import Verdicts
    from tailrace.coordinator.transactions.machine import TransactionMachine
    from tailrace.coordinator.transactions.requests import AddPartitions


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServices:
    """The shared services that a coordinator's log needs besides its partition."""

    flushes: Flushes
    device_reads: DeviceReads
    is_durable: bool
    """Whether replies wait for the device (`tailrace.durability`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorsStatistics:
    """The coordinators of groups and of transactions."""

    group_partitions: ShardsStatistics
    """The partitions of `__consumer_offsets`."""
    groups: GroupsStatistics
    """Groups and their offsets."""
    transaction_partitions: ShardsStatistics
    """The partitions of `__transaction_state`."""
    transactions: TransactionsStatistics
    """Transactions and their markers."""


class _FoundTopic(NamedTuple):
    """A topic with its racks."""

    topic: Topic
    of: ImageTopic
    rack_changes: int
    """The cluster's number when it was found."""


class ImageTopics:
    """The topics of the cluster image, as `coordinator.groups.topics.Topics`, with their racks."""

    def __init__(self, cluster: ClusterState, *, started_ms: int) -> None:
        """`started_ms` is the time of day."""
        self._cluster = cluster
        self._topics = cluster.image.topics
        self._rack_changes = cluster.rack_changes
        self._found: dict[str, _FoundTopic] = {}
        """Topics that were asked for since `version` has grown, by name."""
        # Versions count from it, so that those in the records of an earlier start are lower: what
        # was found in the topics then is looked for again.
        self._version = started_ms

    @property
    def version(self) -> int:
        """Grows when topics have changed since the last look."""
        topics, rack_changes = self._cluster.image.topics, self._cluster.rack_changes
        if topics is not self._topics or rack_changes != self._rack_changes:
            self._topics, self._rack_changes = topics, rack_changes
            self._found.clear()
            self._version += 1
        return self._version

    def by_name(self, name: str) -> Topic | None:
        return self._known(self._cluster.image.topics.get(name))

    def by_id(self, topic_id: UUID) -> Topic | None:
        return self._known(self._cluster.image.topic_by_id(topic_id))

    def names(self) -> Iterable[str]:
        return self._cluster.image.topics

    def _known(self, topic: ImageTopic | None) -> Topic | None:
        if topic is None:
            return None
        changes = self._cluster.rack_changes
        known = self._found.get(topic.name)
        # Racks of a topic with 10,000 partitions take milliseconds, and each heartbeat looks.
        if known is None or known.of is not topic or known.rack_changes != changes:
            racks = self._cluster.racks_of(topic)
            found = Topic(topic.name, topic.topic_id, topic.partition_count, racks)
            known = self._found[topic.name] = _FoundTopic(found, topic, changes)
        return known.topic


class Coordinators:
    """The coordinators whose partitions this broker leads; `start` begins to load them."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        cluster: ClusterState,
        next_producer_id: Callable[[], Awaitable[ProducerId]],
        replicas: Replicas,
        runtime: Runtime,
        logs: LogServices,
        consumer_settings: Callable[[], ConsumerSettings],
        peers: "TransactionPeers | None" = None,
    ) -> None:
        """`consumer_settings` gives those that count now.

        `peers` are the other brokers; None: this one leads all partitions. `stop` closes them.
        """
        self._peers = peers
        self._config = config
        self._consumer_settings = consumer_settings
        self._cluster = cluster
        self._next_producer_id = next_producer_id
        self._replicas = replicas
        self._runtime = runtime
        self._logs = logs
        self._topics = ImageTopics(cluster, started_ms=runtime.clock.now_ms())
        self._partition_counts: dict[int, int] = {}
        """Partitions of a topic when this broker first saw it, by the int of the topic's id."""
        self.group_counts = GroupCounts()
        """Totals of groups since the start."""
        self.transaction_counts = TransactionCounts()
        """Totals of transactions since the start."""
        self.groups: Shards[GroupMachine] = Shards(
            self._group_shard, partition_count=lambda: self._partition_count(OFFSETS_TOPIC)
        )
        self.transactions: Shards[TransactionMachine] = Shards(
            self._transaction_shard,
            partition_count=lambda: self._partition_count(TRANSACTIONS_TOPIC),
            # Markers have the leader epoch, so that partitions can refuse an older leader's.
            is_of_epoch=True,
        )

    def start(self) -> None:
        """Load the partitions that are there, and each that comes."""
        self._replicas.on_led = self._led
        self._replicas.on_gone = self._gone
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            for number in range(self._partition_count(topic)):
                name = TopicPartition(topic, number)
                if self._replicas.is_led(name):
                    self._led(name)

    def note_topics(self) -> None:
        """Count the partitions of a topic that is there now; called for each image.

        Brokers that first counted after it has grown would look for groups elsewhere than others.
        """
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            self._partition_count(topic)

    async def stop(self) -> None:
        """Answer parked requests, and wait for partitions that are being loaded."""
        # Transactions first: their markers still go to the partitions of groups.
        await self.transactions.stop()
        await self.groups.stop()
        if self._peers is not None:
            self._peers.close()

    async def verdicts_elsewhere(
        self, request: "AddPartitions", *, is_adding: bool
    ) -> "Verdicts | None":
        """Whether partitions are in a transaction of another broker; see `TransactionPeers`."""
        if self._peers is None:
            return None
        count = self._partition_count(TRANSACTIONS_TOPIC)
        return await self._peers.verdicts(request, partition_count=count, is_adding=is_adding)

    def statistics(self) -> CoordinatorsStatistics:
        """Totals since the start, and groups and transactions now; looks at each of them."""
        return CoordinatorsStatistics(
            group_partitions=self.groups.statistics(),
            groups=groups_statistics(self.groups.machines(), self.group_counts),
            transaction_partitions=self.transactions.statistics(),
            transactions=transactions_statistics(
                self.transactions.machines(), self.transaction_counts
            ),
        )

    def _led(self, partition: TopicPartition) -> None:
        # Called for each partition of the broker, of which nearly all are of other topics.
        leads = {OFFSETS_TOPIC: self.groups.lead, TRANSACTIONS_TOPIC: self.transactions.lead}
        lead = leads.get(partition.topic)
        if lead is not None:
            self.note_topics()
            lead(self.log_of(partition), leader_epoch=self._replicas.find(partition).leader_epoch)

    def _gone(self, partition: TopicPartition) -> None:
        # Without an epoch: the partition is gone from here, in whichever epoch it was led.
        if partition.topic == OFFSETS_TOPIC:
            self.groups.resign(partition.partition)
        elif partition.topic == TRANSACTIONS_TOPIC:
            self.transactions.resign(partition.partition)

    def _partition_count(self, name: str) -> int:
        topic = self._cluster.image.topics.get(name)
        if topic is None:
            return 0
        # CreatePartitions must not move the keys that are served; as in Kafka a restart does.
        return self._partition_counts.setdefault(topic.topic_id.int, topic.partition_count)

    def log_of(self, partition: TopicPartition) -> PartitionLog:
        """A partition of this broker, as coordinators write to it."""
        # Imported by the first partition that is led: a broker without groups needs none of it.
        from tailrace.broker.coordinator_logs import CoordinatorLog

        return CoordinatorLog(
            partition,
            self._replicas,
            flushes=self._logs.flushes,
            device_reads=self._logs.device_reads,
            clock=self._runtime.clock,
            is_durable=self._logs.is_durable,
        )

    def _group_shard(self, log: PartitionLog) -> "Shard[GroupMachine]":
        config = self._config

        def make_machine() -> "GroupMachine":
            # On a worker thread, as the imports below: they take longer than the loop may.
            from tailrace.coordinator.groups.modules import GroupMachine, settings_of_group

            def settings_of(group_id: str) -> ConsumerSettings:
                own = self._cluster.image.group_configs.get(group_id)
                broker = self._consumer_settings()
                return broker if own is None else settings_of_group(own, broker)

            return GroupMachine(
                config.groups,
                self._topics,
                consumer_settings=settings_of,
                threads=self._runtime.threads,
                chance=self._runtime.chance,
                counts=self.group_counts,
            )

        def make_codec() -> RecordCodec:
            from tailrace.coordinator.groups.modules import GroupRecordCodec

            return GroupRecordCodec()

        def make_bulk(machine: "GroupMachine", log_bytes: int) -> BulkReplay | None:
            from tailrace.coordinator.groups.modules import LOG_BYTES_MIN, BulkCommits

            # Below that size making room for the kernel takes as long as a replay of each record.
            return BulkCommits(machine) if log_bytes >= LOG_BYTES_MIN else None

        return Shard(
            log,
            make_machine,
            make_codec,
            clock=self._runtime.clock,
            commit_timeout_ms=config.groups.commit_timeout_ms,
            counts=self.groups.counts,
            make_bulk=make_bulk,
        )

    def _transaction_shard(self, log: PartitionLog) -> "Shard[TransactionMachine]":
        # As Kafka's coordinator epoch: partitions refuse the markers of an older leader by it.
        epoch = self._replicas.find(log.partition).leader_epoch
        settings, clock = self._config.transactions, self._runtime.clock

        def make_machine() -> "TransactionMachine":
            from tailrace.coordinator.transactions.modules import (
                LeaderMarkers,
                LocalMarkers,
                TransactionMachine,
            )

            own = LocalMarkers(self.log_of, self.groups, clock)
            writer = (
                LeaderMarkers(own, _LeaderOfAll(self._cluster))
                if self._peers is None
                else LeaderMarkers(own, self._peers, elsewhere=self._peers.markers)
            )
            return TransactionMachine(
                settings,
                writer,
                coordinator_epoch=epoch,
                new_producer_id=self._next_producer_id,
                counts=self.transaction_counts,
            )

        def make_codec() -> RecordCodec:
            from tailrace.coordinator.transactions.modules import TransactionCodec

            return TransactionCodec()

        return Shard(
            log,
            make_machine,
            make_codec,
            clock=clock,
            # Kafka waits as long as the transaction may be open; its client gives up before.
            commit_timeout_ms=settings.timeout_ms_max,
            counts=self.transactions.counts,
        )


class _LeaderOfAll:
    """The only broker of a cluster, as `coordinator.transactions.markers.Leaders`."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster

    @property
    def node_id(self) -> int:
        return self._cluster.node_id

    def has_partition(self, partition: TopicPartition) -> bool:
        return self._cluster.image.has(partition)

    def leader_of(self, partition: TopicPartition) -> int | None:  # noqa: ARG002 - it leads all
        return self._cluster.node_id
