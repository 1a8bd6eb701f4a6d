"""`tailrace group`: groups of consumers of any Kafka cluster, and their committed offsets."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import click

from tailrace.cli import completion
from tailrace.cli.arguments import aligned, parse_int64
from tailrace.cli.on_cluster import (
    AS_JSON,
    YES,
    Connection,
    change,
    confirm,
    emit,
    end_without,
    list_from_all,
    on_cluster,
    parse_partitions,
    ranges_known,
    say,
)
from tailrace.client.admin import groups
from tailrace.client.admin.group_offsets import (
    OffsetReset,
    delete_group_offsets,
    list_group_offsets,
    reset_group_offsets,
)
from tailrace.client.admin.groups import (
    EMPTY,
    GroupDescription,
    GroupMember,
    NoSuchGroupError,
    delete_groups,
    describe_groups,
    remove_members_from_group,
)
from tailrace.client.admin.offsets import (
    CommittedOffset,
    LogRange,
    OffsetAt,
    Place,
)
from tailrace.client.errors import RemoteFatalError
from tailrace.client.reader import ClusterReader
from tailrace.client.topics import find_partitions
from tailrace.errors import FatalError, counted
from tailrace.model import TopicPartition
from tailrace.offline.show import printable
from tailrace.protocol.errors import ErrorCode

GROUP_FORMAT = "tailrace.group/1"

_TOPICS = click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:0,1,4-7]",
    help="A topic, or some of its partitions; repeatable.",
)  # fmt: skip

_DURATION = re.compile(
    r"P?(?:(?P<days>\d{1,6})D)?T?(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,9})S)?",
    re.IGNORECASE,
)
_UNITS_MS: Final = {
    "days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000,
}  # fmt: skip


@click.group()
def group() -> None:
    """List and describe consumer groups, and reset or delete their committed offsets."""


@group.command("list")
@AS_JSON
@on_cluster
def list_groups(*, as_json: bool, connection: Connection) -> None:
    """List all groups with their type, state and protocol.

    Where a broker does not answer within some seconds, its groups are missing, and the exit code
    is 1.
    """
    with connection.open() as cluster:
        found, silent = list_from_all(cluster, groups.list_groups)
    rows = [("group", "type", "state", "protocol")]
    for each in found:
        fields = {
            "group": each.group,
            # Brokers before KIP-848 send no type, and those before KIP-518 no state.
            "group_type": each.type or None,
            "state": each.state or None,
            "protocol_type": each.protocol_type or None,
        }
        if as_json:
            emit(GROUP_FORMAT, "group", fields)
        rows.append(
            (
                printable(each.group),
                printable(each.type) or "-",
                printable(each.state) or "-",
                printable(each.protocol_type) or "-",
            )
        )
    for line in () if as_json else aligned(rows, right=()):
        click.echo(line)
    end_without(silent, "groups")


@group.command()
@click.argument(
    "names", nargs=-1, required=True, metavar="GROUP...", shell_complete=completion.groups
)
@AS_JSON
@on_cluster
def describe(names: tuple[str, ...], *, as_json: bool, connection: Connection) -> None:
    """Show members, their partitions, committed offsets and lag.

    The lag is the log end offset minus the committed offset: negative if the committed offset is
    after the end of the log, and - if nothing is committed or the partition has no leader, or its
    leader does not answer; the reason is on stderr then.
    """
    with connection.open() as cluster:
        for name in dict.fromkeys(names):
            # One group at a time: each is printed before the next is asked for.
            found = cluster.do(describe_groups, [name]).result(name)
            committed = cluster.do(list_group_offsets, name).results()
            owners = {each: member for member in found.members for each in member.partitions}
            # A member may own partitions without a commit, and commits outlive their owners.
            partitions = sorted(committed.keys() | owners.keys())
            logs = ranges_known(cluster, partitions)
            if as_json:
                emit(GROUP_FORMAT, "group", _group_fields(found))
                for member in found.members:
                    emit(GROUP_FORMAT, "member", {"group": name} | _member_fields(member))
                for each in partitions:
                    place = {"group": name, "topic": each.topic, "partition": each.partition}
                    fields = _offset_fields(committed.get(each), logs.get(each), owners.get(each))
                    emit(GROUP_FORMAT, "offset", place | fields)
                continue
            for line in _description(found, partitions, committed, logs=logs, owners=owners):
                click.echo(line)


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=completion.groups)
@_TOPICS
@click.option(
    "--all-topics", is_flag=True, help="All partitions for which the group has a committed offset."
)
@click.option(
    "--to", metavar="OFFSET|TIME",
    help="earliest, latest, an offset, a time (ISO 8601 in UTC, or @MS since 1970: the first "
    "record from then on), or a time before now (90m, 1d12h, P1DT12H).",
)  # fmt: skip
@click.option(
    "--shift-by", type=int, metavar="N",
    help="Move the committed offset forward by N, or back if N is negative.",
)  # fmt: skip
# Without it nothing changes, as in kafka-consumer-groups, whose dry run is the default.
@click.option(
    "--execute", is_flag=True, help="Commit the new offsets; without it they are only shown."
)
@AS_JSON
@on_cluster
def reset(
    name: str,
    *,
    topics: tuple[str, ...],
    all_topics: bool,
    to: str | None,
    shift_by: int | None,
    execute: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Reset committed offsets of a group without members.

    Without --execute the new offsets are shown and nothing is changed. An offset out of range
    becomes the log start or log end offset, whichever is nearer. A group that does not exist is
    created.
    """
    at = _place(to, shift_by)
    if all_topics == bool(topics):
        raise click.UsageError("give either --topic (repeatable) or --all-topics")
    wanted = [parse_partitions(each, flag="--topic") for each in topics]
    with connection.open() as cluster:
        committed = cluster.do(list_group_offsets, name).results()
        partitions = sorted(committed) if all_topics else _chosen(cluster, wanted)
        # A commit creates the group: a consumer can be placed before its first start.
        with suppress(NoSuchGroupError):
            described = cluster.do(describe_groups, [name]).result(name)
            _check_empty(described, change="get other offsets")
        # kafka-consumer-groups too takes the log start or end offset for one out of range.
        resets = _reset_to(cluster, name, partitions, at=at, execute=execute)
    if not resets:
        # A table without a row, and advice to add --execute, would look as if there were something
        # to reset.
        listed = ", ".join(topics) or "any topic"
        raise FatalError(f"nothing to reset: group {name} has committed no offset of {listed}")
    # With --shift-by kafka-consumer-groups fails for all partitions if one has no committed offset.
    skipped = [str(each) for each in partitions if each not in resets]
    if skipped:
        say(f"--shift-by: group {name} has committed no offset of {', '.join(skipped)}")
    for line in _resets(resets):
        if not as_json:
            click.echo(line)
    if as_json:
        for partition, each in resets.items():
            fields = _reset_fields(partition, each, is_done=execute)
            emit(GROUP_FORMAT, "reset", {"group": name} | fields)
    if not execute:
        say("nothing was changed; add --execute to commit these offsets")


