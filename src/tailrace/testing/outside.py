"""Doubles for all seams, and an event loop to run a test on."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tailrace.runtime.system import Runtime
from tailrace.testing.clock import JumpingLoop, VirtualClock
from tailrace.testing.files import MemoryFiles
from tailrace.testing.hanging import HangingDevice
from tailrace.testing.network import MemoryNetwork
from tailrace.values import dataclass

T = TypeVar("T")


class InlineThreads:
    """Runs work on the loop: no thread, no race, always in the same order."""

    def __init__(self) -> None:
        self.seconds_per_run = 0.0
        """Virtual time that passes before each call, like that of a slow device."""
        self.hanging: HangingDevice | None = None
        """A device that calls may hang on; each call then has a thread of its own."""
        self.refusal: Exception | None = None
        """Raised by each call before it begins, as where the system starts no more threads."""
        self.runs_at_once_max = 0
        """The most calls that were in progress at the same time."""
        self._runs = 0
        self.is_working = False
        """Whether a call is running at this moment."""
        self.worked_s = 0.0
        """CPU time of all calls so far, which real threads would have spent."""

    async def run(self, function: Callable[[], T]) -> T:
        """The result of `function()`; as with a thread, a cancelled caller does not stop it."""
        self._runs += 1
        self.runs_at_once_max = max(self.runs_at_once_max, self._runs)
        if self.seconds_per_run:
            running = asyncio.ensure_future(self._run_later(function, self.seconds_per_run))
            running.add_done_callback(_discard_error)
            return await asyncio.shield(running)
        self._runs -= 1
        return await self._run(function)

    async def _run_later(self, function: Callable[[], T], seconds: float) -> T:
        try:
            await asyncio.sleep(seconds)
        finally:
            self._runs -= 1
        return await self._run(function)

    async def _run(self, function: Callable[[], T]) -> T:
        if self.refusal is not None:
            raise self.refusal
        if self.hanging is not None:
            return await self.hanging.run(function)
        start_s = time.thread_time()
        self.is_working = True
        # A worker thread has no running loop, so code that needs one must fail here too.
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return function()
        finally:
            asyncio._set_running_loop(loop)
            self.is_working = False
            self.worked_s += time.thread_time() - start_s

    def close(self) -> None:
        """Do nothing: all work has run in the threads of its callers."""


def _discard_error(running: "asyncio.Future[T]") -> None:
    if not running.cancelled():
        running.exception()  # Mark it as retrieved: the caller may be cancelled.


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The doubles of one test, and the runtime made of them."""

    loop: JumpingLoop
    clock: VirtualClock
    files: MemoryFiles
    network: MemoryNetwork
    threads: InlineThreads
    runtime: Runtime

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass, and run everything that is due until then."""
        await asyncio.sleep(seconds)

    def hang(self, path_part: str) -> HangingDevice:
        """Make every change to paths that contain `path_part` hang until `release`."""
        self.files.hanging = self.threads.hanging = HangingDevice(path_part)
        return self.files.hanging

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end on virtual time."""
        return self.loop.run_until_complete(main)


@contextmanager
def virtual_runtime(*, files: MemoryFiles | None = None, seed: int = 0) -> Iterator[Outside]:
    """Doubles for every seam; `files` may be a disk that survived a crash."""
    loop = JumpingLoop()
    clock = VirtualClock(loop)
    disk = MemoryFiles() if files is None else files
    network = MemoryNetwork()
    threads = InlineThreads()
    runtime = Runtime(
        clock=clock,
        files=disk,
        network=network,
        threads=threads,
        chance=random.Random(seed),
    )
    try:
        yield Outside(
            loop=loop,
            clock=clock,
            files=disk,
            network=network,
            threads=threads,
            runtime=runtime,
        )
    finally:
        loop.close()
