"""Writes the results of a run: a file of JSON with every raw value, and a table in Markdown.

    benchmarks/results/local/    files of runs, which git ignores
    benchmarks/results/          files that were moved there to be published: the documentation has
                                 the newest of each kind

The file, version 1:

    version   1
    checkout  short hash of the commit, with `-dirty` if the tree had changes when the run began
    date      when the run ended, UTC
    machine   cpu, cores, python
    versions  of what it was measured against, by name; nothing where that is Python
    figures   name, unit, ours and peer (raw values by round), peer_name, aim (or null), ratio
"""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from benchmarks.measure import Figure

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LOCAL = RESULTS / "local"
VERSION = 1


def table(figures: Sequence[Figure]) -> str:
    """The figures as one Markdown table: median, then smallest and largest of the rounds."""
    rows = [
        "| figure | ours: median (min to max) | peer: median (min to max) | ours / peer |",
        "|---|---|---|---|",
    ]
    rows += [
        f"| {figure.name} | {_spread(figure.ours)} {figure.unit} "
        f"| {figure.peer_name}: {_spread(figure.peer)} {figure.unit} | {figure.ratio:.2f} |"
        for figure in figures
    ]
    return "\n".join(rows)


def checkout_name() -> str:
    """Short hash of the commit that is checked out, with `-dirty` where the tree has changes."""
    is_dirty = _git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    return _git("rev-parse", "--short", "HEAD") + ("-dirty" if is_dirty else "")


def comparison(figures: Sequence[Figure]) -> str:
    """The figures as one Markdown table of two brokers: medians, their ratio, and its aim."""
    rows = ["| figure | Tailrace | Kafka | ratio | aim |", "|---|---|---|---|---|"]
    rows += [
        f"| {figure.name}, {figure.unit} | {statistics.median(figure.ours):.4g} "
        f"| {statistics.median(figure.peer):.4g} | {figure.ratio:.2f} "
        f"| {'' if figure.aim is None else f'≤ {figure.aim}'} |"
        for figure in figures
    ]
    return "\n".join(rows)


def write_results(
    figures: Sequence[Figure],
    *,
    checkout: str,
    kind: str = "",
    versions: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write the file of a full run of the checkout with this `checkout_name`; returns its path.

    It is not published. `kind` follows the checkout in the name of the file, as in `-kafka`.
    """
    content = {
        "version": VERSION,
        "checkout": checkout,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _cpu_model(),
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
        },
        "versions": dict(versions),
        "figures": figures_as_json(figures),
    }
    LOCAL.mkdir(exist_ok=True)
    path = LOCAL / f"{checkout}{kind}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def figures_as_json(figures: Sequence[Figure]) -> list[dict[str, object]]:
    """The figures as a file has them."""
    return [asdict(figure) | {"ratio": figure.ratio} for figure in figures]


def _spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3g}"
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"model name", "Model"}:
            return value.strip()
    return platform.machine()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
