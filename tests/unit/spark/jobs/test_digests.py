"""A digest of columns depends on the rows, and on nothing else."""

import struct
from hashlib import sha256
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.digests import BLOCK_ROWS, Digest

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("flag", pa.bool_()),
        ("time", pa.timestamp("ms", tz="UTC")),
        ("headers", HEADERS),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "offset": st.none() | st.integers(0, 2),
        "value": st.none() | st.binary(max_size=2),
        "flag": st.none() | st.booleans(),
        "time": st.none() | st.integers(-1, 1),
        "headers": st.none()
        | st.lists(
            st.fixed_dictionaries(
                {"key": st.sampled_from("ab"), "value": st.none() | st.binary(max_size=1)}
            ),
            max_size=2,
        ),
    }
)


def digest(*tables: pa.Table) -> str:
    """The digest of tables one behind the other."""
    taken = Digest()
    for table in tables:
        taken.update(table)
    return taken.hexdigest()


@given(st.lists(ROWS, min_size=1, max_size=6))
def test_large_types_have_the_digest_of_small_ones(rows: list[dict[str, object]]) -> None:
    """Spark hands over either, by a setting that may change between two runs of a batch."""
    table = pa.Table.from_pylist(rows, SCHEMA).append_column(
        "text", pa.array([str(row["offset"]) for row in rows])
    )
    headers = pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    large = table.cast(
        pa.schema(
            table.schema.set(1, pa.field("value", pa.large_binary()))
            .set(4, pa.field("headers", headers))
            .set(5, pa.field("text", pa.large_string()))
        )
    )
    assert digest(large) == digest(table)
    assert digest(large.slice(0, 1), large.slice(1)) == digest(table)


@given(st.lists(ROWS, min_size=1, max_size=6), st.data())
def test_slices_and_chunks_do_not_change_a_digest(
    rows: list[dict[str, object]], data: st.DataObject
) -> None:
    """Slices, chunks and a round trip through Parquet have the digest of the whole."""
    table = pa.Table.from_pylist(rows, SCHEMA)
    at = data.draw(st.integers(0, len(rows)))
    assert digest(table.slice(0, at), table.slice(at)) == digest(table)
    assert digest(table.take(list(range(len(rows))))) == digest(table)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=2)
    assert digest(pq.read_table(pa.BufferReader(sink.getvalue()))) == digest(table)


@given(st.lists(ROWS, min_size=1, max_size=3), st.lists(ROWS, min_size=1, max_size=3))
def test_different_rows_have_different_digests(
    left: list[dict[str, object]], right: list[dict[str, object]]
) -> None:
    """Digests are equal only if all values of all rows are; null and empty differ."""
    tables = [pa.Table.from_pylist(rows, SCHEMA) for rows in (left, right)]
    assert (digest(tables[0]) == digest(tables[1])) == (left == right)


def test_it_is_what_the_document_says() -> None:
    """docs/formats/archive.md is enough to make the digest with other tools."""
    table = pa.table(
        {
            "n": pa.array([5] * BLOCK_ROWS + [None], pa.int64()),
            "b": pa.array([b"xyz", None] * (BLOCK_ROWS // 2) + [b""], pa.binary()),
        }
    )
    lengths = struct.pack("<2i", 3, -1) * (BLOCK_ROWS // 2)
    streams = [
        (b"b", b"xyz" * (BLOCK_ROWS // 2)),
        (b"b.length", b"\0" + lengths + b"\0" + struct.pack("<i", 0)),
        (b"n", b"\1" + struct.pack("<q", 5) + b"\0" + struct.pack("<q", 0)),
        (b"n.valid", b"\1\1" + b"\0\0"),
    ]
    whole = b"".join(name + b"\0" + sha256(stream).digest() for name, stream in streams)
    assert digest(table) == sha256(whole).hexdigest()


LONG = pa.table(
    {
        "same": pa.repeat(7, 3 * BLOCK_ROWS + 5),
        "rising": pa.array(range(3 * BLOCK_ROWS + 5), pa.int32()),
        "key": pa.nulls(3 * BLOCK_ROWS + 5, pa.binary()),
        "zero": pa.repeat(0.0, 3 * BLOCK_ROWS + 5),
    }
)
"""Several blocks of columns that never change, and of one that does."""


@given(st.lists(st.integers(0, len(LONG)), max_size=8).map(sorted))
def test_cuts_within_blocks_do_not_matter(cuts: list[int]) -> None:
    """Wherever a table of several blocks is cut."""
    bounds = pairwise([0, *cuts, len(LONG)])
    assert digest(*(LONG.slice(first, limit - first) for first, limit in bounds)) == digest(LONG)


@pytest.mark.parametrize("row", [0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, len(LONG) - 1])
@pytest.mark.parametrize(
    ("column", "value"),
    [("same", 8), ("same", None), ("rising", -1), ("key", b""), ("zero", -0.0)],
)
def test_one_value_among_many_matters(row: int, column: str, value: object) -> None:
    """A change shows in the first and last row of a block, and behind the last whole block."""
    there = LONG.column(column)
    new = pa.array([value], there.type)
    changed = pa.chunked_array([*there.slice(0, row).chunks, new, *there.slice(row + 1).chunks])
    index = LONG.schema.get_field_index(column)
    assert digest(LONG.set_column(index, column, changed)) != digest(LONG)


@pytest.mark.parametrize("rows", [0, 1, BLOCK_ROWS, 2 * BLOCK_ROWS, 3 * BLOCK_ROWS + 4])
def test_the_number_of_rows_matters(rows: int) -> None:
    """The digest changes with the number of rows, even if all rows are equal."""
    same = LONG.drop_columns("rising")
    assert digest(same.slice(0, rows)) != digest(same.slice(0, rows + 1))


@pytest.mark.parametrize("change", [(b"ab", b"c"), (b"a", b"bc"), (None, b"abc"), (b"", b"abc")])
def test_bytes_do_not_move_between_rows(change: tuple[bytes | None, bytes]) -> None:
    """The lengths count too."""
    table = pa.table({"value": pa.array([b"abc", b""], pa.binary())})
    assert digest(table) != digest(pa.table({"value": pa.array(change, pa.binary())}))
