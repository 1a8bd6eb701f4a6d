"""Logs read from their files, with no broker or beside one; nothing is changed, made or locked.

open_log  →  Log            records, batches, Arrow; ranges, follow       for programs
LogView        the log at one time: isolation, damage        for Spark and the CLI
LogReader      its batches, while files are exchanged        for all of them
"""

from tailrace.reading.located import Skipped
from tailrace.reading.log import Log, LogStatistics
from tailrace.reading.opening import list_partitions, open_log
from tailrace.reading.reader import StoredBatch
from tailrace.records.builder import Record

__all__ = [
    "Log",
    "LogStatistics",
    "Record",
    "Skipped",
    "StoredBatch",
    "list_partitions",
    "open_log",
]
