"""Our exactly-once sink and the sink of Spark's own Kafka connector, into the same Kafka.

A stream takes files of Parquet, one in a micro-batch, and writes keys and values into a topic of
Kafka: by our sink in transactions, by our sink at least once, and by the connector, which knows
at least once only. Costs are of the whole query, from its start to its end, with the CPU of all
processes: driver, JVM, Python workers, and Kafka.
"""

import os
import random
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka.peer import Peer
from benchmarks.kafka.spark import PEER
from benchmarks.macro.load import VALUE_BYTES
from benchmarks.macro.pipeline_streams import AT_LEAST_ONCE, ONCE
from benchmarks.macro.spark import KEY_BYTES, compare, cost_of_everything, interleave_warm
from benchmarks.measure import Bench, Figure
from compat.artifacts import connector_jars
from tailrace.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compat.kafka import Kafka

PARTITIONS = 4
ROWS = 100_000
"""Rows of a micro-batch."""
BATCHES = 20
AIM = 0.5


def measure_exactly_once(bench: Bench, peer: Peer) -> list[Figure]:
    """Seconds and CPU seconds of a stream into Kafka, by our sink and by the connector's."""
    files = bench.directory / "files"
    batches = bench.scaled(BATCHES, quick=2)
    _write_files(files, batches)
    with peer.kafka(bench.directory / "kafka") as kafka:
        settings = {"spark.jars": ",".join(connector_jars(os.environ)), "spark.driver.memory": "2g"}
        spark = session(name="benchmark", master="local[2]", settings=settings)
        try:
            run = partial(_run, bench, spark, kafka, files=files, numbers=count())
            found = interleave_warm(
                bench,
                {
                    name: partial(cost_of_everything, partial(run, options=options))
                    for name, options in (
                        (ONCE, {"delivery": ONCE}),
                        (AT_LEAST_ONCE, {"delivery": AT_LEAST_ONCE}),
                        (PEER, None),
                    )
                },
            )
        finally:
            spark.stop()
    rows = batches * ROWS
    return [
        figure
        for name in (ONCE, AT_LEAST_ONCE)
        for figure in (
            compare(
                f"sink, {name}, {rows / 1e6:.0f} million rows into Kafka", "s",
                lambda cost: cost.seconds,
                ours=found[name], peer=found[PEER], peer_name=PEER,
            ),
            compare(
                f"sink, {name}, CPU of all processes for a million rows", "s",
                lambda cost: cost.cpu_seconds * 1e6 / rows,
                ours=found[name], peer=found[PEER], peer_name=PEER, aim=AIM,
            ),
        )
    ]  # fmt: skip


def _write_files(files: Path, batches: int) -> None:
    files.mkdir()
    chance = random.Random(0)
    table = pa.table(
        {
            name: pa.array([chance.randbytes(size // 2).hex().encode() for _ in range(ROWS)])
            for name, size in (("key", KEY_BYTES), ("value", VALUE_BYTES))
        }
    )
    for number in range(batches):
        pq.write_table(table, files / f"{number:04}.parquet")


def _run(
    bench: Bench,
    spark: "SparkSession",
    kafka: "Kafka",
    *,
    files: Path,
    numbers: "count[int]",
    options: dict[str, str] | None,
) -> None:
    topic = f"sunk-{next(numbers)}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    rows = (
        spark.readStream.schema("key BINARY, value BINARY")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(files))
    )
    (
        rows.writeStream.format("kafka" if options is None else "tailrace")
        .options(**(options or {}))
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", str(bench.directory / topic))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    admin.delete_topics([topic])[topic].result()
