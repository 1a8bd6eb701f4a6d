"""`Lines`: queues of `AsyncProducer` records that cannot get into a batch yet, in their order.

A record waits in the queue (line) of its topic while the topic's metadata is not known or there is
no memory. A record for a partition that the topic does not have waits in a queue of that partition.

A task that awaits each receipt has one record in line at a time. A task that does not await could
queue records without limit, so records that nobody awaits may take `buffer.memory` bytes at most.

Not here: sending (`aio`).

Invariant: a record in line later gets into a batch, or fails, or leaves the line because its await
was cancelled; in each case its bytes are no longer counted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Final

from tailrace.client.drive.steps import CallUser, Steps
from tailrace.client.producer.errors import (
    BufferExhaustedError,
    RejectedRecordError,
    SendCancelledError,
)
from tailrace.client.producer.intake.records import Prepared
from tailrace.client.producer.outcome import (
    BatchOutcome,
    DeliveryCallback,
    DeliveryOutcome,
    RecordMetadata,
    Waiting,
)
from tailrace.client.producer.partitioners import NO_PARTITION
from tailrace.client.producer.plugins import ProducerRecord
from tailrace.client.producer.waits import memory_granted, topic_known, why_no_memory, why_no_topic
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition

if TYPE_CHECKING:
    from tailrace.client.drive.loop import LoopDriver
    from tailrace.client.producer.engine import Engine


QUEUED_MEMORY: Final = 700
"""Bytes that a record in line takes besides its key, value and headers: its receipt, its callbacks,
and its entry in the line (630 were measured for one without callbacks)."""


class QueuedRecord(DeliveryOutcome):
    """The outcome of a record that is in line first, and in a batch later."""

    __slots__ = (
        "deadline",
        "index",
        "is_aside",
        "is_counted",
        "joined",
        "leave",
        "now_ns",
        "prepared",
        "request",
        "size",
    )

    def __init__(
        self,
        prepared: Prepared,
        waiting: Waiting,
        *,
        now_ns: int,
        deadline: float,
        leave: "Callable[[QueuedRecord], None]",
    ) -> None:
        super().__init__(TopicPartition(prepared.record.topic, NO_PARTITION), waiting)
        self.prepared: Prepared | None = prepared
        """The record, while it is in line."""
        self.size = prepared.size
        """Bytes it takes in a batch, at most."""
        self.is_counted = False
        """Its bytes are counted as bytes in line that nobody awaits."""
        self.is_aside = False
        """It is in the line of a partition that is not there."""
        self.request: int | None = None
        """The request for metadata that tells whether that partition has been added; one tells all
        records that were in line before it."""
        self.leave = leave
        """Called when a task begins to await it, and when the last one stops before it is sent."""
        self.deadline = deadline
        """The loop's time at which it fails if it is still in line."""
        self.now_ns = now_ns
        self.joined: BatchOutcome | None = None
        """The outcome of its batch, once it is in one."""
        self.index = 0

    def add_watcher(self, wake: Callable[[], None]) -> None:
        """Note that a task awaits it."""
        super().add_watcher(wake)
        self.leave(self)

    def remove_watcher(self, wake: Callable[[], None]) -> None:
        """Note that a task awaits it no more; without any, it leaves the line."""
        super().remove_watcher(wake)
        if self.prepared is not None and not self.watchers:
            self.leave(self)

    def place_of(self, index: int) -> RecordMetadata:
        """The record's partition, offset and timestamp, as far as known."""
        return super().place_of(index) if self.joined is None else self.joined.place_of(self.index)

    def error_of(self, index: int) -> Exception | None:
        """Return the record's error, or None."""
        return super().error_of(index) if self.joined is None else self.joined.error_of(self.index)


log = logging.getLogger(__name__)


