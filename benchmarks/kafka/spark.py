"""Our Spark source and Spark's own Kafka connector on the same rows, in one session.

The connector reads from Kafka, over the network as it only can. Our source reads the same topic
from Kafka's files, from Kafka, and the same rows from our broker.

Kafka's connector is a release older than Spark (`compat.artifacts.SPARK_CONNECTOR`) and runs in it;
of its jars the session gets those that Spark has not got itself.
"""

import os
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka.peer import Peer
from benchmarks.macro.brokers import serving
from benchmarks.macro.spark import (
    PARTITIONS,
    QUERIES,
    TOPIC,
    ask_all,
    fill,
    from_broker,
    from_directory,
)
from benchmarks.measure import Bench, Figure
from compat.artifacts import SPARK_CONNECTOR, connector_jars
from compat.kafka import Kafka
from tailrace.client import parse_bootstrap
from tailrace.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.macro.spark import Places

PEER = f"Spark's connector {SPARK_CONNECTOR.version}"


def measure_spark(bench: Bench, peer: Peer) -> list[Figure]:
    """Seconds of three queries, our source from three places against the connector from Kafka."""
    data = bench.directory / "ours"
    with peer.kafka(bench.directory / "kafka") as kafka, serving(data) as broker:
        _create(kafka)
        broker.create_topic(TOPIC, partition_count=PARTITIONS)
        rows = fill(bench, parse_bootstrap(kafka.bootstrap_servers)[0])
        assert fill(bench, broker.address) == rows
        bench.say(f"spark: {rows} rows are in both brokers; starting a session")
        spark = session(
            name="benchmark",
            master="local[2]",
            settings={"spark.jars": ",".join(connector_jars(os.environ))},
        )
        try:
            places: Places = {
                "Kafka's files": partial(from_directory, spark, kafka.logs),
                PEER: partial(_by_connector, spark, kafka),
                "Tailrace": partial(from_broker, spark, str(broker.address)),
                "Kafka": partial(from_broker, spark, kafka.bootstrap_servers),
            }
            return [
                figure
                for query in (list(QUERIES)[:1] if bench.is_quick else QUERIES)
                for figure in _figures(bench, query, places=places, rows=rows)
            ]
        finally:
            spark.stop()


def _figures(bench: Bench, query: str, *, places: "Places", rows: int) -> list[Figure]:
    seconds = ask_all(bench, query, places=places, rows=rows)
    return [
        Figure(
            name=f"spark, {query} of {rows / 1e6:.0f} million rows, from {name}",
            unit="s",
            ours=tuple(seconds[name]),
            peer_name=PEER,
            peer=tuple(seconds[PEER]),
        )
        for name in places
        if name != PEER
    ]


def _create(kafka: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()


def _by_connector(spark: "SparkSession", kafka: Kafka, schema: str | None) -> "DataFrame":
    """Spark itself finds out which columns a query needs; a schema is not taken."""
    del schema
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", TOPIC)
        .load()
    )
