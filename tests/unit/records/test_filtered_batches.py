"""Batches after the cleaner has taken records out of them, in every format and codec.

Records without a key go from a compacted log, so what stays is plain to see.
"""

from collections.abc import Sequence

import pytest

from tailrace.model import Codec, TimestampType
from tailrace.records import layout
from tailrace.records.batch import Batch, stamp
from tailrace.records.builder import BatchBuilder, Record, records_of
from tailrace.records.codecs import compress
from tests.naive import LegacyMessage, write_all_legacy, write_legacy
from tests.unit.records.batches import record_at
from tests.unit.storage.cleaner.shelves import LATER, NOW, RETENTION_MS, Shelf

codecs = pytest.mark.parametrize("codec", Codec)
MATRIX = [(2, codec) for codec in Codec] + [
    (magic, codec) for magic in (0, 1) for codec in Codec if codec is not Codec.ZSTD
]
formats = pytest.mark.parametrize(("magic", "codec"), MATRIX)
APPEND_TIME = TimestampType.LOG_APPEND_TIME


def put(
    shelf: Shelf,
    magic: int,
    codec: Codec,
    *,
    base_offset: int,
    records: Sequence[Record],
    append_time: int | None = None,
) -> None:
    """Appends the records as one batch or, of old formats without a codec, one entry each."""
    kind = TimestampType.CREATE_TIME if append_time is None else APPEND_TIME
    last, largest = records[-1].offset, max(record.timestamp for record in records)
    time = largest if append_time is None else append_time
    if magic == 2:
        builder = BatchBuilder(codec=codec, timestamp_type=kind)
        for record in records:
            builder.append(
                record.key,
                record.value,
                timestamp=record.timestamp if append_time is None else append_time,
                offset_delta=record.offset - base_offset,
            )
        data = bytearray(builder.build())
        stamp(memoryview(data), base_offset=base_offset, leader_epoch=67)
    else:
        flag = layout.LOG_APPEND_TIME_FLAG * magic * (append_time is not None)
        shift = base_offset if magic and codec else 0
        entries = [
            LegacyMessage(magic, r.offset - shift, r.key, r.value, r.timestamp, flag)
            for r in records
        ]
        if codec:
            value = bytes(compress(codec, write_all_legacy(entries)))
            data = bytearray(
                write_legacy(LegacyMessage(magic, last, None, value, time, codec | flag))
            )
        else:
            if append_time is not None:
                entries = [entry._replace(timestamp=append_time) for entry in entries]
            data = bytearray(write_all_legacy(entries))
    shelf.end = base_offset
    shelf.write(bytes(data), last + 1 - base_offset, max_timestamp=time, is_stamped=False)


def close(shelf: Shelf) -> None:
    """A last batch, which stays in any case, and a new active segment."""
    shelf.append((b"end", b"end"))
    shelf.roll()


def cleaned(shelf: Shelf) -> list[Batch]:
    """The batches after a round, without the last."""
    shelf.clean()
    return shelf.batches()[:-1]


