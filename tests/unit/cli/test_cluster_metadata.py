"""`tailrace cluster` on metadata logs: Kafka's own one, and some with gaps and damage."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tailrace.cli import commands
from tailrace.cluster.metadata.batches import BatchPlace, data_batch
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot import Snapshot, write_snapshot
from tailrace.errors import TailraceError
from tailrace.protocol.fields import Record
from tailrace.protocol.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    UserScramCredentialRecord,
)
from tailrace.records.batch import Batch

GOLDEN = Path(__file__).parents[2] / "golden" / "kraft" / "logs"
FIRST_MS = 1_700_000_000_000
TEXT = "2023-11-14T22:13:20"
LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=30)


def setting(value: str | None, topic: str = "t") -> ConfigRecord:
    """A setting of a topic, or its end."""
    return ConfigRecord(resource_type=2, resource_name=topic, name="retention.ms", value=value)


def credential(stored_key: bytes) -> UserScramCredentialRecord:
    """A password of a user."""
    return UserScramCredentialRecord(
        name="ann", mechanism=1, salt=b"salt", stored_key=stored_key, iterations=4096
    )


def batch(offset: int, *records: Record) -> bytes:
    """A batch, a second after the one at the offset before it."""
    place = BatchPlace(offset, 1, FIRST_MS + offset * 1000)
    return data_batch([(each, 0) for each in records], place)


def write(directory: Path, *batches: bytes) -> Path:
    """A metadata log with one segment; returns its folder."""
    folder = directory / "__cluster_metadata-0"
    folder.mkdir(exist_ok=True)
    first = Batch(memoryview(batches[0])).base_offset
    (folder / f"{first:020}.log").write_bytes(b"".join(batches))
    return folder


def write_snapshot_file(folder: Path, next_offset: int, *batches: bytes) -> Path:
    """A snapshot of what the batches lead to."""
    replay = MetadataReplay(MetadataImage())
    for each in batches:
        replay.see(Batch(memoryview(each)))
    path = folder / f"{next_offset:020}-{1:010}.checkpoint"
    found = Snapshot(image=replay.image, log_timestamp=replay.timestamp)
    path.write_bytes(write_snapshot(found, epoch=1, timestamp=FIRST_MS))
    return path


def run(*arguments: object) -> str:
    """All output of a command, errors included."""
    result = CliRunner().invoke(commands, ["cluster", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def changes(*arguments: object) -> list[dict[str, Any]]:
    """The changes that `diff` prints as JSON."""
    return [json.loads(line) for line in run("diff", *arguments, "--json").splitlines()]


def test_a_log_of_kafka_is_described() -> None:
    """Brokers, topics and features of a directory that Kafka wrote."""
    shown = run("describe", "--data", GOLDEN)
    assert "metadata.version: " in shown
    assert "shutting down" in shown, "it was stopped in order"
    lines = run("describe", "--data", GOLDEN, "--json").splitlines()
    state, *entries = map(json.loads, lines)
    assert state["type"] == "state"
    topics = [each["name"] for each in entries if each["type"] == "topics"]
    assert topics
    shown = run("describe", "--data", GOLDEN / "__cluster_metadata-0", "--topic", topics[0])
    assert shown.splitlines()[1].split()[:2] == ["partition", "leader"]


def test_a_state_is_that_of_an_offset_or_a_time(tmp_path: Path) -> None:
    """The records below an offset count, and those up to a time."""
    write(tmp_path, batch(0, LEVEL), batch(1, setting("1")), batch(2, setting("2")))
    for at, value in (("2", "1"), ("3", "2"), (f"{TEXT}.999", None), ("2023-11-14T22:13:21", "1")):
        shown = run("describe", "--data", tmp_path, "--at", at)
        assert ("retention.ms" in shown) == (value is not None), at
        assert value is None or f"topic t: retention.ms={value}" in shown, at


def test_a_change_has_its_value_before_and_its_last_moment(tmp_path: Path) -> None:
    """Two changes of one value are one, and a value that is as before is none."""
    write(
        tmp_path,
        batch(0, LEVEL),
        batch(1, setting("1"), setting("5", "u")),
        batch(3, setting("2")),
        batch(4, setting("3"), setting("6", "u")),
        batch(6, setting("5", "u")),
        batch(7, setting("9", "v")),
    )
    found = changes("--data", tmp_path, "--from", 3, "--to", 7)
    assert [(each["path"], each["before"], each["after"]) for each in found] == [
        (["settings", "topic t", "retention.ms"], "1", "3")
    ]
    assert (found[0]["next_offset"], found[0]["timestamp"]) == (6, FIRST_MS + 4000)
    assert "~ settings: topic t: retention.ms" in run("diff", "--data", tmp_path, "--from", 3)
    assert "+ settings: topic v = " in run("diff", "--data", tmp_path, "--from", 3)


def test_a_gap_in_the_log_is_a_change_by_the_next_snapshot(tmp_path: Path) -> None:
    """Between two snapshots without a log nobody knows when it was; behind them the log tells."""
    batches = batch(0, LEVEL), batch(1, setting("1")), batch(2, setting("2"))
    folder = write(tmp_path, batch(5, setting("3", "u")))
    write_snapshot_file(folder, 1, *batches[:1])
    write_snapshot_file(folder, 5, *batches)
    found = changes("--data", tmp_path, "--from", 1)
    assert [(each["path"][1], each["next_offset"], each["is_jump"]) for each in found] == [
        ("topic t", 5, True),
        ("topic u", 6, False),
    ]
    assert "by offset 5" in run("diff", "--data", tmp_path, "--from", 1, "--to", 5)


def test_a_damaged_snapshot_is_left_out_and_told(tmp_path: Path) -> None:
    """The log behind the snapshot before it leads to the same state."""
    batches = batch(0, LEVEL), batch(1, setting("1")), batch(2, setting("2"))
    folder = write(tmp_path, *batches)
    path = write_snapshot_file(folder, 3, *batches)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    shown = run("describe", "--data", tmp_path)
    assert "snapshot of offset 3 is left out" in shown
    assert path.name in shown
    assert "retention.ms=2" in shown


@pytest.mark.parametrize("position", [-1, 10])
def test_a_damaged_log_is_read_up_to_the_damage(tmp_path: Path, position: int) -> None:
    """The records behind it are not shown, and the offset is said; also if a length is damaged."""
    bad = bytearray(batch(2, setting("2")))
    bad[position] ^= 1
    write(tmp_path, batch(0, LEVEL), batch(1, setting("1")), bytes(bad), batch(3, setting("3")))
    shown = run("describe", "--data", tmp_path)
    assert "left out from offset 2 on" in shown
    assert "retention.ms=1" in shown


def test_a_snapshot_may_be_of_more_than_the_log_has(tmp_path: Path) -> None:
    """The log has lost its end: the state is that of the snapshot, and the loss is told."""
    batches = batch(0, LEVEL), batch(1, setting("1")), batch(2, setting("2"))
    damaged = bytearray(batches[1])
    damaged[10] ^= 1
    folder = write(tmp_path, batches[0], bytes(damaged), batches[2])
    write_snapshot_file(folder, 3, *batches)
    shown = run("describe", "--data", tmp_path)
    assert "retention.ms=2" in shown
    assert "left out from offset 3 on" in shown


def test_a_moment_before_all_snapshots_is_in_the_log(tmp_path: Path) -> None:
    """A log that has its beginning needs no snapshot."""
    batches = batch(0, LEVEL), batch(1, setting("1")), batch(2, setting("2"))
    folder = write(tmp_path, *batches)
    write_snapshot_file(folder, 3, *batches)
    assert "retention.ms=1" in run("describe", "--data", tmp_path, "--at", 2)
    [change] = changes("--data", tmp_path, "--from", 2)
    assert (change["before"], change["after"], change["is_jump"]) == ("1", "2", False)


def test_a_new_password_is_seen_and_its_keys_are_not(tmp_path: Path) -> None:
    """The fingerprint changes; salt and keys are printed nowhere."""
    write(tmp_path, batch(0, LEVEL), batch(1, credential(b"one")), batch(2, credential(b"two")))
    [found] = changes("--data", tmp_path, "--from", 2)
    assert found["path"] == ["users", "ann SCRAM-SHA-256", "fingerprint"]
    shown = run("describe", "--data", tmp_path, "--json")
    assert b"salt".hex() not in shown
    assert b"two".hex() not in shown


def test_a_password_in_a_setting_is_not_shown(tmp_path: Path) -> None:
    """The setting is there, and its value nowhere."""
    name = "listener.name.tls.ssl.key.password"
    secret = ConfigRecord(resource_type=4, resource_name="1", name=name, value="hunter2")
    write(tmp_path, batch(0, LEVEL), batch(1, secret))
    for shown in (run("describe", "--data", tmp_path), run("diff", "--data", tmp_path, "--from=1")):
        assert name in shown
        assert "hunter2" not in shown


def test_what_no_file_has_is_said(tmp_path: Path) -> None:
    """No folder, no file that goes back so far, no such topic, no such moment."""
    with pytest.raises(TailraceError, match=r"metadata\.log\.dir"):
        run("describe", "--data", tmp_path)
    folder = write(tmp_path, batch(5, setting("3")))
    with pytest.raises(TailraceError, match="the log begins at 5"):
        run("describe", "--data", tmp_path)
    write_snapshot_file(folder, 5, batch(0, LEVEL))
    with pytest.raises(TailraceError, match=r"goes back to offset 4; .* is of offset 5"):
        run("describe", "--data", tmp_path, "--at", 4)
    with pytest.raises(TailraceError, match="no topic 'x' at offset 6"):
        run("describe", "--data", tmp_path, "--topic", "x")
    result = CliRunner().invoke(commands, ["cluster", "describe", "--data", ".", "--at", "noon"])
    assert result.exit_code == 2
    assert "neither an offset nor a time" in result.output


def test_names_in_records_do_not_reach_the_terminal_raw(tmp_path: Path) -> None:
    """Escape sequences in a name are printed as their escapes."""
    write(tmp_path, batch(0, LEVEL), batch(1, setting("1", "\x1b[2J")))
    assert "\x1b" not in run("describe", "--data", tmp_path)
    assert "\x1b" not in run("diff", "--data", tmp_path, "--from", 1)


def test_a_directory_is_left_as_it_was(tmp_path: Path) -> None:
    """A read-only copy will do: no file is written."""
    shutil.copytree(GOLDEN / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    before = {each: each.stat().st_mtime_ns for each in tmp_path.rglob("*")}
    run("describe", "--data", tmp_path)
    assert {each: each.stat().st_mtime_ns for each in tmp_path.rglob("*")} == before
