"""The memory of batches: `BufferPool` counts it, and `BatchSupply` gives it to batches.

The pool is bounded by `buffer.memory`: a count of bytes, from which `allocate` takes and to which
`deallocate` returns, and a free list of blocks of `batch.size` bytes, so that encoding a batch
needs no new allocation.

A batch takes memory as it grows: for as many records as the last batch of its topic had, or for a
few if there was none or memory is short, then twice as much whenever that is used up, until it has
`batch.size`. So a large `batch.size` costs nothing for partitions with few records. The memory
covers the encoded records, and a timestamp for each.

Not here: where batches wait (`accumulator`), and waiting for memory (`waits`).

Invariant: `available` and the bytes granted and not yet returned add up to `total`. Memory of a
batch is given back exactly once, and not while a request refers to it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.errors import ClosedProducerError
from tailrace.client.producer.intake.encoding import BATCH_OVERHEAD
from tailrace.client.producer.outcome import BatchOutcome, Waiting
from tailrace.client.producer.queue.batches import (
    ClosedBatch,
    FilledRecords,
    InFlightBatch,
    SealedBatch,
)
from tailrace.client.producer.queue.open_batches import OpenBatch
from tailrace.errors import RecordTooLargeError
from tailrace.kernels.record_block import TIMESTAMP_SIZE
from tailrace.model import Codec, TopicPartition

if TYPE_CHECKING:
    from tailrace.client.producer.intake.slices import ColumnSlice


Granted = Callable[[Exception | None], None]
"""Called with None when the bytes are granted, or with the error why they never will be.

Called from within `wait`, `cancel`, `deallocate` or `close`; it may not call the pool itself.
"""


class Waiter:
    """A caller that waits for `size` bytes."""

    __slots__ = ("granted", "size")

    def __init__(self, size: int, granted: Granted) -> None:
        self.size = size
        self.granted = granted


class BufferPool:
    """`total` bytes to give out, and a free list of blocks of `block_size` bytes.

    It never blocks: it calls `granted`, and the caller blocks its thread or task until then.
    """

    def __init__(self, total: int, block_size: int) -> None:
        self.total = total
        self.block_size = block_size
        self.available = total
        """Bytes that are not given out."""
        # Served strictly in order, as in Kafka, and `allocate` fails while there is a waiter, so
        # that small requests cannot starve a large one.
        self._waiters: deque[Waiter] = deque()
        self._blocks: list[bytearray] = []
        self._is_closed = False

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def allocate(self, size: int) -> bool:
        """Take `size` bytes at once; False if there are not enough, or there is a waiter.

        Raises:
            RecordTooLargeError: `size` is larger than the pool.
            ClosedProducerError: after `close`.
        """
        self._check(size)
        if self._waiters or size > self.available:
            return False
        self.available -= size
        return True

    def wait(self, size: int, granted: Granted) -> Waiter:
        """Wait for `size` bytes; `granted` is called once, unless `cancel` is called first.

        Raises:
            RecordTooLargeError: `size` is larger than the pool.
            ClosedProducerError: after `close`.
        """
        self._check(size)
        waiter = Waiter(size, granted)
        self._waiters.append(waiter)
        self._serve()  # Bytes may have come since `allocate` failed.
        return waiter

    def cancel(self, waiter: Waiter) -> bool:
        """Stop waiting; False if `granted` was called already."""
        try:
            self._waiters.remove(waiter)
        except ValueError:
            return False
        self._serve()  # The next waiter may want less than this one.
        return True

    def deallocate(self, size: int) -> None:
        """Return bytes, also after `close`, and serve waiters."""
        self.available += size
        assert self.available <= self.total, "more was given back than taken"
        self._serve()

    @contextmanager
    def returning(self, granted: int) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.deallocate(granted)
            raise

    def take_block(self) -> bytearray:
        """A block of `block_size` bytes with any content; give it back or drop it."""
        return self.take_used_block() or bytearray(self.block_size)

    def take_used_block(self) -> bytearray | None:
        """A block that was given back, or None if there is none."""
        return self._blocks.pop() if self._blocks else None

    def give_block(self, block: bytearray) -> None:
        """Keep a block for reuse, if it has the right size and there are not too many."""
        # Blocks of other sizes are of records larger than a batch, which are rare.
        if len(block) == self.block_size and len(self._blocks) < self.total // self.block_size:
            self._blocks.append(block)

    def close(self) -> None:
        """Grant nothing more: waiters and later callers get a `ClosedProducerError`."""
        self._is_closed = True
        self._blocks.clear()
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            waiter.granted(ClosedProducerError("the producer was closed while a record waited"))

    def _check(self, size: int) -> None:
        if self._is_closed:
            raise ClosedProducerError("the producer is closed")
        if size > self.total:
            raise RecordTooLargeError(size, limit=self.total, setting="buffer.memory")

    def _serve(self) -> None:
        while self._waiters and self._waiters[0].size <= self.available:
            waiter = self._waiters.popleft()
            self.available -= waiter.size
            waiter.granted(None)


class CompressionRatios:
    """Estimated compression ratio of each topic, computed as in Kafka's clients."""

    _BETTER_STEP: Final = 0.005
    _WORSE_STEP: Final = 0.05

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, Codec], float] = {}

    def estimate(self, topic: str, codec: Codec) -> float:
        return self._ratios.get((topic, codec), 1.0)

    def observe(self, topic: str, codec: Codec, ratio: float) -> None:
        """Note the ratio of a batch."""
        # A worse one raises the estimate at once and a better one lowers it slowly: too large a
        # batch is refused and sent again in parts, too small a one costs little.
        known = self.estimate(topic, codec)
        if ratio > known:
            known = max(known + self._WORSE_STEP, ratio)
        elif ratio < known:
            known = max(known - self._BETTER_STEP, ratio)
        self._ratios[topic, codec] = known

    def reset(self, topic: str, codec: Codec, ratio: float) -> None:
        """Restart at 1.0, or at `ratio` if that is more, after a batch was too large."""
        self._ratios[topic, codec] = max(1.0, ratio)


