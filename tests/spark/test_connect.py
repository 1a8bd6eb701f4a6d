"""Jobs over Spark Connect, held against the same jobs in a classic session.

Not here: a server that has not this package (`test_install`). The client runs in a process of its
own, since a process has one kind of session.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.model import TopicPartition
from tailrace.spark.java import find_java
from tailrace.spark.jobs.archive import archive
from tailrace.spark.jobs.audit import audit
from tests.spark.directories import write_numbered

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

JOBS = """
import json, sys
from pyspark.sql import SparkSession
from tailrace.spark.jobs.archive import archive
from tailrace.spark.jobs.audit import audit

data, damaged, lake = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
summary = archive(spark, {"path": data, "subscribe": "t"}, lake)
rows = audit(spark, [damaged]).frame(spark).collect()
print(json.dumps([type(spark).__module__, summary.rows, rows]))
spark.stop()
"""


def content(lake: Path) -> dict[str, bytes]:
    """The Parquet files of an archive."""
    return {str(path.relative_to(lake)): path.read_bytes() for path in lake.rglob("*.parquet")}


def test_archive_and_audit_do_the_same_over_connect(spark: SparkSession, tmp_path: Path) -> None:
    """The files are those of a classic session, byte for byte, and so are the findings."""
    data, damaged = tmp_path / "data", tmp_path / "damaged"
    for number in (0, 1):
        write_numbered(data, TopicPartition("t", number), limit=500)
        path = write_numbered(damaged, TopicPartition("t", number), limit=50)
        path.write_bytes(path.read_bytes()[: -1 - number])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", JOBS, data, damaged, tmp_path / "connect"],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env=os.environ
        | {
            # A JVM that lives for so short has no time for its best code.
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "JAVA_HOME": str(find_java(os.environ).home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            # So the server chooses a free port.
            "SPARK_TESTING": "1",
        },
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    kind, count, rows = json.loads(done.stdout.splitlines()[-1])
    assert (kind, count) == ("pyspark.sql.connect.session", 1000)
    archive(spark, {"path": str(data), "subscribe": "t"}, str(tmp_path / "classic"))
    assert content(tmp_path / "connect") == content(tmp_path / "classic")
    found = audit(spark, [str(damaged)]).frame(spark).collect()
    assert len(found) >= 2
    assert rows == [list(each) for each in found]
