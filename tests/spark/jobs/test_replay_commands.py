"""`tailrace pipeline replay` and `query` as they are typed: what they print."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from tailrace import Broker
from tailrace.cli import commands
from tailrace.client.admin import create_topic
from tailrace.errors import ConfigError, CorruptionError
from tailrace.model import TopicPartition
from tailrace.spark.jobs.archive import archive
from tests.spark.directories import write_numbered
from tests.spark.topics import records

pytestmark = [pytest.mark.spark, pytest.mark.wire]


def run(*arguments: object) -> Result:
    """A command's outcome."""
    return CliRunner().invoke(commands, ["pipeline", *map(str, arguments)])


@pytest.mark.smoke
def test_an_archive_is_replayed_and_queried_with_its_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Into a topic of another name; the table has what the archive does not."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    write_numbered(data, TopicPartition("t", 0), limit=40)
    archive(spark, {"path": str(data), "subscribe": "t"}, str(lake))
    with Broker(tmp_path / "broker") as broker:
        create_topic(
            broker.bootstrap_servers, "copy", partition_count=1, settings={"retention.ms": "-1"}
        )
        what = ("--archive", lake, "--topic", "t", "--rename", "t=copy", "--keep-partitions")
        where = ("--to", broker.bootstrap_servers, "--offset-map", tmp_path / "map")
        result = run("replay", *what, *where)
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("40 records in 1 range, ")
        assert run("replay", *what, *where).stdout.startswith("0 records in 0 ranges, ")
        assert [each.value for each in records(broker.bootstrap_servers, "copy")] == [
            b"value-%d" % number for number in range(40)
        ]
    write_numbered(data, TopicPartition("t", 0), first=40, limit=45)
    sql = "SELECT count(*) AS n, max(offset) AS last FROM log"
    result = run("query", sql, "--archive", lake, "--data", data, "--topic", "t")
    assert "|45 |44  |" in result.stdout


@pytest.mark.usefixtures("spark")
def test_a_damaged_log_is_told_with_what_can_be_done(tmp_path: Path) -> None:
    """It is not replayed; options of the source leave out what is damaged."""
    data = tmp_path / "data"
    path = write_numbered(data, TopicPartition("t", 0), limit=40)
    path.write_bytes(path.read_bytes().replace(b"value-15", b"value-51"))
    with Broker(tmp_path / "broker") as broker:
        create_topic(
            broker.bootstrap_servers, "t", partition_count=1, settings={"retention.ms": "-1"}
        )
        where = ("--to", broker.bootstrap_servers, "--offset-map", tmp_path / "map")
        error = run("replay", "--data", data, "--topic", "t", *where).exception
    assert isinstance(error, CorruptionError)
    assert str(error).startswith(f"{path}, position ")
    assert "--option onCorruption=skip" in str(error)


def test_faults_are_told_before_spark_starts(tmp_path: Path) -> None:
    """All of them, the source's and the target's."""
    result = run(
        "replay", "--archive", tmp_path, "--data", tmp_path, "--to", "nowhere",
        "--offset-map", tmp_path, "--target-option", "acks=1",
    )  # fmt: skip
    assert isinstance(result.exception, ConfigError)
    told = "; ".join(result.exception.faults)
    for fault in ("--archive, --data: give", "--target-option acks: a replay", "'nowhere' is"):
        assert fault in told
    result = run("query", "SELECT 1", "--archive", tmp_path, "--option", "x=1")
    assert isinstance(result.exception, ConfigError)
