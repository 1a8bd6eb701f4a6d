"""A client process of a run with groups: one life, from its start to SIGTERM or SIGKILL.

    python -m tests.chaos.life '{"process": "mixed-1.2", "role": "consumer", …}'

Each process has the history of what it did in a file of its own, which is what remains of it when
it is killed. On SIGTERM it comes to an orderly end: it waits for its sends and leaves its group.

Not here: what the clients do (`producing`, `consuming`, `transforming`, `zombies`,
`watching`).
"""

import json
import os
import signal
import sys
import threading
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final, NoReturn

from tests.histories.history import Recorder

EVENTS = "events"
"""The topic that producers write and groups read."""

RESULTS = "results"
"""The topic that transformers write."""

GAVE_UP: Final = 75
"""Exit status of a client that will never go on by itself."""


class Role(Enum):
    """The work of a process."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    TRANSACTIONAL = "transactional"
    TRANSFORMER = "transformer"
    ZOMBIE = "zombie"
    WATCHER = "watcher"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The settings of a life."""

    process: str
    """A name that no other life has."""
    role: str
    client: str
    """Which client library, and which of its protocols."""
    name: str
    """The name that all lives of this client share: the transactional id, for one."""
    group: str = ""
    is_committed: bool = False
    """Whether a consumer reads committed records only."""
    bootstrap: str
    folder: str
    """The folder of the histories."""
    seed: int
    partition_count: int
    timeout_ms: int
    """The longest time that a request may take; other limits are multiples of it."""


class Life:
    """The parts of a life that all roles need."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = Random(f"{plan.seed} {plan.process}")
        self.recorder = Recorder(Path(plan.folder) / f"{plan.process}.history")
        self.stopping = threading.Event()
        self._count = 0

    def value(self) -> str:
        """A value that no other record has."""
        self._count += 1
        return f"{self.plan.process}:{self._count}"

    def partition(self) -> int:
        """Some partition of the topic."""
        return self.chance.randrange(self.plan.partition_count)

    def pause_s(self) -> float:
        """Time until a producer sends again."""
        return self.chance.random() * 0.15

    def give_up(self, reason: str) -> NoReturn:
        """End as after SIGKILL; the reason is what the process prints last."""
        print(reason, flush=True)
        os._exit(GAVE_UP)

    def work_s(self) -> float:
        """Time that a consumer spends between a poll and its commit; it may be paused meanwhile."""
        return self.chance.random() * 0.4


def named(topic: str, partition: int) -> str:
    """The name of a partition in histories."""
    return f"{topic}-{partition}"


def number_of(partition: str) -> int:
    """The number of a partition from its name in histories."""
    return int(partition.rpartition("-")[2])


def main() -> None:
    """Live until SIGTERM."""
    life = Life(Plan(**json.loads(sys.argv[1])))
    signal.signal(signal.SIGTERM, lambda *_: life.stopping.set())
    # Only the clients that are needed are imported: dozens of processes start in a run.
    match Role(life.plan.role):
        case Role.PRODUCER:
            from tests.chaos import producing

            producing.PRODUCERS[life.plan.client](life)
        case Role.CONSUMER:
            from tests.chaos import consuming

            consuming.CONSUMERS[life.plan.client](life)
        case Role.TRANSACTIONAL:
            from tests.chaos import transforming

            transforming.send_transactions(life)
        case Role.TRANSFORMER:
            from tests.chaos import transforming

            transforming.transform(life)
        case Role.ZOMBIE:
            from tests.chaos import zombies

            zombies.commit_late(life)
        case Role.WATCHER:
            from tests.chaos import watching

            watching.watch(life)


if __name__ == "__main__":
    main()
