"""The Spark side, on a few days of the data, from Parquet files in place of topics."""

from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyarrow import parquet
from pyspark.sql import SparkSession

from tailrace.demo import pipeline
from tailrace.demo.check import require_equal, require_rows, truth
from tailrace.demo.files import DemoFiles
from tailrace.demo.flights import Tables, TopicRecords, topic_records
from tailrace.demo.run import Stages, analyse

pytestmark = pytest.mark.spark


def write_records(records: TopicRecords, *, directory: Path) -> str:
    """A Parquet file with the columns of the source `tailrace`; returns its path."""
    count = len(records.keys)
    table = pa.table(
        {
            "key": pa.array(records.keys, pa.binary()),
            "value": pa.array(records.values, pa.binary()),
            "topic": pa.array([records.topic] * count),
            "partition": pa.array(records.partitions(), pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array(records.timestamps_ms, pa.timestamp("ms", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
        }
    )
    path = str(directory / f"{records.topic}.parquet")
    parquet.write_table(table, path)
    return path


@pytest.mark.smoke
def test_the_result_is_that_of_pandas(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    """The aggregate has every flight once and every number as in pandas.

    The weather comes twice, first with other numbers: the later record of an hour counts.
    """
    topics = {records.topic: records for records in topic_records(tables)}
    topics["weather"] = twice(topics["weather"])
    paths = {topic: write_records(records, directory=tmp_path) for topic, records in topics.items()}
    said: list[str] = []
    files, stages = DemoFiles(root=tmp_path), Stages(say=said.append)
    table, read = analyse(
        spark,
        read=lambda topic: spark.read.parquet(paths[topic]),
        files=files,
        stages=stages,
    )
    require_rows(files.lake, expected=len(tables.flights))
    expected = truth(tables)
    assert require_equal(table, expected=expected) == 8 * len(expected)
    assert {seen.topic: (seen.records, seen.bytes) for seen in read} == {
        topic: (len(records.keys), records.size()) for topic, records in topics.items()
    }
    assert list(stages.seconds) == [
        "read the topics, join, write Parquet",
        "aggregate the Parquet",
    ]
    assert len(said) == 2


def twice(records: TopicRecords) -> TopicRecords:
    """The records after as many with a wrong temperature each."""
    wrong = [value.replace(b'"temp":', b'"temp":9') for value in records.values]
    return TopicRecords(
        topic=records.topic,
        partition_count=records.partition_count,
        keys=records.keys * 2,
        values=wrong + records.values,
        timestamps_ms=records.timestamps_ms * 2,
    )


def test_the_lake_knows_each_record(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    """Rows carry the place and time of their record, and the columns of plane and weather."""
    rows = {
        records.topic: pipeline.parse(
            spark.read.parquet(write_records(records, directory=tmp_path)), schema=schema
        )
        for records, schema in zip(
            topic_records(tables),
            (pipeline.FLIGHT, pipeline.READING, pipeline.PLANE),
            strict=True,
        )
    }
    joined = pipeline.join(rows["flights"], planes=rows["planes"], weather=rows["weather"])
    assert len(set(joined.columns)) == len(joined.columns)
    first = joined.orderBy("record_offset").first()
    assert first is not None
    assert (first["record_offset"], first["plane_year"] is None) == (0, False)
    assert first["record_timestamp"].minute == first["minute"]
    assert first["temp"] is not None


def test_a_value_that_is_not_json_fails(spark: SparkSession, tmp_path: Path) -> None:
    """Damage in a value stops the query instead of becoming nulls."""
    damaged = TopicRecords(
        topic="planes",
        partition_count=1,
        keys=[b"N1"],
        values=[b'{"tailnum":'],
        timestamps_ms=[1],
    )
    records = spark.read.parquet(write_records(damaged, directory=tmp_path))
    with pytest.raises(Py4JJavaError, match="Malformed records"):
        pipeline.parse(records, schema=pipeline.PLANE).collect()
