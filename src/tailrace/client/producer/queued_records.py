"""`RecordQueues`: records of an `AsyncProducer` that cannot get into a batch yet, in their order.

A record waits in the queue of its topic while the topic's metadata is not known or there is no
memory. A record for a partition that the topic does not have waits in a queue of that partition.

Not here: sending (`aio`).

Invariant: a queued record later gets into a batch, or fails, or leaves the queue because its await
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
from tailrace.client.producer.receipts import Receipt
from tailrace.client.producer.waits import memory_granted, topic_known, why_no_memory, why_no_topic
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.runtime.background import BackgroundTasks

if TYPE_CHECKING:
    from tailrace.client.drive.loop import LoopDriver
    from tailrace.client.producer.engine import Engine


QUEUED_MEMORY: Final = 700
"""Bytes that a queued record takes besides its key, value and headers: its receipt, its callbacks,
and its entry in the queue (630 were measured for one without callbacks)."""


class QueuedRecord(DeliveryOutcome):
    """The outcome of a record that is in a queue first, and in a batch later."""

    __slots__ = (
        "await_changed",
        "batch_watchers",
        "deadline",
        "index",
        "is_counted",
        "joined",
        "lacks_partition",
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
        await_changed: "Callable[[QueuedRecord], None]",
    ) -> None:
        super().__init__(TopicPartition(prepared.record.topic, NO_PARTITION), waiting)
        self.prepared: Prepared | None = prepared
        """The record, while it is in a queue."""
        self.size = prepared.size
        """Bytes it takes in a batch, at most."""
        self.is_counted = False
        """Its bytes are counted as queued bytes that nobody awaits."""
        self.lacks_partition = False
        """It is in the queue of a partition that does not exist."""
        self.request: int | None = None
        """The request for metadata whose answer says whether that partition has been added; one
        answer is enough for all records that were queued before it."""
        self.batch_watchers: list[Callable[[], None]] | None = None
        """Called when it gets into a batch, or fails before; they only wake a waiter. Few records
        have any, and an empty list takes memory for each."""
        self.await_changed = await_changed
        """Called when a task begins to await it, and when the last one stops before it is sent."""
        self.deadline = deadline
        """The loop's time at which it fails if it is still queued."""
        self.now_ns = now_ns
        self.joined: BatchOutcome | None = None
        """The outcome of its batch, once it is in one."""
        self.index = 0

    def add_watcher(self, wake: Callable[[], None]) -> None:
        """Note that a task awaits it."""
        super().add_watcher(wake)
        self.await_changed(self)

    def remove_watcher(self, wake: Callable[[], None]) -> None:
        """Note that a task awaits it no more; without any, it leaves the queue."""
        super().remove_watcher(wake)
        if self.prepared is not None and not self.is_awaited:
            self.await_changed(self)

    def add_batch_watcher(self, wake: Callable[[], None]) -> None:
        """Note that a task waits until it is in a batch."""
        if self.batch_watchers is None:
            self.batch_watchers = []
        self.batch_watchers.append(wake)
        self.await_changed(self)

    def remove_batch_watcher(self, wake: Callable[[], None]) -> None:
        """Note that a task waits no more; without any, the record leaves the queue."""
        if self.batch_watchers is not None:
            self.batch_watchers.remove(wake)
        if not self.is_awaited:
            self.await_changed(self)

    @property
    def is_awaited(self) -> bool:
        """Whether a task waits for its outcome, or until it is in a batch."""
        return bool(self.watchers or self.batch_watchers)

    def leave_queue(self) -> None:
        """Forget the record, which is in a batch or has failed, and wake who waits for that."""
        self.prepared = None
        watchers, self.batch_watchers = self.batch_watchers, None
        for wake in watchers or ():
            wake()

    def metadata_of(self, index: int) -> RecordMetadata:
        if self.joined is None:
            return super().metadata_of(index)
        return self.joined.metadata_of(self.index)

    def error_of(self, index: int) -> Exception | None:
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
        if outcome.is_done:
            self._driver.loop.call_soon(outcome.call, index, callback)
        else:
            outcome.add_callback(index, callback)

    def awaiting(self, outcome: DeliveryOutcome) -> Generator[object, None, None]:
        # A watcher is called at once when the outcome is there, a callback after other callbacks.
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

    async def batched(self, receipt: Receipt) -> Receipt:
        """Wait until the record is in a batch; see `Receipt.batched`."""
        outcome = receipt._outcome
        if isinstance(outcome, QueuedRecord) and outcome.prepared is not None:
            await self._out_of_queue(outcome)
        elif not receipt._index:
            # Once for each batch: a loop that never waits would keep all other tasks from running,
            # and answers from being read.
            await asyncio.sleep(0)
        if outcome.is_done:
            outcome.result_of(receipt._index)
        return receipt

    async def _out_of_queue(self, queued: QueuedRecord) -> None:
        future = self._driver.loop.create_future()
        wake = partial(_wake, future)
        with self.engine.lock:
            queued.add_batch_watcher(wake)
        self._driver.wake()
        try:
            await future
        finally:
            if queued.prepared is not None:
                with self.engine.lock:
                    queued.remove_batch_watcher(wake)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class RecordQueues:
    """The queues of one producer; each has its own task while it is not empty."""

    def __init__(self, engine: "Engine", driver: "LoopDriver", waiting: "LoopWaiting") -> None:
        self._engine = engine
        self._driver = driver
        self._waiting = waiting
        self._queues: dict[TopicPartition, deque[QueuedRecord]] = {}
        """Records by topic (partition -1), or by partition if that does not exist."""
        self._unawaited_bytes = 0
        """Memory of the queued records that nobody awaits, with `QUEUED_MEMORY` for each."""
        self._excess: dict[asyncio.Task[object] | None, QueuedRecord] = {}
        """By the task that sent them (None for callbacks): records beyond `buffer.memory`, which
        fail unless they are awaited soon."""
        self._tasks = BackgroundTasks()

    def put(self, prepared: Prepared, now_ns: int) -> tuple[DeliveryOutcome, int]:
        """Append a record to a batch if that is possible now, else queue it; then `send_ready`.

        Raises:
            TailraceError: the record can go to neither.
        """
        placed: tuple[DeliveryOutcome, int] | None = None
        if self._queue_of(prepared.record) is None:
            placed = self._append(prepared, now_ns)
        return placed or (self._enqueue(prepared, now_ns), 0)

    def _append(self, prepared: Prepared, now_ns: int) -> tuple[BatchOutcome, int] | None:
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

    def send_ready(self) -> None:
        """Send ready batches, after the record's callbacks have been added."""
        with self._engine.lock:
            self._driver.moved()

    def _queue_of(self, record: ProducerRecord) -> TopicPartition | None:
        """The key of the queue that a record must join to keep the order, or None."""
        for partition in (NO_PARTITION, record.partition):
            key = TopicPartition(record.topic, partition or 0)
            if key in self._queues:
                return key
        return None

    def _enqueue(self, prepared: Prepared, now_ns: int) -> QueuedRecord:
        record = prepared.record
        topic = TopicPartition(record.topic, NO_PARTITION)
        if self._engine.transactions is not None:
            self._engine.transactions.may_append(topic)
        queued = QueuedRecord(
            prepared,
            self._waiting,
            now_ns=now_ns,
            deadline=self._driver.clock() + self._engine.config.max_block_ms / 1000,
            await_changed=self._await_changed,
        )
        if self._unawaited_bytes + queued.size + QUEUED_MEMORY > self._engine.config.buffer_memory:
            # A task that awaits each receipt has one record queued at a time. A task that does not
            # could queue records without limit, so what nobody awaits is limited (decision 22).
            sender = asyncio.current_task(self._driver.loop)
            # A task that sends again has not awaited its previous record.
            self._refuse(sender, self._excess.get(sender))
            self._excess[sender] = queued
            # `wait_for` and `shield` await in a new task, whose first step runs in the next
            # iteration of the loop, after the calls that are due there already.
            self._driver.loop.call_soon(self._driver.loop.call_soon, self._refuse, sender, queued)
        else:
            queued.is_counted = True
            self._unawaited_bytes += queued.size + QUEUED_MEMORY
        self._join_queue(self._queue_of(record) or self._missing_partition(record) or topic, queued)
        return queued

    def _missing_partition(self, record: ProducerRecord) -> TopicPartition | None:
        """The record's partition, if the topic is known not to have it; else None."""
        # It has a queue of its own, so the record does not delay others of the topic.
        count = self._engine.metadata.partition_count(record.topic)
        if count is None or (record.partition or 0) < count:
            return None
        return TopicPartition(record.topic, record.partition or 0)

    def _join_queue(self, key: TopicPartition, queued: QueuedRecord) -> None:
        """Append a record to a queue; a new queue gets a task that serves it."""
        queued.lacks_partition = key.partition != NO_PARTITION
        # Partitions may be added at any time (decision 22); this answer is newer than the record.
        if queued.lacks_partition:
            queued.request = self._engine.metadata.request_update()
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(queued)
            return
        # Otherwise later plain records would get into an open batch before those that are queued.
        self._engine.open_batches.shut(key.topic)
        self._queues[key] = queue = deque((queued,))
        task = self._driver.loop.create_task(self._serve_queue(key, queue), name=f"queue-of-{key}")
        # A task that is cancelled before its first step runs nothing of its coroutine.
        self._tasks.keep(task).add_done_callback(lambda _: self._remove(key, queue))

    def _remove(self, key: TopicPartition, queue: deque[QueuedRecord]) -> None:
        """Remove a queue whose task has ended; records left in it by a cancellation fail."""
        if self._queues.get(key) is not queue:
            return
        del self._queues[key]
        for queued in queue:
            error = SendCancelledError(
                f"{queued.partition.topic}: not sent: the record waited for memory or metadata, "
                "and the producer's task that serves such records was cancelled; close the "
                "producer before its tasks are cancelled"
            )
            self._end_queued(queued, error)

    def _refuse(self, sender: asyncio.Task[object] | None, queued: QueuedRecord | None) -> None:
        """Fail a record beyond the limit, unless it is awaited by now, or was refused before."""
        if queued is None or self._excess.get(sender) is not queued:
            return
        del self._excess[sender]
        if queued.prepared is not None and not queued.is_awaited:
            why = self._why_queued(queued, queued.prepared.record)
            error = BufferExhaustedError(
                f"queued records that nobody awaits take {self._unawaited_bytes} bytes, and "
                f"buffer.memory allows {self._engine.config.buffer_memory}; {why}. Await each "
                "send(...).batched(), or use send_many()"
            )
            self._end_queued(queued, error)

    def _why_queued(self, queued: QueuedRecord, record: ProducerRecord) -> str:
        """The text about what the queue of a record waits for, and the setting to change."""
        engine = self._engine
        partition = (record.partition or 0) if queued.lacks_partition else NO_PARTITION
        queue = self._queues.get(TopicPartition(record.topic, partition)) or (queued,)
        began = queue[0].deadline - engine.config.max_block_ms / 1000
        waited = self._driver.clock() - began
        if queued.lacks_partition or engine.metadata.partition_count(record.topic) is None:
            return why_no_topic(engine, record, waited)
        return why_no_memory(engine, waited)

    def _await_changed(self, queued: QueuedRecord) -> None:
        """Note that a record is awaited now, or not any more."""
        if queued.joined is not None:
            self._engine.flush_batch(queued.joined)
            return
        self._discount(queued)
        if not queued.is_awaited:
            error = SendCancelledError(
                "not sent: the record was queued, and the await of its receipt was cancelled"
            )
            self._end_queued(queued, error)

    def _discount(self, queued: QueuedRecord) -> None:
        if queued.is_counted:
            queued.is_counted = False
            self._unawaited_bytes -= queued.size + QUEUED_MEMORY

    def served(self, topic: str | None = None) -> Callable[[], bool]:
        """A predicate: whether all records that are queued now are in a batch or have failed.

        With `topic`, only for that topic's records, without those for a missing partition.
        """
        pending = [
            queued
            for key, queue in self._queues.items()
            if topic is None or key == TopicPartition(topic, NO_PARTITION)
            for queued in queue
        ]

        def is_over() -> bool:
            while pending and (
                pending[-1].prepared is None or (topic is not None and pending[-1].lacks_partition)
            ):
                pending.pop()
            return not pending

        return is_over

    def held(self) -> int:
        """The number of queued records; a finalizer may call this in any thread."""
        # Copies, since the loop's thread may change the queues meanwhile.
        queues = [tuple(queue) for queue in list(self._queues.values())]
        return sum(queued.prepared is not None for queue in queues for queued in queue)

    def end(self, error: Exception) -> None:
        """Fail all queued records."""
        self._tasks.cancel()
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            for queued in queue:
                self._end_queued(queued, error)

    async def _serve_queue(self, key: TopicPartition, queue: deque[QueuedRecord]) -> None:
        """Serve a queue until it is empty."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine that awaits futures of asyncio runs in a task"
        try:
            while queue:
                queued = queue[0]
                try:
                    await self._driver.run(self._serve(queued))
                except TailraceError as error:
                    self._end_queued(queued, error)
                except BaseException as error:
                    # A user's partitioner may raise CancelledError too. It came from there unless
                    # this task is being cancelled or the loop is closed.
                    if task.cancelling() or self._driver.loop.is_closed():
                        raise
                    self._end_queued(queued, _unserved(queued, error))
                # Only now: while it is served, later records of `put` have to join this queue.
                queue.popleft()
        finally:
            self._remove(key, queue)

    def _serve(self, queued: QueuedRecord) -> Steps[None]:
        """Append a record to a batch, or move it to the queue of its missing partition."""
        engine, granted = self._engine, 0
        try:
            # Each wait may end because the record failed or its await was cancelled meanwhile.
            while (prepared := queued.prepared) is not None:
                record = prepared.record
                known = record if queued.lacks_partition else ProducerRecord(record.topic)
                yield from topic_known(
                    engine, known, queued.deadline, queued=queued, request=queued.request
                )
                if queued.prepared is None:
                    break
                missing = None if queued.lacks_partition else self._missing_partition(record)
                if missing is not None:
                    self._join_queue(missing, queued)
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
                    self._enter_batch(queued, *placed)
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

    def _enter_batch(self, queued: QueuedRecord, outcome: BatchOutcome, index: int) -> None:
        """Note that the record is in a batch now and shares its outcome."""
        self._discount(queued)
        queued.joined, queued.index, queued.partition = outcome, index, outcome.partition
        queued.leave_queue()
        outcome.is_forgotten |= queued.is_forgotten
        # The caller's receipt refers to `queued`, so that ends with its batch.
        outcome.add_watcher(lambda: self._finish(queued))
        if queued.watchers:
            self._engine.flush_batch(outcome)
        # Needed even if there is nothing to send: `served` may wait for this record.
        self._driver.wake()

    def _end_queued(self, queued: QueuedRecord, error: Exception) -> None:
        """Fail a queued record; idempotent. The queue's task skips it later."""
        if queued.prepared is None:
            return
        self._discount(queued)
        queued.failure = error
        queued.leave_queue()
        self._engine.note_refused(queued.partition.topic, error)
        if queued.is_forgotten:
            log.warning("record_failed topic=%s reason=%s", queued.partition.topic, error)
        self._finish(queued)
        self._driver.wake()

    def _finish(self, queued: QueuedRecord) -> None:
        ended = queued.finish()
        self._engine.sender.calls += (each.run_callbacks for each in ended if each.callbacks)

    async def ended(self) -> None:
        """Wait for the tasks, after `end`."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _unserved(queued: QueuedRecord, error: BaseException) -> RejectedRecordError:
    # Only the class name: the text of the exception is made by user code, which may fail again.
    found = RejectedRecordError(
        f"{queued.partition.topic}: choosing a partition failed: {type(error).__name__}"
    )
    found.__cause__ = error
    return found
