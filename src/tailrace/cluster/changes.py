"""Changes of topics, which wait for the device on worker threads: one at a time for each name.

    CreateTopics a ----> on the loop | on a thread | on the loop ...      beside each other,
    DeleteTopics b ----> on the loop | on a thread ...                    since the names differ
    AlterConfigs a -------------------------------------------> its turn, behind the first one

Several steps make up a change: folders on the device, the image on the device, partitions in
service. Nobody else may change the same topic in between, and a client that goes away in the
middle must not leave half of it behind. A slow log directory holds up only the topics that have
to do with it. Reading is free at any time, since the image is replaced whole.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tailrace.runtime.threads import Threads

T = TypeVar("T")


class Changes:
    """The tasks that make changes, and which of them wait for which."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._newest: dict[str, asyncio.Task[Any]] = {}
        """By name, the change that the next one waits for."""

    async def make(self, topic: str, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a change of a topic when its turn has come; goes on if the caller is cancelled."""
        # Topics whose names differ only in "." and "_" cannot both exist, as in Kafka. So their
        # changes share one queue, and the second one finds what the first has made.
        name = topic.replace(".", "_")
        task = asyncio.ensure_future(self._behind(self._newest.get(name), change))
        self._newest[name] = task

        def forget(_: object) -> None:
            if self._newest[name] is task:
                del self._newest[name]

        task.add_done_callback(forget)
        return await asyncio.shield(task)

    async def on_device(self, work: Callable[[], T]) -> T:
        """Have a step of a change done on a worker thread."""
        return await self._threads.run(work)

    async def finish(self) -> None:
        """Wait for the changes that were asked for."""
        while self._newest:
            await asyncio.wait(tuple(self._newest.values()))

    async def _behind(
        self, before: asyncio.Task[Any] | None, change: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        if before is not None:
            await asyncio.wait((before,))
        return await change()
