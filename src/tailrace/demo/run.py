"""The order of the demo: prepare, broker, produce, Spark, check, picture, report.

Only the order is here; each step is in the module of its name.

Invariant: the broker is closed on every way out, Ctrl-C included, so its directory opens again.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tqdm import tqdm

from tailrace.demo import check, pipeline
from tailrace.demo.files import DemoFiles, prepare
from tailrace.demo.flights import TopicRecords, load_tables, topic_records
from tailrace.demo.picture import draw_delays
from tailrace.demo.produce import Produced, end_offsets, produce
from tailrace.demo.report import Outcome, ReadFromTopic, summary
from tailrace.spark import session

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

SCHEMAS = {
    "flights": pipeline.FLIGHT,
    "weather": pipeline.READING,
    "planes": pipeline.PLANE,
}
"""Schema of the values by topic."""


class DemoBroker(Protocol):
    """The address and process of a broker, for the demo."""

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, `host:port`."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Wall-clock seconds of the stages gone through so far."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Count the time inside of the block as that of the stage `name`."""
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started


def run(
    data: Path,
    *,
    keep: bool,
    say: Callable[[str], object] = print,
    began: float | None = None,
) -> Outcome:
    """The whole demo in the directory `data`; `say` gets each line or paragraph of text.

    With `keep` the records of an earlier run stay, and missing ones are added. `began` is when the
    user began to wait, by `time.monotonic`; the time since then is told as that of loading
    libraries.

    Raises:
        FatalError: the directory is in the way, a needed package or Java is missing, or the
            broker refused something.
        CheckError: the result is not what pandas computes.
    """
    stages = Stages()
    if began is None:
        began = time.monotonic()
    else:
        stages.seconds["load the libraries"] = time.monotonic() - began
    files = DemoFiles(root=data)
    is_continued = prepare(files, keep=keep)
    say("Loading the flights and writing them as JSON")
    with stages.timed("load the CSV files, write JSON"):
        tables = load_tables()
        topics = topic_records(tables)
    with ExitStack() as cleanup:
        with stages.timed("start the broker"):
            broker = cleanup.enter_context(_broker(files.logs))
        address = broker.bootstrap_servers
        say(f"Broker on {address}, data in {files.logs}/")
        with stages.timed("produce"):
            produced = fill(topics, bootstrap_servers=address, is_continued=is_continued, say=say)
        say("Starting Spark")
        with stages.timed("start Spark"):
            spark = session(name="tailrace demo")
        cleanup.callback(spark.stop)
        table, read = analyse(
            spark,
            read=lambda topic: _topic(spark, topic, bootstrap_servers=address),
            files=files,
            stages=stages,
            say=say,
        )
        say("Stopping Spark and the broker")
        with stages.timed("stop Spark and the broker"):
            cleanup.close()
    say("Computing the same with pandas, to compare")
    with stages.timed("check against pandas"):
        lake_rows = len(tables.flights)
        check.require_rows(files.lake, expected=lake_rows)
        values_compared = check.require_equal(table, expected=check.truth(tables))
    with stages.timed("draw the picture"):
        draw_delays(table, airline_names=tables.airline_names, path=files.picture)
    outcome = Outcome(
        files=files,
        produced=produced,
        read=read,
        table=table,
        airline_names=tables.airline_names,
        lake_rows=lake_rows,
        values_compared=values_compared,
        seconds=stages.seconds,
        whole_seconds=time.monotonic() - began,
    )
    say("")
    say(summary(outcome))
    return outcome


def _broker(directory: Path) -> AbstractContextManager[DemoBroker]:
    """A broker of this process on a free port, not started yet."""
    from tailrace.broker import Broker

    return Broker(data=str(directory), listen="127.0.0.1:0")


def _topic(spark: "SparkSession", topic: str, *, bootstrap_servers: str) -> "DataFrame":
    """The records of a topic, through Tailrace's source for Spark."""
    source = spark.read.format("tailrace").option("kafka.bootstrap.servers", bootstrap_servers)
    return source.option("subscribe", topic).load()


def fill(
    topics: list[TopicRecords],
    *,
    bootstrap_servers: str,
    is_continued: bool,
    say: Callable[[str], object],
) -> list[Produced]:
    """The topics filled up, behind a progress bar; what they hold already is kept.

    Raises:
        FatalError: see `end_offsets` and `produce`.
    """
    present = {
        records.topic: end_offsets(records, bootstrap_servers=bootstrap_servers)
        for records in topics
    }
    total = sum(len(records.keys) for records in topics)
    kept = sum(map(sum, present.values()))
    if is_continued:
        say(
            f"Continuing on the data of an earlier run: {kept:,} of {total:,} records are there, "
            f"{total - kept:,} to produce"
        )
    else:
        say(f"Producing {total:,} records")
    with tqdm(
        total=total, initial=kept, desc="Producing", unit=" records", unit_scale=True, disable=None
    ) as bar:
        return [
            produce(
                records,
                bootstrap_servers=bootstrap_servers,
                present=present[records.topic],
                progress=bar.update,
            )
            for records in topics
        ]


def analyse(
    spark: "SparkSession",
    *,
    read: Callable[[str], "DataFrame"],
    files: DemoFiles,
    stages: Stages,
    say: Callable[[str], object],
) -> tuple["pd.DataFrame", list[ReadFromTopic]]:
    """Delays by carrier and hour, and what was read for it; writes the lake on the way.

    `read` gives the records of a topic, with the columns of the source `tailrace`.
    """
    from pyspark.sql import Observation

    observations = {topic: Observation(topic) for topic in SCHEMAS}
    rows = {
        topic: pipeline.parse(
            pipeline.counted(read(topic), observation=observations[topic]), schema=schema
        )
        for topic, schema in SCHEMAS.items()
    }
    joined = pipeline.join(rows["flights"], planes=rows["planes"], weather=rows["weather"])
    say("Reading the topics, joining, writing Parquet")
    with stages.timed("read the topics, join, write Parquet"):
        pipeline.write_lake(joined, directory=files.lake)
    say("Aggregating by airline and hour")
    with stages.timed("aggregate the Parquet"):
        lake = pipeline.read_lake(spark, directory=files.lake)
        table = pipeline.collect(pipeline.delays(lake))
    counted = [
        ReadFromTopic(topic=topic, records=seen.get["records"], bytes=seen.get["bytes"])
        for topic, seen in observations.items()
    ]
    return table, counted
