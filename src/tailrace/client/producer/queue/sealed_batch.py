"""`SealedBatch`: the records of one batch, which do not change any more.

Its records are those of an open batch or of one that the program has filled (`EncodedRecords`), or
rows of columns (`ColumnSlice`).

Not here: what is known of it once it is being sent (`in_flight_batch`).
"""

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tailrace.client.producer.intake.encoding import BATCH_OVERHEAD, BatchFields, seal
from tailrace.client.producer.intake.interceptors import ProducerInterceptors
from tailrace.client.producer.outcome import BatchOutcome
from tailrace.kernels.arrays import int64s
from tailrace.kernels.record_block import TIMESTAMP_SIZE, RecordBlock
from tailrace.kernels.records import record_at
from tailrace.model import TopicPartition
from tailrace.records.builder import RECORD_OVERHEAD_MAX
from tailrace.values import dataclass

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from tailrace.client.producer.intake.slices import ColumnSlice


class EncodedRecords(NamedTuple):
    """Records that `send` was given, encoded in the block of their batch."""

    block: bytearray
    """Room for the header of the batch, and the records, not compressed."""
    stop: int
    """The end of the records."""
    record_count: int
    base_timestamp: int
    max_timestamp: int

    @classmethod
    def of(cls, records: RecordBlock) -> "EncodedRecords":
        """The records of a block, which takes no more."""
        return cls(
            records.block,
            stop=records.position,
            record_count=records.record_count,
            base_timestamp=records.base_timestamp,
            max_timestamp=records.max_timestamp,
        )

    def encode(self, fields: BatchFields) -> memoryview:
        """The batch: with a codec in new memory, else in the block."""
        return seal(
            memoryview(self.block),
            self.stop,
            fields=fields,
            count=self.record_count,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            keeps_records=True,
        )

    def split(self, parts: int) -> "list[EncodedRecords]":
        """Split the records into `parts` consecutive runs of about equal count.

        There must be at least as many records.
        """
        cuts = [self.record_count * part // parts for part in range(parts + 1)]
        made, position = [], BATCH_OVERHEAD
        for start, stop in pairwise(cuts):
            part, position = self._copied(position, stop - start)
            made.append(part)
        return made

    def _copied(self, position: int, count: int) -> "tuple[EncodedRecords, int]":
        """The `count` records from `position` on, and the end of them, numbered anew."""
        # Deltas of the timestamps may need more bytes in a batch that begins with another one.
        size = self.stop + RECORD_OVERHEAD_MAX * count
        made = RecordBlock(bytearray(size), int64s(count), BATCH_OVERHEAD, size)
        records = bytes(memoryview(self.block)[: self.stop])
        for _ in range(count):
            end, delta, _, key_at, key_size, value_at, value_size, _, _ = record_at(
                records, position, self.stop
            )
            headers_at = value_at + max(0, value_size)
            index = made.append(
                None if value_size < 0 else records[value_at:headers_at],
                None if key_size < 0 else records[key_at : key_at + key_size],
                records[headers_at:end],
                self.base_timestamp + delta,
            )
            assert index >= 0, "there is room for all of the records"
            position = end
        return EncodedRecords.of(made), position


class FilledRecords(NamedTuple):
    """Records of a batch that the program has filled, for one partition."""

    partition: int
    records: EncodedRecords
    timestamps: "array[int]"
    """In ms, of each record."""

    @property
    def record_count(self) -> int:
        """Number of records; at least one."""
        return self.records.record_count

    @property
    def size_bound(self) -> int:
        """Bytes of the batch before compression."""
        return self.records.stop

    @property
    def memory(self) -> int:
        """Bytes of memory that the batch takes until it is acknowledged."""
        return self.records.stop + TIMESTAMP_SIZE * self.record_count

    def note_placed(self, outcome: BatchOutcome, interceptors: ProducerInterceptors) -> None:
        """Have the outcome know the timestamps, and tell the interceptors; under the lock."""
        outcome.timestamps = self.timestamps
        if interceptors:
            for index in range(self.record_count):
                outcome.add_callback(index, interceptors.on_acknowledgement)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SealedBatch:
    """Records of one partition that are sent, retried and acknowledged together."""

    outcome: BatchOutcome
    records: "EncodedRecords | ColumnSlice"
    record_count: int
    size: int
    """Size in bytes before compression; of a slice, an upper bound."""
    created_at: float
    """Monotonic seconds; `delivery.timeout.ms` counts from here."""
    reserved: int
    """Bytes taken from the buffer pool."""

    @property
    def partition(self) -> TopicPartition:
        """The partition of all its records."""
        return self.outcome.partition

    def split(self) -> "list[SealedBatch]":
        """Two batches with the records of this one, which become its outcome's parts.

        They keep `created_at`, so `delivery.timeout.ms` goes on counting.
        """
        halves: Sequence[EncodedRecords | ColumnSlice] = self.records.split(2)
        middle = self.record_count // 2
        parts = self.outcome.split([middle, self.record_count - middle])
        batches = []
        for part, records in zip(parts, halves, strict=True):
            batches.append(
                SealedBatch(
                    outcome=part.outcome,
                    records=records,
                    record_count=part.record_count,
                    size=int(self.size * part.record_count / self.record_count),
                    created_at=self.created_at,
                    reserved=0,
                )
            )
        return batches
