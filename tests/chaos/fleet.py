"""Client processes that are killed, paused, replaced and told to end, one for each berth.

A berth has the settings of a client and one process at a time, each of which is another life with
a name and a history of its own; only a paused process may live on beside its successor, which is
how producers become zombies.
"""

import json
import math
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Final

from compat.processes import bound_to_us
from tests.chaos.life import GAVE_UP, Plan, Role

PAUSE_SECONDS_MAX: Final = 6
"""Some pauses are longer than the sessions of groups, and some are not."""

ROOT: Final = Path(__file__).parents[2]

_LIFE: Final = bound_to_us([sys.executable, "-m", "tests.chaos.life"])


class Berth:
    """One client of a run, through all of its lives."""

    def __init__(self, plan: Plan, folder: Path, *, command: Sequence[str] = _LIFE) -> None:
        """`command` begins each life, with the plan behind it."""
        self.plan = plan
        self._command = command
        self._folder = folder
        self._lives = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._zombies: list[subprocess.Popen[bytes]] = []
        self._wake_at = math.inf
        self._logs: list[tuple[subprocess.Popen[bytes], Path]] = []
        """All of its processes, with the file of what each has printed."""

    @property
    def gave_up(self) -> list[str]:
        """The reason of each process that has given up (`Life.give_up`)."""
        return [
            log.read_text().splitlines()[-1]
            for process, log in self._logs
            if process.poll() == GAVE_UP
        ]

    @property
    def crashed(self) -> list[str]:
        """The last line of each process that an exception has ended."""
        return [
            (log.read_text().splitlines() or ["nothing"])[-1]
            for process, log in self._logs
            if process.poll() == 1
        ]

    @property
    def is_alive(self) -> bool:
        """Whether its process runs, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Begin a new life."""
        assert not self.is_alive
        self._lives += 1
        process = f"{self.plan.name}.{self._lives}"
        plan = replace(self.plan, process=process)
        path = self._folder / f"{process}.log"
        with path.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command, json.dumps(asdict(plan))],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._logs.append((self._process, path))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process, if that runs."""
        if self._process is not None and self.is_alive:
            self._process.send_signal(number)

    def pause(self, until: float) -> None:
        """Pause its process until a monotonic time; see `wake_due`."""
        self.signal(signal.SIGSTOP)
        self._wake_at = until

    def replace_paused(self, until: float) -> None:
        """Pause its process, and begin a new life beside it."""
        if self._process is not None and self.is_alive:
            self.pause(until)
            self._zombies.append(self._process)
            self._process = None
            self.start()

    def wake_due(self) -> None:
        """Have paused processes go on if it is time."""
        if time.monotonic() > self._wake_at:
            self.wake()

    def wake(self) -> None:
        """Have paused processes go on, zombies too."""
        self._wake_at = math.inf
        self.signal(signal.SIGCONT)
        for each in self._zombies:
            each.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Tell all of its processes to end in order."""
        self.wake()
        for each in (self._process, *self._zombies):
            if each is not None and each.poll() is None:
                each.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all of its processes at once."""
        for each in (self._process, *self._zombies):
            if each is not None:
                each.kill()
                each.wait()

    def wait(self, deadline: float) -> bool:
        """Wait until all of its processes have ended; they are killed at a monotonic time."""
        is_over = True
        for each in (self._process, *self._zombies):
            if each is not None:
                try:
                    each.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    is_over = False
                    each.kill()
                    each.wait()
        return is_over


class Fleet:
    """All client processes of a run."""

    def __init__(self, berths: list[Berth], chance: Random) -> None:
        self.berths = berths
        self.counts: Counter[str] = Counter()
        self._chance = chance

    def start(self) -> None:
        """Begin the first life of each."""
        for each in self.berths:
            each.start()

    def disturb(self) -> None:
        """Do something to some client."""
        berth = self._chance.choice(self.berths)
        if not berth.is_alive:
            berth.start()
            self.counts["clients started"] += 1
            return
        until = time.monotonic() + self._chance.uniform(0.5, PAUSE_SECONDS_MAX)
        has_zombies = berth.plan.role in {Role.TRANSACTIONAL.value, Role.TRANSFORMER.value}
        match self._chance.choice(("kill", "kill", "end", "pause", "pause or replace")):
            case "kill":
                berth.signal(signal.SIGKILL)
                self.counts["clients killed"] += 1
            case "end":
                berth.signal(signal.SIGTERM)
                self.counts["clients ended in order"] += 1
            case "pause or replace" if has_zombies:
                berth.replace_paused(until)
                self.counts["clients replaced while paused"] += 1
            case _:
                berth.pause(until)
                self.counts["clients paused"] += 1

    def wake_due(self) -> None:
        """Have paused processes go on if it is time."""
        for each in self.berths:
            each.wake_due()

    def revive(self, *roles: Role) -> None:
        """Have every berth of these roles a process that runs."""
        for each in self._of(*roles):
            each.wake()
            if not each.is_alive:
                each.start()

    def _of(self, *roles: Role) -> list[Berth]:
        return [each for each in self.berths if Role(each.plan.role) in roles]

    def end(self, *roles: Role, within_s: float) -> None:
        """Have the processes of these roles end in order; those that do not are killed.

        Some clients wait for ever when the broker was not there for a while.
        """
        concerned = self._of(*roles)
        for each in concerned:
            each.end()
        deadline = time.monotonic() + within_s
        self.counts["clients that had to be killed"] += sum(
            [not each.wait(deadline) for each in concerned]
        )

    def gave_up(self) -> Counter[str]:
        """The reasons of all processes that have given up, and how many had each."""
        return Counter(reason for each in self.berths for reason in each.gave_up)

    def crashed(self) -> list[str]:
        """The last line of each client of ours and of Kafka that an exception has ended.

        Others may end so: a transformer does when the outcome of a transaction is open.
        """
        return [
            f"{each.plan.name} was ended by an exception: {line}"
            for each in self.berths
            if each.plan.client.startswith(("ours", "java"))
            for line in each.crashed
        ]

    def kill(self) -> None:
        """End all processes at once."""
        for each in self.berths:
            each.kill()
