"""`tailrace cluster`: a cluster that runs, its moves, a cluster to try, and the files of a node."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailrace.cli.arguments import aligned
from tailrace.cli.on_cluster import (
    AS_JSON,
    YES,
    Connection,
    change,
    check_controllers,
    confirm,
    emit,
    on_cluster,
    parse_numbers,
    say,
)
from tailrace.config.settings import INT32_MAX
from tailrace.errors import FatalError
from tailrace.offline.metadata_state import (
    END,
    Change,
    MetadataState,
    Moment,
    NoMetadataError,
    Tree,
    damage_text,
    image_tree,
    metadata_changes,
    metadata_folder,
    metadata_state,
    metadata_states,
    parse_moment,
)
from tailrace.offline.show import printable
from tailrace.reading.located import Skipped
from tailrace.runtime.clock import iso_time
from tailrace.runtime.files import DiskFiles

if TYPE_CHECKING:
    from tailrace.client.admin.cluster import MetadataQuorum

FORMAT = "tailrace-metadata/1"
FENCED, SHUTTING_DOWN = "fenced", "shutting down"


@click.group()
def cluster() -> None:
    """Show the state of a cluster, move it, change its controllers, or start one.

    With --data no broker is asked and no file is changed, so a copy of the directory is enough.
    """


_DATA_HELP = (
    "The node's metadata.log.dir (by default the first of log.dirs), or a copy of it: the "
    "directory that contains __cluster_metadata-0."
)


def _moment(_: click.Context, parameter: click.Parameter, value: str | None) -> Moment:
    if value is None:
        return END
    try:
        return parse_moment(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None


@cluster.command()
@click.option("--data", "directory", metavar="DIR", help=f"Ask no broker. {_DATA_HELP}")
@click.option(
    "--at", callback=_moment, metavar="OFFSET|TIME",
    help="Show the state at an offset of the metadata log, or at a time (ISO 8601, UTC), instead "
    "of at its end; with --data.",
)  # fmt: skip
@click.option(
    "--topic", "name", metavar="TOPIC",
    help="Show only this topic, with its partitions; with --data.",
)  # fmt: skip
@AS_JSON
@on_cluster
def describe(
    directory: str | None,
    *,
    at: Moment,
    name: str | None,
    as_json: bool,
    connection: Connection,
) -> None:
    """Show the brokers of a cluster, fenced ones too, its controller, and the metadata quorum.

    Each broker is asked, for 3 seconds, whether it answers this machine. Of a replica of the
    metadata log the lag is shown too, in records.

    With --data, show brokers, topics, configs, features, quotas and ACLs from files. The state at
    an offset includes all records below it, the state at a time all records with a timestamp up to
    it.
    """
    if directory is None:
        if at is not END or name is not None:
            raise click.UsageError("--at and --topic are about the files of --data; see also topic")
        # The files of a node need no client.
        from tailrace.cli.cluster_status import describe_running

        describe_running(connection, as_json=as_json)
        return
    files = DiskFiles()
    folder = metadata_folder(files, directory)
    # Damage is reported and the rest is shown: the files may be all that is left of a dead node.
    state = metadata_state(files, folder, at, on_skip=_report)
    tree = image_tree(state.image)
    if name is not None:
        if name not in tree["topics"]:
            raise NoMetadataError(f"there is no topic {name!r} at {_when(state)}")
        tree = {"topics": {name: tree["topics"][name]}}
    if as_json:
        emit(FORMAT, "state", _state_fields(state))
        for part, entries in tree.items():
            for title, fields in entries.items():
                emit(FORMAT, part, {"name": title, "value": fields})
        return
    click.echo(printable(f"{folder} at {_when(state)}"))
    # Names and values come from a file that anyone may have written, and a terminal obeys control
    # characters in them.
    lines = _partitions(tree["topics"][name]) if name is not None else _parts(tree)
    for line in lines:
        click.echo(printable(line))


@cluster.command()
@click.option(
    "--brokers", type=click.IntRange(1, 9), default=3, show_default=True,
    help="How many brokers; their ids begin with 1.",
)  # fmt: skip
@click.option(
    "--data", "directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Files of all nodes; another start with DIR continues, with the ports and settings in it. "
    "Default: a temporary directory, removed at the end.",
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(1, 65_000), default=9092, show_default=True,
    help="Port of broker 1; the other brokers and then the controller have the next ones.",
)  # fmt: skip
def start(*, brokers: int, directory: Path | None, port: int) -> None:
    """Run a controller and brokers on this machine until Ctrl-C, to try a cluster by hand.

    Each node is a process of its own: kill one, and see what clients make of it. Prints addresses,
    process ids, and the command that starts a node again.
    """
    from tailrace.cli.cluster_start import start_cluster

    start_cluster(directory, brokers=brokers, port=port)


@cluster.command()
@click.option(
    "--picture", metavar="FILE", default="demo-cluster.html", show_default=True,
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Where to draw who led what, and what was acknowledged when.",
)  # fmt: skip
def demo(*, picture: Path) -> None:
    """Kill one of three brokers under load, and check that no record is missing.

    Starts a cluster as `tailrace cluster start` does, with producers and a consumer group at work.
    Takes half a minute, and leaves only the picture.
    """
    from tailrace.demo.cluster import run

    # Otherwise half a minute would have passed before the error.
    if not picture.absolute().parent.is_dir():
        raise click.UsageError(f"--picture: there is no directory {picture.parent}")
    run(picture, say=click.echo)


def _numbers_of(_: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    assert parameter.opts
    return tuple(dict.fromkeys(parse_numbers(value, flag=parameter.opts[0], what="a broker id")))


def _rate(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kMGT]?)(i?)B?(?:/s)?", value, re.IGNORECASE)
    size = 0
    if found is not None:
        number, prefix, is_binary = found.groups()
        size = int(
            float(number) * (1024 if is_binary else 1000) ** " kmgt".index(prefix.lower() or " ")
        )
    if size < 1:
        raise click.BadParameter(
            f"{value!r} is no rate; give bytes a second, such as 50MB", param=parameter
        )
    return size


@cluster.command()
@click.option(
    "--from", "source", required=True, callback=_numbers_of, metavar="ID,...",
    help="The brokers to move everything from, such as 1,2,3 or 1-3.",
)  # fmt: skip
@click.option(
    "--to", "target", required=True, callback=_numbers_of, metavar="ID,...",
    help="The brokers to move it to; they run, with the same controllers.",
)  # fmt: skip
@click.option(
    "--throttle", callback=_rate, metavar="RATE",
    help="Most bytes a second that each broker sends, and gets, for the move: 50MB. "
    "Default: no limit.",
)  # fmt: skip
@click.option(
    "--at-once", "partitions_max", type=click.IntRange(1, 10_000), default=20, show_default=True,
    help="Most partitions that move at the same time.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Check, and show the plan, without a change.")
@click.option(
    "--cancel", is_flag=True,
    help="Put back the partitions that are being moved, and remove the throttle. Partitions that "
    "have moved stay; to move them back too, exchange --from and --to.",
)  # fmt: skip
@click.option(
    "--no-retire", is_flag=True,
    help="End when everything has moved. By default the old brokers are unregistered when they "
    "have stopped, which is waited for.",
)  # fmt: skip
@YES
@AS_JSON
@on_cluster
def migrate(
    source: tuple[int, ...],
    *,
    target: tuple[int, ...],
    throttle: int | None,
    partitions_max: int,
    dry_run: bool,
    cancel: bool,
    no_retire: bool,
    yes: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Move a live cluster from some brokers to others, such as from Kafka to Tailrace and back.

    Checks that the new brokers can take everything and shows the plan. Then it moves all
    partitions, internal topics included, a few at a time, and leaders with them; racks are kept
    where possible. Last it says which brokers can be stopped, and ends their registrations.

    Clients work meanwhile. Ctrl-C finishes the partitions that are being moved, a second one leaves
    them to the controllers. All state is in the cluster: the same command continues, from any
    machine.
    """
    both = sorted(set(source) & set(target))
    if both:
        raise click.UsageError(f"broker {both[0]} is in --from and in --to")
    if cancel and dry_run:
        raise click.UsageError("--cancel and --dry-run exclude each other")
    from tailrace.cli.cluster_migrate import cancel_running, migrate_running
    from tailrace.client.migration.plan import Order

    order = Order(source=source, target=target, throttle=throttle, partitions_max=partitions_max)
    if cancel:
        cancel_running(connection, order, as_json=as_json)
    else:
        migrate_running(
            connection, order, retires=not no_retire, is_dry_run=dry_run, yes=yes, as_json=as_json
        )


