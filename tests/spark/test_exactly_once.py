"""Exactly-once delivery with real Spark: streams that fail and start again, and batch writes."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tailrace import Admin, Broker, Producer
from tailrace.client.admin import create_topic
from tailrace.model import TopicPartition
from tailrace.spark.sink.checkpoint import Checkpoint
from tests.spark.topics import committed

pytestmark = [pytest.mark.spark, pytest.mark.wire]

SETTINGS = {"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with transactions."""
    with Broker(tmp_path_factory.mktemp("broker") / "data", settings=SETTINGS) as broker:
        yield broker.bootstrap_servers


def seen(bootstrap: str, topic: str) -> list[str]:
    """The values that readers of committed records see, partition after partition."""
    return [(each.value or b"").decode() for each in committed(bootstrap, topic)]


class Copy:
    """A stream from one topic into another one, whose rows may be made to fail."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._name = folder.name
        self.checkpoint = folder / "checkpoint"
        self._sent = 0
        for topic in ("in", "out"):
            create_topic(bootstrap, f"{self._name}-{topic}", partition_count=2)

    def feed(self, count: int) -> None:
        """Send the next records."""
        with Producer({"bootstrap.servers": self._bootstrap}) as producer:
            for number in range(self._sent, self._sent + count):
                producer.send(f"{self._name}-in", b"%d" % number, key=b"%d" % number)
        self._sent += count

    def start(
        self, *, fails_at: str = "", group: str | None = None, **options: str
    ) -> StreamingQuery:
        """Start it; with `fails_at` a task that has a row of this value fails for good."""
        source = {
            "kafka.bootstrap.servers": self._bootstrap,
            "subscribe": f"{self._name}-in",
            "startingOffsets": "earliest",
            "minPartitions": "2",
        }
        if group is not None:
            source["groupId"] = group
        rows = self._spark.readStream.format("tailrace").options(**source).load()
        if fails_at:
            value = f"IF(CAST(value AS STRING) = '{fails_at}', raise_error('planned'), value)"
            rows = rows.selectExpr("key", f"{value} AS value")
        return (
            rows.select("key", "value")
            .writeStream.format("tailrace")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("topic", f"{self._name}-out")
            .option("delivery", "exactly-once")
            .option("checkpointLocation", str(self.checkpoint))
            .options(**options)
            .start()
        )

    def run(self, *, group: str | None = None, **options: str) -> None:
        """Copy all that is there."""
        query = self.start(group=group, **options)
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def fail(self, value: str, *, group: str | None = None) -> None:
        """Run it until a row fails it."""
        query = self.start(fails_at=value, group=group)
        with pytest.raises(StreamingQueryException, match="planned"):
            query.processAllAvailable()

    def check(self) -> None:
        """All records are there once, in the order of each key, and nothing is left open."""
        found = seen(self._bootstrap, f"{self._name}-out")
        assert sorted(found, key=int) == [str(number) for number in range(self._sent)]

    def forget_commits(self) -> str:
        """Make it look as if the driver had died before Spark noted the last batch."""
        newest = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda each: int(each.name))
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink()
        return newest.name

    def promised(self) -> dict[str, object]:
        """The newest record of commits."""
        newest = max((self.checkpoint / "tailrace-commits").glob("*.json"))
        return json.loads(newest.read_text())  # type: ignore[no-any-return]


@pytest.fixture
def copy(
    spark: SparkSession, bootstrap: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Copy:
    """A copy with topics of its own."""
    folder = tmp_path / request.node.name.replace("_", "-")[:60]
    folder.mkdir()
    return Copy(spark, bootstrap, folder)


def test_a_stream_that_fails_and_starts_again_writes_each_row_once(copy: Copy) -> None:
    """The other task of the failed batch had written its rows, which nobody sees."""
    copy.feed(300)
    copy.run()
    copy.feed(300)
    copy.fail("444")
    copy.run()
    copy.check()


@pytest.mark.smoke
def test_a_batch_that_spark_runs_again_is_not_written_again(copy: Copy) -> None:
    """Spark has not noted the batch, but its record of commits is there, so it is done."""
    copy.feed(200)
    copy.run()
    batch = copy.forget_commits()
    promised = copy.promised()
    copy.run()
    assert copy.promised() == promised
    assert (copy.checkpoint / "commits" / batch).exists()
    copy.check()


def test_a_batch_without_its_record_is_written_anew(copy: Copy, bootstrap: str) -> None:
    """Transactions that a dead driver left open are aborted, and readers wait no longer for it."""
    copy.feed(100)
    copy.run()
    copy.feed(100)
    topic = f"{copy.checkpoint.parent.name}-out"
    query = json.loads((copy.checkpoint / "metadata").read_text())["id"]
    for slot in (0, 7):
        settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"tailrace-{query}-{slot}-0",
        }
        with Producer(settings) as producer:
            producer.begin_transaction()
            producer.send(topic, b"left behind")
            assert producer.prepare_transaction() is not None
    copy.run()
    copy.check()


def test_transactions_that_the_broker_has_aborted_are_written_again(
    copy: Copy, bootstrap: str
) -> None:
    """The record of commits has promised them, and the log says that they are aborted."""
    copy.feed(100)
    copy.run()
    batch = copy.forget_commits()
    topic = f"{copy.checkpoint.parent.name}-out"
    # The same state as if they had expired: their rows are only in aborted transactions.
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_topics([topic]).results()
        create_topic(bootstrap, topic, partition_count=2)
        ledger = Checkpoint(str(copy.checkpoint)).ledger()
        record = ledger.newest()
        assert record is not None
        lost = {}
        for number, slot in record.slots.items():
            settings = {"bootstrap.servers": bootstrap, "transactional.id": f"lost-{number}"}
            with Producer(settings) as producer:
                producer.begin_transaction()
                offset = producer.send(topic, b"lost", partition=0).result().offset
                transaction = producer.prepare_transaction()
            assert transaction is not None
            admin.end_transactions([transaction], commit=False).results()
            offsets = {TopicPartition(topic, 0): offset}
            lost[number] = replace(slot, transaction=transaction, last_offsets=offsets)
        ledger.write(replace(record, slots=lost))
    assert batch == "0"
    copy.run()
    copy.check()


def test_the_groups_position_is_that_of_the_output(copy: Copy, bootstrap: str) -> None:
    """It is committed with the batch: one that fails moves neither, and no lag is left."""
    copy.feed(100)
    copy.run(group="copying")

    def position() -> int:
        with Admin(bootstrap_servers=bootstrap) as admin:
            found = admin.list_group_offsets("copying").results()
        return sum(each.offset for each in found.values())

    assert position() == 100
    copy.feed(100)
    copy.fail("150", group="copying")
    assert position() == 100
    copy.run(group="copying")
    assert position() == 200
    copy.check()


def test_a_checkpoint_that_was_put_back_is_refused(copy: Copy, tmp_path: Path) -> None:
    """The record of commits is newer than the batches that Spark knows."""
    copy.feed(50)
    copy.run()
    kept = tmp_path / "kept"
    shutil.copytree(copy.checkpoint, kept)
    copy.feed(50)
    copy.run()
    for name in ("offsets", "commits"):
        shutil.rmtree(copy.checkpoint / name)
        shutil.copytree(kept / name, copy.checkpoint / name)
    query = copy.start()
    (copy.checkpoint / "commits" / "0").unlink()
    with pytest.raises(StreamingQueryException, match="put back to an earlier state"):
        query.processAllAvailable()


def test_a_checkpoint_of_a_backup_is_refused(copy: Copy, bootstrap: str) -> None:
    """With its record of commits: the cluster has seen a later batch. The user may go on once."""
    copy.feed(100)
    copy.run()
    kept = copy.checkpoint.with_name("kept")
    shutil.copytree(copy.checkpoint, kept)
    copy.feed(50)
    copy.run()
    shutil.rmtree(copy.checkpoint)
    shutil.copytree(kept, copy.checkpoint)
    query = copy.start()
    with pytest.raises(StreamingQueryException, match="put back to an earlier") as caught:
        query.processAllAvailable()
    copy.check()
    named = re.search(r"acceptOlderCheckpoint', '(\d+:\d+)'", str(caught.value))
    assert named is not None
    copy.run(acceptOlderCheckpoint=named[1])
    copy.feed(50)
    copy.run()
    found = seen(bootstrap, f"{copy.checkpoint.parent.name}-out")
    assert len(found) == 250
    assert len(set(found)) == 200


def write_numbers(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    *,
    value: str = "CAST(id AS STRING)",
    **options: str,
) -> None:
    """A batch of two tasks into a topic."""
    (
        spark.range(0, 100, 1, 2)
        .selectExpr(f"{value} AS value", "CAST(id AS STRING) AS key")
        .write.format("tailrace")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .options(delivery="exactly-once", **options)
        .mode("append")
        .save()
    )


@pytest.mark.smoke
def test_a_batch_is_visible_as_a_whole_or_not_at_all(spark: SparkSession, bootstrap: str) -> None:
    """A job that fails leaves nothing that readers see, and nothing that they wait for."""
    create_topic(bootstrap, "whole", partition_count=3)
    broken = "IF(id = 77, raise_error('planned'), CAST(id AS STRING))"
    with pytest.raises(PySparkException, match="planned"):
        write_numbers(spark, bootstrap, "whole", value=broken)
    assert seen(bootstrap, "whole") == []
    write_numbers(spark, bootstrap, "whole")
    assert sorted(map(int, seen(bootstrap, "whole"))) == list(range(100))


@pytest.mark.smoke
def test_a_version_of_a_job_is_written_once(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """Again: nothing, whatever its rows; a later one is added, a lower one refused.

    So is another directory, which does not know what was written.
    """
    create_topic(bootstrap, "versions", partition_count=3)
    options = {"txnAppId": "nightly", "checkpointLocation": tmp_path.as_uri()}

    def write(version: int, value: str) -> None:
        write_numbers(spark, bootstrap, "versions", value=value, txnVersion=f"{version}", **options)

    write(20261127, "CAST(id AS STRING)")
    write(20261127, "CAST(id + 300 AS STRING)")
    write(20261201, "CAST(id + 100 AS STRING)")
    with pytest.raises(PySparkException, match="txnVersion 20261130 is lower than 20261201"):
        write(20261130, "CAST(id + 200 AS STRING)")
    options["checkpointLocation"] = f"{tmp_path.as_uri()}/other"
    with pytest.raises(PySparkException, match="has seen later ones of 'nightly'"):
        write(20261201, "CAST(id + 100 AS STRING)")
    assert sorted(map(int, seen(bootstrap, "versions"))) == list(range(200))


def test_a_version_that_fails_is_written_by_its_next_run(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """Nothing of the first run is visible, and what a task of it has left open is aborted."""
    create_topic(bootstrap, "failing", partition_count=3)
    options = {"txnAppId": "failing", "checkpointLocation": str(tmp_path), "txnVersion": "1"}
    broken = "IF(id = 77, raise_error('planned'), CAST(id AS STRING))"
    with pytest.raises(PySparkException, match="planned"):
        write_numbers(spark, bootstrap, "failing", value=broken, **options)
    write_numbers(spark, bootstrap, "failing", **options)
    assert sorted(map(int, seen(bootstrap, "failing"))) == list(range(100))


def test_foreach_batch_writes_each_micro_batch_once(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """The batch id is the version, so a micro-batch that Spark runs again is not written again."""
    create_topic(bootstrap, "each", partition_count=2)
    (tmp_path / "input").mkdir()
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "topic": "each",
        "delivery": "exactly-once",
        "txnAppId": "each",
        "checkpointLocation": f"{tmp_path}/checkpoint/each",
    }
    told = []

    def write(rows: DataFrame, batch_id: int) -> None:
        told.append(batch_id)
        writer = rows.write.format("tailrace").options(**options)
        writer.option("txnVersion", batch_id).mode("append").save()

    def run() -> None:
        (
            spark.readStream.text(f"{tmp_path}/input")
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", f"{tmp_path}/checkpoint")
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    for number in range(2):
        (tmp_path / "input" / f"{number}.txt").write_text(f"{number}\n")
        run()
    commits = tmp_path / "checkpoint" / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink()
    run()
    assert told == [0, 1, 1]
    assert sorted(seen(bootstrap, "each")) == ["0", "1"]


def test_what_a_delivery_needs_is_told_before_a_job_starts(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """An unknown delivery, acks of 1, a checkpoint that is not given."""

    def refusal(start: Callable[[], object]) -> str:
        with pytest.raises(PySparkException) as caught:
            start()
        return str(caught.value)

    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value").write.format("tailrace")
    named = rows.option("kafka.bootstrap.servers", bootstrap).option("topic", "t").mode("append")
    message = refusal(named.option("delivery", "once").save)
    assert "delivery: 'once' is not one of at-least-once, exactly-once" in message
    named.option("delivery", "exactly-once")
    assert "acks" in refusal(named.option("kafka.acks", "1").save)
    stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    query = (
        stream.writeStream.format("tailrace")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "t")
        .option("delivery", "exactly-once")
    )
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "by-setting"))
    try:
        with pytest.raises(StreamingQueryException, match=r"option\('checkpointLocation'"):
            query.start().processAllAvailable()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
