"""Topics into Spark, from a directory and from a broker, against the same rows as Parquet.

The rows have a key of 10 bytes and a value of 100, in batches of 16 KB as producers make them by
default. Keys and values are hex digits at random: Snappy and dictionaries find nothing in them, and
Zstandard halves them. PyArrow writes the Parquet, once and with its own settings, from what our
reader gives, so that both have one schema.

Spark asks Parquet for the columns that a query needs; our source gives all, unless the query names
a schema. `count(*)` is what comes of it: Parquet answers from the footers of its files, without a
row, so that query has no aim. The aim is for rows that are read.

CPU seconds are those of all processes: the driver, its JVM, the Python workers, and the broker
where the rows are in one. MB are of keys and values. All files are in the page cache. Not here:
reading while others write, values of other sizes, compressed batches.
"""

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.macro.brokers import BrokerProcess
from benchmarks.macro.load import (
    VALUE_BYTES,
    Batch,
    connected,
    produce_frame,
    require_appended,
    send_all,
)
from benchmarks.measure import Bench, Cost, Figure, cpu_seconds, interleave, seconds_of
from tailrace.client import BrokerAddress
from tailrace.records.builder import BatchBuilder
from tailrace.spark.batch_reader import plan_scan, read_task
from tailrace.spark.options import parse_options
from tailrace.spark.stores import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Places = Mapping[str, Callable[[str | None], DataFrame]]
    """By name, a function that reads the topic, given the schema to ask for, if any."""

T = TypeVar("T")

TOPIC = "rows"
PARTITIONS = 4
ROWS = 5_000_000
KEY_BYTES = 10
BATCH_RECORDS = 128
"""Records in a batch, which then has 16 KB."""
DISTINCT_BATCHES = 640
"""80,000 different values, which is more than a dictionary page of Parquet takes."""

MANY_PARTITIONS = 64
MANY_PARTITIONS_ROWS = 2_000_000

QUERIES = {
    "count": (None, "count(*)"),
    "sum(length(value))": (None, "sum(length(value))"),
    "sum(length(value)) of value alone": ("value BINARY", "sum(length(value))"),
    "one column, sum(offset)": ("offset BIGINT", "sum(offset)"),
}
"""Schema given to the source, if any, and what is computed."""

EVERY_COLUMN = "every column"
"""The query that has Spark take all rows, and nothing done with them."""

PEER = "Parquet"
AIM = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Session, broker, files and row count that all parts of the stage share."""

    spark: "SparkSession"
    broker: BrokerProcess
    data: Path
    """The broker's directory, in which the topic is."""
    parquet: Path
    """The same rows."""
    count: int


def measure_source(bench: Bench, rows: Rows) -> list[Figure]:
    """Seconds and CPU seconds of four queries from two places."""
    places: Places = {
        "files": partial(from_directory, rows.spark, rows.data),
        PEER: partial(_from_parquet, rows.spark, rows.parquet),
        "a broker": partial(from_broker, rows.spark, str(rows.broker.address)),
    }
    schemas = {name: _columns(frame_of(None)) for name, frame_of in places.items()}
    assert len(set(schemas.values())) == 1, schemas
    return [
        figure
        for query in (EVERY_COLUMN, *QUERIES)
        for figure in _source_figures(
            query, costs_of(bench, query, places=places, rows=rows.count), rows=rows.count
        )
    ]


def measure_many_partitions(bench: Bench, rows: Rows) -> list[Figure]:
    """Seconds to count the rows of 64 partitions in files, against one that has as many."""
    counts = {MANY_PARTITIONS: 0, 1: 0}
    for count in counts:
        topic = f"{TOPIC}-in-{count}"
        rows.broker.create_topic(topic, partition_count=count)
        counts[count] = fill(
            bench,
            rows.broker.address,
            topic=topic,
            partition_count=count,
            row_count=MANY_PARTITIONS_ROWS,
        )
    ours, peer = f"{MANY_PARTITIONS} partitions", "1 partition"
    places: Places = {
        name: partial(from_directory, rows.spark, rows.data, topic=f"{TOPIC}-in-{count}")
        for name, count in ((ours, MANY_PARTITIONS), (peer, 1))
    }
    costs = costs_of(bench, "count", places=places, rows=counts[1])
    name = f"source, count, from files of {ours}"
    return [
        compare(name, "s", seconds, ours=costs[ours], peer=costs[peer], peer_name=peer, aim=AIM)
    ]


def _source_figures(query: str, costs: Mapping[str, Sequence[Cost]], *, rows: int) -> list[Figure]:
    aim = None if query == "count" else AIM
    megabytes = rows * (KEY_BYTES + VALUE_BYTES) / 1e6
    figures = []
    for place in costs:
        if place == PEER:
            continue
        figure = partial(compare, ours=costs[place], peer=costs[PEER], peer_name=PEER)
        name = f"source, {query}, from {place}"
        figures += [
            figure(name, "s", seconds, aim=aim),
            figure(f"{name}, CPU of all processes", "s", all_cpu_seconds),
        ]
        if query == EVERY_COLUMN:
            figures += [
                figure(f"{name}, rows", "million rows/s", lambda cost: rows / 1e6 / cost.seconds),
                figure(f"{name}, bytes", "MB/s", lambda cost: megabytes / cost.seconds),
            ]
    return figures


