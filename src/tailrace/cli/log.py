"""`tailrace log`: a log directory without a broker, or beside one; nothing is changed."""

import json
import sys
from collections.abc import Iterator

import click

from tailrace.errors import DirectoryError
from tailrace.offline.cat import (
    Choice,
    choose_partitions,
    find_records,
    iso_time,
    parse_time,
    to_hex,
    to_json,
    to_text,
)
from tailrace.offline.directory import DataDirectory, find_partitions, list_segments
from tailrace.offline.findings import Finding, Severity
from tailrace.offline.scan import PartitionScan, scan_partition
from tailrace.offline.verify import verify as verify_directory
from tailrace.runtime.files import DiskFiles, Files

SCAN_FORMAT = "tailrace.scan/1"
VERIFY_FORMAT = "tailrace.verify/1"

_EXIT_FINDINGS = 1
_EXIT_UNVERIFIED = 2
_STEP_BYTES = 4 * 1024 * 1024
"""How much is verified between two drawings of the progress bar."""

_HEADINGS = ("partition", "start", "end", "records", "batches", "segments", "bytes", "codecs")


def _milliseconds(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Milliseconds since 1970 of an option that is a time."""
    try:
        return None if value is None else parse_time(value)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(
            f"{value!r} is neither ISO 8601 nor milliseconds since 1970"
        ) from error


@click.group()
def log() -> None:
    """Look into log directories, without a broker or beside one.

    DIR is a data directory, or the folder of one partition. Nothing is changed.
    """


@log.command()
@click.argument("directory", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on a line for each.")
def scan(directory: str, *, as_json: bool) -> None:
    """List the partitions: offsets, time, size, codecs.

    Reads only the headers of batches, so it is quick; `verify` looks at every byte.
    """
    files = DiskFiles()
    found = find_partitions(files, directory)
    scans = (
        scan_partition(files, found.path, partition, folder=folder)
        for partition, folder in found.partitions.items()
    )
    if as_json:
        for each in scans:
            click.echo(json.dumps(_scan_object(each)))
        return
    for line in _table(list(scans)):
        click.echo(line)


@log.command()
@click.argument("directory", metavar="DIR")
@click.argument("topic", metavar="TOPIC[-PARTITION]")
@click.option("--partition", type=click.IntRange(min=0), help="Only this one of the topic.")
@click.option("--from-offset", type=click.IntRange(min=0), help="First offset.")
@click.option("--to-offset", type=click.IntRange(min=0), help="Only offsets below this one.")
@click.option(
    "--from-time",
    "from_time_ms",
    callback=_milliseconds,
    metavar="TIME",
    help="ISO 8601 (UTC) or ms since 1970.",
)
@click.option(
    "--to-time",
    "to_time_ms",
    callback=_milliseconds,
    metavar="TIME",
    help="Only records before this time.",
)
@click.option("--key", help="Only records with this key.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many records.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "hex"]), default="text",
    show_default=True, help="How records are shown.",
)  # fmt: skip
def cat(
    directory: str,
    topic: str,
    partition: int | None,
    *,
    form: str,
    key: str | None,
    **bounds: int | None,
) -> None:
    """Print records; those of __consumer_offsets decoded.

    Each batch is checked before its records are printed: damage ends the output with an error.
    """
    files = DiskFiles()
    partitions = choose_partitions(find_partitions(files, directory), topic, partition)
    choice = Choice(key=None if key is None else key.encode(), **bounds)
    show = {"text": to_text, "json": to_json, "hex": to_hex}[form]
    for found in find_records(files, partitions, choice):
        click.echo(show(found))


@log.command()
@click.argument("directory", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on a line for each finding.")
def verify(directory: str, *, as_json: bool) -> None:
    """Check every byte: checksums, records, offsets, indexes, checkpoints.

    Exit code 0: clean. 1: there are errors or warnings. 2: no damage was found, and not all could
    be looked at.
    """
    files = DiskFiles()
    try:
        found = find_partitions(files, directory)
        total = _log_bytes(files, found)
        counts = dict.fromkeys(Severity, 0)
        for finding in _with_progress(files, found, total):
            counts[finding.severity] += 1
            click.echo(json.dumps(_finding_object(finding)) if as_json else str(finding))
    except DirectoryError as error:
        click.echo(f"tailrace: {error}", err=True)
        sys.exit(_EXIT_UNVERIFIED)
    named = {severity.value: count for severity, count in counts.items()}
    if as_json:
        summary = {"partitions": len(found.partitions), "bytes": total, "findings": named}
        click.echo(json.dumps({"format": VERIFY_FORMAT, "type": "summary", **summary}))
    else:
        told = ", ".join(f"{count} {name}" for name, count in named.items() if count) or "clean"
        count = len(found.partitions)
        noun = "partition" if count == 1 else "partitions"
        click.echo(f"{count} {noun}, {total} bytes of log: {told}")
    if counts[Severity.ERROR] or counts[Severity.WARNING]:
        sys.exit(_EXIT_FINDINGS)
    if counts[Severity.UNVERIFIED]:
        sys.exit(_EXIT_UNVERIFIED)


def _with_progress(files: Files, found: DataDirectory, total: int) -> Iterator[Finding]:
    """The findings, with a bar on stderr where that is a terminal."""
    if not sys.stderr.isatty():
        yield from verify_directory(files, found)
        return
    with click.progressbar(
        length=total, label="verifying", file=sys.stderr, update_min_steps=_STEP_BYTES
    ) as bar:
        yield from verify_directory(files, found, progress=bar.update)


def _log_bytes(files: Files, found: DataDirectory) -> int:
    folders = found.partitions.values()
    return sum(each.size for folder in folders for each in list_segments(files, folder)[0])


def _scan_object(scan: PartitionScan) -> dict[str, object]:
    return {
        "format": SCAN_FORMAT,
        "topic": scan.partition.topic,
        "partition": scan.partition.partition,
        "start_offset": scan.start_offset,
        "end_offset": scan.end_offset,
        "oldest_timestamp": scan.oldest_timestamp,
        "newest_timestamp": scan.newest_timestamp,
        "segments": scan.segments,
        "bytes": scan.bytes,
        "batches": scan.batches,
        "records": scan.records,
        "codecs": dict(scan.codecs),
        "tail_bytes": scan.tail_bytes,
        "damage": scan.damage,
    }


def _finding_object(finding: Finding) -> dict[str, object]:
    return {
        "format": VERIFY_FORMAT,
        "type": "finding",
        "severity": finding.severity.value,
        "rule": finding.rule.value,
        "path": finding.path,
        "position": finding.position,
        "offset": finding.offset,
        "sentence": finding.sentence,
    }


def _table(scans: list[PartitionScan]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [(*_HEADINGS, "oldest", "newest")]
    rows += [
        (
            str(each.partition),
            *map(str, (each.start_offset, each.end_offset, each.records, each.batches)),
            *map(str, (each.segments, each.bytes)),
            ",".join(sorted(each.codecs)) or "-",
            *map(_time, (each.oldest_timestamp, each.newest_timestamp)),
        )
        for each in scans
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if 1 <= number <= 6 else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
    for each in scans:
        if each.tail_bytes:
            yield f"{each.partition}: {each.tail_bytes} bytes of an append in progress or torn"
        for sentence in each.damage:
            yield f"{each.partition}: damaged: {sentence}"


def _time(timestamp_ms: int | None) -> str:
    return "-" if timestamp_ms is None else iso_time(timestamp_ms)
