"""Modules that the driver's two processes of a stream load, which make its writer and commit."""

import subprocess
import sys

DRIVER = """
import sys
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_tailrace import DefaultSource
before = set(sys.modules)
options = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}
source = DefaultSource(options)
writer = source.streamWriter(StructType([StructField("value", BinaryType())]), False)
import tailrace.spark.sink.written
writer.commit([None], 0)
heavy = {"tailrace.client.producer.engine", "tailrace.reading", "tailrace.client.admin"}
print(sorted(heavy & set(sys.modules)), sorted({"numpy", "pyarrow"} & set(sys.modules) - before))
"""


def test_a_driver_at_least_once_loads_no_client() -> None:
    """Neither the producer nor a reader, and no PyArrow beyond what PySpark loads."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DRIVER], capture_output=True, check=True, text=True
    )
    assert done.stdout == "[] []\n"


def test_to_find_the_format_loads_next_to_nothing() -> None:
    """Spark imports it in a process of its own when a session starts."""
    program = "import sys, pyspark_tailrace\nprint([m for m in sys.modules if 'tailrace' in m])"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, check=True, text=True
    )
    loaded = done.stdout
    assert "tailrace.spark.source" in loaded
    assert "tailrace.client" not in loaded
    assert "tailrace.reading" not in loaded
