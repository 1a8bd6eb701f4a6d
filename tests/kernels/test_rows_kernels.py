"""The kernels that make objects of records, compiled and plain."""

import copy
import gc
import pickle
import sys
import weakref
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.kernels import PAYLOAD_WIDTH, Payload, RecordFault
from tailrace.kernels.rows import (
    KEY_INDEX,
    ROW_CURSOR_SIZE,
    VALUE_INDEX,
    RowCursor,
    deserialize_records,
    take_records,
)
from tailrace.records.layout import HEADER, HEADER_SIZE, LOG_APPEND_TIME_FLAG, LOG_OVERHEAD
from tests.kernels.plain import ENGINES, both_engines, engine
from tests.kernels.strategies import INT64, SMALL, damaged_payloads, naive_records
from tests.kernels.test_records_kernels import many, naive_verdict, name_of
from tests.naive import NaiveRecord, wrapped, write_records

ANY_OFFSET = -(2**63)
EPOCH = 1 << 20


class Nine(NamedTuple):
    """A record with its place."""

    topic: object
    partition: object
    offset: object
    timestamp: object
    timestamp_type: object
    key: object
    value: object
    headers: object
    leader_epoch: object


class Five(NamedTuple):
    """A record without."""

    offset: object
    timestamp: object
    key: object
    value: object
    headers: object


class Alive:
    """An object that can be watched."""


class WithFields(tuple[Any, ...]):  # noqa: SLOT001
    """A tuple with fields besides its items."""


Batches = list[tuple[list[NaiveRecord], int, int, bool]]
"""Records, base offset, timestamp, and whether it is the base of CreateTime, of each batch."""

batches = st.lists(
    st.tuples(naive_records(), SMALL | INT64, SMALL | INT64, st.booleans()), max_size=3
)


def payloads_of(given: Batches) -> tuple[bytes, np.ndarray]:
    """Their bytes, with some between them that are none of theirs, and the rows for the kernel."""
    data, rows = b"", []
    for records, base_offset, timestamp, keeps_deltas in given:
        payload = write_records(records)
        data += b"?"
        limit = len(data) + len(payload)
        rows.append(
            [len(data), limit, len(records), base_offset, timestamp, keeps_deltas, 0, EPOCH]
        )
        data += payload
    return data, np.array(rows, np.int64).reshape(-1)


def expected_of(given: Batches, start: int) -> list[Nine]:
    """The records from an offset on, as the naive writer got them."""
    return [
        Nine(
            "t", 5, offset, wrapped(timestamp + keeps_deltas * each.timestamp_delta),
            "create" if keeps_deltas else "append", each.key, each.value,
            tuple((name.decode(errors="replace"), value) for name, value in each.headers), EPOCH,
        )
        for records, base_offset, timestamp, keeps_deltas in given
        for each in records
        if (offset := wrapped(base_offset + each.offset_delta)) >= start
    ]  # fmt: skip


class Reader:
    """Takes records of payloads from a cursor of its own."""

    def __init__(self, engine_name: str, data: bytes, payloads: np.ndarray) -> None:
        self.run = engine(engine_name, take_records)
        self.data = data
        self.payloads = payloads
        self.cursor = kernels.int64s(ROW_CURSOR_SIZE)

    def take(self, count: int, start: int = ANY_OFFSET, kind: type = Nine) -> tuple[int, list[Any]]:
        """The status and the records."""
        found: list[Any] = []
        place = ("t", 5) if kind is Nine else ()
        status = self.run(
            self.data, self.payloads, self.cursor, start, count, kind, place, ("append", "create"),
            found,
        )  # fmt: skip
        return status, found

    def take_all(self, counts: list[int], start: int = ANY_OFFSET) -> list[list[Nine]]:
        """The results of calls for so many records, the last count again until the end."""
        found: list[list[Nine]] = []
        while True:
            count = counts[min(len(found), len(counts) - 1)]
            status, records = self.take(count, start)
            assert status == len(records) <= count
            if not records:
                return found
            found.append(records)


