"""One real Spark session for all tests of this folder; one for each process of pytest."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tailrace.spark import session


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
