"""Shared by the commands that ask a Kafka cluster: options, the connection, and questions.

Invariant: a broker that is not there is reported after one attempt to connect; later failures are
retried for some seconds, as in all clients.
"""

import json
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, cast

import click
from click.core import ParameterSource

from tailrace.cli.arguments import BOOTSTRAP
from tailrace.client.retries import ATTEMPTS_MAX
from tailrace.config import parse_assignments, read_properties
from tailrace.config.providers import PROVIDERS, looked_up
from tailrace.errors import ConfigError, FatalError, RetriableError, TailraceError
from tailrace.values import dataclass, replace

if TYPE_CHECKING:
    from tailrace.client.admin.cluster import MetadataQuorum
    from tailrace.client.admin.offsets import LogRange
    from tailrace.client.calls import Call
    from tailrace.client.config import ClientConfig
    from tailrace.client.drive.steps import Steps
    from tailrace.client.nodes import Node
    from tailrace.client.reader import ClusterReader
    from tailrace.model import TopicPartition

P = ParamSpec("P")
T = TypeVar("T")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

AS_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON Lines: one object per line."
)

_EXIT_REFUSED = 1

# Ten times what a new topic may have (`cluster.topic_rules`), and still few enough to expand.
PARTITIONS_MAX: Final = 100_000
"""Most partitions that an option may name one by one."""

QUORUM_LIMIT_MS: Final = 10_000
"""Longest wait for the controllers: an election takes a second or two."""

ANSWER_LIMIT_MS: Final = 3_000
"""Longest wait for the answers of brokers that are asked whether they answer; one that is well
takes some milliseconds."""

YES = click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation; required if stdin is not a terminal."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The cluster of a command, and the client settings for it."""

    bootstrap: str
    settings: Mapping[str, str]
    """Further settings of the client, by Kafka's names."""

    def within(self, timeout_ms: int) -> "Connection":
        """The same, with this limit for a new connection."""
        limit = {"socket.connection.setup.timeout.ms": str(timeout_ms)}
        return replace(self, settings={**self.settings, **limit})

    @contextmanager
    def open(self, config: "ClientConfig | None" = None) -> Iterator["ClusterReader"]:
        """A client that is connected to a broker, until the end of the block.

        `config` has the settings where they are those of another client, such as a producer.

        Raises:
            ConfigError: a setting is unknown or cannot be used; named as it is typed.
            UnreachableBrokerError: no broker can be reached.
            AuthenticationError: the broker refuses the login.
        """
        from tailrace.client.reader import ClusterReader

        with faults_in_flags():
            cluster = (
                ClusterReader(self.bootstrap, settings=self.settings, client_id="tailrace-cli")
                if config is None
                else ClusterReader(config)
            )
        try:
            # One attempt, before the retries that every later request has.
            with _without_log_lines():
                cluster.any_broker()
            yield cluster
        finally:
            cluster.close()


@contextmanager
def _without_log_lines() -> Iterator[None]:
    """Print no warning of the client, where the error that follows says the same."""
    # Without any handler Python prints warnings to stderr.
    silent = logging.NullHandler()
    logging.getLogger().addHandler(silent)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(silent)


def on_cluster(command: FunctionT) -> FunctionT:
    """Adds the options that lead to a cluster; the command gets them as its `connection`."""

    @wraps(command)
    def connected(
        *arguments: object,
        bootstrap: str,
        assignments: tuple[str, ...],
        command_config: Path | None,
        **options: object,
    ) -> object:
        connection = connection_of(
            click.get_current_context(),
            bootstrap=bootstrap,
            assignments=assignments,
            command_config=command_config,
        )
        return command(*arguments, connection=connection, **options)

    for option in (
        # Kafka's name for it. On the command line every user of the machine could read a password.
        click.option(
            "--command-config", metavar="FILE",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A properties file with client settings; passwords belong there, not in --option. "
            "Its bootstrap.servers count without --bootstrap.",
        ),
        click.option(
            "--option", "assignments", multiple=True, metavar="NAME=VALUE",
            help="A client setting, such as security.protocol=SSL; repeatable.",
        ),
        # The port is the default of Kafka's listeners, and of `tailrace serve`.
        click.option(
            *BOOTSTRAP, metavar="HOST:PORT", default="localhost:9092", show_default=True,
            help="Bootstrap servers: one or more brokers of the cluster, separated by commas.",
        ),
    ):  # fmt: skip
        connected = option(connected)
    return cast("FunctionT", connected)


def connection_of(
    context: click.Context,
    *,
    bootstrap: str,
    assignments: tuple[str, ...],
    command_config: Path | None,
) -> Connection:
    """The cluster that the options of a command lead to.

    Raises:
        ConfigError: an assignment is none; or the file cannot be read.
        click.UsageError: the address is given as a setting.
    """
    settings = {} if command_config is None else client_settings(command_config)
    with faults_in_flags():
        assigned = parse_assignments(assignments)
    if "bootstrap.servers" in assigned:
        raise click.UsageError("bootstrap.servers is given by --bootstrap")
    # As in Kafka's tools the flag goes over the file.
    of_file = settings.pop("bootstrap.servers", "").strip()
    source = context.get_parameter_source("bootstrap")
    if of_file and source is ParameterSource.DEFAULT:
        bootstrap = of_file
    return Connection(bootstrap=bootstrap, settings=settings | assigned)


