"""The whole outside world as doubles, and a loop to run a test on."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tailrace.runtime import Runtime
from tailrace.testing.clock import JumpingLoop, VirtualClock
from tailrace.testing.files import MemoryFiles
from tailrace.testing.hanging import HangingDevice
from tailrace.testing.network import MemoryNetwork

T = TypeVar("T")


class InlineThreads:
    """Runs work on the loop: no thread, no race, the same order every time."""

    def __init__(self) -> None:
        self.seconds_per_run = 0.0
        """Virtual time that goes by before each piece of work, as a slow device has it."""
        self.hanging: HangingDevice | None = None
        """What the work may hang on; it then has a thread of its own."""
        self.runs_at_once_max = 0
        """Most pieces of work that were under way at the same time."""
        self._runs = 0
        self.is_working = False
        """Whether a piece of work is being done at this moment."""
        self.worked_s = 0.0
        """CPU time of all work so far, which a real pool would have spent on other threads."""

    async def run(self, function: Callable[[], T]) -> T:
        """The result of `function()`; as with a thread, a caller that is cancelled ends nothing."""
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
        if self.hanging is not None:
            return await self.hanging.run(function)
        start_s = time.thread_time()
        self.is_working = True
        # A worker thread has no running loop: what needs one fails here as it does there.
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return function()
        finally:
            asyncio._set_running_loop(loop)
            self.is_working = False
            self.worked_s += time.thread_time() - start_s

    def close(self) -> None:
        """Nothing to wait for."""


def _discard_error(running: "asyncio.Future[T]") -> None:
    if not running.cancelled():
        running.exception()  # The caller may be gone, and nobody else asks for it.


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
        """Let virtual time go by, and everything happen that is due until then."""
        await asyncio.sleep(seconds)

    def hang(self, path_part: str) -> HangingDevice:
        """Have every change to paths that contain `path_part` hang, until it is released."""
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
