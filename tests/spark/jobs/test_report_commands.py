"""`tailrace pipeline audit` and `profile` as they are typed: output, exit codes, and the pages."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tailrace.cli import commands
from tailrace.errors import ConfigError, CorruptionError
from tailrace.model import TopicPartition
from tests.spark.directories import write_numbered

pytestmark = pytest.mark.spark


def run(*arguments: object) -> Result:
    """The command's outcome."""
    return CliRunner().invoke(commands, ["pipeline", *map(str, arguments)])


@pytest.mark.usefixtures("spark")
def test_audit_exits_as_verify_does(tmp_path: Path) -> None:
    """0 for a clean directory, 1 for damage or another replica, 2 for no directory at all."""
    data, page = tmp_path / "data", tmp_path / "audit.html"
    path = write_numbered(data, TopicPartition("t", 0), limit=40)
    write_numbered(tmp_path / "other", TopicPartition("t", 0), limit=30)
    result = run("audit", "--data", data, "--compare", tmp_path / "other", "--html", page)
    assert (result.exit_code, result.stderr) == (1, "")
    assert "different: t-0: offset 30: " in result.stdout
    assert "the second ends at offset 30 and is 10 records short" in result.stdout
    told = "1 replica compared, 1 different (1 log-end)"
    assert result.stdout.endswith(f": no findings; {told}\n")
    assert told in page.read_text()
    assert "clean" not in page.read_text()
    result = run("audit", "--data", data, "--compare", data)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("1 partition, ")
    assert result.stdout.endswith("clean; 1 replica compared, 0 different\n")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    result = run("audit", "--data", data, "--html", page)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"error: {path}, position ")
    assert result.stdout.endswith("1 error\n")
    assert "t-0: 1 segment" in page.read_text()
    write_numbered(tmp_path / "other", TopicPartition("t", 0), limit=40)
    result = run("audit", "--data", data, "--compare", tmp_path / "other")
    assert "different: t-0: offset 30: " in result.stdout
    assert result.exit_code == 1
    assert run("audit", "--data", tmp_path / "nowhere").exit_code == 2


@pytest.mark.usefixtures("spark")
def test_profile_tells_of_each_topic(tmp_path: Path) -> None:
    """It prints lines and writes a page; faults of options come early, and damage with advice."""
    data, page = tmp_path / "data", tmp_path / "profile.html"
    path = write_numbered(data, TopicPartition("t", 0), limit=40)
    write_numbered(data, TopicPartition("u", 0), limit=7)
    result = run("profile", "--data", data, "--topic", "t", "--topic", "u", "--html", page)
    assert result.exit_code == 0, result.output
    assert "\nu: 7 records in 1 batches, " in result.stdout
    assert result.stdout.startswith("t: 40 records in 4 batches, ")
    assert "40 keys, 0 records without one" in result.stdout
    assert "key-0: 1, 2.5 %" in page.read_text()
    result = run("profile", "--data", data, "--option", "x=1")
    assert isinstance(result.exception, ConfigError)
    assert "x: no such option" in str(result.exception)
    path.write_bytes(path.read_bytes().replace(b"value-15", b"value-51"))
    result = run("profile", "--data", data, "--topic", "t")
    assert isinstance(result.exception, CorruptionError)
    assert "onCorruption=skip" in str(result.exception)
    skipping = ("--option=onCorruption=skip", f"--option=corruptionReport={tmp_path / 'told'}")
    result = run("profile", "--data", data, "--topic", "t", *skipping)
    assert result.stdout.startswith("t: 30 records in 3 batches, ")
    [told] = (tmp_path / "told").iterdir()
    assert '"first_offset": 10, "next_offset": 20' in told.read_text()
