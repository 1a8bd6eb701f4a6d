"""A live cluster of Kafka's brokers and controllers moves to Tailrace and back, under load.

    1 2 3 (Kafka) -> 4 5 6 (Tailrace) -> 1 2 3

By `tailrace cluster migrate`, as an operator runs it: on the way there it is interrupted by Ctrl-C,
and killed while partitions are being moved, and the same command continues. The old brokers are
stopped when it says so, and are unregistered. On the way back Kafka's brokers start on the
directories that they had, and a broker that partitions are copied from is killed.

Invariant: nothing is asked of the cluster but by the command, and by clients.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from compat.cluster import BROKERS, Cluster
from compat.cluster_load import PARTITION_COUNT, TOPICS, Load
from compat.processes import bound_to_us
from compat.report import Report
from compat.tools import Tools
from compat.topics import create_topics
from tailrace.client.admin import Admin, ConfigResource, ResourceType
from tailrace.client.producer.producer import Producer
from tailrace.errors import FatalError

ADDED = (4, 5, 6)
"""The brokers of ours."""
BULK = "bulk"
"""A topic that takes some seconds to copy."""
BULK_RECORDS, BULK_BYTES = 3000, 10_000
"""30 MB, a third to each of six partitions' three replicas."""
THROTTLE = "2MB"
MIGRATION_S_MAX = 300


def check(report: Report, tools: Tools, directory: Path) -> None:
    """Move a cluster on a new directory, there and back."""
    with Cluster(tools.java, tools.jars, directory, kafkas=BROKERS) as cluster:
        for each in ADDED:
            cluster.prepare(each)
        # With the addresses of those to come: clients are not changed while they work.
        servers = cluster.bootstrap_servers
        create_topics(
            servers, {each: {} for each in (*TOPICS, BULK)}, partition_count=PARTITION_COUNT
        )
        report.check("the cluster is whole before", [*cluster.wait_until_in_sync()])
        _fill(servers)
        with Load(servers, has_kafka=True) as load:
            report.check("clients work on brokers of Kafka's", [*load.wait_for_more()])
            for each in ADDED:
                cluster.brokers[each].start()
            there = _Migration(cluster, directory, source=BROKERS, target=ADDED)
            report.check("a plan changes nothing", [*there.plan()])
            report.check(
                "Ctrl-C finishes the partitions that are being moved", [*there.interrupt()]
            )
            report.check("partitions are on their way when it is killed", [*there.kill()])
            _check_move(report, there, load, kind="Tailrace")
            for each in BROKERS:
                cluster.brokers[each].start()
            back = _Migration(cluster, directory, source=ADDED, target=BROKERS)
            report.check(
                "a broker is killed that partitions are copied from, and comes back",
                [*back.lose(ADDED[0], load)],
            )
            _check_move(report, back, load, kind="Kafka")
        for name, faults in load.faults().items():
            report.check(f"after all that {name}", faults)


def _check_move(report: Report, migration: "_Migration", load: Load, *, kind: str) -> None:
    began = time.monotonic()
    faults = [*migration.finish()]
    report.say(f"      {time.monotonic() - began:.1f} s")
    report.check(f"everything moves to {kind}, and the old brokers are unregistered", faults)
    report.check(f"all is on {kind} alone, in sync and led, unthrottled", [*migration.faults()])
    report.check(f"clients work on {kind} alone", [*load.wait_for_more()])


