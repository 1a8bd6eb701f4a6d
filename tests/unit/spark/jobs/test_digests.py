"""A digest of columns depends on the rows, and on nothing else."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.jobs.digests import Digest

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


@given(st.lists(ROWS, min_size=1, max_size=6), st.data())
def test_cuts_do_not_matter(rows: list[dict[str, object]], data: st.DataObject) -> None:
    """Slices, chunks and a way through Parquet give the digest of the whole."""
    table = pa.Table.from_pylist(rows, SCHEMA)
    at = data.draw(st.integers(0, len(rows)))
    assert digest(table.slice(0, at), table.slice(at)) == digest(table)
    assert digest(table.take(list(range(len(rows))))) == digest(table)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=2)
    assert digest(pq.read_table(pa.BufferReader(sink.getvalue()))) == digest(table)


@given(st.lists(ROWS, min_size=1, max_size=3), st.lists(ROWS, min_size=1, max_size=3))
def test_other_rows_have_another(
    left: list[dict[str, object]], right: list[dict[str, object]]
) -> None:
    """Equal only if every value of every row is, null and empty being different."""
    tables = [pa.Table.from_pylist(rows, SCHEMA) for rows in (left, right)]
    assert (digest(tables[0]) == digest(tables[1])) == (left == right)


@pytest.mark.parametrize("change", [(b"ab", b"c"), (b"a", b"bc"), (None, b"abc"), (b"", b"abc")])
def test_bytes_do_not_move_between_rows(change: tuple[bytes | None, bytes]) -> None:
    """The lengths count too."""
    table = pa.table({"value": pa.array([b"abc", b""], pa.binary())})
    assert digest(table) != digest(pa.table({"value": pa.array(change, pa.binary())}))