@cluster.command()
@click.argument("broker_id", metavar="ID", type=click.IntRange(0, INT32_MAX))
@YES
@AS_JSON
@on_cluster
def unregister(broker_id: int, *, yes: bool, as_json: bool, connection: Connection) -> None:
    """End the registration of a broker that will not come back, as kafka-cluster.sh does.

    Refuses a broker that is in service: it would register again. Asks before it forgets one that
    still has replicas, which stay in their partitions until they are reassigned.
    """
    from tailrace.cli import cluster_status
    from tailrace.client.admin.cluster import unregister_broker

    with connection.open() as reader:
        for each in cluster_status.brokers(reader):
            if each.id == broker_id and not each.is_fenced:
                raise FatalError(
                    f"broker {broker_id} is in service at {each.host}:{each.port}, and would "
                    "register again; stop it, and repeat this once `tailrace cluster describe` "
                    "shows it as fenced"
                )
        check_controllers(reader)
        topics = reader.topics().values()
        kept = sum(broker_id in part.replicas for topic in topics for part in topic.partitions)
        if kept:
            question = (
                f"Broker {broker_id} has replicas of {kept} partitions, which lack them until they "
                "are reassigned. Unregister it?"
            )
            confirm(question, yes=yes)
        change(reader, unregister_broker, broker_id)
    if as_json:
        emit(cluster_status.FORMAT, "unregistered", {"broker": broker_id})
    else:
        click.echo(f"broker {broker_id} is no longer registered")


