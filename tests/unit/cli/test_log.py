"""`tailrace log` as it is typed: what it prints and which code it exits with."""

import json
import re
from pathlib import Path

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from tailrace import Admin, Broker, Producer
from tailrace.cli import commands
from tailrace.client.admin import NewTopic
from tailrace.errors import RecordTooLargeError
from tailrace.model import Codec, TopicPartition
from tailrace.records.codecs import ENVIRONMENT, limit_decompression
from tailrace.runtime.files import DiskFiles
from tests.spark.directories import batch_of, write_numbered, write_segment
from tests.unit.records.batches import record_at

FLIGHTS = TopicPartition("flights", 0)


def run(*arguments: object) -> Result:
    """The command's outcome."""
    return CliRunner().invoke(commands, ["log", *map(str, arguments)])


def lines(*arguments: object) -> list[str]:
    """Lines of standard output of a command that succeeds."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def offsets(*arguments: object) -> list[int]:
    """Offsets of the records that `cat` finds."""
    shown = lines("cat", "--data", *arguments, "--format", "json")
    return [json.loads(line)["offset"] for line in shown]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two segments of flights-0 with offsets 0 to 49, and flights-1 with 0 to 4."""
    write_numbered(tmp_path, FLIGHTS, limit=30)
    write_numbered(tmp_path, FLIGHTS, first=30, limit=50)
    write_numbered(tmp_path, TopicPartition("flights", 1), limit=5)
    return tmp_path


