"""`tailrace log groups`: what groups have committed, without a broker."""

import json
from collections.abc import Iterator

import click

from tailrace.cli.arguments import aligned, log_directory
from tailrace.cli.log_options import ON_DAMAGE, LeftOut
from tailrace.offline.commits import GroupOffset, GroupsFound, find_groups
from tailrace.offline.show import printable
from tailrace.reading.directory import find_partitions
from tailrace.runtime.clock import iso_time
from tailrace.runtime.files import DiskFiles

GROUPS_FORMAT = "tailrace.groups/1"

_HEADINGS = ("group", "partition", "committed", "log end", "lag", "at", "pending", "metadata")
_NUMBERS = (2, 3, 4)


@click.command()
@log_directory
@click.option("--json", "as_json", is_flag=True, help="Print JSON Lines: one object per line.")
@ON_DAMAGE
def groups(directory: str, *, as_json: bool, on_damage: str) -> None:
    """List committed offsets of groups, from __consumer_offsets.

    Reads the __consumer_offsets partitions in DIR. The lag is shown for partitions whose log is in
    DIR too. Offsets of aborted transactions are left out; those of open transactions are pending.
    """
    files = DiskFiles()
    left_out = LeftOut()
    found = find_groups(
        files,
        find_partitions(files, directory),
        on_skip=left_out.report if on_damage == "skip" else None,
    )
    for line in _objects(found) if as_json else _lines(found):
        click.echo(line)
    left_out.finish()


def _objects(found: GroupsFound) -> Iterator[str]:
    for each in found.offsets:
        yield _object("offset", _fields(each))
    for name, (version, group) in sorted(found.groups.items()):
        fields: dict[str, object] = {
            "group": name,
            "protocol_type": group.protocol_type,
            "generation": group.generation,
            "protocol": group.protocol,
            "members": len(group.members),
            "state_timestamp": group.current_state_timestamp if version >= 2 else None,
        }
        yield _object("group", fields)
    names = {each.group for each in found.offsets} | found.groups.keys()
    yield _object("summary", {"groups": len(names), "unknown": dict(sorted(found.unknown.items()))})


def _object(kind: str, fields: dict[str, object]) -> str:
    return json.dumps({"format": GROUPS_FORMAT, "type": kind, **fields}, ensure_ascii=False)


def _fields(each: GroupOffset) -> dict[str, object]:
    version, commit = each.committed or (0, None)
    return {
        "group": each.group,
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "committed_offset": each.committed_offset,
        "leader_epoch": None if commit is None or version < 3 else commit.leader_epoch,
        "metadata": None if commit is None else commit.metadata,
        "commit_timestamp": None if commit is None else commit.commit_timestamp,
        "expire_timestamp": None if commit is None or version != 1 else commit.expire_timestamp,
        "log_end_offset": each.log_end_offset,
        "lag": each.lag,
        "pending": [
            {
                "offset": None if pending.offset < 0 else pending.offset,
                "metadata": pending.metadata,
                "commit_timestamp": pending.commit_timestamp,
            }
            for _, pending in each.pending
        ],
    }


def _lines(found: GroupsFound) -> Iterator[str]:
    rows = [_HEADINGS, *map(_row, found.offsets)]
    silent = found.groups.keys() - {each.group for each in found.offsets}
    rows += [(printable(name), *"-" * (len(_HEADINGS) - 1)) for name in sorted(silent)]
    yield from aligned(rows, right=_NUMBERS)
    for what, count in sorted(found.unknown.items()):
        yield f"not read: {count} {'record' if count == 1 else 'records'}: {what}"


def _row(each: GroupOffset) -> tuple[str, ...]:
    at, metadata = "-", ""
    if each.committed is not None:
        commit = each.committed.value
        at = iso_time(commit.commit_timestamp)
        metadata = printable(commit.metadata)
    return (
        printable(each.group),
        printable(str(each.partition)),
        "-" if each.committed_offset is None else str(each.committed_offset),
        "-" if each.log_end_offset is None else str(each.log_end_offset),
        "-" if each.lag is None else str(each.lag),
        at,
        ",".join(str(pending.offset) for _, pending in each.pending if pending.offset >= 0) or "-",
        metadata,
    )
