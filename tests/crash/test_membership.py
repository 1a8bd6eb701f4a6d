"""A broker of a cluster is killed at every operation on its directories; it starts and joins again.

Meanwhile it joins, gets topics as leader and as follower, loses a replica and a topic whose name is
used again, leaves in order and comes back. The controllers and the other broker live on, and know
what it has said before its end. Its disk is apart from theirs.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.storage.log import Log
from tailrace.testing import (
    MemoryFiles,
    Outside,
    ProcessKilledError,
    virtual_runtime,
)
from tailrace.testing.machines import ProcessNetwork
from tailrace.values import replace
from tests.steps import Steps
from tests.unit.broker.brokers import batch, produce
from tests.unit.broker.clusters import Cluster, running_cluster
from tests.unit.storage.builders import values

ME: Final = 1
OTHER: Final = 2
ROOTS: Final = ("mine", "more")
SETTINGS: Final = {
    "log.dirs": ",".join(ROOTS),
    "log.index.size.max.bytes": "1000",
    # What nobody else has, as those of `alone`, survives a loss of power too.
    "tailrace.durability": "sync",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "metadata.log.max.record.bytes.between.snapshots": "400",
    # Else the deleted folders would outlive the work.
    "log.segment.delete.delay.ms": "500",
}
WAIT_S: Final = 120
"""Virtual time after which something does not come any more."""

Crash = Callable[[MemoryFiles], MemoryFiles]


class Scene:
    """A cluster of two brokers; the first has a disk of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.acknowledged: dict[str, list[bytes]] = {}
        """Values by topic, without those of a topic whose deletion was asked."""
        self.generations: dict[str, int] = {}
        """Number of topics that a name has had; each value begins with it."""
        self._network = ProcessNetwork(cluster.outside.network)

    async def start(self, files: MemoryFiles) -> RunningBroker:
        """Start the first broker on its disk, and return when it is unfenced."""
        cluster = self.cluster
        given = {
            "process.roles": "broker",
            "node.id": str(ME),
            "controller.quorum.bootstrap.servers": cluster.controller.bootstrap,
            "controller.listener.names": "CONTROLLER",
            "listeners": "memory:0",
            **SETTINGS,
        }
        self._network = ProcessNetwork(cluster.outside.network)
        broker = await start_broker(
            broker_config(given),
            replace(cluster.outside.runtime, files=files, network=self._network),
        )
        cluster.brokers[ME] = broker
        await self.until(lambda: not cluster.controller.image.brokers[ME].fenced)
        return broker

    def kill(self) -> None:
        """End the first broker as a killed process, also one that starts or stops."""
        self._network.go()
        if ME in self.cluster.brokers:
            self.cluster.kill(ME)

    async def until(self, holds: Callable[[], bool]) -> None:
        await asyncio.wait_for(self.cluster.until(holds), WAIT_S)

    async def create(self, name: str, *replicas: int) -> None:
        """Create a topic, and return when these brokers have it."""
        self.generations[name] = self.generations.get(name, 0) + 1
        self.acknowledged[name] = []
        self.cluster.controller.add_topic(name, assignments=[list(replicas)])
        part = TopicPartition(name, 0)
        await self.until(lambda: all(self.cluster.end(each, part) == 0 for each in replicas))

    def delete(self, name: str) -> None:
        del self.acknowledged[name]
        request = DeleteTopicsRequest(topics=(DeleteTopicState(name=name),))
        self.cluster.controller.do(ApiKey.DELETE_TOPICS, request)

    def reassign(self, name: str, *replicas: int) -> None:
        part = ReassignablePartition(partition_index=0, replicas=replicas)
        topic = ReassignableTopic(name=name, partitions=(part,))
        request = AlterPartitionReassignmentsRequest(topics=(topic,))
        self.cluster.controller.do(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)

    async def produce(self, name: str, value: bytes) -> None:
        """Have a value acknowledged by all replicas in sync."""
        value = b"%s %d %s" % (name.encode(), self.generations[name], value)
        async with asyncio.timeout(WAIT_S):
            while True:
                leader = self.cluster.state(TopicPartition(name, 0)).leader
                if leader in self.cluster.brokers:
                    peer = self.cluster.peer(leader)
                    try:
                        answer = await produce(peer, name, batch(value))
                    finally:
                        # Else it would be called back for ever, when this wait was cancelled.
                        peer.socket.watch_reads(None)
                        peer.socket.close()
                    if not answer.error_code:
                        break
                await self.cluster.outside.pass_time(0.1)
        self.acknowledged[name].append(value)

    async def in_sync(self, name: str, *replicas: int) -> None:
        part = TopicPartition(name, 0)
        await self.until(lambda: sorted(self.cluster.state(part).isr) == sorted(replicas))

    async def work(self, files: MemoryFiles) -> None:
        """Join, lead, follow, leave, come back; the broker may die at any operation."""
        await self.start(files)
        await self.create("led", ME, OTHER)
        await self.create("followed", OTHER, ME)
        await self.create("moved", OTHER)
        await self.create("alone", ME)
        for value in (b"a", b"b"):
            await self.produce("led", value)
            await self.produce("followed", value)
            await self.produce("moved", value)
            await self.produce("alone", value)
        self.reassign("moved", OTHER, ME)
        await self.in_sync("moved", ME, OTHER)
        await self.cluster.outside.pass_time(2)
        self.delete("led")
        await self.create("led", ME, OTHER)
        await self.produce("led", b"c")
        self.delete("alone")
        await self.create("alone", ME)
        await self.produce("alone", b"c")
        self.reassign("moved", OTHER)
        await self.in_sync("moved", OTHER)
        await self.cluster.outside.pass_time(2)
        await self.cluster.stop(ME)
        await self.produce("led", b"d")
        await self.start(files)
        await self.in_sync("led", ME, OTHER)
        await self.produce("led", b"e")
        await self.produce("alone", b"d")
        await self.cluster.stop(ME)

    async def check(self, files: MemoryFiles) -> None:
        """The broker is in sync again, and has what was acknowledged and nothing else."""
        await self.start(files)
        topics = self.cluster.controller.image.topics
        for topic in topics.values():
            replicas = topic.partitions[0].replicas
            await self.in_sync(topic.name, *replicas)
            await self.produce(topic.name, b"last")
            part = TopicPartition(topic.name, 0)
            found = {each: values(self.log(each, part)) for each in replicas}
            for broker, held in found.items():
                assert held == found[replicas[0]], (broker, topic.name)
                mine = b"%s %d " % (topic.name.encode(), self.generations[topic.name])
                assert all(each is not None and each.startswith(mine) for each in held), held
                wanted = self.acknowledged[topic.name]
                assert [each for each in held if each in wanted] == wanted
        live = {key.hex for key, each in topics.items() if ME in each.partitions[0].replicas}
        for name in (name for root in ROOTS for name in files.list(root)):
            # It would be a replica whose records nobody sees any more.
            assert not name.endswith("-stray") or name.split(".")[-1][:32] not in live, name
        await self.cluster.stop(ME)

    def log(self, broker_id: int, name: TopicPartition) -> Log:
        return self.cluster.brokers[broker_id].replicas.find_replica(name).log


