"""Clusters of Kafka's controllers with brokers of ours, and of both kinds, whose nodes fail.

Each partition has a replica on every broker, so where both kinds are there, each follows the
other's leaders and is followed by them. Under a load each broker is killed, paused, cut off and
stopped in turn, and so is the active controller; a broker is added, and retired. At the end all
stop, and the replicas of a partition must be the same bytes.

The clients of other sections work on such clusters as on one broker.

Invariant: only one broker at a time is away, so that nothing that was acknowledged may be lost.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from compat import consuming, lives, others, producing, transaction_loops
from compat.cluster import BROKERS, WAIT_S_MAX, Cluster, Node, go_on, pause
from compat.cluster_load import PARTITION_COUNT, TOPICS, Load
from compat.kafka import java_command
from compat.networks import Host, Network, is_possible
from compat.processes import Server
from compat.report import Report
from compat.spark_drivers import spark_drivers
from compat.tools import Tools
from compat.topics import create_topics
from tailrace.client.admin import Admin
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tests.kills.copying import Copy
from tests.kills.drivers import LOCAL, Drivers

ADDED = 4
"""The id of the broker that is added."""
COMPARED = "max lag is 0 "
"""Kafka's tool prints it each second in which it has found no difference in lengths."""
COMPARISONS = 3


def check(report: Report, tools: Tools, directory: Path, *, kafkas: Collection[int]) -> None:
    """Run a cluster on a new directory; `kafkas` are the brokers that are Kafka's."""
    with ExitStack() as stack:
        network = stack.enter_context(Network()) if is_possible() else None
        if network is None:
            report.say("left out: nodes that are cut off, which needs root and iproute2")
        cluster = Cluster(tools.java, tools.jars, directory, kafkas=kafkas, network=network)
        stack.enter_context(cluster)
        servers = cluster.bootstrap_servers
        create_topics(servers, {each: {} for each in TOPICS}, partition_count=PARTITION_COUNT)
        report.check("each broker leads partitions", [*sync(cluster)])
        with Load(servers, has_kafka=bool(kafkas)) as load:
            for absence in absences(cluster):
                began = time.monotonic()
                faults = [*survive(cluster, load, absence)]
                report.say(f"      {time.monotonic() - began:.1f} s")
                report.check(f"clients go on where {absence.name}, and it comes back", faults)
            check_moves(report, cluster, load)
        for name, faults in load.faults().items():
            report.check(f"after all that {name}", faults)
        report.check(
            "kafka-replica-verification finds no difference", [*verification(cluster, tools)]
        )
        for each in cluster.brokers.values():
            each.stop()
        report.check("the replicas of each partition are the same bytes", [*unequal(cluster)])
        report.check("every broker has the mark of its orderly stop", [*unmarked(cluster)])


def check_clients(
    report: Report, tools: Tools, directory: Path, *, kafkas: Collection[int]
) -> None:
    """Have the clients of other sections work on a cluster as they do on one broker."""
    with Cluster(tools.java, tools.jars, directory, kafkas=kafkas) as cluster:
        servers = cluster.bootstrap_servers
        others.check_at(report, tools.others, servers)
        producing.check_sending(report, servers)
        consuming.check_at(report, cluster)
        lives.check_at(report, servers)
        transaction_loops.check_at(report, tools.others, servers, broker="a cluster")
        report.check("transactional ids are fenced", [*_unfenced(servers)])
        with spark_drivers() as (drivers, folder):
            report.check(
                "a stream of Spark copies exactly once though a broker is killed",
                [*_stream(cluster, drivers, folder)],
            )


def _unfenced(servers: str) -> Iterator[str]:
    """Transactional ids whose coordinator refuses to fence them, for so long as a call lasts."""
    with Admin(bootstrap_servers=servers) as admin:
        outcomes = admin.fence_producers([f"fenced-{number}" for number in range(20)])
        yield from (f"{name}: {error}" for name, error in outcomes.errors.items())


def _stream(cluster: Cluster, drivers: Drivers, folder: Path) -> Iterator[str]:
    place = folder / "cluster"
    place.mkdir()
    broker = cluster.brokers[1]
    try:
        copy, driver = Copy(cluster.bootstrap_servers, place), drivers.running(LOCAL)
        with closing(copy.begin(driver)) as changes:
            copy.wait_for_batch(driver, changes)
            broker.kill()
            copy.wait_for_end(driver, changes)
    except AssertionError as error:
        yield str(error)


class _Absence(NamedTuple):
    """A way in which a node leaves, and comes back."""

    name: str
    leave: Callable[[], None]
    come_back: Callable[[], None]


def absences(cluster: Cluster) -> Iterator[_Absence]:
    """One after the other; the next one begins when the last is over."""
    for number, broker in cluster.brokers.items():
        kind = "Kafka's" if number in cluster.kafkas else "ours"
        yield from _of_node(f"broker {number}, one of {kind},", broker, cluster.hosts[number])
    for way in range(len([*_of_active(cluster)])):
        # Each time another one is active.
        yield [*_of_active(cluster)][way]


def _of_active(cluster: Cluster) -> Iterator[_Absence]:
    number = cluster.active_controller()
    yield from _of_node("the controller", cluster.controllers[number], cluster.hosts[number])


