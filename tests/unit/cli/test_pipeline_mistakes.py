"""Mistakes that `tailrace pipeline` tells without Spark, in the words of its flags.

The master that is named here does not exist, so a command that got as far as Spark would say so.
"""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tailrace.cli import commands
from tailrace.errors import ConfigError, DirectoryError, FatalError
from tailrace.model import TopicPartition
from tests.spark.directories import write_numbered


def run(*arguments: object) -> Result:
    """A command's outcome."""
    typed = ["pipeline", *map(str, arguments), "--master", "nowhere"]
    return CliRunner().invoke(commands, typed)


READERS = {
    "archive": ("--to", "lake"),
    "profile": (),
    "replay": ("--to", "127.0.0.1:1", "--offset-map", "map"),
}
"""Commands that read logs, with the arguments that they cannot do without."""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with the topic `t`, in the working directory."""
    monkeypatch.chdir(tmp_path)
    write_numbered(tmp_path / "data", TopicPartition("t", 0), limit=40)
    return tmp_path / "data"


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("command", READERS)
def test_a_topic_that_does_not_exist_is_told_with_those_that_do(command: str) -> None:
    """The error names the flag that named the topic."""
    result = run(command, "--data", "data", "--topic", "x", *READERS[command])
    assert isinstance(result.exception, ConfigError)
    assert result.exception.faults == ["--topic x does not exist; there are: t"]
    assert "starting Spark" not in result.stderr


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("command", READERS)
def test_a_directory_that_does_not_exist_is_told(command: str) -> None:
    """The error names the flags that read from elsewhere."""
    result = run(command, "--data", "nowhere", "--topic", "t", *READERS[command])
    assert isinstance(result.exception, DirectoryError)
    assert str(result.exception).startswith("nowhere is not a directory that host ")
    assert str(result.exception).endswith("or else read from a broker with --bootstrap")


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("command", READERS)
def test_offsets_and_options_are_told_under_option(command: str) -> None:
    """Offsets that the log does not have, and values of a wrong type."""
    read = (command, "--data", "data", "--topic", "t", *READERS[command])
    result = run(*read, "--option", 'endingOffsets={"t":{"0":99}}')
    assert isinstance(result.exception, ConfigError)
    assert "--option endingOffsets: t-0 has offsets 0 to 40, not 99" in str(result.exception)
    result = run(*read, "--option", "minPartitions=none", "--option", "subscripe=t")
    assert isinstance(result.exception, ConfigError)
    assert [fault.partition(": ")[0] for fault in result.exception.faults] == [
        "--option subscripe",
        "--option minPartitions",
    ]


@pytest.mark.usefixtures("data")
def test_a_query_needs_an_archive_and_a_topic() -> None:
    """Each is told before Spark is started."""
    read = ("query", "SELECT 1", "--archive", "lake", "--data", "data")
    assert "lake is no archive: it has no manifest" in str(run(*read, "--topic", "t").exception)
    assert isinstance(run(*read, "--topic", "t").exception, FatalError)
    [fault] = getattr(run(*read).exception, "faults", [])
    assert fault.startswith("--topic, --option subscribePattern, --option assign: give exactly one")


@pytest.mark.usefixtures("data")
def test_a_replay_names_its_two_sources() -> None:
    """An archive and a directory exclude each other."""
    result = run("replay", "--archive", "a", "--data", "data", "--topic", "t", *READERS["replay"])
    assert "--archive, --data: give exactly one" in str(result.exception)


@pytest.mark.usefixtures("data")
def test_an_audit_of_no_directory_ends_at_once() -> None:
    """The exit code says that nothing could be looked at."""
    result = run("audit", "--data", "nowhere")
    assert result.exit_code == 2
    assert "nowhere" in result.stderr
    assert "starting Spark" not in result.stderr
