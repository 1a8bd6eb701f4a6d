"""A cluster of brokers in virtual time: producers and readers go on while a seed makes faults.

    broker 1 ─┐                   kill, loss of power, orderly stop and start
    broker 2 ─┼─ scripted         links held or cut: between brokers, to the controller, to clients
    broker 3 ─┘  controller       the controller restarts, is slow, commits late
    producer, readers

Each broker has a disk of its own, and all share the clock and the network. At the end everything is
healed, and what was acknowledged is looked for in the logs.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.client.consumer.aio import AsyncConsumer
from tailrace.client.producer.aio import AsyncProducer
from tailrace.cluster.control.state import ControlConfig
from tailrace.errors import TailraceError
from tailrace.model import Offset, TopicPartition
from tailrace.records.batch import read_batches
from tailrace.records.builder import records_of
from tailrace.runtime.network import AcceptedSocket, Socket
from tailrace.runtime.system import Runtime
from tailrace.storage.log import Log
from tailrace.storage.positions import ReadLimit
from tailrace.testing import Outside, virtual_runtime
from tailrace.testing.controller import ScriptedController
from tailrace.testing.files import MemoryFiles
from tailrace.testing.network import MemoryListener, MemorySocket
from tailrace.testing.outside import InlineThreads

if TYPE_CHECKING:
    from tailrace.broker.broker import RunningBroker

BROKERS = (1, 2, 3)
CONTROLLER, CLIENTS = 100, 200
"""Numbers of the nodes that are no brokers."""
PARTITIONS = tuple(TopicPartition("t", number) for number in range(2))
SESSION_MS = 3000


@dataclass(slots=True)
class Link:
    """The connections between two nodes, in whichever direction they were opened."""

    sockets: list[MemorySocket] = field(default_factory=list)
    is_held: bool = False

    def hold(self) -> None:
        """Let nothing through from now on, in either direction; nobody notices."""
        self.is_held = True
        for each in self._ends():
            each.hold()

    def release(self) -> None:
        """Let through what was held, and all that comes."""
        self.is_held = False
        for each in self._ends():
            each.release()

    def cut(self) -> None:
        """Break every connection; both ends notice, and may connect again."""
        for each in self.sockets:
            each.cut()
        self.sockets.clear()

    def _ends(self) -> Iterator[MemorySocket]:
        for each in self.sockets:
            yield each
            if each._other is not None:
                yield each._other


class NodeNetwork:
    """The network as one node has it: who it talks with is known by ports."""

    def __init__(self, cluster: "SimulatedCluster", node: int) -> None:
        self._cluster = cluster
        self._node = node

    def listen(
        self, host: str, port: int, accepted: Callable[[AcceptedSocket], None]
    ) -> MemoryListener:
        """Open a port of this node."""
        listener = self._cluster.outside.network.listen(host, port, accepted)
        self._cluster.owners[listener.port] = self._node
        return listener

    def connect(
        self, host: str, port: int, done: Callable[[Socket | OSError], None], *, first: int = 0
    ) -> Callable[[], None]:
        """Connect to another node, unless nothing gets through to it."""
        link = self._cluster.link(self._node, self._cluster.owners.get(port, CONTROLLER))
        if link.is_held:
            return lambda: None

        def opened(found: Socket | OSError) -> None:
            if isinstance(found, MemorySocket):
                link.sockets.append(found)
                if link.is_held:
                    link.hold()
            done(found)

        return self._cluster.outside.network.connect(host, port, opened, first=first)

    def run_beside(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Work on the network of all."""
        self._cluster.outside.network.run_beside(work, done)


