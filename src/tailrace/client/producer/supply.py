"""`BatchSupply`: new batches, and the memory that they and their records take.

A batch takes its memory from the `BufferPool` when it is made: its size, which its records have
while they wait and its bytes have afterwards, and `RECORD_MEMORY` for each record it is expected to
hold. If more of them come, it takes more.

Not here: where batches wait (`accumulator`), and waiting for memory (the faces).

Invariant: memory of a batch is given back exactly once, and not while a request refers to it.
"""

from typing import TYPE_CHECKING

from tailrace.client.producer.batch import RECORD_MEMORY, ProducerBatch
from tailrace.client.producer.buffer_pool import BufferPool
from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.encoding import BATCH_OVERHEAD, CompressionRatios
from tailrace.client.producer.receipts import Waiting
from tailrace.model import Codec, TopicPartition

if TYPE_CHECKING:
    from tailrace.client.producer.slices import ColumnSlice

_RECORDS_EXPECTED_MAX = 256
"""Most records that a new batch has memory for; doubled whenever they are used up."""

_HEADROOM = 1.05
"""How much worse than expected a batch may compress and still fit (Kafka's own figure)."""

_RATIO_MIN = 0.02
"""However well records compress, a batch holds no more than fifty times its size of them."""


class BatchSupply:
    """Makes batches while there is memory."""

    def __init__(self, config: ProducerConfig, waiting: Waiting) -> None:
        self.pool = BufferPool(config.buffer_memory, config.batch_size)
        self.ratios = CompressionRatios()
        self._batch_size = config.batch_size
        self._codec = config.compression_type
        self._waiting = waiting

    def new_batch(
        self, partition: TopicPartition, *, size: int, now: float, granted: int = 0
    ) -> ProducerBatch | None:
        """An empty batch with room for a record of `size` bytes; None while there is no memory.

        `granted` bytes were taken from the pool for it already (`memory_for` that record).
        """
        reserved = granted or self.memory_for(partition.topic, size)
        if not granted and not self.pool.allocate(reserved):
            return None
        limit = self._size_limit(partition.topic, size)
        batch = ProducerBatch(
            partition,
            self._waiting,
            created_at=now,
            size_limit=limit,
            reserved=reserved,
            count_limit=_records_expected(limit, size),
        )
        batch.bytes_left -= BATCH_OVERHEAD
        return batch

    def new_slice(
        self, partition: TopicPartition, columns: "ColumnSlice", *, now: float, granted: int = 0
    ) -> ProducerBatch | None:
        """A closed batch of columns; None while there is no memory for its bytes."""
        reserved = granted or self.memory_for_slice(columns)
        if not granted and not self.pool.allocate(reserved):
            return None
        batch = ProducerBatch(
            partition,
            self._waiting,
            created_at=now,
            size_limit=columns.size_bound,
            reserved=reserved,
            count_limit=0,
        )
        batch.bytes_left = 0
        batch.columns = columns
        batch.record_count = columns.record_count
        batch.is_closed = True
        return batch

    def memory_for(self, topic: str, size: int) -> int:
        """Bytes that `new_batch` takes from the pool."""
        limit = self._size_limit(topic, size)
        wanted = limit + _records_expected(limit, size) * RECORD_MEMORY
        return min(wanted, self.pool.total)

    def memory_for_slice(self, columns: "ColumnSlice") -> int:
        """Bytes that `new_slice` takes from the pool."""
        return min(columns.size_bound, self.pool.total)

    def covers(self, batch: ProducerBatch) -> bool:
        """Whether there is memory for one more record, taken from the pool when it is due."""
        if len(batch.values) < batch.count_limit:
            return True
        more = batch.count_limit * RECORD_MEMORY
        if not self.pool.allocate(min(more, self.pool.total)):
            return False
        batch.reserved += min(more, self.pool.total)
        batch.count_limit *= 2
        return True

    def release(self, batch: ProducerBatch) -> None:
        """Give a batch's memory back; again does nothing."""
        if batch.block is not None:
            self.pool.give_block(batch.block)
            batch.block = None
        reserved, batch.reserved = batch.reserved, 0
        if reserved:
            self.pool.deallocate(reserved)

    def _size_limit(self, topic: str, size: int) -> int:
        limit = self._batch_size
        if self._codec is not Codec.NONE:
            expected = self.ratios.estimate(topic, self._codec) * _HEADROOM
            limit = int(limit / max(expected, _RATIO_MIN))
        return max(limit, BATCH_OVERHEAD + size)


def _records_expected(size_limit: int, size: int) -> int:
    return min(_RECORDS_EXPECTED_MAX, size_limit // size + 1)
