"""One real Spark session for all tests of this folder; one for each process of pytest."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tailrace.spark import session
from tailrace.spark.pyspark_versions import HAS_READ_LIMITS


def pytest_configure(config: pytest.Config) -> None:
    """PySpark before 4.2 leaves the socket of each `collect` to the garbage collector."""
    if not HAS_READ_LIMITS:
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session of two cores, which checks every Arrow batch against the declared schema."""
    running = session(
        name="tests",
        master="local[2]",
        settings={"spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true"},
    )
    yield running
    running.stop()