@cluster.command("add-controller")
@click.argument("controller", metavar="ID@HOST:PORT")
@on_cluster
def add_controller(controller: str, *, connection: Connection) -> None:
    """Make a running controller a voter of the metadata log, as kafka-metadata-quorum.sh does.

    Gives it a minute to fetch the log. Refuses what would leave the voters without a majority.
    ID is its node.id, HOST:PORT its listener. The active controller has to be Apache Kafka's.
    """
    from tailrace.broker.kraft.settings import parse_controllers
    from tailrace.client import controllers

    try:
        [found] = parse_controllers((controller,), ())
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with connection.open() as reader:
        quorum = change(
            reader, controllers.add_controller, found.id, (found.host, found.port), report=say
        )
    click.echo(f"controller {found.id} is a voter; all: {_voters(quorum)}")


@cluster.command("remove-controller")
@click.argument("controller_id", metavar="ID", type=click.IntRange(0, INT32_MAX))
@on_cluster
def remove_controller(controller_id: int, *, connection: Connection) -> None:
    """Remove a controller from the voters of the metadata log, before it is stopped for good.

    Refuses what would leave the voters without a majority. The controller may be away, or the
    active one. This one has to be Apache Kafka's.
    """
    from tailrace.client import controllers

    with connection.open() as reader:
        quorum = change(reader, controllers.remove_controller, controller_id, report=say)
    click.echo(f"controller {controller_id} is no voter; all: {_voters(quorum)}")


def _voters(quorum: "MetadataQuorum") -> str:
    return ", ".join(str(each) for each in sorted(each.replica_id for each in quorum.voters))


@cluster.command()
@click.option("--data", "directory", metavar="DIR", required=True, help=_DATA_HELP)
@click.option(
    "--from", "first", callback=_moment, required=True, metavar="OFFSET|TIME",
    help="The earlier state: an offset of the metadata log, or a time (ISO 8601, UTC).",
)  # fmt: skip
@click.option(
    "--to", "last", callback=_moment, metavar="OFFSET|TIME",
    help="The later state, given likewise. Default: the end of the log.",
)  # fmt: skip
@AS_JSON
def diff(directory: str, *, first: Moment, last: Moment, as_json: bool) -> None:
    """Show what changed between two states of the cluster.

    Each line has the time and offset of the last change of a value: + added, - removed, ~ changed.
    Where that part of the log has been deleted, only a snapshot after the change is known; the line
    then begins with "by".
    """
    files = DiskFiles()
    folder = metadata_folder(files, directory)
    states = metadata_states(files, folder, first=first, last=last, on_skip=_report)
    for each in metadata_changes(states):
        if as_json:
            emit(FORMAT, "change", _change_fields(each))
        else:
            click.echo(printable(_change_line(each)))


