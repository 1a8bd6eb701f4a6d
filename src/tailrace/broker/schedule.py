"""What a broker does without being asked: checkpoints, flushes, retention, deletion, expiry.

One loop does one job after the other, on the event loop's clock. Jobs that wait for the device do
so on a worker thread; what they meet there is settled here, on the loop, where a failed directory
may be closed.

Not here: the cleaner, which has work for hours where these have it for moments.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tailrace.broker.config import Intervals
from tailrace.errors import StorageError
from tailrace.model import TopicPartition
from tailrace.replication.waiting import Signal
from tailrace.runtime.clock import Clock
from tailrace.runtime.threads import Threads
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager

logger = logging.getLogger(__name__)

REMOVAL_CHECK_MS = 1000
"""How often files are looked for whose `file.delete.delay.ms` has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Something to do again and again."""

    name: str
    delay_ms: int
    """From the start of the broker to the first time."""
    interval_ms: int
    """From the end of one time to the beginning of the next."""
    work: Callable[[], Awaitable[None]]


class Schedule:
    """Jobs, done one after the other until `stop`."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._stopped = Signal()
        self._running = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Begin no job any more, and wait for the one that is being done."""
        self._stopped.fire()
        await self._running

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = {job.name: loop.time() + job.delay_ms / 1000 for job in self._jobs}
        while True:
            job = min(self._jobs, key=lambda job: due[job.name])
            if await self._stopped.wait_until(due[job.name]):
                return
            try:
                await job.work()
            except Exception:
                # The other jobs must go on, and so must this one: its next turn may succeed.
                logger.exception("job_failed name=%s", job.name)
            due[job.name] = loop.time() + job.interval_ms / 1000


class Housekeeping:
    """The jobs of a broker over its logs."""

    def __init__(
        self,
        logs: LogManager,
        *,
        threads: Threads,
        clock: Clock,
        is_cleaning: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> None:
        self._logs = logs
        self._threads = threads
        self._clock = clock
        self._is_cleaning = is_cleaning

    def jobs(self, intervals: Intervals) -> list[Job]:
        """Every job, at the intervals that the settings ask for."""
        timed = (
            ("checkpoint", intervals.checkpoint_ms, self.checkpoint),
            ("log_start_checkpoint", intervals.log_start_checkpoint_ms, self.checkpoint_log_starts),
            ("flush", intervals.flush_check_ms, self.flush_due),
            ("retention", intervals.retention_check_ms, self.delete_old_segments),
            ("producer_expiry", intervals.producer_check_ms, self.expire_producers),
        )
        delayed = [
            Job(name=name, delay_ms=intervals.initial_delay_ms, interval_ms=interval_ms, work=work)
            for name, interval_ms, work in timed
        ]
        removal = Job(
            name="removal",
            delay_ms=REMOVAL_CHECK_MS,
            interval_ms=REMOVAL_CHECK_MS,
            work=self.remove_due,
        )
        return [*delayed, removal]

    async def checkpoint(self) -> None:
        """Flush closed segments and write the recovery points."""
        for directory in self._logs.online:
            if await self._do(directory, directory.checkpoint):
                self._logs.has_room(directory)

    async def checkpoint_log_starts(self) -> None:
        """Write the offsets at which logs start."""
        for directory in self._logs.online:
            await self._do(directory, directory.checkpoint_log_starts)

    async def flush_due(self) -> None:
        """Flush logs whose `flush.ms` has passed."""
        now_ms = self._clock.now_ms()
        for directory in self._logs.online:
            await self._do(directory, lambda directory=directory: directory.sync_due(now_ms))  # type: ignore[misc]

    async def delete_old_segments(self) -> None:
        """Have retention look at every log that it may take something from.

        A log that is being compacted is left for the next time.
        """
        for log in tuple(self._logs):
            if self._logs.get(log.partition) is log and _may_shrink(log):
                if self._is_cleaning(log.partition):
                    continue
                self._logs.delete_old_segments(log, self._clock.now_ms())
            # There may be thousands, and requests between two of them.
            await asyncio.sleep(0)

    async def remove_due(self) -> None:
        """Delete files that left service long enough ago."""
        now_ms = self._clock.now_ms()
        for directory in self._logs.online:
            removals = directory.removals
            if len(removals):
                await self._do(directory, lambda removals=removals: removals.remove_due(now_ms))  # type: ignore[misc]

    async def expire_producers(self) -> None:
        """Forget producers that were idle for too long."""
        self._logs.expire_producers(self._clock.now_ms())

    async def _do(self, directory: DirectoryLogs, work: Callable[[], object]) -> bool:
        """Do some work on a worker thread and settle what came of it; whether it went through."""
        error = await self._threads.run(lambda: _attempt(work))
        if error is not None:
            self._logs.settle(directory, error)
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
        return False  # It failed before, and that was told.
    return log.config.is_deleted_from or log.start_offset > log.segments.first.base_offset
