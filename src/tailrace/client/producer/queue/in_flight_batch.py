"""`InFlightBatch`: a batch from its first attempt, or its sequence number, to its outcome.

As in Kafka's producer, a batch that waits for a retry is in flight too: it keeps its bytes and its
sequence number.

Not here: the decision to retry, split or fail it (`outcomes`), and which number it gets
(`sequences`).
"""

from struct import Struct
from typing import Final, NamedTuple

from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.intake.encoding import BatchFields, CompressionRatios
from tailrace.client.producer.outcome import BatchOutcome
from tailrace.client.producer.queue.buffer_pool import BufferPool
from tailrace.client.producer.queue.sealed_batch import EncodedRecords, SealedBatch
from tailrace.model import TopicPartition
from tailrace.records import layout, packages

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
        "pause_s",
        "sealed",
        "was_sequence_reset",
    )

    def __init__(self, sealed: SealedBatch) -> None:
        self.sealed = sealed
        self.identity = NO_IDENTITY
        """Without idempotence, none."""
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
        """The outcome of its records."""
        return self.sealed.outcome

    @property
    def partition(self) -> TopicPartition:
        """The partition of all its records."""
        return self.sealed.outcome.partition

    @property
    def record_count(self) -> int:
        """Number of records."""
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
        """Whether it has been sent before."""
        return self.attempts > 0

    @property
    def base_sequence(self) -> int:
        """Sequence number of its first record; -1 without an identity."""
        return self.identity.base_sequence

    @property
    def last_sequence(self) -> int:
        """Sequence number of its last record; -1 without an identity."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.record_count - 1) % _SEQUENCES

    def encode(self, pool: BufferPool, config: ProducerConfig, ratios: CompressionRatios) -> None:
        """Make the bytes of the batch; a later call only updates its identity.

        A retry may have another producer id, epoch or sequence number than the attempt before.
        """
        if self.encoded is not None:
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
        if isinstance(records, EncodedRecords):
            self.encoded, self.block = records.encode(fields), records.block
        else:
            block = pool.take_block() if 2 * self.size > pool.block_size else bytearray(self.size)
            self.encoded = records.encode(block, fields)
            if self.encoded.obj is block:
                self.block = block
            else:
                pool.give_block(block)
        if codec:
            ratios.observe(self.partition.topic, codec, self.ratio)


ClosedBatch = SealedBatch | InFlightBatch
"""A batch that takes no more records."""
