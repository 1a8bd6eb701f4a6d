"""Tests that both decoders agree about logs of Kafka's brokers, in every format and codec.

The two are `records_of`, which gives objects, and `ColumnsBuilder`, which gives Arrow.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model import Codec, TimestampType
from tailrace.records import layout
from tailrace.records.batch import (
    Batch,
    CorruptBatchError,
    read_batches,
    sequence_after,
    stamp,
    stamp_append_time,
)
from tailrace.records.builder import BatchBuilder, Record, records_of
from tailrace.records.checks import check_records
from tailrace.records.codecs import compress
from tailrace.records.columns import ColumnsBuilder
from tailrace.records.legacy import read_all_batches
from tailrace.records.schema import Column
from tests.examples import examples
from tests.naive import LegacyMessage, NaiveRecord, write_all_legacy, write_legacy, write_records
from tests.unit.records.batches import (
    DECODED,
    record_at,
)

codecs = pytest.mark.parametrize("codec", Codec)

MATRIX = [(2, codec) for codec in Codec] + [
    (magic, codec) for magic in (0, 1) for codec in Codec if codec is not Codec.ZSTD
]
"""Every format with every codec that it knows."""

SIX = [
    record_at(0, 1, b"a", b"1"),
    record_at(1, 2, b"b", b"2"),
    record_at(2, 3, b"c", b"3"),
    record_at(3, 4, None, b"4"),
    record_at(4, 5, b"d", None),
    record_at(5, 6, None, None),
]


class Header(NamedTuple):
    """The fields of a v2 header that the tests choose."""

    base_offset: int = 40
    leader_epoch: int = 3
    attributes: int = 0
    last_offset_delta: int = 0
    base_timestamp: int = 0
    max_timestamp: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


def batch_of(data: bytes | bytearray) -> Batch:
    """The only batch, checked."""
    [(_, batch)] = read_all_batches(memoryview(bytearray(data)))
    batch.check()
    check_records(batch)
    return batch


def raw_batch(header: Header, records: list[NaiveRecord], codec: Codec = Codec.NONE) -> Batch:
    """A v2 batch with any header, written without any code of ours but the compressors."""
    payload = bytes(compress(codec, write_records(records))) if records else b""
    tail = struct.pack(
        ">hiqqqhii", header.attributes | codec, *header[3:], len(records)
    ) + payload  # fmt: skip
    front = struct.pack(">qiiB", header.base_offset, len(tail) + 9, header.leader_epoch, 2)
    return batch_of(front + struct.pack(">I", crc32c.crc32c(tail)) + tail)


def written(magic: int, codec: Codec, records: Sequence[Record]) -> bytes:
    """The records from offset 0 on: one batch, or an entry for each if old and uncompressed."""
    if magic == 2:
        builder = BatchBuilder(codec=codec, producer_id=134, producer_epoch=28, base_sequence=777)
        for record in records:
            builder.append(record.key, record.value, timestamp=record.timestamp)
        return builder.build()
    entries = [LegacyMessage(magic, r.offset, r.key, r.value, r.timestamp) for r in records]
    inside = write_all_legacy(entries)
    if codec is Codec.NONE:
        return inside
    last = entries[-1]._replace(key=None, value=bytes(compress(codec, inside)), attributes=codec)
    return write_legacy(last)


def columns_of(batches: Sequence[Batch], *columns: Column) -> pa.RecordBatch:
    """Columns of all records of the batches."""
    builder = ColumnsBuilder(columns)
    for batch in batches:
        builder.append(batch, start_offset=0, limit_offset=2**62)
    chunk = builder.finish()
    chunk.validate(full=True)
    return chunk


def agreed(*batches: Batch) -> list[Record]:
    """The records of the batches, in which both decoders agree."""
    found = [record for batch in batches for record in records_of(batch)]
    chunk = columns_of(batches, *DECODED)
    headers = [
        tuple((header["key"], header["value"]) for header in row or ())
        for row in chunk["headers"].to_pylist()
    ]
    milliseconds = [time // 1000 for time in chunk["timestamp"].cast(pa.int64()).to_pylist()]
    rows = zip(
        chunk["offset"].to_pylist(),
        milliseconds,
        chunk["key"].to_pylist(),
        chunk["value"].to_pylist(),
        headers,
        strict=True,
    )
    assert [record_at(*row) for row in rows] == found
    types = [
        -1 if batch.legacy and not batch.legacy.magic else int(batch.timestamp_type)
        for batch in batches
        for _ in range(batch.record_count)
    ]
    assert chunk["timestampType"].to_pylist() == types
    return found


@pytest.mark.parametrize(("magic", "codec"), MATRIX)
def test_every_format_in_every_codec(magic: int, codec: Codec) -> None:
    """Null keys and values, offsets and timestamps, read twice; v0 has no timestamps."""
    data = memoryview(bytearray(written(magic, codec, SIX)))
    expected = [record if magic else record._replace(timestamp=-1) for record in SIX]
    for _ in range(2):
        batches = [batch for _, batch in read_all_batches(data)]
        for batch in batches:
            batch.check()
        assert agreed(*batches) == expected
        assert len(batches) == (6 if magic < 2 and codec is Codec.NONE else 1)
        assert {batch.timestamp_type for batch in batches} == {TimestampType.CREATE_TIME}


@codecs
def test_a_batch_of_a_producer(codec: Codec) -> None:
    """Header fields are those given, and each record has its sequence number."""
    data = bytearray(written(2, codec, SIX))
    stamp(memoryview(data), base_offset=1234567, leader_epoch=998)
    batch = batch_of(data)
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (1234567, 1234572, 998)
    assert (batch.producer_id, batch.producer_epoch) == (134, 28)
    assert (batch.base_sequence, batch.last_sequence) == (777, 782)
    assert (batch.codec, batch.record_count, batch.max_timestamp) == (codec, 6, 6)
    sequences = [
        sequence_after(batch.base_sequence, record.offset - batch.base_offset)
        for record in agreed(batch)
    ]
    assert sequences == [777, 778, 779, 780, 781, 782]


def test_sequences_wrap_inside_of_a_batch() -> None:
    """After 2147483647 comes 0, also for the last sequence of the header."""
    builder = BatchBuilder(producer_id=23423, producer_epoch=145, base_sequence=2**31 - 2)
    for value in (b"a", b"b", b"c"):
        builder.append(None, value, timestamp=1)
    batch = batch_of(builder.build())
    assert (batch.producer_id, batch.producer_epoch) == (23423, 145)
    assert (batch.base_sequence, batch.last_sequence) == (2**31 - 2, 0)
    sequences = [sequence_after(batch.base_sequence, record.offset) for record in agreed(batch)]
    assert sequences == [2**31 - 2, 2**31 - 1, 0]


def test_a_batch_of_no_producer() -> None:
    """Producer id, epoch and both sequences are -1; offsets start where it was stamped."""
    builder = BatchBuilder()
    builder.append(b"a", b"v", timestamp=1)
    builder.append(b"b", b"v", timestamp=2)
    data = bytearray(builder.build())
    stamp(memoryview(data), base_offset=1234567, leader_epoch=0)
    batch = batch_of(data)
    assert (batch.base_offset, batch.last_offset, batch.max_timestamp) == (1234567, 1234568, 2)
    assert (batch.producer_id, batch.producer_epoch) == (-1, -1)
    assert (batch.base_sequence, batch.last_sequence) == (-1, -1)
    assert [record.offset for record in agreed(batch)] == [1234567, 1234568]


@pytest.mark.parametrize("type_flag", [0, layout.LOG_APPEND_TIME_FLAG])
@pytest.mark.parametrize("transactional_flag", [0, layout.TRANSACTIONAL_FLAG])
@pytest.mark.parametrize("control_flag", [0, layout.CONTROL_FLAG])
def test_a_mere_header_keeps_what_the_log_needs(
    type_flag: int, transactional_flag: int, control_flag: int
) -> None:
    """Offsets, producer and maximum timestamp outlive the records; readers get no record."""
    header = Header(
        base_offset=15,
        leader_epoch=15,
        attributes=type_flag | transactional_flag | control_flag,
        last_offset_delta=22,
        base_timestamp=-1,
        max_timestamp=1_700_000_000_000,
        producer_id=23423,
        producer_epoch=145,
        base_sequence=983,
    )
    batch = raw_batch(header, [])
    assert batch.size == layout.HEADER_SIZE
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (15, 37, 38)
    assert (batch.producer_id, batch.producer_epoch) == (23423, 145)
    assert (batch.base_sequence, batch.last_sequence) == (983, 1005)
    assert (batch.leader_epoch, batch.record_count) == (15, 0)
    assert (batch.base_timestamp, batch.max_timestamp) == (-1, 1_700_000_000_000)
    assert (batch.timestamp_type is TimestampType.LOG_APPEND_TIME) == bool(type_flag)
    assert batch.is_transactional == bool(transactional_flag)
    assert batch.is_control == bool(control_flag)
    assert agreed(batch) == []


@codecs
def test_timestamps_count_from_the_delete_horizon(codec: Codec) -> None:
    """With bit 6 the base is the horizon, and records before it have negative deltas (KIP-534)."""
    records = [
        NaiveRecord(-50, 0, b"0", b"0"),
        NaiveRecord(0, 1, b"1", None),
        NaiveRecord(50, 2, b"2", b"2"),
    ]
    header = Header(
        attributes=layout.DELETE_HORIZON_FLAG,
        base_timestamp=100,
        max_timestamp=150,
        last_offset_delta=2,
    )
    batch = raw_batch(header, records, codec)
    assert batch.delete_horizon_or_none == 100
    assert [record.timestamp for record in agreed(batch)] == [50, 100, 150]


@codecs
def test_gaps_of_compaction_are_gaps_of_offsets(codec: Codec) -> None:
    """Records keep their offsets; the header's range reaches beyond first and last of them."""
    records = [NaiveRecord(0, 3, b"k", b"v"), NaiveRecord(1, 7, b"l", b"v")]
    batch = raw_batch(Header(last_offset_delta=9, base_sequence=5), records, codec)
    assert (batch.base_offset, batch.last_offset, batch.last_sequence) == (40, 49, 14)
    assert [record.offset for record in agreed(batch)] == [43, 47]


