"""Measures in interleaved rounds: ratios inside of a round, and the cost of a single process.

Not here: what is measured, and how it is shown (`report`).

Invariant: ours and its peer take turns within one run, so whatever slows the machine down for a
while slows both; a figure is that ratio, not the seconds of one day.
"""

import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROUNDS = 5
"""Rounds of a full run: enough for a median that one disturbed round cannot move."""

IDLE_SECONDS = 0.5
"""Time over which a process is watched for being idle."""

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the result: what ours took, round by round, and what the peer took."""

    name: str
    unit: str
    ours: tuple[float, ...]
    peer_name: str
    """The peer of the comparison; a limit has one value only."""
    peer: tuple[float, ...]
    aim: float | None = None
    """The largest ratio that would do, where one was named before anything was measured."""

    def __post_init__(self) -> None:
        assert self.ours
        assert self.peer
        assert len(self.peer) in {1, len(self.ours)}

    @property
    def ratio(self) -> float:
        """Ours over the peer's: the median of the rounds' own ratios."""
        peers = self.peer * len(self.ours) if len(self.peer) == 1 else self.peer
        return statistics.median(
            mine / theirs for mine, theirs in zip(self.ours, peers, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Directory and size of a run, as its stages see them."""

    directory: Path
    """On a disk, its own, and removed after the stage."""
    is_quick: bool
    """Whether only to show that everything runs: the figures mean nothing."""
    say: Callable[[str], None]
    rounds_max: int = ROUNDS

    @property
    def rounds(self) -> int:
        """Number of times that each thing is measured."""
        return 1 if self.is_quick else self.rounds_max

    def scaled(self, amount: int, *, quick: int) -> int:
        """Return the amount of work: `amount`, or `quick` in a quick run."""
        return quick if self.is_quick else amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Time and processor time of one piece of work."""

    seconds: float
    cpu_seconds: float
    """Processor seconds of the watched process, not of the one that measured."""


def interleave(bench: Bench, contenders: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Run the contenders in turn, as in A B A B; return the results of each, round by round."""
    found: dict[str, list[T]] = {name: [] for name in contenders}
    for _ in range(bench.rounds):
        for name, run in contenders.items():
            found[name].append(run())
    return found


def seconds_of(work: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def cost_of(process_id: int, work: Callable[[], object]) -> Cost:
    """Seconds of one call, and the CPU seconds that another process spent meanwhile."""
    return costs_of([process_id], work)[0]


def costs_of(process_ids: Sequence[int], work: Callable[[], object]) -> tuple[Cost, ...]:
    """The cost of one call to each of several other processes."""
    before = [cpu_seconds(each) for each in process_ids]
    seconds = seconds_of(work)
    return tuple(
        Cost(seconds=seconds, cpu_seconds=cpu_seconds(each) - spent)
        for each, spent in zip(process_ids, before, strict=True)
    )


def cost_of_command(command: Sequence[str | Path]) -> Cost:
    """Cost of a command from its start to its end, and of its children that it waited for.

    Raises:
        RuntimeError: it failed; with what it wrote.
    """
    cpu_before, started = _children_cpu_seconds(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds, cpu = time.perf_counter() - started, _children_cpu_seconds()
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed: {done.stdout}{done.stderr}")
    return Cost(seconds=seconds, cpu_seconds=cpu - cpu_before)


@contextmanager
def empty_home(directory: Path) -> Iterator[Path]:
    """The home of all processes that start in the block: new, in `directory`, without caches."""
    with tempfile.TemporaryDirectory(prefix="home-", dir=directory) as home:
        names = {"HOME": home, "XDG_CACHE_HOME": f"{home}/.cache"}
        before = {name: os.environ.get(name) for name in names}
        os.environ |= names
        try:
            yield Path(home)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def cpu_seconds(process_id: int) -> float:
    """CPU seconds of a process, to the nanosecond, and of its children, alive and reaped."""
    # The clock of clock_getcpuclockid(3) for a process; Python has it for threads only.
    own = time.clock_gettime(~process_id << 3 | 2)
    # The name in parentheses may hold spaces, so fields are counted from behind it.
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    reaped = sum(map(int, fields[13:15])) / TICKS_PER_SECOND
    return own + reaped + sum(map(cpu_seconds, _children(process_id)))


def wait_until_idle(process_id: int) -> None:
    """Return when another process has used less than a tenth of a core for a while.

    What a broker does behind its answers must not be part of what is measured next.
    """
    while True:
        before = cpu_seconds(process_id)
        time.sleep(IDLE_SECONDS)
        if cpu_seconds(process_id) - before < IDLE_SECONDS / 10:
            return


def resident_bytes(process_id: int) -> int:
    """Memory of a process that is in RAM, shared pages included."""
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(process_id: int) -> int:
    """The most memory in RAM that a process has had, shared pages included."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"the kernel does not say what process {process_id} has had at most")


def _children(process_id: int) -> Sequence[int]:
    tasks = Path(f"/proc/{process_id}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
