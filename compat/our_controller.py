"""Real Kafka brokers whose controller is ours: three processes, and `ScriptedController`.

The brokers register, are unfenced, follow the metadata log and ask for all that brokers ask for.
Records are produced while a broker is killed, a partition moves to other brokers, and the
controller begins another epoch; all of them must be there.

The controller runs on a loop of its own thread, and on the machine's sockets.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, cast

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from compat.clients import read_partitions
from compat.kafka import CLUSTER_ID, Kafka
from compat.processes import free_ports
from compat.report import Report
from tailrace.client.producer.producer import Producer
from tailrace.cluster.control.leaders import PREFERRED
from tailrace.cluster.control.settings import ControlConfig
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.records import UNASSIGNED
from tailrace.errors import FatalError, TailraceError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.elect_leaders import ElectLeadersRequest
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.runtime.clock import Clock
from tailrace.runtime.system import Runtime, system_runtime
from tailrace.testing.controller import ScriptedController
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.testing.outside import Outside

BROKERS: Final = (1, 2, 3)
PARTITIONS: Final = 6
TOPIC: Final = "moved"
PART: Final = 500
"""Records that are sent between two events."""
SECONDS_MAX: Final = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """The machine's loop and sockets, in place of doubles."""

    loop: asyncio.AbstractEventLoop
    runtime: Runtime
    clock: Clock


class _Controller:
    """A controller on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        runtime = system_runtime()
        machine = _Machine(loop=self._loop, runtime=runtime, clock=runtime.clock)
        self.scripted = ScriptedController(
            # It uses no more of the doubles than a machine has too.
            cast("Outside", machine),
            host="127.0.0.1",
            cluster_id=CLUSTER_ID,
            config=ControlConfig(session_timeout_ms=6000),
        )
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        self.call(self.scripted.start)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.scripted.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, work: Callable[[], object]) -> None:
        """Do something on the controller's loop."""

        async def run() -> None:
            work()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def wait(self, what: str, holds: Callable[[MetadataImage], object]) -> None:
        """Return when something holds of the cluster.

        Raises:
            FatalError: that takes too long.
        """
        deadline = time.monotonic() + SECONDS_MAX
        while not holds(self.scripted.image):
            if time.monotonic() > deadline:
                states = [*_partitions(self.scripted.image).values()]
                raise FatalError(f"{what}: not within {SECONDS_MAX} s; partitions are {states}")
            time.sleep(0.1)


def check(report: Report, java: Path, class_path: str, directory: Path) -> None:
    """Run brokers of Kafka with our controller, and disturb them."""
    ports = free_ports(len(BROKERS))
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    with _Controller() as controller:
        kafkas = {
            number: Kafka(
                java,
                class_path,
                directory / f"broker-{number}",
                settings={
                    "process.roles": "broker",
                    "node.id": str(number),
                    "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                    "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
                    "controller.quorum.voters": controller.scripted.voters,
                    # Of two directories a broker chooses one, and reports it.
                    "log.dirs": ",".join(
                        f"{directory}/broker-{number}/{name}" for name in ("logs", "more")
                    ),
                },
            )
            for number, port in zip(BROKERS, ports, strict=True)
        }
        try:
            sent = _live(controller, kafkas, servers)
            missing = _missing(servers, sent)
            for kafka in kafkas.values():
                kafka.stop()
        finally:
            for kafka in kafkas.values():
                kafka.kill()
        asked = {key.title for key in controller.scripted.counts}
        ends = [
            each for each in _partitions(controller.scripted.image).values() if each.leader >= 0
        ]
    report.check(f"{len(sent)} records are on brokers of Kafka with our controller", missing)
    wanted = {"AlterPartition", "AssignReplicasToDirs", "AllocateProducerIds", "Envelope"}
    report.check(
        f"Kafka's brokers have asked for {', '.join(sorted(wanted))}", sorted(wanted - asked)
    )
    report.check("all of Kafka's brokers have stopped in order", [str(each) for each in ends])


def _live(
    controller: _Controller, kafkas: Mapping[int, Kafka], servers: str
) -> list[tuple[int, bytes]]:
    """Produce while things happen; the partition and value of each acknowledged record."""
    scripted = controller.scripted
    for kafka in kafkas.values():
        kafka.start()
    controller.wait("the brokers serve", lambda image: _serving(image) == {*BROKERS})
    # By a broker, which forwards it.
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 2)])[TOPIC].result()
    controller.wait("directories are known", lambda image: _has_all(image, _is_placed))
    sent: list[tuple[int, bytes]] = []
    _send(servers, sent)
    kafkas[1].kill()
    controller.wait("the killed broker is fenced", lambda image: 1 not in _serving(image))
    _send(servers, sent)
    kafkas[1].start()
    controller.wait("all are in sync", lambda image: _has_all(image, _is_whole))
    elect = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
    controller.call(lambda: scripted.do(ApiKey.ELECT_LEADERS, elect))
    controller.call(scripted.restart)
    _send(servers, sent)
    # Its leader goes, and a broker comes that has none of its records.
    leader, follower = _partitions(scripted.image)[0].replicas
    [other] = {*BROKERS} - {leader, follower}
    target = other, follower
    partition = ReassignablePartition(partition_index=0, replicas=target)
    move = AlterPartitionReassignmentsRequest(
        topics=(ReassignableTopic(name=TOPIC, partitions=(partition,)),)
    )
    controller.call(lambda: scripted.do(ApiKey.ALTER_PARTITION_REASSIGNMENTS, move))
    controller.wait(
        "the partition has moved", lambda image: _partitions(image)[0].replicas == target
    )
    _send(servers, sent)
    return sent


def _send(servers: str, sent: list[tuple[int, bytes]]) -> None:
    with Producer(bootstrap_servers=servers, request_timeout_ms=3000) as producer:
        receipts = []
        for number in range(len(sent), len(sent) + PART):
            partition, value = number % PARTITIONS, b"%d" % number
            receipts.append((partition, value, producer.send(TOPIC, value, partition=partition)))
        for partition, value, receipt in receipts:
            receipt.result()
            sent.append((partition, value))


def _missing(servers: str, sent: list[tuple[int, bytes]]) -> list[str]:
    """A sentence for each acknowledged record that is not there."""
    places = [(TOPIC, number) for number in range(PARTITIONS)]
    try:
        read = read_partitions(servers, places, is_committed=True)
    except (KafkaException, TailraceError) as error:
        return [str(error)]
    held = {(number, each.value) for (_, number), back in read.items() for each in back.records}
    return [f"partition {each[0]} lacks {each[1]!r}" for each in sent if each not in held]


def _serving(image: MetadataImage) -> set[int]:
    return {each for each, broker in image.brokers.items() if not broker.fenced}


def _partitions(image: MetadataImage) -> Mapping[int, PartitionRecord]:
    topic = image.topic(TOPIC)
    return {} if topic is None else topic.partitions


def _has_all(image: MetadataImage, holds: Callable[[PartitionRecord], bool]) -> bool:
    found = _partitions(image)
    return bool(found) and all(map(holds, found.values()))


def _is_whole(partition: PartitionRecord) -> bool:
    return len(partition.isr) == len(partition.replicas)


def _is_placed(partition: PartitionRecord) -> bool:
    return UNASSIGNED not in partition.directories
