"""Kafka's metadata log among the partitions: the tools read it, and nothing changes it."""

import json
import shutil
from pathlib import Path

import pytest

from tailrace.errors import ConfigError
from tailrace.model import METADATA_TOPIC
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.offline.repair import apply_repair
from tailrace.offline.repair_plan import JOURNAL_FILE, RepairPlan, plan_repair
from tailrace.offline.verify import verify
from tailrace.reading.damage import OnDamage
from tailrace.reading.directory import find_partitions
from tailrace.spark.jobs.compact import choose_configs
from tailrace.storage import names
from tailrace.testing import MemoryFiles
from tests.kraft import (
    DIRECTORY,
    EVENTS_LOG,
    METADATA_FOLDER,
    METADATA_LOG,
    ROOT,
    kraft_directory,
    not_ours,
)
from tests.unit.cli.test_log import lines, run
from tests.unit.storage.builders import SetClock

SENTENCE = "only a broker writes the metadata log, so no repair changes anything in it"
CHECKPOINTS = (names.RECOVERY_POINTS, names.LOG_START_OFFSETS)
UNIQUE = "0f" * 16


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory on a real disk."""
    return shutil.copytree(DIRECTORY, tmp_path / "data")


def flip(files: MemoryFiles, path: str) -> None:
    """Change one byte in the middle of a file."""
    content = bytearray(files.content(path))
    content[len(content) // 2] ^= 0x55
    files.overwrite(path, bytes(content))


def plan(files: MemoryFiles, path: str = ROOT) -> RepairPlan:
    """Plan a repair."""
    return plan_repair(files, find_partitions(files, path), OnDamage.CUT)


def wrong(files: MemoryFiles) -> list[Finding]:
    """Return the findings of `verify` that are not just information."""
    found = verify(files, find_partitions(files, ROOT))
    return [each for each in found if each.severity is not Severity.INFO]


def test_the_tools_read_it(data: Path) -> None:
    """`scan`, `cat` and `verify` show it as they show a topic, alone or with the directory."""
    scans = [json.loads(line) for line in lines("scan", "--data", data, "--json")]
    (scan,) = [each for each in scans if each["topic"] == METADATA_TOPIC]
    records = lines("cat", "--data", data, METADATA_TOPIC, "--format", "json")
    assert len(records) == scan["records"] > 20
    assert lines("verify", "--data", data)[-1].endswith("clean")
    assert lines("verify", "--data", data / f"{METADATA_TOPIC}-0")[-1].endswith("clean")


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_explain_leaves_its_segments_to_kafka(data: Path, policy: str) -> None:
    """Under no setting of a topic is one of them said to go, or to wait for compaction."""
    given = ("--set", "retention.ms=1", "--set", f"cleanup.policy={policy}", "--json")
    (told,) = map(json.loads, lines("explain", "--data", data, "--topic", METADATA_TOPIC, *given))
    assert told["compaction"] is None
    for segment in told["segments"]:
        assert not segment["is_deletable"]
        assert "Kafka alone deletes from its metadata log" in segment["sentence"]


@pytest.mark.parametrize("root", [ROOT, METADATA_FOLDER])
def test_damage_in_it_is_found_and_not_repaired(root: str) -> None:
    """A repair says so and what to do, and mends a topic's log beside it."""
    files = kraft_directory()
    flip(files, METADATA_LOG)
    flip(files, EVENTS_LOG)
    before = not_ours(files)
    assert {each.path for each in wrong(files)} == {METADATA_LOG, EVENTS_LOG}
    made = plan(files, root)
    assert [each.path for each in made.advice] == [METADATA_LOG]
    assert SENTENCE in made.advice[0].sentence
    apply_repair(files, made, clock=SetClock())
    assert not_ours(files) == before
    if root == ROOT:
        assert {each.path for each in wrong(files)} == {METADATA_LOG}
    assert plan(files, root).is_empty


def test_repair_ends_with_2_where_only_it_is_damaged(data: Path) -> None:
    """The sentence is told, applied or not, and no byte changes."""
    path = data / f"{METADATA_TOPIC}-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    for way in ("--dry-run", "--apply"):
        result = run("repair", "--data", data, way)
        assert result.exit_code == 2
        assert SENTENCE in result.stdout
    assert path.read_bytes() == content


def test_files_missing_from_it_are_not_made_anew() -> None:
    """Neither its indexes nor its snapshot nor its small files, when it is damaged or not."""
    files = kraft_directory()
    for name in files.list(METADATA_FOLDER):
        if not name.endswith((names.LOG_SUFFIX, ".checkpoint")):
            files.remove(f"{METADATA_FOLDER}/{name}")
    flip(files, METADATA_LOG)
    flip(files, EVENTS_LOG)
    before = not_ours(files)
    apply_repair(files, plan(files), clock=SetClock())
    assert not_ours(files) == before


def test_an_interrupted_repair_of_it_is_not_completed() -> None:
    """The note of a release that repaired it goes, and the log stays."""
    files = kraft_directory()
    files.open(f"{ROOT}/{JOURNAL_FILE}", create=True).close()
    note = {"version": 1, "was_clean": True, "partitions": {f"{METADATA_TOPIC}-0": 0}}
    files.overwrite(f"{ROOT}/{JOURNAL_FILE}", json.dumps(note).encode())
    before = not_ours(files)
    apply_repair(files, plan(files), clock=SetClock())
    assert not_ours(files) == before
    assert not files.exists(f"{ROOT}/{JOURNAL_FILE}")


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_its_line_in_a_checkpoint_is_kept_and_no_fault(name: str) -> None:
    """Kafka ignores that line: one beyond the log end is no fault, and a repair keeps it."""
    files = kraft_directory()
    line = f"{METADATA_TOPIC} 0 999999\n"
    path = f"{ROOT}/{name}"
    content = files.content(path).decode().split("\n", 2)
    files.overwrite(path, f"0\n{int(content[1]) + 1}\n{line}{content[2]}".encode())
    assert wrong(files) == []
    flip(files, EVENTS_LOG)
    apply_repair(files, plan(files), clock=SetClock())
    assert line in files.content(path).decode()


def test_one_under_a_delete_name_is_told() -> None:
    """A warning says which name the folder needs; a repair does not rename it."""
    files = kraft_directory()
    moved = f"{METADATA_FOLDER}.{UNIQUE}-delete"
    files.rename(METADATA_FOLDER, moved)
    (found,) = wrong(files)
    assert (found.rule, found.path) == (Rule.LEFTOVER, moved)
    assert found.sentence.endswith(f"rename the folder to {METADATA_TOPIC}-0")
    made = plan(files)
    assert made.advice == [found]
    assert made.is_empty


def test_the_compaction_on_spark_refuses_it() -> None:
    """It is refused by name with a reason; without names it is not among the topics."""
    files, settings = kraft_directory(), {"cleanup.policy": "compact"}
    chosen = choose_configs(files, ROOT, topics=None, settings=settings)
    assert {each.topic for each in chosen} == {"__consumer_offsets", "events", "other"}
    with pytest.raises(ConfigError, match="metadata log, which only a broker writes"):
        choose_configs(files, ROOT, topics=[METADATA_TOPIC], settings=settings)
