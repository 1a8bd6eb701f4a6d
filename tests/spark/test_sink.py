"""`df.write` and `df.writeStream` to a broker: the scenarios of Spark's own suite of its sink."""

import gc
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tailrace import Broker
from tailrace.client import ClusterReader
from tailrace.client.admin import create_topic
from tailrace.records.builder import records_of
from tailrace.spark.source import TailraceDataSource
from tests.spark.topics import batches, records, values

pytestmark = [pytest.mark.spark, pytest.mark.wire]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that makes topics of one partition when they are first written to."""
    # Rows are written with the timestamps of old records, which retention would delete.
    settings = {"log.retention.ms": -1}
    with Broker(tmp_path_factory.mktemp("broker") / "data", settings=settings) as broker:
        yield broker.bootstrap_servers


def writer(frame: DataFrame, bootstrap: str, **options: str) -> DataFrameWriter:
    """The frame's writer to the broker, in the one mode that there is."""
    named = {"kafka.bootstrap.servers": bootstrap} | options
    return frame.write.format("tailrace").options(**named).mode("append")


def refusal(write: Any) -> str:
    """Return the message of the error that the write ends with."""
    with pytest.raises(PySparkException) as caught:
        write()
    return str(caught.value)


@pytest.mark.smoke
def test_rows_with_headers_are_written_and_read_back(spark: SparkSession, bootstrap: str) -> None:
    """None, one, several, and one name twice; text and bytes; a key, or null."""
    headers = "array<struct<key:string,value:binary>>"
    rows = [
        ("k", "1", [("a", b"b")]),
        (None, "2", [("c", b"d"), ("e", b"f")]),
        ("k", "3", [("g", b"h"), ("g", None)]),
        ("", "4", None),
        ("k", None, []),
    ]
    frame = spark.createDataFrame(rows, f"key string, value string, headers {headers}")
    writer(frame, bootstrap, topic="with-headers").save()
    told = {
        (record.key, record.value): list(record.headers)
        for record in records(bootstrap, "with-headers")
    }
    assert told == {
        (None if key is None else key.encode(), value and value.encode()): headers or []
        for key, value, headers in rows
    }


@pytest.mark.smoke
def test_each_row_goes_to_the_topic_of_its_column(spark: SparkSession, bootstrap: str) -> None:
    """Ten topics in turn, from two tasks, and none by option."""
    frame = spark.range(0, 1000, 1, 2).selectExpr(
        "concat('column-', id % 10) AS topic", "CAST(id AS STRING) AS value"
    )
    writer(frame, bootstrap).save()
    assert values(bootstrap, "column-3") == sorted(str(n) for n in range(3, 1000, 10))
    assert sum(len(records(bootstrap, f"column-{n}")) for n in range(10)) == 1000


def test_the_topic_option_wins_over_the_column(spark: SparkSession, bootstrap: str) -> None:
    """No record goes to the topic that the column names."""
    frame = spark.range(5).selectExpr("'losing' AS topic", "CAST(id AS STRING) AS value")
    writer(frame, bootstrap, topic="winning").save()
    assert values(bootstrap, "winning") == ["0", "1", "2", "3", "4"]
    with closing(ClusterReader(bootstrap)) as cluster:
        assert "losing" not in cluster.partitions()


@pytest.mark.smoke
def test_a_partition_is_chosen_by_column_or_by_key(spark: SparkSession, bootstrap: str) -> None:
    """The column wins; null is as if there were no column, and the same keys go the same ways."""
    for topic in ("by-key", "by-column", "by-null"):
        create_topic(bootstrap, topic, partition_count=4)
    keyed = spark.range(20).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    writer(keyed, bootstrap, topic="by-key").save()
    writer(keyed.selectExpr("*", "2 AS partition"), bootstrap, topic="by-column").save()
    without = keyed.selectExpr("*", "CAST(null AS INT) AS partition")
    writer(without, bootstrap, topic="by-null").save()

    def places(topic: str) -> dict[str, int]:
        return {
            (record.key or b"").decode(): number
            for number, found in batches(bootstrap, topic).items()
            for batch in found
            for record in records_of(batch)
        }

    assert set(places("by-column").values()) == {2}
    assert len(set(places("by-key").values())) > 1
    assert places("by-null") == places("by-key")


