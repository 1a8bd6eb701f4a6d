"""`tailrace log` over damaged directories, and files made of them, as it is typed."""

import json
import struct
from pathlib import Path

import pytest

from tailrace.errors import CorruptionError
from tailrace.model import OFFSETS_TOPIC, TopicPartition
from tests.spark.directories import batch_of, write_numbered, write_segment
from tests.unit.cli.test_log import FLIGHTS, damage, lines, run
from tests.unit.records.batches import record_at

GROUP_KEY = b"\0\1\0\1g\0\7flights\0\0\0\0"
COMMIT = b"\0\3" + struct.pack(">qi", 30, 0) + b"\0\1\x1b" + struct.pack(">q", 1_700_000_000_000)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two segments of flights-0 with offsets 0 to 49, and flights-1 with 0 to 4."""
    write_numbered(tmp_path / "logs", FLIGHTS, limit=30)
    write_numbered(tmp_path / "logs", FLIGHTS, first=30, limit=50)
    write_numbered(tmp_path / "logs", TopicPartition("flights", 1), limit=5)
    return tmp_path / "logs"


@pytest.fixture
def offsets_log(data: Path) -> Path:
    """A partition of `__consumer_offsets` beside them."""
    records = [record_at(0, 5, GROUP_KEY, COMMIT), record_at(1, 5, b"\0\3\0\1n", b"\0\0")]
    write_segment(data, TopicPartition(OFFSETS_TOPIC, 7), 0, batch_of(records))
    return data


def test_cat_skips_damage_and_says_what_it_left_out(data: Path) -> None:
    """Each range on a line of stderr, a summary behind them, and exit code 1."""
    log = damage(data)
    result = run("cat", "--data", data, "flights-0", "--on-damage", "skip", "--format", "json")
    shown = [json.loads(line)["offset"] for line in result.stdout.splitlines()]
    assert shown == [*range(10), *range(20, 50)]
    told, summary = result.stderr.splitlines()
    assert told.startswith(f"left out: {log}, position ")
    assert "offsets 10 to 19: the stored CRC-32C" in told
    assert summary == "left out: 1 damaged range, 10 offsets, 10 records, 281 bytes"
    assert result.exit_code == 1


def test_cat_stops_at_damage_by_default(data: Path) -> None:
    """Records before the damage are printed, and the error names its position."""
    log = damage(data)
    result = run("cat", "--data", data, "flights-0", "--format", "json")
    assert len(result.stdout.splitlines()) == 10
    assert str(result.exception).startswith(f"{log}, position ")


SKIP = "; to leave out what is damaged, add --on-damage skip"
REPAIR = (
    "; to find all damage, run tailrace log verify; to repair it, see tailrace log repair --help"
)


@pytest.mark.parametrize("command", ["cat", "export", "groups"])
def test_an_error_at_damage_says_what_to_do_next(
    offsets_log: Path, tmp_path: Path, command: str
) -> None:
    """After the file, the position and the fault; each command takes the option that it names."""
    if command == "groups":
        log = offsets_log / f"{OFFSETS_TOPIC}-7" / f"{0:020d}.log"
        log.write_bytes(log.read_bytes().replace(GROUP_KEY, GROUP_KEY[::-1]))
    else:
        log = damage(offsets_log)
    more: dict[str, tuple[object, ...]] = {
        "cat": ("flights",), "export": ("flights", "--to", tmp_path / "x.jsonl"), "groups": (),
    }  # fmt: skip
    arguments = (command, "--data", offsets_log, *more[command])
    error = run(*arguments).exception
    assert isinstance(error, CorruptionError)
    assert (error.path, str(error).count(SKIP)) == (str(log), 1)
    assert str(error).startswith(f"{log}, position ")
    assert str(error).endswith(SKIP + REPAIR)
    skipped = run(*arguments, "--on-damage", "skip")
    assert skipped.exit_code == 1
    assert "left out: 1 damaged range" in skipped.stderr


def test_a_damaged_transaction_index_is_only_to_be_repaired(data: Path) -> None:
    """Without it records of aborted transactions would be shown, so it cannot be left out."""
    index = data / "flights-0" / f"{0:020d}.txnindex"
    index.write_bytes(b"x" * 34)
    arguments = ("cat", "--data", data, "flights-0", "--isolation", "read_committed")
    for skip in ((), ("--on-damage", "skip")):
        error = run(*arguments, *skip).exception
        assert isinstance(error, CorruptionError)
        assert error.path == str(index)
        assert SKIP not in str(error)
        assert str(error).endswith(REPAIR)
    assert run("repair", "--data", data, "--apply").exit_code == 0
    assert run(*arguments).exit_code == 0


def test_cat_that_has_nothing_to_skip_succeeds(data: Path) -> None:
    """The exit code is 0, and stderr is empty."""
    result = run("cat", "--data", data, "flights", "--on-damage", "skip")
    assert (result.exit_code, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == 55


def test_groups_are_a_table_or_objects(offsets_log: Path) -> None:
    """Offset, log end, lag and time; a terminal is given no orders by metadata."""
    table = lines("groups", "--data", offsets_log)
    assert table[0].split()[:3] == ["group", "partition", "committed"]
    assert table[1].split() == [
        "g", "flights-0", "30", "50", "20", "2023-11-14T22:13:20.000Z", "-", "\\x1b",
    ]  # fmt: skip
    assert table[2] == "not read: 1 record: key type 3"
    offset, summary = map(json.loads, lines("groups", "--data", offsets_log, "--json"))
    assert offset == {
        "format": "tailrace.groups/1", "type": "offset", "group": "g", "topic": "flights",
        "partition": 0, "committed_offset": 30, "leader_epoch": 0, "metadata": "\x1b",
        "commit_timestamp": 1_700_000_000_000, "expire_timestamp": None, "log_end_offset": 50,
        "lag": 20, "pending": [],
    }  # fmt: skip
    assert (summary["groups"], summary["unknown"]) == (1, {"key type 3": 1})


def test_groups_need_their_topic(data: Path) -> None:
    """The error says what is missing and where else it may be."""
    assert "no partition of __consumer_offsets" in str(run("groups", "--data", data).exception)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_export_writes_a_file_or_one_for_each_partition(
    data: Path, tmp_path: Path, suffix: str
) -> None:
    """A directory gets a file for each partition, under the partition's name."""
    target = tmp_path / f"flights{suffix}"
    assert lines("export", "--data", data, "flights", "--to", target) == [f"{target}: 55 records"]
    assert target.stat().st_size > 0
    form = "json" if suffix == ".jsonl" else "parquet"
    assert len(lines("export", "--data", data, "--to", f"{tmp_path}/out/", "--format", form)) == 2
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [f"flights-0{suffix}", f"flights-1{suffix}"]


