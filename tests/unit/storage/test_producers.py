"""Sequence numbers of idempotent producers, and the snapshots that keep them."""

import struct

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import CorruptionError
from tailrace.records.batch import Batch
from tailrace.storage.producers import (
    EXPIRATION_MS,
    InvalidProducerEpochError,
    KnownBatch,
    KnownProducer,
    OutOfOrderSequenceError,
    ProducerStates,
    decode_snapshot,
    encode_snapshot,
)
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import FOLDER, NOW, batch

LAST = 2**31 - 1
"""The largest sequence number."""


def states() -> ProducerStates:
    """Of a new log."""
    files = MemoryFiles()
    files.make_directory(FOLDER)
    return ProducerStates(files, FOLDER, producers={}, snapshot_offset=0)


def sent(sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = 7) -> Batch:
    """A batch as a producer sends it."""
    data = batch(
        *[b"v"] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return Batch(memoryview(data))


def note(known: ProducerStates, *batches: Batch, offset: int = 0, now_ms: int = NOW) -> int:
    """Note batches as if they were appended from an offset on; returns the next offset."""
    for each in batches:
        offset += each.record_count
        known.note(each, last_offset=offset - 1, timestamp=NOW, now_ms=now_ms)
    return offset


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """The log may have forgotten it; to check changes nothing."""
    known = states()
    assert known.check(sent(1234)) is None
    assert len(known) == 0


def test_the_next_sequence_is_taken_and_a_gap_refused() -> None:
    """The error says what came and what is due."""
    known = states()
    note(known, sent(0, count=3))
    assert known.check(sent(3)) is None
    with pytest.raises(OutOfOrderSequenceError, match="sequence 4 where 3 is due") as raised:
        known.check(sent(4))
    assert (raised.value.producer_id, raised.value.sequence, raised.value.expected) == (7, 4, 3)
    assert known.check(sent(4, producer_id=8)) is None


def test_one_of_the_last_five_is_known_by_both_of_its_ends() -> None:
    """It comes with its first offsets; what is older or only overlaps is out of order."""
    known = states()
    batches = [sent(2 * number, count=2) for number in range(6)]
    note(known, *batches, offset=100)
    for number, each in enumerate(batches[1:], start=1):
        found = known.check(each)
        assert found is not None
        assert (found.base_offset, found.last_offset) == (100 + 2 * number, 101 + 2 * number)
    for other in (batches[0], sent(2), sent(3), sent(2, count=3), sent(11)):
        with pytest.raises(OutOfOrderSequenceError):
            known.check(other)


def test_a_new_epoch_begins_at_zero_and_ends_the_old_one() -> None:
    """The old epoch's batches are not known any more, not even as duplicates."""
    known = states()
    note(known, sent(0), sent(1))
    with pytest.raises(OutOfOrderSequenceError, match="sequence 2 where 0 is due"):
        known.check(sent(2, epoch=1))
    assert known.check(sent(0, epoch=3)) is None
    note(known, sent(0, epoch=3), offset=2)
    with pytest.raises(InvalidProducerEpochError, match="epoch 2, and epoch 3") as raised:
        known.check(sent(0, epoch=2))
    assert (raised.value.epoch, raised.value.known_epoch) == (2, 3)
    with pytest.raises(InvalidProducerEpochError):
        known.check(sent(1))
    assert known.check(sent(1, epoch=3)) is None


@pytest.mark.parametrize("count", [1, 4])
def test_after_the_largest_sequence_comes_zero(count: int) -> None:
    """Between two batches and within one."""
    known = states()
    first = LAST if count == 1 else LAST - 1
    note(known, sent(first, count=count))
    following = count - 1 - (LAST - first)
    assert known.check(sent(following)) is None
    duplicate = known.check(sent(first, count=count))
    assert duplicate is not None
    assert (duplicate.first_sequence, duplicate.base_offset) == (first, 0)
    with pytest.raises(OutOfOrderSequenceError, match=f"where {following} is due"):
        known.check(sent(following + 1))


def test_a_producer_of_whom_only_a_marker_is_known_begins_at_zero() -> None:
    """As a snapshot of Kafka's can have one."""
    known = ProducerStates(
        MemoryFiles(),
        FOLDER,
        producers={7: KnownProducer(2, (), NOW, 5, -1)},
        snapshot_offset=0,
    )
    with pytest.raises(InvalidProducerEpochError):
        known.check(sent(0, epoch=1))
    with pytest.raises(OutOfOrderSequenceError):
        known.check(sent(1, epoch=2))
    assert known.check(sent(0, epoch=2)) is None
    note(known, sent(0, epoch=2))
    producer = known.get(7)
    assert producer is not None
    assert producer.coordinator_epoch == 5


def test_an_idle_producer_is_forgotten_after_a_day() -> None:
    """By the broker's clock: one that was read at the start has a day from the first call on."""
    known = ProducerStates(
        MemoryFiles(),
        FOLDER,
        producers={
            1: KnownProducer(0, (KnownBatch(0, 0, 0, 5),), 5),
            2: KnownProducer(0, (KnownBatch(0, 1, 0, 5),), 5, transaction_start=1),
        },
        snapshot_offset=0,
    )
    note(known, sent(0), now_ms=NOW)
    known.expire(NOW + EXPIRATION_MS - 1)
    assert len(known) == 3
    known.expire(NOW + EXPIRATION_MS)
    assert known.get(7) is None
    assert known.check(sent(9)) is None
    known.expire(NOW + 3 * EXPIRATION_MS)
    assert known.get(1) is None
    assert known.get(2) is not None


def test_the_bytes_of_a_snapshot() -> None:
    """Field by field, and those of a log without producers, as Kafka writes them."""
    fields = "0000000000000007 0002 00000005 000000000000000b 00000001 0000018bcfe56800 ffffffff"
    one = with_crc(bytes.fromhex(f"0001 00000000 00000001 {fields} ffffffffffffffff"))
    producers = {7: KnownProducer(2, (KnownBatch(5, 11, 1, NOW),), NOW)}
    assert decode_snapshot(one) == producers
    assert encode_snapshot(producers) == one
    empty = bytes.fromhex("0001 48674bc7 00000000")
    assert decode_snapshot(empty) == {}
    assert encode_snapshot({}) == empty


INT64 = st.integers(0, 2**63 - 1)
BATCH = st.builds(KnownBatch, st.integers(0, LAST), INT64, st.integers(0, LAST), INT64)
PRODUCER = st.builds(
    lambda epoch, last, coordinator, start: KnownProducer(
        epoch, (last,), last.timestamp, coordinator, start
    ),
    st.integers(0, 2**15 - 1),
    BATCH,
    st.integers(-1, LAST),
    st.integers(-1, 2**63 - 1),
)


@given(st.dictionaries(INT64, PRODUCER | st.just(KnownProducer(3, (), NOW, 1, -1)), max_size=5))
def test_a_snapshot_is_read_as_it_was_written(producers: dict[int, KnownProducer]) -> None:
    """With the fields of transactions, and with producers without a batch."""
    assert decode_snapshot(encode_snapshot(producers)) == producers


def with_crc(data: bytes) -> bytes:
    """The same snapshot with a CRC that holds."""
    return data[:2] + struct.pack(">I", crc32c.crc32c(data[6:])) + data[6:]


GOOD = encode_snapshot({7: KnownProducer(0, (KnownBatch(4, 9, 4, NOW),), NOW)})
DAMAGED = {
    "too few": b"",
    "bytes are too few": GOOD[:9],
    "version 2": b"\0\2" + GOOD[2:],
    "entries do not make": GOOD[:-1],
    "1 entries do not make": with_crc(GOOD + b"\0"),
    "-1 entries do not make": with_crc(GOOD[:6] + b"\xff" * 4 + GOOD[10:]),
    "CRC-32C": GOOD[:-1] + b"\0",
    "producer -1": with_crc(GOOD[:10] + b"\xff" * 8 + GOOD[18:]),
    "sequence -2": with_crc(GOOD[:20] + struct.pack(">i", -2) + GOOD[24:]),
    "delta -4": with_crc(GOOD[:32] + struct.pack(">i", -4) + GOOD[36:]),
}


@pytest.mark.parametrize("rule", DAMAGED)
def test_damaged_snapshots_are_refused(rule: str) -> None:
    """Empty, cut, longer, of another version, with a wrong CRC or an impossible number."""
    with pytest.raises(CorruptionError, match=rule):
        decode_snapshot(DAMAGED[rule])
