"""`spark.readStream.format("tailrace")` in a real session: the scenarios of Spark's own suites.

What a reader does by itself is in `tests/unit/spark/test_streaming.py`; here is what needs Spark's
engine: its checkpoint, its triggers, its replays and its progress.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tailrace import Broker, Producer
from tailrace.client.admin import create_topic
from tailrace.model import TopicPartition
from tailrace.spark.pyspark_versions import HAS_READ_LIMITS
from tests.spark.directories import batch_of, write_numbered, write_segment
from tests.unit.records.batches import record_at

pytestmark = pytest.mark.spark

needs_4_2 = pytest.mark.skipif(not HAS_READ_LIMITS, reason="limits per trigger need PySpark 4.2")

T0, T1, T2, U0 = (
    TopicPartition("t", 0),
    TopicPartition("t", 1),
    TopicPartition("t", 2),
    TopicPartition("u", 0),
)

Rows = list[tuple[str, int, int]]


class Sink:
    """Keeps what each attempt at a batch was given; `fails_at` is a batch that does not pass."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, Rows]] = []
        self.task_counts: list[int] = []
        self.fails_at: int | None = None
        self.meanwhile: Any = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Take a batch from Spark."""
        rows = frame.selectExpr("topic", "partition", "offset", "spark_partition_id()").collect()
        self.task_counts.append(len({row[3] for row in rows}))
        self.batches.append((batch_id, sorted(tuple(row[:3]) for row in rows)))
        if self.meanwhile is not None:
            self.meanwhile()
            self.meanwhile = None
        if batch_id == self.fails_at:
            raise RuntimeError("the sink is full")

    def take(self) -> list[Rows]:
        """The batches since the last call that had rows."""
        taken = [rows for _, rows in self.batches if rows]
        self.batches.clear()
        return taken


class Stream:
    """A directory, a checkpoint and a sink; each start is a new query."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        self.data = path / "data"
        self.data.mkdir()
        self.checkpoint = path / "checkpoint"
        self.sink = Sink()

    def load(self, **options: str) -> DataFrame:
        """The DataFrame; topic `t` from its first offset, where the options say nothing else."""
        given = {"startingOffsets": "earliest"} | options
        if "assign" not in given and "subscribePattern" not in given:
            given.setdefault("subscribe", "t")
        return self.spark.readStream.format("tailrace").options(**given).load(str(self.data))

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        """A query from the checkpoint to the sink."""
        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        return writer.foreachBatch(self.sink).trigger(**trigger or {"availableNow": True}).start()

    def run(self, **options: str) -> list[Rows]:
        """The batches of a run with Trigger.AvailableNow."""
        query = self.start(self.load(**options))
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return self.sink.take()

    def failure(self, **options: str) -> str:
        """Return the message of the error that a run ends with."""
        with pytest.raises(StreamingQueryException) as caught:
            self.run(**options)
        return str(caught.value)

    def ends(self) -> list[dict[str, Any]]:
        """The offsets in the checkpoint, batch after batch."""
        files = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda p: int(p.name))
        return [json.loads(path.read_text().splitlines()[2]) for path in files]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """A stream over an empty directory."""
    return Stream(spark, tmp_path)


def span(first: int, limit: int, partition: TopicPartition = T0) -> Rows:
    """Rows of one partition."""
    return [(partition.topic, partition.partition, offset) for offset in range(first, limit)]


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"subscribe": "t", "STARTINGOFFSETS": "latest"}, 20),
        ({"subscribePattern": "t.*", "startingOffsets": "earliest"}, 0),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": 7}}'}, 7),
        ({"subscribe": "t", "startingTimestamp": "13000"}, 13),
    ],
)
def test_a_stopped_stream_goes_on_where_it_was(
    stream: Stream, options: dict[str, str], first: int
) -> None:
    """Records and partitions that came meanwhile are read from their first offset, once."""
    write_numbered(stream.data, T0, limit=20)
    assert stream.run(**options) == [span(first, 20)][: 20 - first]
    write_numbered(stream.data, T0, first=20, limit=30)
    write_numbered(stream.data, T1, limit=5)
    assert stream.run(**options) == [span(20, 30) + span(0, 5, T1)]
    assert stream.run(**options) == []
    assert stream.ends()[-1] == {"t": {"0": 30, "1": 5}}