class Machine:
    """One broker's machine: its disk outlives its processes."""

    def __init__(self, cluster: "SimulatedCluster", broker_id: int) -> None:
        self.broker: RunningBroker | None = None
        self.files = MemoryFiles()
        self._cluster = cluster
        self._id = broker_id
        self._port = 30_000 + broker_id
        self._changing: asyncio.Task[None] | None = None

    @property
    def is_serving(self) -> bool:
        """Whether its broker has started, and does not stop."""
        return self.broker is not None and self._changing is None

    def start(self) -> None:
        """Begin to start a broker, if there is none."""
        if self.broker is None and self._changing is None:
            self._changing = asyncio.ensure_future(self._start())

    async def _start(self) -> None:
        cluster = self._cluster
        given = {
            "process.roles": "broker",
            "node.id": str(self._id),
            "controller.quorum.bootstrap.servers": cluster.controller.bootstrap,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "data",
            "listeners": f"memory:{self._port}",
            "replica.lag.time.max.ms": "2000",
            "replica.fetch.backoff.ms": "200",
            "broker.heartbeat.interval.ms": "300",
            "offsets.topic.num.partitions": "1",
            "log.index.size.max.bytes": "1000",
            "log.initial.task.delay.ms": "500",
            "log.flush.offset.checkpoint.interval.ms": "1000",
        }
        runtime = Runtime(
            clock=cluster.outside.clock,
            files=self.files,
            network=NodeNetwork(cluster, self._id),
            threads=InlineThreads(),
            chance=random.Random(cluster.chance.getrandbits(64)),
        )
        try:
            # A controller that cannot be reached ends a start; an operator tries again.
            with suppress(TailraceError):
                self.broker = await start_broker(broker_config(given), runtime)
        finally:
            self._changing = None

    def stop(self) -> None:
        """Begin to stop the broker in order."""
        if self.is_serving:
            self._changing = asyncio.ensure_future(self._stop())

    async def _stop(self) -> None:
        assert self.broker is not None
        try:
            await self.broker.stop()
        finally:
            self.broker = self._changing = None

    async def rest(self) -> None:
        """Wait until it has started or stopped."""
        if self._changing is not None:
            await asyncio.gather(self._changing, return_exceptions=True)

    def kill(self, *, loses_power: bool) -> None:
        """End the process; with the power, what was not synced may be lost."""
        broker, self.broker = self.broker, None
        if broker is not None:
            broker.kill()
            chance = random.Random(self._cluster.chance.getrandbits(64))
            self.files = self.files.crash(keep_unsynced=not loses_power, chance=chance)


