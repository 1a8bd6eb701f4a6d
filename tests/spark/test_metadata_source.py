"""`spark.read.format("tailrace-metadata")` in a real session, found without any registration."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.cluster.image import Topic
from tailrace.runtime.files import DiskFiles
from tests.kraft import DIRECTORY as KRAFT
from tests.unit.cluster.metadata_logs import save_topics

pytestmark = pytest.mark.spark


@pytest.mark.smoke
def test_records_of_kafka_are_rows(spark: SparkSession) -> None:
    """Every record of Kafka's log, with its fields as JSON that Spark can read."""
    frame = spark.read.format("tailrace-metadata").load(str(KRAFT))
    assert frame.schema.simpleString() == (
        "struct<offset:bigint,timestamp:timestamp,epoch:int,type:string,version:int,"
        "record:string,source:string>"
    )
    rows = frame.orderBy("offset").collect()
    assert rows[0]["type"] == "LeaderChange"
    assert [each["offset"] for each in rows] == list(range(len(rows)))
    assert all(json.loads(each["record"]) is not None for each in rows)
    named = frame.where("type = 'Topic'").selectExpr("get_json_object(record, '$.name') AS name")
    assert {each["name"] for each in named.collect()} >= {"events", "other"}
    chosen = spark.read.format("tailrace-metadata").schema("type STRING, offset BIGINT")
    assert chosen.load(str(KRAFT)).first() == ("LeaderChange", 0)


def test_states_of_kafka_are_typed_columns(spark: SparkSession) -> None:
    """Every view can be read, and partitions join with topics."""
    reader = spark.read.format("tailrace-metadata")
    for view in ("snapshots", "configs", "brokers", "features", "users", "acls", "quotas"):
        frame = reader.option("view", view).load(str(KRAFT))
        assert len(frame.collect()) == frame.count()
    topics = reader.option("view", "topics").load(str(KRAFT))
    partitions = reader.option("view", "partitions").load(str(KRAFT))
    counts = partitions.groupBy("topic").count().join(topics, "topic")
    assert counts.where("count = partitions").count() == topics.count() == 3
    assert partitions.where("array_contains(replicas, 1)").count() == partitions.count()
    before = reader.option("view", "topics").option("at", "10").load(str(KRAFT))
    assert before.count() == 0


def test_a_log_of_our_broker_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Its topics and their settings."""
    topic = Topic(
        name="flights", topic_id=UUID(int=7), partitions=(0, 1), configs={"retention.ms": "5"}
    )
    save_topics(DiskFiles(), topic, directory=str(tmp_path))
    reader = spark.read.format("tailrace-metadata")
    assert reader.option("view", "topics").load(str(tmp_path)).first()["partitions"] == 2
    settings = reader.option("view", "configs").load(str(tmp_path)).where("resource = 'flights'")
    assert settings.select("name", "value").collect() == [("retention.ms", "5")]


def test_faults_reach_the_user(spark: SparkSession, tmp_path: Path) -> None:
    """A wrong option, and a directory without the log."""
    reader = spark.read.format("tailrace-metadata")
    with pytest.raises(PySparkException, match=r"view: 'topic' is not one of records"):
        reader.option("view", "topic").load(str(KRAFT)).count()
    with pytest.raises(PySparkException, match="has no folder __cluster_metadata-0"):
        reader.option("view", "topics").load(str(tmp_path)).count()