def test_a_running_stream_sees_records_partitions_and_topics_come_and_go(stream: Stream) -> None:
    """Polled without a pause; a deleted topic of a pattern is skipped with failOnDataLoss=false."""
    frame = stream.load(subscribePattern="[tu]", failOnDataLoss="false")
    query = stream.start(frame, processingTime="0 seconds")
    try:
        steps: list[tuple[TopicPartition, int, int]] = [(T0, 0, 9), (T0, 9, 12), (T1, 0, 3)]
        for partition, first, limit in [*steps, (U0, 0, 4)]:
            write_numbered(stream.data, partition, first=first, limit=limit)
            query.processAllAvailable()
            assert stream.sink.take() == [span(first, limit, partition)]
        shutil.rmtree(stream.data / str(U0))
        write_numbered(stream.data, T0, first=12, limit=15)
        query.processAllAvailable()
        assert stream.sink.take() == [span(12, 15)]
        [source] = query.lastProgress["sources"]
        if HAS_READ_LIMITS:
            latest = json.loads(source["latestOffset"])
            assert json.loads(source["endOffset"]) == latest | {"@gone u 0 4": {}}
        assert sum(each["numInputRows"] for each in query.recentProgress) >= 22
        assert query.exception() is None
    finally:
        query.stop()


@needs_4_2
def test_a_limit_divides_what_is_available_over_batches_and_runs(stream: Stream) -> None:
    """Each run takes a share in proportion to the backlogs; Trigger.Once has no limit."""
    write_numbered(stream.data, T0, limit=101)
    write_numbered(stream.data, T1, limit=11)
    write_numbered(stream.data, T2, limit=1)
    first, *others = stream.run(maxOffsetsPerTrigger="40")
    assert first == span(0, 35) + span(0, 3, T1) + span(0, 1, T2)
    assert [row for rows in others for row in rows if row[1] == 0] == span(35, 101)
    assert sum(map(len, others)) == 113 - 39
    assert 2 <= len(others) <= 3
    write_numbered(stream.data, T0, first=101, limit=190)
    assert list(map(len, stream.run(maxOffsetsPerTrigger="40"))) == [40, 40, 9]
    write_numbered(stream.data, T0, first=190, limit=250)
    query = stream.start(stream.load(maxOffsetsPerTrigger="10"), once=True)
    query.awaitTermination()
    assert stream.sink.take() == [span(190, 250)]


@needs_4_2
def test_a_limit_as_high_as_can_be_is_none(stream: Stream) -> None:
    """`Long.MaxValue` passes through Spark and back."""
    write_numbered(stream.data, T0, limit=20)
    most = str(2**63 - 1)
    assert stream.run(maxOffsetsPerTrigger=most, maxBytesPerTrigger=most) == [span(0, 20)]


@needs_4_2
def test_a_minimum_and_a_maximum_work_together(stream: Stream) -> None:
    """The first batch comes at once, capped; too few records then wait, and enough do not."""
    write_numbered(stream.data, T0, limit=30)
    frame = stream.load(maxOffsetsPerTrigger="20", minOffsetsPerTrigger="15")
    query = stream.start(frame, processingTime="0 seconds")
    try:
        query.processAllAvailable()
        assert stream.sink.take() == [span(0, 20)]
        write_numbered(stream.data, T0, first=30, limit=36)
        query.processAllAvailable()
        assert stream.sink.take() == [span(20, 36)]
        write_numbered(stream.data, T0, first=36, limit=40)
        query.processAllAvailable()
        assert stream.sink.take() == []
    finally:
        query.stop()


