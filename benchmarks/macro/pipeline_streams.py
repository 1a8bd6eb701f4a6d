"""The sink, and how long a micro-batch of a followed topic takes, against Spark's own on files.

Sink: keys and values from Parquet into a topic of our broker, with a producer's defaults (acks all,
idempotent), against Spark writing the same frame as Parquet. The peer sends nothing to anybody, so
there is no aim: it says what Spark takes to read such rows and to hand them to a writer.

Stream: 2,000 records are appended at once; when the stream has taken them, the next. Both streams
go to the sink `noop` as fast as they can, with a checkpoint on the disk, one after the other, and
the time is Spark's own `triggerExecution`. The peer follows a directory in which a Parquet file of
as many rows appears. The aim is a limit of 250 ms for the median. Not here: the time from an append
to the start of its trigger, which for our source is at most a look's pause; streams with state.

Exactly once: a stream from topic to topic, in batches of 100,000 rows and of 2,000, with the sink's
exactly-once delivery and at least once, in turn. The aim is 1.15 of the time of a large batch; for
the small one it is a limit of 60 ms that the transactions may add to the median.
"""

import shutil
import statistics
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.macro.brokers import BrokerProcess
from benchmarks.macro.load import connected, produce_frame, send_all
from benchmarks.macro.spark import (
    PARTITIONS,
    Rows,
    build_keyed_batch,
    from_broker,
    interleave_warm,
)
from benchmarks.measure import Bench, Figure, interleave, seconds_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter
    from pyspark.sql.streaming.listener import StreamingQueryProgress

SINK_ROWS = 2_000_000
SINK_PEER = "Spark's Parquet writer"

STREAM_ROWS = 2_000
APPENDS = 30
WARM_UP_APPENDS = 5
"""Batches of a new query that do not count; all of a query fit into its recent progress."""
STREAM_PEER = "Spark's stream of Parquet files"
LIMIT_MS = 250.0

ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
ONCE_ROWS = 100_000
ONCE_BATCH = 1_000
"""Records of a batch of the source."""
ONCE_APPENDS = 10
ONCE_LIMIT_MS = 60.0


def measure_sink(bench: Bench, rows: Rows) -> list[Figure]:
    """Million rows per second."""
    bench.say("pipeline: sink")
    sunk = min(SINK_ROWS, rows.count) // PARTITIONS
    frame = rows.spark.read.parquet(str(rows.parquet)).filter(f"offset < {sunk}")
    frame = frame.select("key", "value")
    row_count = sunk * PARTITIONS
    numbers = count()

    def sink() -> float:
        topic = f"sunk-{next(numbers)}"
        rows.broker.create_topic(topic, partition_count=PARTITIONS)
        write = (
            frame.write.format("tailrace")
            .mode("append")
            .option("kafka.bootstrap.servers", str(rows.broker.address))
            .option("topic", topic)
        )
        seconds = seconds_of(write.save)
        there = from_broker(rows.spark, str(rows.broker.address), "offset BIGINT", topic=topic)
        assert there.count() == row_count
        rows.broker.delete_topic(topic)
        return row_count / 1e6 / seconds

    def write_parquet() -> float:
        target = bench.directory / f"sunk-{next(numbers)}"
        seconds = seconds_of(lambda: frame.write.parquet(str(target)))
        shutil.rmtree(target)
        return row_count / 1e6 / seconds

    found = interleave_warm(bench, {"ours": sink, "peer": write_parquet})
    return [
        Figure(
            name="sink",
            unit="million rows/s",
            ours=tuple(found["ours"]),
            peer_name=SINK_PEER,
            peer=tuple(found["peer"]),
        )
    ]


def measure_stream(bench: Bench, rows: Rows) -> list[Figure]:
    """Milliseconds of a trigger, median of each round and 99th percentile of all."""
    appends = bench.scaled(APPENDS, quick=5)
    bench.say(f"pipeline: stream, {appends} batches a round")
    numbers = count()
    found = interleave(
        bench,
        {
            name: partial(follow, bench, rows, appends=appends, numbers=numbers)
            for name, follow in (("ours", _follow_topic), ("peer", _follow_directory))
        },
    )
    medians = {name: tuple(map(statistics.median, rounds)) for name, rounds in found.items()}
    name = f"stream, trigger of {STREAM_ROWS:,} rows"
    return [
        Figure(
            name=f"{name}, p50 and its limit",
            unit="ms",
            ours=medians["ours"],
            peer_name="limit",
            peer=(LIMIT_MS,),
            aim=1.0,
        ),
        Figure(
            name=f"{name}, p50",
            unit="ms",
            ours=medians["ours"],
            peer_name=STREAM_PEER,
            peer=medians["peer"],
        ),
        Figure(
            name=f"{name}, p99 of all rounds",
            unit="ms",
            ours=(_p99(found["ours"]),),
            peer_name=STREAM_PEER,
            peer=(_p99(found["peer"]),),
        ),
    ]


