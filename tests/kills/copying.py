"""A stream from one topic into another, exactly once, that may be killed at any moment.

`Copy.check` compares what readers of committed records see with what was sent, record for record.
"""

from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

from tailrace import Producer
from tailrace.client.admin import create_topic
from tailrace.protocol.apis import ApiKey
from tailrace.testing.proxy import Action, Direction, Proxy
from tests.chaos.brokers import Killable
from tests.kills.changes import Changes
from tests.kills.drivers import LOCAL, Driver, Drivers, Job, Victim, survive
from tests.spark.topics import committed

PARTITIONS = 2
RECORDS = 420
BATCH = 70
"""Records of a micro-batch."""
KEYS = 7

CHANGES = 120
"""Changes to the files of the checkpoint while a copy runs."""

RESTARTS = 30
"""Starts of a query while its broker is away."""

SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
"""Settings of the broker: few partitions for its own topics."""


class Point(NamedTuple):
    """A death at a request."""

    api: ApiKey
    direction: Direction

    def __str__(self) -> str:
        moment = "before" if self.direction is Direction.REQUEST else "after"
        return f"{moment} {self.api.name}"


POINTS = [
    Point(api, direction)
    for api in (
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.PRODUCE,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    )
    for direction in Direction
]
"""Around every request that changes something or decides: the recovery and the sweep, the tokens
and the beginning of a transaction, its rows, its offsets, and its end, before which the batch was
noted."""