def killed_process(files: MemoryFiles) -> MemoryFiles:
    """The page cache survives."""
    return files.crash(keep_unsynced=True)


def lost_power(files: MemoryFiles) -> MemoryFiles:
    """The disk has the synced bytes and no others."""
    return files.crash()


def torn(files: MemoryFiles) -> MemoryFiles:
    """Some of what was not synced is there."""
    return files.crash(chance=random.Random(len(files.operations)))


def play(act: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    """Run a scene to its end on virtual time."""

    async def run(outside: Outside) -> None:
        async with running_cluster(outside, OTHER) as cluster:
            await act(Scene(cluster))
        # Those of the killed process; a test after this one would run what they do at their end.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Tasks of the killed process end with it, and nobody asks them why.
        if not isinstance(context.get("exception"), ProcessKilledError):
            loop.default_exception_handler(context)

    with virtual_runtime() as outside:
        outside.loop.set_exception_handler(report)
        outside.run(run(outside))


def crash_at(stop_at: int, crash: Crash) -> None:
    """Kill the broker at one operation, and check what its next start finds."""

    async def act(scene: Scene) -> None:
        files, died = MemoryFiles(), asyncio.Event()
        files.stop_at, files.stop_partial_bytes = stop_at, 30

        def look(_operation: str, _path: str) -> None:
            if len(files.operations) > stop_at:
                died.set()

        files.on_call = look
        working = asyncio.ensure_future(scene.work(files))
        dying = asyncio.ensure_future(died.wait())
        await asyncio.wait([working, dying], return_when=asyncio.FIRST_COMPLETED)
        assert died.is_set(), working
        scene.kill()
        working.cancel()
        with contextlib.suppress(BaseException):
            await working
        await scene.check(crash(files))

    play(act)


def operations() -> range:
    """The operations of the whole work."""
    files, count = MemoryFiles(), 0

    async def act(scene: Scene) -> None:
        nonlocal count
        await scene.work(files)
        count = len(files.operations)
        await scene.check(files)

    play(act)
    return range(count)


@pytest.mark.parametrize("crash", [killed_process, lost_power, torn])
def test_a_broker_that_dies_anywhere_joins_again(crash: Crash, steps: Steps) -> None:
    """Nothing acknowledged is lost, and no topic has the records of another one of its name."""
    found = operations()
    assert len(found) > 300
    for stop_at in steps(found):
        crash_at(stop_at, crash)
