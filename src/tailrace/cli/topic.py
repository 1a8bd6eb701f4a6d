"""`tailrace topic`: topics of any Kafka cluster."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import click

from tailrace.cli import completion
from tailrace.cli.arguments import aligned, assigned, parse_int64
from tailrace.cli.on_cluster import (
    AS_JSON,
    YES,
    Connection,
    FunctionT,
    change,
    check_controllers,
    confirm,
    emit,
    on_cluster,
    parse_partitions,
    ranges_known,
    say,
)
from tailrace.client.admin.configs import (
    ConfigEntry,
    ConfigResource,
    describe_configs,
    incremental_alter_configs,
)
from tailrace.client.admin.offsets import LogRange
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.admin.replicas import (
    ElectionType,
    elect_leaders,
    list_partition_reassignments,
)
from tailrace.client.admin.topics import (
    NewTopic,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_topics,
    list_topics,
)
from tailrace.client.reader import ClusterReader, PartitionDescription, TopicDescription
from tailrace.client.topics import find_partitions, find_topic
from tailrace.config.settings import INT32_MAX
from tailrace.errors import counted
from tailrace.model import TopicPartition
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.values import replace

TOPIC_FORMAT = "tailrace.topic/1"

_INT16_MAX = 2**15 - 1

_CONFIG = click.option(
    "--config", "settings", multiple=True, callback=assigned, metavar="NAME=VALUE",
    help="A topic config, such as retention.ms=60000; repeatable.",
)  # fmt: skip


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics of any Kafka cluster, and elect leaders."""


@topic.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(1, INT32_MAX),
    default=None,
    help="Default: num.partitions of the controller.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, _INT16_MAX),
    default=None,
    help="Default: default.replication.factor of the controller.",
)
@_CONFIG
@AS_JSON
@on_cluster
def create(
    name: str,
    *,
    partitions: int | None,
    replication_factor: int | None,
    settings: Mapping[str, str],
    as_json: bool,
    connection: Connection,
) -> None:
    """Create a topic."""
    with connection.open() as cluster:
        check_controllers(cluster)
        # -1 leaves the choice to num.partitions and default.replication.factor of the broker
        # (KIP-464).
        new = NewTopic(name, partitions or -1, replication_factor or -1, settings)
        change(cluster, create_topics, [new]).results()
    if as_json:
        emit(TOPIC_FORMAT, "created", {"topic": name})
    else:
        click.echo(f"created topic {name}")


@topic.command("list")
@AS_JSON
@on_cluster
def list_all(*, as_json: bool, connection: Connection) -> None:
    """List all topics, internal topics included."""
    with connection.open() as cluster:
        found = cluster.do(list_topics)
    rows = [("topic", "partitions", "replicas", "")]
    for each in found:
        # The largest: while a reassignment runs the partitions differ.
        replicas = max((len(part.replicas) for part in each.partitions), default=0)
        if as_json:
            emit(TOPIC_FORMAT, "topic", _fields(each))
        rows.append(
            (each.name, f"{len(each.partitions)}", f"{replicas}", "internal" * each.is_internal)
        )
    for line in () if as_json else aligned(rows, right=(1, 2)):
        click.echo(line)


class _Only(NamedTuple):
    """The choice of partitions that a flag makes, by Kafka's name for it."""

    flag: str
    help: str
    has: Callable[[PartitionDescription, int, int], bool]
    """Whether a partition is one, by replicas that it is getting and its topic's minimum ISR."""


# As kafka-topics decides (TopicCommand).
_ONLY = (
    _Only(
        "under-replicated-partitions",
        "Show only partitions of which a replica is not in sync.",
        # Replicas that a reassignment adds are out of sync at first, and nothing is wrong.
        lambda part, added, _: len(part.replicas) - added > len(part.isr),
    ),
    _Only(
        "unavailable-partitions",
        "Show only partitions without a leader.",
        lambda part, _added, _insync: part.leader < 0,
    ),
    _Only(
        "under-min-isr-partitions",
        "Show only partitions with fewer replicas in sync than min.insync.replicas.",
        lambda part, _, insync: len(part.isr) < insync,
    ),
    _Only(
        "at-min-isr-partitions",
        "Show only partitions with as many replicas in sync as min.insync.replicas.",
        lambda part, _, insync: len(part.isr) == insync,
    ),
)


