"""`make compat-kafka`: every check against a real Apache Kafka, one line each.

    python -m compat.run [--only PART] [--keep DIR] [--write]

From the root of the checkout. Exit code 1 if a check fails, 2 if Kafka cannot be had or started.
"""

import argparse
import logging
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka
from confluent_kafka import KafkaException

from compat import (
    acl_answers,
    administering,
    administering_both,
    answers,
    both_roles,
    broker_settings,
    changing_listeners,
    checkpoints,
    cleaning,
    cleaning_again,
    cluster_commands,
    clusters,
    commands,
    consuming,
    controller_commands,
    controller_records,
    controllers,
    coordinating,
    created_again,
    damaged,
    default_layout,
    encoding,
    equality,
    exactly_once,
    following_metadata,
    framing,
    handing_over,
    interchange,
    kafka_to_us,
    kerberos,
    keyed_order,
    killed,
    limits,
    listeners,
    lives,
    metadata_turns,
    migrating,
    old_formats,
    old_metadata,
    others,
    our_controller,
    own_controller,
    partition_changes,
    placing,
    plain_answers,
    producer_ids,
    producing,
    quotas,
    reading,
    recovering,
    schemas,
    secured_clients,
    securing,
    settings,
    topic_patterns,
    transaction_answers,
    transaction_loops,
    upstream,
    us_to_kafka,
    users,
    verifying,
)
from compat.artifacts import KAFKA, OLD_KAFKA, Release, class_path, old_release
from compat.kafka import Kafka
from compat.old_kafka import WITHOUT_TOPIC_IDS, OldKafka
from compat.processes import START_SECONDS_MAX
from compat.processes import run as run_program
from compat.report import Report, page
from compat.tools import Tools, find_tools
from definitions.__main__ import differing
from tailrace.errors import FatalError

DISK = "/var/tmp"  # noqa: S108 - a directory of our own is made in it
"""Directory of all files of a run."""

PAGE = Path("docs/compatibility.md")


