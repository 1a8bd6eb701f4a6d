"""The periodic jobs of a broker: checkpoints, flushes, retention, deletion, expiry.

Each log directory has its own schedule, which runs one job after the other, so that a hanging
device delays only its own directory. Jobs that wait for the device run on a worker thread; their
errors are handled on the event loop, where a failed directory may be closed.

The cleaner is not one of these jobs, because it can run for hours.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from tailrace.broker.config import BrokerConfig
from tailrace.errors import StorageError
from tailrace.replication.waiting import Signal
from tailrace.runtime.clock import Clock
from tailrace.runtime.threads import Threads
from tailrace.storage.cleaner.worker import LogCleaner
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager
from tailrace.storage.shrink import OldSegments, plan_deletion
from tailrace.values import dataclass

logger = logging.getLogger(__name__)

REMOVAL_CHECK_MS = 1000
"""Interval of the check for files whose `file.delete.delay.ms` has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicJob:
    """A periodic job."""

    name: str
    delay_ms: int
    """From the start of the broker to the first run."""
    interval_ms: int
    """From the end of one run to the beginning of the next."""
    work: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatistics:
    """The runs of one periodic job since its schedule was started."""

    run_count: int = 0
    """Runs that have ended, in whichever way."""
    failure_count: int = 0
    """Runs that an unexpected error has ended; a device that refuses is not counted here."""
    seconds_max: float = 0.0
    """Duration of the longest run, in seconds."""
    late_seconds_max: float = 0.0
    """Longest time that a run began after it was due, because other jobs were running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStatistics:
    """The periodic jobs of one log directory at one moment."""

    jobs: Mapping[str, JobStatistics]
    """By the name of the job; read only."""
    running_job: str | None
    """The name of the job that runs now."""
    running_seconds: float
    """For how many seconds it has been running; 0 if none is."""


class Schedule:
    """Runs jobs one after the other, from `start` until `stop`."""

    def __init__(self, jobs: Sequence[PeriodicJob]) -> None:
        self._jobs = jobs
        self._stopped = Signal()
        self._running: asyncio.Task[None] | None = None
        self._statistics = {job.name: JobStatistics() for job in jobs}
        self._current: tuple[PeriodicJob, float] | None = None
        """The job that runs, and the loop's time at which it began."""
        self._due: dict[str, float] = {}
        """The loop's time at which each job is due, by its name; empty before the first turn."""
        self._rested = asyncio.Event()
        """Set whenever no job is due."""

    def start(self) -> None:
        """Begin to count the delays of the jobs, on the running event loop."""
        self._running = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Begin no more jobs, and wait for the running one."""
        self._stopped.fire()
        if self._running is not None:
            await self._running

    def abandon(self) -> None:
        """Begin no more jobs, and wait for none."""
        self._stopped.fire()

    async def wait_until_rested(self) -> None:
        """Wait until no job is due and none runs."""
        while self._current is not None or self._is_due:
            self._rested.clear()
            await self._rested.wait()

    @property
    def _is_due(self) -> bool:
        now = asyncio.get_running_loop().time()
        return any(moment <= now for moment in self._due.values())

    def statistics(self) -> ScheduleStatistics:
        """The runs of each job since the start, and the job that runs now."""
        name, seconds = None, 0.0
        if self._current is not None:
            job, began = self._current
            name, seconds = job.name, asyncio.get_running_loop().time() - began
        return ScheduleStatistics(
            jobs=MappingProxyType(dict(self._statistics)),
            running_job=name,
            running_seconds=seconds,
        )

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = self._due
        due.update({job.name: loop.time() + job.delay_ms / 1000 for job in self._jobs})
        while True:
            job = min(self._jobs, key=lambda job: due[job.name])
            if not self._is_due:
                self._rested.set()
            if await self._stopped.wait_until(due[job.name]):
                return
            began, is_failure = loop.time(), False
            self._current = job, began
            try:
                await job.work()
            except Exception:
                # Continue with all jobs, also with this one: its next run may succeed.
                logger.exception("job_failed name=%s", job.name)
                is_failure = True
            ended = loop.time()
            known, self._current = self._statistics[job.name], None
            self._statistics[job.name] = JobStatistics(
                run_count=known.run_count + 1,
                failure_count=known.failure_count + is_failure,
                seconds_max=max(known.seconds_max, ended - began),
                late_seconds_max=max(known.late_seconds_max, began - due[job.name]),
            )
            due[job.name] = ended + job.interval_ms / 1000


class Housekeeping:
    """The jobs for the logs of one directory; they do nothing after it has failed."""

    def __init__(
        self,
        logs: LogManager,
        directory: DirectoryLogs,
        *,
        threads: Threads,
        clock: Clock,
        cleaner: LogCleaner,
    ) -> None:
        self._logs = logs
        self._directory = directory
        self._threads = threads
        self._clock = clock
        self._cleaner = cleaner

    def jobs(self, config: BrokerConfig) -> list[PeriodicJob]:
        """Every job, with its interval from the settings."""
        timed = (
            ("checkpoint", config.checkpoint_interval_ms, self.checkpoint),
            (
                "log_start_checkpoint",
                config.start_checkpoint_interval_ms,
                self.checkpoint_log_starts,
            ),
            ("flush", config.flush_check_interval_ms, self.flush_due),
            ("retention", config.retention_check_interval_ms, self.delete_old_segments),
            ("producer_expiry", config.producer_check_interval_ms, self.expire_producers),
        )
        # Not at once: a start has enough to read from its devices (`log.initial.task.delay.ms`).
        delayed = [
            PeriodicJob(
                name=name, delay_ms=config.initial_delay_ms, interval_ms=interval_ms, work=work
            )
            for name, interval_ms, work in timed
        ]
        return [*delayed, *self._of_replicas(config), self.removal()]

    def _of_replicas(self, config: BrokerConfig) -> list[PeriodicJob]:
        # Alone, what is appended is committed, and a start need not know (`recovery`).
        if not config.has_controllers:
            return []
        # From the start on, as in Kafka: until then a crash goes back to the checkpoint before.
        interval_ms = config.kraft.watermark_checkpoint_interval_ms
        return [
            PeriodicJob(
                name="high_watermark_checkpoint",
                delay_ms=interval_ms,
                interval_ms=interval_ms,
                work=self.checkpoint_high_watermarks,
            )
        ]

    def removal(self) -> PeriodicJob:
        """The job that every directory has, also one that has only the metadata log."""
        return PeriodicJob(
            name="removal",
            delay_ms=REMOVAL_CHECK_MS,
            interval_ms=REMOVAL_CHECK_MS,
            work=self.remove_due,
        )

    async def checkpoint(self) -> None:
        """Flush closed segments and write the recovery points."""
        if await self._do(self._directory.checkpoint):
            self._logs.has_room(self._directory)

    async def checkpoint_log_starts(self) -> None:
        await self._do(self._directory.checkpoint_log_starts)

    async def checkpoint_high_watermarks(self) -> None:
        await self._do(self._directory.checkpoint_high_watermarks)

    async def flush_due(self) -> None:
        """Flush logs whose `flush.ms` has passed."""
        now_ms = self._clock.now_ms()
        await self._do(lambda: self._directory.sync_due(now_ms))

    async def delete_old_segments(self) -> None:
        """Apply retention to every log that may have segments to delete.

        A log that is being compacted is skipped until the next run.
        """
        for log in self._directory:
            is_cleaning = self._cleaner.is_cleaning(log.partition)
            if self._logs.is_in_service(log) and _may_shrink(log) and not is_cleaning:
                await self._delete_old_segments_of(log)
            # There may be thousands of logs: let requests run in between.
            await asyncio.sleep(0)

    async def _delete_old_segments_of(self, log: Log) -> None:
        found: list[OldSegments] = []

        def plan() -> None:
            old = plan_deletion(log, self._clock.now_ms())
            if old is not None:
                found.append(old)

        # Planned on the loop, which alone changes the segments of a log (decision 8).
        if not self._logs.guard(self._directory, plan) or not found:
            return
        (old,) = found
        # The segments must not be compacted while they are renamed.
        self._cleaner.pause(log.partition)
        # Nor cut: a follower may have to begin its log again meanwhile.
        log.is_shrinking = True
        try:
            error = await self._threads.run(lambda: _attempt(old.rename))
            # The topic may have been deleted while the thread renamed its files.
            if self._logs.is_in_service(log):
                self._logs.guard(self._directory, old.finish)
                if error is not None:
                    self._logs.settle(self._directory, error)
        finally:
            log.is_shrinking = False
            self._cleaner.resume(log.partition)

    async def remove_due(self) -> None:
        """Delete files that left service long enough ago."""
        now_ms = self._clock.now_ms()
        removals = self._directory.removals
        if len(removals):
            await self._do(lambda: removals.remove_due(now_ms))

    async def expire_producers(self) -> None:
        """Drop the state of producers that were idle for too long."""
        # On the loop, like each change of producers; it looks at memory only.
        now_ms = self._clock.now_ms()
        for log in self._directory:
            log.producers.expire(now_ms)

    async def _do(self, work: Callable[[], object]) -> bool:
        """Run `work` on a worker thread and settle its OSError; returns whether there was none."""
        # A failed directory may hang: it is asked nothing more.
        if self._directory.failure is not None:
            return False
        error = await self._threads.run(lambda: _attempt(work))
        if error is not None:
            self._logs.settle(self._directory, error)
        return error is None


def _attempt(work: Callable[[], object]) -> OSError | None:
    try:
        work()
    except OSError as error:
        return error
    return None


def _may_shrink(log: Log) -> bool:
    try:
        log.check_usable()
    except StorageError:
        return False  # It failed before, and that was logged.
    if log.is_shrinking:
        return False  # A follower cuts it; the next run looks again.
    return log.config.is_deleted_from or log.start_offset > log.segments.first.base_offset
