"""Every kernel gives the same answer compiled, plain, and as the naive decoder has it."""

from array import array
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.kernels import Payload, RecordFault, Refusal, Total
from tailrace.records.layout import HEADER, HEADER_SIZE, LOG_APPEND_TIME_FLAG, LOG_OVERHEAD
from tests.examples import examples
from tests.kernels.plain import ENGINES, both_engines, engine
from tests.kernels.strategies import INT64, SMALL, damaged_payloads, naive_records
from tests.naive import Malformed, NaiveRecord, read_records, varint, wrapped, write_records

many = settings(max_examples=examples(120), deadline=None, database=None)


class Verdict(NamedTuple):
    """A status as the naive decoder would name it, and the index of the record."""

    fault: str
    at: int


def naive_verdict(payload: bytes, count: int) -> Verdict:
    """Return the naive decoder's verdict."""
    try:
        return Verdict("", len(read_records(payload, count)))
    except Malformed as error:
        return Verdict(error.rule, error.index)


def name_of(status: int) -> str:
    """The fault of a negative status, or nothing."""
    return RecordFault(-status).name if status < 0 else ""


@both_engines
@many
@given(damaged_payloads())
def test_walk_agrees_with_the_naive_decoder(engine_name: str, damaged: tuple[bytes, int]) -> None:
    """Damaged or not: the same fault at the same record."""
    payload, count = damaged
    totals = array("q", [7] * len(Total))
    status = engine(engine_name, kernels.walk_records)(payload, 0, len(payload), count, totals)
    assert Verdict(name_of(status), totals[Total.RECORDS]) == naive_verdict(payload, count)


HEADERS = st.tuples(
    st.sampled_from([0, LOG_APPEND_TIME_FLAG]),
    st.integers(-1, 6),
    SMALL | INT64,
    SMALL | INT64,
)
"""Attributes, last offset delta, base and largest timestamp."""


def is_sound(payload: bytes, count: int, header: tuple[int, int, int, int]) -> bool:
    """Tell whether a whole batch is sound for the naive decoder."""
    attributes, last_delta, base, largest = header
    try:
        records = read_records(payload, count)
    except Malformed:
        return False
    is_late = any(base + record.timestamp_delta > largest for record in records)
    last = records[-1].offset_delta if records else -1
    return last <= last_delta and (attributes == LOG_APPEND_TIME_FLAG or not is_late)


@both_engines
@many
@given(st.lists(st.tuples(damaged_payloads(), HEADERS), min_size=1, max_size=3), st.binary())
def test_a_run_is_sound_if_all_its_batches_are(
    engine_name: str,
    batches: list[tuple[tuple[bytes, int], tuple[int, int, int, int]]],
    damage: bytes,
) -> None:
    """Records are as the naive decoder and the headers have them; bytes behind them are a fault."""
    data = b"".join(
        HEADER.pack(
            0, HEADER_SIZE - LOG_OVERHEAD + len(payload), 0, 2, 0,
            attributes, delta, base, largest, -1, -1, -1, min(count, 2**31 - 1),
        )
        + payload
        for (payload, count), (attributes, delta, base, largest) in batches
    )  # fmt: skip
    count = sum(count for (_, count), _ in batches)
    due = all(is_sound(payload, count, header) for (payload, count), header in batches)
    walk = engine(engine_name, kernels.walk_run)
    assert walk(data, max(count, 0)) == due
    if damage:
        assert walk(data + damage[:HEADER_SIZE], max(count, 0)) == 0


@many
@given(damaged_payloads(), st.integers(0, 5), st.binary(max_size=9))
def test_walk_is_the_same_compiled_and_plain(
    damaged: tuple[bytes, int], position: int, tail: bytes
) -> None:
    """Every total is equal, also in the middle of a larger buffer."""
    payload, count = damaged
    data = memoryview(bytearray(bytes(position) + payload + tail))
    results = []
    for name in ENGINES:
        totals = kernels.int64s(len(Total))
        status = engine(name, kernels.walk_records)(
            data, position, position + len(payload), count, totals
        )
        results.append((status, list(totals)))
    assert results[0] == results[1]


@both_engines
@many
@given(naive_records())
def test_walk_sums_up(engine_name: str, records: list[NaiveRecord]) -> None:
    """Null keys, the range of timestamps and the order of offsets are those of the records."""
    payload = write_records(records)
    totals = kernels.int64s(len(Total))
    status = engine(engine_name, kernels.walk_records)(
        payload, 0, len(payload), len(records), totals
    )
    times = [record.timestamp_delta for record in records] or [0]
    offsets = [record.offset_delta for record in records]
    assert status == 0
    assert list(totals) == [
        len(records),
        len(payload),
        offsets == list(range(len(records))),
        (offsets or [-1])[-1],
        sum(record.key is None for record in records),
        min(times),
        max(times),
    ]


