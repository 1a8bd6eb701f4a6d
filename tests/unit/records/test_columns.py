"""`ColumnsBuilder`: batches in, an Arrow record batch out."""

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model import Codec, TimestampType
from tailrace.records.batch import Batch, read_batches, stamp
from tailrace.records.builder import BatchBuilder, Record, records_of
from tailrace.records.checks import CorruptRecordError
from tailrace.records.columns import (
    BYTES_TARGET,
    MILLISECONDS_MAX,
    ROWS_TARGET,
    ColumnsBuilder,
)
from tailrace.records.legacy import read_all_batches
from tailrace.records.schema import Column
from tests.examples import examples
from tests.naive import LegacyMessage, NaiveRecord, write_legacy, write_record
from tests.unit.records.batches import (
    DECODED,
    GOOD,
    ROWS,
    batch_with,
    built,
    record_at,
)

EVERYTHING = {"start_offset": 0, "limit_offset": 2**62}


def at_offset(data: bytes, base_offset: int) -> Batch:
    """The batch in `data`, stamped."""
    stamped = bytearray(data)
    stamp(memoryview(stamped), base_offset=base_offset, leader_epoch=0)
    [(_, batch)] = read_batches(memoryview(stamped))
    return batch


def row_of(record: Record) -> dict[str, object]:
    """Return a record as a row."""
    headers = [{"key": key, "value": value} for key, value in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": 0,
        "headers": headers or None,
    }


def rows_of(chunk: pa.RecordBatch) -> list[dict[str, object]]:
    """The rows, with timestamps as integers."""
    index = chunk.schema.get_field_index("timestamp")
    numbers = chunk.set_column(index, "timestamp", chunk["timestamp"].cast(pa.int64()))
    return list(numbers.to_pylist())


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=examples(100), deadline=None, database=None)
@given(batches=st.lists(ROWS, max_size=3), start=st.integers(0, 12), limit=st.integers(0, 24))
def test_rows_are_the_records_of_the_range(
    codec: Codec, batches: list[list[Record]], start: int, limit: int
) -> None:
    """Each batch's records, in order, with offsets in the range, and valid as Arrow."""
    builder = ColumnsBuilder()
    expected: list[dict[str, object]] = []
    base_offset = 0
    for records in batches:
        batch = at_offset(built(records, codec), base_offset)
        kept = [record for record in records_of(batch) if start <= record.offset < limit]
        appended = builder.append(batch, start_offset=start, limit_offset=limit)
        assert appended == len(kept)
        expected += map(row_of, kept)
        base_offset = batch.next_offset
    assert builder.row_count == len(expected)
    chunk = builder.finish()
    chunk.validate(full=True)
    assert rows_of(chunk) == expected
    assert (builder.row_count, builder.byte_count) == (0, 0)


def test_the_schema_is_the_one_promised() -> None:
    """Types are exact, since Spark compares them, and every column may be null."""
    expected = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    assert ColumnsBuilder().schema == expected
    assert ColumnsBuilder().finish().schema == expected


@pytest.mark.parametrize("column", DECODED)
def test_each_column_comes_alone(column: Column) -> None:
    """A column asked for alone holds what it holds among the others."""
    batch = at_offset(
        built([record_at(0, 5, b"k", None, (("h", b"1"),)), record_at(1, 6, None, b"v")]), 7
    )
    alone, among = ColumnsBuilder([column]), ColumnsBuilder(DECODED)
    for builder in (alone, among):
        builder.append(batch, **EVERYTHING)
    chunk = alone.finish()
    assert chunk.schema.names == [column.value]
    assert chunk[column.value] == among.finish()[column.value]


def test_append_time_is_every_rows_timestamp() -> None:
    """A batch of LogAppendTime gives its maximum, and timestampType 1."""
    data = BatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME)
    data.append(b"k", b"v", timestamp=5)
    data.append(b"k", b"v", timestamp=9)
    builder = ColumnsBuilder([Column.TIMESTAMP, Column.TIMESTAMP_TYPE])
    builder.append(at_offset(data.build(), 0), **EVERYTHING)
    time = dt.datetime(1970, 1, 1, 0, 0, 0, 9000, tzinfo=dt.UTC)
    assert builder.finish().to_pylist() == [{"timestamp": time, "timestampType": 1}] * 2


@pytest.mark.parametrize(("magic", "kind"), [(0, -1), (1, 0)])
def test_records_of_format_v0_have_no_timestamp_type(magic: int, kind: int) -> None:
    """The format has no place for it; -1 as in Kafka's clients."""
    entry = write_legacy(LegacyMessage(magic, 3, b"k", b"v", 5 if magic else -1))
    builder = ColumnsBuilder([Column.OFFSET, Column.TIMESTAMP_TYPE])
    for _, batch in read_all_batches(memoryview(entry)):
        builder.append(batch, start_offset=0, limit_offset=9)
    assert builder.finish().to_pylist() == [{"offset": 3, "timestampType": kind}]


