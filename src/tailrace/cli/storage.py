"""`tailrace storage`: log directories formatted, and described."""

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from tailrace.cli.arguments import aligned, data_directories
from tailrace.cli.feature_levels import FEATURE, RELEASE, release_name
from tailrace.cli.on_cluster import AS_JSON, emit, say
from tailrace.cluster.control.credentials import SCRAM_SINCE
from tailrace.cluster.metadata.features import FeatureUpdateError, metadata_release
from tailrace.cluster.metadata.image import METADATA_VERSION, ScramUser
from tailrace.config.settings import INT32_MAX
from tailrace.offline.formatting import (
    DirectoryInfo,
    MetadataInfo,
    Wanted,
    format_directories,
    levels_of,
    storage_info,
)
from tailrace.offline.show import printable
from tailrace.runtime.system import system_runtime

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import UserScramCredentialRecord

FORMAT = "tailrace.storage/1"


@click.group()
def storage() -> None:
    """Format log directories for a broker, and show the ids in them."""


@storage.command("format")
@data_directories
# kafka-storage.sh requires it, since the nodes of a cluster must have the same one.
@click.option("--cluster-id", metavar="ID", help="Default: a new random id.")
@click.option(
    "--node-id", type=click.IntRange(0, INT32_MAX), help="Default: 1, as in tailrace serve."
)
@RELEASE
@FEATURE
# As in Kafka an argument, which other users of the machine can read while the command runs.
@click.option(
    "--add-scram",
    "scram",
    multiple=True,
    metavar="MECHANISM=[...]",
    help="A user that can log in from the first start, as SCRAM-SHA-512=[name=N,password=P]; "
    "repeatable.",
)
@click.option(
    "--add-scram-file",
    "scram_file",
    type=click.File("r"),
    metavar="FILE",
    help="Such users, one in each line, - for stdin: other users of the machine cannot read it.",
)
# Kafka's flag: without it one formatted directory is an error for all.
@click.option(
    "--ignore-formatted", is_flag=True, help="Skip directories that are already formatted."
)
@AS_JSON
def format_all(
    directories: list[str],
    *,
    cluster_id: str | None,
    node_id: int | None,
    release: int | None,
    levels: Mapping[str, int],
    scram: Sequence[str],
    scram_file: IO[str] | None,
    ignore_formatted: bool,
    as_json: bool,
) -> None:
    """Format log directories, as kafka-storage.sh format does.

    `tailrace serve` formats new directories itself, so this is needed only for a given cluster id,
    or to start with the feature levels of an earlier release. The first start of a controller
    names itself as the voter, so --standalone is not needed; the directory of one of Kafka's that
    joins later is formatted as with --no-initial-controllers.
    """
    try:
        # Before any directory is touched, since levels depend on each other.
        chosen = levels_of(release, levels)
    except FeatureUpdateError as error:
        raise click.UsageError(f"--feature: {error}") from error
    users = _users(scram, scram_file, metadata_version=chosen[METADATA_VERSION])
    runtime = system_runtime()
    found = format_directories(
        runtime.files,
        directories,
        Wanted(
            cluster_id=cluster_id,
            node_id=node_id,
            levels=chosen,
            scram=users,
            ignores_formatted=ignore_formatted,
        ),
        clock=runtime.clock,
        chance=runtime.chance,
    )
    for each in found:
        if as_json:
            fields = {
                "directory": each.path,
                "cluster_id": each.identity.cluster_id,
                "node_id": each.identity.node_id,
                "directory_id": each.identity.directory_id or None,
                "is_new": each.is_new,
            }
            emit(FORMAT, "formatted", fields)
        else:
            verb = "formatted" if each.is_new else "left as it was:"
            node = f"node {each.identity.node_id} of cluster {each.identity.cluster_id}"
            click.echo(printable(f"{verb} {each.path} for {node}"))
    if not as_json:
        named = ", ".join(f"{name} {_level(name, level)}" for name, level in chosen.items())
        click.echo(f"feature levels of newly formatted directories: {named}")


def _users(
    arguments: Sequence[str], file: IO[str] | None, *, metadata_version: int
) -> Mapping[ScramUser, "UserScramCredentialRecord"]:
    lines = [] if file is None else [each for each in file if each.strip()]
    if not arguments and not lines:
        return {}
    # hashlib loads OpenSSL, which takes 4 ms.
    from tailrace.cluster.scram_arguments import parse_scram_users

    # As in Kafka: earlier levels have no records of users.
    if metadata_version < SCRAM_SINCE:
        raise click.UsageError(
            f"--add-scram: users need metadata.version {SCRAM_SINCE} (release 3.5) or more"
        )
    try:
        return parse_scram_users([*arguments, *lines])
    except ValueError as error:
        raise click.UsageError(f"--add-scram: {error}") from error


