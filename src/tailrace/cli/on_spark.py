"""Shared by all commands that run a job on Spark: start Spark, and report the time taken.

Invariant: Spark is started last, after all that can be found wrong without it.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_spark(master: str) -> "SparkSession":
    """The session of this process; says on stderr that it waits for Spark, if there is none yet.

    Raises:
        FatalError: as `tailrace.spark.session`.
    """
    from tailrace.spark.environment import check_pyspark
    from tailrace.spark.session import session

    check_pyspark()
    from pyspark import SparkContext

    if SparkContext._active_spark_context is None:
        say(f"starting Spark on {master}")
    return session(name="tailrace pipeline", master=master)


def say(waiting_for: str) -> None:
    """Tell on stderr what the command does next and the user waits for."""
    click.echo(f"tailrace: {waiting_for}", err=True)


def whole_time() -> str:
    """The seconds since the command began, for the end of a line with those of the job."""
    began = click.get_current_context().find_root().meta["began"]
    return f"{time.monotonic() - began:.1f} s in all"


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Takes what is done and what there is; a bar on stderr where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def step(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield step
