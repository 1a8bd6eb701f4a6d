"""`tailrace log compare`: the replicas of partitions in the directories of several brokers."""

import json
import sys
from typing import Any, Final

import click

from tailrace.cli.arguments import split_directories
from tailrace.errors import CorruptionError, DirectoryError, counted
from tailrace.offline.replica_sets import ComparedReplica, JudgedDifference, compare_replicas
from tailrace.reading.directory import find_partitions
from tailrace.runtime.files import DiskFiles

FORMAT: Final = "tailrace.compare/1"
_EXIT_DIFFERENT: Final = 1
_EXIT_UNVERIFIED: Final = 2


@click.command()
@click.option(
    "--data", metavar="DIR,DIR...", required=True,
    help="Log directories of several brokers; those of one broker may be among them, too.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON Lines: one object per line.")
def compare(data: str, *, as_json: bool) -> None:
    """Compare the replicas of partitions in the log directories of several brokers.

    Replicas have the same batches below their high watermarks. Other differences are shown with
    their reason: records above a high watermark, deletion and compaction in each replica's own
    time. Give the directories of stopped brokers, or copies; those of running ones change
    meanwhile.

    Exit code 0: replicas are equal, or differ for a reason. 1: they differ. 2: a directory cannot
    be read, or no partition is in several.
    """
    files = DiskFiles()
    replicas = wrong = 0
    try:
        found = [find_partitions(files, each) for each in dict.fromkeys(split_directories(data))]
        for each in compare_replicas(files, found):
            replicas += 1
            wrong += each.is_wrong
            for difference in each.differences:
                click.echo(
                    json.dumps(_fields(each, difference)) if as_json else _line(each, difference)
                )
    except (DirectoryError, CorruptionError, OSError) as error:
        click.echo(f"tailrace: {error}", err=True)
        sys.exit(_EXIT_UNVERIFIED)
    if as_json:
        summary = {"replicas": replicas, "wrong": wrong}
        click.echo(json.dumps({"format": FORMAT, "type": "summary", **summary}))
    elif replicas:
        click.echo(
            f"{counted(replicas, 'replica')} compared: "
            + (f"{wrong} differ below the high watermark" if wrong else "equal where committed")
        )
    if not replicas:
        listed = ", ".join(each.path for each in found)
        click.echo(
            f"tailrace: no partition is in several of {listed}; --data takes the log directories "
            "of several brokers, with commas between",
            err=True,
        )
        sys.exit(_EXIT_UNVERIFIED)
    if wrong:
        sys.exit(_EXIT_DIFFERENT)


def _line(replica: ComparedReplica, found: JudgedDifference) -> str:
    kind = "different" if found.reason is None else "explained"
    reason = "" if found.reason is None else f" ({found.reason})"
    return f"{kind}: {replica.partition}: {found.difference}{reason}"


def _fields(replica: ComparedReplica, found: JudgedDifference) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "type": "difference",
        "partition": str(replica.partition),
        "kind": found.difference.kind.value,
        "offset": found.difference.offset,
        "next_offset": found.difference.next_offset,
        "path": found.difference.path,
        "other_path": found.difference.other_path,
        "sentence": found.difference.sentence,
        "reason": found.reason,
    }
