"""The order of the demo: prepare, broker, produce, consume, Spark, check, picture, report.

Only the order is here; each step is in the module of its name.

Invariant: the broker is closed on every way out, Ctrl-C included, so its directory opens again.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import field
from pathlib import Path

import click
import pandas as pd
from pyspark.sql import DataFrame, Observation, SparkSession

from tailrace.broker import Broker
from tailrace.demo import check, pipeline
from tailrace.demo.consume import MEMBER_COUNT, consume
from tailrace.demo.files import DemoFiles, prepare
from tailrace.demo.flights import TopicRecords, load_tables, topic_records
from tailrace.demo.picture import draw_delays
from tailrace.demo.produce import Produced, end_offsets, produce
from tailrace.demo.report import Outcome, ReadFromTopic, summary
from tailrace.spark import session
from tailrace.values import dataclass

BROKER_SETTINGS = {"group.initial.rebalance.delay.ms": 500}
"""Both consumers join within half a second; a new group waits three by default."""

BAR_STEP = 5_000
"""Records between two looks of the progress bar."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Wall-clock seconds of the stages gone through so far."""

    say: Callable[[str], object] = click.echo
    """Gets each line or paragraph of text."""
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str, said: str | None = None) -> Iterator[None]:
        """Say what begins, and count the time inside of the block as that of the stage `name`."""
        if said is not None:
            self.say(said)
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started


def run(data: Path, *, keep: bool, began: float) -> Outcome:
    """The whole demo in the directory `data`.

    With `keep` the records of an earlier run stay, and missing ones are added. `began` is when the
    user began to wait, by `time.monotonic`; the time since then is shown as that of loading
    libraries.

    Raises:
        TailraceError: the directory is in the way, a needed package or Java is missing, or the
            broker refused something.
        CheckError: the result is not what pandas computes.
    """
    stages = Stages()
    stages.seconds["load the libraries"] = time.monotonic() - began
    files = DemoFiles(root=data)
    is_continued = prepare(files, keep=keep)
    with stages.timed(
        "load the CSV files, write JSON", "Loading the flights and writing them as JSON"
    ):
        tables = load_tables()
        topics = topic_records(tables)
    with ExitStack() as cleanup:
        with stages.timed("start the broker"):
            broker = cleanup.enter_context(Broker(data=data, settings=BROKER_SETTINGS))
        address = broker.bootstrap_servers
        stages.say(f"Broker on {address}, data in {data}/")
        with stages.timed("produce"):
            produced = fill(
                topics, bootstrap_servers=address, is_continued=is_continued, say=stages.say
            )
        flights = next(each for each in topics if each.topic == "flights")
        with stages.timed(
            "consume with a group", f"Reading {flights.topic} with {MEMBER_COUNT} consumers"
        ):
            consumed = consume(
                flights.topic,
                end_offsets=end_offsets(flights, bootstrap_servers=address),
                bootstrap_servers=address,
                say=stages.say,
            )
        with stages.timed("start Spark", "Starting Spark"):
            spark = session(name="tailrace demo")
        # Before the broker, since the last callback runs first: tasks read from it.
        cleanup.callback(spark.stop)
        options = {"kafka.bootstrap.servers": address}
        table, read = analyse(
            spark,
            read=lambda topic: (
                spark.read.format("tailrace").options(**options, subscribe=topic).load()
            ),
            files=files,
            stages=stages,
        )
        with stages.timed("stop Spark and the broker", "Stopping Spark and the broker"):
            # Here and not at the end of the block, so that it is counted as a stage.
            cleanup.close()
    lake_rows = len(tables.flights)
    with stages.timed("check against pandas", "Computing the same with pandas, to compare"):
        check.require_rows(files.lake, expected=lake_rows)
        values_compared = check.require_equal(table, expected=check.truth(tables))
    with stages.timed("draw the picture"):
        draw_delays(table, airline_names=tables.airline_names, path=files.picture)
    outcome = Outcome(
        files=files,
        produced=produced,
        consumed=consumed,
        read=read,
        table=table,
        airline_names=tables.airline_names,
        lake_rows=lake_rows,
        values_compared=values_compared,
        seconds=stages.seconds,
        whole_seconds=time.monotonic() - began,
    )
    stages.say("\n" + summary(outcome))
    return outcome


def fill(
    topics: list[TopicRecords],
    *,
    bootstrap_servers: str,
    is_continued: bool,
    say: Callable[[str], object],
) -> list[Produced]:
    """The topics filled up, with a progress bar; what they hold already is kept.

    Raises:
        TailraceError: see `end_offsets` and `produce`.
    """
    present = {
        records.topic: end_offsets(records, bootstrap_servers=bootstrap_servers)
        for records in topics
    }
    total = sum(len(records.keys) for records in topics)
    kept = sum(map(sum, present.values()))
    if is_continued:
        say(
            f"Continuing with the data of an earlier run: {kept:,} of {total:,} records are there, "
            f"{total - kept:,} to produce"
        )
    else:
        say(f"Producing {total:,} records")
    # On stderr and on a terminal only, so that a piped stdout has no bar in it.
    with click.progressbar(
        length=total,
        label="Producing",
        show_pos=True,
        file=sys.stderr,
        hidden=not sys.stderr.isatty(),
        update_min_steps=BAR_STEP,
    ) as bar:
        bar.update(kept)
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
    spark: SparkSession, *, read: Callable[[str], DataFrame], files: DemoFiles, stages: Stages
) -> tuple[pd.DataFrame, list[ReadFromTopic]]:
    """Delays by carrier and hour, and what was read for it; writes the lake on the way.

    `read` gives the records of a topic, with the columns of the source `tailrace`. The topics are
    read once, into the lake, and the aggregate is computed from the lake: so what is checked
    against pandas is what was written.
    """
    observations = {topic: Observation(topic) for topic in pipeline.SCHEMAS}
    rows = {
        topic: pipeline.parse(
            pipeline.counted(read(topic), observation=observations[topic]), schema=schema
        )
        for topic, schema in pipeline.SCHEMAS.items()
    }
    joined = pipeline.join(rows["flights"], planes=rows["planes"], weather=rows["weather"])
    with stages.timed(
        "read the topics, join, write Parquet", "Reading the topics, joining, writing Parquet"
    ):
        # With --keep the files of an earlier run are there.
        joined.write.mode("overwrite").partitionBy("month").parquet(str(files.lake))
    with stages.timed("aggregate the Parquet", "Aggregating by airline and hour"):
        table = pipeline.collect(pipeline.delays(spark.read.parquet(str(files.lake))))
    # `get` waits for the first query that has read the topic: the one that wrote the lake.
    counted = [
        ReadFromTopic(topic=topic, records=seen.get["records"], bytes=seen.get["bytes"])
        for topic, seen in observations.items()
    ]
    return table, counted
