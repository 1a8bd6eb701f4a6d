"""The comparison with pandas finds what it has to find."""

import math
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tailrace.demo.check import CheckError, require_equal, require_rows, truth
from tailrace.demo.flights import Tables


def test_the_truth_has_every_flight_once(tables: Tables) -> None:
    """The joins of the truth neither drop nor multiply flights."""
    assert truth(tables)["flights"].sum() == len(tables.flights)


def test_equal_tables_pass(tables: Tables) -> None:
    """The order of the rows and the last bits of a mean do not matter."""
    expected = truth(tables)
    found = expected.sample(frac=1, random_state=1)
    found["mean_dep_delay"] *= 1 + 1e-12
    assert require_equal(found, expected=expected) == expected.size - 2 * len(expected)


def test_a_wrong_count_is_found(tables: Tables) -> None:
    """One flight too many in one place is named with both numbers."""
    expected = truth(tables)
    found = expected.copy()
    found.loc[0, "flights"] += 1
    with pytest.raises(CheckError, match=r"flights of .* at .*, pandas has"):
        require_equal(found, expected=expected)


@pytest.mark.parametrize("factor", [1 + 1e-8, math.nan])
def test_a_wrong_mean_is_found(tables: Tables, factor: float) -> None:
    """A mean that is off by a relative 1e-8, or missing, is a difference."""
    expected = truth(tables)
    found = expected.copy()
    place = int(found["mean_dep_delay"].abs().idxmax())
    found.loc[place, "mean_dep_delay"] *= factor
    with pytest.raises(CheckError) as caught:
        require_equal(found, expected=expected)
    assert len(caught.value.differences) == 1


def test_missing_extra_and_doubled_rows_are_found(tables: Tables) -> None:
    """Each row that only one side has is a difference, and so is one that comes twice."""
    expected = truth(tables)
    with pytest.raises(CheckError, match="is missing"):
        require_equal(expected.iloc[1:], expected=expected)
    with pytest.raises(CheckError, match="is extra"):
        require_equal(expected, expected=expected.iloc[1:])


def test_rows_of_the_lake_are_counted(tmp_path: Path) -> None:
    """Another number of rows in the Parquet files is a difference."""
    for month, count in ((1, 3), (2, 4)):
        directory = tmp_path / f"month={month}"
        directory.mkdir()
        parquet.write_table(pa.table({"day": list(range(count))}), directory / "part.parquet")
    require_rows(tmp_path, expected=7)
    with pytest.raises(CheckError, match="has 7 rows, but 8 flights"):
        require_rows(tmp_path, expected=8)
