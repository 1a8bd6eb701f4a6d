"""Our producer keeps the order by key while the leaders of its partitions are killed and paused.

Three Kafkas, each broker and controller, have a topic of three partitions with three replicas, of
which two have to be in sync for an acknowledgement. While the producer sends, the broker that leads
a partition is killed, stopped in order or paused, until another one leads; then it comes back, gets
in sync, and leads again. A paused one does not know that it leads no more, and has requests before
it when it goes on.

Invariant: only one broker at a time is away, so that nothing that was acknowledged may be lost.
"""

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from compat.clients import WAIT_SECONDS, Seen, read_partitions
from compat.kafka import Kafka
from compat.processes import free_ports
from compat.report import Report
from tailrace.client.producer.producer import Producer
from tailrace.client.producer.receipts import Receipt
from tailrace.errors import FatalError

TOPIC = "keyed"
BROKER_COUNT = 3
PARTITION_COUNT = 3
KEY_COUNT = 24
ROUNDS = 6
BETWEEN_MOVES = 2_000
"""Records that are acknowledged before a leader goes, and again after another one has come."""
UNACKNOWLEDGED_MAX = 5_000
MOVE_SECONDS_MAX = 60
"""For how long a partition may have no leader, or a broker that has come back be out of sync."""

_SETTINGS = {
    "default.replication.factor": str(BROKER_COUNT),
    "offsets.topic.replication.factor": str(BROKER_COUNT),
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    "leader.imbalance.check.interval.seconds": "1",
}


