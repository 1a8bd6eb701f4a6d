"""`tailrace broker`: settings and log directories of the brokers of any Kafka cluster.

Not here: which brokers there are, and whether they answer; `tailrace cluster describe` shows that.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click

from tailrace.cli.arguments import aligned, assigned
from tailrace.cli.cluster_status import brokers
from tailrace.cli.on_cluster import (
    AS_JSON,
    Connection,
    change,
    check_controllers,
    emit,
    end_without,
    on_cluster,
    parse_numbers,
    parse_partitions,
    silent_brokers,
)
from tailrace.client.admin.configs import (
    ConfigEntry,
    ConfigResource,
    describe_configs,
    incremental_alter_configs,
)
from tailrace.client.admin.replicas import (
    LogDirectory,
    Replica,
    alter_replica_log_dirs,
    describe_log_dirs,
)
from tailrace.client.nodes import Node
from tailrace.client.reader import ClusterReader
from tailrace.client.topics import find_partitions
from tailrace.model import TopicPartition
from tailrace.offline.show import printable
from tailrace.protocol.config_resources import ConfigSource, ResourceType

FORMAT: Final = "tailrace.broker/1"

_SOURCES: Final = {
    ConfigSource.DYNAMIC_BROKER: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "all brokers",
    ConfigSource.BROKER: "its start",
    ConfigSource.DEFAULT: "default",
}
"""The sources of values, in the words of the help."""

_DEFAULTS: Final = click.option(
    "--defaults", is_flag=True, help="The settings of all brokers that have none of their own."
)
_CONFIG: Final = click.option(
    "--config", "values", multiple=True, callback=assigned, metavar="NAME=VALUE",
    help="A setting that can be changed while brokers run, such as log.cleaner.threads=2; "
    "repeatable.",
)  # fmt: skip


@click.group()
def broker() -> None:
    """Show and change settings of running brokers, and show their log directories.

    tailrace cluster describe lists the brokers themselves.
    """


@broker.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@_DEFAULTS
@click.option(
    "--all", "lists_all", is_flag=True,
    help="Also settings that nobody has changed while the brokers run.",
)  # fmt: skip
@AS_JSON
@on_cluster
def describe(
    ids: Sequence[str], *, defaults: bool, lists_all: bool, as_json: bool, connection: Connection
) -> None:
    """Show settings that were changed while brokers run: of each ID, or of all brokers.

    A value comes from this broker, from all brokers (--defaults), from its start (a file or an
    option), or it is the default. Secret values are shown by no broker.
    """
    if defaults and ids:
        raise click.UsageError("give --defaults or an ID, not both")
    numbers = _numbers(ids)
    silent: dict[int, str] = {}
    with connection.open() as cluster:
        resources = [_resource(None)]
        if not defaults:
            wanted, silent = _answering(cluster, numbers)
            resources = [_resource(each) for each in wanted]
        outcomes = cluster.do(describe_configs, resources)
    rows = [("broker", "setting", "value", "from", "")]
    for resource, entries in outcomes.succeeded.items():
        for each in sorted(entries.values(), key=lambda each: each.name):
            is_dynamic = each.source in (
                ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER,
            )  # fmt: skip
            if not (is_dynamic or lists_all):
                continue
            if as_json:
                emit(FORMAT, "setting", _setting_fields(resource, each))
            rows.append((resource.name or "all", *_setting_cells(each)))
    for line in () if as_json else aligned(rows, right=()):
        click.echo(line)
    # Last: the answers of the others are shown, also if one broker refuses or is silent.
    outcomes.results()
    end_without(silent, "settings")


@broker.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@_DEFAULTS
@_CONFIG
@click.option(
    "--unset", multiple=True, metavar="NAME",
    help="A setting whose changed value is removed, so that that of all brokers applies, or that "
    "of its start; repeatable.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Let the brokers check the change, without it.")
@AS_JSON
@on_cluster
def alter(
    ids: Sequence[str],
    *,
    defaults: bool,
    values: Mapping[str, str],
    unset: Sequence[str],
    dry_run: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Change settings of each ID, or with --defaults of all brokers that have none of their own.

    They count at once, and after a restart too: they are in the metadata of the cluster.
    """
    both = sorted(values.keys() & set(unset))
    if both:
        raise click.UsageError(f"{both[0]}: give either --config or --unset, not both")
    if not (values or unset):
        raise click.UsageError("nothing to change; give --config or --unset")
    if defaults == bool(ids):
        raise click.UsageError("whose settings they are: give an ID, or --defaults")
    resources = [_resource(each) for each in _numbers(ids)] or [_resource(None)]
    changes = {**values, **dict.fromkeys(unset)}
    with connection.open() as cluster:
        check_controllers(cluster)
        outcomes = change(
            cluster,
            incremental_alter_configs,
            dict.fromkeys(resources, changes),
            validate_only=dry_run,
        )
    for each in outcomes.succeeded:
        if as_json:
            fields = {"set": values, "unset": list(unset), "dry_run": dry_run}
            emit(FORMAT, "altered", {"broker": _number(each), **fields})
        else:
            click.echo(f"{'can be altered' if dry_run else 'altered'}: {_named(each)}")
    outcomes.results()


