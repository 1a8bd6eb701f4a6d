"""The nodes of a `TestCluster`: a controller and brokers on one event loop, each on its sockets.

    start --> stop     in order; others lead its partitions before
         '--> kill     as with kill -9; fenced at once, unless the test wants to wait for that
         '--> cut_off  it runs on, and reaches nobody and is reached by nobody

Each node has its own directory, its own worker threads and its own network seam; they share the
loop and the clock. The port of a node that is down is kept, as that of a `TestBroker`.
"""

import asyncio
import time
from collections.abc import Callable, Container, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

from tailrace.broker.broker import RunningBroker
from tailrace.broker.config import BrokerConfig, broker_config
from tailrace.broker.controller.start import RunningController, start_controller
from tailrace.broker.kraft.settings import KRAFT_SETTINGS
from tailrace.broker.start import start_broker
from tailrace.cluster.control.settings import CONTROL_SETTINGS
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.model import TopicPartition
from tailrace.protocol.fields import Message
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.replication.partition import Partition
from tailrace.runtime.loop_thread import LoopThread
from tailrace.runtime.system import Runtime, system_runtime
from tailrace.server.dispatch import Dispatch
from tailrace.testing.broker_clock import BrokerClock, BrokerLoop
from tailrace.testing.broker_process import HOST, KeptPort, M, ask
from tailrace.testing.cut_network import CutNetwork
from tailrace.testing.request_faults import RequestFaults
from tailrace.testing.topic_log import partition_directories

CONTROLLER_ID: Final = 100
"""Node id of the controller; those of the brokers begin with 1."""
_LOOK_S: Final = 0.001
"""Pause between two looks at a state that is waited for; on the loop that brings it about."""
_IN_FLIGHT_S: Final = 0.005
"""Time in which the loop reads what a node had sent before it was killed."""

_OF_CONTROLLERS: Final = {each.name for each in CONTROL_SETTINGS} - {
    each.name for each in KRAFT_SETTINGS
}
_OF_BROKERS: Final = {each.name for each in KRAFT_SETTINGS} - {
    each.name for each in CONTROL_SETTINGS
}

T = TypeVar("T")