def _report(damage: Skipped) -> None:
    say(damage_text(damage))


def _when(state: MetadataState) -> str:
    return f"offset {state.next_offset}, {iso_time(state.timestamp)}, epoch {state.epoch}"


def _state_fields(state: MetadataState) -> Tree:
    voters = None if state.voters is None else [each.voter_id for each in state.voters.voters]
    return {
        "next_offset": state.next_offset,
        "timestamp": state.timestamp,
        "epoch": state.epoch,
        "voters": voters,
    }


def _change_fields(change: Change) -> Tree:
    return {
        "path": list(change.path),
        "before": change.before,
        "after": change.after,
        "next_offset": change.next_offset,
        "timestamp": change.timestamp,
        "is_jump": change.is_jump,
    }


def _change_line(change: Change) -> str:
    by = "by " * change.is_jump
    when = f"{by}{iso_time(change.timestamp)}  {by}offset {change.next_offset}"
    path = ": ".join(change.path)
    if change.before is None:
        return f"{when}  + {path} = {_json(change.after)}"
    if change.after is None:
        return f"{when}  - {path}, was {_json(change.before)}"
    return f"{when}  ~ {path} = {_json(change.after)}, was {_json(change.before)}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _parts(tree: Tree) -> Iterator[str]:
    tables = {"brokers": _brokers, "topics": _topics}
    for part, entries in tree.items():
        if entries:
            yield ""
            yield part.replace("_", " ")
            rows = tables[part](entries) if part in tables else _lines(entries)
            yield from (f"  {each}" for each in rows)


def _lines(entries: Mapping[str, Any]) -> Iterator[str]:
    for title, fields in entries.items():
        pairs = fields.items() if isinstance(fields, dict) else ((None, fields),)
        text = ", ".join(str(value) if name is None else f"{name}={value}" for name, value in pairs)
        yield f"{title}: {text}"


def _brokers(entries: Mapping[str, Any]) -> Iterator[str]:
    rows = [("id", "state", "rack", "epoch", "listeners")]
    for number, broker in entries.items():
        is_leaving = broker.get("in_controlled_shutdown")
        # In this order: at the end of a controlled shutdown the controller fences the broker too.
        state = SHUTTING_DOWN if is_leaving else FENCED if broker["fenced"] else "active"
        ends = (f"{each['name']}://{each['host']}:{each['port']}" for each in broker["end_points"])
        row = number, state, broker["rack"] or "-", str(broker["broker_epoch"]), " ".join(ends)
        rows.append(row)
    return aligned(rows, right=(0, 3))


def _topics(entries: Mapping[str, Any]) -> Iterator[str]:
    rows = [("topic", "id", "partitions", "replicas", "without leader", "replicas out of sync")]
    for name, topic in entries.items():
        parts = topic["partitions"].values()
        counts = (
            len(parts),
            # The largest: while a reassignment runs the partitions differ.
            max((len(each["replicas"]) for each in parts), default=0),
            # -1 stands for no leader.
            sum(each["leader"] < 0 for each in parts),
            sum(len(each["replicas"]) - len(each["isr"]) for each in parts),
        )
        rows.append((name, topic["topic_id"], *map(str, counts)))
    return aligned(rows, right=(2, 3, 4, 5))


def _partitions(topic: Tree) -> Iterator[str]:
    rows = [("partition", "leader", "epoch", "replicas", "in sync", "directories")]
    for number, each in topic["partitions"].items():
        cells = each["leader"], each["leader_epoch"], each["replicas"], each["isr"]
        # Version 0 of the record has no directories (KIP-858 added them).
        directories = each.get("directories", ())
        rows.append((number, *map(_numbers, cells), " ".join(directories) or "-"))
    return aligned(rows, right=(0, 1, 2))


def _numbers(value: int | Sequence[int]) -> str:
    return str(value) if isinstance(value, int) else ",".join(map(str, value)) or "-"
