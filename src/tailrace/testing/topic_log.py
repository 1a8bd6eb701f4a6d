"""`TopicLog`: the records of a topic as they lie in files of a `TestBroker` or a `TestCluster`."""

import math
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

from tailrace.errors import DirectoryError
from tailrace.model import TopicPartition
from tailrace.reading import Record, list_partitions, open_log
from tailrace.replication.partition import Partition
from tailrace.replication.waiting import Signal, Watched

T = TypeVar("T")

LOOK_S: Final = 0.1
"""Longest time until the files are looked at again."""

Wait = Callable[[float], bool]
"""Waits for a change of the log, for some seconds at most; False if there was none."""


class LogSource(Protocol):
    """One broker, or the leaders of a cluster."""

    @property
    def is_running(self) -> bool:
        """Whether it can be asked for more than its files."""
        ...

    def directories_of(self, topic: str, partition: int | None) -> dict[int, str]:
        """The log directory of each partition of a topic, or of one; as `partition_directories`."""
        ...

    def replica(self, partition: TopicPartition) -> Partition | None:
        """A partition that is served; on the loop."""
        ...

    def on_loop(self, function: Callable[[], T]) -> T:
        """Call a function on the loop.

        Raises:
            RuntimeError: it is not running.
        """
        ...

    def run(self, main: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop.

        Raises:
            TimeoutError: it has not ended after `timeout_s` seconds.
        """
        ...


def partition_directories(directory: str, topic: str, partition: int | None) -> dict[int, str]:
    """`directory` for each partition of a topic that is there, or for one of them.

    Without any it has one all the same: the reader raises an error that says which there are.
    """
    there = [
        each.partition
        for each in list_partitions(directory)
        if each.topic == topic and partition in (None, each.partition)
    ]
    return dict.fromkeys(there or [partition or 0], directory)


class TopicLog:
    """The records of a topic, partition by partition, or of one partition.

    Each call reads the files again, through `tailrace.open_log`. The files need no running broker.
    """

    def __init__(self, source: LogSource, topic: str, partition: int | None) -> None:
        self._source = source
        self._topic = topic
        self._partition = partition

    def records(self) -> list[Record]:
        """All records: offset, timestamp in milliseconds, key, value, headers.

        Raises:
            DirectoryError: there is no such topic or partition.
            CorruptionError: a batch is damaged.
        """
        found: list[Record] = []
        directories = self._source.directories_of(self._topic, self._partition)
        starts = self._log_starts(directories)
        for partition, directory in directories.items():
            with open_log(directory, self._topic, partition) as log:
                found += log.records(starts.get(partition))
        return found

    def offsets(self) -> list[int]:
        """The offset of each record."""
        return [each.offset for each in self.records()]

    def timestamps(self) -> list[int]:
        """The timestamp of each record, in milliseconds since 1970."""
        return [each.timestamp for each in self.records()]

    def keys(self) -> list[bytes | None]:
        """The key of each record."""
        return [each.key for each in self.records()]

    def values(self) -> list[bytes | None]:
        """The value of each record."""
        return [each.value for each in self.records()]

    def headers(self) -> list[Sequence[tuple[str, bytes | None]]]:
        """The headers of each record."""
        return [each.headers for each in self.records()]

    def wait_for(self, count: int, *, timeout_s: float = 10.0) -> list[Record]:
        """All records, as soon as there are `count` of them or more.

        The topic may be created meanwhile. It blocks, so a test on an event loop calls it with
        `asyncio.to_thread`.

        Raises:
            TimeoutError: there are fewer after `timeout_s` seconds, or no such topic or partition.
            RuntimeError: the broker is not running.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            # Before the files are read, so that what comes later ends the wait. And each time, as
            # topics are created, and the leaders of a cluster change.
            with self._watching() as wait:
                missing: DirectoryError | None = None
                found: list[Record] = []
                try:
                    found = self.records()
                except DirectoryError as error:
                    missing = error
                if missing is None and len(found) >= count:
                    return found
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    there_are = "" if missing is None else f": {missing}"
                    raise TimeoutError(
                        f"{self._topic} has {len(found)} records after {timeout_s:g} s; {count} "
                        f"were waited for{there_are}"
                    ) from missing
                wait(min(left_s, LOOK_S))

    def _log_starts(self, partitions: Iterable[int]) -> dict[int, int]:
        """Log start offsets of the logs that are served; a checkpoint has them later."""
        if not self._source.is_running:
            return {}
        return self._source.on_loop(
            lambda: {
                each: found.log.start_offset
                for each in partitions
                if (found := self._source.replica(TopicPartition(self._topic, each))) is not None
            }
        )

    @contextmanager
    def _watching(self) -> Iterator[Wait]:
        """A function that waits until records were appended since its last call."""
        signal = Signal()
        numbers = self._source.directories_of(self._topic, self._partition)

        def watch() -> list[Watched]:
            served = (self._source.replica(TopicPartition(self._topic, each)) for each in numbers)
            found = [each.appended for each in served if each is not None]
            for each in found:
                each.add(signal)
            return found

        def unwatch() -> None:
            for each in watched:
                each.remove(signal)

        def wait(seconds: float) -> bool:
            try:
                return self._source.run(signal.wait_until(math.inf), timeout_s=seconds)
            except TimeoutError:
                return False

        watched = self._source.on_loop(watch)
        try:
            yield wait
        finally:
            if self._source.is_running:
                self._source.on_loop(unwatch)