def test_timestamps_beyond_arrow_stop_at_its_end() -> None:
    """Nanoseconds sent for milliseconds do not wrap into a plausible date; -1 stays before 1970."""
    builder = ColumnsBuilder([Column.TIMESTAMP])
    records = [record_at(0, 1_700_000_000_000_000_000, b"", b""), record_at(1, -1, b"", b"")]
    builder.append(at_offset(built(records), 0), **EVERYTHING)
    times = builder.finish()["timestamp"].cast(pa.int64()).to_pylist()
    assert times == [MILLISECONDS_MAX * 1000, -1000]


def test_header_keys_that_are_not_utf8_are_replaced() -> None:
    """Java does the same; the column is always valid Arrow."""
    record = NaiveRecord(0, 0, None, None, ((b"\xff\xfea", b"1"), (b"ok", None)))
    builder = ColumnsBuilder([Column.HEADERS])
    builder.append(batch_with(write_record(record), 1), **EVERYTHING)
    chunk = builder.finish()
    chunk.validate(full=True)
    [row] = chunk.to_pylist()
    assert [header["key"] for header in row["headers"]] == ["\ufffd\ufffda", "ok"]


@pytest.mark.parametrize("columns", [DECODED, (Column.VALUE, Column.HEADERS)])
@pytest.mark.parametrize("count", [0, 1, 3, -1, 2**31 - 1])
def test_a_damaged_batch_leaves_the_chunk_as_it_was(
    count: int, columns: tuple[Column, ...]
) -> None:
    """The sound batch before it is still there, whole, and the next one can follow."""
    builder = ColumnsBuilder(columns)
    good = batch_with(GOOD, 1)
    builder.append(good, **EVERYTHING)
    bytes_before = builder.byte_count
    with pytest.raises(CorruptRecordError):
        builder.append(batch_with(GOOD * 2, count), **EVERYTHING)
    assert (builder.row_count, builder.byte_count) == (1, bytes_before)
    builder.append(good, **EVERYTHING)
    assert builder.finish()["value"].to_pylist() == [b"value", b"value"]


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (write_record(NaiveRecord(0, 0, None, None)) * ROWS_TARGET, ROWS_TARGET),
        (write_record(NaiveRecord(0, 0, None, bytes(BYTES_TARGET))), 1),
    ],
    ids=["rows", "bytes"],
)
def test_a_chunk_is_full_at_its_targets(payload: bytes, count: int) -> None:
    """Rows or bytes, whichever comes first."""
    builder = ColumnsBuilder()
    room = [builder.has_room]
    for batch in (batch_with(GOOD, 1), batch_with(payload, count)):
        builder.append(batch, **EVERYTHING)
        room.append(builder.has_room)
    assert room == [True, True, False]


def test_finished_chunks_do_not_change() -> None:
    """A chunk owns its memory: batches appended later go elsewhere."""
    builder = ColumnsBuilder()
    builder.append(batch_with(GOOD, 1), **EVERYTHING)
    chunk = builder.finish()
    before = chunk.to_pylist()
    other = write_record(NaiveRecord(0, 0, b"KEY", b"VALUE"))
    builder.append(batch_with(other, 1), **EVERYTHING)
    assert chunk.to_pylist() == before


def test_buffers_are_used_again_once_nobody_has_them() -> None:
    """A record batch, a slice of a column or a view of it keeps the memory from being reused."""
    builder = ColumnsBuilder()
    batch = batch_with(write_record(NaiveRecord(0, 0, None, b"v" * 1000)), 1)

    def column() -> pa.Array:
        builder.append(batch, **EVERYTHING)
        return builder.finish().column("value")

    def address(values: pa.Array) -> int:
        return int(values.buffers()[2].address)

    whole, sliced, viewed = column(), column().slice(0, 1), memoryview(column().buffers()[2])
    held = {address(whole), address(sliced), pa.py_buffer(viewed).address}
    assert len(held) == 3
    later = {address(column()) for _ in range(9)}
    assert not held & later
    assert len(later) < 9


def test_columns_of_the_batch_are_those_of_its_header() -> None:
    """Each record of the batch has them; sequences count on, and wrap."""
    names = (
        Column.CODEC, Column.PRODUCER_ID, Column.PRODUCER_EPOCH, Column.SEQUENCE,
        Column.LEADER_EPOCH, Column.IS_TRANSACTIONAL,
    )  # fmt: skip
    builder = ColumnsBuilder(names)
    for options in (
        {},
        {
            "codec": Codec.LZ4,
            "producer_id": 2**40,
            "producer_epoch": 5,
            "base_sequence": 2**31 - 2,
            "is_transactional": True,
        },
    ):
        data = BatchBuilder(**options)  # type: ignore[arg-type]
        for _ in range(4):
            data.append(b"k", b"v", timestamp=5)
        builder.append(at_offset(data.build(), 10), start_offset=11, limit_offset=14)
    plain, numbered = ("none", -1, -1, -1), ("lz4", 2**40, 5)
    rows = [tuple(row.values()) for row in builder.finish().to_pylist()]
    epoch = rows[0][4]
    assert rows[:3] == [(*plain, epoch, False)] * 3
    assert rows[3:] == [(*numbered, number, epoch, True) for number in (2**31 - 1, 0, 1)]
    assert builder.finish().num_rows == 0
