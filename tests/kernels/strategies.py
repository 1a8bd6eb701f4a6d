"""Payloads for kernels: sound ones, and sound ones with a few bytes changed."""

from hypothesis import strategies as st

from tests.naive import NaiveRecord, write_records

INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-3, 300)
CONTENT = st.none() | st.binary(max_size=12) | st.binary(min_size=60, max_size=140)
HEADERS = st.lists(st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)


@st.composite
def naive_records(draw: st.DrawFn, offset_delta_min: int = 0) -> list[NaiveRecord]:
    """Up to five records, mostly with consecutive offsets."""
    count = draw(st.integers(0, 5))
    any_deltas = st.lists(st.integers(offset_delta_min, 300), min_size=count, max_size=count)
    deltas = draw(st.just(range(count)) | any_deltas)
    return [
        NaiveRecord(draw(SMALL | INT64), delta, draw(CONTENT), draw(CONTENT), tuple(draw(HEADERS)))
        for delta in deltas
    ]


@st.composite
def damaged_payloads(draw: st.DrawFn) -> tuple[bytes, int]:
    """A payload after up to three edits, and a count that is near the truth.

    An offset delta may be negative, too.
    """
    records = draw(naive_records(-3))
    payload = bytearray(write_records(records))
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, len(payload)))
        size = draw(st.sampled_from((0, 1, 1, 2)))
        payload[position : position + size] = draw(
            st.sampled_from(
                (b"", b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80", b"\xff", b"\xff" * 5)
            )
            | st.binary(max_size=3)
        )
    return bytes(payload), len(records) + draw(st.sampled_from((0, 0, 0, 0, 1, -1, 2**31 - 1)))