def _fill(servers: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(BULK_RECORDS):
            # Bytes that do not get fewer on the way.
            producer.send(BULK, os.urandom(BULK_BYTES), partition=number % PARTITION_COUNT)


class _Migration:
    """One move, by as many runs of the command as it takes."""

    def __init__(
        self, cluster: Cluster, directory: Path, *, source: Sequence[int], target: Sequence[int]
    ) -> None:
        self._cluster = cluster
        self._directory = directory
        self._source = source
        self._target = target
        self._runs = 0

    def plan(self) -> Iterator[str]:
        """Show the plan alone."""
        before = self._replicas()
        with self._run("--dry-run") as run:
            code = run.wait(MIGRATION_S_MAX)
            plan = run.events()
        if code != 0 or plan[0]["faults"]:
            yield f"exit code {code}: {plan[:1]} {run.said()}"
        due = set(before)
        if {(each["topic"], each["partition"]) for each in plan[1:]} != due:
            yield f"the plan has {len(plan) - 1} partitions of {len(due)}"
        if self._replicas() != before:
            yield "partitions have moved"

    def interrupt(self) -> Iterator[str]:
        """Press Ctrl-C when the first partitions move."""
        with self._run("--throttle", THROTTLE, "--at-once", "3") as run:
            run.wait_for("batch")
            run.signal(signal.SIGINT)
            code = run.wait(MIGRATION_S_MAX)
            events = run.events()
        if code != 130:
            yield f"exit code {code}: {run.said()}"
        moved = [each for each in events if each["type"] == "moved"]
        on_target = [
            name for name, replicas in self._replicas().items() if set(replicas) <= {*self._target}
        ]
        if len(moved) != 1 or len(on_target) != len(moved[0]["partitions"]):
            yield f"{on_target} have moved; events are {moved}"
        yield from self._throttles()

    def kill(self) -> Iterator[str]:
        """Kill the command while it moves partitions."""
        with self._run("--throttle", THROTTLE, "--at-once", "3") as run:
            run.wait_for("progress")
            run.signal(signal.SIGKILL)
            run.wait(MIGRATION_S_MAX)
        with Admin(bootstrap_servers=self._cluster.bootstrap_servers) as admin:
            if not admin.list_partition_reassignments():
                yield "nothing moves"
        if not [*self._throttles()]:
            yield "there is no throttle"

    def lose(self, number: int, load: Load) -> Iterator[str]:
        """Kill an old broker while partitions move, and end the run when it is back."""
        with self._run("--throttle", THROTTLE, "--no-retire") as run:
            run.wait_for("progress")
            self._cluster.brokers[number].kill()
            yield from load.wait_for_more()
            self._cluster.brokers[number].start()
            code = run.wait(MIGRATION_S_MAX)
        if code != 0:
            yield f"exit code {code}: {run.said()}"

    def finish(self) -> Iterator[str]:
        """Run it to its end, and stop the old brokers when it says so."""
        with self._run() as run:
            run.wait_for("emptied")
            for each in self._source:
                self._cluster.brokers[each].stop()
            code = run.wait(MIGRATION_S_MAX)
            events = run.events()
        if code != 0:
            yield f"exit code {code}: {run.said()}"
        gone = [each["broker"] for each in events if each["type"] == "unregistered"]
        if sorted(gone) != sorted(self._source):
            yield f"{gone} were unregistered"
        yield from (each["reason"] for each in events if each["type"] == "waiting")

    def faults(self) -> Iterator[str]:
        """Differences from a cluster that has moved."""
        with Admin(bootstrap_servers=self._cluster.bootstrap_servers) as admin:
            brokers = admin.describe_cluster(include_fenced_brokers=True).brokers
            if [each.id for each in brokers] != sorted(self._target):
                yield f"the brokers are {[each.id for each in brokers]}"
        for name, each in self._cluster.partitions().items():
            if {*each.replicas} != {*each.isr} or not {*each.replicas} <= {*self._target}:
                yield f"{name} has {each.replicas}, in sync {each.isr}"
            if each.leader != each.replicas[0]:
                yield f"{name} is led by {each.leader} of {each.replicas}"
        yield from self._throttles()

    def _throttles(self) -> Iterator[str]:
        """Settings of throttles that are there."""
        with Admin(bootstrap_servers=self._cluster.bootstrap_servers) as admin:
            topics = [ConfigResource(ResourceType.TOPIC, each.name) for each in admin.list_topics()]
            brokers = [
                ConfigResource(ResourceType.BROKER, str(each.id))
                for each in admin.describe_cluster().brokers
            ]
            found = admin.describe_configs([*topics, *brokers]).results()
        for resource, settings in found.items():
            for each in settings.values():
                if ".replication.throttled." in each.name and each.source in (1, 2):
                    yield f"{resource} has {each.name}={each.value}"

    def _replicas(self) -> Mapping[tuple[str, int], tuple[int, ...]]:
        return {(*name,): each.replicas for name, each in self._cluster.partitions().items()}

    def _run(self, *options: str) -> "_Run":
        self._runs += 1
        place = self._directory / f"migrate-{self._target[0]}-{self._runs}"
        arguments = [
            "--from", ",".join(map(str, self._source)), "--to", ",".join(map(str, self._target)),
            "--bootstrap", self._cluster.bootstrap_servers, "--yes", "--json", *options,
        ]  # fmt: skip
        return _Run(place, arguments)


class _Run:
    """One process of the command."""

    def __init__(self, place: Path, arguments: Collection[str]) -> None:
        self._output, self._errors = place.with_suffix(".json"), place.with_suffix(".log")
        command = [sys.executable, "-u", "-m", "tailrace", "cluster", "migrate", *arguments]
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                bound_to_us(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float) -> int:
        """Its exit code.

        Raises:
            FatalError: it does not end.
        """
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise FatalError(f"cluster migrate has not ended: {self.said()}") from error

    def wait_for(self, kind: str) -> None:
        """Return when it has printed an event of a kind.

        Raises:
            FatalError: it does not, or has ended.
        """
        deadline = time.monotonic() + MIGRATION_S_MAX
        while not any(each["type"] == kind for each in self.events()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise FatalError(f"cluster migrate prints no {kind}: {self.said()}")
            time.sleep(0.05)

    def events(self) -> list[dict[str, Any]]:
        """The objects that it has printed so far."""
        # The last line may be half.
        whole = self._output.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def said(self) -> str:
        """The last lines of its standard error."""
        return " | ".join(self._errors.read_text().splitlines()[-5:])
