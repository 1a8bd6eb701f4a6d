"""`OpenBatch`: the batch of a partition that records are appended to.

Records are encoded as they come (`RecordBlock.append`, in a single step of the interpreter), so it
keeps none of the caller's objects.

Not here: which batch a record goes to (`accumulator`), and memory (`supply`).

Invariant: a record is in the batch as a whole, before the batch is sealed, or not at all.
"""

from typing import TYPE_CHECKING

from tailrace.client.producer.intake.encoding import BATCH_OVERHEAD
from tailrace.client.producer.intake.record import Prepared
from tailrace.client.producer.outcome import BatchOutcome
from tailrace.client.producer.queue.sealed_batch import EncodedRecords, SealedBatch
from tailrace.kernels.arrays import int64s
from tailrace.kernels.record_block import NOW, RecordBlock
from tailrace.model import TopicPartition

if TYPE_CHECKING:
    from array import array


class OpenBatch(RecordBlock):
    """Records of one partition, and room for more."""

    __slots__ = ("created_at", "outcome", "reserved", "size_max")

    def __init__(
        self,
        outcome: BatchOutcome,
        *,
        created_at: float,
        size_limit: int,
        size_max: int,
        count_limit: int,
        reserved: int,
        block: bytearray | None = None,
    ) -> None:
        """Memory is reserved for `size_limit` bytes before compression, and `count_limit` records.

        `block` is memory to use again, of at least `size_limit` bytes.
        """
        if block is None:
            block = bytearray(size_limit)
        super().__init__(block, int64s(count_limit), BATCH_OVERHEAD, size_limit)
        self.outcome = outcome
        self.created_at = created_at
        """Monotonic seconds; `delivery.timeout.ms` counts from here."""
        self.size_max = size_max
        """Bytes that it may grow to."""
        self.reserved = reserved
        """Bytes taken from the buffer pool."""

    @property
    def partition(self) -> TopicPartition:
        """The partition of all its records."""
        return self.outcome.partition

    @property
    def count_limit(self) -> int:
        """Records for which memory is reserved."""
        return len(self.times)

    @property
    def size(self) -> int:
        """Bytes of the batch until now, before compression."""
        return self.position

    def append_prepared(self, prepared: Prepared, now_ns: int) -> int:
        """Add a record and return its index, or `NO_ROOM`."""
        timestamp = prepared.record.timestamp
        return self.append(
            prepared.value, prepared.key, prepared.headers, NOW if timestamp is None else timestamp,
            now_ns,
        )  # fmt: skip

    def grow(self, *, size_limit: int, count_limit: int) -> None:
        """Have room for so many bytes and records; memory is reserved already."""
        block, times = self.block, self.times
        if size_limit > len(block):
            block = bytearray(size_limit)
            block[: self.position] = memoryview(self.block)[: self.position]
        if count_limit > len(times):
            times = self.times + int64s(count_limit - len(times))
        self.set_room(block, times, size_limit)

    def seal(self) -> SealedBatch:
        """The batch as it is sent; from now on no record gets into it. Inside of the gate."""
        self.close()
        self.outcome.timestamps = self.timestamps()
        return SealedBatch(
            outcome=self.outcome,
            records=EncodedRecords.of(self),
            record_count=self.record_count,
            size=self.position,
            created_at=self.created_at,
            reserved=self.reserved,
        )

    def timestamps(self) -> "array[int]":
        """The timestamps (ms) of the records."""
        return self.times[: self.record_count]
