"""The Spark side: records to rows, flights joined with planes and weather, delays by hour.

Functions from DataFrame to DataFrame; nothing runs until `collect`.

What is *not* here: where the records come from, and where the rows go. Any DataFrame with the
columns of the source `tailrace` will do.

Invariant: the joins neither drop nor multiply flights. They are left joins, and the right side
has one row per key: the last record of the key by offset.
"""

import pandas as pd
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

FLIGHT = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, "
    "arr_time INT, sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, "
    "tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT, hour INT, "
    "minute INT, time_hour TIMESTAMP"
)
"""Value of a record of `flights`; delays and `air_time` in minutes, `distance` in miles."""

READING = (
    "origin STRING, temp DOUBLE, dewp DOUBLE, humid DOUBLE, wind_dir INT, wind_speed DOUBLE, "
    "wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, time_hour TIMESTAMP"
)
"""Value of a record of `weather`, without its local date: °F, mph, inches, mbar, miles."""

PLANE = (
    "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, "
    "seats INT, speed INT, engine STRING"
)
"""Value of a record of `planes`; `year` is that of manufacture."""

SCHEMAS = {"flights": FLIGHT, "weather": READING, "planes": PLANE}
"""Schema of the values by topic."""


def counted(records: DataFrame, *, observation: Observation) -> DataFrame:
    """The same records; when a query has read them, `observation` has `records` and `bytes`."""
    # Counted on the way: `count()` would read the topics once more.
    size = F.length("value") + F.coalesce(F.length("key"), F.lit(0))
    return records.observe(observation, F.count("*").alias("records"), F.sum(size).alias("bytes"))


def parse(records: DataFrame, *, schema: str) -> DataFrame:
    """The rows in the values of records, each with its record's timestamp, partition and offset.

    A value that is not JSON fails the query when it runs; it does not become nulls.
    """
    # By default Spark makes nulls of what it cannot parse, and the means would leave them out.
    row = F.from_json(F.col("value").cast("string"), schema, {"mode": "FAILFAST"})
    return records.select(
        row.alias("row"),
        F.col("timestamp").alias("record_timestamp"),
        F.col("partition").alias("record_partition"),
        F.col("offset").alias("record_offset"),
    ).select("row.*", "record_timestamp", "record_partition", "record_offset")


def latest(rows: DataFrame, *, keys: list[str]) -> DataFrame:
    """One row per value of `keys`, from the record with the highest offset.

    Right because records of one key are in one partition, where offsets are their order.
    """
    # The flights have columns of these names too, and a join would make them ambiguous.
    columns = [name for name in rows.columns if not name.startswith("record_")]
    last = F.max_by(F.struct(*columns), "record_offset").alias("last")
    return rows.groupBy(*keys).agg(last).select("last.*")


def join(flights: DataFrame, *, planes: DataFrame, weather: DataFrame) -> DataFrame:
    """Every flight with its plane (columns `plane_…`) and the weather at its scheduled hour."""
    of_planes = latest(planes, keys=["tailnum"])
    # `year` is also a column of the flights, where it is that of the departure.
    of_planes = of_planes.select(
        "tailnum",
        *(F.col(name).alias(f"plane_{name}") for name in of_planes.columns if name != "tailnum"),
    )
    of_weather = latest(weather, keys=["origin", "time_hour"])
    # Spark cannot know how small the right sides are, and would sort all flights instead.
    return flights.join(F.broadcast(of_planes), on="tailnum", how="left").join(
        F.broadcast(of_weather), on=["origin", "time_hour"], how="left"
    )


def delays(joined: DataFrame) -> DataFrame:
    """Delays by carrier and hour of the scheduled departure, in New York's time.

    Delays are means in minutes over the flights that have one: a cancelled flight has neither,
    a diverted one has no arrival delay.
    """
    return (
        joined.groupBy("carrier", "hour")
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_time").alias("departed"),
            F.count("plane_model").alias("with_plane"),
            F.count("temp").alias("with_weather"),
            F.avg("dep_delay").alias("mean_dep_delay"),
            F.avg("arr_delay").alias("mean_arr_delay"),
            F.avg("wind_speed").alias("mean_wind_speed"),
            F.avg("plane_seats").alias("mean_seats"),
        )
        .orderBy("carrier", "hour")
    )


def collect(small: DataFrame) -> pd.DataFrame:
    """The rows of a small DataFrame in pandas, NaN for null.

    Not `toPandas`, which warns about every pandas newer than itself.
    """
    return pd.DataFrame([row.asDict() for row in small.collect()], columns=small.columns)
