"""Runs the stages of a benchmark one after the other, and keeps what they found.

    benchmarks/results/local/unfinished/<commit><kind>/<stage>.json   figures of a run

A whole run takes an hour. If one of its stages fails, the figures of those before it stay in these
files, and the next run of the same commit does not measure them again: ours and its peer have taken
turns within each stage, and no ratio is taken of two stages. A tree with changes starts anew.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.measure import ROUNDS, Bench, Figure
from benchmarks.report import LOCAL, figures_as_json

DISK = "/var/tmp"
"""Directory of the logs; the usual directory for temporary files may be memory."""

UNFINISHED = LOCAL / "unfinished"

Stage = Callable[[Bench], list[Figure]]


class FinishedStages:
    """The stages that earlier runs of this commit have ended."""

    def __init__(self, checkout: str, kind: str = "", *, directory: Path = UNFINISHED) -> None:
        self._is_kept = not checkout.endswith("-dirty")
        self._directory = directory / f"{checkout}{kind}"

    def find(self, stage: str) -> list[Figure] | None:
        """The figures of a stage; None if it has to be measured."""
        path = self._path(stage)
        if not self._is_kept or not path.exists():
            return None
        return [
            Figure(
                name=each["name"],
                unit=each["unit"],
                ours=tuple(each["ours"]),
                peer_name=each["peer_name"],
                peer=tuple(each["peer"]),
                aim=each["aim"],
            )
            for each in json.loads(path.read_text())
        ]

    def add(self, stage: str, figures: list[Figure]) -> None:
        """Keep the figures of a stage."""
        if self._is_kept:
            self._directory.mkdir(parents=True, exist_ok=True)
            written = self._path(stage).with_suffix(".part")
            written.write_text(json.dumps(figures_as_json(figures)))
            written.replace(self._path(stage))

    def forget(self) -> None:
        """Remove the files of all stages: the run is whole, and its results are written."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _path(self, stage: str) -> Path:
        return self._directory / f"{stage}.json"


def run_stages(
    stages: Mapping[str, Stage],
    *,
    finished: FinishedStages | None,
    is_quick: bool,
    rounds_max: int = ROUNDS,
    say: Callable[[str], None],
    tell: Callable[[str, list[Figure]], None],
) -> list[Figure]:
    """The figures of these stages, told as each ends; their files are gone at the return.

    Without `finished` all are measured, and none is kept. Processes that the stages start may write
    their bytecode: installed packages have it, and 200 modules without it cost each start 0.14 s.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    figures = []
    for name, measure in stages.items():
        found = finished.find(name) if finished else None
        if found is None:
            with tempfile.TemporaryDirectory(prefix="tailrace-bench-", dir=DISK) as directory:
                bench = Bench(
                    directory=Path(directory), is_quick=is_quick, say=say, rounds_max=rounds_max
                )
                found = measure(bench)
            if finished:
                finished.add(name, found)
        else:
            say(f"{name}: measured by an earlier run of this commit, which has failed later")
        tell(name, found)
        figures += found
    return figures