def refused_rows(
    engine_name: str, payload: bytes, count: int, *rules: int, room: int = 9
) -> tuple[int, list[int], list[tuple[int, ...]]]:
    """Status, totals and the rows that `list_refused` lists."""
    totals, found = kernels.int64s(2), kernels.int64s(kernels.REFUSED_WIDTH * room)
    status = engine(engine_name, kernels.list_refused)(
        payload, 0, len(payload), count, *rules, totals, found
    )
    rows = [tuple(found[3 * row : 3 * row + 3]) for row in range(max(0, status))]
    return status, list(totals), rows


@both_engines
@many
@given(
    naive_records(), st.booleans(), SMALL | INT64, SMALL | INT64, SMALL | INT64, st.integers(0, 9)
)
def test_refused_records_are_those_of_the_rules(
    engine_name: str,
    records: list[NaiveRecord],
    needs_keys: bool,  # noqa: FBT001
    base: int,
    earliest: int,
    latest: int,
    room: int,
) -> None:
    """They come in order, each with its first reason; beyond the room they are only counted."""
    expected: list[tuple[int, ...]] = []
    for index, record in enumerate(records):
        time = base + record.timestamp_delta
        is_in_range = earliest <= time <= latest and -(2**63) <= time < 2**63
        if record.offset_delta != index:
            expected.append((index, Refusal.OFFSET, record.offset_delta))
        elif needs_keys and record.key is None:
            expected.append((index, Refusal.NO_KEY, 0))
        elif earliest > latest or not (is_in_range or time == -1):
            expected.append((index, Refusal.TIMESTAMP, record.timestamp_delta))
    status, totals, rows = refused_rows(
        engine_name, write_records(records), len(records), needs_keys, base, 1, earliest, latest,
        room=room,
    )  # fmt: skip
    assert status == min(room, len(expected))
    assert totals == [len(expected), sum(row[1] == Refusal.TIMESTAMP for row in expected)]
    assert rows == expected[:room]


@both_engines
@many
@given(damaged_payloads())
def test_refusing_stops_where_the_walk_stops(engine_name: str, damaged: tuple[bytes, int]) -> None:
    """A record that is not sound is the same fault; what follows the last one is not looked at."""
    payload, count = damaged
    status, _, _ = refused_rows(engine_name, payload, count, 1, 0, 1, 0, 100)
    fault = naive_verdict(payload, count).fault
    assert name_of(status) == ("" if fault == "LEFTOVER" else fault)


@both_engines
def test_one_time_for_all_records(engine_name: str) -> None:
    """With `keeps_deltas` 0 every record has the base timestamp, and -1 is none."""
    payload = write_records([NaiveRecord(40, 0, b"k", b"v"), NaiveRecord(2**63 - 1, 1, b"k", b"v")])
    assert refused_rows(engine_name, payload, 2, 0, 7, 0, 5, 9)[0] == 0
    assert refused_rows(engine_name, payload, 2, 0, -1, 0, 5, 9)[0] == 0
    assert refused_rows(engine_name, payload, 2, 0, 4, 0, 5, 9)[2] == [(0, 3, 0), (1, 3, 0)]


class Columns:
    """Outputs of `decode_records` of a given capacity, and what is in them."""

    def __init__(self, rows: int, size: int) -> None:
        self.cursors = np.zeros(4, np.int64)
        self.offsets, self.timestamps = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self.key_ends, self.value_ends = np.zeros(rows + 1, np.int32), np.zeros(rows + 1, np.int32)
        self.key_valid, self.value_valid = np.zeros(rows, np.uint8), np.zeros(rows, np.uint8)
        self.key_data, self.value_data = np.zeros(size, np.uint8), np.zeros(size, np.uint8)

    def outputs(self) -> tuple[np.ndarray, ...]:
        """In the kernel's order."""
        return (
            self.cursors, self.offsets, self.timestamps,
            self.key_ends, self.key_valid, self.key_data,
            self.value_ends, self.value_valid, self.value_data,
        )  # fmt: skip

    def rows(self) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """Offset, timestamp, key and value of every row."""
        return [
            (
                int(self.offsets[row]),
                int(self.timestamps[row]),
                content(self.key_ends, self.key_valid, self.key_data, row),
                content(self.value_ends, self.value_valid, self.value_data, row),
            )
            for row in range(self.cursors[0])
        ]