_FIRST_BYTES = 4096
_FIRST_RECORDS = 32
"""Bytes and records for which a new batch gets memory, unless its first record is larger."""

_SPARE = 4
"""A batch gets as much room as the last one used, and a fourth of it more."""

_OTHERS = 8
"""Number of batches of that size for which there must be memory; else a batch begins small."""

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
        return min(columns.memory, self.pool.total)

    def makes_room(self, batch: OpenBatch, size: int) -> bool:
        """Return whether an open batch takes one more record; reserves more memory if needed."""
        used, count = batch.position, batch.record_count
        if not count:
            return True  # The first record has its room, however large it is.
        limit, records = batch.limit, batch.count_limit
        if used + size > batch.size_max:
            return False
        if used + size <= limit and count < records:
            return True
        limit, records = min(max(2 * limit, used + size), batch.size_max), 2 * records
        more = limit - batch.limit + (records - batch.count_limit) * TIMESTAMP_SIZE
        # Without memory the batch is sealed as it is, which frees some instead of waiting for it.
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
        # Else each batch of a topic with a low max.message.bytes would be refused (decision 16).
        self._caps[topic] = min(self.batch_size(topic), max(1, size // 2))

    def batch_size(self, topic: str) -> int:
        """The largest size in bytes of the topic's batches."""
        return min(self._batch_size, self._caps.get(topic, self._batch_size))

    def release(self, batch: ClosedBatch) -> None:
        """Return a batch's memory to the pool; called once for each batch."""
        # Parts of a split batch have reserved nothing: the whole has given its memory back.
        sealed = batch.sealed if isinstance(batch, InFlightBatch) else batch
        if isinstance(batch, InFlightBatch) and batch.block is not None:
            self.pool.give_block(batch.block)
        if sealed.reserved:
            self.pool.deallocate(sealed.reserved)

    def _size_max(self, topic: str) -> int:
        """Estimated bytes of records that compress to `batch.size`."""
        # As in Kafka, `batch.size` counts compressed bytes; records are compressed when it is sent.
        size = self.batch_size(topic)
        if self._codec is Codec.NONE:
            return size
        expected = self.ratios.estimate(topic, self._codec) * _HEADROOM
        return int(size / max(expected, _RATIO_MIN))
