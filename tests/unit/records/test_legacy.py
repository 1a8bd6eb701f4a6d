"""Formats v0 and v1: what they hold comes out as batches of v2, and what is damaged does not."""

import contextlib
import warnings
from itertools import product
from typing import Any
from zlib import crc32

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import CorruptionError
from tailrace.model import Codec, Offset, TimestampType
from tailrace.records.batch import CorruptBatchError
from tailrace.records.builder import BatchBuilder, Record, records_of
from tailrace.records.checks import check_records
from tailrace.records.codecs import CorruptCompressionError, compress
from tailrace.records.columns import ColumnsBuilder
from tailrace.records.legacy import converted, read_all_batches
from tailrace.records.search import find_timestamp
from tests.examples import examples
from tests.naive import LegacyMessage, write_all_legacy, write_legacy
from tests.unit.records.batches import record_at

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.legacy_records import LegacyRecordBatch as KafkaPythonBatch
    from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
CONTENT = st.none() | st.binary(max_size=40)
APPEND_TIME = 8

ROWS = st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 2**62), CONTENT, CONTENT), max_size=6)


def compressed(codec: Codec, data: bytes, magic: int) -> bytes:
    """Compress as Kafka does: the header of v0's lz4 frame has a wrong checksum."""
    value = bytearray(compress(codec, data))
    if codec is Codec.LZ4 and magic == 0:
        value[6] = 0x1A
    return bytes(value)


def wrapped(inner: list[LegacyMessage], codec: Codec = Codec.GZIP, **fields: Any) -> bytes:
    """A wrapper; its offset is that of the last message inside unless `fields` says otherwise."""
    magic = fields.pop("magic", inner[0].magic if inner else 1)
    wrapper = LegacyMessage(
        magic,
        fields.pop("offset", inner[-1].offset if inner else 0),
        None,
        compressed(codec, write_all_legacy(inner), magic),
        fields.pop("timestamp", max((message.timestamp for message in inner), default=-1)),
        codec | fields.pop("attributes", 0),
    )
    assert not fields
    return write_legacy(wrapper)


def read(data: bytes) -> list[Record]:
    """Every record in `data`, of batches that pass all checks."""
    found: list[Record] = []
    reader = read_all_batches(memoryview(data))
    for _, batch in reader:
        batch.check()
        check_records(batch)
        records = list(records_of(batch))
        assert (batch.base_offset, batch.last_offset) == (records[0].offset, records[-1].offset)
        assert batch.max_timestamp == max(record.timestamp for record in records)
        found += records
    assert reader.position == len(data)
    return found


def three(magic: int, *offsets: int) -> list[LegacyMessage]:
    """Messages with these offsets; their timestamps count down from 1000."""
    return [
        LegacyMessage(magic, offset, b"k%d" % place, b"v", 1000 - place if magic else -1)
        for place, offset in enumerate(offsets)
    ]


@pytest.mark.parametrize(("magic", "crc"), [(0, 1978725405), (1, 109425508)])
def test_golden_checksums(magic: int, crc: int) -> None:
    """A known record has the checksum that Apache Kafka's tests expect, and is read."""
    data = write_legacy(LegacyMessage(magic, 0, b"key1", b"value1", 283843))
    batch = converted(memoryview(data))
    assert batch.legacy is not None
    assert (batch.legacy.crc, batch.legacy.magic, batch.size) == (crc, magic, len(data))
    assert list(records_of(batch)) == [record_at(0, 283843 if magic else -1, b"key1", b"value1")]


GOLDEN_LZ4_BLOCKS = {
    0: (
        "16000100511875f0f41d0f00e0046b6579310000000676616c75650a0000020011012400301bc3a6"
        "0d00012400b0320000000676616c756532"
    ),
    1: (
        "1600010062200685b364011000f0050454c3000000046b6579310000000676616c75650a00000200"
        "00230050200509300509000002002304d22c00b0320000000676616c756532"
    ),
}
"""By magic: two known entries as lz4-java's fast compressor has them; others parse otherwise."""