def _with_only(command: FunctionT) -> FunctionT:
    """Adds the flags that choose partitions."""
    for each in reversed(_ONLY):
        command = click.option(f"--{each.flag}", is_flag=True, help=each.help)(command)
    return command


@topic.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completion.topics)
@_with_only
@AS_JSON
@on_cluster
def describe(
    names: tuple[str, ...], *, as_json: bool, connection: Connection, **flags: bool
) -> None:
    """Show configs, and partitions with leader, replicas and offsets; without a NAME of all topics.

    Configs are those that override the broker's defaults. Earliest is the log start offset and
    latest the log end offset; both are - if the partition has no leader, or its leader does not
    answer, and the reason is on stderr. Eligible replicas may lead without a loss though they are
    not in sync.
    """
    chosen = [each for each in _ONLY if flags[each.flag.replace("-", "_")]]
    if len(chosen) > 1:
        given = " and ".join(f"--{each.flag}" for each in chosen)
        raise click.UsageError(f"{given} choose different partitions; give one of them")
    with connection.open() as cluster:
        # All names are looked up first, so that a wrong one is an error before any output.
        wanted = [find_topic(cluster, each).name for each in dict.fromkeys(names)]
        wanted = wanted or sorted(cluster.topics())
        # By its own API where the broker has it: Metadata has no eligible leaders.
        described = cluster.do(describe_topics, wanted).results()
        found = [described[name] for name in wanted]
        resources = [_resource(each.name) for each in found]
        configs = cluster.do(describe_configs, resources).results() if resources else {}
        for only in chosen:
            found = _chosen(cluster, only, found, configs=configs)
        parts = [
            TopicPartition(each.name, part.partition) for each in found for part in each.partitions
        ]
        logs = ranges_known(cluster, parts)
    for each in found:
        entries = configs[_resource(each.name)].values()
        # Only what differs from the defaults: all configs would hide it in some forty lines.
        own = {config.name: config.value for config in entries if config.is_own}
        ranges = [logs.get(TopicPartition(each.name, part.partition)) for part in each.partitions]
        if not as_json:
            for line in _lines(each, own, ranges):
                click.echo(line)
            continue
        emit(TOPIC_FORMAT, "topic", _fields(each) | {"configs": own})
        for part, log in zip(each.partitions, ranges, strict=True):
            emit(TOPIC_FORMAT, "partition", {"topic": each.name} | _partition_fields(part, log))


@topic.command()
@click.argument("name", shell_complete=completion.topics)
@_CONFIG
@click.option(
    "--unset", multiple=True, metavar="NAME",
    help="A topic config to delete, so that the broker's default applies; repeatable.",
)  # fmt: skip
@click.option(
    "--partitions", type=click.IntRange(1, INT32_MAX),
    help="New number of partitions; it can only grow.",
)  # fmt: skip
@AS_JSON
@on_cluster
def alter(
    name: str,
    *,
    settings: Mapping[str, str],
    unset: tuple[str, ...],
    partitions: int | None,
    as_json: bool,
    connection: Connection,
) -> None:
    """Change configs of a topic, or add partitions.

    After partitions are added, new records of a key may go to another partition than older ones.
    """
    # A broker refuses a request that names a config twice, and does not say which one.
    both = sorted(settings.keys() & set(unset))
    if both:
        raise click.UsageError(f"{both[0]}: give either --config or --unset, not both")
    if not (settings or unset or partitions):
        raise click.UsageError("nothing to change; give --config, --unset or --partitions")
    with connection.open() as cluster:
        found = find_topic(cluster, name)
        count = len(found.partitions)
        # CreatePartitions takes the new total, and the broker refuses one that is not larger.
        if partitions is not None and partitions <= count:
            raise click.UsageError(
                f"--partitions: topic {name} has {_count(found)}, and the number can only grow; "
                f"give at least {count + 1}"
            )
        check_controllers(cluster)
        # Configs first: unlike new partitions, they can be changed back.
        if settings or unset:
            changes = {**settings, **dict.fromkeys(unset)}
            change(cluster, incremental_alter_configs, {_resource(name): changes}).results()
        if partitions is not None:
            change(cluster, create_partitions, {name: partitions}).results()
    if as_json:
        changed = {"topic": name, "set": settings, "unset": list(unset), "partitions": partitions}
        emit(TOPIC_FORMAT, "altered", changed)
    else:
        click.echo(f"altered topic {name}")


