"""`Batch`, a view of one whole record batch in memory, and the reader that cuts bytes into them.

Nothing is copied: a batch keeps a memoryview of its bytes. The records are read elsewhere
(`checks`, `columns`). Reading a batch is cheap because it verifies only the frame; `Batch.check`
verifies the checksum.

Invariant: a `Batch` always has its whole 61-byte header and as many bytes as the header says.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tailrace.errors import CorruptionError, FatalError
from tailrace.model import (
    NO_PRODUCER_ID,
    Codec,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampType,
)
from tailrace.records import layout, packages
from tailrace.records.codecs import codec_of, decompress

BATCH_SIZE_MAX: Final = 2**31 - 1
"""The largest size that the length field and an int32 segment position allow."""


class CorruptBatchError(CorruptionError):
    """A batch whose frame, header or checksum does not hold."""


class UnsupportedMagicError(FatalError, ValueError):
    """A batch has message format v0 or v1, and only v2 is accepted."""

    def __init__(self, magic: int, *, position: int) -> None:
        self.magic = magic
        self.position = position
        super().__init__(
            f"position {position}: message format v{magic} is not taken here, only v2; "
            "use a client that writes v2 (Kafka 0.11 or later)"
        )


class LegacyEntry(NamedTuple):
    """A v0 or v1 entry as it is stored; `tailrace.records.legacy` has the drawing and reads it."""

    offset: int
    size: int
    """Bytes of the whole entry."""
    crc: int
    magic: int
    attributes: int
    timestamp: int
    """Milliseconds, -1 for none and in v0."""
    key: memoryview | None
    value: memoryview | None

    @property
    def codec_number(self) -> int:
        """Number of the codec of the value, if the entry is a wrapper; 0 if it is a record."""
        return self.attributes & layout.CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the producer or the broker has set the timestamp; CreateTime if there is none."""
        if self.magic and self.attributes & layout.LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME


class Batch:
    """One whole v2 batch; the attributes are the header's fields under Kafka's names."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "legacy",
        "length",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
        "view",
    )

    # `struct` returns Any: a declared type costs nothing, where a call of it costs 50 ns.
    base_offset: Offset
    length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    record_count: int

    def __init__(self, view: memoryview, *, legacy: LegacyEntry | None = None) -> None:
        """Takes exactly the bytes of one batch, as `read_batches` cuts them."""
        (
            self.base_offset,
            self.length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = layout.HEADER.unpack_from(view)
        # The view is not copied: a reference to one batch keeps its whole window in memory.
        self.view = view
        self.legacy = legacy
        """The entry of format v0 or v1 that the view was made from; it is not what is stored."""
        self.size = len(view) if legacy is None else legacy.size
        """Bytes that the batch takes where it is stored."""

    def __repr__(self) -> str:
        return (
            f"Batch(offsets {self.base_offset} to {self.last_offset}, "
            f"{self.record_count} records, {self.size} bytes)"
        )

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record, also where compaction has removed it."""
        return self.base_offset + self.last_offset_delta  # type: ignore[return-value]

    @property
    def next_offset(self) -> Offset:
        """Offset of the batch after this one."""
        return self.base_offset + self.last_offset_delta + 1  # type: ignore[return-value]

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, or -1; after 2147483647 comes 0."""
        return sequence_after(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> Codec:
        """The codec of the records.

        Raises:
            UnsupportedCodecError: the attributes have codec 5, 6 or 7.
        """
        return codec_of(self.attributes & layout.CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the producer or the broker has set the timestamps."""
        if self.attributes & layout.LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & layout.TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether the records are markers for brokers, which no consumer sees."""
        return bool(self.attributes & layout.CONTROL_FLAG)

    @property
    def has_producer(self) -> bool:
        """Whether an idempotent producer has numbered the batch."""
        return bool(self.producer_id > NO_PRODUCER_ID)

    @property
    def delete_horizon_or_none(self) -> int | None:
        """Time (ms) from which compaction may drop the batch's tombstones (KIP-534)."""
        if self.attributes & layout.DELETE_HORIZON_FLAG:
            return self.base_timestamp
        return None

    @property
    def payload(self) -> memoryview:
        """The records as they are stored, compressed or not."""
        return self.view[layout.RECORDS_POSITION :]

    def records_view(self, limit: int | None = None) -> memoryview:
        """The records, decompressed; at most `limit` bytes, or what the process allows.

        Raises:
            CorruptCompressionError: the payload is not what its codec writes.
            DecompressedTooLargeError: it is sound as far as it was read, and gives more.
            UnsupportedCodecError: the attributes have codec 5, 6 or 7.
        """
        payload = self.payload
        # The stored bytes are the records already.
        if not self.attributes & layout.CODEC_MASK:
            return payload
        return decompress(self.codec, payload, limit)

    def check(self) -> None:
        """Checks that the batch is what was written; the records are not read.

        Raises:
            CorruptBatchError: the stored CRC-32C is not that of the bytes, the size is not what
                the header says, or a count or delta is negative.
        """
        size = len(self.view)
        # The CRC does not cover the length, so it is compared by itself. The same is true of the
        # base offset and the leader epoch, which nothing in the batch can confirm.
        if self.length != size - layout.LOG_OVERHEAD:
            raise self._corrupt(
                f"the header says {self.length + layout.LOG_OVERHEAD} bytes, there are {size}"
            )
        if self.magic != layout.MAGIC:
            raise self._corrupt(f"the magic is {self.magic}, not {layout.MAGIC}")
        computed = packages.crc32c.crc32c(self.view[layout.ATTRIBUTES_POSITION :])
        if computed != self.crc:
            raise self._corrupt(f"the stored CRC-32C is {self.crc}, the bytes have {computed}")
        # Under a checksum that holds these are the faults of a wrong writer, not of a disk.
        if self.record_count < 0:
            raise self._corrupt(f"the record count is {self.record_count}")
        if self.last_offset_delta < 0:
            raise self._corrupt(f"the last offset delta is {self.last_offset_delta}")

    def _corrupt(self, rule: str) -> CorruptBatchError:
        return CorruptBatchError(rule, offset=self.base_offset)


