"""Registers the source `tailrace-metadata` with Spark; see `pyspark_tailrace`.

Spark registers one class of each module, so the second format has a module of its own.
Invariant: it stays importable with the extra `tailrace[spark]` alone.
"""

from tailrace.spark.metadata.source import MetadataDataSource as DefaultSource

__all__ = ["DefaultSource"]