def test_a_first_batch_that_failed_is_read_again_as_it_was(stream: Stream) -> None:
    """A first batch that failed begins at "latest" as it was, though Spark does not keep it."""
    write_numbered(stream.data, T0, limit=20)
    stream.sink.fails_at = 0
    stream.sink.meanwhile = lambda: write_numbered(stream.data, T0, first=20, limit=30)
    assert "the sink is full" in stream.failure(startingOffsets='{"t": {"0": 15}}')
    write_numbered(stream.data, T1, limit=5)
    stream.sink.fails_at = None
    # PySpark 4.0 and 4.1 end a run with the batch that had failed.
    again = stream.run(startingOffsets="latest") + stream.run(startingOffsets="latest")
    assert again == [span(15, 20), span(15, 20), span(20, 30) + span(0, 5, T1)]


def test_a_batch_that_failed_is_read_again_as_it_was(stream: Stream) -> None:
    """A failed batch is read again with the same rows, even after new partitions (SPARK-53560)."""
    write_numbered(stream.data, T0, limit=20)
    assert stream.run() == [span(0, 20)]
    write_numbered(stream.data, T0, first=20, limit=30)
    stream.sink.fails_at = 1
    for limit in (40, 50):
        assert "the sink is full" in stream.failure()
        assert stream.sink.batches[-1] == (1, span(20, 30))
        write_numbered(stream.data, T0, first=30, limit=limit)
        write_numbered(stream.data, T1, limit=limit)
    stream.sink.fails_at = None
    stream.sink.batches.clear()
    # PySpark 4.0 and 4.1 end a run with the batch that had failed.
    found = stream.run() if HAS_READ_LIMITS else stream.run() + stream.run()
    assert found == [span(20, 30), span(30, 50) + span(0, 50, T1)]


def test_a_topic_that_was_made_again_fails_the_stream(stream: Stream) -> None:
    """The error says what happened and what to do; doing it skips, and reads what comes."""
    write_numbered(stream.data, T0, limit=20)
    assert stream.run() == [span(0, 20)]
    shutil.rmtree(stream.data / str(T0))
    write_numbered(stream.data, T0, limit=5)
    message = stream.failure()
    assert "[KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED] t-0 was known up to offset 20" in message
    assert "set failOnDataLoss=false" in message
    assert stream.ends() == [{"t": {"0": 20}, "@from": {"t": {"0": 0}}}]
    assert stream.run(failOnDataLoss="false") == []
    write_numbered(stream.data, T0, limit=8)
    assert stream.run() == [span(5, 8)]


@needs_4_2
def test_offsets_that_aged_out_leave_no_duplicates(stream: Stream) -> None:
    """Neither in a stream that runs nor in one that is started late."""
    for first in range(0, 50, 10):
        write_numbered(stream.data, T0, first=first, limit=first + 10)

    def age(*firsts: int) -> None:
        for first in firsts:
            (stream.data / str(T0) / f"{first:020}.log").unlink()

    age(0)
    options = {"maxOffsetsPerTrigger": "5", "failOnDataLoss": "false"}
    stream.sink.meanwhile = lambda: age(10, 20)
    frame = stream.load(**options)
    query = stream.start(frame, processingTime="0 seconds")
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    batches = stream.sink.take()
    assert [row for rows in batches for row in rows] == span(10, 15) + span(30, 50)
    age(30)
    write_numbered(stream.data, T0, first=50, limit=52)
    assert stream.run(**options) == [span(50, 52)]


@needs_4_2
@pytest.mark.parametrize("is_lost", [True, False])
def test_what_is_available_must_stay_so(stream: Stream, *, is_lost: bool) -> None:
    """A partition lost or shrunk during the run fails it, in spite of failOnDataLoss=false."""
    for partition in (T0, T1):
        write_numbered(stream.data, partition, limit=20)

    def shrink() -> None:
        shutil.rmtree(stream.data / str(T1))
        if not is_lost:
            write_numbered(stream.data, T1, limit=3)

    stream.sink.meanwhile = shrink
    message = stream.failure(failOnDataLoss="false", maxOffsetsPerTrigger="20")
    assert "WITH_TRIGGER_AVAILABLENOW] t-1" in message
    assert "run the query again" in message
    assert stream.sink.take() == [span(0, 10) + span(0, 10, T1)]


