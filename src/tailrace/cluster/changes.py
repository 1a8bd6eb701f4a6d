"""Run changes of topics one at a time for each name, with device steps on worker threads.

    CreateTopics a, c -> on the loop | on a thread | on the loop ...      beside each other,
    DeleteTopics b ----> on the loop | on a thread ...                    since the names differ
    AlterConfigs a -------------------------------------------> its turn, after the first one

A change has several steps: the image on the device, folders on the device, partitions in service.
No other change of the same topic may come in between, and a client that disconnects must not leave
a half change. A slow log directory delays only changes of its topics. Reads never wait, because the
image is replaced whole.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, TypeVar

from tailrace.cluster.topic_rules import folded_name
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
        return await self.make_together([topic], change)

    async def make_together(
        self, topics: Iterable[str], change: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Run one change of several topics, after the earlier ones of each of them, as `make`."""
        # Topics whose names differ only in "." and "_" cannot both exist, as in Kafka. So their
        # changes share one queue, and the second one sees the result of the first.
        names = {folded_name(topic) for topic in topics}
        # The earlier changes of all these names, which may be one task.
        before = {self._newest[name] for name in names if name in self._newest}
        task = asyncio.ensure_future(self._run_after(before, change))
        self._newest |= dict.fromkeys(names, task)

        def forget(_: object) -> None:
            for name in names:
                if self._newest.get(name) is task:
                    del self._newest[name]

        task.add_done_callback(forget)
        # A client that disconnects must not leave half a change.
        return await asyncio.shield(task)

    async def on_device(self, work: Callable[[], T]) -> T:
        """Run a step of a change on a worker thread."""
        return await self._threads.run(work)

    async def finish(self) -> None:
        """Wait for all changes."""
        while self._newest:
            await asyncio.wait(tuple(self._newest.values()))

    async def _run_after(
        self, before: Collection[asyncio.Task[Any]], change: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        if before:
            await asyncio.wait(before)
        return await change()