class BatchReader:
    """Iterates over `(position, batch)`; `position` then says where the whole batches end."""

    __slots__ = ("_convert", "_view", "position")

    def __init__(
        self, view: memoryview, *, convert: Callable[[memoryview], Batch] | None = None
    ) -> None:
        self._view = view
        self._convert = convert
        self.position = 0
        """Position of the next batch; less than the view's size if a partial batch follows."""

    def __iter__(self) -> Iterator[tuple[int, Batch]]:
        return self

    def __next__(self) -> tuple[int, Batch]:
        """The next batch and the position where it starts."""
        position = self.position
        remaining = len(self._view) - position
        if remaining < layout.FRAME_SIZE:
            raise StopIteration
        offset, length, _, magic = layout.FRAME.unpack_from(self._view, position)
        size = length + layout.LOG_OVERHEAD
        if length < layout.LENGTH_MIN:
            raise CorruptBatchError(
                f"the batch length is {length}, less than {layout.LENGTH_MIN}",
                position=position,
                offset=offset,
            )
        if size > BATCH_SIZE_MAX:
            raise CorruptBatchError(
                f"the batch has {size} bytes, more than {BATCH_SIZE_MAX}",
                position=position,
                offset=offset,
            )
        # Before the size is compared with what is there: damage must not pass for a partial batch.
        if magic > layout.MAGIC:
            raise CorruptBatchError(
                f"the magic is {magic}, more than {layout.MAGIC}", position=position, offset=offset
            )
        is_legacy = magic < layout.MAGIC
        if is_legacy and self._convert is None:
            raise UnsupportedMagicError(magic, position=position)
        if size < layout.HEADER_SIZE and not is_legacy:
            raise CorruptBatchError(
                f"the batch has {size} bytes, less than its header's {layout.HEADER_SIZE}",
                position=position,
                offset=offset,
            )
        # A fetch is cut by bytes, so Kafka's clients too must accept a partial batch at its end.
        if size > remaining:
            raise StopIteration
        cut = self._view[position : position + size]
        try:
            batch = self._convert(cut) if self._convert and is_legacy else Batch(cut)
        except CorruptionError as error:
            error.position = position
            raise
        self.position = position + size
        return position, batch


def read_batches(view: memoryview) -> BatchReader:
    """The whole batches of `view`; ends silently at a partial one.

    For format v2 only, which is all that may be produced; `legacy.read_all_batches` reads a log.

    Raises:
        CorruptBatchError: from the iteration, at a frame that no writer makes.
        UnsupportedMagicError: from the iteration, at a batch of format v0 or v1.

    Example:
        >>> reader = read_batches(view)
        >>> sizes = [batch.size for _, batch in reader]
        >>> tail = len(view) - reader.position
    """
    return BatchReader(view)


def sequence_after(sequence: int, count: int) -> int:
    """The sequence number `count` after `sequence`; after 2147483647 comes 0, and -1 stays -1."""
    # -1 means no sequence number and must not become 0, the first number of a producer.
    if sequence < 0:
        return -1
    return (sequence + count) & layout.SEQUENCE_MAX


def stamp(view: memoryview, *, base_offset: int, leader_epoch: int) -> None:
    """Writes offset and epoch into the batch at the start of `view`; the CRC covers neither."""
    layout.BASE_OFFSET.pack_into(view, layout.BASE_OFFSET_POSITION, base_offset)
    layout.LEADER_EPOCH.pack_into(view, layout.LEADER_EPOCH_POSITION, leader_epoch)


def stamp_append_time(view: memoryview, timestamp_ms: int) -> None:
    """Makes the batch that `view` is one of LogAppendTime, in place, and renews its CRC.

    The records keep their deltas, which no reader of such a batch looks at.
    """
    _stamp_timestamp(view, layout.LOG_APPEND_TIME_FLAG, timestamp_ms)


def stamp_max_timestamp(view: memoryview, timestamp_ms: int) -> None:
    """Makes the batch that `view` is one of CreateTime with this maximum, and renews its CRC."""
    _stamp_timestamp(view, 0, timestamp_ms)


def _stamp_timestamp(view: memoryview, type_flag: int, timestamp_ms: int) -> None:
    # The flag is in the low one of the two attribute bytes.
    low = layout.ATTRIBUTES_POSITION + 1
    view[low] = (view[low] & ~layout.LOG_APPEND_TIME_FLAG) | type_flag
    # The timestamp is an int64 as the offset is, so one Struct writes both.
    layout.BASE_OFFSET.pack_into(view, layout.MAX_TIMESTAMP_POSITION, timestamp_ms)
    # Attributes and largest timestamp are covered by the CRC, unlike what `stamp` writes.
    crc = packages.crc32c.crc32c(view[layout.ATTRIBUTES_POSITION :])
    layout.CRC.pack_into(view, layout.CRC_POSITION, crc)