@group.command()
@click.argument(
    "names", nargs=-1, required=True, metavar="GROUP...", shell_complete=completion.groups
)
@YES
@AS_JSON
@on_cluster
def delete(names: tuple[str, ...], *, yes: bool, as_json: bool, connection: Connection) -> None:
    """Delete groups without members, with their committed offsets."""
    with connection.open() as cluster:
        for each in dict.fromkeys(names):
            # All groups are checked before the first is deleted, since deleting cannot be undone.
            described = cluster.do(describe_groups, [each]).result(each)
            _check_empty(described, change="be deleted")
        # kafka-consumer-groups deletes without a question.
        confirm(f"Delete {', '.join(dict.fromkeys(names))} with all committed offsets?", yes=yes)
        for each in dict.fromkeys(names):
            change(cluster, delete_groups, [each]).results()
            if as_json:
                emit(GROUP_FORMAT, "deleted", {"group": each})
            else:
                click.echo(f"deleted group {each}")


@group.command("remove-members")
@click.argument("name", metavar="GROUP", shell_complete=completion.groups)
@click.option(
    "--instance-id", "instance_ids", multiple=True, metavar="ID",
    help="Only the member with this group.instance.id; repeatable. Without it all.",
)  # fmt: skip
@YES
@AS_JSON
@on_cluster
def remove_members(
    name: str,
    *,
    instance_ids: tuple[str, ...],
    yes: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Remove members of a classic group, such as those of a machine that will not come back.

    A static member is missed only after session.timeout.ms; this gives its partitions to others at
    once. Consumers that still run join again.
    """
    with connection.open() as cluster:
        whose = ", ".join(instance_ids) or "all members"
        confirm(f"Remove {whose} from group {name}?", yes=yes)
        outcomes = change(cluster, remove_members_from_group, name, instance_ids or None)
    for each in outcomes.succeeded:
        if as_json:
            emit(GROUP_FORMAT, "member-removed", {"group": name, "member": each})
        else:
            click.echo(f"removed {printable(each)} from group {printable(name)}")
    if not outcomes:
        say(f"group {name} has no members")
    outcomes.results()


@group.command("delete-offsets")
@click.argument("name", metavar="GROUP", shell_complete=completion.groups)
@_TOPICS
@YES
@AS_JSON
@on_cluster
def delete_committed(
    name: str, *, topics: tuple[str, ...], yes: bool, as_json: bool, connection: Connection
) -> None:
    """Delete the committed offsets of topics that no member of the group reads."""
    if not topics:
        raise click.UsageError("--topic is required, once or more")
    wanted = [parse_partitions(each, flag="--topic") for each in topics]

    def is_wanted(each: TopicPartition) -> bool:
        return any(
            each.topic == topic and (numbers is None or each.partition in numbers)
            for topic, numbers in wanted
        )

    with connection.open() as cluster:
        chosen = [
            each for each in cluster.do(list_group_offsets, name).results() if is_wanted(each)
        ]
        # Asked of the committed offsets and not of the topic, which may have been deleted.
        if not chosen:
            raise FatalError(f"group {name} has committed no offset of {', '.join(topics)}")
        confirm(f"Delete the offsets of {', '.join(map(str, chosen))}?", yes=yes)
        change(cluster, delete_group_offsets, name, chosen).results()
    for each in chosen:
        if as_json:
            place = {"group": name, "topic": each.topic, "partition": each.partition}
            emit(GROUP_FORMAT, "offset-deleted", place)
        else:
            click.echo(f"deleted offset of {each}")


def _place(to: str | None, shift_by: int | None) -> OffsetAt:
    if (to is None) == (shift_by is None):
        raise click.UsageError("give either --to or --shift-by")
    if to is None:
        return OffsetAt(Place.FROM_COMMITTED, shift_by or 0)
    if to in {"earliest", "latest"}:
        return OffsetAt(Place[to.upper()])
    digits = to.removeprefix("@")
    if digits.isdigit():
        number = parse_int64(digits)
        if number is None:
            raise click.UsageError(f"--to: {to!r} does not fit in 64 bits")
        return OffsetAt(Place.OFFSET if digits == to else Place.TIME, number)
    # Kafka's tool takes ISO 8601 durations alone (P1DT12H); 90m is how people write them.
    duration = _DURATION.fullmatch(to)
    if duration is not None and any(duration.groups()):
        given = duration.groupdict(default="0")
        ago_ms = sum(int(given[unit]) * size for unit, size in _UNITS_MS.items())
        return OffsetAt(Place.TIME, int(time.time() * 1000) - ago_ms)

    # Imported here: the offline tools load the kernels, which other values of --to do not need.
    from tailrace.offline.cat import parse_time

    try:
        return OffsetAt(Place.TIME, parse_time(to))
    except (ValueError, OverflowError) as error:
        raise click.UsageError(
            f"--to: {to!r} is not understood; give earliest, latest, an offset, a time such as "
            "2026-05-01T12:00, or a duration such as 90m"
        ) from error


def _chosen(
    cluster: ClusterReader, wanted: Sequence[tuple[str, tuple[int, ...] | None]]
) -> list[TopicPartition]:
    found: set[TopicPartition] = set()
    for name, numbers in wanted:
        found.update(find_partitions(cluster, name, numbers))
    return sorted(found)


def _check_empty(group: GroupDescription, *, change: str) -> None:
    """Refuse a group with members: they would go on where they are, and commit over a change.

    Raises:
        FatalError: the group is not Empty.
    """
    # Kafka refuses it with UNKNOWN_MEMBER_ID or NON_EMPTY_GROUP, which tells nobody what to do.
    if group.state != EMPTY:
        members = counted(len(group.members), "member")
        raise FatalError(
            f"group {group.group} is {group.state} with {members}, and can only {change} while it "
            "is Empty: stop its consumers first"
        )


def _reset_to(
    cluster: ClusterReader,
    name: str,
    partitions: Sequence[TopicPartition],
    *,
    at: OffsetAt,
    execute: bool,
) -> dict[TopicPartition, OffsetReset]:
    if execute:
        outcomes = change(cluster, reset_group_offsets, name, partitions, to=at)
    else:
        outcomes = cluster.do(reset_group_offsets, name, partitions, to=at, validate_only=True)
    for error in outcomes.errors.values():
        # A consumer can join between the check and the commit; the broker then refuses the commit.
        if isinstance(error, RemoteFatalError) and error.code == ErrorCode.UNKNOWN_MEMBER_ID:
            raise FatalError(
                f"nothing was reset: a consumer has joined group {name} meanwhile; stop it, and "
                "try again"
            ) from error
    return outcomes.results()


def _resets(resets: Mapping[TopicPartition, OffsetReset]) -> Iterator[str]:
    rows = [("partition", "committed", "new", "earliest", "latest", "")]
    for partition, each in resets.items():
        outside = each.found.offset != each.found.within
        rows.append(
            (
                str(partition),
                "-" if each.committed is None else str(each.committed.offset),
                str(each.found.within),
                str(each.found.log.start),
                str(each.found.log.end),
                f"offset {each.found.offset} is out of range" if outside else "",
            )
        )
    yield from aligned(rows, right=(1, 2, 3, 4))


def _reset_fields(
    partition: TopicPartition, each: OffsetReset, *, is_done: bool
) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed_offset": None if each.committed is None else each.committed.offset,
        "new_offset": each.found.within,
        "wanted_offset": each.found.offset,
        "log_start_offset": each.found.log.start,
        "log_end_offset": each.found.log.end,
        "executed": is_done,
    }


def _group_fields(found: GroupDescription) -> dict[str, object]:
    return {
        "group": found.group,
        "group_type": found.type,
        "state": found.state,
        "assignor": found.assignor or None,
        "coordinator": str(found.coordinator),
        "members": len(found.members),
    }


def _member_fields(member: GroupMember) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "partitions": [[each.topic, each.partition] for each in member.partitions],
    }


def _offset_fields(
    committed: CommittedOffset | None, log: LogRange | None, owner: GroupMember | None
) -> dict[str, object]:
    return {
        "committed_offset": None if committed is None else committed.offset,
        # Clients before KIP-320 commit no epoch; it is -1 on the wire.
        "leader_epoch": None
        if committed is None or committed.leader_epoch < 0
        else committed.leader_epoch,
        "metadata": None if committed is None else committed.metadata,
        "log_end_offset": None if log is None else log.end,
        # Negative if the log was truncated below the commit; shown, since it is a fault.
        "lag": None if committed is None or log is None else log.end - committed.offset,
        "member_id": None if owner is None else owner.member_id,
    }


def _description(
    found: GroupDescription,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    *,
    logs: Mapping[TopicPartition, LogRange],
    owners: Mapping[TopicPartition, GroupMember],
) -> Iterator[str]:
    assignor = f", assignor {printable(found.assignor)}" if found.assignor else ""
    yield (
        f"{printable(found.group)}: {found.type}, {found.state}, "
        f"{counted(len(found.members), 'member')}{assignor}, coordinator "
        f"{found.coordinator}"
    )
    rows = [("partition", "committed", "log end", "lag", "member", "client", "host")]
    for each in partitions:
        fields = _offset_fields(committed.get(each), logs.get(each), owners.get(each))
        committed_offset, log_end, lag = (
            "-" if fields[name] is None else str(fields[name])
            for name in ("committed_offset", "log_end_offset", "lag")
        )
        owner = _owner_cells(owners.get(each))
        rows.append((printable(str(each)), committed_offset, log_end, lag, *owner))
    # More members than partitions: the others wait, and would not be seen by their partitions.
    idle = [member for member in found.members if not member.partitions]
    rows += [("-", "-", "-", "-", *_owner_cells(member)) for member in idle]
    if len(rows) > 1:
        for line in aligned(rows, right=(1, 2, 3)):
            yield f"  {line}"


def _owner_cells(owner: GroupMember | None) -> tuple[str, str, str]:
    if owner is None:
        return "-", "-", "-"
    return printable(owner.member_id), printable(owner.client_id), printable(owner.host)
