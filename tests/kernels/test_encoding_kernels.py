"""The kernels of a producer's columns, plain and compiled, against the naive encoder."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.client.producer.intake.encoding import column_of
from tailrace.kernels import Kernel
from tailrace.kernels import encoding as encoders
from tests.examples import examples
from tests.kernels.strategies import CONTENT, HEADERS
from tests.naive import NaiveRecord, write_record, write_records

CANARY = 0xA5
INT31 = 2**31 - 1
NONE = kernels.int64s(0)

ROWS = st.lists(st.tuples(CONTENT, CONTENT, HEADERS, st.integers(-(2**40), 2**60)), max_size=6)

ROWS_WITHIN_CLOCKS = st.tuples(
    CONTENT, CONTENT, HEADERS, st.integers(-(2**40), 2**43).filter(lambda each: each != -1)
)
"""Rows whose timestamps are nanoseconds within int64 too."""

MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Hashes of keys as Kafka's own tests have them."""


@pytest.fixture(params=["plain", "compiled"])
def engine(request: pytest.FixtureRequest) -> str:
    """Which of a kernel's two ways is called."""
    return str(request.param)


def call(kernel: Kernel, engine: str, *arguments: object) -> int:
    """The kernel by that engine."""
    assert kernel.is_compiled
    return kernel(*arguments) if engine == "compiled" else kernel.run_plain(*arguments)


Row = tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]], int]


def encode(engine: str, rows: list[Row], order: list[int], output: memoryview) -> int:
    """Return the result of `encode_records` for these rows, with headers as they are in records."""
    headers = [header_bytes(row) if row[2] else b"" for row in rows]
    timestamps = np.array([row[3] for row in rows], np.int64)
    return call(
        encoders.encode_records, engine,
        *column_of([row[1] for row in rows]), *column_of([row[0] for row in rows]),
        *column_of(headers), timestamps, 1000, np.array(order, np.int64), 0, len(order), output, 3,
    )  # fmt: skip


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
    for engine in ("plain", "compiled"):
        output = bytearray(3 + len(expected))
        assert encode(engine, rows, list(order), memoryview(output)) == len(output)
        assert output[3:] == expected


@settings(max_examples=examples(150))
@given(ROWS.filter(bool), st.integers(0, 200))
def test_nothing_is_written_behind_the_room(rows: list[Row], room: int) -> None:
    """Too small an output is told by both engines, and what stands behind it stays."""
    order = list(range(len(rows)))
    ends = []
    for engine in ("plain", "compiled"):
        memory = bytearray([CANARY]) * (room + 60)
        ends.append(encode(engine, rows, order, memoryview(memory)[:room]))
        assert memory[room:] == bytearray([CANARY]) * 60
    assert ends[0] == ends[1]
    assert ends[0] == -1 or ends[0] <= room


def append_rows(engine: str, rows: list[Row], block: bytearray, *, limit: int) -> list[int]:
    """The results of `append_record` for these rows, in a batch that may reach up to `limit`."""
    state = np.zeros(encoders.STATE_WORDS + len(rows), np.int64)
    state[encoders.POSITION], state[encoders.LIMIT] = 3, limit
    return [
        call(
            encoders.append_record, engine,
            value or b"", key or b"", header_bytes(row) if headers else b"", block, state,
            encoders.KEY_NULL * (key is None) | encoders.VALUE_NULL * (value is None),
            encoders.NOW, timestamp * 1_000_000 + place, 1,
        )
        for place, row in enumerate(rows)
        for key, value, headers, timestamp in [row]
    ]  # fmt: skip


@settings(max_examples=examples(150))
@given(st.lists(ROWS_WITHIN_CLOCKS, min_size=1, max_size=6), st.integers(0, 200))
def test_records_that_come_one_by_one_are_those_of_the_naive_encoder(
    rows: list[Row], lack: int
) -> None:
    """Both engines write what fits, up to the limit and nothing behind it."""
    base = rows[0][3]
    naive = [
        write_records([NaiveRecord(timestamp - base, index, key, value, tuple(headers))])
        for index, (key, value, headers, timestamp) in enumerate(rows)
    ]
    limit = max(3, 3 + sum(map(len, naive)) - lack)
    found = []
    for engine in ("plain", "compiled"):
        block = bytearray([CANARY]) * (limit + 60)
        indexes = append_rows(engine, rows, block, limit=limit)
        assert block[limit:] == bytearray([CANARY]) * 60
        if not lack:
            assert indexes == list(range(len(rows)))
            assert block[3:limit] == b"".join(naive)
        found.append((indexes, bytes(block)))
    assert found[0] == found[1]


def test_records_without_columns_are_the_smallest(engine: str) -> None:
    """No keys, no headers and no timestamps are columns of nothing; a start is respected."""
    values, ends = column_of([b"skipped", b"", None, b"abc"])
    output = bytearray(40)
    end = call(
        encoders.encode_records, engine,
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
    for engine in ("plain", "compiled"):
        output, ends = bytearray(room), kernels.int64s(len(rows) + 1)
        end = call(
            encoders.encode_headers, engine, *keys, *values, row_ends, len(rows), output, ends
        )
        expected = [header_bytes((None, None, row or [], 0)) for row in rows]
        assert output[:end] == b"".join(expected)
        assert [output[a:b] for a, b in pairwise(ends)] == expected


def test_a_header_without_a_key_is_told_by_its_row(engine: str) -> None:
    """The number of the row, from 1, comes back negative."""
    _, row_ends = column_of([b"x", b"xx"])
    keys, values = column_of([b"a", b"b", None]), column_of([b"", None, b""])
    output, ends = bytearray(40), kernels.int64s(3)
    arguments = (*keys, *values, row_ends, 2, output, ends)
    assert call(encoders.encode_headers, engine, *arguments) == -2


def test_keys_go_where_kafkas_clients_send_them(engine: str) -> None:
    """The hashes that Kafka's tests state, without their sign; a null key has no partition."""
    partitions = np.full(len(MURMUR2) + 1, -1, np.int64)
    keys = column_of([*MURMUR2, None])
    arguments = (*keys, len(MURMUR2) + 1, INT31, partitions)
    assert call(encoders.choose_partitions, engine, *arguments) == 1
    assert partitions.tolist() == [*(each & INT31 for each in MURMUR2.values()), -1]


def test_a_partition_that_is_given_stays(engine: str) -> None:
    """Only rows without a partition are looked at; the others come from the hash's remainder."""
    partitions = np.array([7, -1], np.int64)
    assert (
        call(encoders.choose_partitions, engine, *column_of([b"abc"] * 2), 2, 12, partitions) == 0
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
    for engine in ("plain", "compiled"):
        cuts, totals = kernels.int64s(len(rows) + 1), kernels.int64s(len(rows))
        runs = call(
            encoders.cut_rows, engine,
            sizes, np.array(order, np.int64), partitions, len(rows), room, cuts, totals,
        )  # fmt: skip
        assert runs == len(expected)
        places = list(cuts[: runs + 1])
        assert [b - a for a, b in pairwise(places)] == list(map(len, expected))
        assert list(totals[:runs]) == [sum(rows[row][0] for row in run) for run in expected]
