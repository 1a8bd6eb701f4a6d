"""Tests of planning an append: the order of refusals, and the fields written into a batch."""

from collections.abc import Callable

import pytest

from tailrace.errors import (
    CorruptionError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    UnsupportedCodecError,
)
from tailrace.model import AppendOrigin, Codec, LeaderEpoch, Offset, TimestampType
from tailrace.records import layout
from tailrace.records.batch import read_batches, stamp_max_timestamp
from tailrace.records.builder import records_of
from tailrace.storage.appends import PlannedAppend, apply_stamps, plan_built
from tailrace.storage.config import LogConfig
from tests.naive import LegacyMessage, write_legacy
from tests.unit.storage.builders import NOW, batch, settings
from tests.unit.storage.plans import (
    APPEND_TIME,
    BOUNDED,
    COMPACTED,
    HELLO,
    PRODUCER,
    changed,
    marker_batch,
    mixed,
    plan,
    stamped,
    unnumbered,
)

COORDINATOR = AppendOrigin.COORDINATOR
every_codec = pytest.mark.parametrize("codec", Codec)
every_target = pytest.mark.parametrize(
    "target", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
)


@every_codec
def test_offset_and_epoch_are_stamped_in_place_and_the_checksum_holds(codec: Codec) -> None:
    """The rest of the bytes is the producer's, compressed or not."""
    data = batch(b"a", b"b", b"c", codec=codec)
    before = bytes(data)
    found = stamped(data)
    assert (found.base_offset, found.last_offset, found.leader_epoch) == (100, 102, 7)
    assert bytes(data[16:]) == before[16:]
    assert [record.offset for record in records_of(found)] == [100, 101, 102]


def test_planning_changes_nothing() -> None:
    """The batches are unchanged until the stamps are applied."""
    data = batch(b"a")
    before = bytes(data)
    planned = plan(data)
    assert (planned.base_offset, planned.last_offset, planned.max_timestamp) == (100, 100, NOW)
    assert bytes(data) == before


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_producers_fields_and_times_are_kept(codec: Codec) -> None:
    """A producer's fields stay if the topic's codec is the batch's, whichever time is largest."""
    data = mixed(*HELLO, codec=codec, **PRODUCER)
    before = bytes(data)
    same = BOUNDED if codec is Codec.NONE else settings(compression_type="gzip")
    planned = plan(data, same)
    [(_, found)] = read_batches(apply_stamps(planned))
    found.check()
    assert (planned.max_timestamp, planned.last_offset) == (NOW + 1, 102)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (1324, 10, 984)
    assert found.is_transactional
    assert found.timestamp_type is TimestampType.CREATE_TIME
    assert (found.base_timestamp, found.max_timestamp) == (NOW - 1, NOW + 1)
    assert [record.timestamp for record in records_of(found)] == [NOW - 1, NOW + 1, NOW]
    assert bytes(data[16:]) == before[16:]


def test_a_wrong_maximum_timestamp_is_corrected() -> None:
    """The index and every search rely on it."""
    data = batch(b"a", b"b", timestamps=[NOW - 5, NOW - 9])
    stamp_max_timestamp(memoryview(data), NOW + 999)
    found = stamped(data)
    assert found.max_timestamp == NOW - 5
    assert [record.timestamp for record in records_of(found)] == [NOW - 5, NOW - 9]


