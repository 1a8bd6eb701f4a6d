"""Archives with a table in a real session: the table has the rows that plain Parquet has."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from tailrace.cli import commands
from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.spark.jobs.archive import ArchiveSettings, archive
from tailrace.spark.jobs.query import query
from tailrace.spark.jobs.verify_archive import verify_archive
from tests.spark.directories import batch_of, write_numbered, write_segment
from tests.unit.records.batches import record_at

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("form", ["delta", "iceberg"])]

FLIGHTS = TopicPartition("flights", 0)


def table_of(lake: Path, form: str) -> pa.Table:
    """The table of an archive, as the format's own library reads it, ordered by its records."""
    if form == "delta":
        reader = QueryBuilder().register("t", DeltaTable(str(lake)))
        return pa.table(reader.execute('SELECT * FROM t ORDER BY topic, partition, "offset"'))
    catalog = load_catalog("tailrace", type="sql", uri=f"sqlite:///{lake}/_iceberg/catalog.db")
    try:
        found = catalog.load_table("tailrace.archive").scan().to_arrow()
    finally:
        catalog.close()
    return found.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])


def plain_rows(spark: SparkSession, lake: Path) -> list[dict[str, Any]]:
    """The rows of an archive's files, as Spark reads them without knowing of a table."""
    frame = spark.read.option("mergeSchema", "true").parquet(str(lake))
    found = frame.selectExpr("* EXCEPT (timestamp)", "unix_millis(timestamp) AS ms")
    rows = found.orderBy("topic", "partition", "offset").collect()
    return [row.asDict(recursive=True) for row in rows]


def table_rows(lake: Path, form: str) -> list[dict[str, Any]]:
    """The rows of its table, in the same form."""
    found = table_of(lake, form)
    ms = found.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    return list(found.drop_columns(["timestamp"]).append_column("ms", ms).to_pylist())


def as_read(row: dict[str, Any], form: str) -> dict[str, Any]:
    """A row of plain Parquet as a table's library reads it.

    PyIceberg reads a null list of structs as an empty one (apache/iceberg-python#3833), though the
    file has a null.
    """
    return row | {"headers": row["headers"] or []} if form == "iceberg" else row


def run(spark: SparkSession, data: Path, lake: Path, **settings: Any) -> int:
    """Rows of a run over all that a directory has."""
    options = {"path": str(data), "subscribePattern": ".*"}
    return archive(spark, options, str(lake), settings=ArchiveSettings(**settings)).rows


def findings(spark: SparkSession, data: Path, lake: Path) -> list[str]:
    """Findings of a verification."""
    report = verify_archive(spark, {"path": str(data), "subscribePattern": ".*"}, str(lake))
    return [str(each) for each in report.findings]


def test_a_table_has_the_rows_of_plain_parquet(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    """Over several runs, also when plain files were there first; and the query reads both alike."""
    data = tmp_path / "data"
    times = [0, 1, -1, 90_000_000]
    records = [record_at(n, time, b"k", b'{"a": %d}' % n) for n, time in enumerate(times)]
    write_segment(data, FLIGHTS, 0, batch_of([*records, record_at(4, 7, None, b"oops")]))
    schema = "a BIGINT"
    assert run(spark, data, tmp_path / "plain", value_schema=schema) == 5
    assert run(spark, data, tmp_path / "later", value_schema=schema) == 5
    assert run(spark, data, tmp_path / "lake", value_schema=schema, format=form) == 5
    write_segment(data, FLIGHTS, 5, batch_of([record_at(5, 8, b"", None, (("h", None),))]))
    write_segment(data, TopicPartition("other", 1), 0, batch_of([record_at(0, 9, b"", b"{}")]))
    assert run(spark, data, tmp_path / "plain", value_schema=schema) == 2
    expected = plain_rows(spark, tmp_path / "plain")
    assert len(expected) == 7
    for name in ("lake", "later"):
        lake = tmp_path / name
        for rows in (2, 0):
            assert run(spark, data, lake, value_schema=schema, format=form) == rows
        assert table_rows(lake, form) == [as_read(row, form) for row in expected]
        assert plain_rows(spark, lake) == expected
        assert findings(spark, data, lake) == []
    live = {"path": str(data), "subscribe": "flights"}
    assert query(spark, str(tmp_path / "lake"), live).count() == 6
    for other in {"parquet", "delta", "iceberg"} - {form}:
        with pytest.raises(ConfigError, match=f"format: the archive is {form}, and stays so"):
            run(spark, data, tmp_path / "lake", value_schema=schema, format=other)


def test_a_second_type_of_json_is_refused_before_it_is_noted(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    """The archive goes on with the topics that it has."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    write_segment(data, FLIGHTS, 0, batch_of([record_at(0, 0, b"", b'{"a": 1}')]))
    assert run(spark, data, lake, value_schema="infer", format=form) == 1
    other = TopicPartition("other", 0)
    write_segment(data, other, 0, batch_of([record_at(0, 0, b"", b'{"b": "x"}')]))
    with pytest.raises(ConfigError, match="not one for each of flights, other"):
        run(spark, data, lake, value_schema="infer", format=form)
    (data / "other-0" / "00000000000000000000.log").unlink()
    (data / "other-0").rmdir()
    write_segment(data, FLIGHTS, 1, batch_of([record_at(1, 0, b"", b'{"a": 2}')]))
    assert run(spark, data, lake, value_schema="infer", format=form) == 1
    assert [row["json"] for row in table_rows(lake, form)] == [{"a": 1}, {"a": 2}]


@pytest.mark.smoke
@pytest.mark.usefixtures("spark")
def test_the_command_writes_and_verifies_a_table(tmp_path: Path, form: str) -> None:
    """A table by its options; a file that it lacks is a finding."""
    write_numbered(tmp_path / "data", TopicPartition("t", 0), limit=40)
    where = ["--data", str(tmp_path / "data"), "--topic", "t", "--to", str(tmp_path / "lake")]
    typed = ["pipeline", "archive", *where, "--format", form]
    if form == "iceberg":
        uri = f"uri=sqlite:///{tmp_path}/catalog.db"
        for option in ("table=a.b", "type=sql", uri):
            typed += ["--table-option", option]
    result = CliRunner().invoke(commands, typed)
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(commands, [*typed, "--verify"])
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("clean\n")
    if form == "delta":
        DeltaTable(str(tmp_path / "lake")).delete()
    else:
        catalog = load_catalog("tailrace", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db")
        catalog.load_table("a.b").delete("topic = 't'")
        catalog.close()
    result = CliRunner().invoke(commands, [*typed, "--verify"])
    assert result.exit_code == 1
    assert "the table has round 1, and not this file [table]" in result.stdout
