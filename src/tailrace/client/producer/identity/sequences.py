"""`Sequences`: the sequence numbers of batches, by which brokers detect duplicates and gaps.

Each batch for a partition has the producer's id and epoch and the number of its first record. The
leader appends a batch whose number follows the last one it has, acknowledges a duplicate of its
last five batches without appending it, and refuses all others (OUT_OF_ORDER_SEQUENCE_NUMBER).
These are Kafka's terms and rules (KIP-98, KIP-360), but for the exceptions of decision 15, which
are noted where they apply.

    next             the number of the next new batch; 0 follows 2^31 - 1
    in flight        batches with a number and without an outcome, sent or waiting for a retry
    unresolved       a batch failed and may be in the log: no new batch is sent until the batches
                     after it have an outcome, which shows whether it is
    restart          new epoch, number 0: the log has a gap, or that cannot be found out

Not here: the request for a producer id (`flow`), and encoding.

Invariant: a batch that may be in the log is sent again with the number it had.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.client.producer.queue.batches import BatchIdentity, InFlightBatch
from tailrace.model import PRODUCER_EPOCH_MAX, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.client.producer.queue.accumulator import QueuedBatch
    from tailrace.client.producer.queue.batches import ClosedBatch

REMEMBERED: Final = 5
"""Batches of each producer that the leader of a partition remembers, to detect duplicates."""

SEQUENCE_LIMIT: Final = 1 << 31

IDLE_S: Final = 60.0
"""Seconds without a batch after which the leader of a partition may have forgotten the producer.