def one_batch(
    payload: bytes, count: int, base_offset: int = 0, base_timestamp: int = 0
) -> np.ndarray:
    """The payloads of one batch that is the whole buffer."""
    return np.array([0, len(payload), count, base_offset, base_timestamp, 1, 0, 7], np.int64)


def content(ends: np.ndarray, valid: np.ndarray, data: np.ndarray, row: int) -> bytes | None:
    """A cell of a binary column."""
    return bytes(data[ends[row] : ends[row + 1]]) if valid[row] else None


def expected_rows(
    records: list[NaiveRecord], base_offset: int, base_timestamp: int, window: tuple[int, int]
) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """The rows of the records with an offset in the window."""
    return [
        (offset, wrapped(base_timestamp + record.timestamp_delta), record.key, record.value)
        for record in records
        if window[0] <= (offset := wrapped(base_offset + record.offset_delta)) < window[1]
    ]


@both_engines
@many
@given(naive_records(), SMALL | INT64, SMALL | INT64, st.tuples(SMALL, SMALL))
def test_decode_appends_the_records_of_the_window(
    engine_name: str,
    records: list[NaiveRecord],
    base_offset: int,
    base_timestamp: int,
    window: tuple[int, int],
) -> None:
    """Twice the same payload gives twice the rows that the naive decoder gives."""
    payload = write_records(records)
    columns = Columns(2 * len(records), 2 * len(payload))
    expected = expected_rows(records, base_offset, base_timestamp, window)
    for _ in range(2):
        appended = engine(engine_name, kernels.decode_records)(
            payload, one_batch(payload, len(records), base_offset, base_timestamp),
            len(records), *window, 15, *columns.outputs(),
        )  # fmt: skip
        assert appended == len(expected)
    assert columns.rows() == 2 * expected


@many
@given(damaged_payloads(), st.integers(0, 6), st.integers(0, 40), st.integers(0, 15))
def test_decode_is_the_same_compiled_and_plain(
    damaged: tuple[bytes, int], rows: int, size: int, wanted: int
) -> None:
    """Both engines give the same status, cursors and bytes, for any damage and any room."""
    payload, count = damaged
    results = []
    for name in ENGINES:
        columns = Columns(rows, size)
        status = engine(name, kernels.decode_records)(
            payload, one_batch(payload, count, 10, 1000), count, 11, 200, wanted, *columns.outputs()
        )
        results.append((status, [list(output) for output in columns.outputs()]))
    assert results[0] == results[1]


@both_engines
@many
@given(damaged_payloads())
def test_decode_refuses_what_the_naive_decoder_refuses(
    engine_name: str, damaged: tuple[bytes, int]
) -> None:
    """With room enough the fault is the same, and the cursors have not moved."""
    payload, count = damaged
    columns = Columns(len(payload), len(payload))
    status = engine(engine_name, kernels.decode_records)(
        payload, one_batch(payload, count), count, -(2**62), 2**62, 15, *columns.outputs()
    )
    assert name_of(status) == naive_verdict(payload, count).fault
    assert status >= 0 or not columns.cursors.any()


@both_engines
@many
@given(damaged_payloads())
def test_headers_agree_with_the_naive_decoder(engine_name: str, damaged: tuple[bytes, int]) -> None:
    """Header columns hold what the naive decoder finds, or the fault is the same."""
    payload, count = damaged
    room = len(payload)
    cursors = np.zeros(4, np.int64)
    row_ends, row_valid = np.zeros(room + 1, np.int32), np.zeros(room, np.uint8)
    key_ends, key_data = np.zeros(room + 1, np.int32), np.zeros(room, np.uint8)
    value_ends, value_valid = np.zeros(room + 1, np.int32), np.zeros(room, np.uint8)
    value_data = np.zeros(room, np.uint8)
    status = engine(engine_name, kernels.decode_headers)(
        payload, 0, room, count, 0, -(2**62), 2**62, cursors, row_ends, row_valid,
        key_ends, key_data, value_ends, value_valid, value_data,
    )  # fmt: skip
    verdict = naive_verdict(payload, count)
    assert name_of(status) == verdict.fault
    if status < 0:
        assert not cursors.any()
        return
    every = np.ones(room, np.uint8)
    for row, record in enumerate(read_records(payload, count)):
        headers = tuple(
            (content(key_ends, every, key_data, i), content(value_ends, value_valid, value_data, i))
            for i in range(row_ends[row], row_ends[row + 1])
        )
        assert headers == record.headers
        assert bool(row_valid[row]) == bool(headers)