@contextmanager
def faults_in_flags() -> Iterator[None]:
    """Make errors about settings of clients name the flags that give them."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError([_in_flags(each) for each in error.faults]) from error


def _in_flags(fault: str) -> str:
    fault = fault.removeprefix("kafka.")
    if fault.startswith("bootstrap.servers: "):
        return "--bootstrap: " + fault.removeprefix("bootstrap.servers: ")
    return f"--option {fault}"


def client_settings(path: Path) -> dict[str, str]:
    """The settings of a properties file for a client, with the values that they refer to.

    Raises:
        ConfigError: a value cannot be looked up.
    """
    faults: list[str] = []
    texts = read_properties(path.read_text(encoding="utf-8", errors="replace"))
    found = dict(looked_up(texts, faults=faults).texts)
    if faults:
        raise ConfigError([f"{path}: {each}" for each in faults])
    found.pop(PROVIDERS, None)
    return found


def confirm(question: str, *, yes: bool) -> None:
    """Return if the user agrees; otherwise end the command with exit code 1.

    Raises:
        click.UsageError: nobody can be asked, because stdin is no terminal.
    """
    if yes:
        return
    # The next line of a script's input would be taken for the answer.
    if not sys.stdin.isatty():
        raise click.UsageError(
            "stdin is not a terminal, so you cannot be asked for confirmation; add --yes"
        )
    # On stderr: stdout may be JSON that a program reads.
    if not click.confirm(question, err=True):
        say("nothing was changed")
        sys.exit(_EXIT_REFUSED)


def ask_quorum(cluster: "ClusterReader") -> "MetadataQuorum":
    """The quorum as its active controller describes it, within `QUORUM_LIMIT_MS`.

    Raises:
        UnsupportedBrokerError: the broker is older than Kafka 3.0, or has ZooKeeper.
        RetriableError: no controller answers.
        RemoteFatalError: the user may not ask.
    """
    from tailrace.client.admin.cluster import describe_metadata_quorum

    # The broker forwards it, and waits a minute for controllers that may be gone.
    call = cluster.call(limit_ms=QUORUM_LIMIT_MS, retries=ATTEMPTS_MAX - 1)
    return cluster.run(describe_metadata_quorum(call))


def silent_brokers(cluster: "ClusterReader", nodes: "Mapping[int, Node]") -> dict[int, str]:
    """The brokers that do not take a new connection and answer on it, with the reasons.

    All are asked at the same time, for `ANSWER_LIMIT_MS`; `nodes` are by broker id.
    """
    from tailrace.client.calls import Ask
    from tailrace.protocol.messages.api_versions import ApiVersionsRequest

    call = cluster.call(limit_ms=ANSWER_LIMIT_MS, retries=0)
    # KIP-511: brokers refuse an empty name or version with INVALID_REQUEST.
    request = ApiVersionsRequest(client_software_name="tailrace", client_software_version="1")
    replies = cluster.run(call.send([Ask(each, request, call.deadline) for each in nodes.values()]))
    return {
        number: str(reply.outcome)
        for number, reply in zip(nodes, replies, strict=True)
        if isinstance(reply.outcome, TailraceError)
    }


def list_from_all(
    cluster: "ClusterReader",
    operation: Callable[..., "Steps[list[T]]"],
    **options: object,
) -> tuple[list[T], dict[int, str]]:
    """The list of an operation that takes `brokers`, and those that are silent, with the reasons.

    Raises: what the operation raises.
    """
    answering, silent = answering_brokers(cluster)
    return cluster.do(operation, brokers=answering, **options), silent


def answering_brokers(cluster: "ClusterReader") -> tuple[list[int], dict[int, str]]:
    """The brokers that answer, and those that are silent, with the reasons.

    One that hangs would hold up a list for a minute.

    Raises:
        RemoteFatalError: the broker refuses to name them.
        RetriableError: no broker names them.
    """
    from tailrace.client.admin.cluster import brokers_of
    from tailrace.client.nodes import Node

    call = cluster.call(limit_ms=QUORUM_LIMIT_MS, retries=ATTEMPTS_MAX - 1)
    cluster.run(brokers_of(call))
    # By their own ids: the clients know those of the bootstrap list by others.
    nodes = {each: Node(each, *node[1:]) for each, node in call.routes.nodes.items()}
    silent = silent_brokers(cluster, nodes)
    return sorted(nodes.keys() - silent.keys()), silent


def end_without(silent: Mapping[int, str], what: str) -> None:
    """Return if no broker is silent; else say what is missing, and end with exit code 1."""
    say_silent(silent)
    if silent:
        say(f"{what} of {', '.join(f'broker {each}' for each in silent)} are missing in this list")
        sys.exit(_EXIT_REFUSED)


def ranges_known(
    cluster: "ClusterReader", partitions: "Collection[TopicPartition]"
) -> "dict[TopicPartition, LogRange]":
    """Begin and end of the logs of partitions, without those that have no leader.

    A leader that was killed remains the leader until its session is over, and a new one does not
    know at once what is committed: that is when an operator needs all else most. So the reason is
    said, and the ends of those logs are missing.

    Raises:
        FatalError: a broker refuses.
    """
    from tailrace.client.admin.offsets import log_ranges
    from tailrace.client.admin.outcomes import Outcomes
    from tailrace.client.topics import led_partitions

    # Offsets come from leaders; asking for a partition without one fails the command.
    asked = cluster.do(log_ranges, led_partitions(cluster, partitions))
    away = {
        each: error for each, error in asked.errors.items() if isinstance(error, RetriableError)
    }
    for reason in dict.fromkeys(map(str, away.values())):
        say(f"offsets that show as - are unknown: {reason}")
    return Outcomes({each: asked[each] for each in asked if each not in away}).results()


def say_silent(silent: Mapping[int, str]) -> None:
    """Name the brokers that do not answer, with the reasons."""
    for number, reason in silent.items():
        say(f"broker {number} does not answer this machine: {reason}")


def check_controllers(cluster: "ClusterReader") -> None:
    """Return if a controller can make changes; otherwise end the command with exit code 1.

    A change is sent once, and a broker without controllers keeps it for a minute. Without this
    check it would end with "no answer", and nobody would know whether it is made later.
    """
    broker = cluster.any_broker().node
    try:
        ask_quorum(cluster)
    # Not a reason to refuse: the broker may be too old for the question, or the user may not ask.
    except FatalError:
        return
    except RetriableError as error:
        # The last answer, without the sentence around it that names another setting.
        reason = error.__cause__ or error
        say(
            f"nothing was changed, because no controller has answered through {broker} within "
            f"{QUORUM_LIMIT_MS / 1000:g} s: {reason}; bring a majority of the controllers back "
            "(`controllers_lost` in the log of the broker says why it has no answer), then repeat "
            "the command"
        )
        sys.exit(_EXIT_REFUSED)


def change(
    cluster: "ClusterReader",
    operation: Callable[Concatenate["Call", P], "Steps[T]"],
    /,
    *arguments: P.args,
    **options: P.kwargs,
) -> T:
    """The result of an operation that changes the cluster; Ctrl-C says that it may be done.

    Raises: what the operation raises.
    """
    try:
        return cluster.do(operation, *arguments, **options)
    # The request may have been sent, and a broker carries it out without us.
    except KeyboardInterrupt:
        say(
            "interrupted before the broker answered: the change may have been made; check before "
            "you repeat it"
        )
        raise


def say(message: str) -> None:
    """Tell something beside the output, on stderr."""
    click.echo(f"tailrace: {message}", err=True)


def emit(form: str, kind: str, fields: Mapping[str, object]) -> None:
    """Print one JSON object, which says its format and type.

    Bytes of a path that are no UTF-8 are halves of surrogate pairs, as `os.fsencode` takes them.
    """
    text = json.dumps({"format": form, "type": kind, **fields}, ensure_ascii=False)
    # Such a half, \udcff, is an escape of JSON too; the byte itself would be none of its texts.
    click.echo(text.encode(errors="backslashreplace").decode())


def parse_partitions(text: str, *, flag: str) -> tuple[str, tuple[int, ...] | None]:
    """Topic and partition numbers of `TOPIC` or `TOPIC:0,1`; None for all partitions.

    Raises:
        click.UsageError: what follows the colon are no numbers.
    """
    topic, colon, listed = text.partition(":")
    if not colon:
        return topic, None
    return topic, parse_numbers(listed, flag=flag)


def parse_numbers(text: str, *, flag: str, what: str = "a partition number") -> tuple[int, ...]:
    """Partition numbers, or ids of brokers, of `0,1,4-7`.

    Raises:
        click.UsageError: they are none, or more than `PARTITIONS_MAX`.
    """
    ranges: list[range] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = (first, last if dash else first)
        if not all(each.isascii() and each.isdigit() and len(each) < 8 for each in ends):
            raise click.UsageError(f"{flag}: {part!r} is not {what}; give numbers such as 0,1,4-7")
        if int(ends[0]) > int(ends[1]):
            # Without this check it would choose nothing, which some commands would take for all.
            raise click.UsageError(f"{flag}: the range {part!r} ends before it begins")
        ranges.append(range(int(ends[0]), int(ends[1]) + 1))
    # Counted before they are expanded: 0-9999999 is soon typed, and takes half a gigabyte.
    count = sum(map(len, ranges))
    if count > PARTITIONS_MAX:
        raise click.UsageError(
            f"{flag}: {text!r} names {count} partitions, and at most {PARTITIONS_MAX} may be "
            "named; name fewer, or none for all partitions of the topic"
        )
    return tuple(number for each in ranges for number in each)