@pytest.mark.parametrize(("magic", "crc"), [(0, 66944826), (1, 1407303399)])
def test_golden_checksums_of_wrappers(magic: int, crc: int) -> None:
    """Two known records in lz4 have the checksum that Apache Kafka's tests expect, and are read."""
    rows = [(b"key1", b"value1", 283843), (b"key2", b"value2", 1234)]
    expected = [record_at(n, row[2] if magic else -1, *row[:2]) for n, row in enumerate(rows)]
    block = bytes.fromhex(GOLDEN_LZ4_BLOCKS[magic])
    header = b"\x04\x22\x4d\x18\x60\x40" + (b"\x82" if magic else b"\x1a")
    value = header + len(block).to_bytes(4, "little") + block + bytes(4)
    data = write_legacy(LegacyMessage(magic, 1, None, value, 283843, Codec.LZ4))
    batch = converted(memoryview(data))
    assert batch.legacy is not None
    assert (batch.legacy.crc, batch.legacy.magic) == (crc, magic)
    assert read(data) == expected


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_no_codec_of_old_formats(magic: int) -> None:
    """Kafka has it since 2.1, and refuses it in entries that are older."""
    value = bytes(compress(Codec.ZSTD, write_all_legacy(three(magic, 0, 1))))
    data = write_legacy(LegacyMessage(magic, 1, None, value, 1000, Codec.ZSTD))
    with pytest.raises(CorruptBatchError, match=f"codec 4 in format v{magic}"):
        converted(memoryview(data))


@pytest.mark.parametrize("codec", [Codec.NONE, *CODECS])
@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=examples(100), deadline=None, database=None)
@given(start=st.integers(0, 2**62), rows=ROWS)
def test_what_was_written_is_read(
    codec: Codec, magic: int, start: int, rows: list[tuple[int, int, bytes | None, bytes | None]]
) -> None:
    """Offsets with holes, timestamps, keys and values, for both formats and every codec."""
    messages = []
    offset = start
    for gap, timestamp, key, value in rows:
        offset += gap + 1
        messages.append(LegacyMessage(magic, offset, key, value, timestamp if magic else -1))
    expected = [record_at(m.offset, m.timestamp, m.key, m.value) for m in messages]
    if codec is Codec.NONE:
        assert read(write_all_legacy(messages)) == expected
    elif messages:
        shift = start if magic else 0
        inner = [message._replace(offset=message.offset - shift) for message in messages]
        assert read(wrapped(inner, codec, offset=offset)) == expected


@pytest.mark.parametrize("builder", [KafkaPythonBuilder, AioBuilder])
@pytest.mark.parametrize(
    ("magic", "codec"),
    [(1, Codec.LZ4), *product([0, 1], [Codec.NONE, Codec.GZIP, Codec.SNAPPY])],
)
def test_what_python_clients_write_is_read(builder: Any, magic: int, codec: Codec) -> None:
    """Their wrappers have offset 0, and a timestamp of 0 that is not the largest inside.

    Neither writes lz4 for v0 with what is installed.
    """
    writer = builder(magic=magic, compression_type=int(codec), batch_size=1 << 16)
    rows = [(0, 17, b"a", b"b" * 300), (1, 15, None, b""), (2, 16, b"", None)]
    for offset, timestamp, key, value in rows:
        writer.append(offset, timestamp=timestamp, key=key, value=value)
    expected = [record_at(o, t if magic else -1, key, value) for o, t, key, value in rows]
    assert read(bytes(writer.build())) == expected


@pytest.mark.parametrize("append_time", [0, APPEND_TIME])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
def test_kafka_python_reads_the_same(codec: Codec, magic: int, append_time: int) -> None:
    """kafka-python's reader gives the same offsets, timestamps and contents."""
    inner = three(magic, 0, 1, 2) if magic else three(magic, 40, 43, 44)
    if codec is Codec.NONE:
        data = write_legacy(inner[0]._replace(offset=44, attributes=append_time * magic))
    else:
        data = wrapped(inner, codec, offset=44, timestamp=5000, attributes=append_time * magic)
    theirs = [
        record_at(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value)
        for r in KafkaPythonBatch(bytearray(data), magic)
    ]
    assert read(data) == theirs


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_of_offset_0_has_base_0(magic: int) -> None:
    """Old versions of librdkafka send such wrappers."""
    assert [r.offset for r in read(wrapped(three(magic, 0, 1, 2), offset=0))] == [0, 1, 2]


def test_the_offset_of_a_wrapper_is_that_of_its_last_message() -> None:
    """A wrapper of v1 has its last message's offset, also if compaction has left holes."""
    assert [r.offset for r in read(wrapped(three(1, 0, 1, 2), offset=102))] == [100, 101, 102]
    assert [r.offset for r in read(wrapped(three(1, 2, 5, 9), offset=109))] == [102, 105, 109]


def test_offsets_in_a_wrapper_of_v0_are_absolute() -> None:
    """The wrapper's own offset does not matter."""
    assert [r.offset for r in read(wrapped(three(0, 100, 103, 109)))] == [100, 103, 109]


