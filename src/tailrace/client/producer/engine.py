"""`Engine`: the part of a producer that needs neither a thread nor an event loop.

    send -> interceptors -> serializers -> partition -> a batch of the accumulator      (any thread)
    poll -> metadata, transactions, drained batches -> nodes -> answers -> outcomes     (the driver)

`Producer` adds waiting by threads, `AsyncProducer` on an event loop (`tailrace.client.drive`).

Invariant: everything below `append` happens under `lock`; user code (serializers,
partitioners, interceptors, callbacks) never does.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING

from tailrace.client.drive.locks import renew
from tailrace.client.nodes import Backoff, ConnectionPool, Node
from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.errors import (
    ClosedProducerError,
    ReentrantCallError,
    producer_error,
)
from tailrace.client.producer.identity import TransactionManager
from tailrace.client.producer.intake.records import Preparation, Prepared
from tailrace.client.producer.metadata import ProducerMetadata
from tailrace.client.producer.metrics import Metrics
from tailrace.client.producer.outcome import (
    BatchOutcome,
    DeliveryOutcome,
    RefusedRecordOutcome,
    Waiting,
)
from tailrace.client.producer.partitioners import NO_PARTITION
from tailrace.client.producer.partitioning import Partitioning
from tailrace.client.producer.plugins import (
    BatchHooks,
    Plugins,
    ProducerInterceptors,
    ProducerRecord,
)
from tailrace.client.producer.queue.accumulator import Accumulator
from tailrace.client.producer.queue.batches import SealedBatch
from tailrace.client.producer.queue.memory import BatchSupply, BufferPool
from tailrace.client.producer.queue.open_batches import OpenBatch, OpenBatches
from tailrace.client.producer.sender import Sender
from tailrace.model import TopicPartition
from tailrace.runtime.network import Connector

if TYPE_CHECKING:
    from tailrace.client.producer.intake.slices import ColumnSlice
    from tailrace.client.producer.queue.batches import FilledRecords

log = logging.getLogger(__name__)

_REENTRANT = (
    "this thread is in the middle of another call of the same producer, which a signal handler, a "
    "finalizer or a logging handler has interrupted; set a flag in the handler, and call the "
    "producer after the interrupted call has returned"
)


class Engine:
    """The state of one producer; `Producer` or `AsyncProducer` calls it."""

    kind = "producer"

    def __init__(
        self,
        config: ProducerConfig,
        plugins: Plugins,
        *,
        network: Connector,
        now_ns: Callable[[], int],
        monotonic: Callable[[], float],
        chance: random.Random,
        waiting: Waiting,
        wake: Callable[[], None],
    ) -> None:
        self.config = config
        self.plugins = plugins
        self.client_id = config.client_id
        self.lock = threading.RLock()
        self.monotonic = monotonic
        self.now_ns = now_ns
        """Nanoseconds since 1970-01-01 UTC."""
        self.waiting = waiting
        self.metrics = Metrics()
        self.interceptors = ProducerInterceptors(plugins.interceptors)
        self.open_batches = OpenBatches(config, plugins, now_ns)
        self.closed_error: ClosedProducerError | None = None
        self._end_by = inf
        """The time until which an abandoned producer sends what it has."""
        # Made once, as the last calls of user code.
        self._closing = [self.interceptors.close, plugins.close]
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        self.nodes = ConnectionPool(
            config,
            network=network,
            chance=chance,
            wake=wake,
            in_flight_max=config.max_in_flight_requests_per_connection,
            candidates=lambda: self.metadata.nodes,
        )
        self.metadata = ProducerMetadata(
            # As in Kafka's clients, bootstrap servers have negative ids, for want of their own.
            [Node(-n, *each) for n, each in enumerate(config.bootstrap_servers, 1)],
            Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance),
            max_age_ms=config.metadata_max_age_ms,
            max_idle_ms=config.metadata_max_idle_ms,
            may_rebootstrap=config.metadata_recovery_strategy == "rebootstrap",
            resized=self.open_batches.forget_partitions,
        )
        self.transactions = (
            TransactionManager(config, backoff, self.nodes.features.level)
            if config.enable_idempotence
            else None
        )
        self.accumulator = Accumulator(
            config,
            supply=BatchSupply(config, waiting),
            backoff=backoff,
            closed=self._batch_closed,
        )
        self.sender = Sender(
            config,
            accumulator=self.accumulator,
            nodes=self.nodes,
            metadata=self.metadata,
            transactions=self.transactions,
            metrics=self.metrics,
            hooks=BatchHooks(plugins.hooks),
            monotonic=monotonic,
        )
        self.calls = self.sender.calls
        self.is_done_by_one_poll = False
        self.preparation = Preparation(config, plugins, self.interceptors, metadata=self.metadata)
        self.partitioning = Partitioning(
            config,
            plugins.partitioner,
            metadata=self.metadata,
            accumulator=self.accumulator,
            slow_nodes=self.sender.slow_nodes,
            chance=chance,
        )

    @property
    def pool(self) -> BufferPool:
        return self.accumulator.supply.pool

    # -- the driver ---------------------------------------------------------------------------

    def poll(self, now: float) -> None:
        self.sender.poll(now)

    def next_deadline(self, now: float) -> float:
        return min(self.sender.next_deadline(now), self._end_by)

    def abandoned(self, now: float) -> bool:
        """Send what is there, and abort an open transaction; returns whether that is over."""
        if self.begin_close():
            self.abort_open()
            # As long as a record may take; nobody waits for it any more.
            limit_ms = self.config.delivery_timeout_ms + self.config.max_block_ms
            self._end_by = now + limit_ms / 1000
        if now >= self._end_by:
            return True
        if self.accumulator.incomplete or not self.is_settled():
            return False
        # The commit waits for the last batch, and may have failed only with that one.
        if not self.abort_open():
            return True
        self.poll(now)
        return False

    def reentrant_error(self) -> ReentrantCallError:
        return ReentrantCallError(_REENTRANT)

    # -- sending a record ---------------------------------------------------------------------

    def append(
        self,
        prepared: Prepared,
        partition: int,
        *,
        now: float,
        now_ns: int,
        granted: int = 0,
    ) -> tuple[BatchOutcome, int] | None:
        """Append the record to a batch, under the lock; returns its outcome and the index in it.

        Returns None while there is no memory for the record. `granted` bytes were taken from the
        pool for it before; they are returned to the pool if they are not needed.
        """
        # Once more: the caller may have waited since it checked.
        self.check_open()
        topic = prepared.record.topic
        if self.transactions is not None:
            self.transactions.may_append(TopicPartition(topic, partition))
        while True:
            batch = self._batch_for(topic, partition)
            if batch is None:
                chosen = self.partitioning.sticky(topic) if partition < 0 else partition
                batch = self.accumulator.supply.new_batch(
                    TopicPartition(topic, chosen), size=prepared.size, now=now, granted=granted
                )
                if batch is None:
                    return None
                granted = 0
                self._enqueue(batch, now)
            index = self.accumulator.append(batch, prepared, now_ns=now_ns)
            if index is not None:
                # Another thread has opened a batch meanwhile.
                if granted:
                    self.pool.deallocate(granted)
                # Only now: the first record of a batch has to be the first one in it.
                self.open_batches.show(
                    batch,
                    self.metadata.partition_count(topic),
                    is_sticky=partition == NO_PARTITION,
                )
                return batch.outcome, index

    def append_slice(
        self,
        topic: str,
        columns: "ColumnSlice | FilledRecords",
        *,
        now: float,
        granted: int = 0,
    ) -> BatchOutcome | None:
        """Queue a whole batch, under the lock; None while there is no memory for it."""
        partition = columns.partition
        chosen = TopicPartition(
            topic, self.partitioning.sticky(topic) if partition is None else partition
        )
        if self.transactions is not None:
            self.transactions.may_append(chosen)
        batch = self.accumulator.supply.new_slice(chosen, columns, now=now, granted=granted)
        if batch is None:
            return None
        self._enqueue(batch, now)
        if partition is None:
            # A slice is a full batch, after which the sticky partition changes.
            self.partitioning.filled(topic, batch.size, size_max=batch.size)
        return batch.outcome

    def _enqueue(self, batch: OpenBatch | SealedBatch, now: float) -> None:
        """Append a new batch to its queue, and add its partition to the transaction."""
        self.metadata.add_topic(batch.partition.topic, now)
        if self.transactions is not None and self.transactions.is_transactional:
            self.transactions.note_append(batch.partition)
        self.accumulator.enqueue(batch, now=now)

    def _batch_for(self, topic: str, partition: int) -> OpenBatch | None:
        if partition != NO_PARTITION:
            return self.accumulator.open_batch(TopicPartition(topic, partition))
        # The sticky batch of the fast path, so that both paths fill the same one.
        batch = self.open_batches.sticky(topic)
        if batch is None:
            batch = self.accumulator.open_batch(
                TopicPartition(topic, self.partitioning.sticky(topic))
            )
        return batch

    def should_move(self) -> bool:
        """Return whether the caller should send batches now."""
        # True if a batch is full, or if a ready batch's node has no request in flight. Otherwise
        # the next answer triggers the sending, and more records gather meanwhile.
        accumulator = self.accumulator
        is_full, accumulator.has_full = accumulator.has_full, False
        if is_full or not accumulator.ready:
            return is_full
        if not self.sender.in_flight:
            return True
        # The newest ready partition, so that a node that answers slowly does not delay the others.
        leader = self.metadata.leader(next(reversed(accumulator.ready)))
        return leader is not None and not self.nodes.in_flight(leader.node_id)

    def flush_batch(self, outcome: DeliveryOutcome) -> None:
        """Send the batch of this outcome without lingering, because a caller waits for it."""
        if isinstance(outcome, BatchOutcome):
            self.accumulator.flush_batch(outcome)

    def refuse(self, record: ProducerRecord, error: Exception) -> DeliveryOutcome:
        """Tell the interceptors that a record was refused, and return its outcome."""
        self.note_refused(record.topic, error)
        self.interceptors.on_send_error(record, error)
        partition = NO_PARTITION if record.partition is None else record.partition
        return RefusedRecordOutcome(TopicPartition(record.topic, partition), self.waiting, error)

    def note_refused(self, topic: str, error: Exception) -> None:
        """Count a refused record; an open transaction has failed then."""
        with self.lock:
            if self.transactions is not None:
                self.transactions.record_refused(error)
            exists = self.metadata.partition_count(topic) is not None
            self.metrics.refused(topic, exists=exists)

    # -- waiting, and ending ------------------------------------------------------------------

    def check_topic(self, topic: str) -> None:
        """Raise the error that makes waiting for a topic pointless, if there is one.

        That is an invalid name, missing rights, or a login that all brokers have refused.
        """
        error = self.metadata.errors.get(topic) or self.nodes.login_error(self.metadata.nodes)
        if error is not None:
            raise producer_error(error)

    @contextmanager
    def flushing(self) -> Iterator[Callable[[], bool]]:
        """Turn lingering off inside the block.

        Yields a function that returns whether all batches that existed at the start are done.
        """
        pending = list(self.accumulator.incomplete)
        self.accumulator.flushes += 1
        self.accumulator.begin_flush()

        # The newest one mostly ends last, so one look at it is enough until then.
        def is_over() -> bool:
            while pending and pending[-1].is_done:
                pending.pop()
            return not pending

        try:
            yield is_over
        finally:
            self.accumulator.flushes -= 1

    def begin_close(self) -> bool:
        """Refuse new records from now on; returns False if that was so already."""
        if self.closed_error is not None:
            return False
        # The fast path does not look at `closed_error`; without open batches it takes nothing.
        self.open_batches.clear()
        self.accumulator.is_closed = True
        self.accumulator.begin_flush()
        # Set last, so that a close that was interrupted before this line can be repeated.
        self.closed_error = ClosedProducerError("the producer is closed")
        return True

    def is_settled(self) -> bool:
        return self.transactions is None or not self.transactions.is_completing

    def abort_open(self) -> bool:
        """Abort an open or failed transaction; False if there is none."""
        # Readers of committed records wait for its end, up to transaction.timeout.ms.
        found = self.transactions
        return found is not None and found.is_transactional and found.abort_open()

    def end_close(self) -> None:
        """Fail all records without an outcome, and close the connections."""
        error = ClosedProducerError("the producer was closed before the record was acknowledged")
        self.sender.fail_all(error, also_in_flight=True)
        self.pool.close()
        if self.transactions is not None:
            self.transactions.flow.fail(error)
        self.nodes.close()
        self.sender.calls += self._closing
        self._closing = []

    def give_up(self, error: BaseException) -> None:
        """Fail every receipt, since an interrupted step has left the state unknown."""
        self.closed_error = ClosedProducerError(
            f"the producer was stopped by {error!r} while it changed its state; records without an "
            "outcome may have been written or not; make a new producer"
        )
        self.open_batches.clear()
        self.accumulator.is_closed = True
        for outcome, batch in list(self.accumulator.incomplete.items()):
            # A thread may be about to add a record to it; a closed batch refuses that.
            if isinstance(batch, OpenBatch):
                batch.close()
            self.fail_outcome(outcome)
        self.accumulator.incomplete.clear()
        self.accumulator.queues.clear()
        self.accumulator.ready.clear()
        self.pool.close()
        try:
            if self.transactions is not None:
                self.transactions.flow.fail(self.closed_error)
            self.nodes.close()
        except Exception:
            log.exception("producer_close_failed client_id=%s", self.config.client_id)
        self.sender.calls += self._closing
        self._closing = []

    def fail_outcome(self, outcome: DeliveryOutcome) -> None:
        """Fail an outcome that is still open after the producer was stopped."""
        if isinstance(outcome, BatchOutcome):
            for part in outcome.parts:
                self.fail_outcome(part.outcome)
        if not outcome.is_done:
            outcome.failure = self.closed_error
            if outcome.is_forgotten:
                log.warning(
                    "records_failed partition=%s reason=%s", outcome.partition, outcome.failure
                )
            self.sender.calls += (each.run_callbacks for each in outcome.finish() if each.callbacks)

    def forked(self) -> None:
        """Disable the producer in a forked child, which shares the parent's sockets."""
        # Another thread of the parent may have held the lock; that thread does not exist here.
        renew(self.lock)
        self.open_batches.clear()
        self.closed_error = ClosedProducerError(
            "this process is a fork of the one that created the producer; create a new producer "
            "in this process"
        )
        # Not failed one by one: callbacks belong to the parent, which sends the records.
        for outcome in self.accumulator.incomplete:
            outcome.failure, outcome.is_done = self.closed_error, True
        self.accumulator.incomplete.clear()
        self.accumulator.queues.clear()

    def check_open(self) -> None:
        """Raise ClosedProducerError if the producer was closed, or in a fork of its process."""
        error = self.closed_error
        if error is not None:
            # A new instance: a shared one would keep the notes and traceback of every raise.
            raise ClosedProducerError(*error.args)

    def _batch_closed(self, batch: OpenBatch) -> None:
        if self.open_batches.hide(batch):
            self.partitioning.filled(batch.partition.topic, batch.size, size_max=batch.size_max)