def check_nodes(report: Report, tools: Tools, directory: Path) -> None:
    """Check a node alone, and a Kafka alone; its files, and the clients of both."""
    java, jars = tools.java, tools.jars
    kafka = Kafka(java, jars, directory / "kafka")
    written = kafka_to_us.write(kafka)
    report.section("Kafka writes, Tailrace opens")
    kafka_to_us.check_opening(report, written, directory)
    report.section("The same appends to both")
    equality.check(report, written, directory)
    report.section("Kafka's consumer and dump tool, and our tools and Spark source")
    reading.check(report, kafka, written, directory)
    report.section("The same damage given to both")
    recovering.check(report, kafka, directory)
    report.section("The same logs compacted by both")
    cleaning.check(report, kafka, directory)
    report.section("One transactional log, damaged in many ways")
    damaged.check(report, kafka, directory)
    report.section("Logs compacted several times, by Kafka and Tailrace in turn")
    cleaning_again.check(report, kafka, directory)
    report.section("The same questions to both brokers")
    answers.check(report, kafka, directory)
    report.section("Kafka is killed, Tailrace recovers")
    kafka_to_us.check_after_kill(report, kafka, directory)
    report.section("Kafka is killed, and its small files are damaged")
    damaged_kafka = Kafka(java, jars, directory / "checkpoints")
    checkpoints.check(report, damaged_kafka, kafka.logs, directory)
    report.section("Tailrace writes, Kafka opens")
    us_to_kafka.check(report, Kafka(java, jars, directory / "ours"), directory)
    report.section("A directory of Kafka's default layout, used by both in turn")
    default_layout.check(report, Kafka(java, jars, directory / "default-layout"), directory)
    report.section("The metadata log, written by both in turn")
    metadata_turns.check_format(report, Kafka(java, jars, directory / "formatted-kafka"), directory)
    both, alone = (Kafka(java, jars, directory / each) for each in ("turns", "turns-alone"))
    metadata_turns.check(report, both, alone)
    report.section(
        "The metadata log of Kafka, followed by an observer, and the copy given to Kafka"
    )
    followed = Kafka(java, jars, directory / "followed-metadata")
    following_metadata.check(report, followed, directory)
    named = Kafka(java, jars, directory / "voters-in-log", format_options=["--standalone"])
    following_metadata.check_voters_in_log(report, named, directory)
    report.section("A broker of ours asks Kafka's controller")
    controllers.check(report, Kafka(java, jars, directory / "controllers"))
    report.section("A directory handed over with the settings of tailrace handover")
    handed_over = Kafka(java, jars, directory / "handed-over")
    handing_over.check(report, handed_over)
    handing_over.check_folders(report, handed_over, java, jars)
    report.section("The metadata logs of earlier releases, taken over and given back")

    def old(release: Release) -> Kafka:
        jars = class_path(release, os.environ)
        return Kafka(java, jars, directory / f"metadata-{release.version}")

    old_metadata.check(report, old)
    report.section("Tailrace is killed, Kafka recovers")
    killed.check(report, Kafka(java, jars, directory / "killed-kafka"), directory)
    report.section("Our verify beside both brokers at work, after kills and after a stop")
    verifying.check(report, Kafka(java, jars, directory / "verified"), directory)
    report.section("Several partitions over several directories")
    placing.check(report, Kafka(java, jars, directory / "placed"), directory)
    placing.check_apart(report, Kafka(java, jars, directory / "placed-apart"))
    report.section("Producer ids handed out in turn")
    producer_ids.check(report, Kafka(java, jars, directory / "producer-ids"))
    report.section(f"Kafka {OLD_KAFKA.version} writes formats v0, v1 and v2, Tailrace opens")
    old_formats.check(report, OldKafka(java, tools.old_jars, directory / "old-kafka"), directory)
    report.section("Messages and records of coordinators")
    report.check("the message tables are those of Kafka's definitions", differing(KAFKA.version))
    encoding.check(report, java, jars, directory)
    limits.check(report, java, jars, directory)
    settings.check(report, java, jars)
    listeners.check(report, java, jars, directory)
    coordinating.check(report, Kafka(java, jars, directory / "coordinating"), directory)
    report.section("Requests of transactional producers in every state, to both brokers")
    transaction_answers.check(report, Kafka(java, jars, directory / "transaction-answers"))
    report.section("Requests of clients with and without rights, to both brokers")
    acl_answers.check(report, Kafka(java, jars, directory / "acl-answers"))
    report.section("Quotas of clients: the same load at both, and one directory in turn")
    quotas.check(report, Kafka(java, jars, directory / "quotas"), directory)
    report.section("Groups and transactions of one directory, served by both in turn")
    interchange.check(report, Kafka(java, jars, directory / "interchange"))
    report.section("Framings of compressed batches, produced to both and read by clients")
    framing.check(report, Kafka(java, jars, directory / "framings"), java, jars, directory)
    report.section("Clients of other languages use our broker")
    others.check(report, tools.others, directory)
    report.section("Producers that end a transaction and begin the next at once, on both brokers")
    looping = Kafka(java, jars, directory / "transaction-loops-kafka")
    transaction_loops.check(report, tools.others, looping, directory)
    report.section("Our producer sends to Kafka")
    producing.check(report, Kafka(java, jars, directory / "producing"), directory)
    report.section("Our consumer reads from Kafka")
    consuming.check(report, Kafka(java, jars, directory / "consuming"))
    report.section("The life of our consumer, ended in ten ways")
    lives.check(report, Kafka(java, jars, directory / "lives"))
    report.section("Our producer sends keys to three Kafkas whose leaders go away")
    keyed_order.check(report, keyed_order.Cluster(java, jars, directory / "keyed-order"))
    report.section("Spark writes to Kafka exactly once, and is killed")
    exactly_once.check(report, Kafka(java, jars, directory / "exactly-once"), version=KAFKA.version)
    earlier = old_release("3.9.1")
    exactly_once.check(
        report,
        Kafka(java, class_path(earlier, os.environ), directory / "exactly-once-earlier"),
        version=earlier.version,
    )
    report.section("Topics of Kafka are created again between the runs of jobs on Spark")
    created_again.check(report, Kafka(java, jars, directory / "created-again"))
    created_again.check_without_ids(
        report,
        OldKafka(java, tools.old_jars, directory / "without-ids", protocol=WITHOUT_TOPIC_IDS),
    )
    report.section("Our clients log in to Kafka")
    securing.check(report, Kafka(java, jars, directory / "securing"), directory)
    users.check(
        report,
        Kafka(java, jars, directory / "users"),
        Kafka(java, jars, directory / "users-of-kafka", format_options=users.DAVE),
    )
    if kerberos.is_installed():
        report.section("Logins with Kerberos, ours to Kafka and Kafka's to our broker")
        kerberos.check(report, java, jars, directory / "kerberos")
    else:
        report.say("left out: Kerberos, because there is no KDC or no package gssapi here")
    report.section("Our admin client administers Kafka")
    administering.check(report, Kafka(java, jars, directory / "administering"))
    report.section("Every operation of our admin client, on both brokers")
    administering_both.check(report, Kafka(java, jars, directory / "administering-both"))
    report.section("Requests for what neither broker is set up for")
    plain_answers.check(report, Kafka(java, jars, directory / "plain-answers"))
    report.section("Settings of brokers, changed while they run")
    settled = Kafka(java, jars, directory / "broker-settings")
    broker_settings.check(report, settled, java, jars, directory)
    report.section("Kafka's command-line tools, on both brokers")
    commands.check(report, Kafka(java, jars, directory / "commands"), java, jars, directory)
    report.section("Confluent's serializers and ours, with a registry between them")
    schemas.check(report, os.environ)
    report.section("Topics by expressions, as Spark's connector and Java select them")
    topic_patterns.check(
        report, Kafka(java, jars, directory / "topic-patterns"), java, jars, directory
    )
    report.section("The tests of Python's Kafka clients, on both brokers")
    suites = upstream.find_suites(os.environ, directory)
    upstream.check(report, Kafka(java, jars, directory / "suites"), suites, directory)