class SimulatedCluster:
    """The machines, the controller and the links between them."""

    def __init__(self, outside: Outside, chance: random.Random) -> None:
        self.outside = outside
        self.chance = chance
        self.owners: dict[int, int] = {}
        """The node of each port of a broker."""
        self.story: list[str] = []
        """The faults so far, with their times."""
        self.controller = ScriptedController(
            outside, config=ControlConfig(session_timeout_ms=SESSION_MS)
        )
        self.machines = {each: Machine(self, each) for each in BROKERS}
        self._links: dict[frozenset[int], Link] = {}

    def link(self, one: int, other: int) -> Link:
        """The connections between two nodes."""
        return self._links.setdefault(frozenset((one, other)), Link())

    def note(self, what: str) -> None:
        """Add to the story."""
        self.story.append(f"{self.outside.loop.time():.3f} {what}")

    def client_runtime(self) -> Runtime:
        """The seams of a client."""
        return Runtime(
            clock=self.outside.clock,
            files=self.outside.files,
            network=NodeNetwork(self, CLIENTS),
            threads=InlineThreads(),
            chance=random.Random(self.chance.getrandbits(64)),
        )

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses."""
        return ",".join(f"memory:{30_000 + each}" for each in BROKERS)

    async def start(self) -> None:
        """Start everything, and create the topic."""
        self.controller.start()
        for machine in self.machines.values():
            machine.start()
        await self.controller.until(
            lambda image: sum(not each.fenced for each in image.brokers.values()) == len(BROKERS)
        )
        self.controller.add_topic(
            "t",
            assignments=[[1, 2, 3], [2, 3, 1]],
            configs={"min.insync.replicas": "2"},
        )

    # -- faults -------------------------------------------------------------------------------

    def may_go(self, broker_id: int) -> bool:
        """Whether a replica in sync of each partition lives without this broker.

        One that the controller does not hear lives for nobody: it elects another, and in the end
        the last leader that it knows, with whatever that has left.
        """
        return self.machines[broker_id].is_serving and all(
            any(
                self.machines[each].is_serving and not self.link(each, CONTROLLER).is_held
                for each in self.controller.partition(name).isr
                if each != broker_id
            )
            for name in PARTITIONS
        )

    def fault(self) -> None:
        """Make one fault, or mend something."""
        chance = self.chance
        kind = chance.choice(
            ["kill", "power", "stop", "start", "start", "hold", "hold", "cut", "mend", "mend",
             "controller", "slow"]
        )  # fmt: skip
        broker_id = chance.choice(BROKERS)
        machine = self.machines[broker_id]
        match kind:
            case "kill" | "power" if self.may_go(broker_id):
                self.note(f"{kind} {broker_id}")
                machine.kill(loses_power=kind == "power")
            case "stop" if self.may_go(broker_id):
                self.note(f"stop {broker_id}")
                machine.stop()
            case "start":
                self.note(f"start {broker_id}")
                machine.start()
            case "hold" | "cut":
                one, other = chance.choice([*combinations((*BROKERS, CONTROLLER, CLIENTS), 2)])
                if kind == "hold" and other == CONTROLLER and not self.may_go(one):
                    return
                self.note(f"{kind} {one}-{other}")
                link = self.link(one, other)
                if kind == "hold":
                    link.hold()
                else:
                    link.cut()
            case "mend":
                held = [each for each, link in self._links.items() if link.is_held]
                if held:
                    found = chance.choice(held)
                    self.note(f"mend {'-'.join(map(str, sorted(found)))}")
                    self._links[found].release()
            case "controller":
                self.note("controller restarts")
                self.controller.restart(loses_uncommitted=chance.random() < 0.5)
            case "slow":
                self.controller.commit_delay_s = chance.choice([0.0, 0.05, 1.0])
                self.note(f"controller commits after {self.controller.commit_delay_s}")

    async def heal(self) -> None:
        """Mend and start everything, and wait until all replicas are in sync."""
        self.note("heal")
        self.controller.commit_delay_s = 0.0
        for link in self._links.values():
            link.release()
        limit = self.outside.loop.time() + 300
        while not self._is_whole():
            for machine in self.machines.values():
                machine.start()
            await self.outside.pass_time(0.5)
            if self.outside.loop.time() > limit:
                states = [str(self.controller.partition(each)) for each in PARTITIONS]
                raise AssertionError(f"the cluster does not heal: {states}")

    def _is_whole(self) -> bool:
        return all(
            set(self.controller.partition(each).isr) == set(BROKERS)
            and self.controller.partition(each).leader in BROKERS
            for each in PARTITIONS
        ) and all(machine.is_serving for machine in self.machines.values())

    async def close(self) -> None:
        """Stop everything."""
        for machine in self.machines.values():
            machine.stop()
            await machine.rest()
        await self.controller.close()

    # -- claims -------------------------------------------------------------------------------

    def log(self, broker_id: int, name: TopicPartition) -> Log:
        """A replica's log."""
        broker = self.machines[broker_id].broker
        assert broker is not None
        partition = broker.replicas.get(name)
        assert partition is not None
        return partition.log

    def check_equal(self) -> None:
        """The replicas have the same bytes below the high watermark."""
        for name in PARTITIONS:
            logs = [self.log(each, name) for each in BROKERS]
            end = min(log.positions.high_watermark for log in logs)
            texts = {_bytes_below(log, end) for log in logs}
            assert len(texts) == 1, f"{name}: replicas differ below {end}"

    def values(self, name: TopicPartition) -> list[bytes]:
        """The values of a partition on its leader, in their order."""
        log = self.log(self.controller.partition(name).leader, name)
        data = memoryview(_bytes_below(log, log.end_offset))
        return [
            bytes(record.value or b"")
            for _, each in read_batches(data)
            if not each.is_control
            for record in records_of(each)
        ]


def _bytes_below(log: Log, end: int) -> bytes:
    found = bytearray()
    offset = log.start_offset
    while offset < end:
        read = log.read(
            Offset(offset), bytes_max=1 << 20, is_first_whole=True, limit=ReadLimit.LOG_END
        )
        if read.records is None:
            break
        data = bytes(read.records.read())
        for position, each in read_batches(memoryview(data)):
            if each.base_offset < end:
                found += data[position : position + each.size]
            offset = each.next_offset
    return bytes(found)


