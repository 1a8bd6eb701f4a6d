"""Tests of the demo's report at its end."""

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.demo.check import truth
from tailrace.demo.consume import Consumed
from tailrace.demo.files import DemoFiles
from tailrace.demo.flights import Tables
from tailrace.demo.produce import Produced
from tailrace.demo.report import DEFAULT_DIRECTORY, Outcome, ReadFromTopic, summary


def an_outcome(tables: Tables, *, root: Path) -> Outcome:
    """A run on a few days of the data."""
    (root / "flights-0").mkdir(parents=True, exist_ok=True)
    (root / "flights-0" / "00000000000000000000.log").write_bytes(bytes(2_500_000))
    return Outcome(
        files=DemoFiles(root=root),
        consumed=Consumed(group="flights-board", records=[511, 512]),
        produced=[Produced(topic="flights", records=1000, records_kept=23, bytes=1_500_000)],
        read=[ReadFromTopic(topic="flights", records=1023, bytes=1_600_000)],
        table=truth(tables),
        airline_names=tables.airline_names,
        lake_rows=1023,
        values_compared=1656,
        seconds={"produce": 2.25, "start Spark": 4.0},
        whole_seconds=6.75,
    )


def test_everything_measured_is_said(tables: Tables, tmp_path: Path) -> None:
    """The text has records, megabytes, seconds and files."""
    lines = summary(an_outcome(tables, root=tmp_path)).splitlines()
    assert lines[0].startswith("Done in 6.8 s. The result equals what pandas computes")
    assert "1,656 values" in lines[0]
    (flights,) = [line.split() for line in lines if line.startswith("flights ")]
    assert flights == ["flights", "23", "1,000", "1.5", "1,023", "1.6"]
    assert any(line.split() == ["start", "Spark", "4.0"] for line in lines)
    assert any("Kafka's own files: 2.5 MB" in line for line in lines)
    assert any("1,023 joined flights" in line for line in lines)
    assert any("read 511 and 512 records" in line for line in lines)


def test_the_top_of_the_table_is_sorted(tables: Tables, tmp_path: Path) -> None:
    """Delays in the table go down, and few flights do not get into it."""
    outcome = an_outcome(tables, root=tmp_path)
    table = outcome.table.assign(flights=outcome.table["flights"] * 20)
    lines = summary(replace(outcome, table=table)).splitlines()
    head = next(n for n, line in enumerate(lines) if line.startswith("Airline "))
    rows = [line.split() for line in lines[head + 1 : lines.index("Try next") - 1]]
    delays = [float(row[-2]) for row in rows]
    assert len(delays) == 8
    assert delays == sorted(delays, reverse=True)
    assert all(int(row[-3].replace(",", "")) >= 100 for row in rows)


@pytest.fixture
def activated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that finds the programs of this environment by their names."""
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("activated")
def test_the_commands_can_be_pasted(tables: Tables, tmp_path: Path) -> None:
    """A shell splits each command into the words meant, also for an awkward directory."""
    root = tmp_path / "it's $HOME"
    *_, serve, group, again, python = summary(an_outcome(tables, root=root)).splitlines()
    assert shlex.split(serve) == [
        "tailrace", "serve", "--data", str(root), "--listen", "127.0.0.1:9092",
    ]  # fmt: skip
    assert shlex.split(group) == ["tailrace", "group", "describe", "flights-board"]
    assert shlex.split(again) == ["tailrace", "demo", "--data", str(root), "--keep"]
    program = shlex.split(python)[2]
    assert repr(str(root)) in program
    compile(program, "command", "exec")


@pytest.mark.usefixtures("activated")
def test_the_default_directory_is_not_spelled_out(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands for ./demo-data, the demo's own place, are the shortest."""
    monkeypatch.chdir(tmp_path)
    lines = summary(an_outcome(tables, root=DEFAULT_DIRECTORY)).splitlines()
    assert lines[-4:-1] == [
        "tailrace serve --data demo-data --listen 127.0.0.1:9092",
        "tailrace group describe flights-board",
        "tailrace demo --keep",
    ]


def test_programs_that_the_shell_does_not_find_are_given_by_path(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of an activated environment the commands run all the same, by their path."""
    monkeypatch.setenv("PATH", "")
    *_, serve, _, _, _ = summary(an_outcome(tables, root=tmp_path)).splitlines()
    assert Path(shlex.split(serve)[0]).samefile(Path(sys.executable).parent / "tailrace")