def test_the_wrapper_decides_on_the_timestamp_type() -> None:
    """LogAppendTime gives its timestamp to all; CreateTime leaves theirs, whatever bit they set."""
    inner = [message._replace(attributes=APPEND_TIME) for message in three(1, 0, 1)]
    [(_, batch)] = read_all_batches(memoryview(wrapped(inner)))
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert [record.timestamp for record in records_of(batch)] == [1000, 999]
    data = wrapped(three(1, 0, 1), timestamp=7, attributes=APPEND_TIME)
    [(_, batch)] = read_all_batches(memoryview(data))
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.max_timestamp == 7
    assert [record.timestamp for record in records_of(batch)] == [7, 7]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_an_entry_of_v1_becomes_a_batch_with_its_timestamps_and_no_producer(codec: Codec) -> None:
    """The batch keeps the timestamps, and its producer id, epoch and sequence are -1."""
    inner = [
        message._replace(timestamp=5000 + place) for place, message in enumerate(three(1, 0, 1, 2))
    ]
    data = write_all_legacy(inner[:1]) if codec is Codec.NONE else wrapped(inner, codec=codec)
    batch = converted(memoryview(data))
    batch.check()
    assert batch.magic == 2
    assert [record.timestamp - 5000 for record in records_of(batch)] == list(
        range(batch.record_count)
    )
    assert batch.max_timestamp == 5000 + batch.record_count - 1
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert not batch.is_transactional


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_an_entry_of_v0_becomes_a_batch_without_timestamps(codec: Codec) -> None:
    """The format has none, so each record has -1, and so has the batch."""
    inner = three(0, 0, 1, 2)
    data = write_all_legacy(inner[:1]) if codec is Codec.NONE else wrapped(inner, codec=codec)
    batch = converted(memoryview(data))
    batch.check()
    assert {record.timestamp for record in records_of(batch)} == {-1}
    assert batch.max_timestamp == -1
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)


def test_v0_has_no_timestamp_type() -> None:
    """Its attributes have a codec only; all timestamps are -1."""
    data = write_legacy(LegacyMessage(0, 3, b"k", b"v", attributes=APPEND_TIME))
    [(_, batch)] = read_all_batches(memoryview(data))
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.CREATE_TIME, -1)


def test_v0_takes_any_checksum_of_an_lz4_header_and_v1_the_right_one() -> None:
    """Kafka wrote 0x1a where 0x82 is right; from v1 on that is damage."""
    for magic, checksum, is_read in [(0, 0x1A, 1), (0, 0x82, 1), (1, 0x82, 1), (1, 0x1A, 0)]:
        value = bytearray(compress(Codec.LZ4, write_all_legacy(three(magic, 0, 1))))
        value[6] = checksum
        data = write_legacy(LegacyMessage(magic, 1, None, bytes(value), 0, Codec.LZ4))
        if is_read:
            assert len(read(data)) == 2
        else:
            with pytest.raises(CorruptCompressionError, match="lz4"):
                read(data)


def test_v0_reads_lz4_headers_with_a_content_size() -> None:
    """The checksum that is put right covers it."""
    inner = write_all_legacy(three(0, 0, 1))
    frame = compress(Codec.LZ4, inner)
    header = b"\x04\x22\x4d\x18\x68\x40" + len(inner).to_bytes(8, "little") + b"\x00"
    value = header + bytes(frame[7:])
    assert len(read(write_legacy(LegacyMessage(0, 1, None, value, 0, Codec.LZ4)))) == 2


