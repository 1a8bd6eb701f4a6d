"""A device that hangs: calls on some paths neither return nor fail, until it is released.

    hanging = outside.hang("data2/")     from now on
    …                                    threads that use these paths wait; all others continue
    hanging.release()                    every call continues, in the order of the threads

Work of `Threads` then runs on real threads, one at a time: the loop continues when the thread has
ended or hangs, so a test is deterministic. A call that hangs on the event loop itself is a bug of
the tested code, and raises `HungLoopError`.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class HungLoopError(BaseException):
    """The event loop called a device that hangs; no Exception, so nothing handles it."""


class HangingDevice:
    """Calls on paths that contain `path_part` hang until `release`."""

    def __init__(self, path_part: str) -> None:
        self.path_part = path_part
        self.waiting: list[str] = []
        """The calls that hang or have hung, in order: operation and path."""
        self._released = threading.Event()
        self._released_on_loop = asyncio.Event()
        self._thread = threading.local()

    def release(self) -> None:
        """Let all calls continue from now on. On the loop's thread."""
        self._released.set()
        self._released_on_loop.set()

    def touch(self, operation: str, path: str) -> None:
        """Hang if the path is on the device.

        Raises:
            HungLoopError: the caller is not a worker thread.
        """
        if self.path_part not in path or self._released.is_set():
            return
        turn: threading.Semaphore | None = getattr(self._thread, "turn", None)
        if turn is None:
            raise HungLoopError(f"{operation} {path}")
        self.waiting.append(f"{operation} {path}")
        turn.release()
        self._released.wait()

    async def run(self, function: Callable[[], T]) -> T:
        """The result of `function()`, which may hang, on a thread of its own."""
        turn, ended = threading.Semaphore(0), Future[T]()

        def work() -> None:
            self._thread.turn = turn
            try:
                ended.set_result(function())
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                ended.set_exception(error)
            turn.release()

        threading.Thread(target=work, daemon=True).start()
        turn.acquire()
        while not ended.done():
            await self._released_on_loop.wait()
            turn.acquire()
        return ended.result()
