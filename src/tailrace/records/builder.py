"""Builds batches from Python objects, and reads the records of a batch as objects.

Bulk data takes another way (`columns`). `BatchBuilder` is for producers, coordinators and tests
with a few records; `records_of` is for callers that need objects.

Invariant: a built batch passes `Batch.check` and `check_records`, and its offsets are consecutive
unless the caller has given them.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.kernels import int64s
from tailrace.kernels.record_block import RecordBlock
from tailrace.kernels.records import varint_at, wrapping_sum
from tailrace.kernels.rows import ROW_CURSOR_SIZE, take_records
from tailrace.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    OFFSET_MAX,
    Codec,
    Offset,
    TimestampType,
)
from tailrace.records import layout, packages
from tailrace.records.checks import check_decompressed
from tailrace.records.codecs import Octets, compress
from tailrace.records.payloads import payload_of

if TYPE_CHECKING:
    from tailrace.records.batch import Batch

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record as an object."""

    offset: Offset
    timestamp: int
    """Milliseconds since the epoch, -1 for none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def zigzag(number: int) -> bytes:
    """`number`, of at most 64 bits, as a zigzag varint.

    Example:
        >>> zigzag(-65).hex()
        '8101'
    """
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


_TABLE_SIZE: Final = 2048
"""Sizes and deltas below this are looked up: nearly all of them, for 0.3 ms at import."""

_TABLE: Final = [zigzag(number) for number in range(_TABLE_SIZE)]
_NULL: Final = zigzag(-1)


_TAKEN_AT_ONCE: Final = 1000
"""Records that `records_of` makes by one call, so that those of a large batch do not pile up."""

_ANY_OFFSET: Final = -OFFSET_MAX - 1
_TYPES: Final = (TimestampType.LOG_APPEND_TIME, TimestampType.CREATE_TIME)

RECORD_OVERHEAD_MAX = 36
"""Most bytes of a record without key, value and headers: five each for its size, offset delta, key
size, value size and header count, ten for its timestamp delta, and one for its attributes."""


def _varint(number: int) -> bytes:
    return _TABLE[number] if 0 <= number < _TABLE_SIZE else zigzag(number)


class BatchBuilder:
    """Collects records and builds one v2 batch of them, with base offset 0."""

    __slots__ = (
        "_attributes",
        "_base_timestamp",
        "_codec",
        "_last_offset_delta",
        "_max_timestamp",
        "_payload",
        "_producer",
        "record_count",
    )

    def __init__(
        self,
        *,
        codec: Codec = Codec.NONE,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> None:
        assert not (is_control and codec), "control batches are never compressed"
        if producer_id < 0:
            assert not is_transactional, "a transaction needs a producer id"
        else:
            assert producer_epoch >= 0, "a producer id needs an epoch"
            # Markers carry the producer id of their transaction and no sequence number.
            assert is_control or base_sequence >= 0, "records of a producer are numbered"
        self._codec = codec
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._attributes = (
            codec
            # The flag of LogAppendTime is bit 3.
            | timestamp_type << 3
            | (layout.TRANSACTIONAL_FLAG if is_transactional else 0)
            | (layout.CONTROL_FLAG if is_control else 0)
        )
        self._payload = bytearray()
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self._last_offset_delta = -1
        self.record_count = 0

    def append(
        self,
        key: Octets | None,
        value: Octets | None,
        *,
        timestamp: int = NO_TIMESTAMP,
        headers: Sequence[Header] = (),
        offset_delta: int | None = None,
    ) -> None:
        """Adds one record; the first one's timestamp (ms) becomes the base of the others.

        Its offset is the next one, or the batch's first plus `offset_delta`, which may leave a gap.
        """
        # Kafka's clients take the first timestamp too, so deltas are small and may be negative.
        if not self.record_count:
            self._base_timestamp = self._max_timestamp = timestamp
        if offset_delta is None:
            offset_delta = self._last_offset_delta + 1
        assert offset_delta > self._last_offset_delta
        # Gaps are legal, in what compaction leaves; offsets that do not rise are not.
        self._last_offset_delta = offset_delta
        self._max_timestamp = max(self._max_timestamp, timestamp)
        fields: list[Octets] = [
            # The attributes of a record: no bit is in use (KIP-98).
            b"\x00",
            # Minus a base of -2^63 is no int64.
            _varint(wrapping_sum(wrapping_sum(timestamp, ~self._base_timestamp), 1)),
            _varint(offset_delta),
            *_sized(key),
            *_sized(value),
            _varint(len(headers)),
        ]
        for name, content in headers:
            fields += (*_sized(name.encode()), *_sized(content))
        body = b"".join(fields)
        self._payload += _varint(len(body))
        self._payload += body
        self.record_count += 1

    def build(self) -> bytes:
        """The batch; the builder may go on and build a larger one.

        Its offsets start at 0 and its leader epoch is unknown: `stamp` sets both in a copy.
        """
        payload = compress(self._codec, self._payload) if self._codec else self._payload
        batch = bytearray(layout.HEADER_SIZE)
        batch += payload
        layout.HEADER.pack_into(
            batch,
            0,
            0,
            len(batch) - layout.LOG_OVERHEAD,
            NO_LEADER_EPOCH,
            layout.MAGIC,
            0,
            self._attributes,
            # A batch without records is legal: compaction leaves one to keep a producer's last
            # sequence.
            max(0, self._last_offset_delta),
            self._base_timestamp,
            self._max_timestamp,
            *self._producer,
            self.record_count,
        )
        # Last, because it covers all from the attributes on; a memoryview, so that nothing is
        # copied.
        crc = packages.crc32c.crc32c(memoryview(batch)[layout.ATTRIBUTES_POSITION :])
        layout.CRC.pack_into(batch, layout.CRC_POSITION, crc)
        return bytes(batch)


def build_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    *,
    timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """The batch that a `BatchBuilder` makes of keys and values with one timestamp (ms).

    At least one record, not compressed. It takes half the time of the builder.
    """
    size = layout.HEADER_SIZE
    for key, value in records:
        size += RECORD_OVERHEAD_MAX + len(key or b"") + len(value or b"")
    batch = bytearray(size)
    # The bound above is for the largest varints, so the block never refuses a record.
    block = RecordBlock(batch, int64s(len(records)), layout.HEADER_SIZE, size)
    for key, value in records:
        block.append(value, key, b"", timestamp)
    assert block.record_count == len(records)
    size = block.write_header(
        layout.TRANSACTIONAL_FLAG if is_transactional else 0,
        producer_id,
        producer_epoch,
        base_sequence,
    )
    del block  # It holds the memory, which gets smaller.
    del batch[size:]
    return batch


def records_of(batch: "Batch") -> Iterator[Record]:
    """The records as objects; the caller has called `batch.check()`.

    Header keys that are not UTF-8 come with replacement characters, as in Kafka's Java client.

    Raises:
        CorruptRecordError: a record breaks a rule of the format; before any is returned.
        CorruptCompressionError: the payload cannot be decompressed.
        UnsupportedCodecError: the attributes have codec 5, 6 or 7.
    """
    view = batch.records_view()
    # All records are walked before the first is made: a caller never gets half of a bad batch. The
    # generator is a function of its own, so that the errors come at the call.
    check_decompressed(batch, view)
    return _records_of(batch, view)


def _records_of(batch: "Batch", view: memoryview) -> Iterator[Record]:
    payload, cursor = array("q", payload_of(batch, 0, len(view))), int64s(ROW_CURSOR_SIZE)
    found: list[Record] = []
    while True:
        taken = take_records(
            view, payload, cursor, _ANY_OFFSET, _TAKEN_AT_ONCE, Record, (), _TYPES, found
        )
        if taken <= 0:
            assert taken == 0, "the records were sound a moment ago"
            return
        yield from found
        found = []


def record_in(
    data: bytes, frame: Sequence[int], *, base_offset: int, base_timestamp: int
) -> Record:
    """The record whose fields in `data` are at `frame`, as `kernels.records.record_at` gives it.

    `base_timestamp` is in milliseconds.
    """
    (_, timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, at, headers) = frame
    return Record(
        # A call of `Offset` for each record would cost as much as the sum.
        wrapping_sum(base_offset, offset_delta),  # type: ignore[arg-type]
        wrapping_sum(base_timestamp, timestamp_delta),
        _slice_or_none(data, key_at, key_size),
        _slice_or_none(data, value_at, value_size),
        tuple(_headers_of(data, at, headers)) if headers else (),
    )


def _headers_of(data: bytes, position: int, count: int) -> Iterator[Header]:
    for _ in range(count):
        size, position = varint_at(data, position, len(data))
        name = data[position : position + size].decode(errors="replace")
        position += size
        size, position = varint_at(data, position, len(data))
        yield name, _slice_or_none(data, position, size)
        position += max(0, size)


def _slice_or_none(data: bytes, position: int, size: int) -> bytes | None:
    return None if size < 0 else data[position : position + size]


def _sized(content: Octets | None) -> tuple[Octets, ...]:
    return (_NULL,) if content is None else (_varint(len(content)), content)
