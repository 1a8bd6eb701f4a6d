"""What may enter a log, in which order it is refused, and what is written into it."""

import pytest

from tailrace.errors import (
    CorruptionError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    UnsupportedCodecError,
)
from tailrace.model import Codec, TimestampType
from tailrace.records import layout
from tailrace.records.batch import Batch, read_batches, stamp_max_timestamp
from tailrace.records.builder import records_of
from tailrace.storage.appends import PlannedAppend, apply_stamps, plan_append
from tests.unit.storage.builders import NOW, batch, settings

PLAIN = settings(segment_bytes=10**6)
APPEND_TIME = settings(message_timestamp_type="LogAppendTime")
COMPACTED = settings(cleanup_policy="delete,compact")


def plan(data: bytes | bytearray, config: object = PLAIN) -> PlannedAppend:
    """A plan at offset 100 under epoch 7."""
    return plan_append(
        memoryview(data), config=config, next_offset=100, leader_epoch=7, now_ms=NOW  # type: ignore[arg-type]
    )  # fmt: skip


def stamped(data: bytearray, config: object = PLAIN) -> Batch:
    """The batch as it enters the log, checked."""
    [(_, found)] = read_batches(apply_stamps(plan(data, config)))
    found.check()
    return found


def changed(data: bytearray, position: int, value: bytes) -> bytearray:
    """The batch with some header bytes changed and its checksum made right."""
    data[position : position + len(value)] = value
    flags = data[layout.ATTRIBUTES_POSITION + 1] & layout.LOG_APPEND_TIME_FLAG
    timestamp = int.from_bytes(data[layout.MAX_TIMESTAMP_POSITION :][:8], "big", signed=True)
    stamp_max_timestamp(memoryview(data), timestamp)
    if flags:
        data[layout.ATTRIBUTES_POSITION + 1] |= flags
    return data


def test_offset_and_epoch_are_stamped_in_place_and_the_checksum_holds() -> None:
    """The rest of the bytes is the producer's."""
    data = batch(b"a", b"b", b"c")
    before = bytes(data)
    found = stamped(data)
    assert (found.base_offset, found.last_offset, found.leader_epoch) == (100, 102, 7)
    assert bytes(data[16:]) == before[16:]
    assert [record.offset for record in records_of(found)] == [100, 101, 102]


def test_planning_changes_nothing() -> None:
    """Until the stamps are applied."""
    data = batch(b"a")
    before = bytes(data)
    planned = plan(data)
    assert (planned.base_offset, planned.last_offset, planned.max_timestamp) == (100, 100, NOW)
    assert bytes(data) == before


def test_a_wrong_maximum_timestamp_is_corrected() -> None:
    """The index and every search rely on it."""
    data = batch(b"a", b"b", timestamps=[NOW - 5, NOW - 9])
    stamp_max_timestamp(memoryview(data), NOW + 999)
    found = stamped(data)
    assert found.max_timestamp == NOW - 5
    assert [record.timestamp for record in records_of(found)] == [NOW - 5, NOW - 9]


@pytest.mark.parametrize("codec", Codec)
def test_log_append_time_replaces_timestamps(codec: Codec) -> None:
    """By a bit and the maximum in the header; the records are not rewritten."""
    found = stamped(batch(b"a", b"b", timestamps=[5, 6], codec=codec), APPEND_TIME)
    assert found.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in records_of(found)] == [NOW, NOW]


def test_a_clients_own_log_append_time() -> None:
    """Refused where the broker sets it; reset where records keep theirs."""
    data = batch(b"a", timestamp_type=TimestampType.LOG_APPEND_TIME)
    with pytest.raises(InvalidTimestampError):
        plan(bytearray(data), APPEND_TIME)
    assert stamped(bytearray(data)).timestamp_type is TimestampType.CREATE_TIME
    without = batch(b"a", timestamps=[-1], timestamp_type=TimestampType.LOG_APPEND_TIME)
    with pytest.raises(InvalidTimestampError):
        plan(without)


