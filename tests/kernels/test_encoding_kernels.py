"""The kernels of a producer's columns, plain and compiled, against the naive encoder."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.client.producer.intake.columns import column_of
from tailrace.kernels import encoding as encoders
from tests.examples import examples
from tests.kernels.guards import Guarded
from tests.kernels.plain import ENGINES, both_engines, engine
from tests.kernels.strategies import CONTENT, HEADERS, INT64
from tests.naive import NaiveRecord, wrapped, write_record, write_records

INT31 = 2**31 - 1
NONE = kernels.int64s(0)

ROWS = st.lists(st.tuples(CONTENT, CONTENT, HEADERS, st.integers(-(2**40), 2**60)), max_size=6)

MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Hashes of keys as Kafka's own tests have them."""


Row = tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]], int]


def encode(engine_name: str, rows: list[Row], order: list[int], output: memoryview) -> int:
    """Return the result of `encode_records` for these rows, with headers as they are in records."""
    headers = [header_bytes(row) if row[2] else b"" for row in rows]
    timestamps = np.array([row[3] for row in rows], np.int64)
    result: int = engine(engine_name, encoders.encode_records)(
        *column_of([row[1] for row in rows]), *column_of([row[0] for row in rows]),
        *column_of(headers), timestamps, 1000, np.array(order, np.int64), 0, len(order), output, 3,
    )  # fmt: skip
    return result


def header_bytes(row: Row) -> bytes:
    """The header count and the headers as the naive encoder has them."""
    bare, full = (
        write_record(NaiveRecord(0, 0, None, None, headers)) for headers in ((), tuple(row[2]))
    )
    size_bytes = 1 if len(full) < 65 else 2
    return full[size_bytes + len(bare) - 2 :]


@settings(max_examples=examples(150))
@given(ROWS, st.data())
def test_records_are_those_of_the_naive_encoder(rows: list[Row], data: st.DataObject) -> None:
    """Both engines write the same bytes, for rows in any order."""
    order = data.draw(st.permutations(range(len(rows))))
    expected = write_records(
        [
            NaiveRecord(rows[row][3] - 1000, index, rows[row][0], rows[row][1], tuple(rows[row][2]))
            for index, row in enumerate(order)
        ]
    )
    for name in ENGINES:
        output = bytearray(3 + len(expected))
        assert encode(name, rows, list(order), memoryview(output)) == len(output)
        assert output[3:] == expected


@settings(max_examples=examples(150))
@given(ROWS.filter(bool), st.integers(0, 200))
def test_nothing_is_written_behind_the_room(rows: list[Row], room: int) -> None:
    """Too small an output is told by both engines, and what stands behind it stays."""
    order = list(range(len(rows)))
    ends = []
    for name in ENGINES:
        memory = Guarded("B", bytes(room))
        ends.append(encode(name, rows, order, memory.view))
        memory.content()
    assert ends[0] == ends[1]
    assert ends[0] == -1 or ends[0] <= room


@both_engines
def test_records_without_columns_are_the_smallest(engine_name: str) -> None:
    """No keys, no headers and no timestamps are columns of nothing; a start is respected."""
    values, ends = column_of([b"skipped", b"", None, b"abc"])
    output = bytearray(40)
    end = engine(engine_name, encoders.encode_records)(
        values, ends, b"", NONE, b"", NONE, NONE, 5, NONE, 1, 3, output, 0,
    )  # fmt: skip
    expected = [
        NaiveRecord(0, index, None, value) for index, value in enumerate((b"", None, b"abc"))
    ]
    assert output[:end] == write_records(expected)


@settings(max_examples=examples(100))
@given(st.lists(st.none() | HEADERS, max_size=5))
def test_headers_are_those_of_the_naive_encoder(
    rows: list[list[tuple[bytes, bytes | None]] | None],
) -> None:
    """Each row has its count and its headers; a null row has none."""
    flat = [header for row in rows for header in row or ()]
    _, row_ends = column_of([None if row is None else bytes(len(row)) for row in rows])
    keys, values = column_of([key for key, _ in flat]), column_of([value for _, value in flat])
    room = len(keys[0]) + len(values[0]) + 10 * len(flat) + 5 * len(rows)
    for name in ENGINES:
        output, ends = bytearray(room), kernels.int64s(len(rows) + 1)
        end = engine(name, encoders.encode_headers)(
            *keys, *values, row_ends, len(rows), output, ends
        )
        expected = [header_bytes((None, None, row or [], 0)) for row in rows]
        assert output[:end] == b"".join(expected)
        assert [output[a:b] for a, b in pairwise(ends)] == expected


@both_engines
def test_a_header_without_a_key_is_told_by_its_row(engine_name: str) -> None:
    """The number of the row, from 1, comes back negative."""
    _, row_ends = column_of([b"x", b"xx"])
    keys, values = column_of([b"a", b"b", None]), column_of([b"", None, b""])
    output, ends = bytearray(40), kernels.int64s(3)
    arguments = (*keys, *values, row_ends, 2, output, ends)
    assert engine(engine_name, encoders.encode_headers)(*arguments) == -2


@both_engines
def test_keys_go_where_kafkas_clients_send_them(engine_name: str) -> None:
    """The hashes that Kafka's tests state, without their sign; a null key has no partition."""
    partitions = np.full(len(MURMUR2) + 1, -1, np.int64)
    keys = column_of([*MURMUR2, None])
    arguments = (*keys, len(MURMUR2) + 1, INT31, partitions)
    assert engine(engine_name, encoders.choose_partitions)(*arguments) == 1
    assert partitions.tolist() == [*(each & INT31 for each in MURMUR2.values()), -1]


