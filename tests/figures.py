"""Figures of the documentation, from files of `make bench` and `make bench-kafka`.

docs/performance.md shows every figure of the newest published file of each kind, and the README a
choice. Files that were not moved to `benchmarks/results` are not published.
Nobody types a figure or the name of a machine.
"""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"

Run = dict[str, Any]
"""The content of one file, as `benchmarks/report.py` documents it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A row of the README's table: the words for it, and the figure."""

    text: str
    kind: str
    name: str
    peer_name: str
    is_from_start: bool = False
    """Whether nothing is warm in that figure, as in all of the stage `first`."""


FIRST: Final = "first: "
"""Before the names of the figures of the stage `first`, which are shown rather than warm ones."""

CHOICES: Final = (
    Choice(
        "start to first answer", "-kafka", "start to first answer", "Apache Kafka",
        is_from_start=True,
    ),
    Choice(
        "memory after 6 GB of traffic", "-kafka", "broker memory after produce and fetch",
        "Apache Kafka",
    ),
    Choice(
        "CPU of the broker: records of 1 KB in and out, batches of 1 MB", "-kafka",
        "produce and fetch CPU, 1 KB records, 1 MB batches", "Apache Kafka",
    ),
    Choice(
        "the same, batches of 16 KB", "-kafka",
        "produce and fetch CPU, 1 KB records, 16 KB batches", "Apache Kafka",
    ),
    Choice(
        "one record with acks=1, median", "-kafka", "produce of one record, p50",
        "Apache Kafka",
    ),
    Choice("create a topic, median", "-kafka", "create one topic, p50", "Apache Kafka"),
    Choice(
        "recovery of 2 GB after a kill", "-kafka", "recovery of 2 GB, warm", "Apache Kafka",
        is_from_start=True,
    ),
    Choice(
        "`send` of 100 bytes without a key", "", "send, 100 bytes, defaults",
        "confluent-kafka produce",
    ),
    Choice(
        "CPU of `send`, 100 bytes with a key", "", "send with key, 100 bytes, CPU",
        "confluent-kafka",
    ),
    Choice(
        "CPU of `poll`, for each record of 100 bytes", "", "poll, 100 bytes, 16 KB batches, CPU",
        "confluent-kafka consume",
    ),
    Choice(
        "Spark: read and sum 5 million rows from a broker", "-kafka",
        "spark, sum(length(value)) of 5 million rows, from Tailrace",
        "Spark's Kafka connector, from Kafka",
    ),
    Choice(
        "three brokers: fail-over to the first acknowledged record", "-cluster",
        "fail-over to the first acknowledged record, session of 3 s", "Apache Kafka",
    ),
    Choice(
        "three brokers: CPU of a leader, acks=all, batches of 1 MB", "-cluster",
        "CPU of the leader, librdkafka, 1 MB batches", "Apache Kafka",
    ),
    Choice(
        "the same, batches of 16 KB", "-cluster",
        "CPU of the leader, librdkafka, 16 KB batches", "Apache Kafka",
    ),
)  # fmt: skip


def newest(kind: str) -> Run:
    """The published run of a kind (`""`, `"-kafka"` and others) that ended last."""
    files = [path for path in RESULTS.glob("*.json") if _kind(path) == kind]
    runs: list[Run] = [json.loads(path.read_text()) for path in files]
    return max(runs, key=lambda run: str(run["date"]))


def machine(run: Run) -> str:
    """Name the machine and the day of a measurement."""
    found = run["machine"]
    return (
        f"{found['cores']} cores of a shared {found['cpu']}, Python {found['python']}, "
        f"{run['date'][:10]}"
    )