@pytest.mark.parametrize(("magic", "codec"), [pair for pair in MATRIX if pair[0] < 2 and pair[1]])
def test_gaps_in_wrappers_are_gaps_of_offsets(magic: int, codec: Codec) -> None:
    """Compacted wrappers of old formats: absolute offsets in v0, relative ones in v1."""
    first = 0 if magic else 40
    entries = [
        LegacyMessage(magic, first + offset, b"k", b"v", offset if magic else -1)
        for offset in (3, 7, 9)
    ]
    value = bytes(compress(codec, write_all_legacy(entries)))
    batch = batch_of(write_legacy(LegacyMessage(magic, 49, None, value, 9, codec)))
    assert (batch.base_offset, batch.last_offset) == (43, 49)
    assert [record.offset for record in agreed(batch)] == [43, 47, 49]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.ZSTD])
def test_append_time_of_v1_is_read_for_every_record(codec: Codec) -> None:
    """The wrapper has the broker's time, or without a codec the entry itself."""
    flag = layout.LOG_APPEND_TIME_FLAG
    data = write_legacy(LegacyMessage(1, 0, b"k", b"v", 1 if codec else 15, 0 if codec else flag))
    if codec:
        data = write_legacy(
            LegacyMessage(1, 0, None, bytes(compress(codec, data)), 15, codec | flag)
        )
    batch = batch_of(data)
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND_TIME, 15)
    assert [record.timestamp for record in agreed(batch)] == [15]