GOOD = LegacyMessage(1, 0, b"k", b"v", 5)
NESTED = LegacyMessage(1, 0, None, compressed(Codec.GZIP, write_legacy(GOOD), 1), 5, Codec.GZIP)


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (wrapped([NESTED]), "wrapper inside of a wrapper"),
        (write_legacy(LegacyMessage(1, 0, None, None, 5, Codec.GZIP)), "without a value"),
        (write_legacy(LegacyMessage(0, 0, None, None, attributes=Codec.LZ4)), "without a value"),
        (wrapped([], magic=0), "without any record"),
        (wrapped([], magic=1), "without any record"),
        (wrapped(three(1, 0, 1, 2), offset=1), "relative offset 2"),
        (wrapped(three(1, 0, 2, 2)), "offset 2 after 0 to 2"),
        (wrapped(three(0, 0, 2**31)), "offset 2147483648 after"),
        (wrapped(three(1, -3, 1), offset=2), "has the offset -2"),
        (write_legacy(GOOD._replace(offset=-1)), "has the offset -1"),
        (wrapped([GOOD], Codec.ZSTD), "codec 4 in format v1"),
        (write_legacy(GOOD._replace(attributes=7)), "codec 7 in format v1"),
        (write_legacy(LegacyMessage(1, 0, None, b"nothing", 5, Codec.GZIP)), "gzip payload"),
        (wrapped([GOOD._replace(magic=2)], magic=1), "magic inside of a wrapper is 2"),
    ],
)
def test_what_no_writer_makes_is_refused(data: bytes, rule: str) -> None:
    """An entry with a right checksum is refused too; the error has the rule and the position."""
    before = write_legacy(GOOD)
    reader = read_all_batches(memoryview(before + data))
    next(reader)
    with pytest.raises(CorruptionError, match=rule) as caught:
        next(reader)
    assert caught.value.position == len(before)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("0000ffffffff", "claims 22 bytes"),
        ("0100ffffffffffffffff", "claims 26 bytes of 26; it has 34 or more"),
        ("0000fffffffeffffffff", "beyond an entry"),
        ("000000000001ffffffff", "beyond an entry"),
        ("000000000004ffffffff", "beyond an entry"),
        ("0000ffffffff00000001", "beyond an entry"),
        ("0000ffffffffffffffff77", "1 bytes after the value"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(body: str, rule: str) -> None:
    """Such an entry is refused despite a right checksum, alone and inside of a wrapper."""
    raw = bytes.fromhex(body)
    entry = bytes(8) + (len(raw) + 4).to_bytes(4, "big") + crc32(raw).to_bytes(4, "big") + raw
    value = compressed(Codec.GZIP, entry, 0)
    wrapper = write_legacy(LegacyMessage(0, 0, None, value, attributes=Codec.GZIP))
    for data in (entry, wrapper):
        if len(data) < 26:
            continue
        with pytest.raises(CorruptBatchError, match=rule):
            converted(memoryview(data))


@pytest.mark.parametrize("magic", [0, 1])
def test_every_flipped_bit_is_found(magic: int) -> None:
    """Every flipped bit is found, except in the offset, which no checksum covers."""
    data = bytearray(write_legacy(LegacyMessage(magic, 0, b"key", b"value", 9)))
    for place in range(8 * 8, 8 * len(data)):
        data[place // 8] ^= 1 << place % 8
        accepted: list[object] = []
        with contextlib.suppress(CorruptBatchError):
            accepted += read_all_batches(memoryview(data))
        assert not accepted
        data[place // 8] ^= 1 << place % 8


def test_a_wrong_checksum_inside_of_a_wrapper_is_found() -> None:
    """The wrapper's own is right."""
    inner = bytearray(write_all_legacy(three(1, 0, 1)))
    inner[-1] ^= 1
    value = compressed(Codec.SNAPPY, bytes(inner), 1)
    with pytest.raises(CorruptBatchError, match=r"offset 1: the stored CRC-32 of format v1"):
        converted(memoryview(write_legacy(LegacyMessage(1, 1, None, value, 9, Codec.SNAPPY))))


def test_a_partial_tail_ends_the_reading_silently() -> None:
    """Cut anywhere, the first entry is read and `position` says where the tail starts."""
    data = write_legacy(GOOD)
    for cut in range(len(data)):
        reader = read_all_batches(memoryview(data + data[:cut]))
        assert [position for position, _ in reader] == [0]
        assert reader.position == len(data)


def test_all_formats_come_through_the_same_doors() -> None:
    """Columns and searches over v0, v1 and v2, one behind the other."""
    new = BatchBuilder()
    new.append(b"k", b"new", timestamp=3000)
    data = bytearray(write_all_legacy(three(0, 0, 1)) + wrapped(three(1, 0, 1, 2), offset=4))
    data += bytes(7) + b"\x05" + new.build()[8:]
    columns = ColumnsBuilder()
    found = []
    for _, batch in read_all_batches(memoryview(data)):
        columns.append(batch, start_offset=1, limit_offset=6)
        found.append(find_timestamp(batch, 999, start_offset=Offset(3)))
    table = columns.finish()
    assert table.column("offset").to_pylist() == [1, 2, 3, 4, 5]
    assert table.column("timestamp").cast("int64").to_pylist() == [
        -1000, 1_000_000, 999_000, 998_000, 3_000_000,
    ]  # fmt: skip
    assert found == [None, None, (3, 999), (5, 3000)]


def test_the_cost_of_an_entry_inside_is_bounded() -> None:
    """The batch in memory is never larger than what the wrapper holds, and one header."""
    inner = [LegacyMessage(0, 2**30 * place, None, None) for place in range(2)]
    inner += [
        LegacyMessage(1, 2**31 - 60 + place, None, None, (-1) ** place * 2**62)
        for place in range(50)
    ]
    [(_, batch)] = read_all_batches(memoryview(wrapped(inner)))
    assert len(batch.view) <= 61 + len(write_all_legacy(inner))
