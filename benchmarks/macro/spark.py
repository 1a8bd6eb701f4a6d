"""Topics into Spark, from a directory and from a broker, against the same rows as Parquet.

The Parquet was written by Spark from the topic, with all its columns and Spark's own settings. The
values are random, so that neither dictionaries nor compression make the peer's work smaller.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.macro.brokers import serving
from benchmarks.macro.load import (
    build_batch,
    connected,
    produce_frame,
    require_appended,
    send_all,
)
from benchmarks.measure import Bench, Figure, interleave, seconds_of
from tailrace.client import BrokerAddress
from tailrace.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Places = Mapping[str, Callable[[str | None], DataFrame]]
    """How to read the topic from each, given the schema to ask for, if any."""

TOPIC = "rows"
PARTITIONS = 4
ROWS = 3_000_000
BATCH_BYTES = 1024 * 1024
DISTINCT_BATCHES = 8
"""80,000 different values, which is more than a dictionary page of Parquet takes."""

QUERIES = {
    "count": (None, "count(*)"),
    "sum(length(value))": (None, "sum(length(value))"),
    "one column, sum(offset)": ("offset BIGINT", "sum(offset)"),
}
"""Schema given to the source, if any, and what is computed."""

PEER = "Parquet"


def measure_spark(bench: Bench) -> list[Figure]:
    """Million rows per second, for three queries from two places."""
    data, parquet = bench.directory / "data", bench.directory / "parquet"
    with serving(data) as broker:
        broker.create_topic(TOPIC, partition_count=PARTITIONS)
        rows = fill(bench, broker.address)
        bench.say(f"spark: {rows} rows are in a broker")
        queries = list(QUERIES)[:1] if bench.is_quick else QUERIES
        bench.say("spark: starting a session, writing Parquet")
        spark = session(name="benchmark", master="local[2]")
        try:
            places: Places = {
                "directory": partial(from_directory, spark, data),
                PEER: partial(_from_parquet, spark, parquet),
                "broker": partial(from_broker, spark, str(broker.address)),
            }
            places["directory"](None).write.parquet(str(parquet))
            return [
                figure
                for query in queries
                for figure in _measure_query(bench, query, places=places, rows=rows)
            ]
        finally:
            spark.stop()


def _measure_query(bench: Bench, query: str, *, places: "Places", rows: int) -> list[Figure]:
    seconds = ask_all(bench, query, places=places, rows=rows)
    speeds = {name: tuple(rows / 1e6 / each for each in seconds[name]) for name in places}
    return [
        Figure(
            name=f"spark, {query}, from a {name}",
            unit="million rows/s",
            ours=speeds[name],
            peer_name=PEER,
            peer=speeds[PEER],
        )
        for name in places
        if name != PEER
    ]


def ask_all(
    bench: Bench, query: str, *, places: "Places", rows: int
) -> Mapping[str, Sequence[float]]:
    """Seconds of a query for each place, in turn; all of them must give the same answer."""
    bench.say(f"spark: {query}")
    schema, expression = QUERIES[query]
    answers: list[object] = []

    def ask(name: str) -> None:
        answers.append(places[name](schema).selectExpr(expression).first()[0])

    # The first run of a query compiles its code in the JVM and starts the Python workers.
    for name in places:
        ask(name)
    found = interleave(bench, {name: partial(seconds_of, partial(ask, name)) for name in places})
    assert len(set(answers)) == 1, answers
    assert query != "count" or answers[0] == rows, answers
    return found


def fill(bench: Bench, address: BrokerAddress) -> int:
    """The same batches into each partition of a new topic, all of them different in a row.

    Returns the number of rows.
    """
    batches = [build_batch(BATCH_BYTES, seed=seed) for seed in range(DISTINCT_BATCHES)]
    batch_count = bench.scaled(ROWS, quick=40_000) // (PARTITIONS * batches[0].record_count)
    with connected(address) as channel:
        for partition in range(PARTITIONS):
            frames = [produce_frame(TOPIC, batch, partition=partition) for batch in batches]
            answer = b""
            for number in range(batch_count):
                answer = send_all(channel, frames[number % len(frames)], 1)
            require_appended(answer, batches[0], batch_count)
    return batch_count * batches[0].record_count * PARTITIONS


def from_directory(spark: "SparkSession", data: Path, schema: str | None) -> "DataFrame":
    """The topic by our source, from the files."""
    reader = spark.read.format("tailrace").option("path", str(data)).option("subscribe", TOPIC)
    return reader.schema(schema).load() if schema else reader.load()


def from_broker(spark: "SparkSession", bootstrap_servers: str, schema: str | None) -> "DataFrame":
    """The topic by our source, from any broker."""
    reader = (
        spark.read.format("tailrace")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", TOPIC)
    )
    return reader.schema(schema).load() if schema else reader.load()


def _from_parquet(spark: "SparkSession", path: Path, schema: str | None) -> "DataFrame":
    """Spark itself finds out which columns a query needs."""
    del schema
    return spark.read.parquet(str(path))