def check_rules(report: Report, tools: Tools, directory: Path) -> None:
    """Check the decisions of our controller."""
    report.section("Our controller's rules, against Kafka's classes and with Kafka's brokers")
    partition_changes.check(report, tools.java, tools.jars, directory)
    our_controller.check(report, tools.java, tools.jars, directory)


_CLUSTERS = {
    "Three brokers of Tailrace and three controllers of Kafka": (),
    "Two brokers of Tailrace, one of Kafka and three controllers of Kafka": (2,),
}
"""The brokers that are Kafka's, by how a section names the cluster."""


def check_clusters(report: Report, tools: Tools, directory: Path) -> None:
    """Check clusters whose nodes fail."""
    for name, kafkas in _CLUSTERS.items():
        report.section(name)
        clusters.check(report, tools, directory / f"cluster-{len(kafkas)}", kafkas=kafkas)


def check_cluster_clients(report: Report, tools: Tools, directory: Path) -> None:
    """Check clients of clusters."""
    for name, kafkas in _CLUSTERS.items():
        report.section(f"{name}, used by the clients of other sections")
        place = directory / f"cluster-clients-{len(kafkas)}"
        clusters.check_clients(report, tools, place, kafkas=kafkas)


def check_changing_listeners(report: Report, tools: Tools, directory: Path) -> None:
    """Check changes of the listeners of brokers that run."""
    report.section("Listeners that come and go while a broker runs, on both brokers")
    kafka = Kafka(tools.java, tools.jars, directory / "changing-listeners")
    changing_listeners.check(report, kafka)


def check_cluster_commands(report: Report, tools: Tools, directory: Path) -> None:
    """Check Kafka's tools on clusters."""
    report.section("Kafka's command-line tools, on three brokers of either kind")
    cluster_commands.check(report, tools, directory)


def check_migration(report: Report, tools: Tools, directory: Path) -> None:
    """Check the move of a live cluster."""
    report.section("A live cluster of Kafka's brokers moves to Tailrace and back")
    migrating.check(report, tools, directory / "migrating")


def check_own_controller(report: Report, tools: Tools, directory: Path) -> None:
    """Check brokers of both kinds whose controller is ours."""
    report.section("A broker of Tailrace and two of Kafka, and the controller of Tailrace")
    own_controller.check(report, tools, directory / "own-controller")


def check_controller_commands(report: Report, tools: Tools, directory: Path) -> None:
    """Check Kafka's tools on a cluster whose controller is ours."""
    report.section("Kafka's command-line tools, on brokers of Kafka and the controller of Tailrace")
    controller_commands.check(report, tools, directory / "controller-commands")


