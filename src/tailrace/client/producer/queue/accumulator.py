"""`Accumulator`: the batches that wait to be sent, in one queue for each partition.

Kafka's rules of what may be sent (RecordAccumulator.ready and drain) hold: a batch that is full,
that has another batch after it, that has waited for `linger.ms`, or that a caller waits for: in a
flush, for memory, for the end of a transaction, or for a receipt. A request takes one batch of each
partition, and partitions take turns.

Not here: which node leads a partition and whether it can take a request (`sender`), and sequence
numbers (`identity`).

Invariant: a batch is in `incomplete` from its creation until it is done, and in its queue while it
is neither in a request nor done. Only the last batch of a queue may be open.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import count

from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.intake.records import Prepared
from tailrace.client.producer.outcome import BatchOutcome
from tailrace.client.producer.queue.batches import ClosedBatch, InFlightBatch, SealedBatch
from tailrace.client.producer.queue.memory import BatchSupply
from tailrace.client.producer.queue.open_batches import OpenBatch
from tailrace.client.retries import Backoff
from tailrace.kernels.record_block import NO_ROOM
from tailrace.model import TopicPartition

QueuedBatch = OpenBatch | SealedBatch | InFlightBatch


class Accumulator:
    """Queues of batches; every method is called under the producer's lock."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        supply: BatchSupply,
        backoff: Backoff,
        closed: Callable[[OpenBatch], None],
    ) -> None:
        """`closed` is called for each open batch that takes no more records."""
        self.supply = supply
        self.queues: dict[TopicPartition, deque[QueuedBatch]] = {}
        """Batches to send by partition, oldest first; no empty queues."""
        self.incomplete: dict[BatchOutcome, QueuedBatch] = {}
        """All batches that are not done, oldest first."""
        self.ready: OrderedDict[TopicPartition, None] = OrderedDict()
        """Partitions whose first batch may be sent, in the order of their turns."""
        self.muted: set[TopicPartition] = set()
        """Partitions with a request in flight, where only one at a time keeps the order."""
        # Reset by `Engine.should_move`.
        self.has_full = False
        """A batch was closed because it was full, so there is something to send."""
        self.is_closed = False
        self.flushes = 0
        """Number of callers that wait in `flush` or for the end of a transaction."""
        self._linger_s = config.linger_ms / 1000
        self._backoff = backoff
        self._closed = closed
        # Kafka's client scans all partitions at each poll. Here a partition becomes ready when its
        # first batch is full, or by a timer, so a poll costs nothing for all others.
        self._timers: list[tuple[float, int, TopicPartition]] = []
        # Decides between timers of the same time, since partitions have no order.
        self._ticket = count()

    def open_batch(self, partition: TopicPartition) -> OpenBatch | None:
        """The batch of a partition that still takes records, or None."""
        queue = self.queues.get(partition)
        last = queue[-1] if queue else None
        return last if isinstance(last, OpenBatch) else None

    def append(self, batch: OpenBatch, prepared: Prepared, *, now_ns: int) -> int | None:
        """Add a record to an open batch and return its index; seal the batch if it is full.

        Returns None if it was full.
        """
        # The encoder may refuse a record that is far from the first one in time.
        if self.supply.makes_room(batch, prepared.size):
            index = batch.append_prepared(prepared, now_ns)
            if index != NO_ROOM:
                return index
        self.has_full = True
        self.queues[batch.partition][-1] = self._sealed(batch)
        self._make_ready(batch.partition)
        return None

    def enqueue(self, batch: OpenBatch | SealedBatch, *, now: float) -> None:
        self.incomplete[batch.outcome] = batch
        queue = self.queues.get(batch.partition)
        if queue is None:
            self.queues[batch.partition] = deque((batch,))
        else:
            # Records go into the last batch only, or their order would change.
            queue[-1] = self._sealed(queue[-1])
            self._make_ready(batch.partition)
            queue.append(batch)
        self._schedule(batch.partition, now)

    def flush_batch(self, outcome: BatchOutcome) -> None:
        """Send the batch of this outcome, and those before it in its queue, without lingering."""
        outcome.is_awaited = True
        # If other batches come first, their turns come at once: they are full.
        queue = self.queues.get(outcome.partition)
        if queue and (queue[0].outcome is outcome or len(queue) > 1):
            self._make_ready(outcome.partition)

    def begin_flush(self) -> None:
        """Send all present batches without lingering, for a flush, a close or lack of memory."""
        for partition in self.queues:
            self._make_ready(partition)

    def wake_timers(self, now: float) -> None:
        """Make partitions ready whose first batch has lingered or backed off long enough."""
        # A timer may be outdated, since none is removed when its batch is sent; then it finds
        # another batch, or none.
        timers = self._timers
        while timers and timers[0][0] <= now:
            partition = heapq.heappop(timers)[2]
            if partition in self.queues:
                self._schedule(partition, now)

    def wake_moved(self, leader_of: Callable[[TopicPartition], object], now: float) -> None:
        """End the retry pause of batches whose partition has a new leader since the attempt."""
        # As Kafka's client since KIP-951: the pause is for a broker that was busy, not for another.
        for partition, queue in self.queues.items():
            batch = queue[0]
            if not isinstance(batch, InFlightBatch) or not batch.pause_s:
                continue
            if leader_of(partition) not in {None, batch.leader}:
                batch.pause_s = 0.0
                self._schedule(partition, now)

    def next_timer(self) -> float | None:
        """The earliest time at which `wake_timers` has something to do, or None."""
        return self._timers[0][0] if self._timers else None

    def take(self, partition: TopicPartition, now: float) -> InFlightBatch:
        """Remove the first batch of a ready partition for a request, and end its turn."""
        queue = self.queues[partition]
        batch = self._sealed(queue.popleft())
        if isinstance(batch, SealedBatch):
            self.incomplete[batch.outcome] = batch = InFlightBatch(batch)
        if queue:
            self.ready.move_to_end(partition)
            self._schedule(partition, now)
        else:
            del self.queues[partition]
            self.ready.pop(partition, None)
        return batch

    def requeue(self, batch: InFlightBatch, *, now: float, index: int, is_moved: bool) -> None:
        """Queue a batch for a retry, at `index` in its queue.

        It pauses first, unless the partition has a new leader since the attempt (KIP-951).
        """
        batch.pause_s = 0.0 if is_moved else self._backoff.pause_s(batch.attempts)
        batch.attempts += 1
        batch.last_attempt_at = now
        self.queues.setdefault(batch.partition, deque()).insert(index, batch)
        self.ready.pop(batch.partition, None)
        self._schedule(batch.partition, now)

    def requeue_parts(self, parts: Sequence[InFlightBatch], *, now: float, index: int) -> None:
        """Queue the parts of a batch that was too large, at `index` in its queue."""
        for part in reversed(parts):
            self.queues.setdefault(part.partition, deque()).insert(index, part)
        # They keep the age of the whole, and `_expire` relies on the order by age.
        incomplete = [*parts, *self.incomplete.values()]
        incomplete.sort(key=lambda each: each.created_at)
        self.incomplete = {each.outcome: each for each in incomplete}
        self._schedule(parts[0].partition, now)

    def withdraw(self, outcome: BatchOutcome) -> ClosedBatch:
        """Remove an incomplete batch from its queue, if it is there, and return it."""
        batch = self.incomplete[outcome]
        queue = self.queues.get(outcome.partition)
        if queue is not None and batch in queue:
            queue.remove(batch)
            if not queue:
                del self.queues[outcome.partition]
                self.ready.pop(outcome.partition, None)
        return self._sealed(batch)

    def mute(self, partition: TopicPartition) -> None:
        self.muted.add(partition)
        self.ready.pop(partition, None)

    def unmute(self, partition: TopicPartition, now: float) -> None:
        if partition in self.muted:
            self.muted.discard(partition)
            if partition in self.queues:
                self._schedule(partition, now)

    def end(self, batch: ClosedBatch) -> None:
        """Forget a batch that has its outcome; release its memory unless a request uses it.

        Idempotent.
        """
        if self.incomplete.pop(batch.outcome, None) is None:
            return
        # An expired batch may still be in a request, whose buffers the socket reads.
        if not (isinstance(batch, InFlightBatch) and batch.is_unanswered):
            self.supply.release(batch)

    def _sealed(self, batch: QueuedBatch) -> ClosedBatch:
        """The batch, which takes no more records."""
        if not isinstance(batch, OpenBatch):
            return batch
        sealed = batch.seal()
        self._closed(batch)
        self.supply.note_sealed(batch)
        self.incomplete[sealed.outcome] = sealed
        return sealed

    def _make_ready(self, partition: TopicPartition) -> None:
        # A flush does not end the pause of a retry: the broker has just refused the batch.
        first = self.queues[partition][0]
        is_paused = isinstance(first, InFlightBatch) and first.pause_s > 0
        if partition not in self.muted and not is_paused:
            self.ready[partition] = None

    def _schedule(self, partition: TopicPartition, now: float) -> None:
        """Make a partition ready, or set a timer for the time when it will be."""
        queue = self.queues[partition]
        if partition in self.muted:
            self.ready.pop(partition, None)
            return
        batch = queue[0]
        due = batch.created_at
        if isinstance(batch, InFlightBatch):
            due = batch.last_attempt_at + batch.pause_s
        elif isinstance(batch, OpenBatch):
            # With callers that wait for memory nothing lingers: only sent batches give it back.
            is_flushing = self.flushes or self.is_closed or self.supply.pool.waiting
            if not is_flushing and not batch.outcome.is_awaited:
                due += self._linger_s
        if due <= now:
            self.ready[partition] = None
        else:
            # The batch that made it ready was sent; the next one lingers for itself.
            self.ready.pop(partition, None)
            heapq.heappush(self._timers, (due, next(self._ticket), partition))
