"""`tailrace storage` on directories of this machine."""

import os
import shutil
from pathlib import Path

from tailrace.testing import TestBroker
from tests.kraft import DIRECTORY
from tests.unit.cli.running import lines, objects, run, said


def test_directories_are_formatted_and_described(tmp_path: Path) -> None:
    """The ids that the one command prints are those that the other reads."""
    data = f"{tmp_path}/a,{tmp_path}/b"
    formatted = objects("storage", "format", "--data", data, "--release-version", "4.0")
    assert [each["is_new"] for each in formatted] == [True, True]
    *directories, metadata = objects("storage", "info", "--data", data)
    for each, made in zip(directories, formatted, strict=True):
        assert each["directory_id"] == made["directory_id"]
        assert (each["cluster_id"], each["node_id"]) == (made["cluster_id"], 1)
        assert each["clean_stop_epoch"] is None
    assert (metadata["metadata_version"], metadata["release"]) == (25, "4.0-IV3")
    assert metadata["next_offset"] is None
    assert metadata["features"]["transaction.version"] == 2
    shown = lines("storage", "info", "--data", data)
    assert "  metadata.version 25 (4.0-IV3)" in shown
    assert any(line.startswith("no metadata log yet") for line in shown)
    assert f"{tmp_path}/a is formatted already" in said("storage", "format", "--data", data)
    shown = lines("storage", "format", "--data", data, "--ignore-formatted")
    assert shown[0].startswith(f"left as it was: {tmp_path}/a for node 1")


def test_a_directory_of_kafka_is_described() -> None:
    """Its offsets, snapshots, brokers and topics; nothing is written, so that it stays as it is."""
    before = {each: each.stat().st_mtime_ns for each in DIRECTORY.rglob("*")}
    directory, metadata = objects("storage", "info", "--data", DIRECTORY)
    assert directory["partitions"] == metadata["topics"] == metadata["partitions"] == 3
    assert metadata["start_offset"] == 0
    assert metadata["next_offset"] >= metadata["snapshots"][-1][0] > 0
    (broker,) = metadata["brokers"]
    assert broker["epoch"] == directory["clean_stop_epoch"]
    shown = lines("storage", "info", "--data", DIRECTORY)
    assert "  metadata.version 30 (4.3-IV0)" in shown
    assert "topics: 3, with 3 partitions" in shown
    assert {each: each.stat().st_mtime_ns for each in DIRECTORY.rglob("*")} == before


def test_a_broker_may_be_at_work(tmp_path: Path) -> None:
    """It is active then, and has no mark of an orderly stop; a topic is behind its registration."""
    with TestBroker(tmp_path) as broker:
        broker.create_topic("flights", partitions=1)
        directory, metadata = objects("storage", "info", "--data", tmp_path)
    assert directory["clean_stop_epoch"] is None
    assert (metadata["leader_id"], metadata["epoch"]) == (1, metadata["quorum_epoch"])
    assert not any(each["fenced"] for each in metadata["brokers"])


def test_a_directory_without_anything(tmp_path: Path) -> None:
    """It is not formatted, and there is no metadata log; one that is not there is an error."""
    shown = lines("storage", "info", "--data", tmp_path)
    assert shown == [str(tmp_path), "  not formatted", "no metadata log"]
    assert len(objects("storage", "info", "--data", tmp_path)) == 1
    assert "cannot read" in said("storage", "info", "--data", tmp_path / "nonsuch")


def test_a_damaged_quorum_state_is_told_and_the_rest_shown(tmp_path: Path) -> None:
    """The log says more than that file."""
    copy = shutil.copytree(DIRECTORY, tmp_path / "logs")
    (copy / "__cluster_metadata-0" / "quorum-state").write_text("{")
    result = run("storage", "info", "--data", copy)
    assert result.exit_code == 0
    assert "quorum-state" in result.stderr
    assert "topics: 3, with 3 partitions" in result.stdout


def test_a_format_that_is_typed_wrongly(tmp_path: Path) -> None:
    """Exit code 2, and nothing is made."""
    for flags in (
        ("--release-version", "3.2"),
        ("--feature", "nonsense=1"),
        ("--feature", "group.version=9"),
        ("--node-id", "-1"),
    ):
        assert run("storage", "format", "--data", tmp_path / "a", *flags).exit_code == 2
    assert run("storage", "format", "--data", ",").exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_no_text_is_json_all_the_same(tmp_path: Path) -> None:
    """Its bytes are escapes that lead back to the path; people see escapes too."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    shutil.copytree(DIRECTORY, path)
    directory, metadata = objects("storage", "info", "--data", path)
    assert directory["directory"] == metadata["directory"] == path
    for command in ("storage info", "cluster describe"):
        assert rf"{tmp_path}/\udcff" in lines(*command.split(), "--data", path)[0]
