"""One record of format v2: what it holds, and that no reader takes a broken one."""

import pytest

from tailrace.model import Codec
from tailrace.records.batch import Batch, sequence_after
from tailrace.records.builder import records_of
from tailrace.records.checks import CorruptRecordError, check_records
from tailrace.records.columns import ColumnsBuilder
from tailrace.records.schema import Column
from tests.naive import NaiveRecord, varint, write_record
from tests.unit.records.batches import (
    DECODED,
    batch_with,
    record_at,
)

codecs = pytest.mark.parametrize("codec", Codec)

HEADERS = ((b"foo", b"value"), (b"bar", None), ('"A\u00ea\u00f1\u00fcC"'.encode(), b"value"))


def record(*fields: bytes, length: int | None = None) -> bytes:
    """A record of these fields behind its attributes, with its length or with another one."""
    body = b"\x00" + b"".join(fields)
    return varint(len(body) if length is None else length) + body


def decode(batch: Batch, *columns: Column) -> None:
    """Read these columns of every record."""
    ColumnsBuilder(columns).append(batch, start_offset=0, limit_offset=2**62)


START = b"\x00\x00"
"""Timestamp and offset deltas of 0."""

BROKEN = {
    "header count too high": record(START, b"\x02k\x02v", varint(3), b"\x02a\x02b"),
    "header count too low": record(START, b"\x02k\x02v", varint(1), b"\x02a\x02b\x02c\x02d"),
    "header count beyond the record": record(START, b"\x02k\x02v", varint(2**31 - 1)),
    "negative header count": record(START, b"\x02k\x02v", varint(-1)),
    "key beyond the record": record(START, varint(105), b"k\x02v\x00"),
    "key of less than -1": record(START, varint(-2), b"k\x02v\x00"),
    "value beyond the record": record(START, b"\x02k", varint(105), b"v\x00"),
    "value of less than -1": record(START, b"\x02k", varint(-2), b"v\x00"),
    "header key beyond the record": record(START, b"\x02k\x02v\x02", varint(105), b"a"),
    "null header key": record(START, b"\x02k\x02v\x02", varint(-1), b"\x02v"),
    "header value beyond the record": record(START, b"\x02k\x02v\x02\x02a", varint(105), b"v"),
    "ends before the timestamp": record(),
    "ends inside the timestamp": record(b"\xb8"),
    "timestamp of eleven bytes": record(b"\xfe" + b"\xff" * 8 + b"\x80" + b"\x00", b"\x00" * 9),
    "ends behind its length": varint(10),
    "shorter than its length": record(START, b"\x02k\x02v\x00", length=20),
    "longer than its length": record(START, b"\x02k\x02v\x00", length=6),
    "negative length": record(START, b"\x02k\x02v\x00", length=-1),
}


@codecs
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_record_is_refused_at_every_door(broken: str, codec: Codec) -> None:
    """Checks, record objects, and full and partial decoding all refuse it."""
    batch = batch_with(BROKEN[broken], 1, codec)
    batch.check()
    with pytest.raises(CorruptRecordError):
        check_records(batch)
    with pytest.raises(CorruptRecordError):
        next(records_of(batch))
    with pytest.raises(CorruptRecordError):
        decode(batch, *DECODED)
    for column in DECODED:
        with pytest.raises(CorruptRecordError):
            decode(batch, column)


@codecs
@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"hi", b"there", ()),
        (None, b"there", ()),
        (b"hi", None, ()),
        (None, None, ()),
        (b"hi", b"there", HEADERS),
    ],
)
def test_a_record_is_read_as_it_was_written(
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[bytes, bytes | None], ...],
    codec: Codec,
) -> None:
    """Deltas are added to the bases, null is not empty, headers keep order and null values."""
    batch = batch_with(write_record(NaiveRecord(323, 10, key, value, headers)), 1, codec)
    expected = record_at(
        510, 323, key, value, tuple((name.decode(), text) for name, text in headers)
    )
    assert list(records_of(batch)) == [expected]
    assert sequence_after(723, expected.offset - batch.base_offset) == 733


def test_a_record_of_no_producer_has_no_sequence() -> None:
    """-1 stays -1 for every record of the batch."""
    [read] = records_of(batch_with(write_record(NaiveRecord(0, 10, b"hi", b"there")), 1))
    assert sequence_after(-1, read.offset - 500) == -1
