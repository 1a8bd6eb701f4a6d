"""Spark drivers as processes of their own, to kill them or what runs tasks below them.

A driver leads a session of the system. Its JVM is in its process group, and dies with it by one
signal; the daemon of the Python workers has a group of its own, and has to end by itself. So has
that of an executor, which is a JVM below the driver's where the master is `CLUSTER`.

Invariant: after `kill` and `close` nothing of the session is left, or there is an error.
"""

import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from tests.kills.changes import Changes
from tests.spark.classes import make_home

ROOT: Final = Path(__file__).parents[2]

NAMED: Final = Path(__file__).parent / "named"
"""Its `sitecustomize` puts the command of a process before what it prints on stderr."""

PATIENCE_SECONDS: Final = 200
"""Longest time that a job or an end may take before it counts as hanging."""

LOCAL: Final = "local[2,3]"
"""Two cores, and three attempts at each task; `local[2]` has one."""

CLUSTER: Final = "local-cluster[2,1,1024]"
"""Two executors of one core, whose JVMs are of their own, and four attempts at each task. One that
has died is replaced."""

EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
"""The main class of an executor's JVM."""

WORKER: Final = "-m tailrace.spark.daemon pyspark.worker"
"""The command of a Python worker that runs tasks, and of the daemon that it was forked from."""

AGAIN: Final = 0.3
"""Probability that a driver which goes on after a kill is killed again."""

ATTEMPTS_MAX: Final = 10
"""Jobs that are begun until one is killed before it is over."""


class Victim(Enum):
    """Which process is killed while a job runs."""

    DRIVER = "driver"
    """With its JVM. The job is begun again, and may be killed once more."""
    WORKER = "worker"
    """One of the Python workers. The job has to cope."""
    EXECUTOR = "executor"
    """The JVM of one of the executors of a cluster. The job has to cope."""

    @property
    def master(self) -> str:
        """The master of Spark that starts such processes."""
        return CLUSTER if self is Victim.EXECUTOR else LOCAL


class Process(NamedTuple):
    """A process that has not ended."""

    number: int
    parent: int
    command: str


class Driver:
    """A process that runs jobs of `runs`, one at a time, on a master of Spark's."""

    def __init__(self, folder: Path, master: str) -> None:
        java_options = f"{os.environ['JDK_JAVA_OPTIONS']} -Djava.io.tmpdir={folder}"
        home = Path(os.environ["SPARK_HOME"])
        folder.mkdir(parents=True)
        if master == CLUSTER:
            # A cluster in one process writes its logs into Spark's own directory.
            home = folder / "spark"
            make_home(home)
        self.master = master
        self.folder = folder
        """The directory of all its files, also those of Spark."""
        self.is_killed = False
        self._is_busy = False
        self._errors = folder / "stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kills.runs", master],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                # What a killed JVM leaves behind goes with the folders of the tests.
                env=os.environ
                | {
                    "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}:{NAMED}",
                    "TMPDIR": str(folder),
                    "SPARK_HOME": str(home),
                    "SPARK_LOCAL_DIRS": str(folder),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "JDK_JAVA_OPTIONS": java_options,
                },
                start_new_session=True,
            )

    @property
    def is_ready(self) -> bool:
        """Whether it lives and has nothing to do."""
        return not self._is_busy and self._process.poll() is None

    def begin(self, job: str, **arguments: Any) -> None:
        """Start a job."""
        assert self._process.stdin is not None
        call = {"job": job, "arguments": arguments}
        self._process.stdin.write(json.dumps(call, default=str).encode() + b"\n")
        self._process.stdin.flush()
        self._is_busy = True

    def wait(self, changes: Changes | None = None) -> bool:
        """Return when there are changes, or when the job is over, which is False."""
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        if changes is not None:
            poll.register(changes, select.POLLIN)
        ready = [number for number, _ in poll.poll(PATIENCE_SECONDS * 1000)]
        assert ready, f"the job hangs; {self.told()}"
        if changes is not None:
            changes.take()
        return self._process.stdout.fileno() not in ready

    def result(self) -> Any:
        """Result of the job, once it is over."""
        while self.wait():
            pass
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the driver has ended; {self.told()}"
        self._is_busy = False
        return json.loads(line)["result"]

    def errors(self) -> str:
        """Its output on stderr so far, with that of the JVM and of the Python workers."""
        return self._errors.read_text(errors="replace")

    def kill(self) -> None:
        """End driver and JVM at once, and see that what they have started ends."""
        self.is_killed = True
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self.close()

    def strike(self, victim: Victim, chance: Random) -> bool:
        """End a process of the kind at once; False if there is none."""
        if victim is Victim.DRIVER:
            self.kill()
            return True
        found = self._executors() if victim is Victim.EXECUTOR else self._workers()
        if not found:
            return False
        os.kill(chance.choice(found), signal.SIGKILL)
        return True

    def close(self) -> None:
        """Have it end when its job is over, and wait for all that it has started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_SECONDS)
        self._process.stdout.close()
        limit = time.monotonic() + PATIENCE_SECONDS
        while left := self._processes():
            assert time.monotonic() < limit, f"left behind: {left}"
            for each in left:
                wait_for_end(each.number, limit - time.monotonic())

    def _workers(self) -> list[int]:
        forked = [each for each in self._processes() if each.command.endswith(WORKER)]
        daemons = {each.number for each in forked}
        return [each.number for each in forked if each.parent in daemons]

    def _executors(self) -> list[int]:
        return [each.number for each in self._processes() if EXECUTOR in each.command]

    def _processes(self) -> list[Process]:
        """All of its session, without those that have ended and were not asked how."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                state, parent, _, session = (
                    (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                )
                if int(session) == self._process.pid and state != "Z":
                    command = (folder / "cmdline").read_text().replace("\0", " ").strip()
                    found.append(Process(int(folder.name), int(parent), command))
        return found

    def told(self) -> str:
        """The end of its errors."""
        return self.errors()[-4000:]


