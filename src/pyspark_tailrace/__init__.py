"""Registers the source `tailrace` with Spark, so that programs need no registration call.

Spark imports every top-level module named `pyspark_…` once per session, in a process beside the
driver, and registers the class it finds under `DefaultSource`. The module does nothing else.
Invariant: it stays importable with the extra `tailrace[spark]` alone.
"""

from tailrace.spark.source import TailraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
