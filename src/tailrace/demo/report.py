"""The text that the demo prints at its end.

What is *not* here: measuring. Sizes are of keys and values before compression, 1 MB = 10^6 bytes.

Invariant: the commands printed can be pasted into a shell as they are.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from tailrace.demo.consume import GROUP, Consumed
from tailrace.demo.files import DemoFiles
from tailrace.demo.produce import Produced
from tailrace.values import dataclass

DEFAULT_DIRECTORY = Path("demo-data")
"""Default directory of `tailrace demo`."""

TOP_ROWS = 8

FLIGHTS_MIN = 100
"""Flights that an airline must have at an hour to be in the top of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFromTopic:
    """Counts of the rows that Spark read from one topic."""

    topic: str
    records: int
    bytes: int
    """Size of keys and values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of a run of the demo, with measurements."""

    files: DemoFiles
    produced: list[Produced]
    consumed: Consumed
    read: list[ReadFromTopic]
    table: pd.DataFrame
    """Delays by carrier and hour."""
    airline_names: dict[str, str]
    lake_rows: int
    values_compared: int
    seconds: dict[str, float]
    """Wall-clock time by stage, in the order of the stages."""
    whole_seconds: float
    """Wall-clock time of everything, also of what is in no stage."""


def summary(outcome: Outcome) -> str:
    """The closing text: records, seconds, files, the top of the result, what to try next."""
    rows, values = len(outcome.table), outcome.values_compared
    headline = (
        f"Done in {outcome.whole_seconds:.1f} s. The result equals what pandas computes "
        f"from the CSV files: {rows} rows, {values:,} values."
    )
    parts = [
        headline,
        _records(outcome),
        _group(outcome.consumed),
        _seconds(outcome.seconds),
        _files(outcome),
        _top(outcome),
        _next(outcome.files.root),
    ]
    return "\n\n".join(parts)


def _records(outcome: Outcome) -> str:
    """A line for each topic: records that were there before, produced and read."""
    counts = f"{'present':>10}{'produced':>12}{'MB produced':>13}{'read':>12}{'MB read':>10}"
    lines = [f"{'Topic':<10}{counts}"]
    read = {topic.topic: topic for topic in outcome.read}
    for made in outcome.produced:
        seen = read[made.topic]
        lines.append(
            f"{made.topic:<10}{made.records_kept:>10,}{made.records:>12,}{made.bytes / 1e6:>13.1f}"
            f"{seen.records:>12,}{seen.bytes / 1e6:>10.1f}"
        )
    return "\n".join(lines)


def _group(consumed: Consumed) -> str:
    """A line for the consumer group."""
    shares = " and ".join(f"{each:,}" for each in consumed.records)
    return (
        f"The members of the group {consumed.group} have read {shares} records, each record once; "
        "the group has no lag"
    )


def _seconds(seconds: dict[str, float]) -> str:
    """A line for each stage."""
    lines = [f"{'Stage':<44}{'seconds':>9}"]
    lines += [f"{stage:<44}{taken:>9.1f}" for stage, taken in seconds.items()]
    return "\n".join(lines)


def _files(outcome: Outcome) -> str:
    """Paths of the written files, with their sizes."""
    root, lake = outcome.files.root, outcome.files.lake
    logs = [path for made in outcome.produced for path in root.glob(f"{made.topic}-[0-9]*/*.log")]
    rows = f"{outcome.lake_rows:,} joined flights as Parquet, by month"
    lines = {
        f"{root}/": f"the topics, in Kafka's own files: {_megabytes(logs)}",
        f"{lake}/": f"{rows}: {_megabytes(lake.rglob('*.parquet'))}",
        f"{outcome.files.picture}": "the result as a picture",
    }
    width = max(map(len, lines)) + 2
    return "\n".join(["Files", *(f"{path:<{width}}{text}" for path, text in lines.items())])


def _megabytes(paths: Iterable[Path]) -> str:
    """Size of files on disk."""
    return f"{sum(path.stat().st_size for path in paths) / 1e6:.1f} MB"


def _top(outcome: Outcome) -> str:
    """The airlines and hours with the longest delays."""
    table = outcome.table[outcome.table["flights"] >= FLIGHTS_MIN]
    # By all keys, so that equal delays come out in the same order each time.
    table = table.sort_values(["mean_dep_delay", "carrier", "hour"], ascending=[False, True, True])
    head = f"{'Airline':<30}{'hour':>6}{'flights':>9}{'departure':>11}{'arrival':>9}"
    lines = [
        f"Longest mean delays in minutes (airlines with {FLIGHTS_MIN} flights or more in the hour)",
        head,
    ]
    for row in table.head(TOP_ROWS).to_dict("records"):
        name = outcome.airline_names.get(row["carrier"], row["carrier"])
        lines.append(
            f"{name:<30}{row['hour']:>6}{row['flights']:>9,}"
            f"{row['mean_dep_delay']:>+11.1f}{row['mean_arr_delay']:>+9.1f}"
        )
    return "\n".join(lines)


def _next(root: Path) -> str:
    """Commands on the data that is now there."""
    directory = shlex.quote(str(root))
    data = "" if root == DEFAULT_DIRECTORY else f" --data {directory}"
    program = (
        "from tailrace.spark import session; "
        f"session().read.format('tailrace').option('path', {str(root)!r})"
        ".option('subscribe', 'flights').load().groupBy('partition').count().show()"
    )
    # In double quotes for the eye, where the path allows it.
    quoted = shlex.quote(program) if set(str(root)) & set("\"'$`\\!") else f'"{program}"'
    return "\n".join(
        [
            "Try next",
            f"{_command('tailrace')} serve --data {directory} --listen 127.0.0.1:9092",
            f"{_command('tailrace')} group describe {GROUP}",
            f"{_command('tailrace')} demo{data} --keep",
            f"{_command('python')} -c {quoted}",
        ]
    )


def _command(name: str) -> str:
    """Return the shell command of a program of this environment: its name, or else its path."""
    ours = Path(sys.executable).parent / name
    # Where the environment is not activated, the name is another installation's, or nobody's.
    found = shutil.which(name)
    if found is not None and ours.exists() and Path(found).samefile(ours):
        return name
    return shlex.quote(os.path.relpath(ours)) if ours.exists() else name
