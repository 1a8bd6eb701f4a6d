"""Runs of benchmarks: one that fails goes on where it has ended; none publishes its figures."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.measure import Bench, Figure
from benchmarks.stages import FinishedStages, Stage, run_stages
from tests import figures


class Stages:
    """Two stages, the second of which fails as long as it is told to."""

    def __init__(self) -> None:
        self.measured: list[str] = []
        self.is_broken = True

    def run(self, finished: FinishedStages | None) -> list[Figure]:
        """Run both."""
        return run_stages(
            {name: self._stage(name) for name in ("first", "second")},
            finished=finished,
            is_quick=True,
            say=lambda _: None,
            tell=lambda *_: None,
        )

    def _stage(self, name: str) -> Stage:
        def measure(_: Bench) -> list[Figure]:
            self.measured.append(name)
            if name == "second" and self.is_broken:
                raise OSError("planned")
            return [Figure(name=name, unit="s", ours=(1.5, 2.5), peer_name="p", peer=(2.0, 3.0))]

        return measure


@pytest.mark.parametrize(
    ("checkouts", "measured"),
    [
        (("abc", "abc"), ["first", "second", "second"]),
        (("abc", "def"), ["first", "second", "first", "second"]),
        (("abc-dirty", "abc-dirty"), ["first", "second", "first", "second"]),
    ],
)
def test_stages_of_the_same_commit_are_measured_once(
    tmp_path: Path, checkouts: tuple[str, str], measured: list[str]
) -> None:
    """Stages of another commit, or of a tree with changes, are measured again."""
    stages = Stages()
    with pytest.raises(OSError, match="planned"):
        stages.run(FinishedStages(checkouts[0], directory=tmp_path))
    stages.is_broken = False
    figures = stages.run(FinishedStages(checkouts[1], directory=tmp_path))
    assert stages.measured == measured
    assert [(each.name, each.ours) for each in figures] == [
        ("first", (1.5, 2.5)),
        ("second", (1.5, 2.5)),
    ]


def test_a_whole_run_leaves_no_stages_behind(tmp_path: Path) -> None:
    """The next whole run measures everything, and a choice of stages always does.

    A run of the other benchmark at this commit keeps its own.
    """
    stages = Stages()
    stages.is_broken = False
    finished, others = (FinishedStages("abc", kind, directory=tmp_path) for kind in ("", "-kafka"))
    stages.run(finished)
    stages.run(others)
    stages.run(None)
    finished.forget()
    stages.run(finished)
    stages.run(others)
    assert stages.measured == ["first", "second"] * 4


def test_a_run_changes_no_page_until_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No document has what `make bench` writes, until it is moved to the published files."""
    published = tmp_path / "results"
    shutil.copytree(figures.RESULTS, published)
    monkeypatch.setattr(figures, "RESULTS", published)
    monkeypatch.setattr(report, "LOCAL", published / report.LOCAL.relative_to(report.RESULTS))
    before = figures.every()
    mine = Figure(name="mine", unit="s", ours=(1.0,), peer_name="p", peer=(2.0,))
    written = report.write_results([mine], checkout="abc")
    assert figures.every() == before
    written.rename(published / written.name)
    assert "| mine | s | 1 | 2: p |" in figures.every()


def test_the_readme_prefers_figures_from_the_first_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row says that it is warm until a published run has its figure from the first record."""
    published = tmp_path / "results"
    shutil.copytree(figures.RESULTS, published)
    monkeypatch.setattr(figures, "RESULTS", published)
    run = figures.newest("")
    name, peer_name = "send with key, 100 bytes, CPU", "confluent-kafka"
    warm = next(
        each for each in run["figures"] if (each["name"], each["peer_name"]) == (name, peer_name)
    )
    row = "| CPU of `send`, 100 bytes with a key |"
    run["figures"] = [each for each in run["figures"] if each["name"] != f"first: {name}"]
    path = published / f"{run['checkout']}.json"
    path.write_text(json.dumps(run))
    assert f"{row} warm |" in figures.chosen()
    run["figures"].append(warm | {"name": f"first: {name}"})
    path.write_text(json.dumps(run))
    assert f"{row} from the start |" in figures.chosen()
