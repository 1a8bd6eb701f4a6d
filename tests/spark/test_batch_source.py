"""`spark.read.format("tailrace")` in a real session, found without any registration."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark import __version__
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tailrace import Broker
from tailrace.model import Codec, TopicPartition
from tests.spark.directories import batch_of, numbered, write_numbered, write_segment
from tests.unit.records.batches import record_at

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory: `t` with 300 and 50 records, `other` with one that has headers."""
    directory = tmp_path_factory.mktemp("data")
    write_numbered(directory, TopicPartition("t", 0), limit=200)
    write_numbered(directory, TopicPartition("t", 0), first=200, limit=300)
    write_numbered(directory, TopicPartition("t", 1), limit=50)
    record = record_at(0, 1_700_000_000_123, b"k", None, (("h", b"1"),))
    write_segment(directory, TopicPartition("other", 0), 0, batch_of([record]))
    return directory


def load(spark: SparkSession, data: Path, **options: str) -> DataFrame:
    """A DataFrame of the directory."""
    return spark.read.format("tailrace").options(**options).load(str(data))


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    """Partition and offset of each row, sorted."""
    rows = frame.select("partition", "offset").collect()
    return sorted((row["partition"], row["offset"]) for row in rows)


@pytest.mark.smoke
def test_rows_are_what_was_written(spark: SparkSession, data: Path) -> None:
    """Every record is one row, with its own key, value and time."""
    frame = load(spark, data, subscribe="t")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    rows = frame.collect()
    assert len(rows) == 350
    for row in rows:
        assert bytes(row["key"]) == b"key-%d" % row["offset"]
        assert bytes(row["value"]) == b"value-%d" % row["offset"]
        assert (row["topic"], row["timestampType"]) == ("t", 0)
    assert frame.where("unix_millis(timestamp) <> offset * 1000").count() == 0


@pytest.mark.smoke
def test_headers_come_on_request(spark: SparkSession, data: Path) -> None:
    """Headers are read with null values; the timestamps keep their milliseconds."""
    frame = load(spark, data, subscribe="other", includeHeaders="true")
    [row] = frame.selectExpr("*", "unix_millis(timestamp) AS time").collect()
    assert row["value"] is None
    assert row["time"] == 1_700_000_000_123
    assert [(each["key"], bytes(each["value"])) for each in row["headers"]] == [("h", b"1")]


@pytest.mark.smoke
def test_a_choice_of_columns_is_read(spark: SparkSession, data: Path) -> None:
    """A schema by the user, in an order of its own."""
    reader = spark.read.format("tailrace").schema("offset BIGINT, topic STRING")
    frame = reader.option("subscribePattern", "t|oth.*").load(str(data))
    assert frame.columns == ["offset", "topic"]
    assert frame.groupBy("topic").count().orderBy("topic").collect() == [("other", 1), ("t", 350)]


@pytest.mark.smoke
def test_partitions_and_offsets_can_be_named(spark: SparkSession, data: Path) -> None:
    """`assign` with offsets as JSON, in Spark's shape."""
    frame = load(
        spark,
        data,
        assign='{"t": [0, 1]}',
        startingOffsets='{"t": {"0": 195, "1": -2}}',
        endingOffsets='{"t": {"0": 205, "1": 3}}',
        minPartitions="3",
    )
    assert offsets(frame) == [*((0, n) for n in range(195, 205)), *((1, n) for n in range(3))]


@pytest.mark.smoke
def test_frames_can_be_united_limited_and_used_again(spark: SparkSession, data: Path) -> None:
    """One DataFrame works in several queries, also filtered in two ways in one."""
    frame = load(spark, data, subscribe="t")
    assert frame.count() == 350
    first, second = frame.where("partition = 0"), frame.where("partition = 1")
    assert (first.count(), second.count()) == (300, 50)
    assert first.union(second).count() == 350
    assert load(spark, data, assign='{"t": [1]}').union(frame).count() == 400
    assert len(frame.limit(5).collect()) == 5
    assert frame.limit(7).count() == 7


@pytest.mark.skipif(__version__.startswith("4.0."), reason="Spark 4.0 plans each query anew")
def test_what_is_appended_later_needs_a_new_load(spark: SparkSession, tmp_path: Path) -> None:
    """A DataFrame keeps to what it has seen first."""
    write_numbered(tmp_path, TopicPartition("t", 0), limit=20)
    frame = load(spark, tmp_path, subscribe="t")
    assert frame.count() == 20
    write_numbered(tmp_path, TopicPartition("t", 0), first=20, limit=30)
    assert frame.count() == 20
    assert load(spark, tmp_path, subscribe="t").count() == 30


@pytest.mark.smoke
def test_no_records_are_no_rows(spark: SparkSession, data: Path) -> None:
    """An empty plan is an empty DataFrame."""
    assert load(spark, data, subscribePattern="nothing").count() == 0


