"""`NewLogs`: the logs of new partitions, made beside serving.

    expect             the partition is in the metadata log; requests for it wait
    its log is made    on a worker thread; those first that requests wait for
    lead               it is served

The metadata log is the truth: after a crash the next start makes the logs that are missing. A log
that no directory takes, as while disks are full, is tried again.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable
from typing import Final

from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.runtime.slices import Slices
from tailrace.runtime.threads import Threads
from tailrace.storage.config import LogConfig
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager

logger = logging.getLogger(__name__)

WORKERS_MAX: Final = 16
"""Most logs that are made at the same time: their syncs wait for the device together, and the
checkpoint of recovery points, which is as long as there are logs, is written once for all."""

RETRY_S: Final = 5.0
"""Time in seconds after which refused logs are tried again."""


class _NewLog:
    """A log to be made."""

    def __init__(self, topic_id: uuid.UUID, config: LogConfig) -> None:
        self.topic_id = topic_id
        self.config = config
        """The topic's settings now; they may change while the log is made."""
        self.settled = asyncio.Event()
        """Set when the log is served, was refused, or is not wanted any more."""


class NewLogs:
    """Makes logs in the order in which they are expected, but those first that are waited for."""

    def __init__(
        self,
        logs: LogManager,
        threads: Threads,
        *,
        held: set[TopicPartition],
        lead: Callable[[Log], None],
        refuse: Callable[[TopicPartition, str], None],
    ) -> None:
        """`held` has those that are expected; each is given to `lead` or, with why, to `refuse`."""
        self._logs = logs
        self._threads = threads
        self._held = held
        self._lead = lead
        self._refuse = refuse
        self._waiting: dict[TopicPartition, _NewLog] = {}
        self._asked: list[TopicPartition] = []
        """Partitions that somebody waits for; they may be settled already."""
        self._making: dict[TopicPartition, _NewLog] = {}
        self._refused: dict[TopicPartition, _NewLog] = {}
        """To be tried again."""
        self._workers: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._waiting or name in self._making

    def expect(
        self, names: Iterable[TopicPartition], *, topic_id: uuid.UUID, config: LogConfig
    ) -> None:
        """Make the logs of these partitions."""
        new = {name: _NewLog(topic_id, config) for name in names}
        self._held.update(new)
        self._begin(new)

    async def wait_for(self, name: TopicPartition) -> None:
        """Wait until a log that is expected is served or refused."""
        new = self._waiting.get(name) or self._making.get(name)
        if new is not None:
            self._asked.append(name)
            await new.settled.wait()

    async def wait_for_each(self, topic: str, numbers: Iterable[int]) -> None:
        """Wait for these partitions of a topic, as `wait_for`."""
        slices = Slices()
        for number in numbers if self._waiting or self._making else ():
            await self.wait_for(TopicPartition(topic, number))
            await slices.turn()

    async def wait_for_all(self) -> None:
        """Wait until all logs that are expected now are served or refused."""
        for new in (*self._making.values(), *self._waiting.values()):
            await new.settled.wait()

    async def forget(self, name: TopicPartition) -> None:
        """Make this log no more; one that is being made is waited for, and served."""
        new = self._waiting.pop(name, None)
        if new is not None:
            self._settle(name, new)
        await self.wait_for(name)
        self._refused.pop(name, None)

    def configure(self, topic: str, config: LogConfig) -> None:
        """Use other settings for the logs of a topic."""
        for logs in (self._waiting, self._making, self._refused):
            for name, new in logs.items():
                if name.topic == topic:
                    new.config = config

    async def finish(self) -> None:
        """Make all logs that are expected; refused ones are left to the next start."""
        while self._workers:
            await asyncio.wait(tuple(self._workers))
        self.abandon()

    def abandon(self) -> None:
        """Begin no more logs; the next start makes them."""
        for worker in self._workers:
            worker.cancel()
        if self._retry is not None:
            self._retry.cancel()

    def _begin(self, new: dict[TopicPartition, _NewLog]) -> None:
        self._waiting |= new
        while len(self._workers) < min(WORKERS_MAX, len(self._waiting) + len(self._making)):
            self._workers.add(asyncio.ensure_future(self._work()))

    async def _work(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        try:
            while self._waiting:
                name = self._next()
                new = self._making[name] = self._waiting.pop(name)
                try:
                    await self._make(name, new)
                finally:
                    del self._making[name]
                    self._settle(name, new)
        finally:
            # In the step that has found nothing to do: `_begin` counts the workers.
            self._workers.discard(worker)

    def _next(self) -> TopicPartition:
        while self._asked:
            name = self._asked.pop()
            if name in self._waiting:
                return name
        return next(iter(self._waiting))

    async def _make(self, name: TopicPartition, new: _NewLog) -> None:
        config = new.config
        try:
            log = await self._threads.run(
                lambda: self._logs.create(name, topic_id=new.topic_id, config=config)
            )
        except (TailraceError, OSError) as error:
            logger.warning("log_refused partition=%s reason=%s", name, error)
            self._refuse(name, str(error))
            home = self._logs.directory_of(name)
            if home is not None and home.failure is not None:
                return  # It may have the folder, and is not used again before the next start.
            self._refused[name] = new
            if self._retry is None:
                self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)
        else:
            log.config = new.config
            self._lead(log)

    def _settle(self, name: TopicPartition, new: _NewLog) -> None:
        self._held.discard(name)
        new.settled.set()

    def _try_again(self) -> None:
        refused, self._refused, self._retry = self._refused, {}, None
        self._begin(refused)
