"""Message formats v0 and v1 (magic 0 and 1), read as batches of format v2.

Apache Kafka wrote v0 before 0.10 and v1 before 0.11, and a topic that was never rewritten still
has them. All integers are big endian.

    position  size  field
     0        8     offset          of this message, or of the last one inside a wrapper
     8        4     length          bytes after this field: size of the entry - 12
    12        4     crc             CRC-32 (zlib's) of the bytes from position 16 to the end
    16        1     magic           0 or 1
    17        1     attributes      bits 2 1 0: codec; v1 also bit 3: timestamp type
    18        8     timestamp       v1 only; ms, -1 none
    18 or 26  4     key size        -1 null
    ..        ..    key
    ..        4     value size      -1 null
    ..        ..    value

An entry without a codec is one record. One with a codec is a wrapper: it has no key, and its value
is the compressed concatenation of whole entries, themselves without a codec. In a v0 wrapper the
offsets inside are absolute. In a v1 wrapper they are relative, and the wrapper's offset is that of
the last one inside; a wrapper of offset 0 has base 0 whatever is inside, as old librdkafka sends
it. A v1 wrapper's timestamp type counts for all records inside, and with LogAppendTime so does its
timestamp. KIP-31 and KIP-32 have the reasons.

An entry is converted in memory to a v2 batch with the same offsets, gaps included, keys, values and
timestamps, so that columns, searches and checks know one format. The conversion is slow: one core
converts about 100 000 entries/s, or 170 000 records/s inside of wrappers, of 100 bytes each.
Nothing here writes these formats.

Invariant: an entry is converted whole or refused, after its CRC-32 and that of each entry inside of
it were checked. The batch in memory is not larger than the decompressed entry and one header.
"""

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Final

from tailrace.model import NO_LEADER_EPOCH, NO_TIMESTAMP, Codec, TimestampType
from tailrace.records import layout
from tailrace.records.batch import (
    Batch,
    BatchReader,
    CorruptBatchError,
    LegacyEntry,
    stamp,
)
from tailrace.records.builder import BatchBuilder
from tailrace.records.codecs import decompress, with_lz4_checksum

_HEADER: Final = Struct(">qiIBB")
_TIMESTAMP: Final = Struct(">q")
_SIZE: Final = Struct(">i")
_OFFSET_SIZE: Final = 8

_ENTRY_SIZE_MIN: Final = (26, 34)
"""Smallest size by magic: header, timestamp, and the size fields of key and value."""

_OFFSET_DELTA_MAX: Final = 2**31 - 1
"""Largest offset delta of a v2 record, and of an index entry for a whole segment."""


def read_all_batches(view: memoryview) -> BatchReader:
    """The whole batches of `view`, those of v0 and v1 converted to v2.

    A converted batch has its entry as `legacy`, and the entry's size as `size`.

    Raises:
        CorruptionError: from the iteration, at a frame that no writer makes, and at an entry of an
            older format that is damaged; it has the position.
    """
    return BatchReader(view, convert=converted)


def converted(view: memoryview) -> Batch:
    """A batch of format v2, in memory, with the records of the one entry in `view`.

    Raises:
        CorruptBatchError: the entry, or one inside of it, breaks a rule of its format.
        CorruptCompressionError: a wrapper's value cannot be decompressed.
    """
    entry = _entry_at(view, 0)
    if entry.size != len(view):
        raise _corrupt(entry, f"the entry has {entry.size} bytes of {len(view)}")
    is_append_time = entry.timestamp_type is TimestampType.LOG_APPEND_TIME
    builder = BatchBuilder(timestamp_type=entry.timestamp_type)
    first = last = 0
    for record in entries_of(entry):
        if not builder.record_count:
            first = record.offset
        elif not last < record.offset <= first + _OFFSET_DELTA_MAX:
            raise _corrupt(entry, f"offset {record.offset} after {first} to {last} in a wrapper")
        last = record.offset
        builder.append(
            record.key,
            record.value,
            timestamp=entry.timestamp if is_append_time else record.timestamp,
            offset_delta=last - first,
        )
    if not builder.record_count:
        raise _corrupt(entry, "a wrapper without any record")
    data = memoryview(bytearray(builder.build()))
    base_offset = _base_offset(entry, first=first, last=last)
    stamp(data, base_offset=base_offset, leader_epoch=NO_LEADER_EPOCH)
    return Batch(data, legacy=entry)