def test_one_stream_can_be_used_twice_in_a_query(stream: Stream) -> None:
    """United with itself, and joined with itself by offset."""
    write_numbered(stream.data, T0, limit=20)
    frame = stream.load()
    united = stream.start(frame.union(frame.where("offset >= 15")))
    united.awaitTermination()
    assert stream.sink.take() == [sorted(span(0, 20) + span(15, 20))]
    stream.checkpoint = stream.checkpoint.with_name("joined")
    other = frame.select("offset").where("offset % 2 = 0")
    joined = stream.start(frame.join(other, "offset"))
    joined.awaitTermination()
    assert stream.sink.take() == [[row for row in span(0, 20) if row[2] % 2 == 0]]


def test_a_source_without_news_keeps_its_offsets_in_a_union(stream: Stream) -> None:
    """Only the other one reads."""
    write_numbered(stream.data, T0, limit=20)
    write_numbered(stream.data, U0, limit=20)
    frame = stream.load().union(stream.load(subscribe="u"))
    query = stream.start(frame, processingTime="0 seconds")
    try:
        query.processAllAvailable()
        assert stream.sink.take() == [span(0, 20) + span(0, 20, U0)]
        write_numbered(stream.data, U0, first=20, limit=25)
        query.processAllAvailable()
        assert stream.sink.take() == [span(20, 25, U0)]
    finally:
        query.stop()


def test_a_stream_of_nothing_is_empty_batches(stream: Stream) -> None:
    """A topic without records, and a pattern without a topic; both find what comes."""
    (stream.data / str(T0)).mkdir()
    assert stream.run() == []
    assert stream.ends() == [{"t": {"0": 0}, "@from": {"t": {"0": 0}}}]
    write_numbered(stream.data, T0, limit=2)
    assert stream.run() == [span(0, 2)]
    stream.checkpoint = stream.checkpoint.with_name("pattern")
    assert stream.run(subscribePattern="[uv]", startingOffsets="latest") == []
    write_numbered(stream.data, U0, limit=3)
    assert stream.run(subscribePattern="[uv]", startingOffsets="latest") == [span(0, 3, U0)]


def test_tasks_are_packed_and_split_on_request(stream: Stream) -> None:
    """Three small partitions are one task, or as many as minPartitions says."""
    for partition in (T0, T1, T2):
        write_numbered(stream.data, partition, limit=20)
    everything = span(0, 20) + span(0, 20, T1) + span(0, 20, T2)
    assert stream.run() == [everything]
    stream.checkpoint = stream.checkpoint.with_name("split")
    assert stream.run(minPartitions="6") == [everything]
    assert stream.sink.task_counts == [1, 6]


