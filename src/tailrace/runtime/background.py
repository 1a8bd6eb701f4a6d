"""`BackgroundTasks`: tasks that run beside the object that has started them."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundTasks:
    """The tasks of one owner, in the order in which they were started; each leaves when it ends.

    A loop has weak references to its tasks only, so somebody has to keep them. In a set they would
    be cancelled in another order each time, and a simulated cluster would not repeat itself.
    """

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        """The tasks of this moment: they may end meanwhile."""
        return iter(tuple(self._tasks))

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine; nobody looks at its result or error but who waits for the task."""
        return self.keep(asyncio.ensure_future(work))

    def keep(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        """Keep a task that runs already; returns it."""
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Cancel all, without waiting."""
        for task in self:
            task.cancel()

    async def end(self) -> None:
        """Cancel all, and wait until they have ended; their errors are dropped."""
        tasks = tuple(self)
        self.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
