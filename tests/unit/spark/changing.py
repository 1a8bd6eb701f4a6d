"""Queries while the log under them changes, and what they may return then.

A change comes before one of the steps of a query: a call of the file system, or a request to a
broker. The proofs take every step in turn in `make slow`, and some of them for every change.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tailrace.errors import ConfigError, TailraceError
from tailrace.spark.batch_reader import plan_scan, read_task
from tailrace.spark.options import SourceOptions, parse_options
from tailrace.spark.planning import ScanTask
from tailrace.spark.stores import open_store
from tailrace.spark.streaming import TailraceStreamReader
from tests.unit.spark.stream_query import Clock, Offset

Row = tuple[int, bytes | None]
"""Offset and value of a record."""

LOSS = "[KAFKA_DATA_LOSS."
"""Spark's name for each loss begins so."""

FEW = 13
"""For every change, one step in so many has its turn; a prime, to meet steps of all kinds."""

TURNS_MAX = 60


class Outcome(NamedTuple):
    """The end of a query."""

    rows: list[Row]
    """In the order in which they came."""
    error: TailraceError | None
    """The error that ended it."""


class Logs(NamedTuple):
    """The records before and after a change."""

    before: frozenset[Row]
    after: frozenset[Row]


def run_batch(given: dict[str, str]) -> Outcome:
    """Plan a query and run its tasks."""
    rows: list[Row] = []
    try:
        options = parse_options(given)
        for task in plan_scan(options, open_store(options), core_count=1):
            rows += _rows(options, task)
    except TailraceError as error:
        return Outcome(rows, error)
    return Outcome(rows, None)


def _rows(options: SourceOptions, task: ScanTask) -> Iterator[Row]:
    for batch in read_task(
        task,
        open_store(options),
        columns=["offset", "value"],
        fails_on_data_loss=options.fails_on_data_loss,
        corruption_report=options.corruption_report,
    ):
        yield from ((row["offset"], row["value"]) for row in batch.to_pylist())


def run_stream(given: dict[str, str], *, has_changed: Callable[[], bool]) -> Outcome:
    """Run a stream until it finds nothing new in three turns after the change.

    It starts at the beginning. A batch that fails ends the query; without failOnDataLoss it is
    started again, and reads the batch once more. Rows of a batch that failed do not count.
    """
    clock = Clock()
    rows: list[Row] = []
    start: Offset = {}
    reader = _reader(given, clock)
    quiet = 0
    for _ in range(TURNS_MAX):
        is_settled = has_changed()
        try:
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
        except TailraceError as error:
            return Outcome(rows, error)
        clock.now += 1
        if end == start:
            quiet += is_settled
            if quiet == 3:
                return Outcome(rows, None)
            continue
        quiet = 0
        for attempt in range(3):
            try:
                rows += _batch(reader, start, end)
                break
            except TailraceError as error:
                if given["failOnDataLoss"] == "true" or attempt == 2:
                    return Outcome(rows, error)
                reader = _reader(given, clock)
        start = end
    raise AssertionError("the stream comes to no end")


def _reader(given: dict[str, str], clock: Clock) -> TailraceStreamReader:
    return TailraceStreamReader(
        parse_options(given | {"startingOffsets": "earliest"}, is_stream=True),
        columns=["offset", "value"],
        clock=clock,
        pause=clock.pause,
    )


def _batch(reader: TailraceStreamReader, start: Offset, end: Offset) -> list[Row]:
    return [
        (row["offset"], row["value"])
        for task in reader.partitions(start, end)
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]


def check(logs: Logs, outcome: Outcome, *, fails: bool) -> None:
    """Hold what a query returned against what it may return.

    Each row is a record of the log before or after, and none comes twice. Without an error each
    record is there that both logs have. An error is Spark's for lost data, where losses are errors;
    or it says that there is no such topic, of one that was gone when the query began.
    """
    rows, error = outcome
    assert set(rows) <= logs.before | logs.after
    assert len(rows) == len(set(rows)), "a record came twice"
    if error is None:
        assert set(rows) >= logs.before & logs.after, "a record is missing"
        return
    is_absent = isinstance(error, ConfigError) and "does not exist" in str(error)
    assert is_absent or (fails and str(error).startswith(LOSS)), repr(error)
    assert not is_absent or not rows


def steps(count: int, *, is_every: bool) -> range:
    """The steps of a query that have their turn."""
    return range(count) if is_every else range(count % FEW, count, FEW)
