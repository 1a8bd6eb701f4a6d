"""Kafka's own command-line tools, given to Kafka and to our broker with the same state.

Each command is run on both, and what it prints is compared line by line, without their order and
without what is by chance: ids, times, addresses, paths, rates. Of errors the kind is compared and
not the words, which are each broker's own.

Not compared: what `kafka-configs --all` prints, for `answers` compares every setting.
"""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeAlias

from confluent_kafka import Consumer, Producer, TopicPartition

from compat import ours
from compat.clients import WAIT_SECONDS
from compat.kafka import SMALL_JVM, Kafka, java_command
from compat.processes import bound_to_us, run
from compat.report import Report
from tailrace.errors import FatalError
from tailrace.security.authorizer_config import STANDARD_AUTHORIZER

TOPIC = "tools"
GROUP = "tools-group"
LIVE_GROUP = "tools-live"
VERIFIABLE = "tools-verifiable"
TRANSACTIONAL_ID = "tools-transaction"
COMMAND_SECONDS_MAX = 60
SECURED = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    # Everybody: no listener asks for a login.
    "super.users": "User:ANONYMOUS",
}
"""Settings for entries of access control lists to be made."""
SETTINGS = {
    **SECURED,
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}

_Varying: TypeAlias = tuple[tuple[str, str], ...]
_PROGRAM = Path(__file__).with_name("Commands.java")
_TOOLS = "org.apache.kafka.tools"
_VARYING: _Varying = (
    (r"\d{4}-\d\d-\d\d[T ][\d:.,]+Z?", "TIME"),
    (r"\b1[6-9]\d{11}\b", "TIME"),
    (r"127\.0\.0\.1:\d+|localhost:\d+", "ADDRESS"),
    (r"[\w-]{36}\b|(?<= )[\w+/-]{22}(?= /)", "ID"),
    (r"(?<=TopicId: )\S+|(?<=Cluster ID: )\S+", "ID"),
    (r'(?<="logDir":")[^"]*|(?<=")/[^"]*(?=")', "PATH"),
    # Not the values of settings and quotas.
    (r"(?<![=\d.])\d+\.\d+", "NUMBER"),
    (r"\d+(?= ms)", "NUMBER"),
    (r"(?<=Exception: ).*|(?<=topic command : ).*", "WORDS"),
    # A set of the tool itself, whose order is another in each process.
    (r"(?<=only supports operations )\[.*\]", "OPERATIONS"),
    # Since Kafka has eligible leader replicas it sets this for the whole cluster.
    (r"min\.insync\.replicas=1,?", ""),
)
"""Patterns of values that differ by chance, and the word for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A run of a tool."""

    shown: str
    """The command as a user of the scripts types it, in short."""
    main_class: str
    arguments: tuple[str, ...]
    is_bootstrapped: bool = True
    """Its address goes behind `--bootstrap-server`."""
    read: str = ""
    """Its standard input."""
    varying: _Varying = ()
    """More patterns of values that differ by chance, and the word for each."""
    only: str = ""
    """The lines that count, as a pattern; all of them if it is empty."""


def tool(shown: str, *arguments: str, main_class: str, **options: object) -> Command:
    """A run of one of `org.apache.kafka.tools`; options are other fields of Command."""
    command = Command(shown=shown, main_class=f"{_TOOLS}.{main_class}", arguments=arguments)
    return replace(command, **options)  # type: ignore[arg-type] # fields of Command