@broker.command("log-dirs")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:0,1,4-7]",
    help="List the logs of these partitions, each with its directory; repeatable.",
)  # fmt: skip
@click.option(
    "--largest", type=click.IntRange(min=1), metavar="N",
    help="List the N largest logs, the largest first; with --topic those of its partitions.",
)  # fmt: skip
@AS_JSON
@on_cluster
def log_dirs(
    ids: Sequence[str],
    *,
    topics: Sequence[str],
    largest: int | None,
    as_json: bool,
    connection: Connection,
) -> None:
    """Show log directories with their logs, sizes and free bytes: of each ID, or of all brokers.

    With --topic or --largest the logs themselves: size, and the records that a log lacks, up to
    the high watermark, or up to the log that it is to replace.
    """
    numbers = _numbers(ids)
    chosen = [parse_partitions(each, flag="--topic") for each in topics]
    with connection.open() as cluster:
        parts = [each for name, part in chosen for each in find_partitions(cluster, name, part)]
        wanted, silent = _answering(cluster, numbers)
        outcomes = cluster.do(describe_log_dirs, wanted, partitions=parts if chosen else None)
    are_logs = bool(chosen) or largest is not None
    rows = [
        row
        for number, directories in outcomes.succeeded.items()
        for path, found in directories.items()
        for row in (
            _log_rows(number, path, found) if are_logs else (_directory_row(number, path, found),)
        )
    ]
    if largest is not None:
        rows.sort(key=lambda row: -int(row[1][3]))
        del rows[largest:]
    elif chosen:
        rows.sort(key=lambda row: row[1])
    if as_json:
        for fields, _ in rows:
            emit(FORMAT, "log" if are_logs else "directory", fields)
    else:
        titles = (
            ("partition", "broker", "directory", "bytes", "lag", "")
            if are_logs
            else ("broker", "directory", "logs", "bytes", "free", "of", "")
        )
        table = [titles, *(cells for _, cells in rows)]
        for line in aligned(table, right=(3, 4) if are_logs else (2, 3, 4, 5)):
            click.echo(line)
    outcomes.results()
    end_without(silent, "log directories")


@broker.command("move-logs")
@click.argument("number", metavar="ID", type=click.IntRange(min=0))
@click.argument("names", nargs=-1, required=True, metavar="TOPIC[:0,1,4-7]...")
@click.option(
    "--to", "path", required=True, metavar="DIR",
    help="One of the broker's log directories, as log-dirs shows it.",
)  # fmt: skip
@AS_JSON
@on_cluster
def move_logs(
    number: int, names: Sequence[str], *, path: str, as_json: bool, connection: Connection
) -> None:
    """Move logs of partitions to another log directory of broker ID, while they are served.

    Ends when the broker has begun; `log-dirs --topic` shows how far it is. Moves between brokers
    are those of `tailrace cluster migrate`.
    """
    chosen = [parse_partitions(each, flag="TOPIC") for each in names]
    with connection.open() as cluster:
        parts = [each for name, part in chosen for each in find_partitions(cluster, name, part)]
        moves = {Replica(each.topic, each.partition, number): path for each in parts}
        outcomes = change(cluster, alter_replica_log_dirs, moves)
    for replica in outcomes.succeeded:
        if as_json:
            place = {"topic": replica.topic, "partition": replica.partition}
            emit(FORMAT, "moving", {"broker": number, **place, "directory": path})
        else:
            click.echo(f"{TopicPartition(replica.topic, replica.partition)} goes to {path}")
    outcomes.results()