def measure_exactly_once(bench: Bench, rows: Rows) -> list[Figure]:
    """Milliseconds of a large trigger, and those added to a small one; medians of rounds."""
    appends = bench.scaled(ONCE_APPENDS, quick=3)
    numbers = count()
    figures = []
    for row_count in (ONCE_ROWS, STREAM_ROWS):
        bench.say(f"pipeline: exactly once, {appends} batches of {row_count:,} rows a round")
        found = interleave(
            bench,
            {
                delivery: partial(
                    copy_topic, bench, rows.spark, rows.broker,
                    delivery=delivery, row_count=row_count, appends=appends, numbers=numbers,
                )
                for delivery in (ONCE, AT_LEAST_ONCE)
            },
        )  # fmt: skip
        once, at_least = ([statistics.median(each) for each in found[name]] for name in found)
        name = f"sink, {ONCE}, trigger of {row_count:,} rows"
        if row_count == ONCE_ROWS:
            figures.append(
                Figure(
                    name=f"{name}, p50",
                    unit="ms",
                    ours=tuple(once),
                    peer_name=AT_LEAST_ONCE,
                    peer=tuple(at_least),
                    aim=1.15,
                )
            )
        else:
            added = [mine - theirs for mine, theirs in zip(once, at_least, strict=True)]
            figures.append(
                Figure(
                    name=f"{name}, added to p50, and its limit",
                    unit="ms",
                    ours=tuple(added),
                    peer_name="limit",
                    peer=(ONCE_LIMIT_MS,),
                    aim=1.0,
                )
            )
    return figures


def copy_topic(
    bench: Bench,
    spark: "SparkSession",
    broker: BrokerProcess,
    *,
    delivery: str,
    row_count: int,
    appends: int,
    numbers: "count[int]",
) -> list[float]:
    """Milliseconds of each trigger of a stream from a topic into another one, behind a warm-up."""
    source, target = (f"{name}-{next(numbers)}" for name in ("copied", "copy"))
    for topic in (source, target):
        broker.create_topic(topic, partition_count=2)
    brokers = {"kafka.bootstrap.servers": str(broker.address)}
    frame = spark.readStream.format("tailrace").options(**brokers, subscribe=source).load()
    batch = build_keyed_batch(ONCE_BATCH)
    requests = [produce_frame(source, batch, partition=number) for number in range(2)]
    with connected(broker.address) as channel:

        def append() -> None:
            for number in range(row_count // ONCE_BATCH):
                send_all(channel, requests[number % 2], 1)

        writer = frame.select("key", "value").writeStream.format("tailrace")
        found = _triggers_ms(
            writer.options(**brokers, topic=target, delivery=delivery),
            append,
            checkpoint=bench.directory / target,
            appends=appends,
            row_count=row_count,
        )
    for topic in (source, target):
        broker.delete_topic(topic)
    return found


def _follow_topic(bench: Bench, rows: Rows, *, appends: int, numbers: "count[int]") -> list[float]:
    topic = f"followed-{next(numbers)}"
    rows.broker.create_topic(topic)
    frame = (
        rows.spark.readStream.format("tailrace")
        .option("kafka.bootstrap.servers", str(rows.broker.address))
        .option("subscribe", topic)
        .load()
    )
    request = produce_frame(topic, build_keyed_batch(STREAM_ROWS))
    with connected(rows.broker.address) as channel:

        def append() -> None:
            send_all(channel, request, 1)

        writer = frame.writeStream.format("noop")
        found = _triggers_ms(writer, append, checkpoint=bench.directory / topic, appends=appends)
    rows.broker.delete_topic(topic)
    return found


def _follow_directory(
    bench: Bench, rows: Rows, *, appends: int, numbers: "count[int]"
) -> list[float]:
    path = bench.directory / f"followed-{next(numbers)}"
    path.mkdir()
    rows_read = rows.spark.read.parquet(str(rows.parquet))
    frame = rows.spark.readStream.schema(rows_read.schema).parquet(str(path))
    (first, *_) = sorted(rows.parquet.iterdir())
    with pq.ParquetFile(first) as file:
        table = pa.Table.from_batches([next(file.iter_batches(STREAM_ROWS))])

    def append() -> None:
        written = path / f"_{next(numbers)}.parquet"
        pq.write_table(table, written)
        # Spark passes over names that begin with an underscore.
        written.rename(path / written.name[1:])

    checkpoint = path.with_name(f"{path.name}-checkpoint")
    writer = frame.writeStream.format("noop")
    found = _triggers_ms(writer, append, checkpoint=checkpoint, appends=appends)
    shutil.rmtree(path)
    return found


def _triggers_ms(
    writer: "DataStreamWriter",
    append: Callable[[], None],
    *,
    checkpoint: Path,
    appends: int,
    row_count: int = STREAM_ROWS,
) -> list[float]:
    """Milliseconds of the triggers that took each append, behind those to warm up.

    An append of several requests may be taken by several triggers.
    """
    query = (
        writer.option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    found = []
    # The stream begins behind what there is. A trigger without rows has the id of the next batch.
    last = -1
    try:
        query.processAllAvailable()
        for _ in range(WARM_UP_APPENDS + appends):
            append()
            taken: list[StreamingQueryProgress] = []
            while sum(each.numInputRows for each in taken) < row_count:
                # A trigger that has looked before the append may end this wait too.
                query.processAllAvailable()
                recent = [each for each in query.recentProgress if each.batchId > last]
                taken = [each for each in recent if each.numInputRows]
            last = taken[-1].batchId
            assert sum(each.numInputRows for each in taken) == row_count, taken
            found.append(sum(float(each.durationMs["triggerExecution"]) for each in taken))
    finally:
        query.stop()
    return found[WARM_UP_APPENDS:]


def _p99(rounds: list[list[float]]) -> float:
    ordered = sorted(each for found in rounds for each in found)
    return ordered[int(0.99 * len(ordered))]
