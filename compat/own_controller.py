"""Brokers of Kafka's and of ours whose only controller is ours, and three of Kafka's after it.

Under a load the controller is killed, paused, cut off and stopped, and so are brokers of both
kinds. Then three controllers of Kafka's take over from ours, on its directory, and ours from them.
No broker stops for that.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from compat import clusters
from compat.cluster import CONTROLLERS, WAIT_S_MAX, Cluster
from compat.cluster_load import PARTITION_COUNT, TOPICS, Load
from compat.networks import Network, is_possible
from compat.processes import run
from compat.report import Report
from compat.tools import Tools
from compat.topics import create_topics
from tailrace.broker.kraft.settings import parse_controllers
from tailrace.client.admin import Admin
from tailrace.offline.handover import (
    Controller,
    Effect,
    Handover,
    plan_handover,
    server_properties,
)
from tailrace.runtime.files import DiskFiles

KAFKAS = (2, 3)
"""The brokers that are Kafka's."""


def check(report: Report, tools: Tools, directory: Path) -> None:
    """Run a cluster on a new directory."""
    with ExitStack() as stack:
        network = stack.enter_context(Network()) if is_possible() else None
        if network is None:
            report.say("left out: nodes that are cut off, which needs root and iproute2")
        cluster = Cluster(
            tools.java, tools.jars, directory, kafkas=KAFKAS, network=network,
            has_own_controller=True,
        )  # fmt: skip
        stack.enter_context(cluster)
        servers = cluster.bootstrap_servers
        create_topics(servers, {each: {} for each in TOPICS}, partition_count=PARTITION_COUNT)
        report.check("each broker leads partitions", [*clusters.sync(cluster)])
        with Load(servers, has_kafka=True) as load:
            for absence in clusters.absences(cluster):
                began = time.monotonic()
                faults = [*clusters.survive(cluster, load, absence)]
                report.say(f"      {time.monotonic() - began:.1f} s")
                report.check(f"clients go on where {absence.name}, and it comes back", faults)
            clusters.check_moves(report, cluster, load)
            _check_handover(report, cluster, load)
        for name, faults in load.faults().items():
            report.check(f"after all that {name}", faults)
        for each in cluster.brokers.values():
            each.stop()
        differing = [*clusters.unequal(cluster)]
        report.check("the replicas of each partition are the same bytes", differing)


def _check_handover(report: Report, cluster: Cluster, load: Load) -> None:
    """The move of docs/cluster.md, by `tailrace handover` and `tailrace cluster`."""
    first, *others = CONTROLLERS
    ours = cluster.controllers[first]
    ours.stop()
    found = plan_handover(DiskFiles(), [str(ours.logs)])
    report.check("our controller can be handed over after its stop", [*_hindrances(found)])
    joining = [
        Controller(each.id, each.host, each.port)
        for each in parse_controllers(
            tuple(f"{each}@{cluster.places[each]}" for each in others), ()
        )
    ]
    settings = server_properties(found, joining)
    kafkas = {first: cluster.kafkas_controller(first, settings=settings)}
    cluster.controllers = {**kafkas}
    kafkas[first].start()
    report.check("Kafka's controller continues on our directory", [*load.wait_for_more()])
    for number in others:
        # Without voters of its own (KIP-853): it fetches the log as an observer until it is added.
        added = cluster.kafkas_controller(number, format_options=("--no-initial-controllers",))
        kafkas[number] = added
        cluster.controllers = {**kafkas}
        added.start()
        _change_voters(cluster, "add-controller", f"{number}@{cluster.places[number]}")
    report.check(
        "two more voters are added, and brokers of both kinds follow",
        [*_other_voters(cluster, CONTROLLERS), *load.wait_for_more()],
    )
    for number in others:
        _change_voters(cluster, "remove-controller", str(number))
        kafkas[number].stop()
    faults = [*_other_voters(cluster, (first,)), *load.wait_for_more()]
    report.check("two voters are removed", faults)
    kafkas[first].stop()
    found = plan_handover(DiskFiles(), [str(ours.logs)])
    report.check("Kafka's controller can be handed over after its stop", [*_hindrances(found)])
    ours = cluster.our_controller()
    cluster.controllers = {first: ours}
    ours.start()
    report.check(
        "our controller continues on Kafka's directory",
        [*load.wait_for_more(), *clusters.sync(cluster)],
    )


def _hindrances(found: Handover) -> Iterator[str]:
    yield from (each.sentence for each in found.notes if each.effect is Effect.HINDERS)


def _change_voters(cluster: Cluster, command: str, controller: str) -> None:
    run(
        [sys.executable, "-m", "tailrace", "cluster", command, controller,
         "--bootstrap", cluster.bootstrap_servers],
        name=f"tailrace cluster {command} {controller}", seconds_max=2 * WAIT_S_MAX,
    )  # fmt: skip


def _other_voters(cluster: Cluster, due: Sequence[int]) -> Iterator[str]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = sorted(each.replica_id for each in admin.describe_metadata_quorum().voters)
    if found != sorted(due):
        yield f"the voters are {found}"