def test_a_topic_is_copied_with_its_timestamps(spark: SparkSession, bootstrap: str) -> None:
    """Rows can be written as they were read, also without a time (-1); null is now."""
    frame = spark.range(100).selectExpr(
        "CAST(id AS STRING) AS value",
        "CASE id WHEN 0 THEN null WHEN 1 THEN timestamp_millis(-1) "
        "ELSE timestamp_millis(1700000000000 + id) END AS timestamp",
    )
    writer(frame, bootstrap, topic="original").save()
    original = spark.read.format("tailrace").options(
        **{"kafka.bootstrap.servers": bootstrap, "subscribe": "original"}
    )
    writer(original.load(), bootstrap, topic="copy").save()
    times = {int(record.value or b""): record.timestamp for record in records(bootstrap, "copy")}
    now = times.pop(0)
    assert now > 1_700_000_100_000
    assert times.pop(1) == -1
    assert times == {number: 1_700_000_000_000 + number for number in range(2, 100)}
    originals = {record.timestamp for record in records(bootstrap, "original")}
    assert originals == {now, -1, *times.values()}


def test_a_plan_of_expressions_is_written(spark: SparkSession, bootstrap: str) -> None:
    """Values that are made of all columns (SPARK-20496)."""
    frame = spark.range(1, 1000).selectExpr("to_json(struct(*)) AS value")
    writer(frame, bootstrap, topic="analyzed").save()
    assert {json.loads(value)["id"] for value in values(bootstrap, "analyzed")} == set(
        range(1, 1000)
    )


@pytest.mark.smoke
def test_a_null_topic_fails_the_write_and_names_the_row(
    spark: SparkSession, bootstrap: str
) -> None:
    """The error has Spark's name for a null topic."""
    frame = spark.range(0, 10, 1, 1).selectExpr(
        "IF(id = 7, null, 'mostly') AS topic", "CAST(id AS STRING) AS value"
    )
    message = refusal(writer(frame, bootstrap).save)
    assert "KAFKA_NULL_TOPIC_IN_DATA" in message
    assert "row 7 of the task" in message


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        (["value AS key", "value"], "topic option required when no 'topic' attribute is present"),
        (["'t' AS topic", "value AS key"], "Required attribute 'value' not found"),
        (["1 AS topic", "value"], "topic must be a(n) string"),
        (["'t' AS topic", "CAST(value AS INT) AS value"], "value must be a(n) string or binary"),
        (["'t' AS topic", "value", "1 AS key"], "key must be a(n) string or binary"),
        (["'t' AS topic", "value", "value AS partition"], "partition must be a(n) int"),
    ],
)
def test_bad_columns_are_refused_before_a_job_starts(
    spark: SparkSession, bootstrap: str, columns: list[str], fault: str
) -> None:
    """The error has Spark's own words."""
    frame = spark.range(5).selectExpr("CAST(raise_error('a job ran') AS STRING) AS value")
    message = refusal(writer(frame.selectExpr(*columns), bootstrap).save)
    assert fault in message
    assert "a job ran" not in message


def test_save_modes_other_than_append_are_refused(spark: SparkSession, bootstrap: str) -> None:
    """Overwrite by us, ignore and the default by Spark; serializers by us."""
    frame = spark.range(5).selectExpr("CAST(id AS STRING) AS value")
    write = writer(frame, bootstrap, topic="modes")
    assert "records can only be appended to a topic" in refusal(write.mode("overwrite").save)
    assert "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in refusal(write.mode("ignore").save)
    write = writer(frame, bootstrap, topic="modes").option("kafka.value.serializer", "S")
    assert "Kafka option 'value.serializer' is not supported" in refusal(write.save)


def test_a_topic_that_does_not_exist_fails_the_write(spark: SparkSession, tmp_path: Path) -> None:
    """The write fails after `max.block.ms`, and the error names the topic and what to check."""
    frame = spark.range(5).selectExpr("CAST(id AS STRING) AS value")
    settings = {"auto.create.topics.enable": "false"}
    with Broker(tmp_path / "data", settings=settings) as broker:
        write = writer(frame, broker.bootstrap_servers, topic="absent")
        message = refusal(write.option("kafka.max.block.ms", "500").save)
    assert "absent" in message
    assert "max.block.ms" in message


# -- streams ------------------------------------------------------------------------------------


