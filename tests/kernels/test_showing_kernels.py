"""The kernel that shows records: plain and compiled code agree on every byte, whatever the input.

That the lines are right is the claim of `tests/unit/offline/test_show.py`.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.kernels import RecordFault
from tailrace.kernels.showing import (
    PRINTABLE_CODES,
    BoundIndex,
    Cursor,
    Form,
    StopReason,
    show_records,
)
from tests.examples import examples
from tests.kernels.strategies import INT64, SMALL, damaged_payloads

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
    for engine in (show_records.run_plain, show_records):
        limits, cursors = kernels.int64s(len(BoundIndex)), kernels.int64s(len(Cursor))
        ends = kernels.int64s(len(ENDS))
        for place, number in enumerate(bounds):
            limits[place] = number
        for place, number in enumerate(ENDS):
            ends[place] = number
        cursors[Cursor.LEFT] = left
        memory = bytearray([CANARY]) * (size + 64)
        halt = engine(
            data, count, *base, limits, b"k", form, LITERALS, ends, ESCAPES,
            b"\x01" * PRINTABLE_CODES, cursors, memoryview(memory)[:size],
        )  # fmt: skip
        assert memory[size:] == bytearray([CANARY]) * 64
        outcomes.append((halt, cursors.tolist(), bytes(memory[: cursors[Cursor.END]])))
    assert outcomes[0] == outcomes[1]
    halt = outcomes[0][0]
    assert StopReason(halt) if halt > 0 else RecordFault(-halt) if halt < 0 else True
