"""Shared by the `tailrace log` commands: options, progress, and the report of damage."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import click

from tailrace.cli.decoding import undecoded_sentence
from tailrace.errors import counted
from tailrace.offline.cat import parse_time
from tailrace.reading.damage import lost_words
from tailrace.reading.directory import DataDirectory, list_segments
from tailrace.reading.located import Skipped
from tailrace.reading.reader import FolderGoneError
from tailrace.runtime.files import Files

# Click computes the whole bar at each update, and a batch may have a hundred bytes.
STEP_BYTES = 4 * 1024 * 1024
"""Bytes that are read between two drawings of the progress bar."""

# Not 0: a script must not take what is left for all that there was.
EXIT_DAMAGE = 1

SKIPS = "--on-damage skip"
"""For the advice of an error that ends a command at damage."""

# stop is the default: a copy that lacks records must not be made by mistake.
ON_DAMAGE = click.option(
    "--on-damage", type=click.Choice(["stop", "skip"]), default="stop", show_default=True,
    help="stop: end with an error at damage. skip: report it on stderr, continue after it, and end "
    "with exit code 1.",
)  # fmt: skip


def milliseconds(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Milliseconds since 1970 of an option that is a time."""
    try:
        return None if value is None else parse_time(value)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(
            f"{value!r} is neither ISO 8601, such as 2026-05-01T12:00, nor milliseconds since 1970"
        ) from error


FROM_OFFSET = click.option(
    "--from-offset", type=click.IntRange(min=0), help="Only offsets from this one on."
)
TO_OFFSET = click.option(
    "--to-offset", type=click.IntRange(min=0), help="Only offsets below this one."
)
FROM_TIME = click.option(
    "--from-time",
    "from_time_ms",
    callback=milliseconds,
    metavar="TIME",
    help="Begin at the first record with this timestamp or a later one: ISO 8601 (UTC) or ms since "
    "1970.",
)
TO_TIME = click.option(
    "--to-time",
    "to_time_ms",
    callback=milliseconds,
    metavar="TIME",
    help="End before the first record with this timestamp or a later one; given likewise.",
)
# All records, as kafka-dump-log shows them: who looks into files wants to see aborted ones too.
ISOLATION = click.option(
    "--isolation", type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted", show_default=True,
    help="read_committed: leave out aborted records and markers, and stop at the last stable "
    "offset.",
)  # fmt: skip
PARTITION = click.option(
    "--partition", type=click.IntRange(min=0), help="Only this partition of TOPIC; by default all."
)


class LeftOut:
    """Tells of damage that is stepped over, on stderr, and counts it."""

    def __init__(self) -> None:
        self._ranges = 0
        self._records = 0
        self._offsets = 0
        self._bytes = 0
        self._unknown = 0
        """Ranges of which nobody knows how many records they had."""

    def report(self, skipped: Skipped) -> None:
        """One line: file, position, offsets, how much, and why."""
        first, limit = skipped.first_offset, skipped.next_offset
        self._ranges += 1
        self._records += skipped.records or 0
        self._bytes += skipped.size_bytes
        self._unknown += skipped.records is None
        if limit is None:
            offsets = f"offsets from {first} on"
        else:
            self._offsets += max(limit - first, 0)
            offsets = f"offsets {first} to {limit - 1}" if limit > first else "no offset"
        lost = lost_words(skipped.records, None, skipped.size_bytes)
        # On stderr: records go to stdout, and on to other programs.
        click.echo(
            f"left out: {skipped.file}, position {skipped.position}, {offsets}: "
            f"{skipped.reason} ({lost})",
            err=True,
        )

    def finish(self, *, undecoded: int = 0) -> None:
        """The summary, and exit code 1, if anything was left out or could not be decoded."""
        if self._ranges:
            unknown = (
                f"; {self._unknown} of them with an unknown number of records"
                if self._unknown
                else ""
            )
            lost = lost_words(self._records, self._offsets, self._bytes)
            ranges = counted(self._ranges, "damaged range")
            click.echo(f"left out: {ranges}, {lost}{unknown}", err=True)
        if undecoded:
            click.echo(undecoded_sentence(undecoded), err=True)
        if self._ranges or undecoded:
            sys.exit(EXIT_DAMAGE)


@contextmanager
def progress(label: str, files: Files, found: DataDirectory) -> Iterator[Callable[[int], None]]:
    """Yields a function that takes bytes read; it draws a bar if stderr is a terminal."""
    # In a log file each drawing of the bar would be a line.
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(
        length=log_bytes(files, found), label=label, file=sys.stderr, update_min_steps=STEP_BYTES
    ) as bar:
        yield bar.update


def log_bytes(files: Files, found: DataDirectory) -> int:
    """The size of all log files."""
    total = 0
    for folder in found.partitions.values():
        # A broker may delete the partition meanwhile; that is no error.
        with suppress(FolderGoneError):
            total += sum(each.size for each in list_segments(files, folder)[0])
    return total
