"""`BatchSupply`: creates batches, and accounts for the memory of batches and their records.

A batch takes memory from the `BufferPool` as it grows: for as many records as the last batch of its
topic had, or for a few if there was none or memory is short, then twice as much whenever that is
used up, until it has `batch.size`. So a large `batch.size` costs nothing for partitions with few
records. The memory covers the encoded records, and a timestamp for each.

Not here: where batches wait (`accumulator`), and waiting for memory (`producer`, `lines`).

Invariant: memory of a batch is given back exactly once, and not while a request refers to it.
"""

from typing import TYPE_CHECKING

from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.intake.encoding import BATCH_OVERHEAD, CompressionRatios
from tailrace.client.producer.outcome import BatchOutcome, Waiting
from tailrace.client.producer.queue.buffer_pool import BufferPool
from tailrace.client.producer.queue.in_flight_batch import ClosedBatch, InFlightBatch
from tailrace.client.producer.queue.open_batch import OpenBatch
from tailrace.client.producer.queue.sealed_batch import FilledRecords, SealedBatch
from tailrace.kernels.record_block import TIMESTAMP_SIZE
from tailrace.model import Codec, TopicPartition

if TYPE_CHECKING:
    from tailrace.client.producer.intake.slices import ColumnSlice

_FIRST_BYTES = 4096
_FIRST_RECORDS = 32
"""Bytes and records for which a new batch gets memory, unless its first record is larger."""

_SPARE = 4
"""A batch gets as much room as the last one used, and a fourth of it more."""

_OTHERS = 8
"""So many batches of that size must find memory; else a batch begins small."""

_HEADROOM = 1.05
"""Factor by which the compression may be worse than expected (Kafka's figure)."""

_RATIO_MIN = 0.02
"""Lower bound of the expected ratio: a batch takes records of at most fifty times its size."""


class BatchSupply:
    """Creates batches while there is memory."""

    def __init__(self, config: ProducerConfig, waiting: Waiting) -> None:
        self.pool = BufferPool(config.buffer_memory, config.batch_size)
        self.ratios = CompressionRatios()
        self._batch_size = min(config.batch_size, config.max_request_size)
        self._codec = config.compression_type
        self._waiting = waiting
        self._usual: dict[str, tuple[int, int]] = {}
        """By topic: bytes and records that a new batch gets room for at once; see `note_sealed`."""
        self._caps: dict[str, int] = {}
        """By topic: the largest batch size, after its broker has refused a larger one."""

    def new_batch(
        self, partition: TopicPartition, *, size: int, now: float, granted: int = 0
    ) -> OpenBatch | None:
        """An empty batch with room for a record of `size` bytes; None while there is no memory.

        `granted` bytes (`memory_for(size)`) were taken from the pool already.
        """
        size_max = max(self._size_max(partition.topic), BATCH_OVERHEAD + size)
        size_limit = max(min(_FIRST_BYTES, size_max), BATCH_OVERHEAD + size)
        count_limit, reserved = _FIRST_RECORDS, granted
        usual = self._usual.get(partition.topic)
        if not granted and usual is not None:
            room = min(max(usual[0], size_limit), size_max)
            wanted = room + usual[1] * TIMESTAMP_SIZE
            # Other partitions may need what this batch perhaps does not use.
            if _OTHERS * wanted <= self.pool.available and self.pool.allocate(wanted):
                reserved, size_limit, count_limit = wanted, room, usual[1]
        if not reserved:
            reserved = self.memory_for(size)
            if not self.pool.allocate(reserved):
                return None
        return OpenBatch(
            BatchOutcome(partition, self._waiting),
            created_at=now,
            size_limit=size_limit,
            size_max=size_max,
            count_limit=count_limit,
            reserved=reserved,
            # A block of the pool cannot grow, since others may still look at its old content.
            block=self.pool.take_used_block() if size_max <= self.pool.block_size else None,
        )

    def new_slice(
        self,
        partition: TopicPartition,
        columns: "ColumnSlice | FilledRecords",
        *,
        now: float,
        granted: int = 0,
    ) -> SealedBatch | None:
        """A batch of columns; None while there is no memory for its bytes."""
        reserved = granted or self.memory_for_slice(columns)
        if not granted and not self.pool.allocate(reserved):
            return None
        return SealedBatch(
            outcome=BatchOutcome(partition, self._waiting),
            records=columns.records if isinstance(columns, FilledRecords) else columns,
            record_count=columns.record_count,
            size=columns.size_bound,
            created_at=now,
            reserved=reserved,
        )

    def memory_for(self, size: int) -> int:
        """Bytes that `new_batch` takes from the pool."""
        first = max(_FIRST_BYTES, BATCH_OVERHEAD + size) + _FIRST_RECORDS * TIMESTAMP_SIZE
        return min(first, self.pool.total)

    def memory_for_slice(self, columns: "ColumnSlice | FilledRecords") -> int:
        """Bytes that `new_slice` takes from the pool."""
        return min(columns.memory, self.pool.total)

    def makes_room(self, batch: OpenBatch, size: int) -> bool:
        """Return whether an open batch takes one more record; reserves more memory if needed."""
        used, count = batch.position, batch.record_count
        if not count:
            return True
        limit, records = batch.limit, batch.count_limit
        if used + size > batch.size_max:
            return False
        if used + size <= limit and count < records:
            return True
        limit, records = min(max(2 * limit, used + size), batch.size_max), 2 * records
        more = limit - batch.limit + (records - batch.count_limit) * TIMESTAMP_SIZE
        if more > self.pool.total or not self.pool.allocate(more):
            return False
        batch.reserved += more
        batch.grow(size_limit=limit, count_limit=records)
        return True

    def note_sealed(self, batch: OpenBatch) -> None:
        """Give the next batch of the topic at once the room that this one has used, and a spare."""
        size, count = batch.position, batch.record_count
        self._usual[batch.partition.topic] = (
            max(_FIRST_BYTES, size + size // _SPARE),
            max(_FIRST_RECORDS, count + count // _SPARE),
        )

    def note_too_large(self, topic: str, size: int) -> None:
        """Limit the topic's batches to half of `size` bytes, which a broker has refused."""
        self._caps[topic] = min(self.batch_size(topic), max(1, size // 2))

    def batch_size(self, topic: str) -> int:
        """The largest size in bytes of the topic's batches."""
        return min(self._batch_size, self._caps.get(topic, self._batch_size))

    def release(self, batch: ClosedBatch) -> None:
        """Return a batch's memory to the pool; called once for each batch."""
        sealed = batch.sealed if isinstance(batch, InFlightBatch) else batch
        if isinstance(batch, InFlightBatch) and batch.block is not None:
            self.pool.give_block(batch.block)
        if sealed.reserved:
            self.pool.deallocate(sealed.reserved)

    def _size_max(self, topic: str) -> int:
        """Estimated bytes of records that compress to `batch.size`."""
        size = self.batch_size(topic)
        if self._codec is Codec.NONE:
            return size
        expected = self.ratios.estimate(topic, self._codec) * _HEADROOM
        return int(size / max(expected, _RATIO_MIN))
