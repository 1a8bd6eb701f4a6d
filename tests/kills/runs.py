"""The program that the tests of this folder kill: a Spark driver that runs jobs as it is told.

    argument  the master
    stdin     {"job": "archive", "arguments": {…}}      one line for each job
    stdout    {"result": …}                             one line when it is over

A job that fails ends the program. So does the end of stdin.
"""

import json
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tailrace.errors import TailraceError
from tailrace.spark import session
from tailrace.spark.jobs.archive import ArchiveSettings, archive
from tailrace.spark.jobs.compact import compact
from tailrace.spark.jobs.replay import ReplaySettings, replay
from tailrace.spark.jobs.verify_archive import verify_archive
from tests.kills.stages import gated


def run_archive(
    spark: SparkSession, *, data: str, lake: str, file_bytes: int, form: str = "parquet"
) -> None:
    """All topics of a directory into an archive."""
    settings = ArchiveSettings(target_file_bytes=file_bytes, format=form)
    archive(spark, {"path": data, "subscribePattern": ".*"}, lake, settings=settings)


def run_archive_topic(
    spark: SparkSession, *, bootstrap: str, topic: str, lake: str, file_bytes: int = 1 << 20
) -> None:
    """A topic of a broker into an archive."""
    where = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    archive(spark, where, lake, settings=ArchiveSettings(target_file_bytes=file_bytes))


def run_archive_directory(spark: SparkSession, *, data: str, topic: str, lake: str) -> None:
    """A topic of a directory into an archive."""
    archive(spark, {"path": data, "subscribe": topic}, lake)


def run_verify(spark: SparkSession, *, data: str, lake: str) -> list[str]:
    """Verify an archive and return its findings."""
    report = verify_archive(spark, {"path": data, "subscribePattern": ".*"}, lake)
    return [str(each) for each in report.findings]


def run_follow(
    spark: SparkSession, *, bootstrap: str, topic: str, folder: str, ends: dict[str, int]
) -> None:
    """A topic into the Parquet files of `sink`, until they have it up to these ends."""
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "900",
    }
    query = (
        spark.readStream.format("tailrace")
        .options(**options)
        .load()
        .selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start(f"{folder}/sink")
    )
    try:
        while query.lastProgress is None or not _has_come_to(query.lastProgress, topic, ends):
            query.processAllAvailable()
    finally:
        query.stop()


def _has_come_to(progress: StreamingQueryProgress, topic: str, ends: dict[str, int]) -> bool:
    return bool(json.loads(progress.sources[0].endOffset or "{}").get(topic) == ends)


def run_copy(
    spark: SparkSession,
    *,
    bootstrap: str,
    source: str,
    target: str,
    folder: str,
    batch: int,
    restarts: int,
    accepted: str | None,
) -> str | None:
    """All of a topic into another one, exactly once, in micro-batches of two tasks.

    A query that fails is started again, so many times at most. Of one whose checkpoint is too old,
    it returns the value of `acceptOlderCheckpoint`; with `accepted` that is given.
    """
    brokers = {"kafka.bootstrap.servers": bootstrap}
    options = {
        "subscribe": source,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(batch),
        "groupId": f"{target}-group",
    }
    rows = spark.readStream.format("tailrace").options(**brokers, **options).load()
    writer = (
        rows.select("key", "value")
        .repartition(2, "key")
        .writeStream.format("tailrace")
        .options(**brokers, topic=target, delivery="exactly-once")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
    )
    if accepted is not None:
        writer = writer.option("acceptOlderCheckpoint", accepted)
    for left in reversed(range(restarts + 1)):
        try:
            writer.start().awaitTermination()
        except StreamingQueryException as error:
            if named := re.search(r"acceptOlderCheckpoint', '([0-9:]+)'", str(error)):
                return named[1]
            if not left:
                raise
        else:
            break
    return None


