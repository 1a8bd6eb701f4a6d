"""`TopicLog`: the records of a topic as they lie in the files of a `TestBroker`."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tailrace.broker.broker import RunningBroker
from tailrace.model import TopicPartition
from tailrace.reading import Record, list_partitions, open_log
from tailrace.replication.waiting import Signal, Watched
from tailrace.testing.broker_process import BrokerProcess

Wait = Callable[[float], bool]
"""Waits for a change of the log, for some seconds at most; False if there was none."""


class TopicLog:
    """The records of a topic, partition by partition, or of one partition.

    Each call reads the files again, through `tailrace.open_log`. The files need no running broker.
    """

    def __init__(self, process: BrokerProcess, topic: str, partition: int | None) -> None:
        self._process = process
        self._topic = topic
        self._partition = partition

    def records(self) -> list[Record]:
        """All records: offset, timestamp in milliseconds, key, value, headers.

        Raises:
            DirectoryError: there is no such topic or partition.
            CorruptionError: a batch is damaged.
        """
        found: list[Record] = []
        for partition, start in self._log_starts().items():
            with open_log(self._process.directory, self._topic, partition) as log:
                found += log.records(start)
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

        It blocks, so a test on an event loop calls it with `asyncio.to_thread`.

        Raises:
            TimeoutError: there are fewer after `timeout_s` seconds.
            RuntimeError: the broker is not running.
        """
        deadline = time.monotonic() + timeout_s
        with self._watching() as wait:
            while len(found := self.records()) < count:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not wait(left_s):
                    raise TimeoutError(
                        f"{self._topic} has {len(found)} records after {timeout_s:g} s; {count} "
                        "were waited for"
                    )
        return found

    def _log_starts(self) -> dict[int, int | None]:
        """The partitions, and where their logs start; None where only the files tell."""
        if self._process.is_running:
            self._process.wait_for_logs()
        there = [
            each.partition
            for each in list_partitions(self._process.directory)
            if each.topic == self._topic and self._partition in (None, each.partition)
        ]
        if not there or not self._process.is_running:
            # Without a partition the reader raises an error that says which there are.
            return dict.fromkeys(there or [self._partition or 0])

        def starts(running: RunningBroker) -> dict[int, int | None]:
            # A checkpoint has them later, but the broker knows them now.
            led = {each: running.replicas.get(TopicPartition(self._topic, each)) for each in there}
            return {
                each: None if found is None else found.log.start_offset
                for each, found in led.items()
            }

        return self._process.call(starts)

    @contextmanager
    def _watching(self) -> Iterator[Wait]:
        """A function that waits until records were appended since its last call."""
        signal = Signal()
        numbers = self._log_starts()

        def watch(running: RunningBroker) -> list[Watched]:
            led = (running.replicas.get(TopicPartition(self._topic, each)) for each in numbers)
            found = [each.appended for each in led if each is not None]
            for each in found:
                each.add(signal)
            return found

        def unwatch(_: RunningBroker) -> None:
            for each in watched:
                each.remove(signal)

        def wait(seconds: float) -> bool:
            try:
                return self._process.run(signal.wait_until(math.inf), timeout_s=seconds)
            except TimeoutError:
                return False

        watched = self._process.call(watch)
        try:
            yield wait
        finally:
            if self._process.is_running:
                self._process.call(unwatch)