def _of_node(name: str, node: Node, host: Host) -> Iterator[_Absence]:
    yield _Absence(f"{name} is killed", node.kill, node.start)
    yield _Absence(f"{name} is paused", partial(pause, node), partial(go_on, node))
    if host.can_be_cut_off:
        yield _Absence(f"{name} is cut off", host.cut, host.heal)
    yield _Absence(f"{name} stops in order", node.stop, node.start)


def survive(cluster: Cluster, load: Load, absence: _Absence) -> Iterator[str]:
    """Have a node leave and come back; what the load and the replicas lack."""
    yield from load.wait_for_more()
    absence.leave()
    try:
        # No step can end before others lead, if it needs the one that is away.
        yield from load.wait_for_more()
    finally:
        absence.come_back()
    yield from load.wait_for_more()
    yield from sync(cluster)


def sync(cluster: Cluster) -> Iterator[str]:
    yield from cluster.wait_until_in_sync()
    leaders = {each.leader for each in cluster.partitions(TOPICS).values()}
    if leaders != set(BROKERS):
        yield f"leaders are {sorted(leaders)}"


def check_moves(report: Report, cluster: Cluster, load: Load) -> None:
    """Add a broker, have it replace another for all partitions, move them back, retire it."""
    before = {name: each.replicas for name, each in cluster.partitions(TOPICS).items()}
    moved = {
        name: [ADDED if each == BROKERS[0] else each for each in replicas]
        for name, replicas in before.items()
    }
    cluster.add(ADDED)
    for name, target in (
        ("all partitions of a broker move to one that was added", moved),
        ("they move back under load", before),
    ):
        faults = [*_moved(cluster, target), *load.wait_for_more()]
        report.check(name, faults)
    retired = cluster.brokers[ADDED]
    retired.stop()
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.unregister_broker(ADDED)

        def is_gone() -> bool:
            known = admin.describe_cluster(include_fenced_brokers=True).brokers
            return ADDED not in {each.id for each in known}

        cluster.wait("the retired broker is gone", is_gone)
    del cluster.brokers[ADDED]
    report.check("a retired broker is not missed", [*load.wait_for_more(), *sync(cluster)])


def _moved(cluster: Cluster, target: Mapping[TopicPartition, Sequence[int]]) -> Iterator[str]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:

        def is_begun() -> bool:
            admin.alter_partition_reassignments(target).results()
            return True

        # Refused until the controllers have unfenced the broker that was added.
        cluster.wait("the moves are accepted", is_begun)
        cluster.wait("nothing moves", lambda: not admin.list_partition_reassignments())
    yield from cluster.wait_until_in_sync()
    for name, each in cluster.partitions(TOPICS).items():
        if [*each.replicas] != [*target[name]]:
            yield f"{name} has {each.replicas}"


def verification(cluster: Cluster, tools: Tools) -> Iterator[str]:
    """Differences that Kafka's own tool finds; it compares the replicas, record for record."""
    tool = "org.apache.kafka.tools.ReplicaVerificationTool"
    from_the_start = ("--time", "-2")
    arguments = [
        tool, "--broker-list", cluster.bootstrap_servers, *from_the_start,
        "--topics-include", "|".join(TOPICS), "--report-interval-ms", "1000",
    ]  # fmt: skip
    command = java_command(tools.java, tools.old_jars, arguments)
    try:
        server = Server(tool, command, cluster.directory / "compared.log", ready=COMPARED)
    except TailraceError as error:
        yield str(error)
        return
    try:
        deadline = time.monotonic() + WAIT_S_MAX
        while sum(COMPARED in line for line in server.printed()) < COMPARISONS:
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
    finally:
        server.kill()
    printed = server.printed()
    yield from (line for line in printed if "match" in line)
    reports = [line for line in printed if "max lag is" in line]
    count = len(TOPICS) * PARTITION_COUNT
    if COMPARED not in reports[-1] or f"among {count} partitions" not in reports[-1]:
        yield reports[-1]


def unequal(cluster: Cluster) -> Iterator[str]:
    logs: dict[str, dict[int, bytes]] = {}
    for number, broker in cluster.brokers.items():
        for topic in TOPICS:
            # Not those that a move has left, which wait to be deleted.
            for folder in broker.logs.glob(f"{topic}-[0-9]"):
                # Together, for each replica begins its segments where it likes.
                data = b"".join(each.read_bytes() for each in sorted(folder.glob("*.log")))
                logs.setdefault(folder.name, {})[number] = data
    if len(logs) != len(TOPICS) * PARTITION_COUNT:
        yield f"the brokers have logs of {sorted(logs)}"
    for name, found in sorted(logs.items()):
        if len(set(found.values())) > 1 or set(found) != set(BROKERS):
            sizes = (f"{len(data)} bytes on {number}" for number, data in sorted(found.items()))
            yield f"{name}: {', '.join(sizes)}"


def unmarked(cluster: Cluster) -> Iterator[str]:
    for number, broker in cluster.brokers.items():
        mark = broker.logs / ".kafka_cleanshutdown"
        if not mark.exists() or json.loads(mark.read_text())["brokerEpoch"] < 0:
            yield f"broker {number}: {mark.read_text() if mark.exists() else 'no mark'}"
