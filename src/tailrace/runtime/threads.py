"""Worker threads for work that may wait on a device: fsync, recovery, loading kernels."""

import asyncio
import os
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")

WORKERS_MAX = 64
"""Most threads. One is started when all others are busy, and nearly all only wait for a disk.
Callers limit the work (`num.recovery.threads.per.data.dir`, one flush per log directory)."""


def usable_core_count() -> int:
    """Return the number of cores this process may run on; on macOS the number of all cores."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Threads(Protocol):
    """Runs functions that may block."""

    async def run(self, function: Callable[[], T]) -> T:
        """Wait for `function()`; returns its result, or raises its error."""
        ...

    def close(self) -> None:
        """Wait for running work and take no more."""
        ...


class WorkerThreads:
    """A pool of threads; one is started when there is work and no thread is free."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="tailrace")

    async def run(self, function: Callable[[], T]) -> T:
        """Wait for `function()` on a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, _alone, function)

    def close(self) -> None:
        """Wait for running work and take no more."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class BoundedThreads:
    """Runs functions on threads, at most `places` at a time; later calls wait, in order.

    If a caller is cancelled, its function still runs and counts until it ends, so that cancelled
    calls cannot use up more threads.
    """

    def __init__(self, threads: Threads, places: int) -> None:
        self._threads = threads
        self._places = asyncio.Semaphore(places)

    async def run(self, function: Callable[[], T]) -> T:
        """Wait for a free place, then for `function()`; returns its result, or raises its error."""
        await self._places.acquire()
        running = asyncio.ensure_future(self._threads.run(function))
        running.add_done_callback(self._leave)
        try:
            return await asyncio.shield(running)
        finally:
            # Break the reference cycle between the future's error and this frame, so that the
            # memory of the frames is freed without the garbage collector.
            del running

    def _leave(self, running: "asyncio.Future[T]") -> None:
        self._places.release()
        if not running.cancelled():
            running.exception()  # Mark it as retrieved: the caller may be cancelled.


def _alone(function: Callable[[], T]) -> T:
    """Run a function; its error does not keep the local variables of the frames alive.

    They may hold a batch of a hundred megabytes, which would otherwise be released on the event
    loop when it drops the error: that takes 6 ms.
    """
    try:
        return function()
    except BaseException as error:
        raised: BaseException | None = error
        while raised is not None:
            traceback.clear_frames(raised.__traceback__)
            raised = raised.__context__
        raise
