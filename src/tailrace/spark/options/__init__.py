"""Options of the source, from Spark's strings to one frozen value."""

from tailrace.spark.options.parse import parse_job_options, parse_options
from tailrace.spark.options.values import (
    EARLIEST,
    LATEST,
    Bound,
    Partitions,
    Pattern,
    Point,
    PointKind,
    Selection,
    SourceOptions,
    Topics,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "Bound",
    "Partitions",
    "Pattern",
    "Point",
    "PointKind",
    "Selection",
    "SourceOptions",
    "Topics",
    "parse_job_options",
    "parse_options",
]