@both_engines
@many
@given(batches, SMALL | INT64, st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_records_are_those_of_the_naive_encoder(
    engine_name: str, given: Batches, start: int, counts: list[int]
) -> None:
    """All from an offset on, bit by bit; each call returns as many as it may."""
    reader = Reader(engine_name, *payloads_of(given))
    taken = reader.take_all(counts, start)
    expected = expected_of(given, start)
    assert [each for records in taken for each in records] == expected
    assert all(len(each) == counts[min(i, len(counts) - 1)] for i, each in enumerate(taken[:-1]))
    assert reader.cursor[RowCursor.BATCH] == len(given)


@both_engines
@many
@given(naive_records(), SMALL | INT64)
def test_records_without_a_place(
    engine_name: str, records: list[NaiveRecord], base_offset: int
) -> None:
    """Offset, timestamp, key, value and headers."""
    given = [(records, base_offset, 7, True)]
    status, found = Reader(engine_name, *payloads_of(given)).take(9, kind=Five)
    assert status == len(records)
    expected = expected_of(given, ANY_OFFSET)
    assert found == [(each[2], each[3], *each[5:8]) for each in expected]
    assert {type(each) for each in found} <= {Five}


@both_engines
@many
@given(naive_records(), damaged_payloads(), st.integers(1, 7))
def test_no_records_of_a_damaged_payload(
    engine_name: str, sound: list[NaiveRecord], damaged: tuple[bytes, int], count: int
) -> None:
    """The records before it come first; the fault, also the second time, is the naive one."""
    payload, record_count = damaged
    data, rows = payloads_of([(sound, 0, 0, True)])
    bad = [len(data), len(data) + len(payload), record_count, 900, 0, 1, 0, EPOCH]
    reader = Reader(engine_name, data + payload, np.array([*rows.tolist(), *bad], np.int64))
    verdict = naive_verdict(payload, record_count)
    left = len(sound)
    while left:
        status, found = reader.take(min(count, left))
        assert status == len(found) == min(count, left)
        left -= status
    for _ in range(2):
        status, found = reader.take(count)
        if not verdict.fault:
            assert status == len(found)
            break
        assert (name_of(status), found) == (verdict.fault, [])
        assert reader.cursor[RowCursor.BATCH] == 1


@both_engines
def test_bytes_that_change_meanwhile_end_a_batch_with_a_fault(engine_name: str) -> None:
    """Records that were sound when the batch was checked are checked again."""
    payload = bytearray(write_records([NaiveRecord(0, place, None, b"v") for place in range(9)]))
    row = np.array([0, len(payload), 9, 0, 0, 1, 0, EPOCH], np.int64)
    reader = Reader(engine_name, payload, row)  # type: ignore[arg-type]
    assert reader.take(4)[0] == 4
    payload[-9:] = b"\xff" * 9
    assert name_of(reader.take(5)[0]) in RecordFault.__members__
    assert reader.cursor.tolist()[0] == 0


@both_engines
@pytest.mark.parametrize(
    ("place", "value", "fault"),
    [
        (Payload.LIMIT, 1 << 40, RecordFault.RECORD_COUNT),
        (Payload.POSITION, -1, RecordFault.RECORD_COUNT),
        (Payload.RECORD_COUNT, 3, RecordFault.RECORD_COUNT),
        (Payload.RECORD_COUNT, 1, RecordFault.LEFTOVER),
        (Payload.RECORD_COUNT, -1, RecordFault.RECORD_COUNT),
    ],
)
def test_payloads_outside_of_the_bytes_are_refused(
    engine_name: str, place: Payload, value: int, fault: RecordFault
) -> None:
    """Nothing is read there."""
    data, rows = payloads_of([([NaiveRecord(0, at, None, b"") for at in range(2)], 0, 0, True)])
    rows[place] = value
    assert Reader(engine_name, data, rows).take(9) == (-fault, [])


@both_engines
def test_names_of_headers_that_repeat_are_one_object(engine_name: str) -> None:
    """And none of them is for the garbage collector, nor is a record."""
    headers = ((b"trace", b"1"), (b"caf\xc3\xa9", None), (b"\xff", b""))
    records = [NaiveRecord(0, at, None, b"v", headers) for at in range(3)]
    records.append(NaiveRecord(0, 3, b"k", None, ((b"trade", b"2"), (b"trace", b"3"))))
    data, rows = payloads_of([(records, 0, 0, True)])
    _, found = Reader(engine_name, data, rows).take(9)
    names = ("trace", "café", "\N{REPLACEMENT CHARACTER}")
    assert [tuple(name for name, _ in each.headers) for each in found] == [names] * 3 + [
        ("trade", "trace")
    ]
    if engine_name == "compiled":
        assert len({id(each.headers[0][0]) for each in found[:3]}) == 1
        for each in found:
            assert not any(map(gc.is_tracked, (each, each.headers, *each.headers)))


@both_engines
def test_records_are_tuples_like_others(engine_name: str) -> None:
    """They have the hash of a tuple with these items, and are equal to it, also as keys."""
    records = [NaiveRecord(at, at, b"k%d" % at, b"v", ((b"h", b"x"),)) for at in range(50)]
    given = [(records, 0, 0, True)]
    _, found = Reader(engine_name, *payloads_of(given)).take(50)
    ordinary = [tuple(each) for each in expected_of(given, 0)]
    assert found == ordinary
    assert list(map(hash, found)) == list(map(hash, ordinary))
    assert set(found) == set(ordinary)
    assert found == pickle.loads(pickle.dumps(found))
    assert found == copy.deepcopy(found)
    assert [each._replace(topic=1) for each in found] == [(1, *each[1:]) for each in ordinary]


@pytest.mark.parametrize("kind", [None, int, list, object, "Nine", Nine(*range(9)), WithFields])
def test_what_is_no_type_of_tuples_is_refused(kind: object) -> None:
    """Only a tuple has places for the items, and nothing else."""
    data, rows = payloads_of([([NaiveRecord(0, 0, b"k", b"v")], 0, 0, True)])
    with pytest.raises(TypeError):
        take_records(
            data, rows, kernels.int64s(3), 0, 1, kind, ("t", 0), (1, 0), []  # type: ignore[arg-type]
        )  # fmt: skip
    with pytest.raises(TypeError):
        deserialize_records(kind, [], None, None)  # type: ignore[arg-type]


@both_engines
def test_a_cursor_or_place_of_the_wrong_size_is_refused(engine_name: str) -> None:
    """Nothing is written."""
    data, rows = payloads_of([([NaiveRecord(0, 0, b"k", b"v")], 0, 0, True)])
    found: list[Any] = []
    for cursor, place, types in ((2, ("t", 0), (1, 0)), (3, ("t",), (1, 0)), (3, (), (1,))):
        status = engine(engine_name, take_records)(
            data, rows, kernels.int64s(cursor), 0, 1, Nine, place, types, found
        )
        assert (status, found) == (-RecordFault.NO_ROOM, [])


def test_each_reference_is_counted_once() -> None:
    """Objects live as long as a record refers to them, and not longer."""
    topic, append, create = (bytes.decode(each) for each in (b"topic", b"append", b"create"))
    kinds = (append, create)
    records = [NaiveRecord(0, at, b"key", b"value", ((b"h", b"x"),)) for at in range(4)]
    data, rows = payloads_of([(records, 1 << 40, 1 << 40, True)])
    counted = (topic, create, Nine)
    before = list(map(sys.getrefcount, counted))
    found: list[Any] = []
    take_records(data, rows, kernels.int64s(3), 0, 4, Nine, (topic, 0), kinds, found)
    assert list(map(sys.getrefcount, counted)) == [each + 4 for each in before]
    made, _, _ = deserialize_records(Nine, found, None, bytes.decode)
    assert list(map(sys.getrefcount, counted)) == [each + 8 for each in before]
    assert sys.getrefcount(found[0].offset) == 4
    del found, made
    assert list(map(sys.getrefcount, counted)) == before


RECORDS = [Nine("t", 0, at, 0, 0, b"k%d" % at, b"%d" % at, (), 0) for at in range(3)]
NULLS = Nine("t", 0, 3, 0, 0, None, None, (), 0)


@both_engines
def test_deserialized_records_have_what_the_functions_return(engine_name: str) -> None:
    """Record by record, the key first; null is not given to them, and None changes nothing."""
    called: list[bytes] = []

    def upper(octets: bytes) -> object:
        called.append(octets)
        return [octets.upper()]

    run = engine(engine_name, deserialize_records)
    made, _, error = run(Nine, [*RECORDS, NULLS], upper, upper)
    assert error is None
    expected = [each._replace(key=[each.key.upper()], value=[each.value]) for each in RECORDS]  # type: ignore[attr-defined]
    assert made == [*expected, NULLS]
    assert called == [b"k0", b"0", b"k1", b"1", b"k2", b"2"]
    assert {type(each) for each in made} == {Nine}
    assert all(map(gc.is_tracked, made))
    assert run(Nine, RECORDS, None, None)[0] == RECORDS
    assert run(Nine, RECORDS, None, int)[0] == [
        each._replace(value=place) for place, each in enumerate(RECORDS)
    ]


@both_engines
@pytest.mark.parametrize("part", [KEY_INDEX, VALUE_INDEX])
def test_records_before_one_that_cannot_be_deserialized(engine_name: str, part: int) -> None:
    """They come with the exception, and with the part that it was raised for."""
    wrong = ValueError("no")

    def fails(octets: bytes) -> bytes:
        if octets == RECORDS[2][part]:
            raise wrong
        return octets

    made, where, error = engine(engine_name, deserialize_records)(Nine, RECORDS, fails, fails)
    assert (made, where) == (RECORDS[:2], part)
    assert error is wrong


@both_engines
def test_an_interrupt_is_no_failure_of_a_deserializer(engine_name: str) -> None:
    """It ends the call."""

    def interrupted(_: bytes) -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine(engine_name, deserialize_records)(Nine, RECORDS, None, interrupted)


@both_engines
@pytest.mark.parametrize("record", [(), RECORDS[0][:8], list(RECORDS[0]), None])
def test_what_is_no_record_is_not_deserialized(engine_name: str, record: object) -> None:
    """A tuple of nine items is."""
    with pytest.raises(TypeError):
        engine(engine_name, deserialize_records)(Nine, [record], None, None)


def same(item: object, _: bytes) -> object:
    """A deserializer that returns one item for all."""
    return item


def test_deserialized_records_in_a_circle_are_collected() -> None:
    """The collector finds those that refer to themselves, and goes through those that do not."""
    inside: list[object] = []
    made, _, _ = deserialize_records(Nine, RECORDS, None, partial(same, inside))
    inside += [made[0], alive := Alive()]
    noted = weakref.ref(alive)
    del inside, made, alive
    assert noted() is not None
    gc.collect()
    assert noted() is None


@many
@given(st.lists(st.tuples(SMALL, SMALL, st.booleans()), min_size=1, max_size=4))
def test_payloads_are_those_of_the_headers(batches: list[tuple[int, int, bool]]) -> None:
    """Both engines list where the records of each batch are, and from which offset and time on."""
    data, expected = b"", []
    for base_offset, time, is_appended in batches:
        flags = LOG_APPEND_TIME_FLAG if is_appended else 0
        size = HEADER_SIZE + 3
        expected += [len(data) + HEADER_SIZE, len(data) + size, 7, base_offset]
        expected += [time + 1 if is_appended else time, 0 if is_appended else 1, 0, -5]
        header = (base_offset, size - LOG_OVERHEAD, -5, 2, 0, flags, 0, time, time + 1, -1, -1, -1)
        data += HEADER.pack(*header, 7) + b"abc"
    for name in ENGINES:
        payloads = np.full(len(batches) * PAYLOAD_WIDTH, 9, np.int64)
        run = engine(name, kernels.list_payloads)
        assert run(data, len(batches), payloads) == 7 * len(batches)
        assert payloads.tolist() == expected
        assert run(data[:-1], len(batches), payloads) == -RecordFault.TRUNCATED
        assert run(data, len(batches) + 1, payloads) == -RecordFault.NO_ROOM
