"""The first rows of a large topic: Spark closes the sockets of its workers before they are done.

This is a kill that Spark itself does. It is here because it needs all that a driver, its JVM and
its workers have printed, which is known when they have ended.
"""

from pathlib import Path

import pytest

from tailrace.model import TopicPartition
from tests.kills.drivers import Drivers
from tests.spark.directories import write_numbered

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_no_traceback_is_printed(drivers: Drivers, tmp_path: Path) -> None:
    """`show` and `take` succeed, and the workers of their tasks print no traceback."""
    write_numbered(tmp_path, TopicPartition("t", 0), limit=40_000, per_batch=1000)
    driver = drivers.running()
    before = driver.errors()
    assert "only showing top 3 rows" in drivers.run("show", data=tmp_path)
    drivers.close()
    # Processes that plan have PySpark's daemon whatever the setting says, and it prints the
    # traceback of a socket that Spark closes at the end of the session (decision 78).
    lines = [
        line
        for line in driver.errors().removeprefix(before).splitlines()
        if not line.startswith("[pyspark.daemon pyspark.sql.worker.")
    ]
    assert not [line for line in lines if "Traceback" in line or "BrokenPipeError" in line]
