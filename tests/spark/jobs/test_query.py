"""SQL over an archive and a live log in a real session: each row once, whatever comes meanwhile."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace.errors import ConfigError, FatalError
from tailrace.model import TopicPartition
from tailrace.spark.jobs.archive import ArchiveSettings, archive
from tailrace.spark.jobs.query import query
from tests.spark.directories import batch_of, write_numbered, write_segment
from tests.unit.records.batches import record_at

pytestmark = pytest.mark.spark

# A name that Spark would take for a number, if it were left to guess.
T0, T1 = TopicPartition("2024", 0), TopicPartition("2024", 1)


def everything(data: Path) -> dict[str, str]:
    """All topics of a directory."""
    return {"path": str(data), "subscribePattern": ".*"}


def offsets(frame: DataFrame) -> list[tuple[str, int, int]]:
    """Return the topic, partition and offset of each row of a table, sorted."""
    rows = frame.select("topic", "partition", "offset").collect()
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


@pytest.mark.smoke
def test_rows_are_once_in_the_table_across_the_cut(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of the archive, of the log and of both appear once, also if the log has grown since."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    write_numbered(data, T0, limit=100)
    archive(spark, everything(data), str(lake))
    # Retention took the first segment away, and new records and a new partition came.
    for path in (data / "2024-0").iterdir():
        path.unlink()
    write_numbered(data, T0, first=90, limit=130)
    write_numbered(data, T1, limit=20)
    expected = [("2024", 0, n) for n in range(130)] + [("2024", 1, n) for n in range(20)]
    table = query(spark, str(lake), everything(data))
    assert offsets(table) == expected
    archive(spark, everything(data), str(lake))
    write_numbered(data, T1, first=20, limit=25)
    assert offsets(table) == expected
    joined = spark.sql(
        "SELECT a.offset FROM log a JOIN log b USING (topic, partition, offset) "
        "WHERE a.value = b.value AND a.timestamp = b.timestamp AND a.key = b.key"
    )
    assert joined.count() == 150
    counted = query(
        spark, str(lake), everything(data), view="later",
        sql="SELECT partition, count(*) AS n, max(decode(value, 'UTF-8')) AS last FROM later "
        "GROUP BY 1 ORDER BY 1",
    )  # fmt: skip
    assert [tuple(row) for row in counted.collect()] == [
        (0, 130, "value-99"),
        (1, 25, "value-9"),
    ]


def test_typed_columns_go_on_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """Parsed by the archive's schema, and null where a value does not fit."""
    data, lake = tmp_path / "data", tmp_path / "lake"

    def write(first: int, *values: bytes | None) -> None:
        records = [record_at(first + n, n, None, value) for n, value in enumerate(values)]
        write_segment(data, T0, first, batch_of(records))

    write(0, b'{"a": 1}', b"oops")
    settings = ArchiveSettings(value_schema="a BIGINT")
    archive(spark, everything(data), str(lake), settings=settings)
    write(2, b'{"a": 3, "b": 0}', b'{"a": "x"}', None)
    table = query(spark, str(lake), everything(data), sql="SELECT json.a FROM log ORDER BY offset")
    assert [row["a"] for row in table.collect()] == [1, None, 3, None, None]


@pytest.mark.parametrize("name", ["lake [1]", "lake{2}", "lake*", "lake?", "lake%20"])
def test_the_path_of_an_archive_is_no_pattern(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Its own files are read, and not those of another one that a pattern would match."""
    data = tmp_path / "data"
    write_numbered(data, T0, limit=10)
    archive(spark, everything(data), str(tmp_path / "lakes"))
    archive(spark, everything(data), str(tmp_path / name))
    assert offsets(query(spark, str(tmp_path / name), everything(data))) == [
        ("2024", 0, number) for number in range(10)
    ]


def test_an_archive_without_news_and_news_without_an_archive(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One of the two may be empty; a log that lost records behind the archive is an error."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    write_numbered(data, T0, limit=10)
    with pytest.raises(FatalError, match="is no archive: it has no manifest"):
        query(spark, str(lake), everything(data))
    archive(spark, everything(data), str(lake))
    assert len(offsets(query(spark, str(lake), everything(data)))) == 10
    write_numbered(data, TopicPartition("u", 0), limit=3)
    chosen = {"path": str(data), "subscribe": "u"}
    assert offsets(query(spark, str(lake), chosen)) == [("u", 0, n) for n in range(3)]
    (data / "2024-0" / "00000000000000000000.log").unlink()
    write_numbered(data, T0, first=15, limit=20)
    with pytest.raises(ConfigError, match="2024-0 has offsets 15 to 20, not 10"):
        query(spark, str(lake), everything(data))
    tolerant = everything(data) | {"failOnDataLoss": "false"}
    found = [
        offset for topic, _, offset in offsets(query(spark, str(lake), tolerant)) if topic != "u"
    ]
    assert found == [*range(10), *range(15, 20)]
