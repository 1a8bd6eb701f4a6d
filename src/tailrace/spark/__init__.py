"""Topics as Spark DataFrames: the data source `tailrace`, and a local session set up well.

`spark.read.format("tailrace")` needs no import of this package: Spark finds the source through
the module `pyspark_tailrace`, and that of a cluster's metadata log, `tailrace-metadata`, through
`pyspark_tailrace_metadata`. Programs import from here `session`, for one machine, `install`, for a
cluster whose executors do not have this package, and jobs over whole logs (`tailrace pipeline`).

Invariant: importing the package is light. PySpark and PyArrow load when they are first used,
because Spark imports this package again in each of its Python workers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tailrace.runtime.extras import check_extra
from tailrace.spark.install import install
from tailrace.spark.session import session

if TYPE_CHECKING:
    from tailrace.spark.jobs.archive import ArchiveSettings, ArchiveSummary, archive
    from tailrace.spark.jobs.audit import AuditFinding, AuditReport, audit
    from tailrace.spark.jobs.compact import CompactionSummary, PartitionSummary, compact
    from tailrace.spark.jobs.pages import audit_page, profile_page
    from tailrace.spark.jobs.profile import LogProfile, Profile, profile_topics
    from tailrace.spark.jobs.query import query
    from tailrace.spark.jobs.replay import ReplaySettings, ReplaySummary, replay
    from tailrace.spark.jobs.verify_archive import ArchiveFinding, ArchiveReport, verify_archive

__all__ = [
    "ArchiveFinding",
    "ArchiveReport",
    "ArchiveSettings",
    "ArchiveSummary",
    "AuditFinding",
    "AuditReport",
    "CompactionSummary",
    "LogProfile",
    "PartitionSummary",
    "Profile",
    "ReplaySettings",
    "ReplaySummary",
    "archive",
    "audit",
    "audit_page",
    "compact",
    "install",
    "profile_page",
    "profile_topics",
    "query",
    "replay",
    "session",
    "verify_archive",
]

_MODULES = {
    "ArchiveFinding": "jobs.verify_archive",
    "ArchiveReport": "jobs.verify_archive",
    "ArchiveSettings": "jobs.archive",
    "ArchiveSummary": "jobs.archive",
    "AuditFinding": "jobs.audit",
    "AuditReport": "jobs.audit",
    "CompactionSummary": "jobs.compact",
    "LogProfile": "jobs.profile",
    "PartitionSummary": "jobs.compact",
    "Profile": "jobs.profile",
    "ReplaySettings": "jobs.replay",
    "ReplaySummary": "jobs.replay",
    "archive": "jobs.archive",
    "audit": "jobs.audit",
    "audit_page": "jobs.pages",
    "compact": "jobs.compact",
    "profile_page": "jobs.pages",
    "profile_topics": "jobs.profile",
    "query": "jobs.query",
    "replay": "jobs.replay",
    "verify_archive": "jobs.verify_archive",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'tailrace.spark' has no attribute {name!r}")
    check_extra("spark", f"tailrace.spark.{name}")
    return getattr(import_module(f"tailrace.spark.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
