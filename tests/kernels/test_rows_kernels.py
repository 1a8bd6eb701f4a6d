"""The kernels that make objects of records, compiled and plain."""

import copy
import gc
import pickle
import sys
import weakref
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.kernels import PAYLOAD_WIDTH, RecordFault
from tailrace.kernels.rows import (
    KEY_PLACE,
    PLACES_WIDTH,
    VALUE_PLACE,
    list_octets,
    list_records,
    place_records,
    put_octets,
    put_records,
)
from tailrace.records.layout import HEADER, HEADER_SIZE, LOG_APPEND_TIME_FLAG, LOG_OVERHEAD
from tests.kernels.plain import ENGINES, both_engines, engine
from tests.kernels.strategies import INT64, SMALL, damaged_payloads, naive_records
from tests.kernels.test_records_kernels import (
    expected_rows,
    many,
    naive_verdict,
    name_of,
    one_batch,
)
from tests.naive import NaiveRecord, write_records


class Nine(NamedTuple):
    """A tuple as `put_records` makes it."""

    a: object
    b: object
    c: object
    d: object
    e: object
    f: object
    g: object
    h: object
    i: object


class Alive:
    """An object that can be watched."""


def columns_of(rows: int) -> list[list[object]]:
    """Nine lists of objects of their own."""
    return [[(column, row) for row in range(rows)] for column in range(9)]


@both_engines
@many
@given(naive_records(), SMALL | INT64, SMALL | INT64, SMALL)
def test_places_are_those_of_the_naive_decoder(
    engine_name: str,
    records: list[NaiveRecord],
    base_offset: int,
    base_timestamp: int,
    start: int,
) -> None:
    """Offset, timestamp, key and value of each record from an offset on, and all headers."""
    payload = write_records(records)
    room = len(records)
    offsets, timestamps = np.zeros(room, np.int64), np.zeros(room, np.int64)
    places, totals = np.zeros(room * PLACES_WIDTH, np.int32), np.zeros(1, np.int64)
    batch = one_batch(payload, room, base_offset, base_timestamp)
    count = engine(engine_name, place_records)(
        payload, batch, room, start, offsets, timestamps, places, totals
    )
    keys = list_octets(payload, places, which=KEY_PLACE, start=0, count=count)
    values = list_octets(payload, places, which=VALUE_PLACE, start=0, count=count)
    found = list(
        zip(offsets[:count].tolist(), timestamps[:count].tolist(), keys, values, strict=True)
    )
    assert found == expected_rows(records, base_offset, base_timestamp, (start, 2**63))
    if count == room:
        assert totals[0] == sum(len(each.headers) for each in records)


@both_engines
@many
@given(damaged_payloads())
def test_no_places_of_damaged_records(engine_name: str, damaged: tuple[bytes, int]) -> None:
    """The fault is that of the naive decoder."""
    payload, count = damaged
    room = len(payload)
    status = engine(engine_name, place_records)(
        payload, one_batch(payload, count), count, -(2**62), np.zeros(room, np.int64),
        np.zeros(room, np.int64), np.zeros(room * PLACES_WIDTH, np.int32), np.zeros(1, np.int64),
    )  # fmt: skip
    assert name_of(status) == naive_verdict(payload, count).fault


@both_engines
def test_places_need_room(engine_name: str) -> None:
    """A record that has no place in an output is a fault, and nothing is written behind its end."""
    payload = write_records([NaiveRecord(0, 0, b"k", b"v"), NaiveRecord(0, 1, b"k", b"v")])
    for short in range(3):
        rooms = [2, 2, 2 * PLACES_WIDTH]
        rooms[short] -= 1
        outputs = [np.zeros(rooms[0], np.int64), np.zeros(rooms[1], np.int64)]
        status = engine(engine_name, place_records)(
            payload, one_batch(payload, 2), 2, 0, *outputs, np.zeros(rooms[2], np.int32),
            np.zeros(1, np.int64),
        )  # fmt: skip
        assert status == -RecordFault.NO_ROOM


@both_engines
@pytest.mark.parametrize("place", [(-1, 1), (0, 5), (5, 0), (4, 1), (2**31 - 1, 2**31 - 1)])
def test_octets_come_from_the_data_alone(engine_name: str, place: tuple[int, int]) -> None:
    """A place that is not inside of the data is refused."""
    places = np.array([*place, 0, -1], np.int32)
    found: list[object] = [None]
    status = engine(engine_name, put_octets)(b"data", places, KEY_PLACE, 0, 1, found)
    assert (status, found) == (-RecordFault.NO_ROOM, [None])


@both_engines
@pytest.mark.parametrize(("start", "count"), [(0, 3), (1, 2), (-1, 1)])
def test_octets_need_places_and_a_list(engine_name: str, start: int, count: int) -> None:
    """Rows without places, or without an item of the list, are refused."""
    places = np.array([0, 1, 0, 1] * 2, np.int32)
    status = engine(engine_name, put_octets)(b"data", places, 0, start, count, [None] * 2)
    assert status == -RecordFault.NO_ROOM


