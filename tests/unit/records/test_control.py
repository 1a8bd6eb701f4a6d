"""Control records: types in keys, and the markers that end transactions."""

import struct

import pytest

from tailrace.records.batch import Batch, read_batches, stamp
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.records.checks import CorruptRecordError
from tailrace.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_marker,
    end_transaction_marker_or_none,
    read_control_type,
    read_end_transaction_marker,
)


def key(version: int, kind: int) -> bytes:
    """A control record's key."""
    return struct.pack(">hh", version, kind)


def value(version: int, epoch: int) -> bytes:
    """A marker's value."""
    return struct.pack(">hi", version, epoch)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (0, ControlType.ABORT),
        (1, ControlType.COMMIT),
        (2, ControlType.LEADER_CHANGE),
        (3, ControlType.SNAPSHOT_HEADER),
        (4, ControlType.SNAPSHOT_FOOTER),
        (5, ControlType.KRAFT_VERSION),
        (6, ControlType.VOTERS),
    ],
)
def test_types_have_the_numbers_of_kafka(number: int, kind: ControlType) -> None:
    """The types have the numbers 0 to 6 in a key of version 0."""
    assert read_control_type(key(0, number)) is kind


@pytest.mark.parametrize("number", [7, 337, -1, -2])
def test_types_from_the_future_are_unknown(number: int) -> None:
    """A reader passes over them."""
    assert read_control_type(key(0, number)) is ControlType.UNKNOWN


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_a_marker_survives_the_round_trip(kind: ControlType) -> None:
    """A written marker is read back."""
    marker = EndTransactionMarker(type=kind, coordinator_epoch=27)
    assert read_end_transaction_marker(marker.key, marker.value) == marker
    assert (marker.key, marker.value) == (key(0, kind), value(0, 27))


def test_newer_versions_are_read_as_version_0() -> None:
    """They only add fields at the end."""
    marker = read_end_transaction_marker(key(9, 1) + b"more", value(7, 13) + b"more")
    assert marker == EndTransactionMarker(type=ControlType.COMMIT, coordinator_epoch=13)


@pytest.mark.parametrize(
    ("bad_key", "bad_value", "rule"),
    [
        (None, value(0, 1), "key of a control record is null"),
        (b"\0\0\0", value(0, 1), "key of a control record has 3 bytes"),
        (key(-1, 1), value(0, 1), "key of a control record has version -1"),
        (key(0, 1), None, "value of a transaction marker is null"),
        (key(0, 1), b"\0\0\0\0\0", "value of a transaction marker has 5 bytes"),
        (key(0, 1), value(-1, 1), "value of a transaction marker has version -1"),
        (key(0, 2), value(0, 1), "type LEADER_CHANGE ends no transaction"),
        (key(0, 99), value(0, 1), "type UNKNOWN ends no transaction"),
    ],
)
def test_what_no_broker_writes_is_refused(
    bad_key: bytes | None, bad_value: bytes | None, rule: str
) -> None:
    """Null, too short, of a negative version, or of another type."""
    with pytest.raises(CorruptRecordError, match=rule):
        read_end_transaction_marker(bad_key, bad_value)


@pytest.mark.parametrize("kind", sorted(set(ControlType) - {ControlType.ABORT, ControlType.COMMIT}))
def test_only_ends_of_transactions_make_markers(kind: ControlType) -> None:
    """Anything else is a mistake in our own code."""
    with pytest.raises(AssertionError, match="does not end"):
        EndTransactionMarker(type=kind, coordinator_epoch=0)


def batch_of(data: bytearray) -> Batch:
    """The only batch, whose checksum holds and which nothing follows."""
    reader = read_batches(memoryview(data))
    [(_, batch)] = reader
    assert reader.position == len(data)
    batch.check()
    return batch


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_an_end_marker_is_a_batch_of_its_own(kind: ControlType) -> None:
    """Control and transactional, of the producer, without a sequence, with one record."""
    is_commit = kind is ControlType.COMMIT
    data = build_end_marker(73, 13, is_commit=is_commit, coordinator_epoch=347, timestamp=9000)
    stamp(memoryview(data), base_offset=983, leader_epoch=29)
    batch = batch_of(data)
    assert batch.is_control
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (73, 13, -1)
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (983, 983, 29)
    assert (batch.record_count, batch.max_timestamp) == (1, 9000)
    [record] = records_of(batch)
    expected = EndTransactionMarker(type=kind, coordinator_epoch=347)
    assert read_end_transaction_marker(record.key, record.value) == expected
    assert end_transaction_marker_or_none(batch) == expected


def test_an_end_marker_has_the_bytes_of_kafka() -> None:
    """61 of header and 17 of record: its frame, a key of 4 and a value of 6."""
    data = build_end_marker(73, 13, is_commit=True, coordinator_epoch=347, timestamp=9000)
    assert len(data) == 78
    assert data[61:].hex() == "20000000" + "08" + "00000001" + "0c" + "00000000015b" + "00"


def test_an_emptied_control_batch_holds_no_marker() -> None:
    """Compaction leaves its header where the producer's state is still needed."""
    builder = BatchBuilder(producer_id=1, producer_epoch=0, is_transactional=True, is_control=True)
    assert end_transaction_marker_or_none(batch_of(bytearray(builder.build()))) is None
