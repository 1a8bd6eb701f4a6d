"""Topics as Spark DataFrames: the data source `tailrace`, and a local session set up well.

`spark.read.format("tailrace")` needs no import of this package: Spark finds the source through
the module `pyspark_tailrace`, and that of a cluster's metadata log, `tailrace-metadata`, through
`pyspark_tailrace_metadata`. What people import from here is `session`, for one machine, and
`install`, for a cluster whose executors do not have this package.

Invariant: importing the package is light. PySpark and PyArrow load when they are first used,
because Spark imports this package again in each of its Python workers.
"""

from tailrace.spark.install import install
from tailrace.spark.session import session

__all__ = ["install", "session"]
