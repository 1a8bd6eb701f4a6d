"""The source without a session: its schema, what it refuses, and what it costs to import."""

import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from tailrace.errors import ConfigError, CorruptionError, RecordTooLargeError
from tailrace.model import Codec, TopicPartition
from tailrace.records.codecs import limit_decompression, limit_decompression_of_query
from tailrace.spark.source import COLUMNS, TailraceDataSource, schema_faults
from tests.spark.directories import batch_of, write_numbered, write_segment
from tests.unit.records.batches import record_at


def source(path: Path, **options: str) -> TailraceDataSource:
    """The source as Spark makes it."""
    return TailraceDataSource({"path": str(path), "subscribe": "t"} | options)


def test_columns_are_those_of_the_kafka_source(tmp_path: Path) -> None:
    """Seven columns, and others on request; all may be null."""
    plain = source(tmp_path).schema()
    assert plain.names == list(COLUMNS)[:7]
    assert all(field.nullable for field in plain.fields)
    assert source(tmp_path, includeHeaders="true").schema().names == list(COLUMNS)[:8]
    everything = source(tmp_path, includeHeaders="true", includeMetadata="true").schema()
    assert everything.names == list(COLUMNS)
    assert source(tmp_path, columns="file,offset").schema().simpleString() == (
        "struct<file:string,offset:bigint>"
    )
    assert TailraceDataSource.name() == "tailrace"


def test_a_start_at_the_end_is_known_to_be_a_streams(tmp_path: Path) -> None:
    """A schema can be had, since Spark does not say what it is for; a batch is then refused."""
    latest = source(tmp_path, startingOffsets="latest")
    assert latest.schema().names == list(COLUMNS)[:7]
    with pytest.raises(ConfigError, match="not possible when reading a batch"):
        latest.reader(latest.schema())


def test_faults_are_those_of_what_is_nearer(tmp_path: Path) -> None:
    """A batch with one fault is not told what is wrong with it as a stream."""
    with pytest.raises(ConfigError) as caught:
        source(tmp_path, endingOffsets="latest", minPartitions="0").schema()
    assert len(caught.value.faults) == 1


def test_errors_of_rows_are_brief_too(tmp_path: Path) -> None:
    """Damage that Spark meets when it takes the rows of a task has no frames of this package."""
    path = write_numbered(tmp_path, TopicPartition("t", 0), limit=3)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    found = source(tmp_path)
    reader = found.reader(found.schema())
    [task] = reader.partitions()
    with pytest.raises(CorruptionError) as caught:
        list(reader.read(task))
    # This test, and what it has called.
    assert len(traceback.extract_tb(caught.tb)) == 2


def test_limits_of_a_stream_are_ignored_in_a_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has a warning about each."""
    limited = source(tmp_path, maxOffsetsPerTrigger="5")
    limited.reader(limited.schema())
    [warning] = caplog.records
    assert "only streams have triggers" in warning.getMessage()


def test_a_schema_must_be_a_choice_of_the_columns(tmp_path: Path) -> None:
    """Unknown names, other types, not-null columns and doubles are all told."""
    wrong = StructType(
        [
            StructField("offsets", LongType()),
            StructField("value", StringType()),
            StructField("offset", LongType(), nullable=False),
            StructField("offset", LongType()),
        ]
    )
    assert len(schema_faults(wrong)) == 4
    assert schema_faults(StructType([])) == ["schema: name at least one column"]
    with pytest.raises(ConfigError, match="value is binary here, not string; convert it"):
        source(tmp_path).reader(wrong)
    assert not schema_faults(StructType([StructField("offset", LongType())]))


def test_a_reader_plans_and_reads(tmp_path: Path) -> None:
    """The methods that Spark calls in its processes give the rows."""
    write_numbered(tmp_path, TopicPartition("t", 0), limit=30)
    reader = source(tmp_path, minPartitions="3").reader(
        StructType([StructField("offset", LongType())])
    )
    partitions = reader.partitions()
    assert len(partitions) == 3
    rows = [
        offset
        for partition in partitions
        for batch in reader.read(partition)
        for offset in batch.column("offset").to_pylist()
    ]
    assert rows == list(range(30))


def test_nothing_to_read_is_a_partition_that_spark_makes(tmp_path: Path) -> None:
    """An empty list comes back as one partition without a value, or as None before 4.2."""
    from pyspark.sql.datasource import InputPartition

    reader = source(tmp_path, subscribePattern="none").reader
    with pytest.raises(ConfigError, match="give exactly one"):
        reader(StructType([]))
    found = TailraceDataSource({"path": str(tmp_path), "subscribePattern": "none"})
    empty = found.reader(found.schema())
    assert empty.partitions() == []
    assert list(empty.read(InputPartition(None))) == []
    assert list(empty.read(None)) == []


def sizes_read(path: Path, **options: str) -> list[int]:
    """Sizes of the values that a batch reads of topic t."""
    reader = source(path, **options).reader(StructType([StructField("value", BinaryType())]))
    return [
        len(value.as_py())
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for value in batch.column("value")
    ]


@pytest.fixture
def allowed() -> Iterator[None]:
    """A process whose limit of decompression is put back in the end."""
    yield
    limit_decompression()
    limit_decompression_of_query(None)


@pytest.mark.usefixtures("allowed")
def test_a_batch_that_is_too_large_is_read_with_the_option(tmp_path: Path) -> None:
    """The error names the option; another query of the same worker has the default again."""
    limit_decompression(1 << 20)
    large = record_at(0, 0, b"key", bytes(2 << 20))
    write_segment(tmp_path, TopicPartition("t", 0), 0, batch_of([large], codec=Codec.ZSTD))
    with pytest.raises(RecordTooLargeError, match="maxDecompressedBatchBytes of the Spark source"):
        sizes_read(tmp_path)
    assert sizes_read(tmp_path, maxDecompressedBatchBytes=str(4 << 20)) == [2 << 20]
    with pytest.raises(RecordTooLargeError):
        sizes_read(tmp_path)


def test_importing_the_source_leaves_heavy_libraries_alone() -> None:
    """Spark imports it in each of its processes, also in those that never read."""
    program = (
        "import sys, tailrace.spark.source;"
        "print([name for name in ('pyarrow', 'pandas') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        check=True,
        text=True,
    )
    assert found.stdout == "[]\n"
