"""`Batch`, `read_batches` and `stamp`: frames, header fields, checksums."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import CorruptionError
from tailrace.model import Codec, TimestampType
from tailrace.records import layout
from tailrace.records.batch import (
    Batch,
    CorruptBatchError,
    UnsupportedMagicError,
    read_batches,
    sequence_after,
    stamp,
    stamp_append_time,
    stamp_max_timestamp,
)
from tailrace.records.builder import BatchBuilder, records_of
from tests.examples import examples

OUTSIDE_THE_CRC = {*range(layout.LENGTH_POSITION), *range(layout.LEADER_EPOCH_POSITION, 16)}


def small_batch(codec: Codec = Codec.NONE) -> bytes:
    """Two records, as in Apache Kafka's own tests."""
    builder = BatchBuilder(codec=codec)
    builder.append(b"key1", b"value1", timestamp=283843)
    builder.append(b"key2", b"value2", timestamp=1234)
    return builder.build()


def batch_of(data: bytes | bytearray) -> Batch:
    """The only batch in `data`."""
    [(_, batch)] = read_batches(memoryview(data))
    return batch


@pytest.mark.parametrize(("codec", "crc"), [(Codec.NONE, 3851219455), (Codec.LZ4, 2745969314)])
def test_golden_checksums(codec: Codec, crc: int) -> None:
    """Two known records have the checksums that Apache Kafka's tests expect."""
    batch = batch_of(small_batch(codec))
    batch.check()
    assert batch.crc == crc


def test_every_header_field_is_where_the_layout_says() -> None:
    """A header of distinct values comes back field by field, with what follows from it."""
    fields = (1000, 49, 7, 2, 0xDEADBEEF, 0x5B, 9, 11, 12, 13, 14, 2**31 - 5, 10)
    batch = Batch(memoryview(layout.HEADER.pack(*fields)))
    assert (
        batch.base_offset, batch.length, batch.leader_epoch, batch.magic, batch.crc,
        batch.attributes, batch.last_offset_delta, batch.base_timestamp, batch.max_timestamp,
        batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count,
    ) == fields  # fmt: skip
    assert (batch.size, batch.last_offset, batch.next_offset) == (61, 1009, 1010)
    assert (batch.codec, batch.timestamp_type) == (Codec.LZ4, TimestampType.LOG_APPEND_TIME)
    assert (batch.is_transactional, batch.is_control, batch.has_producer) == (True, False, True)
    assert (batch.delete_horizon_or_none, batch.last_sequence) == (11, 4)


@pytest.mark.parametrize("position", range(len(small_batch())))
def test_every_flipped_byte_is_found(position: int) -> None:
    """Any changed byte but those of base offset and leader epoch is found.

    It is refused, or the length now says that there is no whole batch.
    """
    data = bytearray(small_batch())
    if position in OUTSIDE_THE_CRC:
        return
    for bit in range(8):
        data[position] ^= 1 << bit
        reader = read_batches(memoryview(data))
        accepted = 0
        try:
            for _, batch in reader:
                batch.check()
                accepted += 1
        except (CorruptBatchError, UnsupportedMagicError):
            pass
        assert accepted == 0
        data[position] ^= 1 << bit


def test_a_partial_tail_ends_the_reading_silently() -> None:
    """Cut anywhere, the first batch is read and `position` says where the tail starts."""
    data = small_batch()
    for cut in range(len(data)):
        reader = read_batches(memoryview(data + data[:cut]))
        assert [position for position, _ in reader] == [0]
        assert reader.position == len(data)


@pytest.mark.parametrize(
    ("position", "patch", "rule"),
    [
        (8, b"\x00\x00\x00\x0d", "length is 13"),
        (8, b"\xff\xff\xff\xff", "length is -1"),
        (8, b"\x00\x00\x00\x30", "60 bytes, less than"),
        (8, b"\x7f\xff\xff\xff", "more than"),
        (16, b"\x03", "magic is 3"),
        (16, b"\xff", "magic is 255"),
    ],
)
def test_frames_that_no_writer_makes_are_refused(position: int, patch: bytes, rule: str) -> None:
    """The error names the rule and the position."""
    good = small_batch()
    data = bytearray(good * 2)
    data[len(good) + position : len(good) + position + len(patch)] = patch
    reader = read_batches(memoryview(data))
    next(reader)
    with pytest.raises(CorruptBatchError, match=rule) as caught:
        next(reader)
    assert (caught.value.position, caught.value.offset) == (len(good), 0)


@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_are_recognised(magic: int) -> None:
    """A v0 or v1 message is named as such, not as damage."""
    data = bytearray(small_batch())
    data[16] = magic
    with pytest.raises(UnsupportedMagicError, match=f"v{magic} is not taken here"):
        next(read_batches(memoryview(data)))


def test_a_bad_checksum_names_both_values() -> None:
    """The stored and the computed CRC stand in the message, and the offset in its field."""
    data = bytearray(small_batch())
    data[-1] ^= 1
    stamp(memoryview(data), base_offset=77, leader_epoch=0)
    with pytest.raises(CorruptionError, match=r"offset 77: .*3851219455, the bytes have \d+"):
        batch_of(data).check()


def test_stamping_leaves_the_checksum_alone() -> None:
    """Base offset and leader epoch are set in place; everything else stays."""
    data = bytearray(small_batch())
    stamp(memoryview(data), base_offset=2**40, leader_epoch=3)
    batch = batch_of(data)
    batch.check()
    assert (batch.base_offset, batch.leader_epoch, batch.last_offset) == (2**40, 3, 2**40 + 1)
    assert data[16:] == small_batch()[16:]


def test_append_time_becomes_the_time_of_every_record() -> None:
    """After `stamp_append_time` the CRC holds and each record reads the new time."""
    data = bytearray(small_batch())
    stamp_append_time(memoryview(data), 999)
    batch = batch_of(data)
    batch.check()
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in records_of(batch)] == [999, 999]
    stamp_max_timestamp(memoryview(data), 283843)
    assert data == small_batch()


@settings(max_examples=examples(100), deadline=None, database=None)
@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_sequences_wrap_to_zero(sequence: int, count: int) -> None:
    """After 2147483647 comes 0, not a negative number; -1 stays."""
    assert sequence_after(sequence, count) == (sequence + count) % 2**31
    assert sequence_after(-1, count) == -1