class Feed:
    """A stream whose rows are numbers, given bit by bit, and its query to a topic."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path) -> None:
        self._spark, self._bootstrap = spark, bootstrap
        self._input, self._checkpoint = directory / "input", directory / "checkpoint"
        self._input.mkdir()

    def add(self, *numbers: int) -> None:
        """One more file of the input."""
        name = f"{len(list(self._input.iterdir()))}.txt"
        (self._input / name).write_text("".join(f"{number}\n" for number in numbers))

    @property
    def lines(self) -> DataFrame:
        """The stream before it is written."""
        return self._spark.readStream.text(str(self._input))

    def run(self, *columns: str, name: str = "tailrace", **options: str) -> StreamingQuery:
        """Write what is new since the last run and wait for the end."""
        frame = self.lines.selectExpr(*(columns or ("value",)))
        return self.write(frame, mode="append", name=name, **options)

    def write(
        self, frame: DataFrame, *, mode: str, name: str = "tailrace", **options: str
    ) -> StreamingQuery:
        """Write a frame of the stream, as `run` does, with the format of this name."""
        named = {
            "kafka.bootstrap.servers": self._bootstrap,
            "checkpointLocation": str(self._checkpoint),
        } | options
        query = (
            frame.writeStream.format(name)
            .options(**named)
            .outputMode(mode)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query


@pytest.fixture
def feed(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Feed:
    """A stream with the numbers 1 to 5."""
    feed = Feed(spark, bootstrap, tmp_path)
    feed.add(1, 2, 3, 4, 5)
    return feed


@pytest.mark.smoke
def test_a_stream_goes_on_from_its_checkpoint(bootstrap: str, feed: Feed) -> None:
    """Every row once, over three starts of the query; Spark counts the rows that were written."""
    query = feed.run(topic="stream")
    assert [progress.sink.numOutputRows for progress in query.recentProgress] == [5]
    feed.add(6, 7)
    feed.run(topic="stream")
    feed.run(topic="stream")
    assert values(bootstrap, "stream") == ["1", "2", "3", "4", "5", "6", "7"]


def test_a_stream_names_its_topic_by_column_or_option(bootstrap: str, feed: Feed) -> None:
    """The option wins, also when the query is started again with it."""
    feed.run("'stream-column' AS topic", "value")
    feed.add(6)
    feed.run("'stream-column' AS topic", "value", topic="stream-option")
    assert values(bootstrap, "stream-column") == ["1", "2", "3", "4", "5"]
    assert values(bootstrap, "stream-option") == ["6"]


def test_aggregates_are_added_as_a_whole_with_each_batch(bootstrap: str, feed: Feed) -> None:
    """The mode complete writes all rows each time; Spark runs no Python sink in the mode update."""
    for _ in range(2):
        numbers = feed.lines.selectExpr("CAST(value AS INT) % 2 AS odd")
        counts = numbers.groupBy("odd").count().selectExpr("concat(odd, ':', count) AS value")
        feed.write(counts, mode="complete", topic="aggregates")
        feed.add(6)
    assert values(bootstrap, "aggregates") == ["0:2", "0:3", "1:3", "1:3"]
    message = refusal(lambda: feed.write(counts, mode="update", topic="aggregates"))
    assert "does not support Update mode" in message


def test_bad_columns_and_options_end_a_stream(feed: Feed) -> None:
    """A stream ends with the same errors as a batch."""
    assert "topic option required" in refusal(feed.run)
    assert "value must be a(n) string or binary" in refusal(
        lambda: feed.run("CAST(value AS INT) AS value", topic="t")
    )
    assert "Kafka option 'key.serializer' is not supported" in refusal(
        lambda: feed.run(topic="t", **{"kafka.key.serializer": "S"})
    )


def test_processes_of_the_driver_freeze_no_object(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    """Objects that the user's code replaces can be collected in both processes of a stream."""
    path = str(tmp_path / "frozen")

    class Counting(TailraceDataSource):
        @classmethod
        def name(cls) -> str:
            return "counting"

        def streamWriter(self, schema, overwrite):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N802
            with open(path, "a", encoding="utf-8") as file:
                print(gc.get_freeze_count(), file=file)
            return super().streamWriter(schema, overwrite)

    spark.dataSource.register(Counting)
    for _ in range(2):
        feed.run(topic="counted", name="counting")
        feed.add(6)
    counts = [int(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    assert counts == [0] * 4


def test_messages_tell_which_work_was_done(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    """Query, micro-batch, partition and attempt reach the driver with every task's message.

    An attempt has a number that no other one in the Spark context has.
    """
    path = str(tmp_path / "messages")

    class Watched(TailraceDataSource):
        @classmethod
        def name(cls) -> str:
            return "watched"

        def streamWriter(self, schema, overwrite):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N802
            inner = super().streamWriter(schema, overwrite)

            class Writer(type(inner)):  # type: ignore[misc]
                def commit(self, messages, batchId):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
                    with open(path, "a", encoding="utf-8") as file:
                        for each in messages:
                            seen = each.attempt
                            told = [batchId, seen.query_id, seen.batch_id, seen.partition_id]
                            told += [seen.task_attempt_id, each.row_count]
                            offsets = {str(key): last for key, last in each.last_offsets.items()}
                            print(json.dumps([*told, offsets]), file=file)

            return Writer(inner._options)

    spark.dataSource.register(Watched)
    query = feed.run(topic="seam", name="watched")
    feed.add(6)
    feed.run(topic="seam", name="watched")
    told = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    attempts = [each.pop(4) for each in told]
    assert told == [
        [0, query.id, 0, 0, 5, {"seam-0": 4}],
        [1, query.id, 1, 0, 1, {"seam-0": 5}],
    ]
    assert attempts[0] < attempts[1]
