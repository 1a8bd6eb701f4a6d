"""A cluster: Kafka's controllers, and brokers of Kafka's and of ours on ports that they keep.

    with Cluster(java, class_path, directory, kafkas={2}) as cluster:   # brokers 1 to 3
        … cluster.bootstrap_servers, cluster.brokers[1].kill(), cluster.wait_until_in_sync() …

    directory/broker-N/logs, directory/controller-N/logs, and what each has printed beside them

With `has_own_controller` the only controller is one of ours, until three of Kafka's take over from
it with the settings that `tailrace handover` writes, and it from them. With `both` it is in the
process of that broker. With `has_one_controller` it is one of Kafka's, which its log names as ours
does.

Topics get three replicas unless told otherwise, two of which have to be in sync.

Not here: what is done to a cluster (`clusters`), and who works on it (`cluster_load`).
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, Self

from compat.brokers import OurBroker, OurController
from compat.kafka import CLUSTER_ID, Kafka, run_java
from compat.networks import LOOPBACK, Host, Network
from compat.processes import free_ports
from tailrace.client.admin import Admin
from tailrace.client.reader import PartitionDescription
from tailrace.errors import FatalError, TailraceError
from tailrace.model import TopicPartition

BROKERS = (1, 2, 3)
CONTROLLERS = (101, 102, 103)
PREPARED_MAX = 3
"""Most brokers that a cluster may get beside those of its beginning."""
WAIT_S_MAX = 90
"""For how long a partition may have no leader, or a broker that has come back be out of sync."""

_SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # Records of the checks have timestamps of long ago.
    "log.retention.ms": "-1",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
}


class Node(Protocol):
    """A broker, of either kind."""

    @property
    def logs(self) -> Path:
        """Its log directory."""
        ...

    @property
    def pid(self) -> int:
        """Process id, while it runs."""
        ...

    def start(self) -> None:
        """Start, and return when it serves."""
        ...

    def stop(self) -> None:
        """Stop in order; nothing if it does not run."""
        ...

    def kill(self) -> None:
        """End it at once, as a crash does; nothing if it does not run."""
        ...


class Cluster:
    """Controllers and brokers by their ids, and what clients ask of them."""

    def __init__(
        self,
        java: Path,
        class_path: str,
        directory: Path,
        *,
        kafkas: Collection[int],
        network: Network | None = None,
        has_own_controller: bool = False,
        has_one_controller: bool = False,
        both: int | None = None,
    ) -> None:
        """`kafkas` are the brokers that are Kafka's; nodes are hosts of the network.

        `both` is the broker that is the only controller too; with `has_own_controller`.
        """
        self._both = both
        self.kafkas = kafkas
        self.directory = directory
        self._java, self._class_path = java, class_path
        self._network = network
        self.hosts = {each: self._host(each) for each in (*CONTROLLERS, *BROKERS)}
        # All at once, for the machine may give the same one twice. The rest is for `prepare`.
        self._ports = iter(free_ports(len(self.hosts) + PREPARED_MAX))
        places = {each: f"{self.hosts[each].address}:{next(self._ports)}" for each in CONTROLLERS}
        self.controllers_at = ",".join(places.values())
        self._quorum = {
            "controller.quorum.voters": ",".join(f"{each}@{at}" for each, at in places.items())
        }
        if has_own_controller or has_one_controller:
            # Its log names the voters (KIP-853), and the settings only where to ask.
            self._quorum = {
                "controller.quorum.voters": "",
                "controller.quorum.bootstrap.servers": self.controllers_at,
            }
        self.places = places
        """HOST:PORT of each controller that there can be."""
        first = CONTROLLERS[0]
        self.controllers: dict[int, Node] = {}
        if has_one_controller:
            options = ("--standalone",)
            self.controllers = {first: self.kafkas_controller(first, format_options=options)}
        elif not has_own_controller:
            self.controllers = {each: self.kafkas_controller(each) for each in CONTROLLERS}
        elif both is None:
            self.controllers = {first: self.our_controller()}
        self.bootstrap_servers = ""
        """The addresses of all brokers that there were."""
        self.brokers: dict[int, Node] = {each: self._broker(each) for each in BROKERS}
        # They live as long as the brokers: the kernel kills these when the thread that has started
        # them ends (`bound_to_us`).
        self._threads = ThreadPoolExecutor(len(self.hosts))

    def __enter__(self) -> Self:
        """Start all of them at once: one controller alone is no quorum, and would wait."""
        try:
            for nodes in (self.controllers, self.brokers):
                list(self._threads.map(lambda each: each.start(), nodes.values()))
            self.wait("all brokers are there", lambda: self._broker_count() == len(BROKERS))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what still runs: in an orderly stop the last controller would wait for a quorum."""
        for each in (*self.brokers.values(), *self.controllers.values()):
            each.kill()
        self._threads.shutdown()

    def run_tool(self, name: str, *arguments: str) -> str:
        """Run one of Kafka's command-line tools and return its output.

        Raises:
            FatalError: it failed.
        """
        main_class = f"org.apache.kafka.tools.{name}"
        return run_java(self._java, self._class_path, [main_class, *arguments])

    def our_controller(self) -> OurController:
        """One of ours in the place of the first controller, on the directory that is there."""
        number = CONTROLLERS[0]
        return OurController(
            number,
            self.directory / f"controller-{number}",
            address=self.places[number],
            cluster_id=CLUSTER_ID,
            settings=_SETTINGS,
            prefix=self.hosts[number].prefix,
        )

    def kafkas_controller(
        self,
        number: int,
        *,
        settings: Mapping[str, str] = MappingProxyType({}),
        format_options: Sequence[str] = (),
    ) -> Kafka:
        """One of Kafka's in a place, with more settings."""
        address = f"CONTROLLER://{self.places[number]}"
        own = {
            "process.roles": "controller",
            "listeners": address,
            "advertised.listeners": address,
            **settings,
        }
        return self._kafka(number, own, name="controller", format_options=format_options)

    def prepare(self, number: int) -> Node:
        """Make one more broker of ours, which does not run yet."""
        self.hosts[number] = self._host(number)
        added = self.brokers[number] = self._broker(number)
        return added

    def add(self, number: int) -> Node:
        """Start one more broker of ours."""
        added = self.prepare(number)
        added.start()
        return added

    def active_controller(self) -> int:
        """The id of the controller that leads the others.

        Raises:
            TailraceError: nobody knows.
        """
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            return admin.describe_metadata_quorum().leader_id

    def partitions(
        self, topics: Iterable[str] | None = None
    ) -> dict[TopicPartition, PartitionDescription]:
        """The partitions of these topics, or of all, as a broker has them.

        Raises:
            TailraceError: the broker that is asked does not know them, or none answers.
        """
        with Admin(bootstrap_servers=self.bootstrap_servers, request_timeout_ms=5000) as admin:
            described = (
                admin.list_topics()
                if topics is None
                else admin.describe_topics([*topics]).results().values()
            )
        return {
            TopicPartition(topic.name, each.partition): each
            for topic in described
            for each in topic.partitions
        }

    def wait(self, what: str, is_true: Callable[[], bool]) -> None:
        """Return when this is true.

        Raises:
            FatalError: that takes too long.
        """
        last = ""
        deadline = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < deadline:
            try:
                if is_true():
                    return
            except TailraceError as error:
                # The broker that was asked is away, or does not know the newest image yet.
                last = f", {error}"
            time.sleep(0.3)
        raise FatalError(f"{what}: not within {WAIT_S_MAX} s{last}")

    def wait_until_in_sync(self) -> Iterator[str]:
        """Wait until each partition has all replicas in sync, and is led where it is preferred."""

        def is_whole() -> bool:
            found = self.partitions().values()
            return all({*each.isr} == {*each.replicas} for each in found)

        def is_led() -> bool:
            found = self.partitions()
            away = [name for name, each in found.items() if each.leader != each.replicas[0]]
            if away:
                with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
                    # So that each broker leads again, before the next one goes.
                    admin.elect_leaders(away)
            return not away

        try:
            self.wait("all replicas are in sync", is_whole)
            self.wait("each partition has its preferred leader", is_led)
        except FatalError as error:
            yield str(error)

    def _broker_count(self) -> int:
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            return len(admin.describe_cluster().brokers)

    def _host(self, number: int) -> Host:
        return LOOPBACK if self._network is None else self._network.join(number)

    def _broker(self, number: int) -> Node:
        place = f"{self.hosts[number].address}:{next(self._ports)}"
        self.bootstrap_servers = ",".join(filter(None, (self.bootstrap_servers, place)))
        if number in self.kafkas:
            listeners = {
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://{place}",
                "advertised.listeners": f"PLAINTEXT://{place}",
            }
            return self._kafka(number, listeners, name="broker")
        directory = self.directory / f"broker-{number}"
        if number == self._both:
            address = self.places[CONTROLLERS[0]]
            roles = {
                "process.roles": "broker,controller",
                "listeners": f"PLAINTEXT://{place},CONTROLLER://{address}",
            }
            return OurController(
                number,
                directory,
                address=address,
                cluster_id=CLUSTER_ID,
                settings=_SETTINGS | roles,
            )
        return OurBroker(
            number,
            directory,
            address=place,
            controllers=self.controllers_at,
            settings=_SETTINGS,
            prefix=self.hosts[number].prefix,
        )

    def _kafka(
        self,
        number: int,
        settings: Mapping[str, str],
        *,
        name: str,
        format_options: Sequence[str] = (),
    ) -> Kafka:
        return Kafka(
            self._java,
            self._class_path,
            self.directory / f"{name}-{number}",
            settings={
                **_SETTINGS,
                **self._quorum,
                **settings,
                "node.id": str(number),
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            },
            format_options=format_options,
            prefix=self.hosts[number].prefix,
        )


def pause(node: Node) -> None:
    """Have a node do nothing, with its connections open."""
    os.kill(node.pid, signal.SIGSTOP)


def go_on(node: Node) -> None:
    """Have a paused node go on."""
    os.kill(node.pid, signal.SIGCONT)
