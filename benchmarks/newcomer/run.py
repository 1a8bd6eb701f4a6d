"""Two wheels of the package, new to a machine, in turn on the same short programs.

    python -m benchmarks.newcomer.run WHEEL BEFORE [--rounds N]

From the root of the checkout. Each wheel is installed in a new environment, with all that it needs
and then with the extra `spark`. Shown are the MB that the first step brought, and the seconds from
the start of a process until records were sent, read, served or queried by Spark; CPU seconds are
those of that process and of its children that have ended. Every process has an empty home, and
every program a broker of its own wheel, new and empty.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.macro.brokers import serving
from benchmarks.macro.peers import ROOT
from benchmarks.measure import (
    Bench,
    Cost,
    Figure,
    cost_of_command,
    cpu_seconds,
    empty_home,
    interleave,
)
from benchmarks.report import table
from benchmarks.stages import DISK

PROGRAMS = Path(__file__).with_name("programs.py")
TOPIC = "newcomer"
SERVE = "serve until ready"
PATHS: Mapping[str, tuple[str, int]] = {
    "send of 1,000 records": ("send", 1_000),
    "send of 100,000 records": ("send", 100_000),
    "poll of 100,000 records": ("read", 100_000),
    "Spark's first query, 1,000 records": ("query", 1_000),
}
"""Program and number of records; `SERVE` besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An environment that has the package."""

    python: Path
    megabytes: float
    """Size in site-packages of the wheel and of all that it needs, with their bytecode."""


def build_wheel(folder: Path) -> Path:
    """A wheel of the checkout."""
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Installed:
    """A new environment with a wheel, and with the newest release of all that it needs."""
    _run(sys.executable, "-m", "venv", folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    before = _size(packages)
    python = folder / "bin" / "python"
    _run(python, "-m", "pip", "install", "-q", wheel)
    return Installed(python=python, megabytes=(_size(packages) - before) / 1e6)


def measure_paths(bench: Bench, wheel: Path, before: Path) -> list[Figure]:
    """MB, seconds and CPU seconds of a wheel; its peer is the other one."""
    sides = {}
    for side, each in (("ours", wheel), ("peer", before)):
        bench.say(f"installing {each.name}")
        sides[side] = install(each, bench.directory / side)
        _run(sides[side].python, "-m", "pip", "install", "-q", f"{each}[spark]")
    figures = [
        Figure(
            name="site-packages",
            unit="MB",
            ours=(sides["ours"].megabytes,),
            peer_name="before",
            peer=(sides["peer"].megabytes,),
        )
    ]
    contenders: dict[str, Callable[[Installed], Cost]] = {
        SERVE: partial(_serve, bench),
        **{name: partial(_run_program, bench, *path) for name, path in PATHS.items()},
    }
    for name, work in contenders.items():
        bench.say(name)
        found = interleave(bench, {side: partial(work, each) for side, each in sides.items()})
        figures += [
            Figure(
                name=f"{name}{suffix}",
                unit="s",
                ours=tuple(getattr(cost, field) for cost in found["ours"]),
                peer_name="before",
                peer=tuple(getattr(cost, field) for cost in found["peer"]),
            )
            for field, suffix in (("seconds", ""), ("cpu_seconds", ", CPU"))
            # Spark's JVM ends after the process that started it.
            if not (suffix and "Spark" in name)
        ]
    return figures


def _serve(bench: Bench, installed: Installed) -> Cost:
    with (
        tempfile.TemporaryDirectory(dir=bench.directory) as folder,
        empty_home(bench.directory),
        serving(Path(folder) / "data", settings={}, python=installed.python) as broker,
    ):
        return Cost(seconds=broker.ready_seconds, cpu_seconds=cpu_seconds(broker.process_id))


def _run_program(bench: Bench, what: str, count: int, installed: Installed) -> Cost:
    with (
        tempfile.TemporaryDirectory(dir=bench.directory) as folder,
        empty_home(bench.directory),
        serving(Path(folder) / "data", settings={}, python=installed.python) as broker,
    ):
        broker.create_topic(TOPIC)

        def run(program: str) -> Cost:
            with empty_home(bench.directory):
                given = (program, "ours", broker.address, TOPIC, count)
                return cost_of_command([installed.python, PROGRAMS, *map(str, given)])

        if what != "send":
            run("send")
        return run(what)


def _run(*command: str | Path) -> None:
    """Run a command that prints nothing unless it fails.

    Raises:
        RuntimeError: it failed; with all that it printed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def main(arguments: Sequence[str]) -> None:
    """Install, measure and show."""
    parser = argparse.ArgumentParser(description="Measure what somebody new meets.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("before", type=Path, help="the wheel that it is compared with")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tailrace-newcomer-", dir=DISK) as directory:
        bench = Bench(
            directory=Path(directory), is_quick=False, say=print, rounds_max=chosen.rounds
        )
        print(table(measure_paths(bench, chosen.wheel.absolute(), chosen.before.absolute())))


if __name__ == "__main__":
    main(sys.argv[1:])