def _numbers(ids: Sequence[str]) -> list[int]:
    """The ids of brokers that are given, in order."""
    found = (parse_numbers(each, flag="ID", what="a broker id") for each in ids)
    return list(dict.fromkeys(number for numbers in found for number in numbers))


def _answering(cluster: ClusterReader, numbers: Sequence[int]) -> tuple[list[int], dict[int, str]]:
    """The brokers with these ids, or all, that answer; and the others, with the reasons."""
    nodes = {
        each.id: Node(each.id, each.host, each.port)
        for each in brokers(cluster)
        if not numbers or each.id in numbers
    }
    silent = silent_brokers(cluster, nodes)
    # One that nobody knows is asked for too, which is the error.
    return [each for each in numbers or nodes if each not in silent], silent


def _resource(number: int | None) -> ConfigResource:
    """The settings of one broker, or of all."""
    return ConfigResource(ResourceType.BROKER, "" if number is None else str(number))


def _number(resource: ConfigResource) -> int | None:
    return int(resource.name) if resource.name else None


def _named(resource: ConfigResource) -> str:
    return f"broker {resource.name}" if resource.name else "all brokers"


def _setting_fields(resource: ConfigResource, each: ConfigEntry) -> dict[str, object]:
    return {
        "broker": _number(resource),
        "name": each.name,
        # Null: the broker keeps it secret, or it has none.
        "value": each.value,
        "source": _source(each),
        "read_only": each.is_read_only,
        "secret": each.is_sensitive,
    }


def _source(each: ConfigEntry) -> str:
    return _SOURCES.get(ConfigSource(each.source), "") if each.source in set(ConfigSource) else ""


def _setting_cells(each: ConfigEntry) -> tuple[str, str, str, str]:
    value = "(secret)" if each.is_sensitive else each.value
    fixed = "until a restart" if each.is_read_only else ""
    return each.name, "-" if value is None else printable(value), _source(each) or "-", fixed


def _directory_row(
    number: int, path: str, found: LogDirectory
) -> tuple[dict[str, object], tuple[str, ...]]:
    size = sum(each.size for each in found.replicas.values())
    error = None if found.error is None else str(found.error)
    state = "offline" if error else "cordoned" if found.is_cordoned else ""
    fields: dict[str, object] = {
        "broker": number,
        "directory": path,
        "logs": len(found.replicas),
        "bytes": size,
        # -1 from brokers before Kafka 3.3, and for a directory that is offline.
        "usable_bytes": None if found.usable_bytes < 0 else found.usable_bytes,
        "total_bytes": None if found.total_bytes < 0 else found.total_bytes,
        "cordoned": found.is_cordoned,
        "error": error,
    }
    free, total = (
        "-" if each < 0 else str(each) for each in (found.usable_bytes, found.total_bytes)
    )
    return fields, (
        str(number),
        printable(path),
        str(len(found.replicas)),
        str(size),
        free,
        total,
        state,
    )


def _log_rows(
    number: int, path: str, found: LogDirectory
) -> Iterator[tuple[dict[str, object], tuple[str, ...]]]:
    for partition, each in found.replicas.items():
        fields: dict[str, object] = {
            "topic": partition.topic,
            "partition": partition.partition,
            "broker": number,
            "directory": path,
            "bytes": each.size,
            "lag": each.offset_lag,
            "future": each.is_future,
        }
        cells = (
            str(partition), str(number), printable(path), str(each.size), str(each.offset_lag),
            "moving here" if each.is_future else "",
        )  # fmt: skip
        yield fields, cells