@pytest.mark.parametrize(
    ("timestamp", "is_taken"),
    [(-1, True), (NOW - 100, True), (NOW - 101, False), (NOW + 50, True), (NOW + 51, False)],
)
def test_timestamps_have_bounds(timestamp: int, is_taken: bool) -> None:  # noqa: FBT001
    """On both sides of the broker's clock; none at all is always taken."""
    config = settings(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=50)
    data = batch(b"a", b"b", timestamps=[NOW, timestamp])
    if is_taken:
        assert plan(data, config).max_timestamp == max(NOW, timestamp)
    else:
        with pytest.raises(InvalidTimestampError, match=str(timestamp)):
            plan(data, config)


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    """A base and a delta that are fine each can add up to one that no header holds."""
    config = settings(message_timestamp_after_max_ms=2**63 - 1)
    data = changed(batch(b"a", b"b", timestamps=[NOW, NOW + 5]), 27, (2**63 - 2).to_bytes(8, "big"))
    with pytest.raises(InvalidTimestampError):
        plan(data, config)


def test_a_compacted_topic_wants_keys() -> None:
    """The first record without one is named; other topics take it."""
    plan(batch(b"a", key=None))
    with pytest.raises(InvalidRecordError, match="record 0"):
        plan(batch(b"a", key=None), COMPACTED)
    plan(batch(b"a"), COMPACTED)


@pytest.mark.parametrize(
    "data",
    [
        b"", bytes(10), bytes(batch())[:-1], bytes(batch()) * 2, bytes(batch()) + b"x",
        bytes(batch(is_control=True)), bytes(batch(producer_id=5, producer_epoch=0)),
        bytes(changed(batch(), 0, (5).to_bytes(8, "big"))),
        bytes(changed(batch(b"a", b"b"), 23, (5).to_bytes(4, "big"))),
        bytes(changed(batch(), 57, bytes(4))),
    ],
)  # fmt: skip
def test_what_is_not_one_batch_of_a_client_is_refused(data: bytes) -> None:
    """None, half, two, control, no sequence, an offset, counts that do not fit, no record."""
    with pytest.raises(InvalidRecordError):
        plan(data)


def test_old_formats_are_refused() -> None:
    """Magic 0 and 1 are a client's mistake here."""
    data = batch()
    data[16] = 1
    with pytest.raises(InvalidRecordError, match="v1"):
        plan(data)


def test_an_unknown_codec_is_refused() -> None:
    """5, 6 and 7 mean nothing."""
    with pytest.raises(UnsupportedCodecError):
        plan(changed(batch(), layout.ATTRIBUTES_POSITION, b"\0\5"))


def test_a_flipped_bit_is_found() -> None:
    """Anywhere behind the checksum."""
    for position in range(layout.ATTRIBUTES_POSITION, len(batch())):
        data = batch()
        data[position] ^= 1
        with pytest.raises(CorruptionError, match="CRC"):
            plan(data)


def test_refusals_come_in_kafkas_order() -> None:
    """Base offset, size, checksum, header, records, timestamps, size of a segment."""
    small = settings(
        max_message_bytes=150, segment_bytes=100, cleanup_policy="compact",
        message_timestamp_before_max_ms=0,
    )  # fmt: skip
    data = batch(b"x" * 100, key=None, is_control=True, timestamps=[NOW - 9])
    data[0:8] = (1).to_bytes(8, "big")
    data[-1] ^= 1
    with pytest.raises(InvalidRecordError, match="base offset"):
        plan(data, small)
    data[0:8] = bytes(8)
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
        plan(data, small)
    data = batch(b"x" * 20, key=None, is_control=True, timestamps=[NOW - 9])
    data[-1] ^= 1
    with pytest.raises(CorruptionError):
        plan(data, small)
    data[-1] ^= 1
    with pytest.raises(InvalidRecordError, match="control"):
        plan(data, small)
    with pytest.raises(InvalidRecordError, match="no key"):
        plan(batch(b"x" * 40, key=None, timestamps=[NOW - 9]), small)
    with pytest.raises(InvalidTimestampError):
        plan(batch(b"x" * 40, timestamps=[NOW - 9]), small)
    with pytest.raises(RecordTooLargeError, match=r"segment\.bytes"):
        plan(batch(b"x" * 40), small)