@both_engines
def test_records_need_items_in_each_list(engine_name: str) -> None:
    """A list that is shorter than the others is refused, wherever it stands."""
    for short in range(9):
        lists = columns_of(2)
        lists[short].pop()
        with pytest.raises(ValueError, match="do not have one size"):
            engine(engine_name, put_records)(Nine, 0, *lists)


def test_what_is_no_list_is_refused() -> None:
    """A tuple, or nothing, in the place of a list is an exception."""
    for wrong in ((None,), None):
        for place in range(9):
            lists: list[object] = [*columns_of(1)]
            lists[place] = wrong
            with pytest.raises(TypeError):
                engine("compiled", put_records)(Nine, 0, *lists)
        with pytest.raises(TypeError):
            engine("compiled", put_octets)(b"", np.zeros(4, np.int32), 0, 0, 1, wrong)


@pytest.mark.parametrize("is_tracked", [False, True])
def test_records_have_the_items_of_the_columns(*, is_tracked: bool) -> None:
    """They are tuples of their type, and the garbage collector knows those that it has to."""
    columns = columns_of(5)
    found = list_records(Nine, columns, is_tracked=is_tracked)
    assert found == list(map(Nine._make, zip(*columns, strict=True)))
    assert {type(each) for each in found} == {Nine}
    assert {gc.is_tracked(each) for each in found} == {is_tracked}


@both_engines
def test_records_are_tuples_like_others(engine_name: str) -> None:
    """They have the hash of a tuple with these items, and are equal to it, also as keys."""
    columns = [[f"{column}/{row}" for row in range(50)] for column in range(9)]
    for is_tracked in (False, True):
        found = engine(engine_name, put_records)(Nine, is_tracked, *columns)
        ordinary = list(zip(*columns, strict=True))
        assert found == ordinary
        assert list(map(hash, found)) == list(map(hash, ordinary))
        assert set(found) == set(ordinary)
        assert found == pickle.loads(pickle.dumps(found))
        assert found == copy.deepcopy(found)
        assert [each._replace(a=1) for each in found] == [(1, *each[1:]) for each in ordinary]


def test_tracked_records_in_a_circle_are_collected() -> None:
    """The collector finds those that refer to themselves, and goes through those that do not."""
    inside: list[list[object]] = [[]]
    found = list_records(Nine, [inside] * 9, is_tracked=True)
    inside[0].append(found[0])
    inside[0].append(alive := Alive())
    noted = weakref.ref(alive)
    del inside, found, alive
    assert noted() is not None
    gc.collect()
    assert noted() is None


@pytest.mark.parametrize("kind", [tuple, Nine])
def test_records_of_no_rows_are_none(kind: type) -> None:
    """Empty lists make an empty list."""
    assert put_records(kind, 0, *columns_of(0)) == []


@pytest.mark.parametrize("kind", [None, int, list, object, "Nine", Nine(*"abcdefghi")])
def test_what_is_no_type_of_tuples_is_refused(kind: object) -> None:
    """Only a tuple has places for the items."""
    with pytest.raises(TypeError):
        engine("compiled", put_records)(kind, 0, *columns_of(1))


def test_each_reference_is_counted_once() -> None:
    """Objects live as long as a record refers to them, and not longer."""
    item = object()
    before, nones = (sys.getrefcount(item), sys.getrefcount(Nine)), sys.getrefcount(None)
    found = list_records(Nine, [[item] * 4] * 9, is_tracked=False)
    assert sys.getrefcount(item) == before[0] + 36
    del found
    assert (sys.getrefcount(item), sys.getrefcount(Nine)) == before
    for _ in range(100):
        list_records(Nine, [[item] * 4] * 9, is_tracked=False)
    # Lists begin with None everywhere; what else refers to it changes a little meanwhile.
    assert abs(sys.getrefcount(None) - nones) < 100


@many
@given(st.lists(st.tuples(SMALL, SMALL, st.booleans()), min_size=1, max_size=4))
def test_payloads_are_those_of_the_headers(batches: list[tuple[int, int, bool]]) -> None:
    """Both engines list where the records of each batch are, and from which offset and time on."""
    data, expected = b"", []
    for base_offset, time, is_appended in batches:
        flags = LOG_APPEND_TIME_FLAG if is_appended else 0
        size = HEADER_SIZE + 3
        expected += [len(data) + HEADER_SIZE, len(data) + size, 7, base_offset]
        expected += [time + 1 if is_appended else time, 0 if is_appended else 1, 0]
        header = (base_offset, size - LOG_OVERHEAD, 0, 2, 0, flags, 0, time, time + 1, -1, -1, -1)
        data += HEADER.pack(*header, 7) + b"abc"
    for name in ENGINES:
        payloads = np.full(len(batches) * PAYLOAD_WIDTH, 9, np.int64)
        run = engine(name, kernels.list_payloads)
        assert run(data, len(batches), payloads) == 7 * len(batches)
        assert payloads.tolist() == expected
        assert run(data[:-1], len(batches), payloads) == -RecordFault.TRUNCATED
        assert run(data, len(batches) + 1, payloads) == -RecordFault.NO_ROOM