def test_a_batch_that_is_too_large_is_read_with_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the option, and with it the batch is shown and verified."""
    monkeypatch.setenv(ENVIRONMENT, str(1 << 20))
    large = record_at(0, 0, b"key", bytes(2 << 20))
    write_segment(tmp_path, FLIGHTS, 0, batch_of([large], codec=Codec.ZSTD))
    limit_decompression()
    try:
        refused = run("cat", "--data", tmp_path, "flights")
        assert isinstance(refused.exception, RecordTooLargeError)
        assert "--max-decompressed-batch-bytes of a command" in str(refused.exception)
        more = ("--data", tmp_path, "--max-decompressed-batch-bytes", 4 << 20)
        assert len(lines("cat", *more, "flights", "--format", "json")) == 1
        assert run("verify", *more).exit_code == 0
    finally:
        monkeypatch.undo()
        limit_decompression()


def test_scan_counts_and_says_where_the_time_goes(data: Path) -> None:
    """The scan prints one row, or one JSON object, for each partition."""
    first, second = (json.loads(line) for line in lines("scan", "--data", data, "--json"))
    assert first["format"] == "tailrace.scan/1"
    expected = {
        "topic": "flights", "partition": 0, "start_offset": 0, "end_offset": 50, "records": 50,
        "batches": 5, "segments": 2, "codecs": {"none": 5}, "damage": [], "tail_bytes": 0,
        "oldest_timestamp": 0, "newest_timestamp": 49000,
    }  # fmt: skip
    assert {name: first[name] for name in expected} == expected
    assert (second["partition"], second["end_offset"]) == (1, 5)
    table = lines("scan", "--data", data)
    assert len(table) == 3
    assert "1970-01-01T00:00:49.000Z" in table[1]
    assert len(lines("scan", "--data", data / "flights-1")) == 2


def test_scan_says_what_is_damaged_and_goes_on(data: Path) -> None:
    """A segment whose frames do not hold, and the other partition all the same."""
    path = data / "flights-0" / f"{0:020d}.log"
    content = path.read_bytes()
    second_batch = int.from_bytes(content[8:12], "big") + 12
    path.write_bytes(content[:second_batch] + b"\xff" * 50 + content[second_batch + 50 :])
    first, second = (json.loads(line) for line in lines("scan", "--data", data, "--json"))
    assert str(path) in first["damage"][0]
    assert f"position {second_batch}" in first["damage"][0]
    assert (first["records"], first["end_offset"], second["end_offset"]) == (40, 50, 5)
    assert "10 offsets, 10 records" in first["damage"][0]


def test_cat_chooses_by_offset_time_key_and_count(data: Path) -> None:
    """Each bound works for itself, and all work together."""
    assert offsets(data, "flights-0") == list(range(50))
    assert offsets(data, "flights") == [*range(50), *range(5)]
    assert offsets(data, "flights", "--partition", 1) == list(range(5))
    assert offsets(data, "flights-0", "--from-offset", 27, "--to-offset", 33) == list(range(27, 33))
    assert offsets(data, "flights-0", "--from-offset", 99) == []
    assert offsets(data, "flights-0", "--limit", 3) == [0, 1, 2]
    too_many = run("cat", "--data", data, "flights-0", "--limit", 2**63)
    assert "9223372036854775808 is not in the range" in too_many.output
    assert offsets(data, "flights-0", "--key", "key-7") == [7]
    assert offsets(data, "flights-0", "--from-time", "1970-01-01T00:00:48") == [48, 49]
    assert offsets(data, "flights-0", "--to-time", "1970-01-01T00:00:02Z") == [0, 1]
    assert offsets(data / "flights-1", "flights-1", "--from-offset", 3, "--limit", 1) == [3]


def test_cat_shows_text_json_and_hex(tmp_path: Path) -> None:
    """Bytes that are no text become hexadecimal, and a terminal is given no orders."""
    record = record_at(0, 1_700_000_000_000, b"\x1b[2Jk", b"\xff\x00", (("h", b"x"), ("n", None)))
    write_segment(tmp_path, FLIGHTS, 0, batch_of([record]))
    place = "flights-0 offset 0 2023-11-14T22:13:20.000Z"
    shown = [f"{place} key=\\x1b[2Jk value=0xff00 header h=x header n=null"]
    assert lines("cat", "--data", tmp_path, "flights-0") == shown
    shown = [f"{place} key=0x1b5b324a6b value=0xff00 header h=0x78 header n=null"]
    assert lines("cat", "--data", tmp_path, "flights-0", "--format", "hex") == shown
    (line,) = lines("cat", "--data", tmp_path, "flights-0", "--format", "json")
    assert json.loads(line) == {
        "topic": "flights", "partition": 0, "offset": 0, "timestamp": 1_700_000_000_000,
        "key": "\x1b[2Jk", "value": {"hex": "ff00"}, "headers": [["h", "x"], ["n", None]],
    }  # fmt: skip


def test_cat_decodes_what_groups_have_committed(tmp_path: Path) -> None:
    """Known records of consumer groups are decoded, and unknown ones are shown as bytes."""
    key = b"\0\1\0\1g\0\1t\0\0\0\3"
    records = [record_at(0, 5, key, None), record_at(1, 5, b"\0\x63", b"?")]
    write_segment(tmp_path, TopicPartition("__consumer_offsets", 7), 0, batch_of(records))
    decoded, raw = map(
        json.loads, lines("cat", "--data", tmp_path, "__consumer_offsets", "--format", "json")
    )
    commit = {"type": "offset-commit", "group": "g", "topic": "t", "partition": 3}
    assert decoded["decoded"] == {**commit, "tombstone": True}
    assert (raw["key"], raw["value"]) == ("\0c", "?")
    text = lines("cat", "--data", tmp_path, "__consumer_offsets")[0]
    assert "group=g topic=t partition=3 tombstone=true" in text


def test_cat_decodes_kafkas_metadata_log() -> None:
    """Each record of the log that Kafka 4.3.1 wrote has its type and its fields."""
    data = Path(__file__).parents[2] / "golden" / "kraft" / "logs"
    found = lines("cat", "--data", data, "__cluster_metadata", "--format", "json")
    decoded = [json.loads(each)["decoded"] for each in found]
    assert decoded[0]["type"] == "LeaderChange"
    topics = {each["name"] for each in decoded if each["type"] == "Topic"}
    assert "__consumer_offsets" in topics
    text = lines("cat", "--data", data, "__cluster_metadata")
    assert "type=FeatureLevel version=0 name=metadata.version feature_level=30" in text[2]


def test_cat_shows_markers_of_transactions(tmp_path: Path) -> None:
    """A marker is shown as commit or abort."""
    marker = batch_of([record_at(0, 5, b"\0\0\0\1", b"\0\0\0\0\0\0")], is_control=True)
    write_segment(tmp_path, FLIGHTS, 0, marker)
    assert lines("cat", "--data", tmp_path, "flights")[0].endswith("type=control control=commit")


def test_cat_names_the_topics_there_are(data: Path) -> None:
    """One line that helps, and a time that is none is a usage error."""
    assert "its topics: flights" in str(run("cat", "--data", data, "fligths").exception)
    assert run("cat", "--data", data, "flights", "--from-time", "soon").exit_code == 2


def test_compare_exits_with_0_1_or_2(tmp_path: Path) -> None:
    """The codes mean replicas that agree, replicas that do not, and nothing to compare."""
    first, second = tmp_path / "a", tmp_path / "b"
    for each, limit in ((first, 20), (second, 10)):
        each.mkdir()
        write_numbered(each, FLIGHTS, limit=limit)
        marks = f"0\n1\n{FLIGHTS.topic} {FLIGHTS.partition} {limit}\n"
        (each / "replication-offset-checkpoint").write_text(marks)
    both = f"{first},{second}"
    difference, told = lines("compare", "--data", both)
    assert difference.startswith("explained: flights-0: offset 10: ")
    assert difference.endswith("(not committed: one of them has high watermark 10)")
    assert told == "1 replica compared: equal where committed"
    path = second / "flights-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    result = run("compare", "--data", both, "--json")
    assert result.exit_code == 1
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert {each["format"] for each in found} == {"tailrace.compare/1"}
    assert (found[0]["kind"], found[0]["reason"]) == ("content", None)
    assert (found[-1]["type"], found[-1]["replicas"], found[-1]["wrong"]) == ("summary", 1, 1)
    result = run("compare", "--data", both)
    assert "1 differ below the high watermark" in result.stdout
    for nothing in (first, f"{first},{tmp_path / 'none'}"):
        assert run("compare", "--data", nothing).exit_code == 2


def test_verify_exits_with_0_1_or_2(data: Path, tmp_path: Path) -> None:
    """The codes mean a clean log, a damaged log, and a log that cannot be verified."""
    assert lines("verify", "--data", data)[-1].endswith("bytes of log: clean")
    path = data / "flights-0" / f"{30:020d}.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    result = run("verify", "--data", data, "--json")
    assert result.exit_code == 1
    finding, summary = map(json.loads, result.stdout.splitlines())
    assert finding["format"] == summary["format"] == "tailrace.verify/1"
    found = finding["severity"], finding["rule"], finding["path"], finding["offset"]
    assert found == ("error", "checksum", str(path), 40)
    assert summary["findings"] == {"error": 1, "warning": 0, "unverified": 0, "info": 0}
    assert run("verify", "--data", tmp_path / "nothing").exit_code == 2
    (tmp_path / "lib-64").mkdir()
    (tmp_path / "lib-64" / "notes").touch()
    assert run("verify", "--data", tmp_path / "lib-64").exit_code == 2


def test_verify_says_what_it_may_not_read(data: Path) -> None:
    """A log file that cannot be opened is no damage, and no clean bill either."""
    log = data / "flights-0" / f"{30:020d}.log"
    log.unlink()
    # Nobody can open a link that leads to itself, not even the superuser.
    log.symlink_to(log)
    assert run("verify", "--data", data).exit_code == 2


def damage(data: Path) -> Path:
    """Change a byte of the second batch of flights-0; returns the log file."""
    log = data / "flights-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[int.from_bytes(content[8:12], "big") + 12 + 70] ^= 1
    log.write_bytes(content)
    return log


def test_repair_says_what_goes_and_does_it_when_told(data: Path) -> None:
    """1 for a dry run that found something, 0 once it is done and when there is nothing to do."""
    log = damage(data)
    before = log.read_bytes()
    result = run("repair", "--data", data, "--on-damage", "skip")
    assert result.exit_code == 1
    assert f"remove: {log}, position" in result.output
    assert "offsets 10 to 19, 10 records" in result.output
    assert log.read_bytes() == before
    kinds = [
        json.loads(line) for line in run("repair", "--data", data, "--json").stdout.splitlines()
    ]
    assert [each["type"] for each in kinds] == ["drop", "drop", "summary"]
    assert {each["format"] for each in kinds} == {"tailrace.repair/1"}
    assert (kinds[0]["offset"], kinds[-1]["records"]) == (10, 40)
    assert run("repair", "--data", data, "--on-damage", "skip", "--apply").exit_code == 0
    assert offsets(data, "flights-0") == [*range(10), *range(20, 50)]
    assert lines("repair", "--data", data) == ["nothing to repair"]
    assert run("verify", "--data", data).exit_code == 0


def test_one_fault_is_one_line_and_a_number(tmp_path: Path) -> None:
    """A log that is cut contradicts each index entry after the cut; --all and JSON list them."""
    with Broker(tmp_path) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1, configs={"index.interval.bytes": 0})]).results()
        # Nothing fits into a batch beside the first record.
        with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=1) as producer:
            for number in range(40):
                producer.send("t", b"%d" % number)
    log = tmp_path / "t-0" / f"{0:020d}.log"
    with log.open("r+b") as file:
        file.truncate(0)
    verified = run("verify", "--data", tmp_path)
    assert verified.exit_code == 1
    cause, more, summary = verified.stdout.splitlines()
    assert "it knows offset 40 of" in cause
    found = re.fullmatch(r"  (\d+) more may follow from it \((.*)\); see --all", more)
    assert found is not None
    assert re.search(r"3\d offset-index", found[2])
    assert f"1 error, and {found[1]} more that may follow" in summary
    listed = run("verify", "--data", tmp_path, "--all").stdout.splitlines()
    assert len([line for line in listed if line.endswith("[offset-index]")]) == 20
    as_json = run("verify", "--data", tmp_path, "--json").stdout.splitlines()
    assert len(as_json) == len(listed)
    planned = run("repair", "--data", tmp_path).stdout.splitlines()
    (of_index,) = [line for line in planned if ".index" in line]
    assert of_index.endswith("; and 19 more")
    files = [line for line in planned if line.startswith("repair: ")]
    assert f"{len(files)} files would be repaired" in planned[-2]
    listed = run("repair", "--data", tmp_path, "--all").stdout.splitlines()
    assert len([line for line in listed if ".index" in line]) == 20


def test_repair_refuses_a_directory_in_use(data: Path) -> None:
    """Repair exits with code 2 for a directory in use, and for damage it cannot repair."""
    damage(data)
    lock = DiskFiles().lock(str(data / ".lock"))
    for option in ("--dry-run", "--apply"):
        result = run("repair", "--data", data, option)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert "in use by this same process" in result.stderr
    lock.release()
    (data / "meta.properties").write_text("version=1\n")
    result = run("repair", "--data", data, "--apply")
    assert result.exit_code == 2
    assert "cannot repair" in result.output
    assert run("repair", "--data", data / "nothing").exit_code == 2


def test_explain_says_why_each_segment_is_there(data: Path) -> None:
    """The reasons are printed as text or JSON, also for settings from the command line."""
    text = lines("explain", "--data", data, "--topic", "flights", "--set", "retention.ms=-1")
    assert "flights-0: log start 0" in text[0]
    assert "stays: never too old, retention.ms is -1" in text[1]
    line = lines("explain", "--data", data, "--set", "cleanup.policy=compact", "--json")[0]
    told = json.loads(line)
    assert told["format"] == "tailrace.explain/1"
    assert [each["base_offset"] for each in told["segments"]] == [0, 30]
    assert told["compaction"]["first_dirty_offset"] == 0
    assert "nothing" in str(run("explain", "--data", data, "--set", "nothing=1").exception)


def test_cat_takes_a_key_in_hexadecimal(data: Path) -> None:
    """Such a key may have any bytes; the two ways to give a key exclude each other."""
    assert offsets(data, "flights-0", "--key-hex", b"key-7".hex()) == [7]
    assert offsets(data, "flights-0", "--isolation", "read_committed", "--limit", 1) == [0]
    assert run("cat", "--data", data, "flights-0", "--key-hex", "xyz").exit_code == 2
    assert run("cat", "--data", data, "flights-0", "--key", "a", "--key-hex", "00").exit_code == 2


def test_nothing_but_a_repair_needs_to_write(data: Path) -> None:
    """No command leaves, or changes, a file; so a read-only mount will do."""
    damage(data)

    def state() -> dict[Path, tuple[bytes, int]]:
        files = [each for each in data.rglob("*") if each.is_file()]
        return {each: (each.read_bytes(), each.stat().st_mtime_ns) for each in files}

    before = state()
    for command in (["scan"], ["verify"], ["explain"], ["repair"]):
        run(*command, "--data", data)
    run("cat", "--data", data, "flights-0", "--isolation", "read_committed")
    assert state() == before


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_read(tmp_path: Path, codec: Codec) -> None:
    """All three commands read every codec."""
    records = [record_at(offset, 5, b"k", b"value" * 20) for offset in range(3)]
    write_segment(tmp_path, FLIGHTS, 0, batch_of(records, codec=codec))
    assert json.loads(lines("scan", "--data", tmp_path, "--json")[0])["codecs"] == {
        codec.name.lower(): 1
    }
    assert offsets(tmp_path, "flights") == [0, 1, 2]
    assert lines("verify", "--data", tmp_path)[-1].endswith("clean")


@pytest.mark.wire
def test_all_three_work_beside_a_running_broker(tmp_path: Path) -> None:
    """They work on the directory while the broker holds it, and after it has stopped."""
    with Broker(tmp_path / "data") as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(2000):
            producer.produce("flights", value=b"value %d" % number, partition=0)
        producer.flush()
        assert len(offsets(tmp_path / "data", "flights")) == 2000
        scanned = map(json.loads, lines("scan", "--data", tmp_path / "data", "--json"))
        assert {each["topic"]: each["records"] for each in scanned}["flights"] == 2000
        assert lines("verify", "--data", tmp_path / "data")[-1].endswith("clean")
    assert lines("verify", "--data", tmp_path / "data")[-1].endswith("clean")
