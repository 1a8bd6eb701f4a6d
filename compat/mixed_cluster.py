"""Brokers of both kinds in one cluster: Kafka's controller, one broker of Kafka's, two of ours.

Each partition has a replica on every broker, so each kind follows the other's leaders and is
followed by them. While producers send with acks=all, one broker after another is killed or stopped
in order, comes back and gets in sync, and then the controller is killed. At the end all stop, and
the replicas of a partition must be the same bytes.

Invariant: only one broker at a time is away, so that nothing that was acknowledged may be lost.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from compat import clients, controllers
from compat.brokers import OurBroker, kafkas_broker
from compat.clients import Sender
from compat.kafka import Kafka
from compat.processes import free_ports
from compat.report import Report
from tailrace.client.admin import Admin, NewTopic
from tailrace.client.reader import PartitionDescription
from tailrace.errors import RetriableError, TailraceError

KAFKAS_ID = 2
IDS = (1, KAFKAS_ID, 3)
TOPIC = "mixed"
TRANSACTIONS = "transactions"
PARTITION_COUNT = 6
"""Each broker leads two of them."""
RECORD_COUNT = 1200
"""Records of each half of a round."""
SYNC_SECONDS_MAX = 60

_REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "broker.heartbeat.interval.ms": "500",
}


class _Cluster:
    """The brokers by their ids, and what clients ask of them."""

    def __init__(self, controller: Kafka, kafka: Kafka, directory: Path) -> None:
        node = controllers.controller_alone(controller)
        ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))
        self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        self.controller = controller
        kafka.settings |= _REPLICATED | kafkas_broker(
            KAFKAS_ID, port=ports[KAFKAS_ID], controller=node
        )
        self.brokers: dict[int, Kafka | OurBroker] = {
            number: kafka
            if number == KAFKAS_ID
            else OurBroker(
                number,
                directory / f"broker-{number}",
                port=port,
                controller=node,
                settings=_REPLICATED,
            )
            for number, port in ports.items()
        }

    def partitions(self) -> Sequence[PartitionDescription]:
        """The partitions of the topic, as a broker has them."""
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            described = admin.describe_topics([TOPIC])[TOPIC]
            limit = time.monotonic() + SYNC_SECONDS_MAX
            # The broker that is asked may not have the newest image yet.
            while isinstance(described, RetriableError) and time.monotonic() < limit:
                time.sleep(0.1)
                described = admin.describe_topics([TOPIC])[TOPIC]
        if isinstance(described, TailraceError):
            raise described
        return described.partitions

    def wait_until_in_sync(self) -> Iterator[str]:
        """Wait until each partition has all replicas in sync, and is led where it is preferred."""
        deadline = time.monotonic() + SYNC_SECONDS_MAX
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            while True:
                late = [each for each in self.partitions() if len(each.isr) < len(IDS)]
                if not late:
                    break
                if time.monotonic() > deadline:
                    yield from (f"partition {each.partition} has {each.isr}" for each in late)
                    return
                time.sleep(0.3)
            try:
                # So that each kind leads again, before the next broker goes.
                admin.elect_leaders()
            except TailraceError as error:
                yield str(error)

    def send(self, sender: Sender, number: int) -> None:
        """Send records with acks=all to all partitions."""
        for each in range(RECORD_COUNT):
            value = b"round %d record %d" % (number, each)
            sender.send(TOPIC, value, partition=each % PARTITION_COUNT)
            if each % 100 == 0:
                sender.poll()


def check(report: Report, controller: Kafka, kafka: Kafka, directory: Path) -> None:
    """Rounds of a cluster on new directories; `kafka` becomes its broker."""
    cluster = _Cluster(controller, kafka, directory)
    with ExitStack() as stack:
        stack.enter_context(controller)
        for each in cluster.brokers.values():
            stack.enter_context(each)
        _check_running(report, cluster)
        for each in cluster.brokers.values():
            each.stop()
    report.check("the replicas on Kafka and on ours are the same bytes", list(_unequal(cluster)))
    report.check("every broker has the mark of its orderly stop", list(_unmarked(cluster)))


def _check_running(report: Report, cluster: _Cluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([
            # Without retention: some records have timestamps of long ago, and each replica deletes
            # when it comes to that.
            NewTopic(name, count, len(IDS), {"retention.ms": "-1"})
            for name, count in ((TOPIC, PARTITION_COUNT), (TRANSACTIONS, 1))
        ])  # fmt: skip
    leaders = {each.leader for each in cluster.partitions()}
    report.check(
        "both kinds lead partitions, and follow the other's",
        [] if leaders == set(IDS) else [f"leaders are {sorted(leaders)}"],
    )
    clients.produce_transactions(cluster.bootstrap_servers, TRANSACTIONS, ends_open=False)
    ours, theirs = cluster.brokers[1], cluster.brokers[KAFKAS_ID]
    rounds: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
        "Kafka's broker is killed": (theirs.kill, theirs.start),
        "a broker of ours is killed": (ours.kill, ours.start),
        "Kafka's broker stops in order": (theirs.stop, theirs.start),
        "a broker of ours stops in order": (ours.stop, ours.start),
        "the controller is killed": (cluster.controller.kill, cluster.controller.start),
    }
    acknowledged = []
    for number, (name, (leave, come_back)) in enumerate(rounds.items()):
        faults = list(cluster.wait_until_in_sync())
        sender = Sender(cluster.bootstrap_servers)
        cluster.send(sender, number)
        leave()
        cluster.send(sender, number)
        sender.flush()
        come_back()
        faults += [*sender.refused, *cluster.wait_until_in_sync()]
        report.check(f"producers wait and go on where {name}, which comes back in sync", faults)
        acknowledged += sender.acknowledged
    places = [(TOPIC, each) for each in range(PARTITION_COUNT)]
    read = clients.read_partitions(cluster.bootstrap_servers, places, is_committed=False)
    report.check(
        "all that was acknowledged is there",
        [
            fault
            for place in places
            for fault in clients.lost(
                (each for each in acknowledged if each[:2] == place), read[place]
            )
        ],
    )
    report.check("transactions over both kinds are whole", list(_partial(cluster)))


def _partial(cluster: _Cluster) -> Iterator[str]:
    place = (TRANSACTIONS, 0)
    read = partial(clients.read_partitions, cluster.bootstrap_servers, [place])
    every, committed = (read(is_committed=each)[place] for each in (False, True))
    if not committed.records or len(committed.records) >= len(every.records):
        yield f"{len(committed.records)} of {len(every.records)} records are committed"
    elif not set(committed.records) <= set(every.records):
        yield "a committed record is not in the log"


def _unequal(cluster: _Cluster) -> Iterator[str]:
    files: dict[str, dict[int, bytes]] = {}
    for number, broker in cluster.brokers.items():
        for topic in (TOPIC, TRANSACTIONS):
            for each in broker.logs.glob(f"{topic}-*/*.log"):
                name = f"{each.parent.name}/{each.name}"
                files.setdefault(name, {})[number] = each.read_bytes()
    if not files:
        yield "no broker has a log"
    for name, found in sorted(files.items()):
        if len(set(found.values())) > 1 or set(found) != set(IDS):
            sizes = (f"{len(data)} bytes on {number}" for number, data in sorted(found.items()))
            yield f"{name}: {', '.join(sizes)}"


def _unmarked(cluster: _Cluster) -> Iterator[str]:
    for number, broker in cluster.brokers.items():
        mark = broker.logs / ".kafka_cleanshutdown"
        if not mark.exists() or json.loads(mark.read_text())["brokerEpoch"] < 0:
            yield f"broker {number}: {mark.read_text() if mark.exists() else 'no mark'}"
