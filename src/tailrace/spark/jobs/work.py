"""Work items to Spark tasks, and their results back to the driver.

One task runs one item: a function of a module, called with the item. Items and results travel
pickled, so both are small; what is large goes from task to disk and never through the JVM. It
needs nothing but `range` and `mapInArrow`, so it works over Spark Connect too, where the server
has to be able to import this package.

Spark may run an item more than once, and two attempts at the same time: after a failure, when an
executor is lost, by speculation. So an item's function writes under names that no other attempt
has (`manifest.attempt_name`), and what counts is decided on the driver, by the one result that
arrives.

Not here: results as a DataFrame. `mapInArrow` is the way to that.
"""

import os
import pickle
import re
import socket
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

ROUNDS = 2
"""Items per core in one job of `run_in_rounds`: the second evens out slow ones of the first."""

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
    for index in range(len(items)):
        outcome = outcomes[index]
        if isinstance(outcome, _Failure):
            kind = CorruptionError if outcome.is_corruption else FatalError
            raise kind(outcome.sentence)
        results.append(outcome)
    return results


def run_in_rounds(
    spark: "SparkSession",
    items: Sequence[Item],
    function: Callable[[Item], Result],
    *,
    core_count: int,
) -> Iterator[list[Result]]:
    """The results of `run_items`, round by round, so that a job can note what is done already.

    Raises:
        CorruptionError, FatalError, RetriableError: as `run_items`; the rounds before stay done.
    """
    size = ROUNDS * core_count
    for start in range(0, len(items), size):
        yield run_items(spark, items[start : start + size], function)


def count_cores(spark: "SparkSession") -> int:
    """Count the tasks into which Spark cuts work without a size: one for each of its cores.

    Only the last of the tasks is run, which tells its number.
    """
    from pyspark.sql import functions as F  # noqa: N812

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
        folder.replace(marker, b"")
    try:
        function = partial(_invisible, directories=tuple(directories), target=target, marker=marker)
        told = run_items(spark, range(core_count), function)
    finally:
        if folder is not None and marker is not None:
            folder.remove(marker)
    sentences = sorted({sentence for each in told for sentence in each})
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
            # Indented lines are frames, and the line behind the last frame is the error.
            end = line
    return FatalError(f"a Spark task failed: {end}")


def told(error: "PySparkException") -> TailraceError:
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
    found = [match for match in map(_OURS.match, map(str.strip, message.splitlines())) if match]
    return (found[-1][1], found[-1][2]) if found else None
