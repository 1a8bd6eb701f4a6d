"""`SimulatedCluster`: brokers and their controller in virtual time, with faults, for tests.

    async def story(cluster):
        await cluster.create_topic("orders")
        async with cluster.producer() as producer:
            await producer.send("orders", b"one")
            cluster.power_off(1)
            await producer.send("orders", b"two")
        await cluster.heal()

    SimulatedCluster(seed=7).run(story)

    broker 1 ─┐                   kill, loss of power, orderly stop; full and slow disk; clock set
    broker 2 ─┼─ controller       the same, and a crash at any change of its disk
    broker 3 ─┘                   links held (both ways or one), cut, slow
    clients

The controller may also be in the process of a broker (`controller_id`): they come and go together.

They are the product's brokers, controller and clients, on a disk, a network and a clock in memory.
Everything runs on one loop, whose time jumps to the next timer: a minute takes milliseconds, and a
seed gives the same run each time. docs/testing.md explains it.

`cause_faults` (`random_faults`) makes faults by the seed. All machines share the true time.
"""

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tailrace.broker.broker import RunningBroker
from tailrace.broker.config import BrokerConfig
from tailrace.broker.controller.start import RunningController, start_controller
from tailrace.broker.start import start_broker
from tailrace.client.admin.aio import AsyncAdmin
from tailrace.client.admin.topics import NewTopic
from tailrace.client.consumer.aio import AsyncConsumer
from tailrace.client.producer.aio import AsyncProducer
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.config import settings_texts
from tailrace.model import Offset, TopicPartition
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.records.batch import read_batches
from tailrace.records.builder import records_of
from tailrace.replication.partition import Partition
from tailrace.runtime.slices import measured_by
from tailrace.runtime.system import Runtime
from tailrace.storage.log import Log
from tailrace.storage.positions import ReadLimit
from tailrace.testing.machines import (
    CLIENTS,
    CONTROLLER,
    FIRST_PORT,
    Link,
    Machine,
    N,
    NodeNetwork,
)
from tailrace.testing.outside import InlineThreads, Outside, virtual_runtime
from tailrace.testing.peer import Peer

if TYPE_CHECKING:
    from tailrace.broker.controller.node import ControllerNode

T = TypeVar("T")

SESSION_MS: Final = 3000
HEAL_S: Final = 300
"""Virtual time in which a cluster without faults is whole again."""
DEFAULTS: Final = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "200",
    # Also the time for its answer, with a new connection: not to be below the delays.
    "broker.heartbeat.interval.ms": "800",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "100",
}
"""Settings of the brokers that differ from their defaults: short times, few partitions."""


