"""Brokers of the cluster role on doubles, under a controller of our own."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from tailrace.broker.broker import RunningBroker
from tailrace.broker.config import broker_config
from tailrace.broker.controller.start import RunningController, start_controller
from tailrace.broker.start import start_broker
from tailrace.cluster.metadata.folder import TOPIC_ID
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import fetch
from tailrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.runtime.system import Runtime
from tailrace.testing import MemoryFiles, Outside, Peer
from tailrace.values import replace

if TYPE_CHECKING:
    from tailrace.broker.controller.node import ControllerNode

CONTROLLER = 100
T_0 = TopicPartition("t", 0)
PORT = 19_093


class OwnCluster:
    """A controller of our own, and brokers by their ids; each has a disk that outlives it."""

    def __init__(self, outside: Outside, settings: Mapping[str, str] | None = None) -> None:
        self.outside = outside
        self.controller: RunningController
        self.node: ControllerNode
        """The controller that was started last, alone or beside a broker."""
        self.is_killed = True
        """Whether no controller runs."""
        self.brokers: dict[int, RunningBroker] = {}
        self.disks: dict[int, MemoryFiles] = {CONTROLLER: outside.files}
        self._settings = dict(settings or {})

    def runtime(self, node_id: int) -> Runtime:
        """The seams of a node."""
        disk = self.disks.setdefault(node_id, MemoryFiles())
        return replace(self.outside.runtime, files=disk)

    async def start_controller(self, settings: Mapping[str, str] | None = None) -> None:
        """Start the controller, again on the same port."""
        given = {
            "process.roles": "controller",
            "node.id": str(CONTROLLER),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://memory:{PORT}",
            "log.dirs": "data",
            **self._settings,
            **(settings or {}),
        }
        self.controller = await start_controller(broker_config(given), self.runtime(CONTROLLER))
        self.node = self.controller.node
        self.is_killed = False

    def kill_controller(self) -> None:
        """End the controller as a killed process ends."""
        self.controller.kill()
        self.is_killed = True

    async def start(
        self, broker_id: int, settings: Mapping[str, str] | None = None, **more: Any
    ) -> RunningBroker:
        """Start a broker, and return when it is unfenced; `more` is for `start_broker`."""
        given = {"process.roles": "broker", "listeners": "memory:0", **(settings or {})}
        broker = await self._start(broker_id, given, **more)
        await self.until(lambda image: not image.brokers[broker_id].fenced)
        return broker

    async def _start(
        self, broker_id: int, settings: Mapping[str, str], **more: Any
    ) -> RunningBroker:
        given = {
            "node.id": str(broker_id),
            "controller.quorum.bootstrap.servers": f"memory:{PORT}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "data",
            **settings,
        }
        broker = await start_broker(broker_config(given), self.runtime(broker_id), **more)
        self.brokers[broker_id] = broker
        return broker

    async def start_both(
        self, broker_id: int = 1, settings: Mapping[str, str] | None = None
    ) -> RunningBroker:
        """Start a node that is the controller and a broker; return when it is unfenced."""
        given = {
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://memory:0,CONTROLLER://memory:{PORT}",
            **self._settings,
            **(settings or {}),
        }
        broker = await self._start(broker_id, given)
        assert broker.controller_node is not None
        self.node = broker.controller_node
        await self.until(lambda image: not image.brokers[broker_id].fenced)
        return broker

    async def stop(self, broker_id: int) -> None:
        """Stop a broker in order."""
        await self.brokers.pop(broker_id).stop()

    def kill(self, broker_id: int) -> None:
        """End a broker as a killed process ends."""
        self.brokers.pop(broker_id).kill()

    def peer(self, broker_id: int) -> Peer:
        """A new connection to a broker."""
        return Peer(self.outside.network.open(self.brokers[broker_id].endpoint[1]))

    def ask(self) -> Peer:
        """A new connection to the controller."""
        return Peer(self.outside.network.open(PORT))

    @property
    def image(self) -> MetadataImage:
        """The state of the cluster that is on the controller's device."""
        return self.node.image

    def state(self, name: TopicPartition = T_0) -> PartitionRecord:
        """A partition, as the controller has it."""
        topic = self.image.topic(name.topic)
        assert topic is not None, f"there is no topic {name.topic}"
        return topic.partitions[name.partition]

    def end(self, broker_id: int, name: TopicPartition = T_0) -> int:
        """The end of a partition's log on a broker; -1: it has none."""
        found = self.brokers[broker_id].replicas.get(name)
        return -1 if found is None else found.log.end_offset

    async def add_topic(self, name: str = "t", *, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
        """Create a topic with one partition through a broker, and wait for its logs."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=replicas),),
        )
        peer = self.peer(next(iter(self.brokers)))
        answer = await peer.ask(
            ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse
        )
        assert answer.topics[0].error_code == ErrorCode.NONE, answer.topics[0].error_message
        partition = TopicPartition(name, 0)
        running = [each for each in replicas if each in self.brokers]
        await self.wait(lambda: all(self.end(each, partition) >= 0 for each in running))

    async def until(self, holds: Callable[[MetadataImage], bool]) -> None:
        """Let time pass until something holds of the state of the cluster."""
        await self.wait(lambda: holds(self.image))

    async def wait(self, holds: Callable[[], bool]) -> None:
        """Let time pass until something holds, which is looked at every 10 ms.

        Raises:
            AssertionError: it does not hold within 20 minutes.
        """
        for _ in range(120_000):
            if holds():
                return
            await self.outside.pass_time(0.01)
        raise AssertionError("what is waited for does not come")


async def follow(peer: Peer, *, epoch: int, offset: int, last_epoch: int) -> PartitionData:
    """The answer of a controller to a Fetch, at once.

    By an observer that has the log up to an offset, with `last_epoch` before it, and knows `epoch`.
    """
    asked = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=0,
    )
    request = FetchRequest(
        replica_state=fetch.ReplicaState(replica_id=9),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=(fetch.FetchTopic(topic_id=TOPIC_ID, partitions=(asked,)),),
    )
    answer = await peer.ask(ApiKey.FETCH, request, FetchResponse)
    assert answer.error_code == ErrorCode.NONE, answer
    [found] = answer.responses[0].partitions
    return found


@asynccontextmanager
async def own_cluster(
    outside: Outside, *broker_ids: int, settings: Mapping[str, str] | None = None
) -> AsyncIterator[OwnCluster]:
    """A controller and running brokers, which are stopped at the end."""
    cluster = OwnCluster(outside, settings)
    await cluster.start_controller()
    try:
        for each in broker_ids:
            await cluster.start(each)
        yield cluster
    finally:
        for each in list(cluster.brokers):
            with suppress(OSError):
                await cluster.stop(each)
        # Not the one of the beginning, if a test has started another.
        if not cluster.is_killed:
            await cluster.controller.stop()


@asynccontextmanager
async def cluster_of_both(
    outside: Outside, *broker_ids: int, settings: Mapping[str, str] | None = None
) -> AsyncIterator[OwnCluster]:
    """Node 1, which is controller and broker, and other brokers; all are stopped at the end."""
    cluster = OwnCluster(outside, settings)
    await cluster.start_both()
    try:
        for each in broker_ids:
            await cluster.start(each)
        yield cluster
    finally:
        # The one with the controller last: the others need it for their stop.
        for each in sorted(cluster.brokers, reverse=True):
            with suppress(OSError):
                await cluster.stop(each)
