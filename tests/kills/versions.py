"""A job that writes versions of a batch into a topic, exactly once, and is killed at a request."""

from pathlib import Path

from tailrace.client.admin import create_topic
from tailrace.testing.proxy import Proxy
from tests.kills.copying import Point, kill_at
from tests.kills.drivers import LOCAL, Driver, Drivers
from tests.spark.topics import committed

ROWS = 100
"""Rows of a version."""


class Versions:
    """A topic, and the directory of the job's notes; version 2 has the numbers from 200."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._topic = f"{folder.parent.name}-{folder.name}"
        create_topic(bootstrap, self._topic, partition_count=2)

    def begin(self, driver: Driver, number: int) -> None:
        """Start the write of a version, for the first time or again."""
        driver.begin(
            "version",
            bootstrap=self._bootstrap,
            target=self._topic,
            folder=self._folder,
            number=number,
            rows=ROWS,
        )

    def check(self, *numbers: int) -> None:
        """Each record of these versions is there once, and nobody waits for an end."""
        found = sorted(int(each.value or b"") for each in committed(self._bootstrap, self._topic))
        assert found == [
            row for number in numbers for row in range(number * ROWS, (number + 1) * ROWS)
        ]


def kill_job_at(point: Point, drivers: Drivers, proxy: Proxy, *, folder: Path) -> None:
    """Kill the driver of a job's second version at a request, run it again, and check the topic."""
    versions = Versions(proxy.address, folder)
    driver = drivers.running(LOCAL)
    versions.begin(driver, 1)
    driver.result()
    kill_at(point, proxy, driver.kill, begin=lambda: versions.begin(driver, 2))
    driver = drivers.running(LOCAL)
    # The second run is that of a scheduler which has not heard of the success of the first.
    for number in (2, 2, 3):
        versions.begin(driver, number)
        driver.result()
    versions.check(1, 2, 3)
