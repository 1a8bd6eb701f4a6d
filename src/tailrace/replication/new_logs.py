"""`NewLogs`: the logs of new partitions, made beside serving.

    expect             the partition is in the metadata log; requests for it wait
    its log is made    on a worker thread: at once if a request waits for it, else when no
                       partitions have been added for a moment
    add                it is served

The metadata log is the truth: after a crash the next start makes the logs that are missing. A log
that no directory takes, as while disks are full, is tried again.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.runtime.slices import Slices
from tailrace.runtime.threads import Threads
from tailrace.storage.config import LogConfig
from tailrace.storage.log import Log
from tailrace.storage.manager import AssignedElsewhereError, LogManager

logger = logging.getLogger(__name__)

WORKERS_MAX: Final = 2
"""Most threads that make logs: one works while another waits for its sync. More of them take the
interpreter's lock from the event loop, whose requests then take several times as long."""

TOGETHER_MAX: Final = 16
"""Most logs that a thread makes in a row: the checkpoint of recovery points, which is as long as
there are logs, is written once for them, and who waits for another log waits for these."""

QUIET_S: Final = 0.05
"""Time in seconds without new partitions before logs are made that no request waits for. While
topics are created one after the other, their answers come first."""

DELAY_MAX_S: Final = 1.0
"""Longest time in seconds for which new partitions can put that off."""

RETRY_S: Final = 5.0
"""Time in seconds after which refused logs are tried again."""


class _NewLog:
    """A log to be made."""

    def __init__(
        self, topic_id: uuid.UUID, config: LogConfig, directory_id: uuid.UUID | None
    ) -> None:
        self.topic_id = topic_id
        self.directory_id = directory_id
        """The directory that controllers have assigned; None: the one with the fewest logs."""
        self.config = config
        """The topic's settings now; they may change while the log is made."""
        self.settled = asyncio.Event()
        """Set when the log is served, was refused, or is not wanted any more."""
        self.is_logged = False
        """Whether the log of the broker has a line about its refusal."""