def run_version(
    spark: SparkSession, *, bootstrap: str, target: str, folder: str, number: int, rows: int
) -> None:
    """One version of a job, whose rows are numbers that no other version has, in two tasks."""
    (
        spark.range(number * rows, (number + 1) * rows, 1, 2)
        .selectExpr("CAST(id AS STRING) AS value")
        .write.format("tailrace")
        .options(topic=target, delivery="exactly-once", txnAppId=target, txnVersion=number)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("checkpointLocation", folder)
        .mode("append")
        .save()
    )


def run_shuffled(
    spark: SparkSession,
    *,
    bootstrap: str,
    target: str,
    folder: str,
    kind: str,
    rows: int,
    maps: int,
    slots: int,
) -> None:
    """Numbers behind a shuffle into a topic, exactly once, by tasks that wait behind gates."""
    numbers = spark.range(0, rows, 1, maps)
    if kind == "stream":
        numbers.write.parquet(f"{folder}/input")
        numbers = spark.readStream.schema("id long").parquet(f"{folder}/input")
    found = (
        numbers.repartition(slots, "id")
        .mapInArrow(partial(gated, folder=f"{folder}/gates"), "id long")
        .selectExpr("CAST(id AS STRING) AS value")
    )
    options = {"kafka.bootstrap.servers": bootstrap, "topic": target, "delivery": "exactly-once"}
    if kind != "write":
        options["checkpointLocation"] = f"{folder}/checkpoint"
    if kind == "stream":
        writer = found.writeStream.format("tailrace").options(**options)
        writer.trigger(availableNow=True).start().awaitTermination()
        return
    if kind == "version":
        options |= {"txnAppId": target, "txnVersion": "1"}
    found.write.format("tailrace").options(**options).mode("append").save()


def run_rows(spark: SparkSession, *, folder: str) -> list[tuple[int, int, str]]:
    """Return the rows that Spark finds in `sink`."""
    rows = spark.read.parquet(f"{folder}/sink").orderBy("partition", "offset").collect()
    return [(row["partition"], row["offset"], row["value"]) for row in rows]


def run_show(spark: SparkSession, *, data: str) -> str:
    """Take and print the first rows of the topic `t` of a directory; returns what is printed."""
    frame = spark.read.format("tailrace").option("subscribe", "t").load(data)
    with redirect_stdout(StringIO()) as shown:
        frame.show(3)
    assert len(frame.take(3)) == 3
    return shown.getvalue()


def run_replay(
    spark: SparkSession, *, data: str, bootstrap: str, topic: str, offset_map: str
) -> None:
    """The topic `t` of a directory into another one, by its keys and in small batches."""
    replay(
        spark,
        {"path": data, "subscribe": "t"},
        {"bootstrap.servers": bootstrap, "batch.size": 2000, "max.request.size": 2000},
        offset_map=offset_map,
        settings=ReplaySettings(topics={"t": topic}),
    )


def run_compact(
    spark: SparkSession, *, data: str, settings: dict[str, str], now_ms: int, map_bytes: int
) -> None:
    """All of a directory."""
    compact(spark, data, settings=settings, now_ms=now_ms, map_bytes=map_bytes)


def run_ending(spark: SparkSession, *, name: str, **arguments: Any) -> str | None:
    """Run a job that may end with an error; returns its sentence, or None."""
    try:
        JOBS[name](spark, **arguments)
    except TailraceError as error:
        return str(error)
    return None


JOBS: dict[str, Callable[..., Any]] = {
    "ending": run_ending,
    "archive": run_archive,
    "archive topic": run_archive_topic,
    "archive directory": run_archive_directory,
    "verify": run_verify,
    "follow": run_follow,
    "copy": run_copy,
    "version": run_version,
    "shuffled": run_shuffled,
    "rows": run_rows,
    "show": run_show,
    "replay": run_replay,
    "compact": run_compact,
}


def main(master: str) -> None:
    """Run jobs until there are no more."""
    spark = session(name="kills", master=master, settings={"spark.driver.memory": "1g"})
    for line in sys.stdin:
        call = json.loads(line)
        result = JOBS[call["job"]](spark, **call["arguments"])
        print(json.dumps({"result": result}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
