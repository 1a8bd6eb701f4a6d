r"""Flushes on a thread: those that answers wait for, and those of segments that have rolled.

    append  append  append          append  append
       \      |      /                 \    /
        ask  ask  ask                  ask ask
            flush (thread) ------------- flush (thread) -----
                 answers to the first three      answers to the other two

One flush covers every append that waited for it. Each log directory has one flush at a time, of all
its logs for which one was requested. A request that comes while a flush runs is served by the next
one: the running one may already be past the file to which its records were appended.

A failed flush is never tried again, whatever the reason: what it left out is lost to the page
cache, and a second one would report success. The directory goes out of service (promise 3).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tailrace.errors import StorageError
from tailrace.runtime.threads import Threads
from tailrace.storage.directories import unusable
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log, has_failed
from tailrace.storage.manager import LogManager

Flushed = asyncio.Future[OSError | None]
"""Done when a flush is: None, or why the records may not be on the device."""


@dataclass(slots=True, kw_only=True)
class _Wanted:
    flushed: Flushed
    are_records: bool = False
    """Whether every record appended so far is waited for."""
    is_rolled: bool = False
    """Whether closed segments are to be flushed with their indexes, and the recovery point moved
    behind them."""
    is_whole: bool = False
    """Whether the recovery point moves to the end, for which all indexes have to be flushed."""

    def flush(self, log: Log) -> None:
        """Do what is wanted.

        Raises:
            OSError: the device failed.
        """
        if self.is_whole:
            log.sync()
            return
        if self.are_records:
            log.commit()
        if self.is_rolled:
            log.sync_rolled()


@dataclass(slots=True)
class _Directory:
    """What is wanted of one directory next, and the task that does it."""

    wanted: dict[Log, _Wanted] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


class Flushes:
    """Flushes that are wanted, by log directory."""

    def __init__(self, logs: LogManager, threads: Threads) -> None:
        self._logs = logs
        self._threads = threads
        self._directories: dict[DirectoryLogs, _Directory] = {}

    def ask(self, log: Log, *, is_whole: bool) -> Flushed:
        """Have everything that was appended to a log put on the device; await it with `shield`.

        With `is_whole` indexes too, and the recovery point moves along (`Log.sync`); else only
        the records (`Log.commit`).
        """
        wanted = self._want(log)
        wanted.are_records = True
        wanted.is_whole = wanted.is_whole or is_whole
        return wanted.flushed

    def ask_rolled(self, log: Log) -> None:
        """Have the closed segments of a log put on the device soon, as Kafka does at each roll.

        Their indexes and the snapshot of producers go along, and the recovery point moves to the
        base offset of the active segment.
        """
        self._want(log).is_rolled = True

    async def finish(self) -> None:
        """Wait for the flushes that were asked for."""
        for directory in tuple(self._directories.values()):
            if directory.task is not None:
                await directory.task

    def _want(self, log: Log) -> _Wanted:
        home = self._logs.home_of(log)
        directory = self._directories.setdefault(home, _Directory())
        wanted = directory.wanted.get(log)
        if wanted is None:
            flushed: Flushed = asyncio.get_running_loop().create_future()
            wanted = directory.wanted[log] = _Wanted(flushed=flushed)
        if directory.task is None:
            directory.task = asyncio.ensure_future(self._run(home, directory))
        return wanted

    async def _run(self, home: DirectoryLogs, directory: _Directory) -> None:
        while directory.wanted:
            wanted, directory.wanted = directory.wanted, {}
            try:
                failures = await self._threads.run(_flush_all(wanted))
            except Exception as unexpected:  # noqa: BLE001 - whoever waits must hear of it
                reason = f"a flush broke off: {unexpected!r}"
                failures = dict.fromkeys(wanted, StorageError(reason))
            for log, error in failures.items():
                self._settle(home, log, error)
            for log, one in wanted.items():
                if not one.flushed.done():
                    # What has moved is on the device of the other directory, to its last record.
                    one.flushed.set_result(None if log.successor else failures.get(log))
        directory.task = None

    def _settle(self, home: DirectoryLogs, log: Log, error: OSError) -> None:
        # One that was deleted meanwhile had its files closed, and one that had failed is told.
        if self._logs.get(log.partition) is log and not isinstance(error, StorageError):
            if not has_failed(log):
                self._logs.settle(home, error)
                return
            reason = f"a flush failed; {unusable(log.folder.path, error)}"
            self._logs.fail(home, StorageError(reason))


def _flush_all(wanted: Mapping[Log, _Wanted]) -> Callable[[], dict[Log, OSError]]:
    """What the worker thread does: flush every log; gives those that failed, and why."""

    def run() -> dict[Log, OSError]:
        failures: dict[Log, OSError] = {}
        for log, one in wanted.items():
            try:
                one.flush(log)
            except OSError as error:
                failures[log] = error
        return failures

    return run