@topic.command()
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", shell_complete=completion.topics
)
@YES
@AS_JSON
@on_cluster
def delete(names: tuple[str, ...], *, yes: bool, as_json: bool, connection: Connection) -> None:
    """Delete topics with all their records."""
    with connection.open() as cluster:
        found = [find_topic(cluster, each) for each in dict.fromkeys(names)]
        listed = ", ".join(f"{each.name} ({_count(each)})" for each in found)
        # The question counts partitions, so that a topic of the wrong cluster is noticed.
        confirm(f"Delete {listed} with all records?", yes=yes)
        check_controllers(cluster)
        for each in found:
            change(cluster, delete_topics, [each.name]).results()
            if as_json:
                emit(TOPIC_FORMAT, "deleted", {"topic": each.name})
            else:
                click.echo(f"deleted topic {each.name}")


@topic.command("delete-records")
@click.argument(
    "names", nargs=-1, required=True, metavar="TOPIC[:0,1,4-7]...",
    shell_complete=completion.topics,
)  # fmt: skip
@click.option(
    "--before", required=True, metavar="OFFSET",
    help="The first offset of each partition that stays; `end`: none of today's stays.",
)  # fmt: skip
@YES
@AS_JSON
@on_cluster
def delete_older(
    names: tuple[str, ...], *, before: str, yes: bool, as_json: bool, connection: Connection
) -> None:
    """Delete the records below an offset, for good.

    Nobody can read them any more; their bytes go with the segments that have no others. Topics with
    cleanup.policy=compact alone are refused.
    """
    # -1 is the high watermark, in the request and in the files of kafka-delete-records.
    offset = -1 if before == "end" else parse_int64(before)
    if offset is None:
        raise click.UsageError(f"--before: {before!r} is no offset; give a number, or `end`")
    wanted = [parse_partitions(each, flag="TOPIC") for each in names]
    with connection.open() as cluster:
        parts = [
            each for name, numbers in wanted for each in find_partitions(cluster, name, numbers)
        ]
        below = "" if offset < 0 else f" below offset {offset}"
        confirm(f"Delete all records of {', '.join(names)}{below}?", yes=yes)
        outcomes = change(cluster, delete_records, dict.fromkeys(parts, offset))
    for part, start in outcomes.succeeded.items():
        if as_json:
            fields = {"topic": part.topic, "partition": part.partition, "earliest": start}
            emit(TOPIC_FORMAT, "records-deleted", fields)
        else:
            click.echo(f"{part} begins at offset {start}")
    outcomes.results()


