"""Work items to Spark tasks, and their results back to the driver.

One task runs one item: a function of a module, called with the item. Items and results travel
pickled, so both are small; what is large goes from task to disk and never through the JVM. It
needs nothing but `range` and `mapInArrow`, so it works over Spark Connect too, where the server
has to be able to import this package.

Spark may run an item more than once, and two attempts at the same time: after a failure, when an
executor is lost, by speculation. So an item's function writes under names that no other attempt
has (`manifest.attempt_name`), and what counts is decided on the driver, by the one result that
arrives.

A run of a job is a `Job`: rounds of items over a session, how much of them is done, and the time
since it began. Jobs differ in data: settings, a plan, a function for the items, and a summary.

Not here: results as a DataFrame. `mapInArrow` is the way to that.
"""

import os
import pickle
import re
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from tailrace.errors import CorruptionError, FatalError, RetriableError, TailraceError
from tailrace.runtime.memory import keep_large_buffers
from tailrace.spark.folder import open_folder
from tailrace.spark.jobs.manifest import attempt_name
from tailrace.values import dataclass

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

Progress = Callable[[int, int], None]
"""Takes how much of a job is done, and how much there is: offsets, bytes or files."""

ROUNDS = 2
"""Items per core in one Spark job: the second evens out slow ones of the first."""

_OURS = re.compile(r"tailrace(?:\.\w+)*\.(\w+): (.+)")
"""The last line of a traceback that ends with an error of ours: its class and its sentence."""

_RESULT = pa.schema([("result", pa.binary())])


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error that trying again does not help, so that it does not fail the Spark task."""

    sentence: str
    is_corruption: bool


def run_items(
    spark: "SparkSession", items: Sequence[Item], function: Callable[[Item], Result]
) -> list[Result]:
    """Call `function` for each item, in a task each; returns the results in order.

    `function` is one of a module, or a `functools.partial` of one.

    Raises:
        CorruptionError, FatalError: as the function raised it, as a sentence.
        RetriableError: the function raised it in all attempts that Spark makes.
        FatalError: it failed in another way; the last line of its traceback.
    """
    if not items:
        return []
    from pyspark.errors import PySparkException

    # Pickled here, so that an item which cannot travel fails on the driver.
    task = _task_of(function, [pickle.dumps(item) for item in items])
    with warnings.catch_warnings():
        # It asks for pandas without using it, and warns of every major version after 2.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        try:
            frame = spark.range(0, len(items), 1, len(items)).mapInArrow(task, "result binary")
            rows = frame.collect()
        except ImportError as error:
            raise FatalError(f"PySpark's mapInArrow cannot be used: {error}") from error
        except PySparkException as error:
            raise translated(str(error)) from error
    outcomes = dict(pickle.loads(bytes(row["result"])) for row in rows)  # noqa: S301 - our tasks
    results: list[Result] = []
    # The first failure by the order of items, whatever came first in time: the same run fails in
    # the same way.
    for index in range(len(items)):
        outcome = outcomes[index]
        if isinstance(outcome, _Failure):
            kind = CorruptionError if outcome.is_corruption else FatalError
            raise kind(outcome.sentence)
        results.append(outcome)
    return results


class Meter:
    """The part of a job that is done, reported to the caller's `progress`."""

    def __init__(self, progress: Progress | None) -> None:
        self.total = 0
        self._done = 0
        self._progress = progress

    def advance(self, amount: int) -> None:
        self._done += amount
        if self._progress is not None:
            self._progress(self._done, self.total)


