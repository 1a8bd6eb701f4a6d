"""The truth, by pandas straight from the CSV files, and the comparison with it.

Shares no code with `pipeline`: a mistake there cannot hide here.

Invariant: values are compared to a relative 1e-9, which leaves room for the order of additions in
a mean and for nothing else; counts below 10^9 have to be equal.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from pyarrow import dataset

from tailrace.demo.flights import Tables
from tailrace.errors import FatalError

TOLERANCE = 1e-9
"""Relative difference that two values may have."""

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
    # The last row of a key counts, as the last record of a key does in the topic.
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
        CheckError: a row is missing, extra or doubled, or a value differs by more than 1e-9.
    """
    found, expected = found.set_index(KEYS), expected.set_index(KEYS)
    rows = {
        "missing": expected.index.difference(found.index),
        "extra": found.index.difference(expected.index),
        "doubled": found.index[found.index.duplicated()],
    }
    differences = [
        f"{carrier} at {hour}h is {what}" for what, keys in rows.items() for carrier, hour in keys
    ]
    if not differences:
        found = found.loc[expected.index, expected.columns]
        # A mean may be missing on both sides, as of seats where no plane of the hour is known.
        is_equal = np.isclose(found, expected, rtol=TOLERANCE, atol=0, equal_nan=True)
        for row, column in np.argwhere(~is_equal):
            carrier, hour = expected.index[row]
            differences.append(
                f"{expected.columns[column]} of {carrier} at {hour}h is {found.iat[row, column]}, "
                f"pandas has {expected.iat[row, column]}"
            )
    if differences:
        raise CheckError(differences)
    return int(expected.size)


def require_rows(directory: Path, *, expected: int) -> None:
    """Raises CheckError unless the footers of the Parquet files tell `expected` rows."""
    rows = dataset.dataset(directory, format="parquet", partitioning="hive").count_rows()
    if rows != expected:
        raise CheckError([f"{directory} has {rows} rows, but {expected} flights were produced"])
