"""A stage that Spark runs again while tasks of its first attempt live on: `lose_shuffle_files`.

    Spark       slots 0, 1, 2 run | files go | 3 fails to fetch | the stage runs again
    attempts    0-0, 1-0, 2-0 wait             0-0 ends           1-1, 2-1, 3-0, 4-0, 5-0

Each attempt waits at a gate when it has read its rows and written none. The test opens the gates in
an order that its seed decides: for some slots the attempt of the first stage ends first, for others
that of the second. Spark counts the first to end, and the other one ends too.
"""

import os
import select
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa

from tailrace.client.admin import create_topic
from tests.kills.changes import Changes
from tests.kills.drivers import PATIENCE_SECONDS, Driver, Drivers
from tests.spark.topics import committed

MASTER = "local[3,4]"
"""It has as many cores as tasks wait at first."""

KINDS = ["write", "version", "stream"]
"""A batch write, one version of a job, and a stream."""

ROWS = 600
MAPS = 3
SLOTS = 6
OLD = 3
"""The slots that run when the files go."""


class Gates:
    """Files by which attempts wait for a test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def enter(self, slot: int) -> None:
        """Wait until this attempt at a slot may go on; Spark kills it then at the latest."""
        with closing(Changes(self._folder)) as changes:
            number = next(
                number for number in count() if self._is_first(f"started {slot}-{number}")
            )
            while not {f"go {slot}-{number}", "go all"} & set(os.listdir(self._folder)):
                wait_for(changes)

    def wait_for_started(self, number: int, driver: Driver) -> None:
        """Return when so many attempts wait or have waited."""
        with closing(Changes(self._folder)) as changes:
            while len(list(self._folder.glob("started*"))) < number:
                assert driver.wait(changes), "the job is over while its tasks wait"

    def open(self, name: str) -> None:
        """Let an attempt go on."""
        (self._folder / f"go {name}").touch()

    def _is_first(self, name: str) -> bool:
        try:
            (self._folder / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def wait_for(changes: Changes) -> None:
    """Return when there are changes."""
    poll = select.poll()
    poll.register(changes, select.POLLIN)
    assert poll.poll(PATIENCE_SECONDS * 1000), "nobody has opened the gate"
    changes.take()


def gated(batches: Iterator[pa.RecordBatch], folder: str) -> Iterator[pa.RecordBatch]:
    """The rows of a task, when its gate is open."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    rows = list(batches)
    Gates(Path(folder)).enter(context.partitionId())
    yield from rows


def lose_shuffle_files(drivers: Drivers, bootstrap: str, *, seed: int, folder: Path) -> None:
    """Remove the shuffle files of a map task of a write, and check its topic in the end."""
    chance = Random(f"stages {seed}")
    kind = KINDS[seed % len(KINDS)]
    topic = f"{folder.parent.name}-{folder.name}"
    create_topic(bootstrap, topic, partition_count=2)
    driver = drivers.running(MASTER)
    gates = Gates(folder / "gates")
    (folder / "gates").mkdir()
    driver.begin(
        "shuffled", bootstrap=bootstrap, target=topic, folder=folder, kind=kind, rows=ROWS,
        maps=MAPS, slots=SLOTS,
    )  # fmt: skip
    started = OLD
    gates.wait_for_started(started, driver)
    _lose_map_output(driver.folder, chance)
    first, *left = chance.sample(range(OLD), OLD)
    order = [f"{slot}-{attempt}" for slot in sorted(left) for attempt in chance.sample(range(2), 2)]
    print(f"{folder}: a {kind}; the gates open for {first}-0, {', '.join(order)}")
    for name in (f"{first}-0", *order):
        gates.open(name)
        # The core that is free then takes the next task.
        started += 1
        gates.wait_for_started(started, driver)
    gates.open("all")
    driver.result()
    found = sorted(int(each.value or b"") for each in committed(bootstrap, topic))
    assert found == list(range(ROWS))


def _lose_map_output(folder: Path, chance: Random) -> None:
    """Remove the files of one map task of the newest shuffle."""
    found = sorted(folder.rglob("shuffle_*_*_0.data"), key=lambda each: each.name)
    newest = max(_shuffle_number(each) for each in found)
    path = chance.choice([each for each in found if _shuffle_number(each) == newest])
    path.unlink()
    # They are in different directories, by the hashes of their names.
    for each in folder.rglob(f"{path.stem}.index"):
        each.unlink()


def _shuffle_number(path: Path) -> int:
    return int(path.stem.split("_")[1])