@codecs
def test_append_time_is_read_for_every_record(codec: Codec) -> None:
    """Every record has the append time, whatever the deltas say, and the checksum covers it."""
    builder = BatchBuilder(codec=codec)
    for number in range(3):
        builder.append(b"k", b"%d" % number, timestamp=number)
    data = bytearray(builder.build())
    stamp_append_time(memoryview(data), 1_700_000_000_000)
    batch = batch_of(data)
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (batch.max_timestamp, batch.last_offset) == (1_700_000_000_000, 2)
    assert [record.timestamp for record in agreed(batch)] == [1_700_000_000_000] * 3


@codecs
def test_create_time_is_read_as_it_was_given(codec: Codec) -> None:
    """The header has the largest; the records need not be in order."""
    builder = BatchBuilder(codec=codec)
    for timestamp in (0, 2, 1):
        builder.append(b"k", b"v", timestamp=timestamp)
    batch = batch_of(builder.build())
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert (batch.max_timestamp, batch.last_offset) == (2, 2)
    assert [record.timestamp for record in agreed(batch)] == [0, 2, 1]


@codecs
def test_control_batches_are_read_like_others(codec: Codec) -> None:
    """Their bits say what they are; leaving them out is up to the reader."""
    flags = layout.CONTROL_FLAG | layout.TRANSACTIONAL_FLAG
    header = Header(attributes=flags, producer_id=9, producer_epoch=0)
    batch = raw_batch(header, [NaiveRecord(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\7")], codec)
    assert batch.is_control
    assert batch.is_transactional
    assert agreed(batch) == [record_at(40, 0, b"\0\0\0\1", b"\0\0\0\0\0\7")]


@codecs
def test_transactional_batches_say_so(codec: Codec) -> None:
    """The bit of the builder is the bit of the batch, and the codec stays."""
    builder = BatchBuilder(
        codec=codec, producer_id=9809, producer_epoch=15, base_sequence=2342, is_transactional=True
    )
    builder.append(b"foo", b"bar", timestamp=1)
    batch = batch_of(builder.build())
    assert batch.is_transactional
    assert not batch.is_control
    assert batch.codec is codec


@codecs
def test_parts_of_records_are_the_parts_of_whole_ones(codec: Codec) -> None:
    """Each column alone, of small, null, large and headed records, is what all together give."""
    large = bytes(range(256)) * 800
    builder = BatchBuilder(codec=codec)
    builder.append(b"a", b"1", timestamp=1)
    builder.append(b"b", None, timestamp=2)
    builder.append(None, b"3", timestamp=3)
    builder.append(None, None, timestamp=4)
    builder.append(b"abc", large, timestamp=1000)
    builder.append(b"abc", b"0", timestamp=9999, headers=(("k1", b"v1"), ("k2", None)))
    batch = batch_of(builder.build())
    assert len(agreed(batch)) == check_records(batch).records == 6
    whole = columns_of([batch], *DECODED)
    for column in DECODED:
        assert columns_of([batch], column)[column.value] == whole[column.value]


@codecs
def test_the_last_offset_moves_the_batch(codec: Codec) -> None:
    """Stamped so that it ends at 500, its records follow and its checksum holds."""
    data = bytearray(written(2, codec, SIX[:3]))
    stamp(memoryview(data), base_offset=500 - 2, leader_epoch=0)
    batch = batch_of(data)
    assert (batch.base_offset, batch.last_offset) == (498, 500)
    assert [record.offset for record in agreed(batch)] == [498, 499, 500]


@pytest.mark.parametrize(("magic", "codec"), MATRIX)
def test_a_frame_is_judged_as_soon_as_it_is_there(magic: int, codec: Codec) -> None:
    """17 bytes are enough to refuse one that no writer makes; fewer say nothing."""
    good = bytearray(written(magic, codec, SIX[:1]))
    no_magic, no_length = bytearray(good), bytearray(good)
    no_magic[16] = 10
    no_length[8:12] = bytes(4)
    for size in range(len(good)):
        for data in (good, no_magic, no_length):
            reader = read_all_batches(memoryview(data)[:size])
            if size < layout.FRAME_SIZE or data is good:
                assert list(reader) == []
                assert reader.position == 0
            else:
                with pytest.raises(CorruptBatchError):
                    next(reader)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("delta", [1, 2])
def test_a_changed_header_fails_the_check(codec: Codec, delta: int) -> None:
    """The checksum covers the last offset delta, so no reader believes another."""
    data = bytearray(written(2, codec, SIX))
    data[layout.LAST_OFFSET_DELTA_POSITION + 3] ^= delta
    [(_, batch)] = read_batches(memoryview(data))
    with pytest.raises(CorruptBatchError, match="CRC-32C"):
        batch.check()


@settings(max_examples=examples(100), deadline=None, database=None)
@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_sequences_count_backwards_too(sequence: int, count: int) -> None:
    """Before 0 comes 2147483647, so going back undoes going on."""
    assert sequence_after(sequence_after(sequence, count), -count) == sequence
    assert sequence_after(0, -1) == 2**31 - 1
    assert sequence_after(5, -5) == 0
