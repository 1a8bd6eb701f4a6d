"""Kafka's command-line tools where the only controller is ours, and where it is Kafka's.

All commands of `cluster_commands`, and more of those that a controller answers: topics and settings
that are refused, and levels of features. The brokers are Kafka's, so that what differs is the
controller's.

Not here: moves that do not end, unclean elections, and the tools that ask the controller
itself (KIP-919); `controller_records` has the requests of the first two.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from compat import cluster_commands
from compat.cluster import BROKERS, CONTROLLERS, Cluster
from compat.cluster_commands import AWAY, TOPIC, answers, compare, wait_until_known
from compat.commands import Command, tool
from compat.kafka import Kafka
from compat.metadata_turns import undumped
from compat.report import Report
from compat.tools import Tools
from tailrace.client.admin import Admin


def check(report: Report, tools: Tools, directory: Path) -> None:
    """Run every command on each cluster."""
    theirs, mine = (
        Cluster(
            tools.java, tools.jars, directory / name, kafkas=BROKERS,
            has_own_controller=is_ours, has_one_controller=not is_ours,
        )
        for name, is_ours in (("theirs", False), ("ours", True))
    )  # fmt: skip
    compare(report, answers(theirs, tools, _commands), answers(mine, tools, _commands))
    kafka = Kafka(tools.java, tools.jars, directory / "dump")
    report.check(
        "Kafka's dump tool reads every record of the controller's log",
        [*undumped(kafka, mine.controllers[CONTROLLERS[0]].logs)],
    )


def _commands(cluster: Cluster) -> Iterator[Command]:
    yield from cluster_commands.commands(cluster)
    # The last of them has unregistered it.
    cluster.brokers[AWAY].start()
    cluster.wait("the broker is back", lambda: len(_serving(cluster)) == len(BROKERS))
    for make in (_topics, _configs, _features):
        for each in make(cluster):
            wait_until_known(cluster)
            yield each


def _serving(cluster: Cluster) -> list[int]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return [each.id for each in admin.describe_cluster().brokers]


def _topics(_: Cluster) -> Iterator[Command]:
    def topics(shown: str, *arguments: str) -> Command:
        return tool(f"kafka-topics {shown}", *arguments, main_class="TopicCommand")

    one = ("--partitions", "1", "--replication-factor", "1")
    create = ("--create", "--topic")
    for name in ("a.b", "a_b", "a/b", "..", TOPIC):
        yield topics(f"--create {name}", *create, name, *one)
    yield topics("--create --if-not-exists", *create, TOPIC, *one, "--if-not-exists")
    for config in (
        "retention.ms=1000", "retention.ms=x", "cleanup.policy=never", "min.insync.replicas=0",
        "no.such.setting=1",
    ):  # fmt: skip
        yield topics(f"--create --config {config}", *create, "configured", *one, "--config", config)
    for assignment in ("1:1", "1:2,3", "3:1,2:3"):
        yield topics(
            f"--create --replica-assignment {assignment}",
            *create, "assigned", "--replica-assignment", assignment,
        )  # fmt: skip
    alter = ("--alter", "--topic", "assigned", "--partitions")
    yield topics("--alter --partitions", *alter, "4", "--replica-assignment", "3:1,2:3,1:2,2:1")
    yield topics("--alter to the same number", *alter, "4")
    yield topics("--alter to fewer", *alter, "1")
    given = ("5", "--replica-assignment", "3:1,2:3,1:2,2:1")
    yield topics("--alter on an unknown broker", *alter, *given[:2], f"{given[2]},1:9")
    yield topics("--alter with another factor", *alter, *given[:2], f"{given[2]},1")
    yield topics("--describe after it", "--describe", "--topic", "assigned")
    overrides = ("--describe", "--topics-with-overrides")
    yield replace(topics("--describe --topics-with-overrides", *overrides), only="configured|EOT")
    for name in ("assigned", "a.b", "none"):
        yield topics(f"--delete {name}", "--delete", "--topic", name)
    yield topics("--delete --if-exists", "--delete", "--topic", "none", "--if-exists")
    yield topics("--list after it", "--list")


_DEFAULT = ("--entity-default",)


def _config_command(shown: str, *arguments: str, is_bootstrapped: bool = True) -> Command:
    asked = tool(f"kafka-configs {shown}", *arguments, main_class="")
    return replace(asked, main_class="kafka.admin.ConfigCommand", is_bootstrapped=is_bootstrapped)


def _configs(_: Cluster) -> Iterator[Command]:
    for kind, name, values in (
        ("topics", TOPIC, ("cleanup.policy=[compact,delete]", "min.insync.replicas=1",
                           "min.insync.replicas=0", "no.such.setting=1")),
        ("topics", "none", ("retention.ms=1",)),
        ("client-metrics", "metrics", ("interval.ms=30000", "interval.ms=1", "interval.ms=x",
                                       "match=[client_id=a.*]", "match=[color=red]",
                                       "metrics=[org.apache.kafka.]", "no.such.setting=1")),
        ("groups", "group", ("consumer.session.timeout.ms=50000", "no.such.setting=1",
                             "consumer.session.timeout.ms=1", "consumer.session.timeout.ms=x",
                             "consumer.heartbeat.interval.ms=6000")),
        ("brokers", "", ("log.retention.ms=123456789", "min.insync.replicas=2",
                         "no.such.setting=1", "process.roles=broker")),
        ("brokers", "2", ("log.retention.ms=123456789", "min.insync.replicas=2")),
    ):  # fmt: skip
        named = ("--entity-type", kind, *(("--entity-name", name) if name else _DEFAULT))
        for value in values:
            yield _config_command(
                f"--alter of {kind} {name}, {value}", "--alter", *named, "--add-config", value
            )
        yield _config_command(f"--describe of {kind} {name}", "--describe", *named)
        added = dict.fromkeys(each.partition("=")[0] for each in values)
        for each in added:
            yield _config_command(
                f"--delete-config of {kind} {name}, {each}", "--alter", *named,
                "--delete-config", each,
            )  # fmt: skip
        yield _config_command(f"--describe of {kind} {name}, again", "--describe", *named)


def _features(_: Cluster) -> Iterator[Command]:
    def features(shown: str, *arguments: str) -> Command:
        return tool(
            f"kafka-features {shown}", *arguments, main_class="FeatureCommand",
            varying=(_EPOCH, (r"^(Could not .*? to \d+\.).*", r"\1 WORDS")), only=_NOT_SHARED,
        )  # fmt: skip

    for change, *feature in (
        ("upgrade", "group.version=1"),
        ("downgrade", "group.version=0", "--dry-run"),
        ("downgrade", "group.version=0"),
        ("upgrade", "group.version=0"),
        ("upgrade", "group.version=1", "--dry-run"),
        ("upgrade", "group.version=1"),
        ("downgrade", "transaction.version=1"),
        ("downgrade", "transaction.version=2"),
        ("upgrade", "transaction.version=2"),
        ("upgrade", "transaction.version=9"),
        ("upgrade", "no.such.version=1"),
        ("disable", "group.version"),
        ("upgrade", "group.version=1"),
        ("upgrade", "kraft.version=1"),
        ("downgrade", "kraft.version=0"),
        ("downgrade", "eligible.leader.replicas.version=0"),
        ("upgrade", "eligible.leader.replicas.version=1"),
        ("upgrade", "metadata.version=30"),
        ("downgrade", "metadata.version=29"),
    ):
        yield features(f"{change} {' '.join(feature)}", change, "--feature", *feature)
    for change, option, release in (
        ("upgrade", "--metadata", "4.3-IV0"),
        ("upgrade", "--metadata", "4.2-IV1"),
        ("downgrade", "--metadata", "4.2-IV1"),
        ("downgrade", "--metadata", "3.0-IV1"),
        ("upgrade", "--release-version", "4.3-IV0"),
        ("downgrade", "--release-version", "4.2-IV1"),
    ):
        yield features(f"{change} {option} {release}", change, option, release)
    unsafe = ("downgrade", "--unsafe", "--metadata", "4.2-IV1")
    yield features(" ".join(unsafe), *unsafe)
    yield features("describe after it", "describe")


_EPOCH = (r"(?<=Epoch: )\d+", "EPOCH")
_NOT_SHARED = r"^(?!.*(?:share|streams)\.version)"
