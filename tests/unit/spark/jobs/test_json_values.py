"""JSON values to typed columns: what fits, what does not, and that no row moves."""

import datetime as dt
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import FatalError
from tailrace.spark.jobs.json_values import infer_type, parse_values

KIND = pa.struct(
    [
        ("a", pa.int64()),
        ("day", pa.date32()),
        ("s", pa.struct([("x", pa.list_(pa.float64()))])),
    ]
)

GOOD = [b'{"a":7}', b"{}", b' {"a":\n7, "other": [1]}\t', b"null"]
BAD = [
    b"", b" ", b"x", b"{", b"}", b'{"a":"7"}', b'{"a":7}{"a":7}', b'{"a":7}\n{"a":7}', b"[]", b"7",
    b'{"a":7}}\n{"json":{"a":7}', b'{"a":"\xff"}', b'{"a":7.5}', b'"', b'{"a":7,"a":8}', b"{} //",
    b'{"a":7},"b":2', b'{"a":7},{"a":8}', b'{"a":7},null',
]  # fmt: skip


def test_fields_become_columns_of_their_type() -> None:
    """Each field has its type, also dates, lists in structs, and missing fields."""
    values = [b'{"a":1,"day":"2024-02-29"}', None, b'{"s":{"x":[1,2.5]}}']
    rows, bad = parse_values(pa.array(values, pa.binary()), KIND)
    assert rows.type == KIND
    assert rows.to_pylist() == [
        {"a": 1, "day": dt.date(2024, 2, 29), "s": None},
        None,
        {"a": None, "day": None, "s": {"x": [1.0, 2.5]}},
    ]
    assert bad == []


@pytest.mark.parametrize("value", BAD)
def test_what_is_not_one_object_of_the_type_is_told(value: bytes) -> None:
    """A null row and a sentence; its neighbours are not touched."""
    rows, bad = parse_values(pa.array([b'{"a":1}', value, b'{"a":2}']), KIND)
    assert [row and row["a"] for row in rows.to_pylist()] == [1, None, 2]
    assert [each.row for each in bad] == [1]
    assert bad[0].reason


@given(st.lists(st.sampled_from([*GOOD, *BAD, None]), max_size=6), st.integers(0, 3))
def test_every_row_is_judged_by_itself(values: list[bytes | None], start: int) -> None:
    """A chunk gives for each value what the value gives alone, also when it is a slice."""
    whole = pa.array(values, pa.binary()).slice(start)
    rows, bad = parse_values(whole, KIND)
    assert len(rows) == len(whole)
    alone = [parse_values(whole.slice(n, 1), KIND) for n in range(len(whole))]
    assert rows.to_pylist() == [row.to_pylist()[0] for row, _ in alone]
    assert [each.row for each in bad] == [n for n, (_, found) in enumerate(alone) if found]


def test_inference_takes_what_is_json_and_is_careful() -> None:
    """Times and nulls become strings, what is no object is passed over."""
    values = [b'{"a":1,"t":"2024-01-02T03:04:05","n":null,"l":[]}', b"x", b"5", b'{"z":\ntrue}']
    kind = infer_type(values)
    assert str(kind) == "struct<a: int64, t: string, n: string, l: list<item: string>, z: bool>"
    assert infer_type([b"x", b"5"]) is None
    with pytest.raises(FatalError, match=r"no common type.*give a schema"):
        infer_type([b'{"a":1}', b'{"a":"x"}'])


TIMES = pa.struct(
    [
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("s", pa.struct([("days", pa.list_(pa.date32()))])),
    ]
)


def test_times_are_taken_where_their_column_holds_all_of_them() -> None:
    """A time without a zone is UTC, a date begins at midnight, and nulls may be anywhere."""
    values = [
        b'{"day":"0001-01-01","at":"2024-02-29T12:30","local":"2024-02-29 12:30:00.000001"}',
        b'{"at":"2024-02-29T12:30:00+02:00","local":"2024-02-29","s":null}',
        b'{"at":"2024-02-29","s":{"days":[null,"9999-12-31"]}}',
    ]
    rows, bad = parse_values(pa.array(values), TIMES)
    assert bad == []
    assert rows.type == TIMES
    assert rows.field("day").to_pylist() == [dt.date(1, 1, 1), None, None]
    assert rows.field("at").to_pylist() == [
        dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC),
        dt.datetime(2024, 2, 29, 10, 30, tzinfo=dt.UTC),
        dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
    ]
    assert rows.field("local").to_pylist() == [
        dt.datetime(2024, 2, 29, 12, 30, 0, 1),  # noqa: DTZ001 - the column has no zone
        dt.datetime(2024, 2, 29),  # noqa: DTZ001
        None,
    ]
    assert rows.field("s").to_pylist() == [None, None, {"days": [None, dt.date(9999, 12, 31)]}]


@pytest.mark.parametrize(
    "value",
    [
        b'{"day":"2020-01-01T12:00:00"}', b'{"day":"2020-01-01 00:00:00"}',
        b'{"day":"2020-01-01T23:00:00-05:00"}', b'{"day":"2020-1-1"}', b'{"day":"2023-02-29"}',
        b'{"day":18262}', b'{"day":""}', b'{"s":{"days":["2020-01-01T12:00:00"]}}',
        b'{"local":"2020-01-01T12:00:00+02:00"}', b'{"local":"2020-01-01T12:00:00Z"}',
        b'{"at":"2020-01-01T12:00:00.1234567Z"}', b'{"at":1577836800}',
    ],
)  # fmt: skip
def test_a_time_that_would_lose_a_part_is_told(value: bytes) -> None:
    """A time of day in a date, a zone where none is kept, more digits than microseconds."""
    rows, bad = parse_values(pa.array([b'{"day":"2020-01-01"}', value, b"{}"]), TIMES)
    assert [row is None for row in rows.to_pylist()] == [False, True, False]
    assert [each.row for each in bad] == [1]


def test_numbers_that_python_writes_are_floating_point_numbers_alone() -> None:
    """`NaN` and the infinities are taken as by `from_json`, and told in columns of other types."""
    kind = pa.struct([("x", pa.float64()), ("n", pa.int64()), ("d", pa.decimal128(10, 2))])
    numbers = [float("inf"), float("-inf"), float("nan")]
    written = [json.dumps({"x": each}).encode() for each in numbers]
    rows, bad = parse_values(pa.array(written), kind)
    assert bad == []
    assert repr([row["x"] for row in rows.to_pylist()]) == "[inf, -inf, nan]"
    others = [json.dumps({name: each}).encode() for name in ("n", "d") for each in numbers]
    rows, bad = parse_values(pa.array(others), kind)
    assert rows.null_count == len(bad) == len(others)
