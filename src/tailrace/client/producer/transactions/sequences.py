"""Sequence numbers: by them brokers know each batch of a producer, so that none is written twice.

Each batch for a partition has the producer's id and epoch and the number of its first record. The
leader takes the number that follows the last one it has, answers a batch that is among its last
five as if it were new, and refuses all others (OUT_OF_ORDER_SEQUENCE_NUMBER). Kafka's words and
rules (KIP-98, KIP-360), with two exceptions:

-   Only an answer to the first batch in flight may restart a partition's numbers. Kafka does so at
    any refusal, also while an earlier batch may be in the log without its answer having come; that
    batch would be written again under its new number.
-   A second batch waits until the first one of an identity is in the log. A leader that does not
    know a producer takes any number from it, so that it would write the second batch after it
    turned the first one away for a moment (NOT_ENOUGH_REPLICAS, a change of leader). This costs
    one round trip per partition and identity.

    next             the number of the next new batch; after 2^31 - 1 comes 0
    in flight        batches with a number and without an outcome, sent or waiting to be sent again
    unresolved       a batch was given up, and nobody knows whether it is in the log: no new batch
                     until those behind it have an outcome, which tells
    restart          new epoch, number 0: the gap in the log is real, or nobody can know

Not here: who asks the cluster for a producer id (`manager`), and encoding.

Invariant: a batch that may be in the log is sent again with the number it had.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.client.producer.batch import ProducerBatch

IN_FLIGHT_MAX: Final = 5
"""Batches per partition: so many does a leader remember of a producer."""

EPOCH_MAX: Final = 32_767
SEQUENCE_LIMIT: Final = 1 << 31

_RETRIABLE = frozenset(code for code in ErrorCode if code.is_retriable)


class Producer(NamedTuple):
    """A producer as the brokers know it."""

    id: int
    epoch: int


NO_PRODUCER: Final = Producer(-1, -1)


class PartitionSequences:
    """The numbers of one partition."""

    __slots__ = ("in_flight", "last_acked", "last_acked_offset", "next", "producer")

    def __init__(self) -> None:
        self.producer = NO_PRODUCER
        """Under whom the batches in flight were numbered."""
        self.next = 0
        self.last_acked = -1
        """Number of the last record that is known to be in the log."""
        self.last_acked_offset = -1
        self.in_flight: list[ProducerBatch] = []
        """In the order of their numbers."""

    @property
    def has_gap(self) -> bool:
        """Whether a number was given that is not known to be in the log."""
        return self.next != (self.last_acked + 1) % SEQUENCE_LIMIT

    def is_first(self, batch: "ProducerBatch") -> bool:
        """Whether no earlier batch is in flight."""
        return bool(self.in_flight) and self.in_flight[0] is batch

    def number(self, batch: "ProducerBatch") -> None:
        """Give a new batch its number."""
        batch.producer_id, batch.producer_epoch = self.producer
        batch.base_sequence = self.next
        self.next = (self.next + batch.record_count) % SEQUENCE_LIMIT
        self.in_flight.append(batch)

    def acked(self, batch: "ProducerBatch", base_offset: int) -> None:
        """Take note that a batch is in the log, at an offset or (-1) somewhere."""
        # Answers of two leaders may come out of order; half of all numbers is far enough to tell.
        ahead = (batch.last_sequence - self.last_acked) % SEQUENCE_LIMIT
        if self.last_acked < 0 or ahead < SEQUENCE_LIMIT // 2:
            self.last_acked = batch.last_sequence
        if base_offset >= 0:
            last_offset = base_offset + batch.record_count - 1
            self.last_acked_offset = max(self.last_acked_offset, last_offset)
        self.remove(batch)

    def remove(self, batch: "ProducerBatch") -> None:
        """The batch has its outcome."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)

    def give_back(self, batch: "ProducerBatch") -> bool:
        """Take back the number of a refused batch that was sent once, if no other follows it."""
        self.remove(batch)
        is_last = (batch.last_sequence + 1) % SEQUENCE_LIMIT == self.next
        if self.in_flight or batch.is_retry or not is_last:
            return False
        self.next = batch.base_sequence
        return True

    def restart(self, producer: Producer) -> None:
        """Number everything in flight anew, from 0 and under this producer."""
        self.producer = producer
        self.next = 0
        self.last_acked = -1
        in_flight, self.in_flight = self.in_flight, []
        for batch in in_flight:
            self.number(batch)
            batch.was_sequence_reset = (
                True  # Until it is sent so: an answer may still be on its way.
            )

    def split(self, parent: "ProducerBatch", parts: Sequence["ProducerBatch"]) -> None:
        """Put the parts of a batch in its place; they share its numbers out."""
        place = self.in_flight.index(parent)
        sequence = parent.base_sequence
        for part in parts:
            part.producer_id, part.producer_epoch = parent.producer_id, parent.producer_epoch
            part.is_transactional = parent.is_transactional
            part.base_sequence = sequence
            sequence = (sequence + part.record_count) % SEQUENCE_LIMIT
        self.in_flight[place : place + 1] = parts