class Copy:
    """Topics, a checkpoint, and the records that were sent."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.folder = folder
        self._bootstrap = bootstrap
        self._name = f"{folder.parent.name}-{folder.name}"
        for topic in ("in", "out"):
            create_topic(bootstrap, f"{self._name}-{topic}", partition_count=PARTITIONS)
        with Producer({"bootstrap.servers": bootstrap}) as producer:
            for number in range(RECORDS):
                producer.send(f"{self._name}-in", b"%d" % number, key=b"%d" % (number % KEYS))

    def begin(self, driver: Driver, *, restarts: int = 0, accepted: str | None = None) -> Changes:
        """Start it, or go on, until all is copied; a query that fails is started again.

        `accepted` is the option by which an older checkpoint is taken.
        """
        self._clear_cut_beginning()
        changes = Changes(self.folder)
        driver.begin(
            "copy",
            bootstrap=self._bootstrap,
            source=f"{self._name}-in",
            target=f"{self._name}-out",
            folder=self.folder,
            batch=BATCH,
            restarts=restarts,
            accepted=accepted,
        )
        return changes

    @property
    def has_id(self) -> bool:
        """Whether Spark has given the query its id."""
        return (self.folder / "checkpoint" / "metadata").exists()

    def run(self, driver: Driver, *, accepted: str | None = None) -> str | None:
        """Have it come to its end, or be refused; then the option by which it is not."""
        with closing(self.begin(driver, accepted=accepted)):
            named: str | None = driver.result()
        return named

    def seen(self) -> list[int]:
        """All records that are visible."""
        return [int(each.value or b"") for each in committed(self._bootstrap, f"{self._name}-out")]

    def _clear_cut_beginning(self) -> None:
        """Remove the rest of the first file of offsets, if that was never whole.

        Spark refuses such a checkpoint (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY) and tells its
        user to do this; no task has run before that file.
        """
        offsets = self.folder / "checkpoint" / "offsets"
        if not (offsets / "0").exists():
            for each in offsets.glob(".*"):
                each.unlink()

    def wait_for_batch(self, driver: Driver, changes: Changes) -> None:
        """Return when a batch is done."""
        while not (self.folder / "checkpoint" / "commits" / "0").exists():
            told = "the copy is over before something can be killed"
            assert driver.wait(changes), f"{told}; {driver.told()}"

    def wait_for_end(self, driver: Driver, changes: Changes) -> None:
        """Return when the copy is over and checked."""
        while driver.wait(changes):
            pass
        driver.result()
        self.check()

    def finish(self, driver: Driver) -> None:
        """Start it again, and check it when it is over."""
        with closing(self.begin(driver)) as changes:
            self.wait_for_end(driver, changes)

    def check(self) -> None:
        """Each record is there once, those of a key in their order, and nobody waits for an end."""
        by_key: dict[bytes | None, list[int]] = defaultdict(list)
        for each in committed(self._bootstrap, f"{self._name}-out"):
            by_key[each.key].append(int(each.value or b""))
        assert by_key == {b"%d" % key: list(range(key, RECORDS, KEYS)) for key in range(KEYS)}


def kill_driver_at(point: Point, drivers: Drivers, proxy: Proxy, *, folder: Path) -> None:
    """Kill the driver of a copy at a request, start it again, and check the copy."""
    copy = Copy(proxy.address, folder)
    driver = drivers.running(LOCAL)
    with closing(copy.begin(driver)) as changes:
        copy.wait_for_batch(driver, changes)
        kill_at(point, proxy, driver.kill)
    copy.finish(drivers.running(LOCAL))


def kill_task_at(
    point: Point, drivers: Drivers, proxy: Proxy, victim: Victim, *, folder: Path
) -> None:
    """Kill a process that runs tasks of a copy at a request, and check the copy in the end."""
    copy = Copy(proxy.address, folder)
    driver = drivers.running(victim.master)
    chance = Random(f"{victim.value} {point}")

    def kill() -> None:
        assert driver.strike(victim, chance), f"there is no {victim.value}"

    with closing(copy.begin(driver)) as changes:
        copy.wait_for_batch(driver, changes)
        kill_at(point, proxy, kill)
        copy.wait_for_end(driver, changes)


def kill_broker_at(
    point: Point, drivers: Drivers, broker: Killable, proxy: Proxy, *, folder: Path
) -> None:
    """Kill the broker of a copy at a request, start it again, and check the copy in the end."""
    copy = Copy(proxy.address, folder)
    driver = drivers.running(LOCAL)
    with closing(copy.begin(driver, restarts=RESTARTS)) as changes:
        copy.wait_for_batch(driver, changes)
        kill_at(point, proxy, broker.kill)
        broker.start()
        copy.wait_for_end(driver, changes)


def kill_at(
    point: Point,
    proxy: Proxy,
    kill: Callable[[], None],
    *,
    begin: Callable[[], None] = lambda: None,
) -> None:
    """Kill at the next request of a kind; `begin` is what leads to it.

    Those who live lose their connections.
    """
    count = proxy.disturbed_count
    proxy.disturb(point.direction, Action.HOLD, {point.api})
    begin()
    assert proxy.wait_for_disturbed(count + 1, timeout_s=120), point
    kill()
    proxy.cut()
    proxy.heal()


def kill_broker_at_random(
    drivers: Drivers, broker: Killable, proxy: Proxy, *, seed: int, folder: Path
) -> None:
    """Kill the broker of a copy at moments that the seed decides, start it again, and check it.

    The second moment may lie behind the end.
    """
    chance = Random(f"broker {seed}")
    moments = [chance.randint(1, CHANGES // 2), chance.randint(CHANGES // 2, CHANGES)]
    copy = Copy(proxy.address, folder)
    driver = drivers.running(LOCAL)
    with closing(copy.begin(driver, restarts=RESTARTS)) as changes:
        while driver.wait(changes):
            if moments and changes.count >= moments[0]:
                # Pytest shows it when the test fails.
                print(f"{folder}: a kill at change {changes.count}, drawn was {moments.pop(0)}")
                broker.kill()
                broker.start()
    driver.result()
    assert len(moments) < 2, "the copy was over before the broker could be killed"
    copy.check()


def kill_at_random(
    drivers: Drivers, bootstrap: str, victim: Victim, *, seed: int, folder: Path
) -> None:
    """Kill a process of a copy at a moment that the seed decides, and check the copy in the end.

    A driver that goes on may be killed once more.
    """
    copies: dict[Path, Copy] = {}

    def begin(driver: Driver, place: Path) -> Changes:
        if place not in copies:
            copies[place] = Copy(bootstrap, place)
        return copies[place].begin(driver)

    job = Job(begin=begin, moments=CHANGES)
    copies[survive(drivers, job, victim=victim, seed=seed, folder=folder)].check()
