"""Shared by commands: options that mean the same in each, advice on damage, and tables of text."""

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

import click

from tailrace.config import parse_assignments
from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.errors import ConfigError, CorruptionError

P = ParamSpec("P")
R = TypeVar("R")

BOOTSTRAP: Final = ("-b", "--bootstrap", "--bootstrap-server", "bootstrap")
"""Flags for the address of a cluster: kcat's, ours and Kafka's, and the argument that they give."""

data_directory = click.option(
    "--data",
    "directory",
    metavar="DIR",
    required=True,
    help="A log directory (one of log.dirs), or the directory of one partition, as DIR/flights-0.",
)
"""The directory that a command is about, as its argument `directory`."""


def _limit_decompression(
    _: click.Context, __: click.Parameter, bytes_max: int | None
) -> int | None:
    if bytes_max is not None:
        from tailrace.records.codecs import ENVIRONMENT, limit_decompression

        # Processes that the command starts, such as Spark's, go by the variable.
        os.environ[ENVIRONMENT] = str(bytes_max)
        limit_decompression(bytes_max)
    return bytes_max


decompresses = click.option(
    "--max-decompressed-batch-bytes",
    type=click.IntRange(1, INT32_MAX),
    expose_value=False,
    callback=_limit_decompression,
    help="Refuse a batch that decompresses to more bytes than this, since it is held in memory. "
    "Default: 128 MiB.",
)
"""An option of commands that read records; it has no argument."""


def assigned(
    context: click.Context, parameter: click.Parameter, words: Sequence[str]
) -> dict[str, str]:
    """A callback of options and arguments NAME=VALUE, which the command gets as names and values.

    Raises:
        click.BadParameter: all words without `=`.
    """
    try:
        return parse_assignments(words)
    except ConfigError as error:
        raise click.BadParameter("; ".join(error.faults), context, parameter) from error


def log_directory(command: Callable[P, R]) -> Callable[P, R]:
    """The options of a command that reads the logs of `directory`."""
    return data_directory(decompresses(command))


# For the text of an error: one of a Spark job comes from a worker as text, without its fields
# (`spark.jobs.work`).
_LOG_FILE: Final = re.compile(r".*?/\d{20}\.(log|txnindex)[,:]")
"""Matches the beginning of an error about a file that `tailrace log repair` can repair."""


@contextmanager
def advising(skips: str) -> Iterator[None]:
    """Add what to do next to an error about a damaged log; a decorator too.

    `skips` are the options with which the command leaves out what is damaged.
    """
    try:
        yield
    except CorruptionError as error:
        # log repair cannot help with a manifest or a Parquet file.
        found = _LOG_FILE.match(str(error))
        if found is None:
            raise
        # No option leaves out a transaction index: aborted records would be shown.
        skip = f"to leave out what is damaged, add {skips}; " * (found[1] == "log")
        raise CorruptionError(
            f"{error.rule}; {skip}to find all damage, run tailrace log verify; to repair it, see "
            "tailrace log repair --help",
            path=error.path,
            position=error.position,
            offset=error.offset,
        ) from error


def split_directories(data: str) -> list[str]:
    """The directories of a `--data` that takes several: A,B."""
    # The form of log.dirs.
    return [each.strip() for each in data.split(",") if each.strip()]


def _split(_: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    directories = [os.path.abspath(each) for each in split_directories(value)]
    if not directories:
        raise click.BadParameter("it names no directory; give DIR or DIR,DIR", param=parameter)
    return directories


data_directories = click.option(
    "--data", "directories", required=True, callback=_split, metavar="DIR[,DIR]",
    help="All directories of log.dirs, in the same order, then metadata.log.dir if it is another.",
)  # fmt: skip
"""The directories of one node that a command is about, as its argument `directories`."""


def say_if_heard(line: str) -> None:
    """Print a line that an end must not depend on: the terminal, or who reads, may be gone."""
    try:
        click.echo(line)
    except OSError:
        drop_output()


def drop_output() -> None:
    """Let what is left in the buffer go nowhere: nobody reads on, as after `head`."""
    # Otherwise Python would try again at its exit, with an exit code of its own.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parse_int64(text: str) -> int | None:
    """The number that these decimal digits are; None if they are none, or fit no int64."""
    # Twenty digits are too many for int64, and int() refuses thousands of them with an error.
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    return number if (number := int(text)) <= INT64_MAX else None


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[int]) -> Iterator[str]:
    """Lines of a table; the columns with an index in `right` are of numbers."""
    # Nothing is cut to the width of a terminal: people copy paths and offsets from tables, and
    # scripts read the same lines from a pipe (decision 28).
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
