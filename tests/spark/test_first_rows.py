"""The first rows of a large topic: Spark closes the sockets of its workers before they are done."""

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.model import TopicPartition
from tests.spark.directories import write_numbered

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = """
import sys
from tailrace.spark import session
spark = session(master="local[2]")
frame = spark.read.format("tailrace").option("subscribe", "t").load(sys.argv[1])
frame.show(3)
assert len(frame.take(3)) == 3
"""


def test_no_traceback_is_printed(tmp_path: Path) -> None:
    """`show` and `take` succeed, and print nothing but the rows."""
    write_numbered(tmp_path, TopicPartition("t", 0), limit=40_000, per_batch=1000)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        check=False,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert "only showing top 3 rows" in done.stdout
    assert "Traceback" not in done.stderr
    assert "BrokenPipeError" not in done.stderr
