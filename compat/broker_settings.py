"""The settings of a broker, described and changed while it runs, on Kafka and on our broker.

Each of Kafka's names is compared: type, default, synonyms, and whether it is secret. Then settings
are changed for one broker and for all, and deleted, with `kafka-configs` of all kinds of resources,
and moves of partitions are verified and cancelled, which deletes throttles that were never set.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from compat import ours
from compat.commands import Command, Commands
from compat.kafka import Kafka
from compat.plain_answers import ask
from compat.report import Report
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

_TOOLS = "org.apache.kafka.tools"
OURS_ALONE = frozenset({
    "allow.everyone.if.no.acl.found", "group.consumer.regex.refresh.interval.ms",
    "log.initial.task.delay.ms", "min.incremental.fetch.session.eviction.ms",
    "producer.id.expiration.check.interval.ms",
    "replica.alter.log.dirs.io.max.bytes.per.second", "ssl.key.location", "super.users",
    "tailrace.decompressed.batch.bytes.max", "tailrace.durability", "tailrace.http.listener",
    "tailrace.log.format", "tailrace.opentelemetry.metrics", "tailrace.shutdown.timeout.ms",
    "tailrace.slow.request.ms",
    "unclean.leader.election.interval.ms",
})  # fmt: skip
"""Settings that Kafka has under no name, or does not show."""
OTHER_DEFAULTS = frozenset({
    "broker.id", "controller.listener.names", "listeners", "log.dir",
    "log.flush.scheduler.interval.ms", "max.connections", "max.connections.per.ip", "node.id",
    "process.roles", "queued.max.request.bytes",
})  # fmt: skip
"""Settings whose default is another here, for which docs/configuration.md has reasons, or that
Kafka demands to be given."""
CHANGES = (
    ("1", "log.cleaner.threads=2,log.cleaner.io.max.bytes.per.second=1000000"),
    ("1", "max.connections.per.ip=100,max.connections.per.ip.overrides=[127.0.0.2:7]"),
    ("1", "transaction.partition.verification.enable=false,producer.id.expiration.ms=100000"),
    ("", "log.retention.ms=5000000,log.cleaner.threads=1,message.max.bytes=2000000"),
    ("", "log.cleanup.policy=[compact,delete],max.connections=1000"),
)
"""Changes by broker, "" for all."""


class Entry(NamedTuple):
    """A setting as a broker describes it."""

    default: str | None
    type: int
    is_sensitive: bool
    dynamic: tuple[tuple[str, str | None, int], ...]
    """Name, value and source of what was changed while it ran."""


def check(report: Report, kafka: Kafka, java: Path, class_path: str, directory: Path) -> None:
    """Every check, on a Kafka whose directory is new."""
    mine = directory / "broker-settings-ours"
    mine.mkdir()
    moves = directory / "moves.json"
    partition = {"topic": "moved", "partition": 0, "replicas": [1]}
    moves.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    with kafka, ours.serving(mine) as servers:
        both = (kafka.bootstrap_servers, servers)
        tools = [Commands(java, class_path, each) for each in both]
        with tools[0], tools[1]:
            for command in _commands(moves):
                due, printed = (tool.lines(command) for tool in tools)
                report.check(
                    f"{command.shown} prints the same",
                    [f"{each!r}: {due[each]} and {printed[each]} times"
                     for each in sorted(due | printed) if due[each] != printed[each]],
                )  # fmt: skip
        theirs, found = (described(each) for each in both)
        report.check(
            f"{len(theirs)} settings of a broker are described as by Kafka, changed ones too",
            [*_differences(theirs, found)],
            explained="but for other defaults, and which of them may change",
        )
    with kafka, ours.serving(mine) as servers:
        report.check(
            "and is there after a restart of both",
            [*_differences(described(kafka.bootstrap_servers), described(servers))],
        )
    with ours.serving(kafka.logs) as servers:
        report.check(
            "our broker has the settings that Kafka has stored in its directory",
            [*_differences(theirs, described(servers))],
        )
        change = IncrementalAlterableConfig(
            name="message.max.bytes", config_operation=ConfigOperation.SET, value="3000000"
        )
        resource = IncrementalAlterConfigsResource(
            resource_type=4, resource_name="", configs=(change,)
        )
        ask(servers, IncrementalAlterConfigsRequest(resources=(resource,)), 1)
        found = described(servers)
    with kafka:
        report.check(
            "and Kafka has those that our broker has stored there",
            [*_differences(described(kafka.bootstrap_servers), found)],
        )


def described(servers: str, broker: str = "1") -> dict[str, Entry]:
    """Every setting of a broker, by name."""
    resource = DescribeConfigsResource(
        resource_type=4, resource_name=broker, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True)
    response = ask(servers, request, 4)
    assert isinstance(response, DescribeConfigsResponse)
    found = {}
    for each in response.results[0].configs:
        synonyms = [(one.name, one.value, one.source) for one in each.synonyms]
        defaults = [value for name, value, source in synonyms if source == 5 and name == each.name]
        found[each.name] = Entry(
            default=defaults[0] if defaults else None,
            type=each.config_type,
            is_sensitive=each.is_sensitive,
            dynamic=tuple(one for one in synonyms if one[2] in (2, 3)),
        )
    return found


def _differences(theirs: Mapping[str, Entry], mine: Mapping[str, Entry]) -> Iterator[str]:
    for name in sorted(theirs.keys() | mine.keys() - OURS_ALONE):
        due, found = theirs.get(name), mine.get(name)
        if due is not None and found is not None and name in OTHER_DEFAULTS:
            found = found._replace(default=due.default)
        if due != found:
            yield f"{name}: {due} from Kafka, {found} from us"


def _commands(moves: Path) -> Iterator[Command]:
    brokers = ("--entity-type", "brokers")
    for broker, added in CHANGES:
        named = ("--entity-name", broker) if broker else ("--entity-default",)
        yield _configs("--alter", *brokers, *named, "--add-config", added)
    yield _configs("--describe", *brokers, "--entity-name", "1")
    yield _configs("--describe", *brokers, "--entity-default")
    yield _configs("--describe", *brokers)
    first = ("--entity-name", "1")
    gone = "producer.id.expiration.ms,max.connections.per.ip.overrides"
    yield _configs("--alter", *brokers, *first, "--delete-config", gone)
    for refused in ("log.dirs=/x", "log.cleaner.threads=x", "log.retention.hours=1"):
        yield _configs("--alter", *brokers, *first, "--add-config", refused)
    loggers = ("--entity-type", "broker-loggers", *first)
    yield _configs("--alter", *loggers, "--add-config", "root=WARN")
    yield _configs("--alter", *loggers, "--add-config", "no.such=WARN")
    yield _configs("--alter", *loggers, "--add-config", "root=LOUD")
    metrics = ("--entity-type", "client-metrics", "--entity-name", "sub")
    yield _configs("--alter", *metrics, "--add-config", "interval.ms=1000,metrics=[a.,b.]")
    yield _configs("--describe", *metrics)
    yield _configs("--alter", *metrics, "--delete-config", "interval.ms")
    for shown in ("--list", "--describe"):
        yield _tool(f"kafka-client-metrics {shown}", shown, main_class="ClientMetricsCommand")
    users = ("--entity-type", "users", "--entity-name", "alice")
    scram = "SCRAM-SHA-256=[iterations=8192,password=secret]"
    yield _configs("--alter", *users, "--add-config", scram)
    yield _configs("--describe", *users)
    yield _configs("--alter", *users, "--delete-config", "SCRAM-SHA-256")
    yield _configs("--describe", "--entity-type", "clients")
    yield _tool(
        "kafka-topics --create", "--create", "--topic", "moved", "--partitions", "1",
        main_class="TopicCommand",
    )  # fmt: skip
    for step in ("--execute", "--verify", "--cancel"):
        yield _tool(
            f"kafka-reassign-partitions {step}", step, "--reassignment-json-file", str(moves),
            main_class="reassign.ReassignPartitionsCommand",
        )  # fmt: skip
    yield _tool(
        "kafka-features describe", "describe", main_class="FeatureCommand",
        only=r"Feature: (?!share|streams)|EOT",
    )  # fmt: skip
    acl = ("--allow-principal", "User:a", "--topic", "t", "--operation", "Read")
    for acls in (("--list",), ("--add", *acl), ("--remove", "--force", *acl)):
        yield _tool(f"kafka-acls {acls[0]}", *acls, main_class="AclCommand")


def _configs(*arguments: str) -> Command:
    shown = " ".join(each for each in arguments if each not in ("--entity-type", "--entity-name"))
    return Command(
        shown=f"kafka-configs {shown}",
        main_class="kafka.admin.ConfigCommand",
        arguments=arguments,
        varying=((r"DEFAULT_CONFIG:max.connections.*?(?=[,}])", "LIMIT"),),
    )


def _tool(shown: str, *arguments: str, main_class: str, only: str = "") -> Command:
    return Command(
        shown=shown,
        main_class=f"{_TOOLS}.{main_class}",
        arguments=arguments,
        only=only,
        varying=((r"Epoch: \d+", "EPOCH"), (r'"log_dirs":.*?]', "PATHS")),
    )
