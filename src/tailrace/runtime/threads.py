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


class BoundedThreads:
    """Work on threads, so many pieces at a time; whoever comes later waits, in order.

    A caller that is cancelled does not end its thread. The work goes on and keeps its place until
    it has ended, so that threads do not pile up behind callers that come and go.
    """

    def __init__(self, threads: Threads, places: int) -> None:
        self._threads = threads
        self._places = asyncio.Semaphore(places)

    async def run(self, function: Callable[[], T]) -> T:
        """Wait for a place and for `function()`; raises what it raised."""
        await self._places.acquire()
        running = asyncio.ensure_future(self._threads.run(function))
        running.add_done_callback(self._leave)
        try:
            return await asyncio.shield(running)
        finally:
            # An error of it holds this frame: with the name they would be a cycle, and all that the
            # error's frames hold would wait for the collector.
            del running

    def _leave(self, running: "asyncio.Future[T]") -> None:
        self._places.release()
        if not running.cancelled():
            running.exception()  # The caller may be gone, and nobody else asks for it.


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