@every_codec
def test_log_append_time_replaces_timestamps(codec: Codec) -> None:
    """A bit and the maximum are set in the header, and the records are not rewritten."""
    data = batch(b"a", b"b", b"c", timestamps=[1234, 1235, 1236], codec=codec)
    payload = bytes(data[layout.RECORDS_POSITION :])
    planned = plan(data, APPEND_TIME)
    assert (planned.is_append_time, planned.max_timestamp) == (True, NOW)
    found = stamped(data, APPEND_TIME)
    assert found.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (found.base_timestamp, found.max_timestamp, found.last_offset) == (1234, NOW, 102)
    assert [record.timestamp for record in records_of(found)] == [NOW, NOW, NOW]
    assert bytes(found.payload) == payload


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
    "data",
    [
        b"", bytes(10), bytes(61), bytes(batch())[:-1], bytes(batch()) + b"x",
        bytes(changed(batch(), 0, (5).to_bytes(8, "big"))),
    ],
    ids=["nothing", "no frame", "zeros", "a part", "a rest", "an offset"],
)  # fmt: skip
def test_what_is_not_one_batch_of_a_client_is_refused(data: bytes) -> None:
    """None, half, more than one, or an offset that only a leader assigns."""
    error = CorruptionError if data == bytes(61) else InvalidRecordError
    with pytest.raises(error):
        plan(data)


@every_codec
@every_target
def test_two_batches_are_refused(codec: Codec, target: str) -> None:
    """Two batches are refused with any codec, of the batches and of the topic."""
    data = bytes(batch(codec=codec)) * 2
    with pytest.raises(InvalidRecordError, match="one per partition"):
        plan(data, settings(compression_type=target))


@every_codec
@every_target
def test_a_batch_without_records_is_refused(codec: Codec, target: str) -> None:
    """Compaction may leave such a batch; a client may not send it."""
    header = mixed(*HELLO, codec=codec, **PRODUCER)[: layout.HEADER_SIZE]
    layout.LENGTH.pack_into(header, layout.LENGTH_POSITION, len(header) - layout.LOG_OVERHEAD)
    empty = changed(header, layout.RECORD_COUNT_POSITION, bytes(4))
    with pytest.raises(InvalidRecordError, match="counts 0 records"):
        plan(empty, settings(compression_type=target))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("last_offset_delta", [0, 15])
def test_a_count_that_is_not_the_range_of_offsets_is_refused(
    last_offset_delta: int, codec: Codec
) -> None:
    """A header that contradicts itself; a negative end of the range is damage to begin with."""
    position = layout.LAST_OFFSET_DELTA_POSITION
    data = batch(b"a", b"b", b"c", codec=codec)
    with pytest.raises(InvalidRecordError, match="counts 3 records"):
        plan(changed(bytearray(data), position, last_offset_delta.to_bytes(4, "big")), APPEND_TIME)
    with pytest.raises(CorruptionError, match="last offset delta is -3"):
        plan(changed(data, position, (-3).to_bytes(4, "big", signed=True)), APPEND_TIME)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("count", [2, 6])
def test_a_count_that_is_not_that_of_the_records_is_refused(count: int, codec: Codec) -> None:
    """The error is INVALID_RECORD, as in Kafka: the checksum is right, so a retry cannot help."""
    data = batch(b"a", b"b", b"c", codec=codec)
    changed(data, layout.LAST_OFFSET_DELTA_POSITION, (count - 1).to_bytes(4, "big"))
    changed(data, layout.RECORD_COUNT_POSITION, count.to_bytes(4, "big"))
    with pytest.raises(InvalidRecordError):
        plan(data, APPEND_TIME)


def test_a_count_that_is_right_is_taken() -> None:
    """Three records with offsets 0 to 2 are taken."""
    data = changed(batch(b"a", b"b", b"c"), layout.RECORD_COUNT_POSITION, (3).to_bytes(4, "big"))
    assert plan(data, APPEND_TIME).last_offset == 102


def test_a_client_may_not_write_control_batches() -> None:
    """Control batches say how a transaction ended, which a producer may not say."""
    with pytest.raises(InvalidRecordError, match="control"):
        plan(marker_batch())


@every_codec
def test_a_client_with_a_producer_id_numbers_its_records(codec: Codec) -> None:
    """A negative sequence is refused."""
    data = batch(b"hello", codec=codec, producer_id=1234, producer_epoch=0, base_sequence=0)
    changed(data, layout.BASE_SEQUENCE_POSITION, (-2).to_bytes(4, "big", signed=True))
    with pytest.raises(InvalidRecordError, match="sequence -2"):
        plan(data)