class Commands:
    """One Java that runs tools against one broker, until the `with` ends."""

    def __init__(self, java: Path, class_path: str, servers: str) -> None:
        self.servers = servers
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
        command = java_command(java, class_path, [str(_PROGRAM)], jvm=[*SMALL_JVM, quiet])
        self._process = subprocess.Popen(  # noqa: S603 - the Java that was found
            bound_to_us(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def lines(self, command: Command) -> Counter[str]:
        """Run a command; its output and exit code without values that differ by chance.

        Raises:
            FatalError: the Java has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        address = ("--bootstrap-server", self.servers) if command.is_bootstrapped else ()
        arguments = [each.replace("SERVERS", self.servers) for each in command.arguments]
        read = command.read.replace("\n", "\\n")
        parts = [command.main_class, *address, *arguments, read]
        self._process.stdin.write("\t".join(parts) + "\n")
        self._process.stdin.flush()
        told = []
        for line in self._process.stdout:
            told.append(line.strip())
            if line.startswith("EOT "):
                return _normalised(told, command)
        raise FatalError(f"{command.shown}: Java has ended: {told[-3:]}")


def check(report: Report, kafka: Kafka, java: Path, class_path: str, directory: Path) -> None:
    """Run every command on both brokers, and clients between them that make the state."""
    logs = directory / "tools"
    logs.mkdir()
    kafka.settings |= SECURED
    offsets = directory / "offsets.json"
    records = [{"topic": TOPIC, "partition": 0, "offset": 2}]
    offsets.write_text(json.dumps({"version": 1, "partitions": records}))
    with ExitStack() as stack:
        stack.enter_context(kafka)
        servers = [
            kafka.bootstrap_servers,
            stack.enter_context(ours.serving(logs, settings=SETTINGS)),
        ]
        both = [stack.enter_context(Commands(java, class_path, each)) for each in servers]

        def compare(commands: Iterable[Command]) -> None:
            for each in commands:
                with ThreadPoolExecutor(len(both)) as pool:
                    theirs, mine = pool.map(Commands.lines, both, [each] * len(both))
                report.check(
                    f"{each.shown} prints the same",
                    [*differences(theirs, mine)],
                    explained="but for share groups and streams groups" if each.only else "",
                )

        compare(_topics_and_records())
        with _on_each(servers, joined):
            compare(_live_groups())
        compare(_groups())
        with _on_each(servers, transaction):
            compare(_transactions())
        compare(_administration(offsets))
        compare(access())
        compare(users_and_quotas())
        compare(_performance())
        for name, *arguments in _VERIFIABLE:
            told = [_verifiable(java, class_path, name, arguments, each) for each in servers]
            report.check(f"{name} ends alike", [*differences(*told)])


def _topics_and_records() -> Iterator[Command]:
    def topics(shown: str, *arguments: str) -> Command:
        return tool(f"kafka-topics {shown}", *arguments, main_class="TopicCommand")

    named = ("--topic", TOPIC)
    yield topics(
        "--create", "--create", *named, "--partitions", "3", "--replication-factor", "1",
        "--config", "retention.ms=123456789",
    )  # fmt: skip
    yield topics("--create of another", "--create", "--topic", VERIFIABLE, "--partitions", "1")
    yield topics("--create, once more", "--create", *named, "--partitions", "3")
    yield topics("--alter", "--alter", *named, "--partitions", "4")
    yield topics("--alter to fewer partitions", "--alter", *named, "--partitions", "2")
    yield topics("--describe", "--describe", *named)
    yield topics("--describe of none", "--describe", "--topic", "none")
    yield topics("--list", "--list")
    producer = tool(
        "kafka-console-producer", *named, "--reader-property", "parse.key=true",
        "--reader-property", "key.separator=:", main_class="ConsoleProducer",
        read="".join(f"key-{number}:value {number}\n" for number in range(20)),
    )  # fmt: skip
    yield producer
    for level in ("read_committed", "read_uncommitted"):
        yield tool(
            f"kafka-console-consumer, {level}", *named, "--group", f"{GROUP}-{level}",
            "--from-beginning", "--max-messages", "20", "--timeout-ms", "20000",
            "--isolation-level", level, "--formatter-property", "print.key=true",
            "--formatter-property", "print.partition=true",
            "--formatter-property", "print.offset=true",
            main_class="consumer.ConsoleConsumer",
        )  # fmt: skip
    for time in ("-1", "-2"):
        yield tool(
            f"kafka-get-offsets --time {time}", *named, "--time", time, main_class="GetOffsetShell"
        )


def _consumer_groups(shown: str, *arguments: str) -> Command:
    return tool(
        f"kafka-consumer-groups {shown}", *arguments,
        main_class="consumer.group.ConsumerGroupCommand",
    )  # fmt: skip


def _live_groups() -> Iterator[Command]:
    yield _consumer_groups("--list --state", "--list", "--state")
    yield _consumer_groups("--list --type", "--list", "--type")
    for protocol in ("classic", "consumer"):
        named = ("--describe", "--group", f"{LIVE_GROUP}-{protocol}")
        yield _consumer_groups(f"--describe, {protocol}", *named)
        for what in ("--members", "--state"):
            yield _consumer_groups(f"--describe {what}, {protocol}", *named, what, "--verbose")


def _groups() -> Iterator[Command]:
    group = f"{GROUP}-read_committed"
    reset = ("--reset-offsets", "--group", group, "--topic", TOPIC)
    yield _consumer_groups("--describe", "--describe", "--group", group)
    yield _consumer_groups("--describe of none", "--describe", "--group", "none")
    yield _consumer_groups("--reset-offsets --dry-run", *reset, "--to-earliest", "--dry-run")
    yield _consumer_groups("--reset-offsets --execute", *reset, "--shift-by", "-2", "--execute")
    yield _consumer_groups("--describe after it", "--describe", "--group", group)
    delete_offsets = ("--delete-offsets", "--group", group, "--topic", f"{TOPIC}:0")
    yield _consumer_groups("--delete-offsets", *delete_offsets)
    yield _consumer_groups("--delete", "--delete", "--group", group)
    yield _consumer_groups("--delete of none", "--delete", "--group", group)


def _transactions() -> Iterator[Command]:
    def transactions(shown: str, *arguments: str, varying: _Varying = ()) -> Command:
        return tool(
            f"kafka-transactions {shown}", "--bootstrap-server", "SERVERS", *arguments,
            main_class="TransactionsCommand", is_bootstrapped=False,
            varying=varying,
        )  # fmt: skip

    named = ("--topic", TOPIC, "--partition", "0")
    identified = ("--transactional-id", TRANSACTIONAL_ID)
    id_and_state = (r"\d+ (?=Ongoing)", "ID ")
    id_and_age = ((r"(?<=transaction )\d+", "ID"), (r"(?<=TIME )\d+", "AGE"))
    yield transactions("list", "list", varying=(id_and_state,))
    yield transactions("describe", "describe", *identified, varying=id_and_age)
    yield transactions(
        "describe-producers", "describe-producers", *named, varying=((r"^\d+", "ID"),)
    )
    yield transactions("find-hanging", "find-hanging", "--broker-id", str(ours.NODE_ID))


def _configs(shown: str, *arguments: str) -> Command:
    command = tool(f"kafka-configs {shown}", *arguments, main_class="")
    return replace(command, main_class="kafka.admin.ConfigCommand")


def _administration(offsets: Path) -> Iterator[Command]:
    named = ("--entity-type", "topics", "--entity-name", TOPIC)
    added = ("--add-config", "cleanup.policy=compact,max.message.bytes=12345")
    yield _configs("--alter --add-config", "--alter", *named, *added)
    yield _configs("--describe", "--describe", *named)
    yield _configs("--alter, refused", "--alter", *named, "--add-config", "cleanup.policy=none")
    yield _configs(
        "--delete-config", "--alter", *named, "--delete-config", "cleanup.policy,max.message.bytes"
    )
    yield tool(
        "kafka-delete-records", "--offset-json-file", str(offsets),
        main_class="DeleteRecordsCommand",
    )  # fmt: skip
    # The console producer's records take more bytes when they come milliseconds later.
    yield tool(
        "kafka-log-dirs", "--describe", "--topic-list", TOPIC,
        main_class="LogDirsCommand", varying=((r'(?<="size":)\d+', "BYTES"),),
    )  # fmt: skip
    yield tool(
        "kafka-broker-api-versions",
        main_class="BrokerApiVersionsCommand",
        only=r"^(?!.*(?:Share|Streams))",
    )
    yield tool(
        "kafka-cluster cluster-id", "cluster-id", "--bootstrap-server", "SERVERS",
        main_class="ClusterTool", is_bootstrapped=False,
    )  # fmt: skip
    yield tool(
        "kafka-cluster list-endpoints", "list-endpoints", "--bootstrap-server", "SERVERS",
        main_class="ClusterTool", is_bootstrapped=False, varying=((r"\b\d{5}\b", "PORT"),),
    )  # fmt: skip


def access() -> Iterator[Command]:
    """Entries of access control lists of each kind, and what is refused."""

    def acls(*arguments: str) -> Command:
        shown = " ".join(each for each in arguments if each != "--force")
        return tool(f"kafka-acls {shown}", *arguments, main_class="AclCommand")

    alice, bob = ("--allow-principal", "User:alice"), ("--deny-principal", "User:bob")
    prefixed = ("--resource-pattern-type", "prefixed")
    producer = ("--producer", *alice, "--topic", TOPIC)
    transactional = ("--producer", "--idempotent", *alice, "--topic", "tx-",
                     "--transactional-id", "tx-", *prefixed)  # fmt: skip
    consumer = ("--consumer", *alice, "--topic", TOPIC, "--group", "*")
    hosts = ("--allow-host", "10.0.0.1", "--allow-host", "10.0.0.2", "--deny-host", "127.0.0.1")
    both = ("--operation", "All", *alice, *bob, *hosts, "--topic", TOPIC)
    yield acls("--list")
    for added in (
        producer, transactional, consumer, both, both,
        ("--operation", "Alter", "--operation", "ClusterAction", *alice, "--cluster"),
        ("--operation", "Describe", *alice, "--delegation-token", "t"),
        ("--operation", "CreateTokens", *alice, "--user-principal", "User:carol"),
        ("--operation", "TwoPhaseCommit", "--allow-principal", "Group:g",
         "--transactional-id", "t"),
        ("--operation", "Read", "--allow-principal", "User:*", "--topic", "*"),
        # The tool refuses these, or has them refused.
        ("--operation", "Read", *alice, "--cluster"),
        ("--operation", "Read", "--allow-principal", "alice", "--topic", TOPIC),
        ("--operation", "Read", "--topic", TOPIC),
        ("--operation", "Read", *alice),
        ("--operation", "Read", *alice, "--topic", "t", "--resource-pattern-type", "match"),
        ("--operation", "Alter", *alice, "--cluster", *prefixed),
    ):  # fmt: skip
        yield acls("--add", *added)
    match = ("--resource-pattern-type", "match")
    for listed in (
        (), ("--topic", TOPIC), ("--topic", TOPIC, *match), ("--topic", "tx-1", *match),
        ("--topic", "tx-", *prefixed), ("--cluster",), ("--group", "g", *match),
        ("--principal", "User:bob"), ("--principal", "User:bob", "--topic", TOPIC),
        ("--topic", "none"),
    ):  # fmt: skip
        yield acls("--list", *listed)
    for removed in (
        ("--consumer", *alice, "--topic", TOPIC, "--group", "*"),
        ("--operation", "All", *alice, "--allow-host", "10.0.0.1", "--topic", TOPIC),
        ("--operation", "Read", *alice, "--topic", "none"),
        ("--topic", "tx-1", *match), ("--cluster",),
    ):  # fmt: skip
        yield acls("--remove", "--force", *removed)
        yield acls("--list")
    yield acls("--remove", "--force", "--topic", "*", "--resource-pattern-type", "any")


def users_and_quotas() -> Iterator[Command]:
    """Credentials and quotas of users, of client ids and of addresses, and what is refused."""
    alice, app = _entity("users", "alice"), _entity("clients", "app")
    user, client = _entity("users"), _entity("clients")
    iterated = "SCRAM-SHA-256=[iterations=8192,password=secret]"
    for entity, added in (
        (alice, f"{iterated},SCRAM-SHA-512=[password=secret]"),
        (alice, "SCRAM-SHA-256=[iterations=4095,password=secret]"),
        (alice, "SCRAM-SHA-256=[iterations=16385,password=secret]"),
        (alice, "SCRAM-SHA-1=[password=secret]"),
        (user, iterated),
        ((*alice, *app), iterated),
        (alice, f"{iterated},producer_byte_rate=1000"),
        (alice, "producer_byte_rate=1000.5,consumer_byte_rate=2000,request_percentage=50"),
        (user, "request_percentage=200.25"),
        (app, "controller_mutation_rate=1.5"),
        (client, "producer_byte_rate=1e9"),
        ((*alice, *app), "producer_byte_rate=10"),
        ((*alice, *client), "producer_byte_rate=20"),
        ((*user, *app), "producer_byte_rate=30"),
        ((*user, *client), "producer_byte_rate=40"),
        (_entity("ips", "127.0.0.1"), "connection_creation_rate=1000"),
        (_entity("ips"), "connection_creation_rate=2000"),
        (alice, "producer_byte_rate=-1"),
        (alice, "producer_byte_rate=x"),
        (alice, "producer_byte_rate=0.5"),
        (alice, "no_such_rate=1"),
        (alice, "connection_creation_rate=1"),
        (app, "connection_creation_rate=1"),
        (_entity("ips", "127.0.0.1"), "producer_byte_rate=1"),
        (_entity("ips", "127.0.0.1"), "connection_creation_rate=0.5"),
        (_entity("ips", "no.such.host.invalid"), "connection_creation_rate=1"),
    ):  # fmt: skip
        yield _configs(f"--alter {_named(entity)}, {added}", "--alter", *entity,
                       "--add-config", added)  # fmt: skip
    kinds = [("--entity-type", each) for each in ("users", "clients", "ips")]
    described: list[tuple[str, ...]] = [
        *kinds, alice, user, app, client, (*alice, *app), (*kinds[0], *kinds[1]),
        _entity("users", "nobody"),
    ]  # fmt: skip
    for each in described:
        yield _configs(f"--describe {_named(each)}", "--describe", *each)
    for entity, gone in (
        (alice, "SCRAM-SHA-512"),
        (alice, "SCRAM-SHA-512"),
        (alice, "producer_byte_rate,request_percentage"),
        (alice, "producer_byte_rate"),
        (alice, "no_such_rate"),
        (_entity("users", "nobody"), "SCRAM-SHA-256"),
        ((*user, *app), "producer_byte_rate"),
        (_entity("ips", "127.0.0.1"), "connection_creation_rate"),
    ):
        yield _configs(f"--alter {_named(entity)}, without {gone}", "--alter", *entity,
                       "--delete-config", gone)  # fmt: skip
    for each in kinds:
        yield _configs(f"--describe {_named(each)}, again", "--describe", *each)
    # Those that would slow the commands after these down.
    for entity in ((*user, *client), client, (*alice, *client)):
        yield _configs(f"--alter {_named(entity)}, without its rate", "--alter", *entity,
                       "--delete-config", "producer_byte_rate")  # fmt: skip


def _entity(kind: str, name: str = "") -> tuple[str, ...]:
    """The options for one entity; without a name the default."""
    return ("--entity-type", kind, *(("--entity-name", name) if name else ("--entity-default",)))


def _named(entity: Sequence[str]) -> str:
    return " ".join(each.removeprefix("--entity-") for each in entity if each not in
                    ("--entity-type", "--entity-name"))  # fmt: skip


def _performance() -> Iterator[Command]:
    yield tool(
        "kafka-producer-perf-test", "--topic", TOPIC, "--num-records", "1000", "--record-size",
        "100", "--throughput", "-1", "--producer-props", "bootstrap.servers=SERVERS",
        main_class="ProducerPerformance", is_bootstrapped=False,
    )  # fmt: skip
    yield tool(
        "kafka-consumer-perf-test", "--topic", TOPIC, "--messages", "1000", "--timeout", "20000",
        main_class="ConsumerPerformance", varying=((r", \d+, \d+, NUMBER", ", MS"),),
    )  # fmt: skip
    topics = tool("", "--delete", "--topic", TOPIC, main_class="TopicCommand")
    yield replace(topics, shown="kafka-topics --delete")
    yield replace(topics, shown="kafka-topics --list after it", arguments=("--list",))


_VERIFIABLE = (
    ("VerifiableProducer", "--topic", VERIFIABLE, "--max-messages", "50"),
    ("VerifiableConsumer", "--topic", VERIFIABLE, "--max-messages", "50", "--group-id", "checks"),
)
"""They end with the JVM, so each has one of its own."""


def _verifiable(
    java: Path, class_path: str, name: str, arguments: Sequence[str], servers: str
) -> Counter[str]:
    """The kinds of events that it prints, with their counts of records."""
    command = java_command(
        java, class_path, [f"{_TOOLS}.{name}", "--bootstrap-server", servers, *arguments]
    )
    printed = run(bound_to_us(command), name=name, seconds_max=COMMAND_SECONDS_MAX)
    counts: Counter[str] = Counter()
    for line in printed.splitlines():
        if line.startswith("{"):
            event = json.loads(line)
            counts[event["name"]] += event.get("count", 1)
    # An offset is committed for each batch that came, of which there may be some.
    return Counter({kind: 1 if "commit" in kind else count for kind, count in counts.items()})


@contextmanager
def _on_each(servers: Sequence[str], make: Callable[[str], Callable[[], None]]) -> Iterator[None]:
    """Clients on each broker, ended behind the `with`."""
    ends = [make(each) for each in servers]
    yield
    for end in ends:
        end()


def joined(servers: str) -> Callable[[], None]:
    """A member of a group of each protocol, with all partitions of the topic."""
    consumers = []
    for protocol in ("classic", "consumer"):
        consumer = Consumer(
            {
                "bootstrap.servers": servers, "group.id": f"{LIVE_GROUP}-{protocol}",
                "client.id": "member", "group.protocol": protocol, "log_level": 0,
                "auto.offset.reset": "earliest", "enable.auto.commit": False,
            }
        )  # fmt: skip
        consumer.subscribe([TOPIC])
        message = consumer.poll(WAIT_SECONDS)
        if message is None or message.error():
            raise FatalError(f"{protocol}: the member got no record: {message and message.error()}")
        consumer.commit(asynchronous=False, offsets=[TopicPartition(TOPIC, 0, 1)])
        consumers.append(consumer)

    def close() -> None:
        for each in consumers:
            each.close()

    return close


def transaction(servers: str) -> Callable[[], None]:
    """An open transaction with a record."""
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": TRANSACTIONAL_ID, "log_level": 0}
    )
    producer.init_transactions(WAIT_SECONDS)
    producer.begin_transaction()
    producer.produce(TOPIC, b"open", partition=0)
    producer.flush(WAIT_SECONDS)
    return lambda: producer.abort_transaction(WAIT_SECONDS)


def _normalised(printed: Sequence[str], command: Command) -> Counter[str]:
    lines: Counter[str] = Counter()
    for line in printed:
        words = " ".join(line.split())
        for pattern, word in (*_VARYING, *command.varying):
            words = re.sub(pattern, word, words)
        if words and re.search(command.only, words):
            lines[words] += 1
    return lines


def differences(theirs: Counter[str], mine: Counter[str]) -> Iterator[str]:
    """The lines that only one of both has printed."""
    yield from (f"Kafka alone: {line}" for line in (theirs - mine).elements())
    yield from (f"Tailrace alone: {line}" for line in (mine - theirs).elements())
