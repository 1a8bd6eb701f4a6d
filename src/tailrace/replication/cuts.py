"""`LogCuts`: removes records from the logs of followers, while cleaner and readers use these logs.

    cut ── pause the cleaner ── hold appends ── the steps (threads)     one log after the other
    checkpoint ── write the directory's offsets (thread) ── take appends    once for all logs

What to remove is decided in `follower_log`; the steps are of `storage.shrink`.

Invariant: between a cut and the checkpoints after it nothing is appended to the log. The start
after a power loss would take offsets from before the cut for those of the new records.
"""

import asyncio
import errno
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tailrace.replication.partition import Partition
from tailrace.runtime.threads import Threads
from tailrace.storage.cleaner.worker import LogCleaner
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager, is_shortage
from tailrace.storage.shrink import DeviceStep, DeviceSteps, Refused

if TYPE_CHECKING:
    from tailrace.storage.directory_logs import DirectoryLogs

CHECK_S: Final = 0.01
"""Interval at which a cut checks whether compaction or retention has released the log."""

SHORTAGE_S: Final = 1.0
"""Pause before a step is repeated that a full disk or a lack of descriptors has refused."""


class LogCuts:
    """Cuts of the logs that follow one leader, and the checkpoints that these still need."""

    def __init__(self, logs: LogManager, cleaner: LogCleaner, threads: Threads) -> None:
        self._logs = logs
        self._cleaner = cleaner
        self._threads = threads
        self._waiting: dict[DirectoryLogs, list[Partition]] = {}
        """Partitions whose logs were cut; they take no appends before the checkpoints are there."""

    @property
    def are_waiting(self) -> bool:
        """Whether logs were cut whose checkpoints are not written yet."""
        return bool(self._waiting)

    async def cut(
        self, partition: Partition, steps: DeviceSteps, *, is_current: Callable[[], bool]
    ) -> None:
        """Remove records of a log; the partition takes no appends until `checkpoint`.

        Nothing is removed once `is_current` says that the leader which `steps` are for leads no
        more, nor after a move to another directory.

        Raises:
            OSError: as `steps`.
        """
        log, cleaner = partition.log, self._cleaner
        # As in Kafka: compaction would put segments back that are cut, from what it has read of
        # them before, and retention would find files gone, and take that for a failed device.
        cleaner.pause(partition.name)
        try:
            # Neither has an event to wait for.
            while cleaner.is_cleaning(partition.name) or log.is_shrinking:  # noqa: ASYNC110
                await asyncio.sleep(CHECK_S)
            # It may lead by now, be deleted, or have moved to another directory.
            if is_current() and partition.log is log:
                log.is_shrinking = True
                try:
                    await self._take_steps(partition, steps, is_current)
                finally:
                    # Before the broker stops, and not when the steps are collected.
                    steps.close()
                    log.is_shrinking = False
                    if cleaner.is_in_service(log):
                        cleaner.note_truncated(log)
        finally:
            cleaner.resume(partition.name)

    async def _take_steps(
        self, partition: Partition, steps: DeviceSteps, is_current: Callable[[], bool]
    ) -> None:
        error: OSError | None = None
        home = self._logs.home_of(partition.log)
        # Also as a leader, which it may have become when the cut ends.
        partition.hold_appends()
        self._waiting.setdefault(home, []).append(partition)
        while True:
            try:
                step = next(steps) if error is None else steps.throw(error)
            except StopIteration:
                break
            error = await self._on_device(step)
            # Half a cut ends the log, so it is done when there is room again. Other partitions of
            # the leader wait too; most often their directory lacks the same.
            while error is not None and _may_repeat(partition.log, step, error):
                self._logs.settle(home, error)
                await asyncio.sleep(SHORTAGE_S)
                error = await self._on_device(step)
            if error is None and not isinstance(step, Refused) and not is_current():
                # A leader of a newer epoch may have what the rest would remove.
                steps.close()
                break

    async def checkpoint(self) -> Iterable[Partition]:
        """Write the checkpoints of the directories in which logs were cut: once for all.

        Returns the partitions for whose checkpoints there is no room on the device; they take no
        appends until another call has written them.
        """
        without_room: list[Partition] = []
        for home, partitions in tuple(self._waiting.items()):
            error = None if home.failure else await self._on_device(home.offsets.write)
            if error is not None:
                self._logs.settle(home, error)
            if error is not None and home.failure is None:
                without_room += partitions
                continue
            del self._waiting[home]
            for each in partitions:
                each.take_appends()
                each.followed()
        return without_room

    async def _on_device(self, step: Callable[[], None]) -> OSError | None:
        try:
            await self._threads.run(step)
        except OSError as error:
            return error
        return None


def _may_repeat(log: Log, step: DeviceStep, error: OSError) -> bool:
    """Whether a step of a cut that was refused can be done later, as if it had not been.

    An fsync that was refused cannot: the kernel marks the pages clean, and a second one would do
    nothing. None is refused for want of descriptors, none is among the changes between the steps,
    and the checkpoint of the epochs is written to a file of its own each time.
    """
    lacks_descriptors = error.errno in {errno.EMFILE, errno.ENFILE}
    is_without_sync = isinstance(step, Refused) or step == log.epochs.save
    return lacks_descriptors or (is_without_sync and is_shortage(error))
