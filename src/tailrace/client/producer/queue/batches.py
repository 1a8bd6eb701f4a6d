"""A batch after it took its last record: `SealedBatch`, then `InFlightBatch`.

The records of a sealed batch are those of an open batch or of one that the program has filled
(`EncodedRecords`), or rows of columns (`ColumnSlice`). It is in flight from its first attempt, or
its sequence number, to its outcome: as in Kafka's producer, a batch that waits for a retry keeps
its bytes and its sequence number.

Not here: the decision to retry, split or fail it (`sender`), and which number it gets
(`sequences`).
"""

from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.intake.encoding import BATCH_OVERHEAD, BatchFields, seal
from tailrace.client.producer.outcome import BatchOutcome
from tailrace.kernels.arrays import int64s
from tailrace.kernels.record_block import TIMESTAMP_SIZE, RecordBlock
from tailrace.kernels.records import record_at
from tailrace.model import TopicPartition
from tailrace.records import layout, packages
from tailrace.records.builder import RECORD_OVERHEAD_MAX
from tailrace.values import dataclass

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from tailrace.client.producer.intake.slices import ColumnSlice
    from tailrace.client.producer.queue.memory import BufferPool, CompressionRatios


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
        """A copy of the `count` records from `position` on, numbered from 0, and their end."""
        # A split is rare, so records are read and written one by one. Deltas of the timestamps may
        # need more bytes in a batch that begins with another one.
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
        return self.records.record_count

    @property
    def size_bound(self) -> int:
        """Bytes of the batch before compression."""
        return self.records.stop

    @property
    def memory(self) -> int:
        """Bytes of memory that the batch takes until it is acknowledged."""
        return self.records.stop + TIMESTAMP_SIZE * self.record_count


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
        return self.outcome.partition

    def split(self) -> "list[SealedBatch]":
        """Two batches with the records of this one, which become its outcome's parts.

        They keep `created_at`, from which `delivery.timeout.ms` counts.
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
                    # An estimate, for max.request.size; the whole has given its memory back.
                    size=int(self.size * part.record_count / self.record_count),
                    created_at=self.created_at,
                    reserved=0,
                )
            )
        return batches


_SEQUENCES: Final = 1 << 31


class BatchIdentity(NamedTuple):
    """Producer and sequence number, by which a leader recognises a batch that is sent again."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    """Sequence number of the first record."""


NO_IDENTITY: Final = BatchIdentity(-1, -1, -1)
_IDENTITY: Final = Struct(">qhi")


class InFlightBatch:
    """A sealed batch, its bytes, its identity and its attempts."""

    __slots__ = (
        "_encoded_as",
        "attempts",
        "block",
        "encoded",
        "identity",
        "is_unanswered",
        "last_attempt_at",
        "last_error",
        "leader",
        "may_be_written",
        "number",
        "ordinal",
        "pause_s",
        "sealed",
        "was_sequence_reset",
    )

    def __init__(self, sealed: SealedBatch) -> None:
        self.sealed = sealed
        self.identity = NO_IDENTITY
        """Without idempotence, none."""
        self.ordinal = -1
        """Its place among the batches of the partition that got a sequence number."""
        self.was_sequence_reset = False
        """It has a new sequence number and was not sent with that yet."""
        self.encoded: memoryview | None = None
        self.block: bytearray | None = None
        """Memory of the records that is returned to the pool."""
        self._encoded_as = NO_IDENTITY
        self.number = -1
        """Its number in `BatchInfo`; -1 until a hook was called for it."""
        self.is_unanswered = False
        """It is in a request without an answer."""
        self.attempts = 0
        """Number of times that it was sent and not acknowledged."""
        self.last_attempt_at = sealed.created_at
        self.last_error: Exception | None = None
        """The error of the last attempt."""
        self.leader: object = None
        """The partition's leader at the last attempt."""
        self.pause_s = 0.0
        """Seconds to wait after the last attempt."""
        self.may_be_written = False
        """An attempt failed, and the broker may have written the batch all the same."""

    @property
    def outcome(self) -> BatchOutcome:
        return self.sealed.outcome

    @property
    def partition(self) -> TopicPartition:
        return self.sealed.outcome.partition

    @property
    def record_count(self) -> int:
        return self.sealed.record_count

    @property
    def created_at(self) -> float:
        """Monotonic seconds; `delivery.timeout.ms` counts from here."""
        return self.sealed.created_at

    @property
    def size(self) -> int:
        """Bytes of the encoded batch; before it is encoded, those of its sealed batch."""
        return self.sealed.size if self.encoded is None else len(self.encoded)

    @property
    def ratio(self) -> float:
        """Encoded size divided by the size of the sealed batch, without compression."""
        assert self.encoded is not None, "the batch has no bytes yet"
        return len(self.encoded) / max(1, self.sealed.size)

    @property
    def is_retry(self) -> bool:
        return self.attempts > 0

    @property
    def base_sequence(self) -> int:
        return self.identity.base_sequence

    @property
    def last_sequence(self) -> int:
        """Sequence number of its last record; -1 without an identity."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.record_count - 1) % _SEQUENCES

    def encode(
        self, pool: "BufferPool", config: ProducerConfig, ratios: "CompressionRatios"
    ) -> None:
        """Make the bytes of the batch; a later call only updates its identity.

        A retry may have another producer id, epoch or sequence number than the attempt before.
        """
        if self.encoded is not None:
            # The bytes of a batch change between attempts in these fields alone.
            if self.identity != self._encoded_as:
                self._encoded_as = self.identity
                _IDENTITY.pack_into(self.encoded, layout.PRODUCER_ID_POSITION, *self.identity)
                crc = packages.crc32c.crc32c(self.encoded[layout.ATTRIBUTES_POSITION :])
                layout.CRC.pack_into(self.encoded, layout.CRC_POSITION, crc)
            return
        self._encoded_as = self.identity
        codec = config.compression_type
        fields = BatchFields(
            codec,
            config.compression_level,
            *self.identity,
            is_transactional=config.transactional_id is not None,
        )
        records = self.sealed.records
        # Records of `send` are encoded already, in their own block; rows of columns are only now.
        if isinstance(records, EncodedRecords):
            self.encoded, self.block = records.encode(fields), records.block
        else:
            # A small batch would keep a whole block of `batch.size` from others.
            block = pool.take_block() if 2 * self.size > pool.block_size else bytearray(self.size)
            self.encoded = records.encode(block, fields)
            if self.encoded.obj is block:
                self.block = block
            else:
                pool.give_block(block)
        # For the room of the next batches of the topic (`BatchSupply`).
        if codec:
            ratios.observe(self.partition.topic, codec, self.ratio)


ClosedBatch = SealedBatch | InFlightBatch
"""A batch that takes no more records."""
