"""Batches for tests: of records, and of any payload with a right checksum."""

import crc32c
from hypothesis import strategies as st

from tailrace.model import Codec, Offset
from tailrace.records import layout
from tailrace.records.batch import Batch, read_batches
from tailrace.records.builder import BatchBuilder, Header, Record
from tailrace.records.codecs import compress
from tailrace.records.schema import Column, ColumnOrigin
from tests.naive import NaiveRecord, write_record


def record_at(
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[Header, ...] = (),
) -> Record:
    """A record, from plain numbers."""
    return Record(Offset(offset), timestamp, key, value, headers)


CONTENT = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=140)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3)
ROWS = st.lists(
    st.tuples(st.integers(0, 2**45), CONTENT, CONTENT, HEADERS.map(tuple)), min_size=1, max_size=8
).map(lambda rows: [record_at(offset, *row) for offset, row in enumerate(rows)])

DECODED = tuple(each for each in Column if each.origin is not ColumnOrigin.PLACE)
"""The columns that are made from the bytes of batches."""

GOOD = write_record(NaiveRecord(0, 0, b"key", b"value"))


def batch_with(payload: bytes, count: int, codec: Codec = Codec.NONE) -> Batch:
    """A batch with any payload and a right checksum."""
    stored = bytes(compress(codec, payload))
    data = bytearray(layout.HEADER_SIZE) + stored
    layout.HEADER.pack_into(
        data, 0, 500, len(data) - 12, 0, 2, 0, codec, max(0, count - 1), 0, 0, -1, -1, -1, count
    )
    layout.CRC.pack_into(data, layout.CRC_POSITION, crc32c.crc32c(memoryview(data)[21:]))
    [(_, batch)] = read_batches(memoryview(data))
    return batch


def built(records: list[Record], codec: Codec = Codec.NONE, **options: object) -> bytes:
    """A batch of the records."""
    builder = BatchBuilder(codec=codec, **options)  # type: ignore[arg-type]
    for record in records:
        builder.append(record.key, record.value, timestamp=record.timestamp, headers=record.headers)
    return builder.build()