def test_a_view_in_sql_reads_the_same(spark: SparkSession, data: Path) -> None:
    """A view that is created by `USING tailrace` with options has the same rows."""
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING tailrace OPTIONS (path '{data}', subscribe 't')"
    )
    assert spark.sql("SELECT max(offset) FROM v WHERE partition = 1").collect() == [(49,)]


@pytest.mark.smoke
def test_faults_reach_the_user_together(spark: SparkSession, data: Path) -> None:
    """Every fault of the options is in the message of `load()`."""
    with pytest.raises(PySparkException) as caught:
        load(spark, data, subscripe="t", minPartitions="none")
    message = str(caught.value)
    assert "did you mean subscribe?" in message
    assert "minPartitions: 'none' is not a whole number" in message


def test_a_missing_topic_is_named_with_those_that_exist(spark: SparkSession, data: Path) -> None:
    """Planning fails before any task starts, with a sentence, and no traceback of this package."""
    with pytest.raises(PySparkException) as caught:
        load(spark, data, subscribe="x").count()
    message = str(caught.value)
    assert "topic 'x' does not exist; there are: other, t" in message
    assert len(message.splitlines()) < 8


@pytest.mark.smoke
def test_damage_fails_the_query_and_names_the_file(spark: SparkSession, tmp_path: Path) -> None:
    """The job ends with the file, the position and the offset; no row of the batch comes out."""
    path = write_numbered(tmp_path, TopicPartition("t", 0), limit=30)
    content = bytearray(path.read_bytes())
    position = content.index(batch_of(numbered(10, 20)))
    content[position + 100] ^= 4
    path.write_bytes(content)
    with pytest.raises(PySparkException) as caught:
        load(spark, tmp_path, subscribe="t").collect()
    assert f"{path}, position {position}, offset 10: " in str(caught.value)
    assert "CRC-32C" in str(caught.value)


def test_a_batch_that_is_too_large_is_read_with_the_option(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A batch of more than 128 MiB fails the query, and the error says what to set."""
    large = batch_of([record_at(n, 0, None, bytes(1 << 20)) for n in range(130)], codec=Codec.ZSTD)
    assert len(large) < 100_000
    write_segment(tmp_path, TopicPartition("t", 0), 0, large)
    with pytest.raises(PySparkException, match=r"maxDecompressedBatchBytes of the Spark source"):
        load(spark, tmp_path, subscribe="t").count()
    frame = load(spark, tmp_path, subscribe="t", maxDecompressedBatchBytes=str(256 << 20))
    [(count, size)] = frame.selectExpr("count(*)", "sum(length(value))").collect()
    assert (count, size) == (130, 130 << 20)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose topic `t` has 1000 records."""
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(1000):
            producer.produce(
                "t", b"%d" % number, key=b"k", partition=0, headers=[("h", b"%d" % number)]
            )
        producer.flush(60)
        yield broker.bootstrap_servers


@pytest.mark.smoke
@pytest.mark.wire
def test_a_broker_is_read_like_a_directory(spark: SparkSession, bootstrap: str) -> None:
    """The same options work with `kafka.bootstrap.servers` in place of a path."""
    reader = spark.read.format("tailrace").options(
        **{"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true", "minPartitions": "2"}
    )
    whole = reader.option("assign", '{"t": [0]}').load()
    rows = whole.orderBy("offset").collect()
    assert [int(bytes(row["value"])) for row in rows] == list(range(1000))
    assert [int(bytes(row["headers"][0]["value"])) for row in rows] == list(range(1000))
    part = reader.option("startingOffsets", '{"t": {"0": 990}}').load()
    assert part.count() == 10


@pytest.mark.wire
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_broker_and_its_directory_agree(spark: SparkSession, tmp_path: Path, level: str) -> None:
    """Reads of both give the same rows at either isolation level."""
    with Broker(tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(20):
            producer.produce("t", b"%d" % number, partition=0)
        producer.flush()
        asked = {"kafka.isolation.level": level, "assign": '{"t": [0]}'}
        reader = spark.read.format("tailrace").options(**asked)
        expected = [(0, offset) for offset in range(20)]
        assert offsets(reader.load(str(tmp_path / "data"))) == expected
        of_broker = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers)
        assert offsets(of_broker.load()) == expected


def test_a_broker_that_is_not_there_is_named(spark: SparkSession) -> None:
    """The message has HOST:PORT and what to check."""
    reader = spark.read.format("tailrace").option("kafka.bootstrap.servers", "127.0.0.1:1")
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:1.*is a broker running"):
        reader.option("subscribe", "t").load().count()


def test_tasks_run_in_our_daemon(spark: SparkSession) -> None:
    """`session` has the workers of tasks start from it, also those of the user's functions."""

    def mains(_: object) -> list[tuple[str]]:
        return [(sys.modules["__main__"].__spec__.name,)]  # type: ignore[union-attr]

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(mains).collect() == [
        ("tailrace.spark.daemon",)
    ]