class SimulatedCluster:
    """The machines, the clients, and the links between them."""

    CONTROLLER: Final = CONTROLLER
    """The controller among the nodes; brokers have the numbers from 1 on."""
    CLIENTS: Final = CLIENTS
    """All clients together, as one end of links."""

    outside: Outside
    """The doubles; from the begin of `run` on, as all that follows."""
    machines: dict[int, Machine[RunningBroker]]
    """The brokers' machines by id."""

    def __init__(
        self,
        seed: int = 0,
        *,
        brokers: int = 3,
        controller_id: int = CONTROLLER,
        settings: Mapping[str, object] | None = None,
        controller_settings: Mapping[str, object] | None = None,
    ) -> None:
        """The settings are Kafka's, beside `DEFAULTS`; they have texts or numbers.

        `controller_id` may be that of a broker, which is a node of both roles then.
        """
        if not 0 < brokers < CONTROLLER:
            raise ValueError(f"brokers={brokers}: 1 to {CONTROLLER - 1} are possible")
        if not (0 < controller_id <= brokers or controller_id == CONTROLLER):
            raise ValueError(f"controller_id={controller_id} is no broker and not {CONTROLLER}")
        self.seed = seed
        self.controller_id = controller_id
        """The node that has the controller."""
        self.brokers = tuple(range(1, brokers + 1))
        """The ids of the brokers."""
        self.chance = random.Random(seed)
        """The choices of the seed, also for those of the program under test."""
        self.story: list[str] = []
        """The faults and notes so far, with their times."""
        self.machines = {}
        self.controller_machine: Machine[RunningController] | None = None
        """The machine of a controller that is a node of its own."""
        replicas = str(min(brokers, 3))
        self.settings: dict[str, str] = {
            **DEFAULTS,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(brokers, 2)),
            **settings_texts(settings or {}),
        }
        self._controller_settings = settings_texts(controller_settings or {})
        self._replicas = replicas
        nodes = sorted({*self.brokers, controller_id, CLIENTS})
        self._links = {pair: Link(*pair) for pair in combinations(nodes, 2)}
        self._node: ControllerNode | None = None
        """The last controller that has started, dead or alive."""

    # -- life ---------------------------------------------------------------------------------

    def run(self, story: "Callable[[SimulatedCluster], Awaitable[T]]") -> T:
        """Start everything, run the story in virtual time, and stop everything; its result.

        An error of the story gets a note with the seed and all that has happened.

        Raises:
            RuntimeError: it has run a story already, and its machines are of that time.
        """
        if self.machines:
            raise RuntimeError(
                "a SimulatedCluster runs one story; make another one, with the same seed or not"
            )
        with (
            virtual_runtime(seed=self.seed) as outside,
            measured_by(outside.loop.time),
            _no_collections(),
        ):
            self.outside = outside
            try:
                return outside.run(self._live(story))
            except BaseException as error:
                _end_all(outside.loop)
                lines = "\n".join(self.story)
                error.add_note(f"{type(self).__name__}(seed={self.seed}):\n{lines}")
                raise

    async def _live(self, story: "Callable[[SimulatedCluster], Awaitable[T]]") -> T:
        await self.start_all()
        result = await story(self)
        await self.close()
        return result

    async def start_all(self) -> None:
        """Start the controller and the brokers, and wait until all are in the cluster."""
        await self._start_controller()
        for each in self.brokers:
            if each not in self.machines:
                self.machines[each] = self._broker_machine(each)
            self.machines[each].start()
        async with asyncio.timeout(HEAL_S):
            await self._wait_for_brokers()

    def _broker_machine(self, broker_id: int, *, port: int | None = None) -> Machine[RunningBroker]:
        listener = f"memory:{FIRST_PORT + broker_id if port is None else port}"
        settings = {
            "process.roles": "broker",
            "node.id": str(broker_id),
            "log.dirs": "data",
            "listeners": listener,
            "controller.listener.names": "CONTROLLER",
            **self.settings,
        }
        if broker_id == self.controller_id:
            settings |= self._settings_of_controller() | {
                "process.roles": "broker,controller",
                "listeners": f"PLAINTEXT://{listener},CONTROLLER://{self.controller_bootstrap}",
            }
        else:
            settings["controller.quorum.bootstrap.servers"] = self.controller_bootstrap
        return self._machine(settings, self._start_broker, network=self.network(broker_id))

    async def _start_broker(self, config: BrokerConfig, runtime: Runtime) -> RunningBroker:
        running = await start_broker(config, runtime)
        self._node = running.controller_node or self._node
        return running

    async def _start_controller(self) -> None:
        if self.controller_id != CONTROLLER:
            machine = self.machines[self.controller_id] = self._broker_machine(self.controller_id)
            machine.start()
            await machine.rest()
            return

        async def start(config: BrokerConfig, runtime: Runtime) -> RunningController:
            running = await start_controller(config, runtime)
            self._node = running.node
            return running

        settings = {
            "process.roles": "controller",
            "node.id": str(CONTROLLER),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{self.controller_bootstrap}",
            "log.dirs": "data",
            **self._settings_of_controller(),
        }
        self.controller_machine = self._machine(settings, start, network=self.network(CONTROLLER))
        self.controller_machine.start()
        await self.controller_machine.rest()

    def _settings_of_controller(self) -> dict[str, str]:
        return {
            "broker.session.timeout.ms": str(SESSION_MS),
            "default.replication.factor": self._replicas,
            **self._controller_settings,
        }

    def _machine(
        self,
        settings: Mapping[str, str],
        start: Callable[[BrokerConfig, Runtime], Awaitable[N]],
        *,
        network: NodeNetwork,
    ) -> Machine[N]:
        return Machine(
            settings,
            start,
            clock=self.outside.clock,
            network=network,
            chance=self.chance,
            note=self.note,
        )

    @property
    def controller_bootstrap(self) -> str:
        """The value for `controller.quorum.bootstrap.servers`."""
        return f"memory:{FIRST_PORT + CONTROLLER}"

    async def _wait_for_brokers(self) -> None:
        while sum(not each.fenced for each in self.image.brokers.values()) < len(self.brokers):
            await self.pass_time(0.01)

    async def close(self) -> None:
        """Stop everything, and the controller last, of which the brokers take their leave."""
        for machine in self._all_machines():
            await machine.rest()
            machine.stop()
            await machine.rest()

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass, and all happen that is due until then; as `asyncio.sleep`."""
        await self.outside.pass_time(seconds)

    def note(self, what: str) -> None:
        """Add to the story."""
        self.story.append(f"{self.outside.loop.time():.3f} {what}")

    # -- clients ------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The value for `bootstrap.servers`."""
        return ",".join(f"memory:{FIRST_PORT + each}" for each in self.brokers)

    def client_runtime(self) -> Runtime:
        """The seams of a new process with clients, for their argument `runtime`."""
        return Runtime(
            clock=self.outside.clock,
            files=self.outside.files,
            network=self.network(CLIENTS),
            threads=InlineThreads(),
            chance=random.Random(self.chance.getrandbits(64)),
        )

    def producer(self, runtime: Runtime | None = None, **settings: Any) -> AsyncProducer:  # noqa: ANN401 - of any type
        """A producer, by default in a process of its own."""
        return AsyncProducer(
            bootstrap_servers=self.bootstrap_servers,
            runtime=runtime or self.client_runtime(),
            **settings,
        )

    def consumer(self, runtime: Runtime | None = None, **settings: Any) -> AsyncConsumer:  # noqa: ANN401 - of any type
        """A consumer, likewise."""
        return AsyncConsumer(
            bootstrap_servers=self.bootstrap_servers,
            runtime=runtime or self.client_runtime(),
            **settings,
        )

    def admin(self, runtime: Runtime | None = None, **settings: Any) -> AsyncAdmin:  # noqa: ANN401 - of any type
        """An admin client, likewise."""
        return AsyncAdmin(
            bootstrap_servers=self.bootstrap_servers,
            runtime=runtime or self.client_runtime(),
            **settings,
        )

    @staticmethod
    def kill_client(runtime: Runtime) -> None:
        """End the process that has this runtime: nothing comes from it or to it any more."""
        assert isinstance(runtime.network, NodeNetwork)
        runtime.network.go()

    def connect(self, node_id: int) -> Peer:
        """A new connection to a broker or to the controller, for raw requests.

        Raises:
            ConnectionRefusedError: it is down.
        """
        socket = self.outside.network.open(FIRST_PORT + node_id)
        self.link(node_id, CLIENTS).add(CLIENTS, socket)
        return Peer(socket)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        replicas: Sequence[Sequence[int]] = (),
        configs: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic, by default on three brokers; `replicas` are those of each partition."""
        topic = NewTopic(
            name,
            -1 if replicas else partitions,
            replication_factor,
            configs,
            dict(enumerate(replicas)) or None,
        )
        async with self.admin() as admin:
            (await admin.create_topics([topic])).results()

    # -- look ---------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """The state of the cluster that is on the controller's device."""
        assert self._node is not None, "the controller has never started"
        return self._node.image

    @property
    def controller_node(self) -> "ControllerNode | None":
        """The controller, if it runs."""
        is_running = self._node is not None and self.machine(CONTROLLER).running is not None
        return self._node if is_running else None

    def partitions(self) -> Sequence[TopicPartition]:
        """All partitions of all topics."""
        return [
            TopicPartition(topic.name, number)
            for topic in self.image.topics.values()
            for number in topic.partitions
        ]

    def state(self, name: TopicPartition) -> PartitionRecord:
        """Leader, replicas and ISR of a partition, as they are on the controller's device."""
        return _partition(self.image, name)

    def isr(self, name: TopicPartition) -> frozenset[int]:
        """The replicas of which it is sure that they have what was acknowledged."""
        assert self._node is not None, "the controller has never started"
        found = frozenset(self.state(name).isr)
        # A decision that no device has yet may be gone after a crash, or be there.
        return found & frozenset(_partition(self._node.decided, name).isr)

    def partition(self, broker_id: int, name: TopicPartition) -> Partition | None:
        """A replica, if its broker runs and has it."""
        broker = self.machines[broker_id].running
        return None if broker is None else broker.replicas.get(name)

    def log(self, broker_id: int, name: TopicPartition) -> Log:
        """A replica's log."""
        found = self.partition(broker_id, name)
        assert found is not None, f"{name}: broker {broker_id} has no replica"
        return found.log

    def values(
        self, topic: str, partition: int = 0, *, broker_id: int | None = None
    ) -> list[bytes]:
        """The values of a partition's log on a broker, by default on the leader."""
        name = TopicPartition(topic, partition)
        log = self.log(self.state(name).leader if broker_id is None else broker_id, name)
        return [
            bytes(record.value or b"")
            for _, batch in read_batches(memoryview(bytes_of(log)))
            if not batch.is_control
            for record in records_of(batch)
        ]

    # -- faults -------------------------------------------------------------------------------

    def machine(self, node_id: int) -> Machine[RunningBroker] | Machine[RunningController]:
        """The machine of a broker or of the controller, which may be the same."""
        node_id = self._node_of(node_id)
        if node_id != CONTROLLER:
            return self.machines[node_id]
        assert self.controller_machine is not None, "the controller is none of ours"
        return self.controller_machine

    def start(self, node_id: int) -> None:
        """Begin to start a broker or the controller, if it is down."""
        self.note(f"start {node_id}")
        self.machine(node_id).start()

    def stop(self, node_id: int) -> None:
        """Begin to stop it in order."""
        self.note(f"stop {node_id}")
        self.machine(node_id).stop()

    def kill(self, node_id: int) -> None:
        """End its process; what it has written stays."""
        self.note(f"kill {node_id}")
        self.machine(node_id).kill(loses_power=False)

    def power_off(self, node_id: int) -> None:
        """End its process, and lose what was not synced to its device, or a part of it."""
        self.note(f"power {node_id}")
        self.machine(node_id).kill(loses_power=True)

    def crash_at_change(self, number: int, *, loses_power: bool = False) -> None:
        """Kill the controller in a change of its disk, counted from now on; 0: the next one."""
        self.note(f"crash at change {number} of the controller's disk")
        self.machine(CONTROLLER).crash_at_change(number, loses_power=loses_power)

    def fill_disk(self, node_id: int) -> None:
        """Let its disk take no more bytes."""
        self.note(f"full {node_id}")
        self.machine(node_id).fill()

    def make_room(self, node_id: int) -> None:
        """Let its disk take bytes again."""
        self.note(f"make room for {node_id}")
        self.machine(node_id).make_room()

    def slow_disk(self, node_id: int, seconds: float) -> None:
        """Let each use of its disk take so long."""
        self.note(f"a disk that takes {seconds} s for {node_id}")
        self.machine(node_id).threads.seconds_per_run = seconds

    def set_clock(self, node_id: int, ahead_ms: int) -> None:
        """Set its time of day, so far ahead of the true one."""
        self.note(f"the clock {ahead_ms} ms ahead for {node_id}")
        self.machine(node_id).clock.ahead_ms = ahead_ms

    def link(self, one: int, other: int) -> Link:
        """The connections between two nodes."""
        one, other = sorted((self._node_of(one), self._node_of(other)))
        return self._links[one, other]

    @property
    def links(self) -> Mapping[tuple[int, int], Link]:
        """The connections between all pairs of nodes."""
        return self._links

    def cut(self, one: int, other: int) -> None:
        """Break all connections of two nodes; both notice, and may connect again."""
        self.note(f"cut {one}-{other}")
        self.link(one, other).cut()

    def hold(self, one: int, other: int, *, sender: int | None = None) -> None:
        """Let nothing through between two nodes, or nothing that one sends; nobody notices."""
        self.note(f"hold {one}-{other}" + ("" if sender is None else f", from {sender}"))
        self.link(one, other).hold(None if sender is None else [sender])

    def release(self, one: int, other: int) -> None:
        """Let through what was held, and all that comes."""
        self.note(f"mend {one}-{other}")
        self.link(one, other).release()

    def delay(self, seconds: float) -> None:
        """Let all bytes take so long."""
        self.note(f"all bytes take {seconds} s")
        self.outside.network.delay_s = seconds

    async def cause_faults(self, seconds: float, *, kinds: Iterable[str] = ()) -> None:
        """Make faults by the seed, two a second, and heal the cluster; by default of all kinds.

        An acknowledged record is lost by none of them: see `RandomFaults`, which has the kinds.
        """
        from tailrace.testing.random_faults import FAULTS, RandomFaults

        faults = RandomFaults(self, tuple(kinds) or FAULTS)
        await faults.go_on(seconds)
        await self.heal()

    # -- health -------------------------------------------------------------------------------

    async def heal(self) -> None:
        """Mend and start everything, and wait until all replicas are in sync.

        Raises:
            AssertionError: they are not after five minutes.
        """
        self.note("heal")
        self._mend()
        await self._until(self._is_in_sync, "the cluster does not heal")

    def _mend(self) -> None:
        self.outside.network.delay_s = 0.0
        for link in self._links.values():
            link.release()
        for machine in self._all_machines():
            machine.make_room()
            machine.crash_no_more()
            machine.threads.seconds_per_run = 0.0

    def _all_machines(self) -> "list[Machine[RunningBroker] | Machine[RunningController]]":
        own = self.controller_machine
        brokers = sorted(self.machines, key=lambda each: each == self.controller_id)
        return [*(self.machines[each] for each in brokers), *([] if own is None else [own])]

    def _node_of(self, node_id: int) -> int:
        return self.controller_id if node_id == CONTROLLER else node_id

    async def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        limit = self.outside.loop.time() + HEAL_S
        while not holds():
            for machine in self._all_machines():
                machine.start()
            await self.pass_time(0.5)
            if self.outside.loop.time() > limit:
                states = [str(self.state(each)) for each in self.partitions()]
                raise AssertionError(f"{otherwise}: {states}")

    def _is_in_sync(self) -> bool:
        states = [self.state(each) for each in self.partitions()]
        return all(
            set(each.isr) == set(each.replicas) and each.leader in self.brokers for each in states
        ) and all(machine.is_serving for machine in self._all_machines())

    # -- seams --------------------------------------------------------------------------------

    def network(self, node_id: int) -> NodeNetwork:
        """The network of a process."""
        return NodeNetwork(
            self.outside.network,
            node_id,
            controller_id=self.controller_id,
            link=self.link,
            delay=self.delay_of_connection,
        )

    def delay_of_connection(self) -> float:
        """The time by which a new connection is slower than others."""
        return 0.0


def bytes_of(log: Log) -> bytes:
    """All batches of a log."""
    found = bytearray()
    offset = log.start_offset
    while offset < log.end_offset:
        part = log.read(
            Offset(offset), bytes_max=1 << 20, is_first_whole=True, limit=ReadLimit.LOG_END
        )
        if part.records is None:
            break
        data = bytes(part.records.read())
        found += data
        for _, each in read_batches(memoryview(data)):
            offset = each.next_offset
    return bytes(found)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Search for no garbage meanwhile.

    A search ends what killed nodes have left, which cancels timers. When there is one depends on
    all that the process has done before.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _partition(image: MetadataImage, name: TopicPartition) -> PartitionRecord:
    topic = image.topic(name.topic)
    assert topic is not None, f"there is no topic {name.topic}"
    return topic.partitions[name.partition]


def _end_all(loop: asyncio.AbstractEventLoop) -> None:
    """End the tasks of a life that failed, of which the next test would get warnings."""
    tasks = asyncio.all_tasks(loop)
    for each in tasks:
        each.cancel()
    # What cannot end any more says so by this error, and the life has failed anyway.
    with suppress(RuntimeError):
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