class Sequences:
    """The numbers of all partitions, and the producer's identity."""

    def __init__(self, *, is_transactional: bool) -> None:
        self._is_transactional = is_transactional
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._unresolved: set[TopicPartition] = set()
        self._to_restart: set[TopicPartition] = set()
        self.producer = NO_PRODUCER

    def of(self, partition: TopicPartition) -> PartitionSequences:
        """The numbers of a partition; new ones begin at 0."""
        found = self._partitions.get(partition)
        if found is None:
            found = self._partitions[partition] = PartitionSequences()
        return found

    @property
    def needs_bump(self) -> bool:
        """Whether a partition waits for a new epoch."""
        return bool(self._to_restart)

    def may_send(self, batch: "ProducerBatch") -> bool:
        """Whether the batch, the first in its queue, may be sent now.

        One that was sent before goes alone: when all before it have their outcome. A new one waits
        while something in flight has an older epoch, or an unknown fate.
        """
        partition = batch.partition
        if self.producer == NO_PRODUCER or partition in self._to_restart:
            return False
        state = self.of(partition)
        if batch.base_sequence >= 0:
            return state.is_first(batch)
        if partition in self._unresolved or len(state.in_flight) >= IN_FLIGHT_MAX:
            return False
        is_known = state.producer == self.producer and state.last_acked >= 0
        return is_known or not state.in_flight

    def assign(self, batch: "ProducerBatch") -> None:
        """Give a batch that `may_send` its identity, unless it has one."""
        batch.was_sequence_reset = False
        if batch.base_sequence >= 0:
            return
        state = self.of(batch.partition)
        if state.producer != self.producer:
            state.restart(self.producer)
        batch.is_transactional = self._is_transactional
        state.number(batch)

    def place_in(self, queue: Iterable["ProducerBatch"], batch: "ProducerBatch") -> int:
        """Where a batch belongs that goes back into its partition's queue, by the numbers."""
        in_flight = self.of(batch.partition).in_flight
        earlier = in_flight[: in_flight.index(batch)]
        return sum(queued in earlier for queued in queue) if earlier else 0

    def can_retry(self, batch: "ProducerBatch", code: int, *, log_start_offset: int) -> bool:
        """Whether to send a batch again after this answer; may ask for a restart."""
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return self._can_retry_gap(batch)
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            return self._can_retry_unknown(batch, log_start_offset)
        return code in _RETRIABLE

    def _can_retry_gap(self, batch: "ProducerBatch") -> bool:
        """Behind a batch without outcome it has to be so; else a record is missing in the log."""
        if batch.was_sequence_reset or not self.of(batch.partition).is_first(batch):
            return True
        if self._is_transactional:
            return False
        self._to_restart.add(batch.partition)
        return True

    def _can_retry_unknown(self, batch: "ProducerBatch", log_start_offset: int) -> bool:
        """The leader forgot the producer: it was idle for long, or its records were deleted."""
        state = self.of(batch.partition)
        if log_start_offset < 0 or batch.was_sequence_reset or not state.is_first(batch):
            return True
        if not self._is_transactional:
            self._to_restart.add(batch.partition)
            return True
        if state.last_acked_offset >= log_start_offset:
            return False
        state.restart(self.producer)
        return True

    def completed(self, batch: "ProducerBatch", base_offset: int) -> None:
        """The batch is in the log; `base_offset` -1 if nobody knows where."""
        self.of(batch.partition).acked(batch, base_offset)

    def failed(self, batch: "ProducerBatch", *, was_refused: bool) -> None:
        """The batch is given up; `was_refused` if a broker said that it does not take it."""
        if batch.base_sequence < 0:
            return
        state = self.of(batch.partition)
        if was_refused and state.give_back(batch):
            return
        state.remove(batch)
        self._unresolved.add(batch.partition)

    def forget(self, partition: TopicPartition) -> None:
        """Begin the partition's next batch at 0, since its leader knows nothing of the producer."""
        state = self.of(partition)
        state.next, state.last_acked = 0, -1
        self._unresolved.discard(partition)

    def split(self, parent: "ProducerBatch", parts: Sequence["ProducerBatch"]) -> None:
        """Put the parts of a batch in its place."""
        self.of(parent.partition).split(parent, parts)

    @property
    def is_resolved(self) -> bool:
        """Whether it is known of every batch that ended whether it is in the log."""
        return not self._unresolved and not self._to_restart

    def resolve(self) -> bool:
        """Look at the unresolved partitions; True if one has a gap, or may have.

        Without transactions, such a partition is restarted by the next `bump`.
        """
        gaps = set()
        for partition in [each for each in self._unresolved if not self.of(each).in_flight]:
            self._unresolved.remove(partition)
            if self.of(partition).has_gap:
                gaps.add(partition)
        if not self._is_transactional:
            self._to_restart |= gaps
        return bool(gaps)

    def bump(self) -> None:
        """Go to the next epoch, or to no identity at all after the last one."""
        if self.producer.epoch >= EPOCH_MAX:
            self.producer = NO_PRODUCER
        elif self.producer != NO_PRODUCER:
            self.become(Producer(self.producer.id, self.producer.epoch + 1))

    def become(self, producer: Producer) -> None:
        """Take an identity, and restart the partitions that wait for one."""
        self.producer = producer
        for partition in self._to_restart:
            self.of(partition).restart(producer)
            self._unresolved.discard(partition)
        self._to_restart.clear()

    def clear(self) -> None:
        """Begin every partition at 0: the epoch is new, and nothing is in flight."""
        self._partitions.clear()
        self._unresolved.clear()
        self._to_restart.clear()