def check_controller_records(report: Report, tools: Tools, directory: Path) -> None:
    """Check our controller beside Kafka's, each alone."""
    report.section("The same requests to Kafka's controller and to ours, and their logs")
    controller_records.check(report, tools, directory / "controller-records")


def check_both_roles(report: Report, tools: Tools, directory: Path) -> None:
    """Check brokers of Kafka whose controller is one of our brokers too."""
    report.section("Two brokers of Kafka, and one of Tailrace that is the controller too")
    both_roles.check(report, tools, directory / "both-roles")


def check_secured_clients(report: Report, tools: Tools, directory: Path) -> None:
    """Check clients of several languages with certificates and logins."""
    report.section("Clients of five languages with certificates and logins, on both brokers")
    secured_clients.check(report, tools, directory / "secured-clients")


PARTS: Mapping[str, Callable[[Report, Tools, Path], None]] = {
    "nodes": check_nodes,
    "rules": check_rules,
    "clusters": check_clusters,
    "cluster-clients": check_cluster_clients,
    "cluster-commands": check_cluster_commands,
    "own-controller": check_own_controller,
    "controller-commands": check_controller_commands,
    "both-roles": check_both_roles,
    "controller-records": check_controller_records,
    "migration": check_migration,
    "secured-clients": check_secured_clients,
    "changing-listeners": check_changing_listeners,
}
"""All checks; a part needs nothing of another.

Each raises FatalError where Kafka does not do what it has to for a check to mean something.
"""


def versions(java: Path) -> dict[str, str]:
    """Return the versions of all parties, by name."""
    told = run_program([str(java), "-version"], name="Java", seconds_max=START_SECONDS_MAX)
    return {
        "Apache Kafka": f"{KAFKA.version} (KRaft) and {OLD_KAFKA.version} (ZooKeeper)",
        "Java": told.split('"')[1],
        "librdkafka": confluent_kafka.libversion()[0],
        "Python": platform.python_version(),
    }


def main() -> None:
    """Read the arguments, fetch, run, and tell."""
    parser = argparse.ArgumentParser(description="Prove Tailrace against Apache Kafka.")
    parser.add_argument(
        "--only", choices=PARTS, metavar="PART", help=f"one of the parts: {', '.join(PARTS)}"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave all files in a new DIR")
    parser.add_argument(
        "--write",
        action="store_true",
        help=f"when everything has passed, write {PAGE}, or the sections of PART in it",
    )
    chosen = parser.parse_args()
    if chosen.keep is not None and chosen.keep.exists():
        parser.error(f"--keep: {chosen.keep} is there already; name a new folder")
    started = time.monotonic()
    logging.disable(logging.CRITICAL)
    for number in (signal.SIGINT, signal.SIGTERM):
        # Also where a shell has had SIGINT ignored: whatever ends us has to end Kafka first.
        signal.signal(number, signal.default_int_handler)

    def say(line: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {line}", flush=True)

    report = Report(say=say)
    try:
        tools = find_tools()
        with ExitStack() as stack:
            if chosen.keep is not None:
                chosen.keep.mkdir(parents=True)
                scratch = chosen.keep.resolve()
            else:
                held = tempfile.TemporaryDirectory(prefix="tailrace-compat-", dir=DISK)
                scratch = Path(stack.enter_context(held))
            for name, check in PARTS.items():
                if chosen.only in {None, name}:
                    check(report, tools, scratch)
        if chosen.write and not report.failed:
            # The sections of the other parts stay as an earlier run has left them.
            kept = PAGE.read_text() if chosen.only is not None else ""
            today = datetime.now(UTC).date().isoformat()
            found = versions(tools.java)
            PAGE.write_text(page(report.checks, date=today, versions=found, kept=kept))
    except KeyboardInterrupt:
        sys.exit(130)
    except (FatalError, KafkaException, OSError) as error:
        if not isinstance(error, FatalError):
            # With its place: the sentence does not say which of many brokers it is about.
            traceback.print_exc()
        print(f"compat: {error}", file=sys.stderr)
        sys.exit(2)
    if report.failed:
        print(f"{len(report.failed)} checks failed, {report.passed} passed")
        sys.exit(1)
    told = f"{KAFKA.version} and {OLD_KAFKA.version}"
    print(f"{report.passed} checks passed against Apache Kafka {told}")


if __name__ == "__main__":
    main()
