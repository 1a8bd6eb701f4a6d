"""The data as records."""

import json
import zlib
from datetime import UTC, datetime

import pandas as pd

from tailrace.demo.flights import Tables, TopicRecords, json_rows, topic_records


def by_topic(tables: Tables) -> dict[str, TopicRecords]:
    """The records of each topic by its name."""
    return {records.topic: records for records in topic_records(tables)}


def test_the_package_has_the_year(all_tables: Tables) -> None:
    """The tables hold the numbers of rows that the demo promises."""
    sizes = [len(all_tables.flights), len(all_tables.weather), len(all_tables.planes)]
    assert sizes == [336_776, 26_115, 3_322]


def test_rows_survive_json_to_the_last_bit(tables: Tables) -> None:
    """Each JSON value equals its CSV row, with null for what is missing."""
    for table in (tables.flights, tables.weather, tables.planes):
        for row, value in zip(table.to_dict("records"), json_rows(table), strict=True):
            expected = {name: None if pd.isna(cell) else cell for name, cell in row.items()}
            assert json.loads(value) == expected


def test_whole_numbers_have_no_fraction() -> None:
    """A column of whole numbers with gaps is written as integers and nulls."""
    table = pd.DataFrame({"minutes": [5.0, None, -3.0], "inches": [0.5, None, 2.0]})
    assert json_rows(table) == [
        b'{"minutes":5,"inches":0.5}',
        b'{"minutes":null,"inches":null}',
        b'{"minutes":-3,"inches":2.0}',
    ]


def test_texts_and_names_are_escaped() -> None:
    """Quotes, backslashes, percent signs and other alphabets come back from JSON unchanged."""
    row = {'a "%s" name': 'C:\\ "é" %d', "missing": None}
    table = pd.DataFrame([row, {'a "%s" name': "x", "missing": "y"}])
    assert json.loads(json_rows(table)[0]) == row


def test_the_timestamp_is_the_scheduled_departure(tables: Tables) -> None:
    """In New York's time, a record's timestamp reads as its date and `sched_dep_time`."""
    flights = by_topic(tables)["flights"]
    for value, timestamp_ms in zip(flights.values, flights.timestamps_ms, strict=True):
        row = json.loads(value)
        local = pd.Timestamp(timestamp_ms, unit="ms", tz="America/New_York")
        assert (local.month, local.day) == (row["month"], row["day"])
        assert local.hour * 100 + local.minute == row["sched_dep_time"]


def test_events_are_in_the_order_of_their_time(tables: Tables) -> None:
    """Timestamps of flights and weather never go back."""
    for topic in ("flights", "weather"):
        timestamps = by_topic(tables)[topic].timestamps_ms
        assert timestamps == sorted(timestamps)


def test_planes_carry_the_new_year(tables: Tables) -> None:
    """The records of planes have midnight of 1 January 2013 in New York."""
    expected = int(datetime(2013, 1, 1, 5, tzinfo=UTC).timestamp() * 1000)
    assert set(by_topic(tables)["planes"].timestamps_ms) == {expected}


def test_a_key_has_one_partition(tables: Tables) -> None:
    """A key goes to its CRC-32 modulo the count; records without one are dealt out in turn."""
    flights = by_topic(tables)["flights"]
    pairs = zip(flights.keys, flights.partitions(), strict=True)
    for number, (key, partition) in enumerate(pairs):
        assert partition == (number if key is None else zlib.crc32(key)) % 4


def test_a_flight_without_tail_number_has_no_key(tables: Tables) -> None:
    """Exactly the flights whose tail number is missing have a null key."""
    flights = by_topic(tables)["flights"]
    missing = int(tables.flights["tailnum"].isna().sum())
    assert missing > 0
    assert flights.keys.count(None) == missing


def test_old_events_are_kept(tables: Tables) -> None:
    """Topics of events switch retention off, and the planes are compacted."""
    settings = {name: records.settings for name, records in by_topic(tables).items()}
    assert settings["flights"]["retention.ms"] == "-1"
    assert settings["weather"]["retention.ms"] == "-1"
    assert settings["planes"] == {"cleanup.policy": "compact"}