@topic.command("elect-leaders")
@click.argument(
    "names", nargs=-1, required=True, metavar="TOPIC[:0,1,4-7]...",
    shell_complete=completion.topics,
)  # fmt: skip
@click.option(
    "--unclean", is_flag=True,
    help="Of partitions without a leader: elect the first of their replicas that is in service. "
    "What it lacks is lost, and cut from the others.",
)  # fmt: skip
@YES
@AS_JSON
@on_cluster
def elect(
    names: tuple[str, ...], *, unclean: bool, yes: bool, as_json: bool, connection: Connection
) -> None:
    """Have the preferred replicas lead again, or a partition led that has lost all in sync.

    The preferred replica of a partition is the first in its list; it has to be in sync. Partitions
    that need no election stay as they are.
    """
    wanted = [parse_partitions(each, flag="TOPIC") for each in names]
    with connection.open() as cluster:
        parts = [
            each for name, numbers in wanted for each in find_partitions(cluster, name, numbers)
        ]
        if unclean:
            confirm(
                f"Elect leaders of {', '.join(names)} that may lack acknowledged records, which "
                "are lost then?",
                yes=yes,
            )
        check_controllers(cluster)
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        outcomes = change(cluster, elect_leaders, parts, election=kind)
    failed = {
        part: error
        for part, error in outcomes.errors.items()
        if getattr(error, "code", None) != ErrorCode.ELECTION_NOT_NEEDED
    }
    for part in outcomes.succeeded:
        if as_json:
            emit(TOPIC_FORMAT, "elected", {"topic": part.topic, "partition": part.partition})
        else:
            click.echo(f"elected a leader of {part}")
    if not outcomes.succeeded and not failed:
        say("no partition needs an election")
    Outcomes(failed).results()


def _resource(topic: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, topic)


def _fields(topic: TopicDescription) -> dict[str, object]:
    return {
        "topic": topic.name,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": max((len(each.replicas) for each in topic.partitions), default=0),
    }


def _partition_fields(part: PartitionDescription, log: LogRange | None) -> dict[str, object]:
    return {
        "partition": part.partition,
        # -1 on the wire; null in JSON, so that nobody takes it for a broker id.
        "leader": None if part.leader < 0 else part.leader,
        "leader_epoch": None if part.leader_epoch < 0 else part.leader_epoch,
        "replicas": list(part.replicas),
        "isr": list(part.isr),
        # Null from a broker before Kafka 4.0, which does not tell.
        "eligible": None if part.eligible_leaders is None else list(part.eligible_leaders),
        "offline": list(part.offline),
        "earliest": None if log is None else log.start,
        "latest": None if log is None else log.end,
    }


def _chosen(
    cluster: ClusterReader,
    only: _Only,
    topics: Sequence[TopicDescription],
    *,
    configs: Mapping[ConfigResource, Mapping[str, ConfigEntry]],
) -> list[TopicDescription]:
    """The topics that have partitions which a flag asks for, with these alone."""
    moving = cluster.do(list_partition_reassignments)
    found = []
    for each in topics:
        # Null from a broker that does not let this client see it.
        insync = configs[_resource(each.name)]["min.insync.replicas"].value
        parts = []
        for part in each.partitions:
            moved = moving.get(TopicPartition(each.name, part.partition))
            if only.has(part, 0 if moved is None else len(moved.adding), int(insync or 1)):
                parts.append(part)
        if parts:
            found.append(replace(each, partitions=tuple(parts)))
    return found


def _lines(
    topic: TopicDescription,
    own: Mapping[str, str | None],
    ranges: Sequence[LogRange | None],
) -> Iterator[str]:
    yield f"{topic.name}: {_count(topic)}"
    for name, value in sorted(own.items()):
        # Brokers send null in place of a value that is sensitive.
        yield f"  {name}={'(secret)' if value is None else value}"
    rows: list[tuple[str, ...]] = [
        ("partition", "leader", "replicas", "isr", "eligible", "earliest", "latest")
    ]
    for part, log in zip(topic.partitions, ranges, strict=True):
        rows.append(
            (
                str(part.partition),
                "-" if part.leader < 0 else str(part.leader),
                ",".join(map(str, part.replicas)),
                ",".join(map(str, part.isr)) or "-",
                ",".join(map(str, part.eligible_leaders or ())) or "-",
                "-" if log is None else str(log.start),
                "-" if log is None else str(log.end),
            )
        )
    # Rarely there: it has no column unless one is.
    is_shown = any(each.eligible_leaders for each in topic.partitions)
    shown = [row if is_shown else (*row[:4], *row[5:]) for row in rows]
    count = len(shown[0])
    for line in aligned(shown, right=(0, 1, count - 2, count - 1)):
        yield f"  {line}"


def _count(topic: TopicDescription) -> str:
    return counted(len(topic.partitions), "partition")
