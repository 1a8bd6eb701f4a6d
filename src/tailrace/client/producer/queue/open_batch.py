"""`OpenBatch`: the batch of a partition that records are appended to.

Records are encoded as they come (`RecordBlock`), so it keeps none of the caller's objects but
callbacks. Not here: which batch a record goes to (`open_batches`), and memory (`supply`).

Invariant: a record is in the batch as a whole and with its callback, before the batch is closed, or
not at all.
"""

from typing import TYPE_CHECKING, Any

import cython

from tailrace.client.producer.intake.encoding import BATCH_OVERHEAD
from tailrace.client.producer.intake.record import Prepared
from tailrace.client.producer.outcome import BatchOutcome
from tailrace.client.producer.queue.sealed_batch import EncodedRecords, SealedBatch
from tailrace.kernels.arrays import int64s
from tailrace.kernels.record_block import RecordBlock
from tailrace.model import TopicPartition

if TYPE_CHECKING:
    from array import array

    from tailrace.client.producer.outcome import DeliveryCallback

_NS_PER_MS = 1_000_000


class OpenBatch(RecordBlock):
    """Records of one partition, and room for more."""

    if not cython.compiled:
        __slots__ = (
            "_callbacks", "_is_forgotten", "created_at", "outcome", "reserved", "size_max",
        )  # fmt: skip

    if TYPE_CHECKING:
        outcome: BatchOutcome
        created_at: float
        size_max: int
        reserved: int
        _callbacks: list[Any]
        _is_forgotten: bool

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
        self._callbacks = []
        self._is_forgotten = False
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

    def add(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes,
        timestamp: int,
        on_delivery: "DeliveryCallback | None",
        is_forgotten: bool,
    ) -> int:
        """`append` a record that has a callback, or no receipt, in the same step."""
        with cython.critical_section(self):
            index = self.put(value, key, headers, timestamp)
            if index >= 0:
                if on_delivery is not None:
                    self._callbacks.append(index)
                    self._callbacks.append(on_delivery)
                if is_forgotten:
                    self._is_forgotten = True
            return index

    def append_prepared(self, prepared: Prepared, now_ns: int) -> int:
        """Add a record and return its index, or `NO_ROOM`."""
        timestamp = prepared.record.timestamp
        if timestamp is None:
            timestamp = now_ns // _NS_PER_MS
        return self.append(prepared.value, prepared.key, prepared.headers, timestamp)

    def grow(self, *, size_limit: int, count_limit: int) -> None:
        """Have room for so many bytes and records; memory is reserved already."""
        block, times = self.block, self.times
        if size_limit > len(block):
            block = bytearray(size_limit)
        if count_limit > len(times):
            times = int64s(count_limit)
        self.set_room(block, times, size_limit)

    def close(self) -> None:
        """Take no more records, and give callbacks to the outcome; under the producer's lock."""
        none: list[Any] = []
        with cython.critical_section(self):
            self.limit = 0
            added, self._callbacks = self._callbacks, none
        outcome = self.outcome
        if added:
            later = outcome.callbacks
            # The first record comes on the slow path, and its callback is there already.
            is_sorted = len(later) > 0 and later[len(later) - 2] < added[0]
            outcome.callbacks = later + added if is_sorted else added + later
        if self._is_forgotten:
            outcome.is_forgotten = True

    def seal(self) -> SealedBatch:
        """The batch as it is sent; from now on no record gets into it."""
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