@both_engines
def test_a_partition_that_is_given_stays(engine_name: str) -> None:
    """Only rows without a partition are looked at; the others come from the hash's remainder."""
    partitions = np.array([7, -1], np.int64)
    assert (
        engine(engine_name, encoders.choose_partitions)(*column_of([b"abc"] * 2), 2, 12, partitions)
        == 0
    )
    assert partitions.tolist() == [7, 479470107 % 12]


@settings(max_examples=examples(150))
@given(
    rows=st.lists(st.tuples(st.integers(1, 50), st.integers(-1, 2)), max_size=12),
    room=st.integers(1, 120),
    is_ordered=st.booleans(),
)
def test_runs_are_of_one_partition_and_within_the_room(
    rows: list[tuple[int, int]], room: int, *, is_ordered: bool
) -> None:
    """A run ends where the partition changes or the next row does not fit, and only there."""
    order = sorted(range(len(rows)), key=lambda row: rows[row][1]) if is_ordered else []
    expected: list[list[int]] = []
    for row in order or range(len(rows)):
        size, partition = rows[row]
        last = expected[-1] if expected else []
        if (
            not last
            or rows[last[0]][1] != partition
            or sum(rows[each][0] for each in last) + size > room
        ):
            expected.append([])
        expected[-1].append(row)
    sizes = np.array([size for size, _ in rows], np.int64)
    partitions = np.array([partition for _, partition in rows], np.int64)
    for name in ENGINES:
        cuts, totals = kernels.int64s(len(rows) + 1), kernels.int64s(len(rows))
        runs = engine(name, encoders.cut_rows)(
            sizes, np.array(order, np.int64), partitions, len(rows), room, cuts, totals,
        )  # fmt: skip
        assert runs == len(expected)
        places = list(cuts[: runs + 1])
        assert [b - a for a, b in pairwise(places)] == list(map(len, expected))
        assert list(totals[:runs]) == [sum(rows[row][0] for row in run) for run in expected]


@settings(max_examples=examples(150))
@given(
    st.lists(st.integers(0, 50), max_size=4),
    st.lists(st.integers(0, 2), max_size=4),
    st.lists(st.integers(0, 3), max_size=3),
    INT64.filter(lambda row: not 0 <= row < 4),
)
def test_a_row_that_is_not_there_is_refused(
    sizes: list[int], partitions: list[int], before: list[int], row: int
) -> None:
    """A negative one too, which the uncompiled kernel would count from the end."""
    place = Guarded("q", [*before, row])
    given_sizes, given_partitions = Guarded("q", sizes), Guarded("q", partitions)
    cuts, totals = Guarded("q", [0] * 9), Guarded("q", [0] * 9)
    with pytest.raises(IndexError):
        engine("compiled", encoders.cut_rows)(
            given_sizes.view, place.view, given_partitions.view, len(before) + 1, 99,
            cuts.view, totals.view,
        )  # fmt: skip
    for each in (place, given_sizes, given_partitions, cuts, totals):
        each.content()


@settings(max_examples=examples(150))
@given(st.lists(INT64, min_size=1, max_size=4), INT64)
def test_timestamps_at_the_ends_of_int64_wrap_around(times: list[int], base: int) -> None:
    """A delta that 64 bits do not hold comes back to its timestamp, as sums in Java do."""
    expected = write_records(
        [NaiveRecord(wrapped(time - base), row, None, None) for row, time in enumerate(times)]
    )
    output = bytearray(100)
    arguments = b"", NONE, b"", NONE, b"", NONE, np.array(times, np.int64), base, NONE, 0
    end = engine("compiled", encoders.encode_records)(*arguments, len(times), output, 0)
    assert output[:end] == expected


@settings(max_examples=examples(300))
@given(st.binary(max_size=70), st.integers(1, 2**31 - 1) | INT64.filter(bool))
def test_one_key_goes_where_a_column_of_keys_goes(key: bytes, count: int) -> None:
    """All ways to a partition are the same in both engines."""
    found = []
    for name in ENGINES:
        partitions = np.array([-1], np.int64)
        engine(name, encoders.choose_partitions)(*column_of([key]), 1, count, partitions)
        mixed = engine(name, encoders.murmur2)(key)
        assert -(2**31) <= mixed <= INT31
        assert engine(name, encoders.choose_partition)(key, count) == partitions[0]
        assert partitions[0] == (mixed & INT31) % count
        found.append(mixed)
    assert found[0] == found[1]


@both_engines
def test_hashes_are_those_of_kafkas_tests(engine_name: str) -> None:
    """With their signs."""
    murmur2 = engine(engine_name, encoders.murmur2)
    assert {key: murmur2(key) for key in MURMUR2} == MURMUR2


@both_engines
def test_no_partitions_are_no_place_to_go(engine_name: str) -> None:
    """A division by zero is an exception, also without the interpreter lock."""
    with pytest.raises(ZeroDivisionError):
        engine(engine_name, encoders.choose_partition)(b"key", 0)
    partitions = np.array([-1], np.int64)
    with pytest.raises(ZeroDivisionError):
        engine(engine_name, encoders.choose_partitions)(*column_of([b"key"]), 1, 0, partitions)


@both_engines
@pytest.mark.parametrize("short", range(4))
def test_rows_need_room_in_each_output(engine_name: str, short: int) -> None:
    """One item too few in any buffer of integers is an exception, and nothing is written there."""
    rooms = [3, 3, 4, 3]
    rooms[short] -= 1
    sizes, partitions, cuts, totals = (Guarded("q", [1] * each) for each in rooms)
    with pytest.raises(IndexError):
        engine(engine_name, encoders.cut_rows)(
            sizes.view, NONE, partitions.view, 3, 1, cuts.view, totals.view
        )
    for each in (sizes, partitions, cuts, totals):
        each.content()
