"""Tests of options in a real session that Spark's own source lacks, and of refusals of both."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tailrace.model import TopicPartition
from tailrace.runtime.files import DiskFiles
from tests.spark.directories import batch_of, numbered, write_numbered
from tests.unit.runtime.object_store import BUCKET, object_store
from tests.unit.storage.builders import FOLDER, open_at
from tests.unit.storage.transactional import TransactionalProducer, append_plain

pytestmark = pytest.mark.spark

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def load(spark: SparkSession, *paths: object, **options: str) -> DataFrame:
    """A DataFrame of topic `t` in one directory, or in several."""
    reader = spark.read.format("tailrace").options(**({"subscribe": "t"} | options))
    return reader.load([str(path) for path in paths] if len(paths) > 1 else str(paths[0]))


def offsets(frame: DataFrame) -> list[int]:
    """The offsets of all rows, sorted."""
    return sorted(row["offset"] for row in frame.select("offset").collect())


@pytest.mark.smoke
def test_metadata_columns_come_with_an_option_or_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    """All with `includeMetadata`, some with `columns` or a schema; types are as declared."""
    path = write_numbered(tmp_path, T0, limit=20)
    frame = load(spark, tmp_path, includeMetadata="true")
    assert frame.schema.simpleString().endswith(
        "timestampType:int,codec:string,producerId:bigint,producerEpoch:int,sequence:int,"
        "leaderEpoch:int,isTransactional:boolean,file:string,position:bigint>"
    )
    second = len(batch_of(numbered(0, 10)))
    found = frame.where("offset = 12").select("codec", "sequence", "isTransactional", "position")
    assert found.collect() == [("none", -1, False, second)]
    chosen = load(spark, tmp_path, columns="position,file").distinct().orderBy("position")
    assert chosen.collect() == [(0, str(path)), (second, str(path))]
    by_schema = spark.read.format("tailrace").schema("codec STRING, offset BIGINT")
    assert by_schema.option("subscribe", "t").load(str(tmp_path)).where("codec = 'none'").count()


@pytest.mark.smoke
def test_several_directories_are_loaded_as_one(spark: SparkSession, tmp_path: Path) -> None:
    """`load(["a", "b"])`; a partition in both is refused with both names."""
    first, second = tmp_path / "a", tmp_path / "b"
    write_numbered(first, T0, limit=10)
    write_numbered(second, T1, first=10, limit=20)
    assert offsets(load(spark, first, second)) == list(range(20))
    write_numbered(second, T0, limit=10)
    with pytest.raises(PySparkException, match=f"t-0 is in {first} and in {second}"):
        load(spark, first, second).count()


def test_an_object_store_is_loaded_by_its_uri(spark: SparkSession, tmp_path: Path) -> None:
    """Planned on the driver and read in the workers, over HTTP."""
    path = write_numbered(tmp_path, T0, limit=300)
    with object_store({f"data/t-0/{path.name}": path.read_bytes()}) as query:
        uri = f"s3://key:secret@{BUCKET}/data?{query}"
        frame = load(spark, uri, minPartitions="3")
        assert offsets(frame) == list(range(300))
        assert frame.where("cast(value AS string) <> concat('value-', offset)").count() == 0


@pytest.mark.smoke
def test_records_per_task_are_capped(spark: SparkSession, tmp_path: Path) -> None:
    """`maxRecordsPerPartition`, as Spark's tasks show it."""
    write_numbered(tmp_path, T0, limit=100)
    frame = load(spark, tmp_path, maxRecordsPerPartition="30")
    by_task = frame.selectExpr("spark_partition_id() AS task").groupBy("task").count()
    assert sorted(row["count"] for row in by_task.collect()) == [10, 30, 30, 30]