class BrokerNode:
    """One broker of a cluster, running or not; a `LogSource` of what it has."""

    def __init__(self, cluster: "ClusterProcess", broker_id: int, around: RequestFaults) -> None:
        """`around` are the faults of all brokers."""
        self.id = broker_id
        self.faults = RequestFaults()
        """The faults of this broker alone."""
        self.port = KeptPort()
        self.network: CutNetwork | None = None
        """The network of the running broker."""
        self._cluster = cluster
        self._around = around
        self._running: RunningBroker | None = None
        self._dispatch: Dispatch | None = None

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def running(self) -> RunningBroker:
        """The running broker.

        Raises:
            RuntimeError: it is not running.
        """
        if self._running is None:
            raise RuntimeError(f"broker {self.id} is not running; start it")
        return self._running

    @property
    def is_reached(self) -> bool:
        """Whether it runs, and is not cut off."""
        return self._running is not None and self.network is not None and not self.network.is_cut

    @property
    def directory(self) -> str:
        return self._cluster.directory_of(str(self.id))

    async def start(self) -> None:
        """Start on the port and the directory of the last start.

        Raises:
            DirectoryError, ListenError, RegistrationError: as `start_broker`.
        """
        self.port.lend()
        runtime, self.network = self._cluster.new_runtime()
        config = self._cluster.broker_settings(self.id, port=self.port.number)
        self._running = await start_broker(config, runtime, wrap_dispatch=self._between)

    async def stop(self) -> None:
        """Stop in order; nothing happens if it is not running."""
        running, self._running = self._running, None
        if running is not None:
            try:
                await running.stop()
            finally:
                self.port.keep()

    def kill(self) -> None:
        """End as a killed process does; nothing happens if it is not running."""
        running, self._running = self._running, None
        if running is not None:
            running.kill()
            self.port.keep()

    async def ask(self, request: Message, response: type[M], *, version: int | None = None) -> M:
        """The answer to a request that meets no fault; see `BrokerProcess.ask`."""
        _ = self.running
        assert self._dispatch is not None
        return await ask(self._dispatch, request, response, version=version)

    # As a `LogSource`.

    def directories_of(self, topic: str, partition: int | None) -> dict[int, str]:
        if self.is_running:
            self.run(self.running.replicas.new_logs.wait_for_all())
        return partition_directories(self.directory, topic, partition)

    def replica(self, partition: TopicPartition) -> Partition | None:
        return self.running.replicas.get(partition)

    def on_loop(self, function: Callable[[], T]) -> T:
        _ = self.running
        return self._cluster.on_loop(function)

    def run(self, main: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
        return self._cluster.run(main, timeout_s=timeout_s)

    def _between(self, dispatch: Dispatch) -> Dispatch:
        self._dispatch = dispatch
        return self.faults.around(self._around.around(dispatch))


class LeadersLogs:
    """A `LogSource` of what the leaders of a cluster have."""

    def __init__(self, cluster: "ClusterProcess") -> None:
        self._cluster = cluster

    @property
    def is_running(self) -> bool:
        return self._cluster.is_open

    def directories_of(self, topic: str, partition: int | None) -> dict[int, str]:
        def leaders() -> dict[int, int]:
            found = self._cluster.image.topic(topic)
            partitions = {} if found is None else found.partitions
            wanted = partitions if partition is None else partitions.keys() & {partition}
            # Without a leader those that were in sync last have all that was acknowledged.
            return {
                each: state.leader if state.leader >= 0 else (*state.isr, *state.replicas)[0]
                for each in sorted(wanted)
                for state in (partitions[each],)
            }

        brokers = self._cluster.brokers
        found = self._cluster.on_loop(leaders)
        for each in set(found.values()):
            if brokers[each].is_running:
                self.run(brokers[each].running.replicas.new_logs.wait_for_all())
        # The files of any broker say that there is none.
        missing = {} if found else {partition or 0: brokers[1].directory}
        return {each: brokers[leader].directory for each, leader in found.items()} | missing

    def replica(self, partition: TopicPartition) -> Partition | None:
        leader = self._cluster.brokers.get(self._cluster.partition(partition).leader)
        return leader.replica(partition) if leader is not None and leader.is_running else None

    def on_loop(self, function: Callable[[], T]) -> T:
        return self._cluster.on_loop(function)

    def run(self, main: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
        return self._cluster.run(main, timeout_s=timeout_s)


class ClusterProcess:
    """A controller and its brokers; all methods that are no coroutines are for any thread."""

    def __init__(
        self,
        data: str | None,
        settings: Mapping[str, str],
        *,
        of_brokers: Mapping[int, Mapping[str, str]],
        broker_count: int,
        clock: BrokerClock,
        faults: RequestFaults,
        listener: str = "PLAINTEXT",
    ) -> None:
        """Without `data` the directory is a temporary one, from `open` until `close`.

        `listener` is the name of the brokers' listener, and its security protocol.

        Raises:
            ConfigError: settings that do not exist or are out of range, all of them.
            ValueError: `of_brokers` names another broker.
        """
        self._settings = settings
        self._listener = listener
        self._of_brokers = of_brokers
        self._data = data
        self._clock = clock
        self._temporary: TemporaryDirectory[str] | None = None
        self._thread: LoopThread | None = None
        self._controller: RunningController | None = None
        self._controller_port = KeptPort()
        self._last_image = MetadataImage()
        self.brokers = {each: BrokerNode(self, each, faults) for each in range(1, broker_count + 1)}
        """By their ids."""
        for each in of_brokers:
            self.broker(each)
        # Here and not at the start, where each broker would tell the same mistake.
        for each in self.brokers:
            self._broker_settings(each, directory="a directory", controller=f"{HOST}:1", port=0)

    # -- life ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Start the controller and then all brokers at once.

        Raises:
            RuntimeError: it is open.
            DirectoryError: the directory cannot be used.
        """
        if self._thread is not None:
            raise RuntimeError("the cluster is running already")
        if self._data is None:
            self._temporary = TemporaryDirectory(prefix="tailrace-cluster-")
        self._thread = LoopThread(BrokerLoop(self._clock), name="tailrace-cluster")
        self._thread.start()

        async def start() -> None:
            await self.start_controller()
            # In a directory that was used before: no broker is alive, and each would have to wait
            # for the end of its last session.
            for each in self.brokers:
                self.controller.node.end_session(each)
            async with asyncio.TaskGroup() as starting:
                for node in self.brokers.values():
                    starting.create_task(node.start())
            await self.until(lambda: all(map(self.is_in_service, self.brokers)), "all brokers")

        try:
            self.run(start())
        except BaseException as error:
            self.close()
            # One error says what is wrong; a group has the same one of each broker.
            if isinstance(error, BaseExceptionGroup):
                raise error.exceptions[0] from None
            raise

    def close(self) -> None:
        """Kill all nodes, give up the ports, and remove the directory if it is temporary."""

        def kill_all() -> None:
            for each in self.brokers.values():
                each.kill()
            self.kill_controller()

        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close(kill_all)
        for port in (self._controller_port, *(each.port for each in self.brokers.values())):
            port.give_back()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.cleanup()

    def run(self, main: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop.

        Raises:
            RuntimeError: the cluster is not running.
        """
        try:
            return self._loop_thread.run(main, timeout_s=timeout_s)
        except RuntimeError:
            main.close()
            raise

    def on_loop(self, function: Callable[[], T]) -> T:
        """Call a function on the loop; as `run`."""
        return self._loop_thread.call(function)

    @property
    def _loop_thread(self) -> LoopThread:
        if self._thread is None:
            raise RuntimeError("the cluster is not running; use it in a with block")
        return self._thread

    @property
    def is_open(self) -> bool:
        """Whether its loop runs, and can be asked."""
        return self._thread is not None

    def broker(self, broker_id: int) -> BrokerNode:
        """The broker of an id.

        Raises:
            ValueError: there is none.
        """
        if broker_id not in self.brokers:
            raise ValueError(f"there is no broker {broker_id!r}; the ids are {list(self.brokers)}")
        return self.brokers[broker_id]

    # -- the controller -----------------------------------------------------------------------

    @property
    def controller(self) -> RunningController:
        """The running controller.

        Raises:
            RuntimeError: it is not running.
        """
        if self._controller is None:
            raise RuntimeError("the controller is not running; start it")
        return self._controller

    @property
    def has_controller(self) -> bool:
        """Whether the controller runs."""
        return self._controller is not None

    @property
    def image(self) -> MetadataImage:
        """The state that is on the controller's device, or was when it ended; on the loop."""
        return self._last_image if self._controller is None else self._controller.node.image

    async def start_controller(self) -> None:
        """Start it, on the port and the directory of the last start."""
        if self._controller is not None:
            raise RuntimeError("the controller is running already")
        self._controller_port.lend()
        runtime, _ = self.new_runtime()
        config = self._controller_settings(port=self._controller_port.number)
        self._controller = await start_controller(config, runtime)

    def kill_controller(self) -> None:
        """End it as a killed process does; on the loop."""
        running, self._controller = self._controller, None
        if running is not None:
            self._last_image = running.node.image
            running.kill()
            self._controller_port.keep()

    async def end_session(self, broker_id: int) -> None:
        """Have a broker fenced that is killed or cut off, without the wait for its session."""
        if self._controller is None:
            return
        # A heartbeat that it had sent before would begin another session.
        await asyncio.sleep(_IN_FLIGHT_S)
        self.controller.node.end_session(broker_id)
        await self.until(
            lambda: self.image.brokers[broker_id].fenced and self.is_settled(),
            f"the fencing of broker {broker_id}",
        )

    # -- what is known ------------------------------------------------------------------------

    def partition(self, name: TopicPartition) -> PartitionRecord:
        """The state of a partition; on the loop.

        Raises:
            LookupError: there is no such topic or partition.
        """
        topic = self.image.topic(name.topic)
        if topic is None:
            raise LookupError(f"there is no topic {name.topic!r}")
        if name.partition not in topic.partitions:
            raise LookupError(f"{name.topic!r} has no partition {name.partition}")
        return topic.partitions[name.partition]

    def is_settled(self) -> bool:
        """Whether each broker that is reached has applied all that is decided; on the loop."""
        newest = self.controller.node.watermark - 1
        reached = (each for each in self.brokers.values() if each.is_reached)
        return all(each.running.cluster.features_epoch >= newest for each in reached)

    def is_in_service(self, broker_id: int) -> bool:
        """Whether a broker is registered, unfenced, and known to all; on the loop."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and self.is_settled()

    async def until(
        self, holds: Callable[[], bool], what: str | Callable[[], str], *, timeout_s: float = 30.0
    ) -> None:
        """Wait until something holds.

        Raises:
            TimeoutError: it does not after `timeout_s` seconds of real time.
        """
        # Not the loop's time, which a test moves.
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                text = what if isinstance(what, str) else what()
                raise TimeoutError(f"waited for {text} for {timeout_s:g} s")
            await asyncio.sleep(_LOOK_S)

    # -- settings -----------------------------------------------------------------------------

    def directory_of(self, name: str) -> str:
        """The directory of a node.

        Raises:
            RuntimeError: it is temporary, and the cluster is not running.
        """
        if self._data is None and self._temporary is None:
            raise RuntimeError("a cluster has its temporary directory from its start to its close")
        root = self._data if self._temporary is None else self._temporary.name
        assert root is not None
        return str(Path(root) / name)

    def new_runtime(self) -> tuple[Runtime, CutNetwork]:
        """The seams of a node that starts, and its network."""
        runtime = replace(system_runtime(is_synced=False), clock=self._clock)
        network = CutNetwork(runtime.network)
        return replace(runtime, network=network), network

    def broker_settings(self, broker_id: int, *, port: int) -> BrokerConfig:
        """The settings of a broker; port 0 takes any free one."""
        return self._broker_settings(
            broker_id,
            directory=self.directory_of(str(broker_id)),
            controller=self._controller_port.address,
            port=port,
        )

    def _broker_settings(
        self, broker_id: int, *, directory: str, controller: str, port: int
    ) -> BrokerConfig:
        return broker_config(
            {
                **_without(self._settings, _OF_CONTROLLERS),
                **self._of_brokers.get(broker_id, {}),
                "process.roles": "broker",
                "node.id": str(broker_id),
                "controller.quorum.bootstrap.servers": controller,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"{self._listener}://{HOST}:{port}",
                "inter.broker.listener.name": self._listener,
                "log.dirs": directory,
            }
        )

    def _controller_settings(self, *, port: int) -> BrokerConfig:
        return broker_config(
            {
                **_without(self._settings, _OF_BROKERS),
                "process.roles": "controller",
                "node.id": str(CONTROLLER_ID),
                "controller.listener.names": "CONTROLLER",
                "listeners": f"CONTROLLER://{HOST}:{port}",
                "log.dirs": self.directory_of("controller"),
            }
        )


def _without(settings: Mapping[str, str], names: Container[str]) -> dict[str, str]:
    """The settings that a node would not warn about because they are for the others."""
    return {name: value for name, value in settings.items() if name not in names}
