"""`check_records` and `list_refused`: which rule, which record."""

from dataclasses import dataclass

import pytest

from tailrace.kernels import RecordFault, Refusal
from tailrace.model import Codec
from tailrace.records.builder import records_of
from tailrace.records.checks import (
    REFUSED_LISTED_MAX,
    CorruptRecordError,
    check_records,
    list_refused,
)
from tests.naive import NaiveRecord, varint, write_record, write_records
from tests.unit.records.batches import GOOD, batch_with


def body(*fields: bytes) -> bytes:
    """A record of these fields, after its length."""
    whole = b"\x00" + b"".join(fields)
    return varint(len(whole)) + whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A second record that breaks one rule."""

    fault: RecordFault
    record: bytes


CASES = (
    Case(fault=RecordFault.TRUNCATED, record=varint(80) + b"\x00\x00\x02\x01\x01\x00"),
    Case(fault=RecordFault.OVERLONG_VARINT, record=b"\x80" * 5 + b"\x01" * 8),
    Case(
        fault=RecordFault.OVERLONG_VARINT,
        record=body(b"\x80" * 10 + b"\x01", b"\x02\x01\x01\x00"),
    ),
    Case(fault=RecordFault.RECORD_LENGTH, record=varint(5) + bytes(7)),
    Case(fault=RecordFault.OFFSET_DELTA, record=body(b"\x00", varint(-1), b"\x01\x01\x00")),
    Case(fault=RecordFault.KEY_LENGTH, record=body(b"\x00\x02", varint(60), b"\x01\x00")),
    Case(fault=RecordFault.KEY_LENGTH, record=body(b"\x00\x02", varint(-2), b"\x01\x00")),
    Case(fault=RecordFault.VALUE_LENGTH, record=body(b"\x00\x02\x01", varint(60), b"\x00")),
    Case(fault=RecordFault.VALUE_LENGTH, record=body(b"\x00\x02\x01", varint(-2), b"\x00")),
    Case(fault=RecordFault.HEADER_COUNT, record=body(b"\x00\x02\x01\x01", varint(-1))),
    Case(fault=RecordFault.HEADER_COUNT, record=body(b"\x00\x02\x01\x01", varint(2), b"\x00\x01")),
    Case(fault=RecordFault.NULL_HEADER_KEY, record=body(b"\x00\x02\x01\x01\x02\x01\x01")),
    Case(fault=RecordFault.HEADER_LENGTH, record=body(b"\x00\x02\x01\x01\x02", varint(9), b"a")),
    Case(fault=RecordFault.HEADER_LENGTH, record=body(b"\x00\x02\x01\x01\x02\x02a", varint(9))),
    Case(fault=RecordFault.NOT_CONSUMED, record=body(b"\x00\x02\x01\x01\x00", b"more")),
)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault.name)
def test_each_rule_is_named_with_its_record(case: Case, codec: Codec) -> None:
    """The second record is the bad one, and no record of the batch is given out."""
    batch = batch_with(GOOD + case.record, 2, codec)
    batch.check()
    with pytest.raises(CorruptRecordError, match="offset 500: record 1 of 2: ") as caught:
        check_records(batch)
    assert (caught.value.fault, caught.value.index) == (case.fault, 1)
    with pytest.raises(CorruptRecordError):
        next(records_of(batch))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 2**31 - 1])
def test_a_count_that_is_not_true_is_found(count: int, codec: Codec) -> None:
    """Fewer or more records than the header says, up to a count no payload could hold."""
    with pytest.raises(CorruptRecordError):
        check_records(batch_with(GOOD * 2, count, codec))


def test_a_located_error_keeps_its_finding() -> None:
    """With a file added the fault and the index are still there."""
    with pytest.raises(CorruptRecordError) as caught:
        check_records(batch_with(GOOD + b"\x01" * 8, 2))
    located = caught.value.located(path="a.log", position=9)
    assert (located.fault, located.index, located.offset) == (RecordFault.RECORD_LENGTH, 1, 500)
    assert str(located).startswith("a.log, position 9, offset 500: record 1 of 2: its length")


def test_totals_tell_keys_and_order() -> None:
    """Offsets with a gap are not consecutive; null keys are counted."""
    payload = GOOD + write_record(NaiveRecord(-5, 3, None, b"v"))
    totals = check_records(batch_with(payload, 2))
    assert totals._asdict() == {
        "records": 2,
        "is_consecutive": False,
        "last_offset_delta": 3,
        "null_keys": 1,
        "timestamp_delta_min": -5,
        "timestamp_delta_max": 0,
    }


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_refused_records_are_listed_with_what_they_have(codec: Codec) -> None:
    """An offset delta, a missing key or a timestamp in milliseconds, not a delta."""
    payload = write_records(
        [
            NaiveRecord(10, 0, b"k", b"v"),
            NaiveRecord(10, 7, b"k", b"v"),
            NaiveRecord(10, 2, None, b"v"),
            NaiveRecord(31, 3, b"k", b"v"),
        ]
    )
    batch = batch_with(payload, 4, codec)
    refused = list_refused(batch, batch.records_view(), needs_keys=True, allowed=(0, 30))
    assert (refused.count, refused.has_timestamps) == (3, True)
    assert [(each.index, each.reason, each.detail) for each in refused.listed] == [
        (1, Refusal.OFFSET, 7),
        (2, Refusal.NO_KEY, 0),
        (3, Refusal.TIMESTAMP, 31),
    ]


def test_any_timestamp_may_be_allowed() -> None:
    """With the check off, every timestamp passes, also one beyond 64 bits."""
    payload = write_records([NaiveRecord(2**63 - 1, 0, None, b"v")])
    batch = batch_with(payload, 1)
    batch.base_timestamp = 5
    view = batch.records_view()
    assert list_refused(batch, view, needs_keys=False, allowed=None).count == 0
    refused = list_refused(batch, view, needs_keys=False, allowed=(0, 2**63 - 1))
    assert [each.detail for each in refused.listed] == [2**63 + 4]


def test_the_time_of_a_log_append_time_batch_is_that_of_its_header() -> None:
    """The deltas of its records mean nothing."""
    batch = batch_with(GOOD, 1)
    batch.attributes |= 8
    batch.max_timestamp = 50
    view = batch.records_view()
    assert list_refused(batch, view, needs_keys=False, allowed=(50, 50)).count == 0
    refused = list_refused(batch, view, needs_keys=False, allowed=(0, 49))
    assert [each.detail for each in refused.listed] == [50]


def test_the_list_ends_and_the_count_does_not() -> None:
    """A batch of many bad records is answered with the first of them."""
    count = REFUSED_LISTED_MAX + 3
    payload = write_records([NaiveRecord(0, index, None, b"") for index in range(count)])
    batch = batch_with(payload, count)
    refused = list_refused(batch, batch.records_view(), needs_keys=True, allowed=None)
    assert (refused.count, refused.has_timestamps) == (count, False)
    assert [each.index for each in refused.listed] == list(range(REFUSED_LISTED_MAX))