@storage.command()
@data_directories
@AS_JSON
def info(directories: list[str], *, as_json: bool) -> None:
    """Show cluster, node and directory ids, and the metadata log.

    Also shows feature levels, brokers and the number of topics. Nothing is changed, and a broker
    may be running.
    """
    # Damage is said and the rest is shown: this may be the first command after a crash.
    found = storage_info(system_runtime().files, directories, report=say)
    if as_json:
        for each in found.directories:
            emit(FORMAT, "directory", _directory_fields(each))
        if found.metadata is not None:
            emit(FORMAT, "metadata", _metadata_fields(found.metadata))
        return
    for each in found.directories:
        for line in _directory_lines(each):
            click.echo(printable(line))
    lines = ["no metadata log"] if found.metadata is None else _metadata_lines(found.metadata)
    for line in lines:
        click.echo(printable(line))


def _level(name: str, level: int) -> str:
    release = release_name(name, level)
    return str(level) if release is None else f"{level} ({release})"


def _directory_fields(found: DirectoryInfo) -> dict[str, Any]:
    identity = found.identity
    return {
        "directory": found.path,
        "cluster_id": None if identity is None else identity.cluster_id or None,
        "node_id": None if identity is None else identity.node_id,
        "directory_id": None if identity is None else identity.directory_id or None,
        "clean_stop_epoch": found.stop_epoch,
        "partitions": found.partition_count,
    }


def _directory_lines(found: DirectoryInfo) -> Iterator[str]:
    yield found.path
    if found.identity is None:
        yield "  not formatted"
        return
    # The mark of an orderly stop is deleted by the next start.
    stop = "unclean, or still running"
    if found.stop_epoch is not None:
        stop = f"clean, in broker epoch {found.stop_epoch}"
    yield f"  cluster id    {found.identity.cluster_id or '-'}"
    yield f"  node id       {found.identity.node_id}"
    yield f"  directory id  {found.identity.directory_id or '-'}"
    yield f"  last stop     {stop}"
    yield f"  partitions    {found.partition_count}"


def _metadata_fields(found: MetadataInfo) -> dict[str, Any]:
    image, quorum = found.image, found.quorum
    return {
        "directory": found.directory,
        "start_offset": found.start_offset,
        "next_offset": found.next_offset,
        "epoch": found.epoch,
        "quorum_epoch": None if quorum is None else quorum.epoch,
        "leader_id": None if quorum is None else quorum.leader_id,
        "snapshots": [[each.next_offset, each.epoch] for each in found.snapshots],
        "metadata_version": image.metadata_version,
        "release": metadata_release(image.metadata_version),
        "features": dict(image.features),
        "brokers": [
            {"id": number, "fenced": broker.fenced, "epoch": broker.broker_epoch}
            for number, broker in image.brokers.items()
        ],
        "topics": len(image.topics),
        "partitions": sum(len(each.partitions) for each in image.topics.values()),
    }


def _metadata_lines(found: MetadataInfo) -> Iterator[str]:
    image = found.image
    # Formatted, and not started yet.
    if found.next_offset is None:
        yield f"no metadata log yet; it begins with the bootstrap.checkpoint of {found.directory}"
    else:
        yield f"metadata log of {found.directory}"
        yield f"  offsets       {found.start_offset} to {found.next_offset}"
        yield f"  epoch         {found.epoch}"
        if found.quorum is not None:
            yield f"  quorum        epoch {found.quorum.epoch}, led by {found.quorum.leader_id}"
        for each in found.snapshots:
            yield f"  snapshot      of offset {each.next_offset}, epoch {each.epoch}"
    yield "features"
    for name, level in image.features.items():
        yield f"  {name} {_level(name, level)}"
    if image.brokers:
        yield "brokers"
        rows = [("id", "state", "epoch", "listeners")]
        for number, broker in image.brokers.items():
            ends = (f"{each.name}://{each.host}:{each.port}" for each in broker.end_points)
            state = "fenced" if broker.fenced else "active"
            rows.append((str(number), state, str(broker.broker_epoch), " ".join(ends)))
        yield from (f"  {line}" for line in aligned(rows, right=(0, 2)))
    count = sum(len(each.partitions) for each in image.topics.values())
    yield f"topics: {len(image.topics)}, with {count} partitions"