def test_a_coordinator_may_do_what_a_client_may_not() -> None:
    """Write control batches, leave out sequences, choose timestamps and any base offset."""
    found = stamped(marker_batch(timestamp=5), BOUNDED, origin=COORDINATOR)
    assert found.is_control
    assert (found.base_offset, found.leader_epoch, found.max_timestamp) == (100, 7, 5)
    found = stamped(unnumbered(), origin=COORDINATOR)
    assert (found.producer_id, found.base_sequence) == (5, -1)
    elsewhere = changed(batch(b"a"), 0, (77).to_bytes(8, "big"))
    assert stamped(elsewhere, origin=COORDINATOR).base_offset == 100


def test_a_coordinators_batch_has_a_largest_size_too() -> None:
    """A coordinator's batch that is too large, or lacks a key in a compacted topic, is refused."""
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
        plan(batch(b"x" * 200), settings(max_message_bytes=150), origin=COORDINATOR)
    with pytest.raises(InvalidRecordError, match="no key"):
        plan(batch(b"x", key=None), COMPACTED, origin=COORDINATOR)


@pytest.mark.parametrize(
    "config",
    [
        BOUNDED, APPEND_TIME, COMPACTED, settings(compression_type="gzip"),
        settings(compression_type="uncompressed"), settings(max_message_bytes=90),
        settings(max_message_bytes=180, compression_type="gzip"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "data",
    [batch(b"a"), batch(b"a", b"b", timestamps=[NOW, NOW - 5]), marker_batch(), batch(b"x" * 200)],
    ids=["one", "two", "marker", "large"],
)
def test_a_batch_that_was_built_here_is_planned_as_if_it_was_read(
    data: bytearray, config: LogConfig
) -> None:
    """The bytes to write and the values for the indexes are those of a coordinator's batch."""
    due, found = bytearray(data), bytearray(data)
    expected = outcome(lambda: plan(due, config, origin=COORDINATOR))
    assert outcome(lambda: plan_own(found, config)) == expected


def outcome(make: Callable[[], PlannedAppend]) -> tuple[object, ...]:
    """The values of a plan and the bytes to write, or the message of its error."""
    try:
        planned = make()
    except RecordTooLargeError as error:
        return (str(error),)
    return (*planned[1:], bytes(apply_stamps(planned)))


def plan_own(data: bytearray, config: LogConfig) -> PlannedAppend:
    """The plan for a batch that this process has built."""
    return plan_built(
        memoryview(data),
        config=config,
        next_offset=Offset(100),
        leader_epoch=LeaderEpoch(7),
        now_ms=NOW,
    )


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("attributes", [0, 1, 2, 3])
def test_old_formats_are_refused(magic: int, attributes: int) -> None:
    """Magic 0 and 1, in any codec, are a client's mistake here, and the message says which."""
    data = write_legacy(LegacyMessage(magic, 0, b"k", b"v" * 60, NOW, attributes))
    with pytest.raises(InvalidRecordError, match=f"v{magic} is not taken here, only v2"):
        plan(data)


def test_an_unknown_codec_is_refused() -> None:
    """5, 6 and 7 mean nothing."""
    with pytest.raises(UnsupportedCodecError):
        plan(changed(batch(), layout.ATTRIBUTES_POSITION, b"\0\5"))


def test_a_flipped_bit_is_found() -> None:
    """A bit that flips anywhere behind the checksum is found."""
    for position in range(layout.ATTRIBUTES_POSITION, len(batch())):
        data = batch()
        data[position] ^= 1
        with pytest.raises(CorruptionError, match="CRC"):
            plan(data)


def refusal_order() -> LogConfig:
    """Settings by which the same batch can be refused for many reasons."""
    return settings(
        max_message_bytes=150, segment_bytes=100, cleanup_policy="compact",
        message_timestamp_before_max_ms=0,
    )  # fmt: skip


def test_refusals_come_in_kafkas_order() -> None:
    """Base offset, size, checksum, header, records, timestamps, size of a segment."""
    small = refusal_order()
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
