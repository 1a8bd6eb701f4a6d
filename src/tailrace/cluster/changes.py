"""Run changes of topics one at a time for each name, with device steps on worker threads.

    CreateTopics a ----> on the loop | on a thread | on the loop ...      beside each other,
    DeleteTopics b ----> on the loop | on a thread ...                    since the names differ
    AlterConfigs a -------------------------------------------> its turn, behind the first one

A change has several steps: folders on the device, the image on the device, partitions in service.
No other change of the same topic may come in between, and a client that disconnects must not leave
a half change. A slow log directory delays only changes of its topics. Reads never wait, because the
image is replaced whole.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tailrace.runtime.threads import Threads

T = TypeVar("T")


class TopicChanges:
    """Runs changes, with one queue for each topic name."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._newest: dict[str, asyncio.Task[Any]] = {}
        """The last change in the queue of each name."""

    async def make(self, topic: str, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a change of a topic after the earlier ones; continues if the caller is cancelled."""
        # Topics whose names differ only in "." and "_" cannot both exist, as in Kafka. So their
        # changes share one queue, and the second one sees the result of the first.
        name = topic.replace(".", "_")
        task = asyncio.ensure_future(self._behind(self._newest.get(name), change))
        self._newest[name] = task

        def forget(_: object) -> None:
            if self._newest[name] is task:
                del self._newest[name]

        task.add_done_callback(forget)
        return await asyncio.shield(task)

    async def on_device(self, work: Callable[[], T]) -> T:
        """Run a step of a change on a worker thread."""
        return await self._threads.run(work)

    async def finish(self) -> None:
        """Wait for all changes."""
        while self._newest:
            await asyncio.wait(tuple(self._newest.values()))

    async def _behind(
        self, before: asyncio.Task[Any] | None, change: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        if before is not None:
            await asyncio.wait((before,))
        return await change()
