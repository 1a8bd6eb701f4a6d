r"""Flushes on a worker thread: for requests that wait, and for rolled segments.

    append  append  append          append  append
       \      |      /                 \    /
        ask  ask  ask                  ask ask
            flush (thread) ------------- flush (thread) -----
                 answers to the first three      answers to the other two

One flush covers every append that waits for it. Each log directory has one flush at a time, for all
its logs with a request. A request during a flush is served by the next one, because the running one
may have synced its file already.

A failed flush is never repeated: the kernel drops the pages that it could not write, and a second
flush would report success. The directory goes out of service (promise 3).
"""

import asyncio
from collections.abc import Callable, Mapping

from tailrace.errors import StorageError
from tailrace.runtime.threads import Threads
from tailrace.storage.directories import unusable
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log, has_failed, is_flush_due
from tailrace.storage.manager import LogManager
from tailrace.values import dataclass, field

Flushed = asyncio.Future[OSError | None]
"""Result of a flush: None, or the reason why the records may not be on the device."""


@dataclass(slots=True, kw_only=True)
class _FlushRequest:
    """The requested flush of one log."""

    flushed: Flushed
    are_records: bool = False
    """Whether to sync every record appended so far."""
    is_rolled: bool = False
    """Whether to sync closed segments with their indexes, and advance the recovery point."""
    is_whole: bool = False
    """Whether to sync everything, indexes too, and advance the recovery point to the log end."""

    def flush(self, log: Log) -> None:
        """Sync what was requested.

        Raises:
            OSError: the device failed.
        """
        # The whole includes the two others.
        if self.is_whole:
            log.sync()
            return
        if self.are_records:
            log.commit()
        if self.is_rolled:
            log.sync_rolled()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushStatistics:
    """The flushes of a broker at one moment; totals are since it was started."""

    flush_count: int
    """Flushes that have ended; each is of one directory, and of one or several of its logs."""
    log_count: int
    """Logs that these have flushed, counted each time."""
    failure_count: int
    """Logs that could not be flushed, among these."""
    seconds_total: float
    """Duration of all of these flushes, in seconds."""
    seconds_max: float
    """Duration of the longest, in seconds."""
    running_count: int
    """Directories in which a flush runs now."""
    waiting_count: int
    """Logs that wait now, for the next flush of their directory."""


@dataclass(slots=True)
class _DirectoryFlushes:
    """The requests for the next flush of one directory, and the task that runs it."""

    wanted: dict[Log, _FlushRequest] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


class Flushes:
    """Runs the requested flushes, one at a time in each log directory."""

    def __init__(self, logs: LogManager, threads: Threads) -> None:
        self._logs = logs
        self._threads = threads
        self._directories: dict[DirectoryLogs, _DirectoryFlushes] = {}
        self._flush_count = 0
        self._log_count = 0
        self._failure_count = 0
        self._seconds_total = 0.0
        self._seconds_max = 0.0

    def ask(self, log: Log, *, is_whole: bool) -> Flushed:
        """Request a flush of everything appended to a log; await the result with `shield`.

        With `is_whole` it includes indexes and advances the recovery point (`Log.sync`); else it
        syncs only records (`Log.commit`).
        """
        wanted = self._want(log)
        wanted.are_records = True
        wanted.is_whole = wanted.is_whole or is_whole
        return wanted.flushed

    def ask_before_answer(self, log: Log, *, is_durable: bool) -> Flushed | None:
        """The flush that the answer to an append waits for, to be awaited with `shield`; or None.

        `is_durable`: the answer promises that the records are on the device.
        """
        # `flush.messages` asks for the whole log, the promise only for what was appended.
        is_due = is_flush_due(log)
        return self.ask(log, is_whole=is_due) if is_due or is_durable else None

    def ask_rolled(self, log: Log) -> None:
        """Request a flush of a log's closed segments, as Kafka does at each roll.

        It includes their indexes and the producer snapshot, and advances the recovery point to the
        base offset of the active segment.
        """
        self._want(log).is_rolled = True

    def statistics(self) -> FlushStatistics:
        """Flushes since the start, and logs that wait for one now."""
        directories = self._directories.values()
        return FlushStatistics(
            flush_count=self._flush_count,
            log_count=self._log_count,
            failure_count=self._failure_count,
            seconds_total=self._seconds_total,
            seconds_max=self._seconds_max,
            running_count=sum(each.task is not None for each in directories),
            waiting_count=sum(len(each.wanted) for each in directories),
        )

    async def finish(self) -> None:
        for directory in tuple(self._directories.values()):
            if directory.task is not None:
                await directory.task

    def _want(self, log: Log) -> _FlushRequest:
        home = self._logs.home_of(log)
        directory = self._directories.setdefault(home, _DirectoryFlushes())
        wanted = directory.wanted.get(log)
        if wanted is None:
            flushed: Flushed = asyncio.get_running_loop().create_future()
            wanted = directory.wanted[log] = _FlushRequest(flushed=flushed)
        if directory.task is None:
            directory.task = asyncio.ensure_future(self._run(home, directory))
        return wanted

    async def _run(self, home: DirectoryLogs, directory: _DirectoryFlushes) -> None:
        loop = asyncio.get_running_loop()
        # Requests that come during a flush are served by the next one: the running one may have
        # synced their file already.
        while directory.wanted:
            wanted, directory.wanted = directory.wanted, {}
            began = loop.time()
            try:
                failures = await self._threads.run(_flush_all(wanted))
            except Exception as unexpected:  # noqa: BLE001 - waiting requests must get an error
                reason = f"a flush broke off: {unexpected!r}"
                failures = dict.fromkeys(wanted, StorageError(reason))
            seconds = loop.time() - began
            self._flush_count += 1
            self._log_count += len(wanted)
            self._failure_count += len(failures)
            self._seconds_total += seconds
            self._seconds_max = max(self._seconds_max, seconds)
            for log, error in failures.items():
                self._settle(home, log, error)
            for log, one in wanted.items():
                if not one.flushed.done():
                    # A moved log has a successor, with all records on the other device.
                    one.flushed.set_result(None if log.successor else failures.get(log))
        directory.task = None

    def _settle(self, home: DirectoryLogs, log: Log, error: OSError) -> None:
        # Ignore a log that was deleted meanwhile (its files are closed), and one that had failed
        # before (that was logged).
        if self._logs.get(log.partition) is log and not isinstance(error, StorageError):
            if not has_failed(log):
                self._logs.settle(home, error)
                return
            # Never again: the kernel drops the pages that it could not write, and a second flush
            # would report success (promise 3).
            reason = f"a flush failed; {unusable(log.folder.path, error)}"
            self._logs.fail(home, StorageError(reason))


def _flush_all(wanted: Mapping[Log, _FlushRequest]) -> Callable[[], dict[Log, OSError]]:
    """The work of the thread: flush every log; returns the failed ones with their errors."""

    def run() -> dict[Log, OSError]:
        failures: dict[Log, OSError] = {}
        for log, one in wanted.items():
            try:
                one.flush(log)
            except OSError as error:
                failures[log] = error
        return failures

    return run
