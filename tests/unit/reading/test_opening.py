"""From a path to the log of one partition, and what is told where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace import list_partitions, open_log
from tailrace.errors import ConfigError, DirectoryError
from tailrace.model import TopicPartition
from tests.spark.directories import write_numbered

FLIGHTS, WEATHER = TopicPartition("flights", 0), TopicPartition("weather-eu", 3)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with flights-0, flights-1 and weather-eu-3."""
    write_numbered(tmp_path, FLIGHTS, limit=20)
    write_numbered(tmp_path, TopicPartition("flights", 1), limit=5)
    write_numbered(tmp_path, WEATHER, first=7, limit=10)
    return tmp_path


def test_a_log_is_named_by_directory_topic_and_partition(data: Path) -> None:
    """The directory is a str or a path."""
    for directory in (data, str(data), f"{data}/", data.as_uri()):
        with open_log(directory, "flights", 1) as log:
            assert log.partition == TopicPartition("flights", 1)
            assert log.latest_offset() == 5


def test_a_log_is_named_by_its_folder(data: Path) -> None:
    """The folder of one partition is enough; what it is said to be has to be true."""
    assert open_log(data / "weather-eu-3").earliest_offset() == 7
    assert open_log(data / "weather-eu-3", "weather-eu", 3).earliest_offset() == 7
    with pytest.raises(DirectoryError, match="has no topic 'flights'"):
        open_log(data / "weather-eu-3", "flights")


def test_what_there_is_one_of_need_not_be_named(data: Path, tmp_path: Path) -> None:
    """The partition of a topic with one; the topic of a directory with one."""
    assert open_log(data, "weather-eu").partition == WEATHER
    with pytest.raises(DirectoryError, match="2 partitions of flights: name one; there are: flig"):
        open_log(data, "flights")
    with pytest.raises(DirectoryError, match="has 3 partitions: name one; there are: flights-0, f"):
        open_log(data)
    write_numbered(tmp_path / "other", FLIGHTS, limit=3)
    assert open_log(tmp_path / "other").partition == FLIGHTS


def test_what_is_not_there_is_told_with_what_is(data: Path) -> None:
    """Topics for a topic, and partitions for a partition."""
    with pytest.raises(DirectoryError, match="no topic 'fligths'; its topics: flights, weather-eu"):
        open_log(data, "fligths", 0)
    with pytest.raises(
        DirectoryError, match="no partition 7 of flights; there are: flights-0, flights-1"
    ):
        open_log(data, "flights", 7)
    with pytest.raises(DirectoryError, match=r"cannot read .*/nowhere"):
        open_log(data / "nowhere", "flights", 0)


def test_many_names_are_told_in_part(tmp_path: Path) -> None:
    """Ten, and how many there are besides."""
    for number in range(13):
        write_numbered(tmp_path, TopicPartition("t", number), limit=1)
    with pytest.raises(DirectoryError, match=r"t-8, t-9 and 3 more$"):
        open_log(tmp_path)


def test_partitions_of_a_directory_are_listed_in_order(data: Path) -> None:
    """Each can be opened as it is listed."""
    found = list_partitions(data)
    assert found == (FLIGHTS, TopicPartition("flights", 1), WEATHER)
    assert [open_log(data, *each).latest_offset() for each in found] == [20, 5, 10]
    assert list_partitions(data / "flights-1") == (TopicPartition("flights", 1),)


def test_wrong_arguments_are_told_at_the_call(data: Path) -> None:
    """The error names them before anything is read."""
    for arguments, told in (
        ((1,), "expected str, bytes or os.PathLike"),
        ((b"data",), "directory is b'data'; it must be a str or a pathlib.Path"),
        ((data, 1), "topic is 1; it must be the name of a topic"),
        ((data, "flights", "0"), "partition is '0'; it must be a number"),
        ((data, "flights", True), "partition is True"),
    ):
        with pytest.raises(TypeError, match=told):
            open_log(*arguments)
    with pytest.raises(ConfigError, match="'raise' is none of read_uncommitted"):
        open_log(data, "flights", 0, isolation="raise")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="path: foo://x cannot be opened"):
        open_log("foo://x")


def test_reading_needs_no_heavy_library(data: Path) -> None:
    """A program that looks at a few records loads neither numpy nor PyArrow for it."""
    program = (
        "import sys, tailrace\n"
        f"print(len(list(tailrace.open_log({str(data)!r}, 'flights', 1).records())))\n"
        "print({'numpy', 'pyarrow'} & set(sys.modules) or 'light')"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["5", "light"]


def test_nothing_in_the_directory_changes(data: Path) -> None:
    """A read-only mount will do: no file is made, no lock is taken."""
    before = {each: each.stat().st_mtime_ns for each in data.rglob("*")}
    with open_log(data, "flights", 0) as log:
        assert len(list(log.records())) == 20
    assert {each: each.stat().st_mtime_ns for each in data.rglob("*")} == before