def chosen() -> str:
    """The README's table, with its source."""
    runs = {kind: newest(kind) for _, kind in SECTIONS}
    lines = ["| what | measured | Tailrace | against | ratio |", "|---|---|---|---|---|"]
    for choice in CHOICES:
        figure = _figure(runs[choice.kind], choice)
        is_from_start = choice.is_from_start or figure["name"].startswith(FIRST)
        ours, peer = (_median(figure[side]) for side in ("ours", "peer"))
        unit = _unit(figure)
        measured = "from the start" if is_from_start else "warm"
        lines.append(
            f"| {choice.text} | {measured} | {ours} {unit} | {peer} {unit}: {choice.peer_name} "
            f"| {figure['ratio']:.2f} |"
        )
    return (
        "\n".join(lines)
        + f"\n\nApache Kafka {runs['-kafka']['versions']['kafka']} as its own scripts start it; "
        f"{machine(runs['-kafka'])}. The clients' rows: {machine(runs[''])}. Those of three "
        f"brokers: {machine(runs['-cluster'])}. Less is better in "
        "every row, and only the ratios mean something: ours and its peer took turns in one run. "
        "From the start: of a new process, whose first record or request counts; warm: after some "
        "that do not count."
    )


def every() -> str:
    """The newest run of each kind that was published, every figure."""
    published = {_kind(path) for path in RESULTS.glob("*.json")}
    return "\n".join(_section(title, kind) for title, kind in SECTIONS if kind in published)


SECTIONS: Final = (
    ("Against Apache Kafka", "-kafka"),
    ("Clusters of three brokers against Apache Kafka", "-cluster"),
    ("Our controller against Apache Kafka's", "-controller"),
    ("Against limits and Python's peers", ""),
)

MEASURED_BY: Final = {
    "": "make bench",
    "-kafka": "make bench-kafka",
    "-cluster": "make bench-kafka",
    "-controller": "make bench-kafka",
}
"""The command that writes the file of a kind."""


def _section(title: str, kind: str) -> str:
    run = newest(kind)
    values = f"../benchmarks/results/{run['checkout']}{kind}.json"
    source = (
        f"`{MEASURED_BY[kind]}` at {run['checkout']}: {machine(run)}. "
        f"[Every value of every round]({values}).{_profiles(kind)}\n"
    )
    lines = [
        f"## {title}\n",
        source,
        "| figure | unit | ours | peer | ratio | aim |",
        "|---|---|---|---|---|---|",
    ]
    for figure in run["figures"]:
        aim = "" if figure["aim"] is None else f"≤ {figure['aim']:g}"
        is_missed = figure["aim"] is not None and figure["ratio"] > figure["aim"]
        ratio = f"{figure['ratio']:.2f}"
        lines.append(
            f"| {figure['name']} | {_unit(figure)} | {_median(figure['ours'])} "
            f"| {_median(figure['peer'])}: {figure['peer_name']} "
            f"| {f'**{ratio}**' if is_missed else ratio} | {aim} |"
        )
    return "\n".join(lines) + "\n"


def _profiles(kind: str) -> str:
    """Links to the pages that say why aims are missed."""
    kinds = [each for each in MEASURED_BY if each]
    links = ", ".join(
        f"[{page.stem}](../benchmarks/results/{page.name})"
        for page in sorted(RESULTS.glob("*-profile.md"))
        if next((each for each in kinds if f"{each}-" in page.name), "") == kind
    )
    return f" Why aims are missed: {links}." if links else ""


def _kind(path: Path) -> str:
    _, dash, kind = path.stem.partition("-")
    return dash + kind


def _figure(run: Run, choice: Choice) -> dict[str, Any]:
    for name in (FIRST + choice.name, choice.name):
        for each in run["figures"]:
            if each["name"] == name and (choice.kind or each["peer_name"] == choice.peer_name):
                found: dict[str, Any] = each
                return found
    raise LookupError(f"the newest {choice.kind or 'bench'} run has no {choice.name!r}")


def _median(values: list[float]) -> str:
    middle = statistics.median(values)
    return f"{middle:.3g}" if middle < 1000 else f"{middle:,.0f}"


def _unit(figure: dict[str, Any]) -> str:
    return str(figure["unit"]).replace("us/message", "us").replace("us", "µs")
