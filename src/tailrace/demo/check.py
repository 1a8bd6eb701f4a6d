"""The truth, by pandas straight from the CSV files, and the comparison with it.

Shares no code with `pipeline`: a mistake there cannot hide here.

Invariant: counts are compared exactly, means to a relative 1e-9, which leaves room for the order
of additions and for nothing else.
"""

import math
from pathlib import Path

import pandas as pd

from tailrace.demo.flights import Tables
from tailrace.errors import FatalError

TOLERANCE = 1e-9
"""Relative difference that two means may have."""

KEYS = ["carrier", "hour"]


class CheckError(FatalError):
    """The demo's result is not what pandas computes: a bug of ours, never of the data."""

    def __init__(self, differences: list[str]) -> None:
        self.differences = differences
        """A sentence for each difference."""
        shown = "; ".join(differences[:5])
        super().__init__(
            f"the result differs from pandas in {len(differences)} places: {shown}. "
            "This is a bug in Tailrace; please report it"
        )


def truth(tables: Tables) -> pd.DataFrame:
    """Delays by carrier and hour as pandas computes them, in the order of `KEYS`."""
    weather = tables.weather.sort_values("time_hour", kind="stable")
    weather = weather.drop_duplicates(["origin", "time_hour"], keep="last")
    weather = weather[["origin", "time_hour", "temp", "wind_speed"]]
    planes = tables.planes.drop_duplicates("tailnum", keep="last")
    planes = planes[["tailnum", "model", "seats"]]
    joined = tables.flights.merge(planes, on="tailnum", how="left").merge(
        weather, on=["origin", "time_hour"], how="left"
    )
    result: pd.DataFrame = (
        joined.groupby(KEYS)
        .agg(
            flights=("flight", "size"),
            departed=("dep_time", "count"),
            with_plane=("model", "count"),
            with_weather=("temp", "count"),
            mean_dep_delay=("dep_delay", "mean"),
            mean_arr_delay=("arr_delay", "mean"),
            mean_wind_speed=("wind_speed", "mean"),
            mean_seats=("seats", "mean"),
        )
        .reset_index()
    )
    return result


def require_equal(found: pd.DataFrame, *, expected: pd.DataFrame) -> int:
    """The number of values that were compared and found equal.

    Raises:
        CheckError: a row is missing or extra, a count differs, or a mean by more than 1e-9.
    """
    found_rows = found.set_index(KEYS).to_dict("index")
    expected_rows = expected.set_index(KEYS).to_dict("index")
    differences = [
        f"{carrier} at {hour}h is {'extra' if (carrier, hour) in found_rows else 'missing'}"
        for carrier, hour in sorted(found_rows.keys() ^ expected_rows.keys())
    ]
    if len(found) != len(found_rows):
        differences.append(f"{len(found) - len(found_rows)} rows are doubled")
    compared = 0
    for key in sorted(found_rows.keys() & expected_rows.keys()):
        for name, value in expected_rows[key].items():
            compared += 1
            if not _is_equal(found_rows[key][name], value):
                differences.append(
                    f"{name} of {key[0]} at {key[1]}h is {found_rows[key][name]}, "
                    f"pandas has {value}"
                )
    if differences:
        raise CheckError(differences)
    return compared


def _is_equal(found: float, expected: float) -> bool:
    """Counts exactly, means within `TOLERANCE`; no value only equals no value."""
    if isinstance(expected, int):
        return found == expected
    if pd.isna(found) or pd.isna(expected):
        return bool(pd.isna(found) and pd.isna(expected))
    return math.isclose(found, expected, rel_tol=TOLERANCE)


def parquet_rows(directory: Path) -> int:
    """Rows in the Parquet files below `directory`, counted from their footers without Spark."""
    from pyarrow import dataset

    rows: int = dataset.dataset(directory, format="parquet", partitioning="hive").count_rows()
    return rows


def require_rows(directory: Path, *, expected: int) -> None:
    """Raises CheckError unless the Parquet below `directory` holds `expected` rows."""
    rows = parquet_rows(directory)
    if rows != expected:
        raise CheckError([f"{directory} holds {rows} rows, {expected} flights were produced"])