class Cluster:
    """Three Kafkas that keep their ports over restarts."""

    def __init__(self, java: Path, class_path: str, directory: Path) -> None:
        ports = free_ports(2 * BROKER_COUNT)
        servers = [f"127.0.0.1:{port}" for port in ports[:BROKER_COUNT]]
        controllers = [f"127.0.0.1:{port}" for port in ports[BROKER_COUNT:]]
        self.bootstrap_servers = ",".join(servers)
        self._threads = ThreadPoolExecutor(BROKER_COUNT)
        """They live as long as the brokers: the kernel kills these when the thread that has started
        them ends (`bound_to_us`)."""
        self.kafkas = {
            number: Kafka(
                java,
                class_path,
                directory / f"kafka-{number}",
                settings={
                    **_SETTINGS,
                    "node.id": str(number),
                    "listeners": f"PLAINTEXT://{server},CONTROLLER://{controller}",
                    "advertised.listeners": f"PLAINTEXT://{server}",
                    "controller.quorum.voters": ",".join(
                        f"{voter}@{at}" for voter, at in enumerate(controllers, start=1)
                    ),
                },
            )
            for number, (server, controller) in enumerate(
                zip(servers, controllers, strict=True), start=1
            )
        }

    def __enter__(self) -> Self:
        """Start all three at once: one alone is no quorum, and would wait."""
        try:
            list(self._threads.map(Kafka.start, self.kafkas.values()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kill all three: in an orderly stop the last one would wait for a quorum."""
        for each in self.kafkas.values():
            each.kill()
        self._threads.shutdown()

    def partitions(self) -> Mapping[int, PartitionMetadata]:
        """Leader and replicas in sync, by partition."""
        # A new client each time: one that lives on would ask the broker that is away first.
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        found: Mapping[int, PartitionMetadata] = (
            admin.list_topics(TOPIC, WAIT_SECONDS).topics[TOPIC].partitions
        )
        return found

    def wait(self, what: str, is_true: Callable[[Sequence[PartitionMetadata]], bool]) -> None:
        """Return when this is true of the partitions.

        Raises:
            FatalError: that takes too long.
        """
        deadline = time.monotonic() + MOVE_SECONDS_MAX
        while True:
            found: list[PartitionMetadata] = []
            try:
                found = list(self.partitions().values())
                if len(found) == PARTITION_COUNT and is_true(found):
                    return
            except (KafkaException, KeyError):
                pass  # The broker that was asked is just going, or does not know the topic yet.
            if time.monotonic() > deadline:
                shown = [(each.id, each.leader, each.isrs) for each in found]
                raise FatalError(
                    f"{what}: not within {MOVE_SECONDS_MAX} s; partitions with their leaders and "
                    f"replicas in sync are {shown}; look into kafka-*.log of --keep"
                )
            time.sleep(0.2)

    def wait_until_whole(self) -> None:
        """Return when all replicas are in sync and each broker leads a partition.

        Raises:
            FatalError: that takes too long.
        """
        self.wait(
            "the brokers are in sync and all of them lead",
            lambda found: (
                all(len(each.isrs) == BROKER_COUNT for each in found)
                and len({each.leader for each in found}) == BROKER_COUNT
            ),
        )


class Sending:
    """Sends records with keys from a thread of its own, until it is told to end."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.receipts: list[Receipt] = []
        """By the number of the record; its key is the number modulo `KEY_COUNT`."""
        self._producer = Producer(
            bootstrap_servers=bootstrap_servers,
            # A paused broker answers nothing, and another one leads within some seconds.
            request_timeout_ms=2000,
            reconnect_backoff_max_ms=500,
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        while not self._is_over.is_set():
            number = len(self.receipts)
            if number >= UNACKNOWLEDGED_MAX:
                self.receipts[number - UNACKNOWLEDGED_MAX].exception()
            key = b"key %d" % (number % KEY_COUNT)
            self.receipts.append(self._producer.send(TOPIC, b"%d" % number, key=key))
            if number % 100 == 0:
                time.sleep(0.01)

    def wait_for_more(self) -> None:
        """Return when records are acknowledged that are sent from now on."""
        target = len(self.receipts) + BETWEEN_MOVES
        while len(self.receipts) <= target and self._thread.is_alive():
            time.sleep(0.05)
        self.receipts[target].exception()

    def end(self) -> None:
        """Send no more, and return when each record has an outcome."""
        self._is_over.set()
        self._thread.join()
        self._producer.close()


def check(report: Report, cluster: Cluster) -> None:
    """Move the leaders under a producer, and hold the log against what it was told.

    Raises:
        FatalError: the brokers do not come up, or no other one leads.
    """
    with cluster:
        _create_topic(cluster)
        cluster.wait_until_whole()
        sending = Sending(cluster.bootstrap_servers)
        try:
            for number in range(ROUNDS):
                sending.wait_for_more()
                _move(cluster, number, sending)
        finally:
            sending.end()
        places = [(TOPIC, number) for number in range(PARTITION_COUNT)]
        read = read_partitions(cluster.bootstrap_servers, places, is_committed=True)
    found = {place[1]: each.records for place, each in read.items()}
    report.check("every record is acknowledged", list(_unacknowledged(sending.receipts)))
    report.check(
        "each is in the log once, where its acknowledgement says",
        list(_misplaced(sending.receipts, found)),
        explained=f"{len(sending.receipts)} records while {ROUNDS} leaders were killed, stopped "
        "or paused",
    )
    report.check("the records of each key are in order", list(_disordered(found)))


def _create_topic(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    topic = NewTopic(
        TOPIC,
        num_partitions=PARTITION_COUNT,
        replication_factor=BROKER_COUNT,
        config={"min.insync.replicas": "2"},
    )
    admin.create_topics([topic], request_timeout=MOVE_SECONDS_MAX)[TOPIC].result()


def _move(cluster: Cluster, number: int, sending: Sending) -> None:
    """Have another broker lead a partition, and the one before it come back."""
    partition = number % PARTITION_COUNT
    leader = cluster.partitions()[partition].leader
    kafka = cluster.kafkas[leader]

    def is_away(found: Sequence[PartitionMetadata]) -> bool:
        return all(each.leader not in {-1, leader} for each in found)

    match number % 3:
        case 0:
            kafka.kill()
        case 1:
            kafka.stop()
        case _:
            os.kill(kafka.pid, signal.SIGSTOP)
    try:
        cluster.wait(f"another broker leads the partitions of broker {leader}", is_away)
        sending.wait_for_more()
    finally:
        if number % 3 == 2:
            os.kill(kafka.pid, signal.SIGCONT)
    if number % 3 != 2:
        kafka.start()
    cluster.wait_until_whole()


def _unacknowledged(receipts: Sequence[Receipt]) -> Iterator[str]:
    for number, each in enumerate(receipts):
        error = each.exception(0)
        if error is not None:
            yield f"record {number}: {error}"


def _misplaced(receipts: Sequence[Receipt], found: Mapping[int, Sequence[Seen]]) -> Iterator[str]:
    places: dict[bytes | None, list[tuple[int, int]]] = defaultdict(list)
    for partition, records in found.items():
        for each in records:
            places[each.value].append((partition, each.offset))
    for number, receipt in enumerate(receipts):
        there = places.pop(b"%d" % number, [])
        if receipt.exception(0) is None and there != [(receipt.partition, receipt.offset)]:
            yield f"record {number} lies at {there}, acknowledged at {receipt}"
        elif len(there) > 1:
            yield f"record {number} lies at {there}"
    yield from (f"{value!r} was not sent" for value in places)


def _disordered(found: Mapping[int, Sequence[Seen]]) -> Iterator[str]:
    homes: dict[bytes | None, int] = {}
    last: dict[bytes | None, int] = {}
    for partition, records in found.items():
        for each in records:
            assert each.value is not None
            number = int(each.value)
            if homes.setdefault(each.key, partition) != partition:
                yield f"{each.key!r} is in partition {homes[each.key]} and in {partition}"
            if number != last.get(each.key, number % KEY_COUNT - KEY_COUNT) + KEY_COUNT:
                yield f"{each.key!r}: record {number} follows record {last.get(each.key)}"
            last[each.key] = number
