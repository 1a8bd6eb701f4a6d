"""Brokers of a cluster in one process: their coordinators, their logs, and a network between them.

    homes = Homes(outside, seed=1)
    homes.elect(OFFSETS, leader=2)
    await homes.settle()

Real are the coordinators, partitions and logs, and the handlers of requests between brokers. Played
are the controller (`elect`), the followers' fetches (`copy`), and the network (`Line`).
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, TypeVar, cast
from uuid import UUID

from tailrace.broker.config import broker_config
from tailrace.broker.coordinators import Coordinators, LogServices
from tailrace.broker.transaction_peers import TransactionPeers
from tailrace.client.errors import UnreachableBrokerError
from tailrace.client.nodes import Node
from tailrace.cluster.metadata.image import EVERYTHING_CHANGED, MetadataImage, TopicState
from tailrace.cluster.state import FollowedCluster
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.coordinator.transactions.coordinator import TransactionCoordinator
from tailrace.errors import OffsetOutOfRangeError
from tailrace.handlers.transaction_calls import handle_add_partitions_to_txn
from tailrace.handlers.write_txn_markers import handle_write_txn_markers
from tailrace.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Offset, ProducerId, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tailrace.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tailrace.protocol.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
)
from tailrace.records.batch import Batch
from tailrace.replication.device_reads import DeviceReads
from tailrace.replication.flushes import Flushes
from tailrace.replication.follower_log import (
    FetchedPartition,
    MisplacedAnswerError,
    append_fetched,
    cut_diverged,
    position_of,
)
from tailrace.replication.partition import ClusterView, Partition
from tailrace.replication.replicas import Replicas
from tailrace.storage.positions import ReadLimit
from tailrace.storage.shrink import take_steps
from tailrace.testing import MemoryFiles, Outside
from tailrace.values import replace
from tests.unit.storage.builders import settings
from tests.unit.storage.test_manager import manager

if TYPE_CHECKING:
    from tailrace.handlers.services import Services

M = TypeVar("M", bound=Message)

NODES = (1, 2, 3)
GROUPS = TopicPartition(OFFSETS_TOPIC, 0)
TRANSACTIONS = TopicPartition(TRANSACTIONS_TOPIC, 0)
DATA = tuple(TopicPartition("data", each) for each in range(2))
IDS = {OFFSETS_TOPIC: UUID(int=1), TRANSACTIONS_TOPIC: UUID(int=2), "data": UUID(int=3)}
LAG_MS = 10**9
"""No follower is late: the ISR stays as it is."""
SETTINGS = {
    "log.dirs": "data",
    "listeners": "memory:0",
    "offsets.commit.timeout.ms": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


@dataclass
class Trouble:
    """The faults of the network and of followers."""

    loss: float = 0.0
    """Share of requests between brokers that are lost, and of answers."""
    delay_s: float = 0.0
    """Longest time that a message takes."""
    stopped: set[int] = field(default_factory=set)
    """Brokers that fetch nothing now, so that high watermarks stay where they are."""
    held: set[TopicPartition] = field(default_factory=set)
    """Partitions that nobody fetches now."""
    blind: set[int] = field(default_factory=set)
    """Brokers that see no new image now."""


class Line:
    """The connections of one broker to the others."""

    def __init__(self, homes: "Homes") -> None:
        self._homes = homes

    async def ask(
        self,
        node: Node,
        request: Message,
        answer: type[M],
        *,
        timeout_ms: int,
        first_version: int = 0,  # noqa: ARG002 - all have the newest
    ) -> M:
        """The answer of a broker, unless the request or the answer is lost."""
        await self._carry(node)
        async with asyncio.timeout(timeout_ms / 1000):
            found = await self._homes.by_id[node.id].handle(request)
        await self._carry(node)
        assert isinstance(found, answer)
        return found

    async def _carry(self, node: Node) -> None:
        homes = self._homes
        await homes.outside.pass_time(homes.chance.random() * homes.trouble.delay_s)
        if homes.chance.random() < homes.trouble.loss:
            raise UnreachableBrokerError(f"lost on the way to {node}", address=node.host)

    def close(self) -> None:
        """Forget the connections."""


class Home:
    """A broker: what it knows of the cluster, its partitions, and its coordinators."""

    def __init__(self, homes: "Homes", node_id: int) -> None:
        outside, config = homes.outside, broker_config(SETTINGS)
        self.node_id = node_id
        self._homes = homes
        self.cluster = FollowedCluster(
            node_id, defaults=TopicDefaults(partition_count=1, replication_factor=3, given={})
        )
        self.logs = manager(MemoryFiles(), "data")
        self.replicas = Replicas(
            self.logs,
            outside.threads,
            cluster=ClusterView(
                node_id=node_id,
                brokers=self.cluster,
                has_partition=self._has_partition,
                clock=outside.clock,
                lag_ms=LAG_MS,
            ),
        )
        self._fallbacks: dict[TopicPartition, Offset] = {}
        self.replicas.verify_transactions(is_required=True)
        self.replicas.on_followed = self._note_followed
        self.peers = TransactionPeers(
            self.cluster, to_leaders=Line(homes), to_coordinators=Line(homes)
        )
        self.coordinators = Coordinators(
            config,
            cluster=self.cluster,
            next_producer_id=homes.next_producer_id,
            replicas=self.replicas,
            runtime=outside.runtime,
            logs=LogServices(
                flushes=Flushes(self.logs, outside.threads),
                device_reads=DeviceReads(outside.threads),
                is_durable=False,
            ),
            consumer_settings=lambda: config.consumer_groups,
            peers=self.peers,
        )
        self.coordinators.start()
        self.transactions = TransactionCoordinator(
            self.coordinators.transactions, homes.next_producer_id, config.transactions
        )
        # The few services that the handlers of requests between brokers use.
        self._services = cast(
            "Services",
            _Parts(
                cluster=self.cluster,
                groups=self.coordinators.groups,
                transactions=self.coordinators.transactions,
                coordinator_log=self.coordinators.log_of,
                next_producer_id=homes.next_producer_id,
                transaction_settings=config.transactions,
                clock=outside.clock,
            ),
        )

    def see(self, image: MetadataImage) -> None:
        """Take the roles that an image assigns, as the broker does in one turn of its loop."""
        self.cluster.publish(image, EVERYTHING_CHANGED, offset=0)
        for topic in image.topics.values():
            for number, state in topic.partitions.items():
                name = TopicPartition(topic.name, number)
                self.replicas.assign(
                    name, topic.topic_id, state, config=settings(min_insync_replicas=2)
                )

    async def handle(self, request: Message) -> Message:
        """The answer to a request of another broker."""
        if isinstance(request, WriteTxnMarkersRequest):
            header = RequestHeader(ApiKey.WRITE_TXN_MARKERS, 2, 0, "broker")
            return await handle_write_txn_markers(self._services, header, request)
        assert isinstance(request, AddPartitionsToTxnRequest)
        header = RequestHeader(ApiKey.ADD_PARTITIONS_TO_TXN, 5, 0, "broker")
        return await handle_add_partitions_to_txn(self._services, header, request)

    def _has_partition(self, name: TopicPartition) -> bool:
        return self.cluster.image.has(name)

    def leads(self, name: TopicPartition) -> bool:
        """Whether it does, by what it knows."""
        found = self.replicas.get(name)
        return found is not None and found.is_leader

    def partition(self, name: TopicPartition) -> Partition:
        """A partition that is here, in either role."""
        return self.replicas.find_replica(name)

    def batches(self, name: TopicPartition) -> Iterator[Batch]:
        """The batches of a log, each until the next one is taken."""
        log = self.partition(name).log
        return log.batches(log.start_offset)

    def _note_followed(self, partition: Partition) -> None:
        self._fallbacks[partition.name] = partition.log.positions.high_watermark

    def copy(self, name: TopicPartition, *, bytes_max: int) -> None:
        """One fetch of a partition that it follows, if its leader knows that it leads."""
        own = self.replicas.get(name)
        if own is None or own.is_leader or own.leader_id < 0:
            return
        leader = self._homes.by_id[own.leader_id].replicas.get(name)
        if leader is None or not leader.is_leader or leader.leader_epoch != own.leader_epoch:
            return
        position = position_of(own.log)
        # Another answer, or a move of the log, has come first: it asks again.
        with suppress(MisplacedAnswerError, OffsetOutOfRangeError):
            end = leader.divergence(position.offset, position.last_epoch)
            if end is not None:
                fallback = self._fallbacks[name]
                take_steps(cut_diverged(own.log, end, asked=position, fallback=fallback))
                own.followed()
                return
            log = leader.log
            found = log.read(
                position.offset, bytes_max=bytes_max, is_first_whole=True, limit=ReadLimit.LOG_END
            )
            data = b"" if found.records is None else found.records.read()
            leader.note_fetch(
                self.node_id,
                broker_epoch=100 + self.node_id,
                offset=position.offset,
                log_start=position.log_start,
                log_end=log.end_offset,
                now_ms=self._homes.outside.clock.now_ms(),
            )
            append_fetched(
                own.log,
                FetchedPartition(memoryview(data), log.positions.high_watermark, log.start_offset),
                asked=position,
                epoch=own.leader_epoch,
                now_ms=self._homes.outside.clock.now_ms(),
            )
            own.followed()


@dataclass
class _Parts:
    cluster: object
    groups: object
    transactions: object
    coordinator_log: object
    next_producer_id: object
    transaction_settings: object
    clock: object


class Homes:
    """The brokers, their controller, and what happens between them."""

    def __init__(self, outside: Outside, *, seed: int = 0) -> None:
        self.outside = outside
        self.chance = Random(seed)
        self.trouble = Trouble()
        self._producer_ids = iter(range(1000, 100_000))
        self.states: dict[TopicPartition, PartitionRecord] = {
            name: PartitionRecord(
                partition_id=name.partition,
                topic_id=IDS[name.topic],
                replicas=NODES,
                isr=NODES,
                removing_replicas=(),
                adding_replicas=(),
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=(),
            )
            for name in (GROUPS, TRANSACTIONS, *DATA)
        }
        self.by_id = {each: Home(self, each) for each in NODES}
        self._running: list[asyncio.Task[None]] = []

    async def next_producer_id(self) -> ProducerId:
        """One that nobody has had."""
        return ProducerId(next(self._producer_ids))

    # -- the controller -----------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """The newest image."""
        topics: dict[str, dict[int, PartitionRecord]] = {}
        for name, state in self.states.items():
            topics.setdefault(name.topic, {})[name.partition] = state
        return MetadataImage(
            brokers={each: _registration(each) for each in NODES},
            topics={
                IDS[name]: TopicState(name=name, topic_id=IDS[name], partitions=partitions)
                for name, partitions in topics.items()
            },
            topic_ids={name: IDS[name] for name in topics},
        )

    def elect(self, name: TopicPartition, leader: int) -> None:
        """Make another broker the leader, or the same one in a newer epoch; -1: nobody."""
        before = self.states[name]
        self.states[name] = replace(
            before,
            leader=leader,
            leader_epoch=before.leader_epoch + 1,
            partition_epoch=before.partition_epoch + 1,
        )

    def shrink(self, name: TopicPartition, *, isr: tuple[int, ...]) -> None:
        """Take replicas out of the ISR, or back into it."""
        before = self.states[name]
        self.states[name] = replace(before, isr=isr, partition_epoch=before.partition_epoch + 1)

    def delete(self, name: TopicPartition) -> None:
        """Delete a partition, as with its topic."""
        del self.states[name]

    def restore(self, name: TopicPartition, state: PartitionRecord, *, leader_epoch: int) -> None:
        """Make it again, as with another topic of the name."""
        self.states[name] = replace(state, leader_epoch=leader_epoch, partition_epoch=0)

    def publish(self, *nodes: int) -> None:
        """Show the newest image to brokers, or to all."""
        for each in nodes or NODES:
            self.by_id[each].see(self.image)

    # -- time ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Let images and records reach the brokers from now on, each in its own time."""
        self._running = [
            asyncio.ensure_future(run(home))
            for home in self.by_id.values()
            for run in (self._watch, self._follow)
        ]

    async def stop(self) -> None:
        """Stop all of it."""
        for each in self._running:
            each.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for home in self.by_id.values():
            await home.coordinators.stop()

    async def settle(self, seconds: float = 30) -> None:
        """End all trouble, and let everything come to its end."""
        self.trouble = Trouble()
        await self.outside.pass_time(seconds)

    def leader(self, name: TopicPartition) -> Home:
        """The leader by the newest image; without one, the first broker, as clients ask any."""
        return self.by_id.get(self.states[name].leader, self.by_id[1])

    async def _watch(self, home: Home) -> None:
        seen: Mapping[TopicPartition, PartitionRecord] = {}
        while True:
            if seen != self.states and home.node_id not in self.trouble.blind:
                seen = dict(self.states)
                home.see(self.image)
            await self.outside.pass_time(self.chance.random() * 0.2)

    async def _follow(self, home: Home) -> None:
        while True:
            if home.node_id not in self.trouble.stopped:
                # Not a set: a seed plays the same each time.
                for name in [each for each in self.states if each not in self.trouble.held]:
                    home.copy(name, bytes_max=self.chance.choice((1, 500, 10_000)))
            await self.outside.pass_time(0.01 + self.chance.random() * 0.05)


def _registration(node_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=node_id,
        incarnation_id=UUID(int=node_id),
        broker_epoch=100 + node_id,
        end_points=(
            BrokerEndpoint(name="PLAINTEXT", host=f"b{node_id}", port=9092, security_protocol=0),
        ),
        fenced=False,
    )