def compare(
    name: str,
    unit: str,
    value: Callable[[Cost], float],
    *,
    ours: Sequence[Cost],
    peer: Sequence[Cost],
    peer_name: str,
    aim: float | None = None,
) -> Figure:
    """The figure of a value that is taken from what each round cost."""
    return Figure(
        name=name,
        unit=unit,
        ours=tuple(map(value, ours)),
        peer_name=peer_name,
        peer=tuple(map(value, peer)),
        aim=aim,
    )


def seconds(cost: Cost) -> float:
    """Seconds of the wall clock."""
    return cost.seconds


def all_cpu_seconds(cost: Cost) -> float:
    """Processor seconds of all processes, if `cost_of_everything` has measured."""
    return cost.cpu_seconds


def ask_all(
    bench: Bench, query: str, *, places: "Places", rows: int
) -> Mapping[str, Sequence[float]]:
    """Seconds of a query for each place, in turn; all of them must give the same answer."""
    costs = costs_of(bench, query, places=places, rows=rows)
    return {name: [cost.seconds for cost in found] for name, found in costs.items()}


def costs_of(
    bench: Bench, query: str, *, places: "Places", rows: int
) -> Mapping[str, Sequence[Cost]]:
    """Ask every place as `ask_all` does, and return the costs with CPU seconds."""
    bench.say(f"spark: {query}")
    answers: list[object] = []

    def ask(name: str) -> None:
        answers.append(_answer(query, places[name]))

    found = interleave_warm(
        bench, {name: partial(cost_of_everything, partial(ask, name)) for name in places}
    )
    assert len(set(answers)) == 1, answers
    assert query != "count" or answers[0] == rows, answers
    return found


def interleave_warm(bench: Bench, contenders: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """`interleave`, after a run of each that does not count.

    The first run compiles its code in the JVM, starts Python workers and loads kernels in them.
    """
    for run in contenders.values():
        run()
    return interleave(bench, contenders)


def _answer(query: str, frame_of: "Callable[[str | None], DataFrame]") -> object:
    if query == EVERY_COLUMN:
        return frame_of(None).write.format("noop").mode("overwrite").save()
    schema, expression = QUERIES[query]
    return frame_of(schema).selectExpr(expression).first()[0]


def cost_of_everything(work: Callable[[], object]) -> Cost:
    """Seconds of one call, and the CPU seconds of this process and all below it meanwhile."""
    cpu_before = _cpu_seconds()
    taken = seconds_of(work)
    return Cost(seconds=taken, cpu_seconds=_cpu_seconds() - cpu_before)


def _cpu_seconds() -> float:
    while True:
        try:
            return cpu_seconds(os.getpid())
        except OSError:
            # A thread of the JVM, or a worker, has ended between being listed and being read.
            continue


def fill(
    bench: Bench,
    address: BrokerAddress,
    *,
    topic: str = TOPIC,
    partition_count: int = PARTITIONS,
    row_count: int = ROWS,
) -> int:
    """The same batches into each partition of a new topic, all of them different in a row.

    Returns the number of rows, which is the same for 1 partition as for 64.
    """
    wanted = bench.scaled(row_count, quick=40_000) // BATCH_RECORDS
    batch_count = wanted // MANY_PARTITIONS * MANY_PARTITIONS // partition_count
    batches = [
        build_keyed_batch(BATCH_RECORDS, seed=seed)
        for seed in range(min(DISTINCT_BATCHES, batch_count))
    ]
    with connected(address) as channel:
        for partition in range(partition_count):
            frames = [produce_frame(topic, batch, partition=partition) for batch in batches]
            answer = b""
            for number in range(batch_count):
                answer = send_all(channel, frames[number % len(frames)], 1)
            require_appended(answer, batches[0], batch_count)
    return batch_count * BATCH_RECORDS * partition_count


def build_keyed_batch(record_count: int, *, seed: int = 0) -> Batch:
    """A batch of so many records; keys and values are hex digits."""
    chance = random.Random(seed)
    timestamp = time.time_ns() // 1_000_000
    builder = BatchBuilder()
    for _ in range(record_count):
        key, value = (
            chance.randbytes(size // 2).hex().encode() for size in (KEY_BYTES, VALUE_BYTES)
        )
        builder.append(key, value, timestamp=timestamp)
    return Batch(data=builder.build(), record_count=record_count)


def write_parquet(data: Path, parquet: Path) -> None:
    """The topic from the files as Parquet, one file for each task that reads it."""
    options = parse_options({"path": str(data), "subscribe": TOPIC})
    parquet.mkdir()
    for number, task in enumerate(plan_scan(options, open_store(options), core_count=2)):
        batches = read_task(
            task, open_store(options), columns=options.columns, fails_on_data_loss=True
        )
        pq.write_table(pa.Table.from_batches(batches), parquet / f"{number}.parquet")


def from_directory(
    spark: "SparkSession", data: Path, schema: str | None, *, topic: str = TOPIC
) -> "DataFrame":
    """The topic by our source, from the files."""
    reader = spark.read.format("tailrace").option("path", str(data)).option("subscribe", topic)
    return reader.schema(schema).load() if schema else reader.load()


def from_broker(
    spark: "SparkSession", bootstrap_servers: str, schema: str | None, *, topic: str = TOPIC
) -> "DataFrame":
    """The topic by our source, from any broker."""
    reader = (
        spark.read.format("tailrace")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
    )
    return reader.schema(schema).load() if schema else reader.load()


def _from_parquet(spark: "SparkSession", path: Path, schema: str | None) -> "DataFrame":
    """Spark itself finds out which columns a query needs."""
    del schema
    return spark.read.parquet(str(path))


def _columns(frame: "DataFrame") -> tuple[tuple[str, str], ...]:
    return tuple(frame.dtypes)
