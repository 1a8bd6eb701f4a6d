"""Tests of a follower's appends of a leader's bytes: whole, sound and in order, or refused."""

import pytest

from tailrace.errors import CorruptionError, InvalidRecordError
from tailrace.model import Codec, TimestampType
from tailrace.records import layout
from tailrace.records.batch import read_batches, stamp
from tailrace.records.codecs import compress
from tailrace.storage.appends import (
    FollowerAppend,
    UnexpectedAppendOffsetError,
    plan_follower_append,
)
from tests.naive import LegacyMessage, write_all_legacy, write_legacy
from tests.unit.storage.builders import NOW, batch
from tests.unit.storage.plans import changed, marker_batch, unnumbered


def at(base_offset: int, data: bytearray, *, epoch: int = 3) -> bytes:
    """A batch as a leader has it."""
    stamp(memoryview(data), base_offset=base_offset, leader_epoch=epoch)
    return bytes(data)


def follow(data: bytes, *, log_end: int = 10, log_start: int = 0) -> FollowerAppend:
    """A plan for a log that ends at offset 10."""
    return plan_follower_append(memoryview(data), log_end=log_end, log_start=log_start)


def test_batches_are_taken_as_they_are() -> None:
    """Several at once, with the leader's offsets and epochs, up to the end of the last."""
    data = at(10, batch(b"a", b"b"), epoch=3) + at(12, batch(b"c", codec=Codec.ZSTD), epoch=4)
    planned = follow(data)
    assert [each.base_offset for each in planned.noted] == [10, 12]
    assert [each.leader_epoch for each in planned.noted] == [3, 4]
    assert bytes(planned.data) == data
    assert planned.last_offset == 12


def test_the_largest_timestamp_is_that_of_the_first_batch_that_has_it() -> None:
    """The entry has the batch's last offset, which is all that an index of batches can know."""
    data = b"".join(
        at(offset, batch(b"a", b"b", timestamps=[time, -1]))
        for offset, time in ((10, NOW), (12, NOW + 5), (14, NOW + 5))
    )
    planned = follow(data)
    assert (planned.max_timestamp, planned.max_timestamp_offset) == (NOW + 5, 13)
    planned = follow(at(10, batch(b"a", timestamps=[-1])))
    assert (planned.max_timestamp, planned.max_timestamp_offset) == (-1, -1)


def test_gaps_are_taken() -> None:
    """Compaction leaves them before, between and inside of batches."""
    gap = changed(batch(b"a", b"b"), layout.LAST_OFFSET_DELTA_POSITION, (7).to_bytes(4, "big"))
    planned = follow(at(20, gap) + at(40, batch(b"c")))
    assert [each.base_offset for _, each in read_batches(planned.data)] == [20, 40]
    assert planned.noted[0].last_offset == 27


@pytest.mark.parametrize(
    "data",
    [
        batch(b"a", timestamps=[5]),
        batch(b"a", key=None),
        unnumbered(),
        batch(b"a", timestamp_type=TimestampType.LOG_APPEND_TIME),
        marker_batch(),
        changed(batch(b"a"), layout.RECORD_COUNT_POSITION, bytes(4))[: layout.HEADER_SIZE],
    ],
    ids=["time", "key", "sequence", "append time", "control", "emptied"],
)
def test_what_the_leader_took_is_not_judged_again(data: bytearray) -> None:
    """A rule that was tightened since then must not stop replication."""
    layout.LENGTH.pack_into(data, layout.LENGTH_POSITION, len(data) - layout.LOG_OVERHEAD)
    changed(data, layout.MAGIC_POSITION, bytes([layout.MAGIC]))
    assert len(follow(at(10, data)).noted) == 1


def test_a_partial_batch_at_the_end_is_not_there() -> None:
    """A fetch ends where its size says, not where a batch does; what is whole is taken."""
    first, second = at(10, batch(b"a")), at(11, batch(b"b"))
    for cut in (1, 16, 60, len(second) - 1):
        planned = follow(first + second[:cut])
        assert bytes(planned.data) == first
        assert planned.last_offset == 10


@pytest.mark.parametrize("data", [b"", at(10, batch())[:-1]], ids=["nothing", "a part"])
def test_without_a_whole_batch_the_plan_is_empty(data: bytes) -> None:
    """Which is no error."""
    planned = follow(data)
    assert (planned.noted, bytes(planned.data), planned.last_offset) == ((), b"", -1)


def test_a_damaged_batch_is_found_with_its_position() -> None:
    """Whichever of several; then none is taken."""
    first = at(10, batch(b"a"))
    damaged = bytearray(at(11, batch(b"b")))
    damaged[-1] ^= 1
    with pytest.raises(CorruptionError, match="CRC") as caught:
        follow(first + bytes(damaged))
    assert (caught.value.position, caught.value.offset) == (len(first), 11)
    with pytest.raises(CorruptionError) as nonsense:
        follow(first + bytes(100))
    assert nonsense.value.position == len(first)


@pytest.mark.parametrize("second", [9, 10, 11])
def test_offsets_rise_from_batch_to_batch(second: int) -> None:
    """Equal, lower and overlapping ones are refused."""
    with pytest.raises(InvalidRecordError, match=f"offset {second} follows one that ends at 11"):
        follow(at(10, batch(b"a", b"b")) + at(second, batch(b"c", b"d", b"e")), log_end=0)


def test_batches_below_the_log_end_are_unexpected() -> None:
    """The error has the batch's offsets and the log end, so the caller can truncate."""
    data = at(8, batch(b"a")) + at(9, batch(b"b", b"c"))
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        follow(data, log_end=10, log_start=4)
    error = caught.value
    assert (error.first_offset, error.last_offset) == (8, 10)
    assert (error.log_start_offset, error.log_end_offset) == (4, 10)
    assert follow(data, log_end=8).last_offset == 10


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_taken_from_a_leader_that_has_them(magic: int) -> None:
    """Byte by byte: converted batches tell offsets and times, what is appended is the original."""
    time = NOW if magic else -1
    data = write_all_legacy([LegacyMessage(magic, offset, b"k", b"v", time) for offset in (10, 11)])
    planned = follow(data + at(12, batch(b"c", timestamps=[NOW + 1])))
    assert [each.base_offset for each in planned.noted] == [10, 11, 12]
    assert [each.legacy is None for each in planned.noted] == [False, False, True]
    assert bytes(planned.data[: len(data)]) == data
    assert planned.max_timestamp_offset == 12


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_damaged_record_inside_of_a_wrapper_is_found(magic: int, codec: Codec) -> None:
    """Its own checksum is wrong though the wrapper's is right."""
    inner = bytearray(write_legacy(LegacyMessage(magic, 0, None, b"hello", 0)))
    inner[12] = 0
    value = bytes(compress(codec, bytes(inner)))
    wrapper = write_legacy(LegacyMessage(magic, 10, None, value, 0, attributes=codec))
    with pytest.raises(CorruptionError, match="CRC-32"):
        follow(wrapper)


def test_a_wrapper_counts_by_its_last_record() -> None:
    """A leader whose log starts in the middle of a wrapper sends it whole."""
    inner = write_all_legacy([LegacyMessage(1, offset, b"k", b"v", NOW) for offset in range(3)])
    value = bytes(compress(Codec.GZIP, inner))
    wrapper = write_legacy(LegacyMessage(1, 11, None, value, NOW, attributes=Codec.GZIP))
    assert follow(wrapper, log_end=10).noted[0].base_offset == 9
    with pytest.raises(UnexpectedAppendOffsetError):
        follow(wrapper, log_end=12)