class LoopWaiting:
    """Waits on the event loop of the producer's driver."""

    def __init__(self, driver: "LoopDriver") -> None:
        self._driver = driver
        self.engine: Engine

    def wait(self, outcome: DeliveryOutcome, timeout_s: float | None) -> bool:  # noqa: ARG002
        """Always raise TypeError: blocking here would keep the loop from getting the outcome."""
        raise TypeError("a receipt of AsyncProducer has no outcome yet: await it")

    def call_back(self, outcome: DeliveryOutcome, index: int, callback: DeliveryCallback) -> None:
        """Have the callback called by the loop."""
        if outcome.is_done:
            self._driver.loop.call_soon(outcome.tell, index, callback)
        else:
            outcome.add_callback(index, callback)

    def awaiting(self, outcome: DeliveryOutcome) -> Generator[object, None, None]:
        """Suspend the task until the outcome is there."""
        future = self._driver.loop.create_future()
        wake = partial(_wake, future)
        with self.engine.lock:
            outcome.add_watcher(wake)
            self.engine.flush_batch(outcome)
        self._driver.wake()
        try:
            yield from future
        finally:
            if not outcome.is_done:
                with self.engine.lock:
                    outcome.remove_watcher(wake)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Lines:
    """The lines of one producer; each has its own task while it is not empty."""

    def __init__(self, engine: "Engine", driver: "LoopDriver", waiting: "LoopWaiting") -> None:
        self._engine = engine
        self._driver = driver
        self._waiting = waiting
        self._lines: dict[TopicPartition, deque[QueuedRecord]] = {}
        """Records in line by topic (partition -1), or by partition if that does not exist."""
        self._bytes = 0
        """Memory of the records in line that nobody awaits, with `QUEUED_MEMORY` for each."""
        self._beyond: dict[asyncio.Task[object] | None, QueuedRecord] = {}
        """By the task that sent them (None for callbacks): records beyond `buffer.memory`, which
        fail unless they are awaited soon."""
        self._pumps: set[asyncio.Task[None]] = set()

    def put(self, prepared: Prepared, now_ns: int) -> tuple[DeliveryOutcome, int]:
        """Append a record to a batch if that is possible now, else to its line; then `set_off`.

        Raises:
            TailraceError: the record can go to neither.
        """
        placed: tuple[DeliveryOutcome, int] | None = None
        if self._line_of(prepared.record) is None:
            placed = self._place(prepared, now_ns)
        return placed or (self._get_in_line(prepared, now_ns), 0)

    def _place(self, prepared: Prepared, now_ns: int) -> tuple[BatchOutcome, int] | None:
        """Append the record to a batch if that is possible now, else return None."""
        engine = self._engine
        count = self._partition_count(prepared.record)
        if count is None:
            return None
        partition = engine.partitioning.choose(prepared, count)
        with engine.lock:
            return engine.append(prepared, partition, now=self._driver.clock(), now_ns=now_ns)

    def _partition_count(self, record: ProducerRecord) -> int | None:
        """The partition count of a topic that has the record's partition; None until it does."""
        count = self._engine.metadata.partition_count(record.topic)
        return None if count is None or (record.partition or 0) >= count else count

    def set_off(self) -> None:
        """Send ready batches, after the record's callbacks have been added."""
        with self._engine.lock:
            self._driver.moved()

    def _line_of(self, record: ProducerRecord) -> TopicPartition | None:
        """The line that a record must join to keep the order; None if there is none."""
        for partition in (NO_PARTITION, record.partition):
            place = TopicPartition(record.topic, partition or 0)
            if place in self._lines:
                return place
        return None

    def _get_in_line(self, prepared: Prepared, now_ns: int) -> QueuedRecord:
        record = prepared.record
        topic = TopicPartition(record.topic, NO_PARTITION)
        if self._engine.transactions is not None:
            self._engine.transactions.may_append(topic)
        queued = QueuedRecord(
            prepared,
            self._waiting,
            now_ns=now_ns,
            deadline=self._driver.clock() + self._engine.config.max_block_ms / 1000,
            leave=self._awaited,
        )
        if self._bytes + queued.size + QUEUED_MEMORY > self._engine.config.buffer_memory:
            sender = asyncio.current_task(self._driver.loop)
            # A task that sends again has not awaited its previous record.
            self._refuse(sender, self._beyond.get(sender))
            self._beyond[sender] = queued
            # `wait_for` and `shield` await in a new task, whose first step runs in the next
            # iteration of the loop, after the calls that are due there already.
            self._driver.loop.call_soon(self._driver.loop.call_soon, self._refuse, sender, queued)
        else:
            queued.is_counted = True
            self._bytes += queued.size + QUEUED_MEMORY
        self._stand_in(self._line_of(record) or self._aside(record) or topic, queued)
        return queued

    def _aside(self, record: ProducerRecord) -> TopicPartition | None:
        """The line of the record's partition, if the topic is known not to have it; else None.

        So a record for a missing partition does not delay other records of the topic.
        """
        count = self._engine.metadata.partition_count(record.topic)
        if count is None or (record.partition or 0) < count:
            return None
        return TopicPartition(record.topic, record.partition or 0)

    def _stand_in(self, place: TopicPartition, queued: QueuedRecord) -> None:
        """Append a record to a line; a new line gets a task that serves it."""
        queued.is_aside = place.partition != NO_PARTITION
        if queued.is_aside:
            queued.request = self._engine.metadata.request_update()
        line = self._lines.get(place)
        if line is not None:
            line.append(queued)
            return
        # Otherwise later plain records would get into an open batch before those in line.
        self._engine.open_batches.shut(place.topic)
        self._lines[place] = line = deque((queued,))
        pump = self._driver.loop.create_task(self._pump(place, line), name=f"line-of-{place}")
        self._pumps.add(pump)

        def ended(pump: asyncio.Task[None]) -> None:
            # A task that is cancelled before its first step runs nothing of its coroutine.
            self._remove(place, line)
            self._pumps.discard(pump)

        pump.add_done_callback(ended)

    def _remove(self, place: TopicPartition, line: deque[QueuedRecord]) -> None:
        """Remove a line whose task has ended; records left in it by a cancellation fail."""
        if self._lines.get(place) is not line:
            return
        del self._lines[place]
        for queued in line:
            error = SendCancelledError(
                f"{queued.partition.topic}: not sent: the record waited for memory or metadata, "
                "and the producer's task that serves such records was cancelled; close the "
                "producer before its tasks are cancelled"
            )
            self._end_queued(queued, error)

    def _refuse(self, sender: asyncio.Task[object] | None, queued: QueuedRecord | None) -> None:
        """Fail a record beyond the limit, unless it is awaited by now, or was refused before."""
        if queued is None or self._beyond.get(sender) is not queued:
            return
        del self._beyond[sender]
        if queued.prepared is not None and not queued.watchers:
            why = self._why_in_line(queued, queued.prepared.record)
            error = BufferExhaustedError(
                f"records in line that nobody awaits take {self._bytes} bytes, and buffer.memory "
                f"allows {self._engine.config.buffer_memory}; {why}. Await each send, or use "
                "send_many()"
            )
            self._end_queued(queued, error)

    def _why_in_line(self, queued: QueuedRecord, record: ProducerRecord) -> str:
        """The text about what the line of a record waits for, and the setting to change."""
        engine = self._engine
        partition = (record.partition or 0) if queued.is_aside else NO_PARTITION
        line = self._lines.get(TopicPartition(record.topic, partition)) or (queued,)
        began = line[0].deadline - engine.config.max_block_ms / 1000
        waited = self._driver.clock() - began
        if queued.is_aside or engine.metadata.partition_count(record.topic) is None:
            return why_no_topic(engine, record, waited)
        return why_no_memory(engine, waited)

    def _awaited(self, queued: QueuedRecord) -> None:
        """Handle the `leave` calls of a record: it is awaited now, or not any more."""
        if queued.joined is not None:
            self._engine.flush_batch(queued.joined)
            return
        self._discount(queued)
        if not queued.watchers:
            error = SendCancelledError(
                "not sent: the record was in line, and the await of its receipt was cancelled"
            )
            self._end_queued(queued, error)

    def _discount(self, queued: QueuedRecord) -> None:
        if queued.is_counted:
            queued.is_counted = False
            self._bytes -= queued.size + QUEUED_MEMORY

    def served(self, topic: str | None = None) -> Callable[[], bool]:
        """A predicate: whether all records that are in line now are in a batch or have failed.

        With `topic`, only for that topic's records, without those for a missing partition.
        """
        pending = [
            queued
            for place, line in self._lines.items()
            if topic is None or place == TopicPartition(topic, NO_PARTITION)
            for queued in line
        ]

        def is_over() -> bool:
            while pending and (
                pending[-1].prepared is None or (topic is not None and pending[-1].is_aside)
            ):
                pending.pop()
            return not pending

        return is_over

    def held(self) -> int:
        """The number of records in line; a finalizer may call this in any thread."""
        lines = [tuple(line) for line in list(self._lines.values())]
        return sum(queued.prepared is not None for line in lines for queued in line)

    def end(self, error: Exception) -> None:
        """Fail all records in line."""
        for pump in self._pumps:
            pump.cancel()
        lines, self._lines = self._lines, {}
        for line in lines.values():
            for queued in line:
                self._end_queued(queued, error)

    async def _pump(self, place: TopicPartition, line: deque[QueuedRecord]) -> None:
        """Serve a line until it is empty."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine that awaits futures of asyncio runs in a task"
        try:
            while line:
                queued = line[0]
                try:
                    await self._driver.run(self._serve(queued, place))
                except TailraceError as error:
                    self._end_queued(queued, error)
                except BaseException as error:
                    # A user's partitioner may raise CancelledError too. It came from there unless
                    # this task is being cancelled or the loop is closed.
                    if task.cancelling() or self._driver.loop.is_closed():
                        raise
                    self._end_queued(queued, _unserved(queued, error))
                line.popleft()
        finally:
            self._remove(place, line)

    def _serve(self, queued: QueuedRecord, place: TopicPartition) -> Steps[None]:
        """Append a record to a batch, or move it to the line of its missing partition."""
        engine, granted = self._engine, 0
        try:
            while (prepared := queued.prepared) is not None:
                record = prepared.record
                is_aside = place.partition != NO_PARTITION
                known = record if is_aside else ProducerRecord(record.topic)
                yield from topic_known(
                    engine, known, queued.deadline, queued=queued, request=queued.request
                )
                if queued.prepared is None:
                    break
                aside = None if is_aside else self._aside(record)
                if aside is not None:
                    self._stand_in(aside, queued)
                    break
                count = self._partition_count(record)
                if count is None:
                    continue
                partition = yield CallUser(engine.partitioning.choose, (prepared, count))
                now = self._driver.clock()
                placed = engine.append(
                    prepared, partition, now=now, now_ns=queued.now_ns, granted=granted
                )
                if placed is not None:
                    granted = 0
                    self._join(queued, *placed)
                elif not granted:
                    # A record before this one may have opened a batch for plain records.
                    engine.open_batches.shut(record.topic)
                    size = engine.accumulator.supply.memory_for(queued.size)
                    granted = yield from memory_granted(
                        engine, size, queued.deadline, queued=queued
                    )
        finally:
            if granted:
                self._engine.pool.deallocate(granted)

    def _join(self, queued: QueuedRecord, outcome: BatchOutcome, index: int) -> None:
        """Note that the record is in a batch now and shares its outcome."""
        self._discount(queued)
        queued.prepared = None
        queued.joined, queued.index, queued.partition = outcome, index, outcome.partition
        outcome.is_forgotten |= queued.is_forgotten

        def finish() -> None:
            ended = queued.finish()
            self._engine.sender.calls += (each.run_callbacks for each in ended if each.callbacks)

        outcome.add_watcher(finish)
        if queued.watchers:
            self._engine.flush_batch(outcome)
        # Needed even if there is nothing to send: `served` may wait for this record.
        self._driver.wake()

    def _end_queued(self, queued: QueuedRecord, error: Exception) -> None:
        """Fail a record in line; idempotent. The line's task skips it later."""
        if queued.prepared is None:
            return
        self._discount(queued)
        queued.prepared = None
        queued.failure = error
        self._engine.note_refused(queued.partition.topic, error)
        if queued.is_forgotten:
            log.warning("record_failed topic=%s reason=%s", queued.partition.topic, error)
        ended = queued.finish()
        self._engine.sender.calls += (each.run_callbacks for each in ended if each.callbacks)
        self._driver.wake()

    async def ended(self) -> None:
        """Wait for the tasks, after `end`."""
        await asyncio.gather(*self._pumps, return_exceptions=True)


def _unserved(queued: QueuedRecord, error: BaseException) -> RejectedRecordError:
    # Only the class name: the text of the exception is made by user code, which may fail again.
    found = RejectedRecordError(
        f"{queued.partition.topic}: choosing a partition failed: {type(error).__name__}"
    )
    found.__cause__ = error
    return found