def rows(batches: Sequence[Batch]) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record."""
    return [(record.offset, record.value) for batch in batches for record in records_of(batch)]


@formats
def test_a_compacted_batch_is_compacted_again(magic: int, codec: Codec) -> None:
    """Gaps stay gaps; v2 keeps its first and last offset and its epoch, older formats have none."""
    shelf = Shelf()
    records = [
        record_at(5, 10, None, b"a"),
        record_at(8, 11, b"1", b"b"),
        record_at(10, 12, None, b"c"),
    ]
    put(shelf, magic, codec, base_offset=0, records=records)
    close(shelf)
    [batch] = cleaned(shelf)
    assert list(records_of(batch)) == [record_at(8, 11 if magic else -1, b"1", b"b")]
    if magic == 2:
        assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (0, 10, 67)
    else:
        assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (8, 8, -1)
    assert (batch.legacy is None) == (magic == 2)


FOUR = (
    [record_at(0, 10, b"1", b"a")],
    [record_at(1, 11, None, b"b"), record_at(2, 12, None, b"c")],
    [record_at(3, 13, b"4", b"d"), record_at(4, 20, b"5", b"e"), record_at(5, 15, b"6", b"f")],
    [record_at(6, 16, None, b"g")],
)


@formats
def test_batches_that_lose_everything_are_gone(magic: int, codec: Codec) -> None:
    """Batches without a record left go; those between them stay, byte for byte."""
    shelf = Shelf()
    for records in FOUR:
        put(shelf, magic, codec, base_offset=records[0].offset, records=records)
    close(shelf)
    before = [bytes(batch.view) for batch in shelf.batches() if batch.base_offset in {0, 3, 4, 5}]
    after = cleaned(shelf)
    whole = magic == 2 or codec is not Codec.NONE
    assert [batch.last_offset for batch in after] == ([0, 5] if whole else [0, 3, 4, 5])
    assert [bytes(batch.view) for batch in after] == before


MIXED = (
    [record_at(0, 10, None, b"a")],
    [record_at(1, 11, b"1", b"b"), record_at(2, 12, None, b"c")],
    [record_at(3, 13, None, b"d"), record_at(4, 20, b"4", b"e"), record_at(5, 15, b"5", b"f")],
    [record_at(6, 16, b"6", b"g")],
)


@formats
def test_what_stays_of_four_batches_is_counted(magic: int, codec: Codec) -> None:
    """Records and bytes, read and written, and of each batch its range and largest timestamp."""
    shelf = Shelf()
    for records in MIXED:
        put(shelf, magic, codec, base_offset=records[0].offset, records=records)
    close(shelf)
    [bytes_before] = shelf.sizes()
    statistics = shelf.clean().statistics
    after = shelf.batches()[:-1]
    assert (statistics.records_read, statistics.records_written) == (8, 5)
    assert (statistics.bytes_read, [statistics.bytes_written]) == (bytes_before, shelf.sizes())
    assert rows(after) == [(1, b"b"), (4, b"e"), (5, b"f"), (6, b"g")]
    ranges = [(batch.base_offset, batch.last_offset) for batch in after]
    if magic == 2:
        assert ranges == [(1, 2), (3, 5), (6, 6)]
    elif codec is not Codec.NONE:
        assert ranges == [(1, 1), (4, 5), (6, 6)]
    else:
        assert ranges == [(1, 1), (4, 4), (5, 5), (6, 6)]
    if magic == 0:
        assert {batch.max_timestamp for batch in after} == {-1}
    else:
        largest = [max(r.timestamp for r in records_of(batch)) for batch in after]
        assert [batch.max_timestamp for batch in after] == largest


@formats
def test_what_stays_may_be_larger_than_a_chunk(magic: int, codec: Codec) -> None:
    """Output is written in chunks; a batch that alone is larger comes through whole."""
    large = bytes(200_000)
    shelf = Shelf()
    for base_offset in (0, 3, 6):
        values = [(None, b"a"), (b"%d" % base_offset, large), (b"%d+" % base_offset, b"b")]
        records = [record_at(base_offset + n, NOW, *pair) for n, pair in enumerate(values)]
        put(shelf, magic, codec, base_offset=base_offset, records=records)
    close(shelf)
    after = cleaned(shelf)
    assert [offset for offset, _ in rows(after)] == [1, 2, 4, 5, 7, 8]
    assert [value for _, value in rows(after)] == [large, b"b"] * 3


@pytest.mark.parametrize(("magic", "codec"), [pair for pair in MATRIX if pair[0]])
def test_append_time_outlives_filtering(magic: int, codec: Codec) -> None:
    """Type, time and codec of what stays are those of the batch before."""
    shelf = Shelf()
    for records in MIXED[:3]:
        first = records[0].offset
        put(shelf, magic, codec, base_offset=first, records=records, append_time=NOW)
    close(shelf)
    after = cleaned(shelf)
    assert rows(after) == [(1, b"b"), (4, b"e"), (5, b"f")]
    assert len(after) == (3 if magic == 1 and codec is Codec.NONE else 2)
    for batch in after:
        assert (batch.timestamp_type, batch.max_timestamp) == (APPEND_TIME, NOW)
        assert {record.timestamp for record in records_of(batch)} == {NOW}
        stored = batch.codec if batch.legacy is None else batch.legacy.codec_number
        assert stored == codec


@codecs
def test_producers_outlive_filtering(codec: Codec) -> None:
    """Id, epoch, sequences and the transactional bit stay, and so do the ranges of offsets."""
    shelf = Shelf()
    shelf.append((None, b"a"), (b"1", b"b"), (None, b"c"), codec=codec)
    for producer_id, is_transactional in ((23, False), (99384, True)):
        shelf.append((b"%d" % producer_id, b"d"), codec=codec, producer_id=producer_id)
        shelf.append(
            (None, b"e"),
            (b"%d+" % producer_id, b"f"),
            codec=codec,
            producer_id=producer_id,
            is_transactional=is_transactional,
        )
    close(shelf)
    before = [batch for batch in shelf.batches() if batch.record_count > 1]
    shelf.clean()
    after = [batch for batch in shelf.batches() if batch.last_offset_delta]
    assert [batch.record_count for batch in after] == [1, 1, 1]
    assert [batch.is_transactional for batch in after] == [False, False, True]
    for old, new in zip(before, after, strict=True):
        for name in (
            "base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence",
            "last_sequence", "is_transactional", "leader_epoch", "codec", "timestamp_type",
        ):  # fmt: skip
            assert getattr(new, name) == getattr(old, name), name


def emptied(codec: Codec, *, is_transactional: bool) -> Shelf:
    """A log whose first batch, the last of its producer, has lost both of its records."""
    shelf = Shelf()
    shelf.append((b"0", b"0"), (b"1", b"1"), producer_id=23)
    shelf.append(
        (b"2", b"b"), (b"3", b"c"), codec=codec, producer_id=23, is_transactional=is_transactional
    )
    shelf.append((b"0", b""), (b"1", b""), (b"2", b""), (b"3", b""))
    close(shelf)
    shelf.clean()
    return shelf


@codecs
@pytest.mark.parametrize("flag", [0, layout.TRANSACTIONAL_FLAG])
def test_a_batch_without_records_keeps_its_header(codec: Codec, flag: int) -> None:
    """Offsets, sequences, epoch, type and time stay while its producer is active."""
    batch = emptied(codec, is_transactional=bool(flag)).batches()[0]
    assert (batch.size, batch.record_count, batch.codec) == (61, 0, Codec.NONE)
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (2, 3, 5)
    assert (batch.producer_id, batch.producer_epoch) == (23, 0)
    assert (batch.base_sequence, batch.last_sequence) == (2, 3)
    assert (batch.max_timestamp, batch.timestamp_type) == (NOW + 1, TimestampType.CREATE_TIME)
    assert batch.attributes == flag
    assert list(records_of(batch)) == []


def test_a_batch_without_records_stays_as_it_is() -> None:
    """Another round finds nothing to do with it."""
    shelf = emptied(Codec.NONE, is_transactional=False)
    before = bytes(shelf.batches()[0].view)
    shelf.clean(now_ms=LATER)
    assert bytes(shelf.batches()[0].view) == before


def test_a_batch_without_records_goes_with_its_producer() -> None:
    """An empty batch is dropped once its sequence number is not needed."""
    shelf = emptied(Codec.NONE, is_transactional=False)
    assert shelf.batches()[0].record_count == 0
    shelf.clean(producers={})
    assert [batch.record_count for batch in shelf.batches()] == [4, 1]


@codecs
def test_the_delete_horizon_takes_the_place_of_the_base_timestamp(codec: Codec) -> None:
    """The rewritten records keep their timestamps."""
    shelf = Shelf()
    records = [
        record_at(0, 5, b"0", b"0"),
        record_at(1, 10, b"1", None),
        record_at(2, 15, b"2", b"2"),
    ]
    put(shelf, 2, codec, base_offset=0, records=records)
    close(shelf)
    [batch] = cleaned(shelf)
    assert batch.delete_horizon_or_none == batch.base_timestamp == NOW + RETENTION_MS
    assert list(records_of(batch)) == records
    assert (batch.max_timestamp, batch.codec) == (15, codec)
