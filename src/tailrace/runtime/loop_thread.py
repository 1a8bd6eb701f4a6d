"""An event loop on a thread of its own, for programs without asyncio."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines on a loop of its own from `start` to `close`; called from other threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, name: str) -> None:
        """`loop` is not running yet, and is closed by `close`."""
        self.loop = loop
        self._thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self, main: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop; returns its result, or raises its error.

        Raises:
            TimeoutError: it has not ended after `timeout_s` seconds, and is cancelled.
        """
        running = asyncio.run_coroutine_threadsafe(main, self.loop)
        try:
            return running.result(timeout_s)
        except TimeoutError:
            running.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the loop's thread, in one turn; as `run`."""

        async def call() -> T:
            return function()

        return self.run(call())

    def close(self, first: Callable[[], None] = lambda: None) -> None:
        """Call `first` on the loop, cancel all tasks, and end thread and loop."""

        async def end() -> None:
            first()
            # A task that is cancelled may begin others.
            while others := asyncio.all_tasks() - {asyncio.current_task()}:
                # A task that is cancelled before it begins never awaits its coroutine, and Python
                # would warn about that.
                await asyncio.sleep(0)
                for task in others:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)

        self.run(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
