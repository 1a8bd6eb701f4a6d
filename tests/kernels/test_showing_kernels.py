"""The kernel that shows records: plain and compiled code agree on every byte, whatever the input.

That the lines are right is the claim of `tests/unit/offline/test_show.py`.
"""

from array import array
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.kernels import RecordFault
from tailrace.kernels.showing import (
    PRINTABLE_CODES,
    TIMESTAMP_MAX,
    BoundIndex,
    Cursor,
    Form,
    StopReason,
    show_records,
)
from tests.examples import examples
from tests.kernels.plain import ENGINES, both_engines, engine
from tests.kernels.strategies import INT64, SMALL, damaged_payloads
from tests.naive import NaiveRecord, write_records

CANARY = 0xA5
ENDS = (0, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10, 12, 13)
LITERALS = b"a.bcdefgh\n0xz"
ESCAPES = bytes(8 * 32).replace(bytes(8), b"\x02^.\0\0\0\0\0") + bytes(8 * 96) + b"\xff" * 1024


@settings(max_examples=examples(400))
@given(
    damaged_payloads(),
    st.sampled_from(Form),
    st.tuples(SMALL | INT64, SMALL | INT64, st.integers(0, 1)),
    st.tuples(SMALL, INT64, INT64, INT64, st.integers(0, 2)),
    st.sampled_from([0, 50, 300, 5000]),
    st.integers(0, 5),
)
def test_engines_agree_and_stay_inside_of_the_output(
    payload: tuple[bytes, int],
    form: Form,
    base: tuple[int, int, int],
    bounds: tuple[int, ...],
    size: int,
    left: int,
) -> None:
    """Return, cursors and bytes are the same, and behind the last line nothing is promised."""
    data, count = payload
    outcomes = []
    for name in ENGINES:
        limits, cursors = kernels.int64s(len(BoundIndex)), kernels.int64s(len(Cursor))
        ends = kernels.int64s(len(ENDS))
        for place, number in enumerate(bounds):
            limits[place] = number
        for place, number in enumerate(ENDS):
            ends[place] = number
        cursors[Cursor.LEFT] = left
        memory = bytearray([CANARY]) * (size + 64)
        halt = engine(name, show_records)(
            data, count, *base, limits, b"k", form, LITERALS, ends, ESCAPES,
            b"\x01" * PRINTABLE_CODES, cursors, memoryview(memory)[:size],
        )  # fmt: skip
        assert memory[size:] == bytearray([CANARY]) * 64
        outcomes.append((halt, cursors.tolist(), bytes(memory[: cursors[Cursor.END]])))
    assert outcomes[0] == outcomes[1]
    halt = outcomes[0][0]
    assert StopReason(halt) if halt > 0 else RecordFault(-halt) if halt < 0 else True


def line(
    data: bytes, form: Form, *, offset: int = 0, timestamp: int = 0, engine_name: str
) -> bytes:
    """The line of one record."""
    bounds = array("q", [-(2**63), 2**63 - 1, -(2**63), 2**63 - 1, 0])
    cursors, memory = array("q", [0, 0, 0, 1]), bytearray(20_000)
    halt = engine(engine_name, show_records)(
        data, 1, offset, timestamp, 1, bounds, b"", form, LITERALS, array("q", ENDS), ESCAPES,
        b"\x01" * PRINTABLE_CODES, cursors, memory,
    )  # fmt: skip
    assert halt == 0
    return bytes(memory[: cursors[Cursor.END]])


NUMBERS = INT64 | st.sampled_from(
    [sign * 10**power + step for power in range(19) for sign in (-1, 1) for step in (-1, 0, 1)]
)


@both_engines
@settings(max_examples=examples(300))
@given(NUMBERS, NUMBERS.filter(lambda each: each != 2**63 - 1))
def test_numbers_are_written_as_python_writes_them(
    engine_name: str, offset: int, timestamp: int
) -> None:
    """All 64-bit numbers, the smallest too."""
    data = write_records([NaiveRecord(0, 0, None, None)])
    if offset == 2**63 - 1:
        offset -= 1  # It is never wanted: limits come behind the last offset.
    found = line(data, Form.JSON, offset=offset, timestamp=timestamp, engine_name=engine_name)
    assert found == b"a.%db%dcnulldnulle\n" % (offset, timestamp)


@both_engines
@settings(max_examples=examples(300))
@given(
    st.integers(0, TIMESTAMP_MAX) | st.sampled_from([0, 68169599999, 951782400000, TIMESTAMP_MAX])
)
def test_times_are_written_as_python_writes_them(engine_name: str, timestamp: int) -> None:
    """To the millisecond, on every day of the calendar."""
    data = write_records([NaiveRecord(0, 0, None, None)])
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp)
    expected = time.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()
    found = line(data, Form.TEXT, timestamp=timestamp, engine_name=engine_name)
    assert found.startswith(b"a.0b" + expected + b"c")


PIECES = st.sampled_from(
    [
        b"a", b"\x7f", b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc2\x80", b"\xdf\xbf",
        b"\xc2", b"\xff",
        b"\xe0\x9f\xbf", b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xee\x80\x80",
        b"\xef\xbf\xbf", b"\xe1\x80", b"\xe1\x80a", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80",
        b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf1\x80\x80",
        b"\xf1\x80\x80a", b"x" * 33,
    ]
)  # fmt: skip
"""Edges of UTF-8, and what is none."""


@both_engines
@settings(max_examples=examples(400))
@given(st.lists(PIECES, max_size=6).map(b"".join) | st.binary(max_size=9))
def test_bytes_are_text_if_python_can_decode_them(engine_name: str, value: bytes) -> None:
    """Others are written as hexadecimal digits."""
    found = line(
        write_records([NaiveRecord(0, 0, None, value)]), Form.JSON, engine_name=engine_name
    )
    try:
        value.decode()
    except UnicodeDecodeError:
        assert found.endswith(b"d0x" + value.hex().encode() + b"ze\n")
    else:
        assert found.endswith(b'"e\n')