class Job:
    """One run of a job on a session."""

    def __init__(
        self,
        spark: "SparkSession",
        *,
        directories: Sequence[str] = (),
        target: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Look whether the executors see `directories`, without those that are URIs, and `target`.

        Raises:
            FatalError: one does not.
        """
        self.spark = spark
        self.meter = Meter(progress)
        self._began = time.monotonic()
        self._core_count = count_cores(spark)
        check_visible(
            spark,
            directories=[
                each for each in directories if "://" not in each and not each.startswith("file:")
            ],
            target=target,
            core_count=self._core_count,
        )

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def round_size(self) -> int:
        return ROUNDS * self._core_count

    def rounds(
        self,
        items: Sequence[Item],
        function: Callable[[Item], Result],
        *,
        amount: Callable[[Item], int] = lambda _: 0,
    ) -> Iterator[list[tuple[Item, Result]]]:
        """Items with their results, round by round, so that a job can note what is done already.

        A round's `amount`, summed over its items, is done when the caller asks for the next one.

        Raises:
            CorruptionError, FatalError, RetriableError: as `run_items`; the rounds before stay
                done.
        """
        self.meter.total += sum(map(amount, items))
        for start in range(0, len(items), self.round_size):
            some = items[start : start + self.round_size]
            yield [*zip(some, run_items(self.spark, some, function), strict=True)]
            self.meter.advance(sum(map(amount, some)))

    def results(
        self,
        items: Sequence[Item],
        function: Callable[[Item], Result],
        *,
        amount: Callable[[Item], int] = lambda _: 0,
    ) -> Iterator[tuple[Item, Result]]:
        """All items with their results, one after the other; as `rounds`."""
        for found in self.rounds(items, function, amount=amount):
            yield from found


def count_cores(spark: "SparkSession") -> int:
    """Count the tasks into which Spark cuts work without a size: one for each of its cores.

    Only the last of the tasks is run, which tells its number.
    """
    from pyspark.sql import functions as F  # noqa: N812

    # `defaultParallelism` is a method of the SparkContext, which Spark Connect does not have.
    [last] = spark.range(0, 1_000_000).select(F.spark_partition_id()).tail(1)
    return int(last[0]) + 1


def check_visible(
    spark: "SparkSession", *, directories: Sequence[str], target: str | None, core_count: int
) -> None:
    """Fail now if an executor cannot see what its tasks will need.

    `directories` are to be read; to `target`, a path or URI, is written. There are as many tasks
    as cores, so every executor should get one, which Spark does not promise.

    Raises:
        FatalError: a path is missing on an executor's host, or is another one there.
    """
    marker = None
    folder = None if target is None else open_folder(target)
    if folder is not None:
        marker = attempt_name(".probe")
        # A path may exist on two machines and not be the same directory, so the executors look for
        # a file of the driver's.
        folder.replace(marker, b"")
    try:
        function = partial(_invisible, directories=tuple(directories), target=target, marker=marker)
        found = run_items(spark, range(core_count), function)
    finally:
        if folder is not None and marker is not None:
            folder.remove(marker)
    sentences = sorted({sentence for each in found for sentence in each})
    if sentences:
        raise FatalError("; ".join(sentences))


def _invisible(
    _: int, *, directories: tuple[str, ...], target: str | None, marker: str | None
) -> list[str]:
    """Runs on an executor: what it cannot see, as sentences."""
    host = socket.gethostname()
    sentences = [
        f"{path} is not a directory on {host}, where a Spark executor runs; logs must be on "
        "storage that all machines see"
        for path in directories
        if not os.path.isdir(path)
    ]
    if target is not None and marker is not None:
        try:
            open_folder(target).size(marker)
        except OSError:
            sentences.append(
                f"{target} on {host}, where a Spark executor runs, is not what the driver sees "
                "there; choose a place that all machines see"
            )
    return sentences


def _task_of(
    function: Callable[[Item], Result], pickled: Sequence[bytes]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`; Spark sends it to the executors with all items."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Columns of a row group are tens of megabytes, and glibc would return each of them to the
        # kernel.
        keep_large_buffers()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                item: Item = pickle.loads(pickled[index])  # noqa: S301 - our driver's
                outcome = pickle.dumps((index, _outcome(function, item)))
                yield pa.RecordBatch.from_arrays([pa.array([outcome], pa.binary())], schema=_RESULT)

    return run


def _outcome(function: Callable[[Item], Result], item: Item) -> Result | _Failure:
    try:
        return function(item)
    # Handed over as a result: Spark would run the task again, to no avail, and log each failure.
    except (CorruptionError, FatalError) as error:
        return _Failure(str(error), isinstance(error, CorruptionError))


def translated(message: str) -> TailraceError:
    """The error that the message of a failed Spark job is about, without the tracebacks."""
    raised = _raised(message)
    if raised is not None:
        return RetriableError(raised[1])
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    end = lines[0] if lines else "without a message"
    for before, line in pairwise(message.splitlines()):
        if before.startswith("  ") and line and not line[0].isspace():
            # Indented lines are frames, and the line after the last frame is the error.
            end = line
    return FatalError(f"a Spark task failed: {end}")


def error_of_query(error: "PySparkException") -> TailraceError:
    """The error that a query of the user's own has ended with, as a sentence."""
    from pyspark.errors import AnalysisException, ParseException

    message = str(error)
    if isinstance(error, AnalysisException | ParseException):
        return FatalError(message.strip().splitlines()[0])
    raised = _raised(message)
    if raised is None:
        return translated(message)
    return (CorruptionError if raised[0].startswith("Corrupt") else FatalError)(raised[1])


def _raised(message: str) -> tuple[str, str] | None:
    """Class and sentence of the last error of ours in the message of a failed Spark job."""
    # Spark wraps the traceback of the worker into its own; the last line of ours is the cause.
    found = [match for match in map(_OURS.match, map(str.strip, message.splitlines())) if match]
    return (found[-1][1], found[-1][2]) if found else None