def _base_offset(entry: LegacyEntry, *, first: int, last: int) -> int:
    """Absolute offset of the first record; `first` and `last` are as stored."""
    # A wrapper of offset 0 is no error: see the module.
    if entry.codec_number and entry.magic and entry.offset:
        if entry.offset < last:
            raise _corrupt(entry, f"its last record has the relative offset {last}")
        first += entry.offset - last
    if first < 0:
        raise _corrupt(entry, f"its first record has the offset {first}")
    return first


def entries_of(entry: LegacyEntry) -> Iterator[LegacyEntry]:
    """The entry itself, or the entries inside of a wrapper, with their stored offsets.

    Raises:
        CorruptBatchError: the entry, or one inside of it, breaks a rule of its format.
        CorruptCompressionError: a wrapper's value cannot be decompressed.
    """
    if not entry.codec_number:
        yield entry
        return
    view = _decompressed(entry)
    position = 0
    # Kafka's readers leave out an entry that the end of the wrapper cuts, as at the end of a fetch.
    while position + layout.LOG_OVERHEAD <= len(view):
        (length,) = _SIZE.unpack_from(view, position + _OFFSET_SIZE)
        if length > len(view) - position - layout.LOG_OVERHEAD:
            return
        record = _entry_at(view, position)
        if record.codec_number:
            raise _corrupt(entry, f"a wrapper inside of a wrapper, at byte {position}")
        yield record
        position += record.size


def _decompressed(wrapper: LegacyEntry) -> memoryview:
    if wrapper.codec_number > Codec.LZ4:
        raise _corrupt(wrapper, f"codec {wrapper.codec_number} in format v{wrapper.magic}")
    if wrapper.value is None:
        raise _corrupt(wrapper, "a wrapper without a value")
    codec = Codec(wrapper.codec_number)
    if codec is Codec.LZ4 and wrapper.magic == 0:
        # Kafka computed the header's checksum over the wrong bytes as long as it wrote v0, and
        # its reader of v0 takes any (KIP-57).
        return decompress(codec, with_lz4_checksum(wrapper.value))
    return decompress(codec, wrapper.value)


def _entry_at(view: memoryview, position: int) -> LegacyEntry:
    """The entry at a position of `view`, with its checksum found right."""
    remaining = len(view) - position
    if remaining < _HEADER.size:
        raise CorruptBatchError(f"an entry of a wrapper ends after {remaining} bytes")
    offset, length, crc, magic, attributes = _HEADER.unpack_from(view, position)
    if magic > 1:
        raise CorruptBatchError(f"the magic inside of a wrapper is {magic}", offset=offset)
    size = length + layout.LOG_OVERHEAD
    if not _ENTRY_SIZE_MIN[magic] <= size <= remaining:
        raise CorruptBatchError(
            f"an entry of format v{magic} claims {size} bytes of {remaining}; "
            f"it has {_ENTRY_SIZE_MIN[magic]} or more",
            offset=offset,
        )
    computed = zlib.crc32(view[position + layout.MAGIC_POSITION : position + size])
    if computed != crc:
        raise CorruptBatchError(
            f"the stored CRC-32 of format v{magic} is {crc}, the bytes have {computed}",
            offset=offset,
        )
    entry = view[position : position + size]
    timestamp, at = NO_TIMESTAMP, _HEADER.size
    if magic:
        (timestamp,) = _TIMESTAMP.unpack_from(entry, at)
        at += _TIMESTAMP.size
    key, at = _sized_at(entry, at, offset)
    value, at = _sized_at(entry, at, offset)
    if at != size:
        raise CorruptBatchError(f"{size - at} bytes after the value", offset=offset)
    return LegacyEntry(offset, size, crc, magic, attributes, timestamp, key, value)


def _sized_at(entry: memoryview, at: int, offset: int) -> tuple[memoryview | None, int]:
    """The key or value whose size is at `at`, and where it ends."""
    start = at + _SIZE.size
    (size,) = _SIZE.unpack_from(entry, at) if start <= len(entry) else (-2,)
    if size == -1:
        return None, start
    if not 0 <= size <= len(entry) - start:
        raise CorruptBatchError(
            f"a key or value at byte {at} reaches beyond an entry of {len(entry)} bytes",
            offset=offset,
        )
    return entry[start : start + size], start + size


def _corrupt(entry: LegacyEntry, rule: str) -> CorruptBatchError:
    return CorruptBatchError(rule, offset=entry.offset)
