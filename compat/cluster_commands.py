"""Kafka's command-line tools on three brokers of ours, and on three of Kafka's in the same state.

The replicas of topics are given, and in between a broker is killed and comes back. All commands are
run on one cluster and then on the other, and what they print is compared as in `commands`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from compat.cluster import BROKERS, Cluster
from compat.commands import Command, Commands, differences, joined, tool, transaction
from compat.report import Report
from compat.tools import Tools
from tailrace.client.admin import Admin, ConfigResource
from tailrace.client.reader import PartitionDescription
from tailrace.protocol.config_resources import ResourceType

TOPIC = "tools"
"""Also the topic of the clients of `commands`."""
MOVED = "moved"
WAITED = ConfigResource(ResourceType.CLIENT_METRICS, "waited")
"""A resource whose settings change so that there is another record."""
AWAY = 3

_PARTITIONS: Sequence[Sequence[int]] = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
_TARGET: Sequence[Sequence[int]] = ((2, 1), (3, 2), (1, 3))
_ANY_NUMBERS = ((r"\b\d+\b", "NUMBER"),)

Answers = list[tuple[Command, Counter[str]]]


def check(report: Report, tools: Tools, directory: Path) -> None:
    """Run every command on both kinds of cluster."""
    theirs, mine = (
        answers(Cluster(tools.java, tools.jars, place, kafkas=kafkas), tools, commands)
        for kafkas in (BROKERS, ())
        for place in (directory / f"commands-{len(kafkas)}",)
    )
    compare(report, theirs, mine)


def compare(report: Report, theirs: Answers, mine: Answers) -> None:
    """Check that each command has printed the same."""
    for (asked, due), (_, found) in zip(theirs, mine, strict=True):
        report.check(
            f"{asked.shown} prints the same",
            [*differences(due, found)],
            explained="but for share groups and streams groups" if "share" in asked.only else "",
        )


def answers(
    cluster: Cluster, tools: Tools, commands: Callable[[Cluster], Iterator[Command]]
) -> Answers:
    """The output of each command on a cluster, which runs for that."""
    with cluster, Commands(tools.java, tools.jars, cluster.bootstrap_servers) as running:
        return [(each, running.lines(each)) for each in commands(cluster)]


def commands(cluster: Cluster) -> Iterator[Command]:
    """The commands; what has to happen before one happens when it is asked for."""
    yield from _topics()
    yield from _records()
    consume = joined(cluster.bootstrap_servers)
    yield from _groups()
    consume()
    end = transaction(cluster.bootstrap_servers)
    yield from _transactions()
    end()
    yield from _with_a_broker_away(cluster)
    yield from _moves(cluster, cluster.directory)
    for each in _configs():
        wait_until_known(cluster)
        yield each
    yield from _whole_cluster(cluster)


def _topic_command(shown: str, *arguments: str) -> Command:
    return tool(f"kafka-topics {shown}", *arguments, main_class="TopicCommand")


def _topics() -> Iterator[Command]:
    for name in (TOPIC, MOVED):
        replicas = ",".join(":".join(map(str, each)) for each in _PARTITIONS)
        yield _topic_command(
            f"--create --replica-assignment, {name}",
            "--create", "--topic", name, "--replica-assignment", replicas,
        )  # fmt: skip
    create = ("--create", "--topic", "refused")
    yield _topic_command(
        "--create with too many replicas", *create, "--partitions", "1",
        "--replication-factor", "4",
    )  # fmt: skip
    yield _topic_command("--create on an unknown broker", *create, "--replica-assignment", "1:9")
    yield _topic_command("--describe", "--describe", "--topic", TOPIC)
    yield _topic_command("--list", "--list")


def _records() -> Iterator[Command]:
    yield tool(
        "kafka-console-producer", "--topic", TOPIC, "--reader-property", "parse.key=true",
        "--reader-property", "key.separator=:", main_class="ConsoleProducer",
        read="".join(f"key-{number}:value {number}\n" for number in range(20)),
    )  # fmt: skip
    yield tool("kafka-get-offsets", "--topic", TOPIC, "--time", "-1", main_class="GetOffsetShell")


def _groups() -> Iterator[Command]:
    def groups(shown: str, *arguments: str) -> Command:
        asked = tool(
            f"kafka-consumer-groups {shown}", *arguments,
            main_class="consumer.group.ConsumerGroupCommand",
        )  # fmt: skip
        # Any broker may be the coordinator.
        return replace(asked, varying=((r"ADDRESS \(\d\)", "COORDINATOR"),))

    yield groups("--list", "--list")
    for protocol in ("classic", "consumer"):
        named = ("--describe", "--group", f"tools-live-{protocol}")
        for options in ((), ("--members", "--verbose"), ("--state",)):
            yield groups(f"{' '.join(('--describe', *options))}, {protocol}", *named, *options)


def _transactions() -> Iterator[Command]:
    def transactions(shown: str, *arguments: str) -> Command:
        asked = tool(
            f"kafka-transactions {shown}", "--bootstrap-server", "SERVERS", *arguments,
            main_class="TransactionsCommand", is_bootstrapped=False,
        )  # fmt: skip
        return replace(asked, varying=_ANY_NUMBERS)

    yield transactions("list", "list")
    yield transactions("describe", "describe", "--transactional-id", "tools-transaction")
    yield transactions(
        "describe-producers", "describe-producers", "--topic", TOPIC, "--partition", "0"
    )
    for broker in BROKERS:
        yield transactions(
            f"find-hanging --broker-id {broker}", "find-hanging", "--broker-id", str(broker)
        )


def _with_a_broker_away(cluster: Cluster) -> Iterator[Command]:
    cluster.brokers[AWAY].kill()
    _wait(cluster, lambda each: AWAY not in each.isr and each.leader >= 0)
    away = f"while broker {AWAY} is away"
    yield _topic_command(f"--describe {away}", "--describe", "--topic", TOPIC)
    for option in (
        "--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions",
        "--at-min-isr-partitions",
    ):  # fmt: skip
        # Others than ours have their replicas where the controller likes.
        asked = _topic_command(f"--describe {option} {away}", "--describe", option)
        yield replace(asked, only=rf"Topic: ({TOPIC}|{MOVED})|EOT")
    yield _cluster_command(f"list-endpoints {away}", "list-endpoints", "--include-fenced-brokers")
    cluster.brokers[AWAY].start()
    _wait(cluster, lambda each: AWAY in each.isr)
    election = ("--election-type", "preferred")
    for shown in ("", ", again"):
        yield tool(
            f"kafka-leader-election --election-type preferred{shown}", *election,
            "--topic", TOPIC, "--partition", str(_PARTITIONS.index((3, 1, 2))),
            main_class="LeaderElectionCommand",
        )  # fmt: skip
    yield tool(
        "kafka-leader-election --election-type unclean", "--election-type", "unclean",
        "--topic", TOPIC, "--partition", "0", main_class="LeaderElectionCommand",
    )  # fmt: skip
    # Those of all topics, of which some have led elsewhere by now; what comes of it is shown below.
    asked = tool(
        "kafka-leader-election --all-topic-partitions", *election, "--all-topic-partitions",
        main_class="LeaderElectionCommand",
    )  # fmt: skip
    yield replace(asked, only="EOT")
    _wait(cluster, lambda each: each.leader == each.replicas[0])
    yield _topic_command("--describe after elections", "--describe", "--topic", TOPIC)


def _moves(cluster: Cluster, directory: Path) -> Iterator[Command]:
    def reassign(shown: str, *arguments: str) -> Command:
        return tool(
            f"kafka-reassign-partitions {shown}", *arguments,
            main_class="reassign.ReassignPartitionsCommand",
        )  # fmt: skip

    plan, asked = directory / "plan.json", directory / "asked.json"
    moves = [
        {"topic": MOVED, "partition": number, "replicas": replicas}
        for number, replicas in enumerate(_TARGET)
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    asked.write_text(json.dumps({"version": 1, "topics": [{"topic": MOVED}]}))
    given = ("--reassignment-json-file", str(plan))
    yield replace(
        reassign(
            "--generate", "--generate", "--topics-to-move-json-file", str(asked),
            "--broker-list", "1,2,3",
        ),
        # What it proposes is drawn.
        varying=((r'(?<="replicas":)\[[\d,]+\](?=.*"log_dirs")', "REPLICAS"),),
    )  # fmt: skip
    yield reassign("--execute", "--execute", *given)
    _wait_for_moves(cluster)
    yield reassign("--verify", "--verify", *given)
    yield reassign("--list", "--list")
    yield reassign("--cancel of nothing", "--cancel", *given)
    yield _topic_command("--describe after moves", "--describe", "--topic", MOVED)
    throttled = reassign("--execute --throttle", "--execute", "--throttle", "1000000", *given)
    yield throttled
    _wait_for_moves(cluster)
    yield reassign("--verify, which ends the throttle", "--verify", *given)
    yield tool(
        "kafka-log-dirs", "--describe", "--topic-list", f"{TOPIC},{MOVED}",
        main_class="LogDirsCommand", varying=((r'(?<="size":)\d+', "BYTES"),),
    )  # fmt: skip
    yield tool(
        "kafka-log-dirs --broker-list", "--describe", "--broker-list", "1,3", "--topic-list",
        TOPIC, main_class="LogDirsCommand", varying=((r'(?<="size":)\d+', "BYTES"),),
    )  # fmt: skip


def _configs() -> Iterator[Command]:
    def configs(shown: str, *arguments: str) -> Command:
        asked = tool(f"kafka-configs {shown}", *arguments, main_class="")
        return replace(asked, main_class="kafka.admin.ConfigCommand")

    for shown, named in (
        ("of a topic", ("--entity-type", "topics", "--entity-name", TOPIC)),
        ("of a broker", ("--entity-type", "brokers", "--entity-name", "2")),
        ("of all brokers", ("--entity-type", "brokers", "--entity-default")),
        ("of a group", ("--entity-type", "groups", "--entity-name", "tools-live-consumer")),
    ):
        name, value = {
            "of a topic": ("max.message.bytes", "12345"),
            "of a group": ("consumer.session.timeout.ms", "50000"),
        }.get(shown, ("log.cleaner.threads", "2"))
        yield configs(f"--alter {shown}", "--alter", *named, "--add-config", f"{name}={value}")
        yield configs(f"--describe {shown}", "--describe", *named)
        yield configs(f"--alter {shown}, refused", "--alter", *named, "--add-config", f"{name}=x")
        yield configs(f"--delete-config {shown}", "--alter", *named, "--delete-config", name)
        yield configs(f"--describe {shown} after it", "--describe", *named)


def _cluster_command(shown: str, *arguments: str) -> Command:
    asked = tool(
        f"kafka-cluster {shown}", arguments[0], "--bootstrap-server", "SERVERS", *arguments[1:],
        main_class="ClusterTool", is_bootstrapped=False,
    )  # fmt: skip
    return replace(asked, varying=((r"\b\d{5}\b", "PORT"),))


def _whole_cluster(cluster: Cluster) -> Iterator[Command]:
    yield _cluster_command("cluster-id", "cluster-id")
    yield _cluster_command("list-endpoints", "list-endpoints")
    yield _cluster_command("unregister of none", "unregister", "--id", "9")
    for what in ("--status", "--replication"):
        asked = tool(
            f"kafka-metadata-quorum describe {what}", "describe", what,
            main_class="MetadataQuorumCommand",
        )  # fmt: skip
        # Who leads and how far each is differs; that all are there does not.
        ids = "|".join(map(str, (*cluster.controllers, *cluster.brokers)))
        numbers = (rf"(?<![\w\[\" ])(?!(?:{ids})\b)\d+|(?<=[:\t ])\d+$", "NUMBER")
        directory = (r"(?<![\w-])[\w-]{22}(?![\w-])", "ID")
        yield replace(
            asked, varying=(directory, numbers, (r"LeaderId: .*", "LEADER"), (r"-?\b\d+\b", "N"))
        )
    yield tool(
        "kafka-features describe", "describe", main_class="FeatureCommand",
        varying=((r"(?<=Epoch: )\d+", "EPOCH"),), only=r"^(?!.*(?:share|streams)\.version)",
    )  # fmt: skip
    cluster.brokers[AWAY].stop()
    yield _cluster_command("unregister", "unregister", "--id", str(AWAY))
    yield _cluster_command("list-endpoints after it", "list-endpoints", "--include-fenced-brokers")


def _wait(cluster: Cluster, holds: Callable[[PartitionDescription], bool]) -> None:
    cluster.wait(
        "the partitions are as the next command needs them",
        lambda: all(map(holds, cluster.partitions((TOPIC, MOVED)).values())),
    )


def wait_until_known(cluster: Cluster) -> None:
    """Return when every broker has what the commands so far have changed."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        before = admin.describe_metadata_quorum().high_watermark
        # A controller of ours writes nothing while nothing happens.
        admin.incremental_alter_configs(
            {WAITED: {"interval.ms": 60_000 + before % 60_000}}
        ).results()

        def is_known() -> bool:
            # A broker asks for what follows when it has applied what came, or just before: each
            # must have asked again behind a record that has come since.
            return all(
                each.log_end_offset > before for each in admin.describe_metadata_quorum().observers
            )

        cluster.wait("the brokers have all records of metadata", is_known)


def _wait_for_moves(cluster: Cluster) -> None:
    def is_moved() -> bool:
        found = cluster.partitions((MOVED,)).values()
        return [[*each.replicas] for each in found] == [[*each] for each in _TARGET]

    cluster.wait("the partitions have moved", is_moved)