@pytest.mark.smoke
def test_only_committed_records_are_read_if_that_is_asked_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aborted transaction and an open one, in a directory with no broker."""
    monkeypatch.chdir(tmp_path)
    log = open_at(DiskFiles())
    append_plain(log, 2)
    producer = TransactionalProducer(log, 7)
    producer.append(3)
    producer.abort()
    producer.append(1)
    producer.commit()
    producer.append(1)
    data = (tmp_path / FOLDER).parent
    committed = {"subscribe": "flights", "kafka.isolation.level": "read_committed"}
    assert offsets(load(spark, data, **committed)) == [0, 1, 6]
    assert offsets(load(spark, data, subscribe="flights")) == [0, 1, 2, 3, 4, 6, 8]


@pytest.mark.smoke
def test_damage_is_skipped_on_request_and_reported(spark: SparkSession, tmp_path: Path) -> None:
    """The rows around it come out, and a JSON file says what did not; Spark can read it."""
    path = write_numbered(tmp_path / "data", T0, limit=50)
    content = bytearray(path.read_bytes())
    content[content.index(batch_of(numbered(20, 30))) + 100] ^= 4
    path.write_bytes(content)
    report = tmp_path / "report"
    frame = load(spark, tmp_path / "data", onCorruption="skip", corruptionReport=str(report))
    assert offsets(frame) == [*range(20), *range(30, 50)]
    [told] = spark.read.json(str(report)).collect()
    assert (told["topic"], told["partition"], told["file"]) == ("t", 0, str(path))
    assert (told["first_offset"], told["next_offset"]) == (20, 30)


def test_a_segment_that_goes_between_plan_and_task_is_noticed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A DataFrame that is collected again reads by the plan of the first time."""
    first = write_numbered(tmp_path, T0, limit=50)
    write_numbered(tmp_path, T0, first=50, limit=80)
    strict = load(spark, tmp_path)
    lenient = load(spark, tmp_path, failOnDataLoss="false")
    # `count` would be planned anew by PySpark 4.0.
    assert (len(strict.collect()), len(lenient.collect())) == (80, 80)
    first.unlink()
    with pytest.raises(PySparkException, match=r"KAFKA_DATA_LOSS\.COULD_NOT_READ_OFFSET_RANGE"):
        strict.collect()
    assert sorted(row["offset"] for row in lenient.collect()) == list(range(50, 80))


def test_times_and_offsets_can_be_mixed(spark: SparkSession, tmp_path: Path) -> None:
    """Either end by either; a time for all goes before times by partition, those before offsets."""
    write_numbered(tmp_path, T0, limit=100)
    times = {"starting": '{"t": {"0": 20000}}', "ending": '{"t": {"0": 60000}}'}
    numbers = {"starting": '{"t": {"0": 5}}', "ending": '{"t": {"0": 50}}'}
    for options, expected in (
        ({"startingOffsetsByTimestamp": times["starting"]}, range(20, 100)),
        ({"endingOffsetsByTimestamp": times["ending"]}, range(60)),
        ({"startingTimestamp": "20000", "endingTimestamp": "60000"}, range(20, 60)),
        (
            {"startingTimestamp": "20000", "endingOffsets": numbers["ending"]},
            range(20, 50),
        ),
        (
            {"startingOffsets": numbers["starting"], "endingTimestamp": "60000"},
            range(5, 60),
        ),
        (
            {
                "startingOffsets": numbers["starting"],
                "startingOffsetsByTimestamp": times["starting"],
                "startingTimestamp": "40000",
                "endingOffsets": numbers["ending"],
                "endingOffsetsByTimestamp": times["ending"],
            },
            range(40, 60),
        ),
    ):
        assert offsets(load(spark, tmp_path, **options)) == list(expected)
    with pytest.raises(PySparkException, match="t-0 has no record from 999999999 ms on"):
        load(spark, tmp_path, startingTimestamp="999999999").count()
    assert load(spark, tmp_path, endingTimestamp="999999999").count() == 100


def test_more_tasks_than_partitions_read_new_data_too(spark: SparkSession, tmp_path: Path) -> None:
    """`minPartitions` over three partitions, and once more after an append."""
    for number in range(3):
        write_numbered(tmp_path, TopicPartition("t", number), limit=20)
    frame = load(spark, tmp_path, minPartitions="6")
    assert frame.count() == 60
    assert frame.selectExpr("spark_partition_id() AS task").distinct().count() == 6
    write_numbered(tmp_path, T0, first=20, limit=30)
    assert load(spark, tmp_path, minPartitions="6").count() == 70


def test_a_start_after_retention_is_that_of_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """Records deleted before `load()` are no data loss: earliest is the start of the log."""
    write_numbered(tmp_path, T0, limit=20)
    write_numbered(tmp_path, T0, first=20, limit=30)
    (tmp_path / "t-0" / f"{0:020}.log").unlink()
    assert offsets(load(spark, tmp_path)) == list(range(20, 30))
    asked = {"startingOffsets": '{"t": {"0": 5}}'}
    with pytest.raises(PySparkException, match=r"KAFKA_DATA_LOSS\.START_OFFSET_RESET"):
        load(spark, tmp_path, **asked).count()
    assert offsets(load(spark, tmp_path, **asked, failOnDataLoss="false")) == list(range(20, 30))