@pytest.mark.smoke
def test_headers_nulls_and_times_come_through(stream: Stream) -> None:
    """A window over the time of the records, and the columns of the Kafka source."""
    records = [
        record_at(0, 1_500, b"k", None, (("h", b"1"), ("h", None))),
        record_at(1, 2_500, None, b"v"),
    ]
    write_segment(stream.data, T0, 0, batch_of(records))
    frame = stream.load(includeHeaders="true")
    assert frame.isStreaming
    counts = frame.withWatermark("timestamp", "1 second").groupBy("headers", "key", "value")
    query = (
        counts.agg({"timestamp": "max"})
        .writeStream.format("memory")
        .queryName("windows")
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = stream.spark.sql("SELECT * FROM windows ORDER BY value").collect()
    assert [(row["key"], row["value"]) for row in found] == [(b"k", None), (None, b"v")]
    assert [(each["key"], each["value"]) for each in found[0]["headers"]] == [
        ("h", b"1"),
        ("h", None),
    ]
    assert found[1]["headers"] is None
    assert found[1]["max(timestamp)"].microsecond == 500_000


def test_faults_are_told_before_the_first_batch(stream: Stream) -> None:
    """Options that only a batch has, names that are none, and a topic that is not there."""
    assert "endingOffsets" in stream.failure(endingOffsets="latest")
    with pytest.raises(PySparkException, match="did you mean maxOffsetsPerTrigger"):
        stream.load(maxOffsetPerTrigger="5")
    assert "topic 't' does not exist; there are: none" in stream.failure()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real broker."""
    with Broker(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.bootstrap_servers


class Brokered(Stream):
    """A stream from a broker's topic."""

    def __init__(self, spark: SparkSession, path: Path, bootstrap: str, topic: str) -> None:
        super().__init__(spark, path)
        self.bootstrap = bootstrap
        self.topic = topic

    def load(self, **options: str) -> DataFrame:
        """The DataFrame, from the first offset if the options say nothing else."""
        given = {"subscribe": self.topic, "startingOffsets": "earliest"} | options
        given["kafka.bootstrap.servers"] = self.bootstrap
        return self.spark.readStream.format("tailrace").options(**given).load()


def send(bootstrap: str, topic: str, *, count: int, value: bytes = b"") -> None:
    """Append records to partition 0, in one batch."""
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": "60000"}) as producer:
        for _ in range(count):
            producer.send(topic, value=value, partition=0)
        producer.flush()


@pytest.mark.smoke
@pytest.mark.wire
def test_a_broker_is_streamed_like_a_directory(
    spark: SparkSession, tmp_path: Path, bootstrap: str
) -> None:
    """Stopped, started, and running while records come."""
    create_topic(bootstrap, "orders", partition_count=2)
    stream = Brokered(spark, tmp_path, bootstrap, "orders")
    orders = TopicPartition("orders", 0)
    send(bootstrap, "orders", count=100)
    assert stream.run() == [span(0, 100, orders)]
    send(bootstrap, "orders", count=50)
    assert stream.run() == [span(100, 150, orders)]
    query = stream.start(stream.load(), processingTime="0 seconds")
    try:
        for first in (150, 160):
            send(bootstrap, "orders", count=10)
            query.processAllAvailable()
            assert stream.sink.take() == [span(first, first + 10, orders)]
        [source] = query.lastProgress["sources"]
        if HAS_READ_LIMITS:
            latest = json.loads(source["latestOffset"])
            assert latest["orders"] == {"0": 170, "1": 0}
            assert json.loads(source["endOffset"]) == latest
    finally:
        query.stop()


@needs_4_2
@pytest.mark.wire
def test_a_limit_divides_what_a_broker_has(
    spark: SparkSession, tmp_path: Path, bootstrap: str
) -> None:
    """Also in the second run, which takes the end of the first from the checkpoint."""
    create_topic(bootstrap, "limited", partition_count=2)
    stream = Brokered(spark, tmp_path, bootstrap, "limited")
    limited = TopicPartition("limited", 0)
    for first in (0, 50):
        send(bootstrap, "limited", count=50)
        assert stream.run(maxOffsetsPerTrigger="40") == [
            span(first, first + 40, limited),
            span(first + 40, first + 50, limited),
        ]


@needs_4_2
@pytest.mark.wire
def test_the_bytes_of_a_broker_are_estimated(
    spark: SparkSession, tmp_path: Path, bootstrap: str
) -> None:
    """The estimate comes from a batch: 100 records of 1,000 bytes, 20,000 bytes at a time."""
    create_topic(bootstrap, "sizes", partition_count=1)
    stream = Brokered(spark, tmp_path, bootstrap, "sizes")
    send(bootstrap, "sizes", count=100, value=bytes(1_000))
    batches = stream.run(maxBytesPerTrigger="20000")
    assert [row for rows in batches for row in rows] == span(0, 100, TopicPartition("sizes", 0))
    assert [len(rows) for rows in batches[:-1]] == [19] * 5
    assert stream.run(maxBytesPerTrigger="20000") == []


@pytest.mark.wire
def test_the_directory_of_a_running_broker_is_streamed(stream: Stream) -> None:
    """A stream reads the files while the broker appends to them."""
    with Broker(stream.data) as broker:
        create_topic(broker.bootstrap_servers, "t", partition_count=1)
        query = stream.start(stream.load(), processingTime="0 seconds")
        try:
            for first in range(0, 30, 10):
                send(broker.bootstrap_servers, "t", count=10)
                query.processAllAvailable()
                assert stream.sink.take() == [span(first, first + 10)]
        finally:
            query.stop()
