"""`tailrace pipeline archive` as it is typed: what it prints and which code it exits with."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from tailrace.cli import commands
from tailrace.errors import ConfigError, CorruptionError, FatalError
from tailrace.model import TopicPartition
from tests.spark.directories import write_numbered, write_segment

pytestmark = pytest.mark.spark


def run(*arguments: object, command: str = "archive") -> Result:
    """The command's outcome."""
    return CliRunner().invoke(commands, ["pipeline", command, *map(str, arguments)])


@pytest.mark.smoke
@pytest.mark.usefixtures("spark")
def test_archive_and_verify(tmp_path: Path) -> None:
    """A run reports what it wrote; `--verify` names missing offsets and fails for a lost file."""
    write_numbered(tmp_path / "data", TopicPartition("t", 0), limit=40)
    where = ("--data", tmp_path / "data", "--topic", "t", "--to", tmp_path / "lake")
    result = run(*where)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("40 rows in 1 file, ")
    result = run(*where, "--verify")
    assert (result.exit_code, "40 offsets compared with the log" in result.stdout) == (0, True)
    assert result.stdout.endswith("clean\n")
    write_numbered(tmp_path / "data", TopicPartition("t", 0), first=40, limit=45)
    assert "5 not archived yet" in run(*where, "--verify").stdout
    assert run(*where).stdout.startswith("5 rows in 1 file, ")
    [first, _] = sorted((tmp_path / "lake").rglob("*.parquet"))
    first.unlink()
    result = run("--to", tmp_path / "lake", "--verify")
    assert result.exit_code == 1
    assert f"{first.relative_to(tmp_path / 'lake')}: it is not there [missing]" in result.stdout
    assert result.stdout.endswith(": 1 finding\n")


@pytest.mark.usefixtures("spark")
def test_what_is_gone_is_in_the_last_line(tmp_path: Path) -> None:
    """A run that has nothing to archive tells it from one that came too late."""
    data, partition = tmp_path / "data", TopicPartition("t", 0)
    write_segment(data, partition, 2_400_000, b"")
    where = ("--data", data, "--topic", "t", "--to", tmp_path / "lake")
    result = run(*where)
    assert result.exit_code == 0
    assert result.stdout.startswith("0 rows in 0 files, 0 bytes; ")
    assert "; 2400000 offsets were gone before the first run; " in result.stdout


@pytest.mark.usefixtures("spark")
def test_a_damaged_log_is_told_with_what_can_be_done(tmp_path: Path) -> None:
    """The named options let it go on; an error about a manifest names no such options."""
    path = write_numbered(tmp_path / "data", TopicPartition("t", 0), limit=40)
    path.write_bytes(path.read_bytes().replace(b"value-15", b"value-51"))
    where = ("--data", tmp_path / "data", "--topic", "t", "--to", tmp_path / "lake")
    error = run(*where).exception
    assert isinstance(error, CorruptionError)
    assert str(error).startswith(f"{path}, position ")
    assert ", offset 10: " in str(error)
    report = ("--option", "onCorruption=skip", "--option", "corruptionReport=")
    assert f"{' '.join(report)}DIR; to find all damage, run tailrace log verify" in str(error)
    result = run(*where, *report[:-1], f"{report[-1]}{tmp_path}")
    assert result.stdout.startswith("30 rows in 1 file, ")
    next((tmp_path / "lake").rglob("*0.json")).write_text("")
    error = run(*where).exception
    assert isinstance(error, CorruptionError)
    assert "onCorruption" not in str(error)


@pytest.mark.usefixtures("spark")
def test_a_query_that_fails_ends_in_a_sentence(tmp_path: Path) -> None:
    """The error names the fault in the SQL, or the damage in the log and what to do about it."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    write_numbered(data, TopicPartition("t", 0), limit=40)
    where = ("--data", data, "--topic", "t")
    assert run(*where, "--to", lake).exit_code == 0
    error = run("SELECT nothing FROM log", *where, "--archive", lake, command="query").exception
    assert isinstance(error, FatalError)
    assert str(error).startswith("[UNRESOLVED_COLUMN")
    assert "\n" not in str(error)
    path = write_numbered(data, TopicPartition("t", 0), first=40, limit=60)
    path.write_bytes(path.read_bytes().replace(b"value-55", b"value-56"))
    sql = "SELECT count(value) FROM log"
    error = run(sql, *where, "--archive", lake, command="query").exception
    assert isinstance(error, CorruptionError)
    assert str(error).startswith(f"{path}, position ")
    assert ", offset 50: the stored CRC-32C" in str(error)
    assert "onCorruption=skip" in str(error)


@pytest.mark.smoke
def test_faults_are_told_before_spark_starts(tmp_path: Path) -> None:
    """All of them, the source's and the command's."""
    result = run("--to", tmp_path, "--option", "startingOffsets=now", "--option", "x=1")
    assert isinstance(result.exception, ConfigError)
    told = "; ".join(result.exception.faults)
    for fault in ("startingOffsets", "x: no such option", "give exactly one, data directories"):
        assert fault in told
    result = run("--to", tmp_path, "--follow", "--verify")
    assert "give --follow or --verify, not both" in result.output


def test_a_place_without_an_archive_is_no_archive(spark: SparkSession, tmp_path: Path) -> None:
    """Verification does not take an empty directory for a sound one."""
    del spark
    result = run("--to", tmp_path, "--verify")
    assert "is no archive: it has no manifest" in str(result.exception)
