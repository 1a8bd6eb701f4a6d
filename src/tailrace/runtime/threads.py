"""Work that may wait on a device, off the event loop: fsync, recovery, loading kernels."""

import asyncio
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")

WORKERS_MAX = 64
"""Most threads. They are made when all others are busy, and nearly all only wait for a disk; how
many there is work for is the caller's to limit (`num.recovery.threads.per.data.dir`, one flush per
log directory)."""


class Threads(Protocol):
    """Runs a function somewhere it may block."""

    async def run(self, function: Callable[[], T]) -> T:
        """Wait for `function()` and return what it returned, or raise what it raised."""
        ...

    def close(self) -> None:
        """Wait for running work and take no more."""
        ...


class WorkerThreads:
    """A pool of daemon-like threads, each started when there is work that no other is free for."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="tailrace")

    async def run(self, function: Callable[[], T]) -> T:
        """Wait for `function()` on a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, _alone, function)

    def close(self) -> None:
        """Wait for running work and take no more."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _alone(function: Callable[[], T]) -> T:
    """Run it; an error that it raises does not keep its variables alive.

    They may hold a hundred megabytes of a batch, which the loop would give back to the system when
    it drops the error: 6 ms of its time.
    """
    try:
        return function()
    except BaseException as error:
        raised: BaseException | None = error
        while raised is not None:
            traceback.clear_frames(raised.__traceback__)
            raised = raised.__context__
        raise
