"""Several brokers on doubles, under a scripted controller."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from tailrace.broker.broker import RunningBroker
from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.model import TopicPartition
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.server.dispatch import Dispatch
from tailrace.testing import Outside, Peer
from tailrace.testing.controller import ScriptedController

T_0 = TopicPartition("t", 0)


class Cluster:
    """A controller, and brokers by their ids."""

    def __init__(self, outside: Outside) -> None:
        self.outside = outside
        self.controller = ScriptedController(outside)
        self.brokers: dict[int, RunningBroker] = {}

    async def start(
        self,
        broker_id: int,
        settings: dict[str, str] | None = None,
        *,
        wrap_dispatch: Callable[[Dispatch], Dispatch] | None = None,
        asked_to_stop: asyncio.Event | None = None,
    ) -> RunningBroker:
        """Start a broker, and return when it is unfenced."""
        given = {
            "process.roles": "broker",
            "node.id": str(broker_id),
            "controller.quorum.bootstrap.servers": self.controller.bootstrap,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": f"data-{broker_id}",
            "listeners": "memory:0",
            **(settings or {}),
        }
        broker = await start_broker(
            broker_config(given),
            self.outside.runtime,
            wrap_dispatch=wrap_dispatch,
            asked_to_stop=asked_to_stop,
        )
        self.brokers[broker_id] = broker
        await self.controller.until(lambda image: not image.brokers[broker_id].fenced)
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

    def state(self, name: TopicPartition = T_0) -> PartitionRecord:
        """A partition, as the controller has it."""
        state: PartitionRecord = self.controller.partition(name)
        return state

    def end(self, broker_id: int, name: TopicPartition = T_0) -> int:
        """The end of a partition's log on a broker; -1: it has none."""
        found = self.brokers[broker_id].replicas.get(name)
        return -1 if found is None else found.log.end_offset

    def watermark(self, broker_id: int, name: TopicPartition = T_0) -> int:
        """The high watermark of a partition on a broker; -1: it has none."""
        found = self.brokers[broker_id].replicas.get(name)
        return -1 if found is None else found.log.positions.high_watermark

    async def add_topic(self, name: str = "t", *, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
        """Create a topic with one partition, and return when its first replica leads it."""
        self.controller.add_topic(name, assignments=[list(replicas)])
        partition = TopicPartition(name, 0)
        running = [each for each in replicas if each in self.brokers]
        await self.until(lambda: all(self.end(each, partition) >= 0 for each in running))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let time pass until something holds, which is looked at every 10 ms."""
        while not holds():
            await self.outside.pass_time(0.01)


@asynccontextmanager
async def running_cluster(outside: Outside, *broker_ids: int) -> AsyncIterator[Cluster]:
    """A controller and running brokers, which are stopped at the end."""
    cluster = Cluster(outside)
    cluster.controller.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(cluster.controller.close)
        for each in broker_ids:
            await cluster.start(each)
        try:
            yield cluster
        finally:
            for each in list(cluster.brokers):
                with suppress(OSError):
                    await cluster.stop(each)
