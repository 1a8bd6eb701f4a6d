"""Batches in another codec than the topic's are put together anew; all others stay as they are."""

import tracemalloc

import pytest

from tailrace.errors import InvalidRecordError, RecordTooLargeError
from tailrace.model import AppendOrigin, Codec, TimestampType
from tailrace.records import layout
from tailrace.records.batch import read_batches
from tailrace.records.builder import records_of
from tailrace.records.codecs import LEVELS, compress
from tailrace.storage.appends import apply_stamps
from tests.unit.records.batches import record_at
from tests.unit.storage.builders import NOW, batch, settings
from tests.unit.storage.plans import HELLO, PRODUCER, changed, marker_batch, mixed, plan, stamped

TARGETS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("codec", Codec)
def test_a_batch_is_stored_in_the_codec_of_the_topic(codec: Codec, target: str) -> None:
    """Producer fields, timestamps, base timestamp and record bytes are the producer's."""
    config = settings(segment_bytes=10**6, compression_type=target)
    data = mixed(*HELLO, codec=codec, **PRODUCER)
    before = bytes(data)
    [(_, sent)] = read_batches(memoryview(before))
    planned = plan(data, config)
    [(_, found)] = read_batches(apply_stamps(planned))
    found.check()
    assert found.codec is TARGETS[target]
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (1324, 10, 984)
    assert found.is_transactional
    assert found.timestamp_type is TimestampType.CREATE_TIME
    assert (found.base_timestamp, found.max_timestamp) == (NOW - 1, NOW + 1)
    assert (found.base_offset, found.last_offset, found.leader_epoch) == (100, 102, 7)
    assert (planned.max_timestamp, planned.last_offset) == (NOW + 1, 102)
    assert planned.batch.size == len(found.view)
    assert bytes(found.records_view()) == bytes(sent.records_view())
    if codec is not found.codec:
        assert bytes(data) == before


def test_read_only_memory_will_do_for_another_codec() -> None:
    """The batch is written from memory of its own."""
    config = settings(compression_type="zstd")
    found = stamped(bytes(batch(b"a")), config)  # type: ignore[arg-type]
    assert [record.offset for record in records_of(found)] == [100]


def test_another_level_is_no_reason_to_recompress() -> None:
    """A topic at gzip 1 takes what a producer has compressed at gzip 9 as it is (KIP-780)."""
    [(_, plain)] = read_batches(memoryview(batch(b"some" * 256, b"data" * 256)))
    payload = bytes(compress(Codec.GZIP, plain.payload, 9))
    assert payload != bytes(compress(Codec.GZIP, plain.payload, 1))
    data = bytearray(plain.view[: layout.HEADER_SIZE]) + payload
    layout.LENGTH.pack_into(data, layout.LENGTH_POSITION, len(data) - layout.LOG_OVERHEAD)
    data[layout.ATTRIBUTES_POSITION + 1] |= Codec.GZIP
    found = stamped(
        changed(data, layout.MAGIC_POSITION, bytes([layout.MAGIC])),
        settings(segment_bytes=10**6, compression_type="gzip", compression_gzip_level=1),
    )
    assert bytes(found.payload) == payload


@pytest.mark.parametrize(
    ("target", "level"), [("lz4", 1), ("lz4", 9), ("gzip", 1), ("zstd", 19), ("zstd", -5)]
)
def test_another_codec_is_applied_at_the_level_of_the_topic(target: str, level: int) -> None:
    """The stored bytes are those of the topic's codec at the topic's level."""
    source = Codec.SNAPPY
    config = settings(
        segment_bytes=10**6,
        compression_type=target,
        **{f"compression_{target}_level": level},
    )
    data = batch(b"somedata" * 99, b"moredata" * 99, codec=source)
    [(_, sent)] = read_batches(memoryview(bytes(data)))
    expected = bytes(compress(TARGETS[target], sent.records_view(), level))
    default = bytes(compress(TARGETS[target], sent.records_view()))
    assert (expected == default) == (level == LEVELS[TARGETS[target]].default)
    assert bytes(stamped(data, config).payload) == expected


@pytest.mark.parametrize("target", TARGETS)
def test_log_append_time_with_another_codec(target: str) -> None:
    """Every record of the new batch reads the broker's time, and the checksum holds."""
    config = settings(compression_type=target, message_timestamp_type="LogAppendTime")
    source = Codec.SNAPPY if target == "gzip" else Codec.GZIP
    planned = plan(batch(b"a", b"b", b"c", timestamps=[-1, -1, -1], codec=source), config)
    [(_, found)] = read_batches(apply_stamps(planned))
    found.check()
    assert found.codec is TARGETS[target]
    assert found.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (found.base_timestamp, found.max_timestamp) == (-1, NOW)
    assert [record.timestamp for record in records_of(found)] == [NOW, NOW, NOW]
    assert (planned.max_timestamp, planned.last_offset) == (NOW, 102)


def test_a_coordinators_control_batch_is_not_compressed() -> None:
    """Readers of the log's end look for markers without decompressing anything."""
    found = stamped(
        marker_batch(), settings(compression_type="snappy"), origin=AppendOrigin.COORDINATOR
    )
    assert found.is_control
    assert found.codec is Codec.NONE


def test_a_coordinators_records_are_compressed() -> None:
    """Its own data is stored as the topic says."""
    found = stamped(
        batch(b"a"), settings(compression_type="snappy"), origin=AppendOrigin.COORDINATOR
    )
    assert found.codec is Codec.SNAPPY
    assert list(records_of(found)) == [record_at(100, NOW, b"k", b"a", ())]


def test_sizes_count_again_after_recompression() -> None:
    """A small batch may be a large one in the topic's codec."""
    data = batch(b"x" * 5000, codec=Codec.ZSTD)
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes") as caught:
        plan(data, settings(compression_type="uncompressed", max_message_bytes=5000))
    assert caught.value.size > 5000
    with pytest.raises(RecordTooLargeError, match=r"segment\.bytes"):
        plan(data, settings(compression_type="uncompressed", segment_bytes=5000))
    plan(data, settings(compression_type="uncompressed", segment_bytes=6000))


def test_records_are_checked_before_they_are_recompressed() -> None:
    """Invalid records are refused with their own error, before any compression."""
    config = settings(compression_type="zstd", cleanup_policy="compact", segment_bytes=61)
    with pytest.raises(InvalidRecordError, match="no key"):
        plan(batch(b"a", key=None), config)


def test_recompression_holds_the_records_once() -> None:
    """Decompressed, and compressed anew: 8 MiB that shrink well take little more than 8 MiB."""
    data = batch(b"x" * (8 << 20), codec=Codec.ZSTD)
    config = settings(compression_type="gzip", segment_bytes=10**6)
    tracemalloc.start()
    try:
        planned = plan(data, config)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert planned.batch.size < 100_000
    assert peak < 9 << 20
