"""The data pipeline on Spark: one session, one broker and one set of rows for all of its parts.

    spark.py             the source, from files and from a broker, against Spark's Parquet scan
    pipeline_jobs.py     archive and compaction, against Spark's Parquet writer and our cleaner
    pipeline_streams.py  the sink and the micro-batches of a stream, against Spark's own on files

The session is ours with two local cores, so the driver, the workers and the broker share what the
machine has. Its JVM has room enough that Spark's own writer sorts in memory. Not here: clusters,
object storage, and Spark's Kafka connector, which `benchmarks.kafka.spark` measures.
"""

from benchmarks.macro.brokers import serving
from benchmarks.macro.pipeline_jobs import measure_archive, measure_spark_compaction
from benchmarks.macro.pipeline_streams import measure_exactly_once, measure_sink, measure_stream
from benchmarks.macro.spark import (
    PARTITIONS,
    TOPIC,
    Rows,
    fill,
    measure_many_partitions,
    measure_source,
    write_parquet,
)
from benchmarks.measure import Bench, Figure
from tailrace.spark import session

PARTS = (
    measure_source,
    measure_many_partitions,
    measure_archive,
    measure_sink,
    measure_stream,
    measure_exactly_once,
    measure_spark_compaction,
)


def measure_pipeline(bench: Bench) -> list[Figure]:
    """The figures of all parts."""
    data, parquet = bench.directory / "data", bench.directory / "parquet"
    with serving(data) as broker:
        broker.create_topic(TOPIC, partition_count=PARTITIONS)
        count = fill(bench, broker.address)
        bench.say(f"pipeline: {count} rows are in a broker; writing Parquet")
        write_parquet(data, parquet)
        bench.say("pipeline: starting a session")
        spark = session(name="benchmark", master="local[2]", settings={"spark.driver.memory": "4g"})
        try:
            rows = Rows(spark=spark, broker=broker, data=data, parquet=parquet, count=count)
            return [figure for measure in PARTS for figure in measure(bench, rows)]
        finally:
            spark.stop()