def test_export_takes_one_partition_and_bounds(data: Path, tmp_path: Path) -> None:
    """Export takes the same arguments as `cat`."""
    target = tmp_path / "some.jsonl"
    lines(
        "export", "--data", data, "flights-0", "--from-offset", 3, "--to-offset", 6, "--to", target
    )
    found = [json.loads(line) for line in target.read_text().splitlines()]
    assert [each["offset"] for each in found] == [3, 4, 5]
    assert found[0]["value"] == "value-3"


def test_export_over_damage_is_refused_or_told(data: Path, tmp_path: Path) -> None:
    """By default there is no file; with skip it has the rest, and the exit code is 1."""
    damage(data)
    target = tmp_path / "flights.jsonl"
    assert isinstance(
        run("export", "--data", data, "flights-0", "--to", target).exception, Exception
    )
    assert not target.exists()
    result = run("export", "--data", data, "flights-0", "--to", target, "--on-damage", "skip")
    assert result.exit_code == 1
    assert "left out: 1 damaged range, 10 offsets, 10 records, 281 bytes" in result.stderr
    assert len(target.read_text().splitlines()) == 40


def test_salvage_writes_unproven_records_beside_the_log(data: Path, tmp_path: Path) -> None:
    """A dry run too: nothing in the directory changes."""
    log = damage(data)
    before = log.read_bytes()
    target = tmp_path / "salvaged.jsonl"
    result = run("repair", "--data", data, "--on-damage", "skip", "--salvage", target)
    found = [json.loads(line) for line in target.read_text().splitlines()]
    assert found
    assert {(each["format"], each["unproven"]) for each in found} == {("tailrace.salvage/1", True)}
    assert found[0]["file"] == str(log)
    assert f"salvage: wrote {len(found)} records of 1 damaged range " in result.stderr
    assert log.read_bytes() == before


def test_a_dry_repair_names_the_option_that_keeps_sound_records(data: Path) -> None:
    """A cut takes sound records with it, and the last line says how to keep them."""
    damage(data)
    hint = "to keep the valid records in the log, use --on-damage skip"
    assert run("repair", "--data", data).stdout.splitlines()[-1] == hint
    assert hint not in run("repair", "--data", data, "--on-damage", "skip").stdout