@dataclass(slots=True)
class Told:
    """The knowledge of clients."""

    acknowledged: dict[TopicPartition, list[bytes]] = field(
        default_factory=lambda: {each: [] for each in PARTITIONS}
    )
    """Values whose sends have succeeded, in their order."""
    read: dict[TopicPartition, list[tuple[int, bytes]]] = field(
        default_factory=lambda: {each: [] for each in PARTITIONS}
    )
    """Offsets and values that the reader has got."""


async def produce(cluster: SimulatedCluster, told: Told, *, until_s: float) -> None:
    """Send numbered records to every partition, and note which were acknowledged."""
    loop, number = asyncio.get_running_loop(), 0
    async with AsyncProducer(
        bootstrap_servers=cluster.bootstrap,
        runtime=cluster.client_runtime(),
        linger_ms=0,
        request_timeout_ms=2000,
        delivery_timeout_ms=600_000,
        retry_backoff_ms=50,
    ) as producer:

        async def send(name: TopicPartition, value: bytes) -> None:
            receipt = producer.send(name.topic, value, partition=name.partition)
            await receipt
            told.acknowledged[name].append(value)

        sends = []
        while loop.time() < until_s:
            for name in PARTITIONS:
                number += 1
                sends.append(asyncio.ensure_future(send(name, b"%d" % number)))
            await cluster.outside.pass_time(cluster.chance.choice([0.01, 0.05, 0.2]))
        await asyncio.gather(*sends)


async def read(cluster: SimulatedCluster, told: Told) -> None:
    """Read every partition from its beginning, until cancelled."""
    async with AsyncConsumer(
        bootstrap_servers=cluster.bootstrap,
        runtime=cluster.client_runtime(),
        auto_offset_reset="none",
        request_timeout_ms=2000,
        fetch_max_wait_ms=200,
    ) as consumer:
        consumer.assign(PARTITIONS)
        for each in PARTITIONS:
            consumer.seek(each, 0)
        while True:
            try:
                async for record in consumer:
                    name = TopicPartition(record.topic, record.partition)
                    told.read[name].append((record.offset, record.value or b""))
            except TailraceError as error:
                cluster.note(f"reader: {error}")
                return


def play(seed: int, *, seconds: float = 20.0) -> SimulatedCluster:
    """Live through the faults of a seed, and check every claim.

    Raises:
        AssertionError: a claim does not hold; the message has the story.
    """
    chance = random.Random(seed)
    with virtual_runtime(seed=seed) as outside:
        outside.network.delay_s = chance.choice([0.0, 0.001, 0.02])
        cluster = SimulatedCluster(outside, chance)
        try:
            outside.run(_live(cluster, seconds=seconds))
        except BaseException as error:
            story = "\n".join(cluster.story)
            raise AssertionError(f"seed {seed}: {error!r}\n{story}") from error
        return cluster


async def _live(cluster: SimulatedCluster, *, seconds: float) -> None:
    await cluster.start()
    told = Told()
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    producing = asyncio.ensure_future(produce(cluster, told, until_s=end_s))
    reading = asyncio.ensure_future(read(cluster, told))
    while loop.time() < end_s:
        await cluster.outside.pass_time(cluster.chance.expovariate(2.0))
        cluster.fault()
    await cluster.heal()
    async with asyncio.timeout(300):
        await producing
    await cluster.outside.pass_time(5)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    cluster.check_equal()
    for name in PARTITIONS:
        values = cluster.values(name)
        assert len(set(values)) == len(values), f"{name}: a record is there twice"
        sent = told.acknowledged[name]
        missing = set(sent) - set(values)
        assert not missing, f"{name}: {len(missing)} of {len(sent)} records are lost: {missing}"
        numbers = [int(each) for each in values]
        assert numbers == sorted(numbers), f"{name}: records are out of order"
        offsets = [offset for offset, _ in told.read[name]]
        assert offsets == sorted(set(offsets)), f"{name}: the reader went back"
        read_values = [value for _, value in told.read[name]]
        assert read_values == values[: len(read_values)], f"{name}: what was read is not there"
    await cluster.close()