class Drivers:
    """One driver at a time, and another when that one was killed or its master will not do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._last: Driver | None = None

    def running(self, master: str | None = None) -> Driver:
        """The one that is ready, or a new one; None takes any master."""
        last = self._last
        if last is None or not last.is_ready or master not in {None, last.master}:
            self.close()
            self._last = last = Driver(self._folder / str(self._count), master or LOCAL)
            self._count += 1
        return last

    def run(self, job: str, **arguments: Any) -> Any:
        """The result of a job that nobody disturbs."""
        driver = self.running()
        driver.begin(job, **arguments)
        return driver.result()

    def close(self) -> None:
        """End the one that lives; one that a failed test has left at work is killed."""
        if self._last is None:
            return
        if self._last.is_ready:
            self._last.close()
        else:
            self._last.kill()


def wait_for_end(number: int, seconds: float) -> None:
    """Return when a process has ended, or the time is over."""
    try:
        file = os.pidfd_open(number)
    except ProcessLookupError:
        return
    try:
        # Not `select`: the broker of this process has an open file for each file of a log.
        poll = select.poll()
        poll.register(file, select.POLLIN)
        poll.poll(max(seconds, 0) * 1000)
    finally:
        os.close(file)


class Outcome(Enum):
    """Outcome of a job."""

    UNDISTURBED = auto()
    """It was over before its moment."""
    SURVIVED = auto()
    """It has come to its end after a kill."""
    KILLED = auto()
    """The driver is dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that is to be killed."""

    begin: Callable[[Driver, Path], Changes]
    """Starts it in a new folder, or goes on in one where it was killed; the changes are those that
    it makes from then on."""
    moments: int
    """About how many changes it makes when nobody disturbs it."""
    meanwhile: Callable[[Path], None] = lambda _: None
    """Called when it has begun, and with every change."""


def survive(drivers: Drivers, job: Job, *, victim: Victim, seed: int, folder: Path) -> Path:
    """Kill somewhere in a job's work, and have it come to its end; the folder where it did.

    A job that is over before does not count.
    """
    chance = Random(f"{victim.value} {seed}")
    for number in range(ATTEMPTS_MAX):
        attempt = folder / str(number)
        attempt.mkdir()
        moment: float = chance.randint(1, job.moments)
        run = partial(_run, drivers, job, folder=attempt, victim=victim, chance=chance)
        outcome = run(moment=moment)
        if outcome is Outcome.UNDISTURBED:
            continue
        while outcome is Outcome.KILLED:
            moment = chance.randint(1, job.moments) if chance.random() < AGAIN else math.inf
            outcome = run(moment=moment)
        return attempt
    raise AssertionError(f"{ATTEMPTS_MAX} jobs were over before they could be killed")


def _run(
    drivers: Drivers,
    job: Job,
    *,
    folder: Path,
    victim: Victim,
    moment: float,
    chance: Random,
) -> Outcome:
    driver = drivers.running(victim.master)
    is_struck = False
    with closing(job.begin(driver, folder)) as changes:
        job.meanwhile(folder)
        while driver.wait(changes):
            job.meanwhile(folder)
            if is_struck or changes.count < moment or not driver.strike(victim, chance):
                continue
            is_struck = True
            # Pytest shows it when the test fails.
            print(f"{folder}: a kill at change {changes.count}, drawn was {moment}")
            if driver.is_killed:
                return Outcome.KILLED
    driver.result()
    return Outcome.SURVIVED if is_struck else Outcome.UNDISTURBED