@both_engines
@many
@given(damaged_payloads(), SMALL, SMALL | INT64, SMALL, st.sampled_from((0, 1)))
def test_find_timestamp_is_the_first_that_fits(
    engine_name: str,
    damaged: tuple[bytes, int],
    base_offset: int,
    timestamp: int,
    start_offset: int,
    keeps_deltas: int,
) -> None:
    """The naive search over the sound prefix gives the same record, or the same fault."""
    payload, count = damaged
    found = kernels.int64s(2)
    status = engine(engine_name, kernels.find_timestamp)(
        payload, 0, len(payload), count, base_offset, 5, keeps_deltas, timestamp, start_offset,
        found,
    )  # fmt: skip
    verdict = naive_verdict(payload, count)
    if verdict.fault == "RECORD_COUNT":
        assert name_of(status) == "RECORD_COUNT"
        return
    prefix = prefix_of(payload, verdict.at)
    fits = [
        (offset, time)
        for record in prefix
        if (time := wrapped(5 + record.timestamp_delta * keeps_deltas)) >= timestamp
        and (offset := base_offset + record.offset_delta) >= start_offset
    ]
    if fits:
        assert (status, tuple(found)) == (1, fits[0])
    else:
        # The search stops after the last record and does not look at what follows.
        assert name_of(status) == ("" if verdict.fault == "LEFTOVER" else verdict.fault)


def prefix_of(payload: bytes, count: int) -> list[NaiveRecord]:
    """The first `count` records, which are sound."""
    for limit in range(len(payload) + 1):
        try:
            return read_records(payload[:limit], count)
        except Malformed:
            continue
    raise AssertionError(f"{count} records are not there")


@both_engines
@settings(max_examples=examples(300), deadline=None, database=None)
@given(INT64 | SMALL)
@example(2**63 - 1)
@example(-(2**63))
@example(2**62)
def test_timestamps_of_64_bits_survive(engine_name: str, delta: int) -> None:
    """A varlong of ten bytes is read as the number that was written."""
    payload = write_records([NaiveRecord(delta, 0, None, None)])
    totals = kernels.int64s(len(Total))
    engine(engine_name, kernels.walk_records)(payload, 0, len(payload), 1, totals)
    assert totals[Total.TIMESTAMP_DELTA_MAX] == delta


@both_engines
@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (b"\xfe\xff\xff\xff\x0f", 2**31 - 1),
        (b"\xfe\xff\xff\xff\x7f", 2**31 - 1),
        (b"\x80\x80\x80\x80\x10", 0),
    ],
)
def test_offset_deltas_wrap_at_32_bits(engine_name: str, encoded: bytes, expected: int) -> None:
    """A fifth byte with too many bits loses them, as in Java."""
    body = b"\x00\x00" + encoded + b"\x01\x01\x00"
    payload = varint(len(body)) + body
    totals = kernels.int64s(len(Total))
    status = engine(engine_name, kernels.walk_records)(payload, 0, len(payload), 1, totals)
    assert (status, totals[Total.LAST_OFFSET_DELTA]) == (0, expected)


@both_engines
@pytest.mark.parametrize("encoded", [b"\x01", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f"])
def test_a_negative_offset_delta_is_a_fault(engine_name: str, encoded: bytes) -> None:
    """No record is before its batch, by 1 or by 2^31."""
    body = b"\x00\x00" + encoded + b"\x01\x01\x00"
    payload = varint(len(body)) + body
    totals = kernels.int64s(len(Total))
    status = engine(engine_name, kernels.walk_records)(payload, 0, len(payload), 1, totals)
    assert (name_of(status), totals[Total.RECORDS]) == ("OFFSET_DELTA", 0)


@both_engines
def test_append_time_ignores_deltas(engine_name: str) -> None:
    """With `keeps_deltas` 0 every row has the base timestamp."""
    payload = write_records([NaiveRecord(40, 0, b"k", b"v"), NaiveRecord(50, 1, b"k", b"v")])
    columns = Columns(2, 10)
    payloads = one_batch(payload, 2, 0, 7)
    payloads[Payload.KEEPS_DELTAS] = 0
    engine(engine_name, kernels.decode_records)(payload, payloads, 2, 0, 9, 15, *columns.outputs())
    assert [row[1] for row in columns.rows()] == [7, 7]