class NewLogs:
    """Makes logs in the order in which they are expected, but those first that are waited for."""

    def __init__(
        self,
        logs: LogManager,
        threads: Threads,
        *,
        held: set[TopicPartition],
        add: Callable[[Log], None],
        refuse: Callable[[TopicPartition, str], None],
    ) -> None:
        """`held` has those that are expected; each is given to `add` or, with why, to `refuse`."""
        self._logs = logs
        self._threads = threads
        self._held = held
        self._add = add
        self._refuse = refuse
        self._put_off: dict[TopicPartition, _NewLog] = {}
        """To be made when no more are added, because no request waits for them."""
        self._waiting: dict[TopicPartition, _NewLog] = {}
        self._asked: list[TopicPartition] = []
        """Partitions that somebody waits for; they may be settled already."""
        self._making: dict[TopicPartition, _NewLog] = {}
        self._refused: dict[TopicPartition, _NewLog] = {}
        """To be tried again."""
        self._workers: dict[asyncio.Task[None], None] = {}
        self._start: asyncio.TimerHandle | None = None
        """Starts what no request waits for; None if nothing is put off."""
        self._start_latest = 0.0
        """Time of the event loop at which that starts, whatever is added."""
        self._added_at = 0.0
        """Time of the event loop at which partitions were added last."""
        self._retry: asyncio.TimerHandle | None = None

    def __contains__(self, name: TopicPartition) -> bool:
        # Not the refused ones: their requests are answered with the reason, and do not wait.
        return any(name in each for each in (self._put_off, self._waiting, self._making))

    def expect(
        self,
        names: Iterable[TopicPartition],
        *,
        topic_id: uuid.UUID,
        config: LogConfig,
        directory_id: uuid.UUID | None = None,
    ) -> None:
        """Make the logs of these partitions; `directory_id` as in `LogManager.create`."""
        # Held from now on: the answer to CreateTopics leaves before a folder is made (decision 55).
        new = {name: _NewLog(topic_id, config, directory_id) for name in names}
        self._held.update(new)
        self._put_off |= new
        self._start_later()

    async def wait_for(self, name: TopicPartition) -> None:
        """Wait until a log that is expected is served or refused."""
        new = self._ask(name)
        if new is not None:
            await new.settled.wait()

    async def wait_for_each(self, topic: str, numbers: Iterable[int]) -> None:
        """Wait for these partitions of a topic, as `wait_for`."""
        if not (self._put_off or self._waiting or self._making):
            return
        slices = Slices()
        asked = []
        for number in numbers:
            new = self._ask(TopicPartition(topic, number))
            if new is not None:
                asked.append(new)
            await slices.turn()
        for new in asked:
            await new.settled.wait()

    async def wait_for_all(self) -> None:
        """Wait until all logs that are expected now are served or refused."""
        self._start_now()
        for new in (*self._making.values(), *self._waiting.values()):
            await new.settled.wait()

    async def forget(self, name: TopicPartition) -> None:
        """Make this log no more; one that is being made is waited for, and served."""
        new = self._put_off.pop(name, None) or self._waiting.pop(name, None)
        if new is not None:
            self._settle(name, new)
        await self.wait_for(name)
        self._refused.pop(name, None)

    def configure(self, topic: str, config: LogConfig) -> None:
        """Use other settings for the logs of a topic."""
        for logs in self._expected:
            for name, new in logs.items():
                if name.topic == topic:
                    new.config = config

    @property
    def _expected(self) -> tuple[Mapping[TopicPartition, _NewLog], ...]:
        return self._put_off, self._waiting, self._making, self._refused

    def configure_all(self, config_of: Callable[[str], LogConfig | None]) -> None:
        """Use other settings for the logs of all topics; None: none known."""
        for logs in self._expected:
            for name, new in logs.items():
                new.config = config_of(name.topic) or new.config

    async def finish(self) -> None:
        """Make all logs that are expected; refused ones are left to the next start."""
        self._start_now()
        while self._workers:
            await asyncio.wait(tuple(self._workers))
        self.abandon()

    def abandon(self) -> None:
        """Begin no more logs; the next start makes them."""
        for worker in self._workers:
            worker.cancel()
        for timer in (self._start, self._retry):
            if timer is not None:
                timer.cancel()

    def _ask(self, name: TopicPartition) -> _NewLog | None:
        """The log that is to be made before those that nobody waits for; None if it is settled."""
        # Somebody waits: it need not be quiet for this one.
        new = self._put_off.pop(name, None)
        if new is not None:
            self._waiting[name] = new
            self._hire()
        new = self._waiting.get(name) or self._making.get(name)
        if new is not None:
            self._asked.append(name)
        return new

    def _start_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._added_at = loop.time()
        if self._start is None:
            self._start_latest = self._added_at + DELAY_MAX_S
            self._start = loop.call_later(QUIET_S, self._start_if_quiet)

    def _start_if_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        due = min(self._added_at + QUIET_S, self._start_latest)
        if loop.time() < due:
            self._start = loop.call_at(due, self._start_if_quiet)
        else:
            self._start_now()

    def _start_now(self) -> None:
        if self._start is not None:
            self._start.cancel()
            self._start = None
        self._waiting |= self._put_off
        self._put_off = {}
        self._hire()

    def _hire(self) -> None:
        while len(self._workers) < min(WORKERS_MAX, len(self._waiting) + len(self._making)):
            self._workers[asyncio.ensure_future(self._work())] = None

    async def _work(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        try:
            while names := self._next():
                news = {name: self._waiting.pop(name) for name in names}
                self._making |= news
                try:
                    await self._make(news)
                finally:
                    for name, new in news.items():
                        del self._making[name]
                        self._settle(name, new)
        finally:
            # In the step that has found nothing to do: `_hire` counts the workers.
            self._workers.pop(worker, None)

    def _next(self) -> list[TopicPartition]:
        # First those that a request waits for, in their order.
        asked = [name for name in dict.fromkeys(self._asked) if name in self._waiting]
        self._asked = asked[TOGETHER_MAX:]
        return asked[:TOGETHER_MAX] or list(islice(self._waiting, TOGETHER_MAX))

    async def _make(self, news: Mapping[TopicPartition, _NewLog]) -> None:
        # The settings as they are now: the loop may change them while a thread makes the logs.
        wanted = [(name, new, new.config) for name, new in news.items()]
        made = await self._threads.run(lambda: self._create(wanted))
        for (name, new), log in zip(news.items(), made, strict=True):
            if isinstance(log, Log):
                # They may have changed while a thread has made the log.
                log.config = new.config
                self._add(log)
            else:
                self._take_refusal(name, new, log)

    def _create(
        self, wanted: Sequence[tuple[TopicPartition, _NewLog, LogConfig]]
    ) -> list[Log | Exception]:
        """The logs, or why there is none; on a worker thread."""
        online = self._logs.online
        if len(online) == 1 and len(wanted) > 1:
            with suppress(OSError):  # Each call of `create` tries again, and tells.
                online[0].offsets.announce([name for name, _, _ in wanted])
        made: list[Log | Exception] = []
        for name, new, config in wanted:
            try:
                made.append(
                    self._logs.create(
                        name, topic_id=new.topic_id, config=config, directory_id=new.directory_id
                    )
                )
            except (TailraceError, OSError) as error:
                made.append(error)
        return made

    def _take_refusal(self, name: TopicPartition, new: _NewLog, reason: Exception) -> None:
        # Once: it is tried every few seconds, of each partition that waits for room.
        if not new.is_logged:
            new.is_logged = True
            logger.warning(
                "log_refused partition=%s reason=%s next=it is tried again every %g s",
                name, reason, RETRY_S,
            )  # fmt: skip
        self._refuse(name, str(reason))
        home = self._logs.directory_of(name)
        is_elsewhere = isinstance(reason, AssignedElsewhereError)
        if is_elsewhere or (home is not None and home.failure is not None):
            return  # It may have the folder, and is not used again before the next start.
        # A full disk, for one: retention may have made room by then.
        self._refused[name] = new
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)

    def _settle(self, name: TopicPartition, new: _NewLog) -> None:
        self._held.discard(name)
        new.settled.set()

    def _try_again(self) -> None:
        refused, self._refused, self._retry = self._refused, {}, None
        self._waiting |= refused
        self._start_now()