Brokers forget it after `producer.id.expiration.ms`, a day by default, and do not tell clients.
"""

_RETRIABLE = frozenset(code for code in ErrorCode if code.is_retriable)
_NUMBER_REFUSED = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}


class ProducerIdAndEpoch(NamedTuple):
    """The id and epoch by which brokers know a producer."""

    id: int
    epoch: int


NO_PRODUCER: Final = ProducerIdAndEpoch(-1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedIdentity:
    """A producer id, an epoch and sequence numbers that the caller chooses, and keeps.

    A later process can read from a log how far the numbers came, and go on there. Senders of the
    same records under the same numbers may run at the same time: a leader takes each number once.

    Raises:
        ValueError: a number is out of its range.
    """

    producer_id: int
    producer_epoch: int
    first_sequences: Mapping[TopicPartition, int]
    """Number of the next record by partition; 0 for those that are not named."""

    def __post_init__(self) -> None:
        if self.producer_id < 0 or not 0 <= self.producer_epoch <= PRODUCER_EPOCH_MAX:
            raise ValueError(
                f"there is no producer id {self.producer_id} with epoch {self.producer_epoch}"
            )
        for partition, sequence in self.first_sequences.items():
            if not 0 <= sequence < SEQUENCE_LIMIT:
                raise ValueError(f"{partition}: there is no sequence number {sequence}")


class PartitionSequences:
    """The sequence numbers of one partition."""

    __slots__ = (
        "count",
        "in_flight",
        "is_known",
        "last_acked",
        "last_acked_offset",
        "newest_created_at",
        "next",
        "producer",
    )

    def __init__(self) -> None:
        self.producer = NO_PRODUCER
        """The id and epoch of the batches in flight."""
        self.next = 0
        self.count = 0
        """Batches that got a number."""
        self.last_acked = -1
        """Number of the last record that is known to be in the log."""
        self.last_acked_offset = -1
        self.is_known = False
        """Whether the leader has the producer's state: it has taken a batch since `restart`, and
        the producer was not idle for `IDLE_S` since."""
        self.newest_created_at = 0.0
        """Monotonic seconds at which the last batch with a number was created."""
        self.in_flight: list[InFlightBatch] = []
        """Batches without an outcome, in the order of their numbers."""

    @property
    def has_gap(self) -> bool:
        """Whether a number was assigned that is not known to be in the log."""
        return self.next != (self.last_acked + 1) % SEQUENCE_LIMIT

    @property
    def span(self) -> int:
        """Batches that got a number since the first one in flight, with that; 0 without one."""
        return self.count - self.in_flight[0].ordinal if self.in_flight else 0

    def is_first(self, batch: InFlightBatch) -> bool:
        return bool(self.in_flight) and self.in_flight[0] is batch

    def number(self, batch: InFlightBatch) -> None:
        """Assign the next number to a new batch."""
        batch.identity = BatchIdentity(*self.producer, self.next)
        self.next = (self.next + batch.record_count) % SEQUENCE_LIMIT
        batch.ordinal = self.count
        self.count += 1
        if not self.in_flight and batch.created_at >= self.newest_created_at + IDLE_S:
            self.is_known = False
        self.newest_created_at = batch.created_at
        self.in_flight.append(batch)

    def acked(self, batch: InFlightBatch, base_offset: int) -> None:
        """Note that a batch is in the log; `base_offset` is -1 if it is not known."""
        # Answers of two leaders may come out of order. Numbers wrap around, so a number counts as
        # later if it is less than half of all numbers ahead.
        ahead = (batch.last_sequence - self.last_acked) % SEQUENCE_LIMIT
        if self.last_acked < 0 or ahead < SEQUENCE_LIMIT // 2:
            self.last_acked = batch.last_sequence
        if base_offset >= 0:
            last_offset = base_offset + batch.record_count - 1
            self.last_acked_offset = max(self.last_acked_offset, last_offset)
        self.is_known = True
        self.remove(batch)

    def remove(self, batch: InFlightBatch) -> None:
        if batch in self.in_flight:
            self.in_flight.remove(batch)

    def give_back(self, batch: InFlightBatch) -> bool:
        """Reuse the number of a refused batch that was sent once, if no batch follows it.

        Returns whether the number was taken back.
        """
        # If it was sent twice, the first may have been written: the next batch under its number
        # would be acknowledged as its duplicate, and never written. Kafka's client lowers the
        # numbers of all batches that follow, or takes a new epoch for each refusal (decision 15).
        self.remove(batch)
        is_last = (batch.last_sequence + 1) % SEQUENCE_LIMIT == self.next
        # With others in flight after it, their outcome shows whether there is a gap.
        if self.in_flight or batch.is_retry or not is_last:
            return False
        self.next = batch.base_sequence
        return True

    def restart(self, producer: ProducerIdAndEpoch) -> None:
        """Assign new numbers from 0, under this id and epoch, to all batches in flight."""
        self.producer = producer
        self.next = 0
        self.last_acked = -1
        self.is_known = False
        in_flight, self.in_flight = self.in_flight, []
        for batch in in_flight:
            self.number(batch)
            # Until it is sent with the new number: an answer to the old one may still come.
            batch.was_sequence_reset = True

    def split(self, parent: InFlightBatch, parts: Sequence[InFlightBatch]) -> None:
        index = self.in_flight.index(parent)
        sequence = parent.base_sequence
        for part in parts:
            part.identity = parent.identity._replace(base_sequence=sequence)
            sequence = (sequence + part.record_count) % SEQUENCE_LIMIT
        for ordinal, part in enumerate(parts, parent.ordinal):
            part.ordinal = ordinal
        for later in self.in_flight[index + 1 :]:
            later.ordinal += len(parts) - 1
        self.count += len(parts) - 1
        self.in_flight[index : index + 1] = parts


class Sequences:
    """The sequence numbers of all partitions, and the producer's id and epoch."""

    def __init__(self, *, is_transactional: bool) -> None:
        self._is_transactional = is_transactional
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._unresolved: set[TopicPartition] = set()
        self._to_restart: set[TopicPartition] = set()
        self.producer = NO_PRODUCER
        self.is_owned = False
        """Whether the caller owns id, epoch and numbers."""

    def adopt(self, identity: OwnedIdentity) -> None:
        """Use this id and epoch from now on, and begin with its numbers; nothing has any yet."""
        self.is_owned = True
        self.producer = ProducerIdAndEpoch(identity.producer_id, identity.producer_epoch)
        for partition, sequence in identity.first_sequences.items():
            state = self.of(partition)
            state.producer, state.next = self.producer, sequence

    def of(self, partition: TopicPartition) -> PartitionSequences:
        """The numbers of a partition; new ones begin at 0."""
        found = self._partitions.get(partition)
        if found is None:
            found = self._partitions[partition] = PartitionSequences()
        return found

    @property
    def needs_bump(self) -> bool:
        return bool(self._to_restart)

    def may_send(self, batch: "QueuedBatch") -> bool:
        """Return whether the batch, the first in its queue, may be sent now."""
        partition = batch.partition
        if self.producer == NO_PRODUCER or partition in self._to_restart:
            return False
        state = self.of(partition)
        # A retry waits until all batches before it have their outcome: a leader takes numbers in
        # order only, and its answer to the first decides about those that follow.
        if isinstance(batch, InFlightBatch) and batch.base_sequence >= 0:
            return state.is_first(batch)
        # Not the batches in flight alone: a batch that is repeated while those after it were
        # acknowledged would be older than all that the leader remembers, be refused as out of
        # order, and be written a second time. Kafka's client sends on (decision 15).
        if partition in self._unresolved or state.span >= REMEMBERED:
            return False
        # After a new id or epoch, and after a pause, the second batch of a partition waits until
        # the first is in the log (Kafka's does not). A leader that does not know a producer accepts
        # any number, so it could append the second batch after it refused the first for a moment
        # (NOT_ENOUGH_REPLICAS, a new leader). The wait costs one round trip.
        is_known = state.producer == self.producer and state.is_known
        return is_known or not state.in_flight

    def assign(self, batch: InFlightBatch) -> None:
        """Assign id, epoch and number to a batch that `may_send`, unless it has them."""
        batch.was_sequence_reset = False
        if batch.base_sequence >= 0:
            return
        state = self.of(batch.partition)
        if state.producer != self.producer:
            state.restart(self.producer)
        state.number(batch)

    def index_in(self, queue: Iterable["QueuedBatch"], batch: InFlightBatch) -> int:
        """The index, by sequence number, at which a batch goes back into its partition's queue."""
        # Batches of a partition fail in any order, since up to five are in flight.
        in_flight = self.of(batch.partition).in_flight
        earlier = in_flight[: in_flight.index(batch)]
        return sum(queued in earlier for queued in queue) if earlier else 0

    def can_retry(self, batch: InFlightBatch, code: int, *, log_start_offset: int) -> bool:
        """Return whether to retry a batch after this error code; may mark a restart."""
        # Owned numbers never restart: their owner has to know under which number a record is in the
        # log. So the first batch in flight fails if its number is refused (decision 49).
        if self.is_owned and code in _NUMBER_REFUSED:
            return not self.of(batch.partition).is_first(batch)
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return self._can_retry_gap(batch)
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            return self._can_retry_unknown(batch, log_start_offset)
        return code in _RETRIABLE

    def _can_retry_gap(self, batch: InFlightBatch) -> bool:
        """Return whether to retry after OUT_OF_ORDER_SEQUENCE_NUMBER."""
        # It is expected while an earlier batch has no outcome; otherwise the log lacks a record.
        # Kafka restarts the numbers after any refusal, even while an earlier batch may be in the
        # log and its answer is missing; that batch would be written twice (decision 15).
        if batch.was_sequence_reset or not self.of(batch.partition).is_first(batch):
            return True
        if self._is_transactional:
            return False
        self._to_restart.add(batch.partition)
        return True

    def _can_retry_unknown(self, batch: InFlightBatch, log_start_offset: int) -> bool:
        """Return whether to retry after UNKNOWN_PRODUCER_ID."""
        # The leader forgot the producer because it was idle for producer.id.expiration.ms, or, on
        # brokers before KIP-360, because retention deleted its last records.
        state = self.of(batch.partition)
        if log_start_offset < 0 or batch.was_sequence_reset or not state.is_first(batch):
            return True
        if not self._is_transactional:
            self._to_restart.add(batch.partition)
            return True
        # Records before the log start were deleted, which explains why the leader forgot. If our
        # last record is after it, records were lost.
        if state.last_acked_offset >= log_start_offset:
            return False
        state.restart(self.producer)
        return True

    def completed(self, batch: InFlightBatch, base_offset: int) -> None:
        self.of(batch.partition).acked(batch, base_offset)

    def failed(self, batch: "ClosedBatch", *, was_refused: bool) -> None:
        """Note that the batch has failed; `was_refused` says that a broker refused it."""
        if not isinstance(batch, InFlightBatch) or batch.base_sequence < 0:
            return
        state = self.of(batch.partition)
        if was_refused and state.give_back(batch):
            return
        state.remove(batch)
        self._unresolved.add(batch.partition)

    def forget(self, partition: TopicPartition) -> None:
        """Number the partition's next batch 0, because its leader has forgotten the producer."""
        state = self.of(partition)
        state.next, state.last_acked, state.is_known = 0, -1, False
        self._unresolved.discard(partition)

    def split(self, parent: InFlightBatch, parts: Sequence[InFlightBatch]) -> None:
        self.of(parent.partition).split(parent, parts)

    @property
    def is_resolved(self) -> bool:
        """Whether it is known for every batch with an outcome whether it is in the log."""
        return not self._unresolved and not self._to_restart

    def resolve(self) -> bool:
        """Check unresolved partitions without batches in flight; returns whether one has a gap."""
        gaps = set()
        for partition in [each for each in self._unresolved if not self.of(each).in_flight]:
            self._unresolved.remove(partition)
            if self.of(partition).has_gap:
                gaps.add(partition)
        # The next `bump` restarts them. A transaction fails instead: it has lost a record.
        if not self._is_transactional:
            self._to_restart |= gaps
        return bool(gaps)

    def bump(self) -> None:
        """Take the next epoch, without a request (KIP-360): nobody else has this id."""
        # After the last epoch there is no id at all, so that a new one is requested.
        if self.producer.epoch >= PRODUCER_EPOCH_MAX:
            self.producer = NO_PRODUCER
        elif self.producer != NO_PRODUCER:
            self.become(ProducerIdAndEpoch(self.producer.id, self.producer.epoch + 1))

    def become(self, producer: ProducerIdAndEpoch) -> None:
        """Set the id and epoch, and restart the partitions that wait for them."""
        self.producer = producer
        for partition in self._to_restart:
            self.of(partition).restart(producer)
            self._unresolved.discard(partition)
        self._to_restart.clear()

    def clear(self) -> None:
        """Number every partition from 0 again; the epoch is new, and nothing is in flight."""
        self._partitions.clear()
        self._unresolved.clear()
        self._to_restart.clear()
