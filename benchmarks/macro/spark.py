"""Topics into Spark, from a directory and from a broker, against the same rows as Parquet.

The Parquet was written by Spark from the topic, with all its columns and Spark's own settings. The
values are random, so that neither dictionaries nor compression make the peer's work smaller.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.macro.brokers import BrokerProcess, serving
from benchmarks.macro.load import (
    Batch,
    build_batch,
    connected,
    produce_frame,
    require_appended,
    send_all,
)
from benchmarks.measure import Bench, Figure, interleave, seconds_of
from tailrace.spark import session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

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
    batches = [build_batch(BATCH_BYTES, seed=seed) for seed in range(DISTINCT_BATCHES)]
    batch_count = bench.scaled(ROWS, quick=40_000) // (PARTITIONS * batches[0].record_count)
    rows = batch_count * batches[0].record_count * PARTITIONS
    bench.say(f"spark: {rows} rows into a broker")
    data, parquet = bench.directory / "data", bench.directory / "parquet"
    with serving(data) as broker:
        _fill(broker, batches, batch_count)
        queries = list(QUERIES)[:1] if bench.is_quick else QUERIES
        bench.say("spark: starting a session, writing Parquet")
        spark = session(name="benchmark", master="local[2]")
        try:
            places: dict[str, Callable[[str | None], DataFrame]] = {
                "directory": partial(_from_directory, spark, data),
                PEER: partial(_from_parquet, spark, parquet),
                "broker": partial(_from_broker, spark, broker),
            }
            places["directory"](None).write.parquet(str(parquet))
            return [
                figure
                for query in queries
                for figure in _measure_query(bench, query, places=places, rows=rows)
            ]
        finally:
            spark.stop()


def _measure_query(
    bench: Bench, query: str, *, places: dict[str, "Callable[[str | None], DataFrame]"], rows: int
) -> list[Figure]:
    bench.say(f"spark: {query}")
    schema, expression = QUERIES[query]
    answers: dict[str, list[object]] = {name: [] for name in places}

    def ask(name: str) -> None:
        frame = places[name](schema)
        answers[name].append(frame.selectExpr(expression).first()[0])

    # The first run of a query compiles its code in the JVM and starts the Python workers.
    for name in places:
        ask(name)
    contenders = {name: partial(seconds_of, partial(ask, name)) for name in places}
    found = interleave(bench, contenders)
    assert len({answer for each in answers.values() for answer in each}) == 1, answers
    assert query != "count" or answers[PEER][0] == rows, answers
    speeds = {
        name: tuple(rows / 1e6 / seconds for seconds in values) for name, values in found.items()
    }
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


def _fill(broker: BrokerProcess, batches: list[Batch], batch_count: int) -> None:
    """The same number of batches into each partition, all of them different in a row."""
    broker.create_topic(TOPIC, partition_count=PARTITIONS)
    with connected(broker.address) as channel:
        for partition in range(PARTITIONS):
            frames = [produce_frame(TOPIC, batch, partition=partition) for batch in batches]
            answer = b""
            for number in range(batch_count):
                answer = send_all(channel, frames[number % len(frames)], 1)
            require_appended(answer, batches[0], batch_count)


def _from_directory(spark: "SparkSession", data: Path, schema: str | None) -> "DataFrame":
    reader = spark.read.format("tailrace").option("path", str(data)).option("subscribe", TOPIC)
    return reader.schema(schema).load() if schema else reader.load()


def _from_broker(spark: "SparkSession", broker: BrokerProcess, schema: str | None) -> "DataFrame":
    reader = (
        spark.read.format("tailrace")
        .option("kafka.bootstrap.servers", str(broker.address))
        .option("subscribe", TOPIC)
    )
    return reader.schema(schema).load() if schema else reader.load()


def _from_parquet(spark: "SparkSession", path: Path, schema: str | None) -> "DataFrame":
    """Spark itself finds out which columns a query needs."""
    del schema
    return spark.read.parquet(str(path))
