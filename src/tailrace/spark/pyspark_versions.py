"""Differences between the supported versions of PySpark.

    4.0   data sources in Python; Arrow writers for batches; `latestOffset()` has no arguments
    4.1   Arrow writers for streams; a plan of a source is kept for the queries of its DataFrame;
          a format that Spark has found by itself can be registered
    4.2   `latestOffset(start, limit)`, read limits, `SupportsTriggerAvailableNow`
    4.3   nothing new for a data source

A name that a version lacks gets a stand-in here, so the other modules have one form of the code.

Not here: that the version is a supported one at all (`install`).

Invariant: no other module uses a name of PySpark that one of these versions lacks.
"""

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamWriter

from tailrace.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef, misc]
        """The Arrow writer of a stream for PySpark 4.0.

        Spark 4.0 demands the first class of a stream's writer, and hands Arrow batches to each
        writer of the second class.
        """


try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_READ_LIMITS = True
except ImportError:
    HAS_READ_LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]
        """Stands for Spark's limit on a micro-batch, which older versions do not have."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef, misc]
        """Lets a micro-batch take the whole backlog."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef, misc]
        """Limits a micro-batch to a number of rows."""

        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A stream reader that Spark tells about `Trigger.AvailableNow`; older ones do not."""


def register_source(spark: "SparkSession", source: type[DataSource]) -> None:
    """Register a format in a session, unless the session has found it by itself."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        # Spark 4.0 refuses to register what it has found; later versions replace it.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


__all__ = [
    "HAS_READ_LIMITS",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "register_source",
]
