"""`audit` and `compare` in a real session, held against `verify` on the same directories."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import DirectoryError, FatalError
from tailrace.model import TopicPartition
from tailrace.offline.replicas import DifferenceKind
from tailrace.offline.verify import verify
from tailrace.reading.directory import find_partitions
from tailrace.runtime.files import DiskFiles
from tailrace.spark.jobs.audit import AuditReport, audit, compare
from tailrace.spark.jobs.pages import audit_page
from tests.fuzz.directories import all_paths, damage, directories
from tests.spark.directories import write_numbered
from tests.unit.storage.builders import FOLDER

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with eight partitions of every kind, each damaged in another way, and two sound.

    Files of the directory itself are those of the first one.
    """
    root = tmp_path_factory.mktemp("damaged")
    for number in range(10):
        directory = directories()[number % 4]
        files = directory.copy()
        if number < 8:
            damage(random.Random(number), files, spared=set(all_paths(files)) - in_folder(files))
        for path in all_paths(files):
            target = root / path.removeprefix("data/").replace("flights-0", f"flights-{number}")
            if not number or path.startswith(FOLDER):
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(files.content(path))
    return root


def in_folder(files: object) -> set[str]:
    """The files of the partition, which may be damaged."""
    return {path for path in all_paths(files) if path.startswith(FOLDER)}  # type: ignore[arg-type]


def told(report: AuditReport) -> list[str]:
    """The findings, in an order of their own."""
    return sorted(str(each.finding) for each in report.findings)


@pytest.mark.parametrize("piece_bytes", [1, 4000, 1 << 28])
def test_an_audit_finds_what_verify_finds(
    spark: SparkSession, damaged: Path, piece_bytes: int
) -> None:
    """The findings are the same if all partitions, some or none are divided into their segments."""
    found = find_partitions(DiskFiles(), str(damaged))
    expected = sorted(str(each) for each in verify(DiskFiles(), found))
    steps: list[tuple[int, int]] = []
    report = audit(
        spark,
        [str(damaged)],
        piece_bytes=piece_bytes,
        progress=lambda done, total: steps.append((done, total)),
    )
    assert told(report) == expected
    assert len({each.partition for each in report.findings}) > 5
    assert report.exit_code == 1
    assert steps[-1] == (report.size, report.size)


@pytest.mark.smoke
def test_findings_are_a_frame_and_a_page(
    spark: SparkSession, damaged: Path, tmp_path: Path
) -> None:
    """An audit of several directories lists each finding with its topic, partition and place."""
    sound = tmp_path / "sound"
    write_numbered(sound, TopicPartition("planes", 3), limit=100)
    report = audit(spark, [str(damaged), str(sound)])
    frame = report.frame(spark)
    assert frame.columns == [
        "topic", "partition", "severity", "rule", "sentence", "file", "position", "offset",
    ]  # fmt: skip
    rows = {(row["file"], row["rule"], row["sentence"], row["position"]) for row in frame.collect()}
    assert rows == {
        (each.finding.path, each.finding.rule.value, each.finding.sentence, each.finding.position)
        for each in report.findings
    }
    assert {row["topic"] for row in frame.collect()} <= {"flights", None}
    page = audit_page(report)
    assert "planes-3: 1 segment" in page
    assert "flights-1: " in page


@pytest.mark.smoke
def test_a_sound_directory_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    """No finding, exit code 0, and an empty frame; a directory that is not there is an error."""
    for number in range(3):
        write_numbered(tmp_path, TopicPartition("t", number), limit=300)
        write_numbered(tmp_path, TopicPartition("t", number), first=300, limit=400)
    report = audit(spark, [str(tmp_path)], piece_bytes=2000)
    assert report.findings == ()
    assert report.exit_code == 0
    assert report.frame(spark).count() == 0
    with pytest.raises(DirectoryError, match="cannot read"):
        audit(spark, [str(tmp_path / "nowhere")])


def test_replicas_are_compared_from_end_to_end(spark: SparkSession, tmp_path: Path) -> None:
    """Partitions that both directories have, however they are cut into segments."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for number in range(3):
        write_numbered(mine, TopicPartition("t", number), limit=100)
        write_numbered(mine, TopicPartition("t", number), first=100, limit=200)
        write_numbered(theirs, TopicPartition("t", number), limit=170)
    path = write_numbered(mine, TopicPartition("t", 1), first=100, limit=200)
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    other = write_numbered(theirs, TopicPartition("t", 2), limit=90)
    write_numbered(theirs, TopicPartition("t", 2), first=100, limit=200)
    write_numbered(theirs, TopicPartition("only-here", 0), limit=10)
    found = {
        str(each.partition): each.comparison for each in compare(spark, str(mine), str(theirs))
    }
    assert set(found) == {"t-0", "t-1", "t-2"}
    [short] = found["t-0"].differences
    assert (short.kind, short.offset, short.next_offset) == (DifferenceKind.LOG_END, 170, 200)
    assert "the second ends at offset 170 and is 30 records short" in short.sentence
    # The damage stands behind the end of the shorter replica.
    assert [each.kind for each in found["t-1"].differences] == [DifferenceKind.LOG_END]
    first = found["t-2"].differences[0]
    assert (found["t-2"].limit, first.kind) == (90, DifferenceKind.CONTENT)
    assert (first.offset, first.next_offset) == (90, 100)
    assert first.path.startswith(str(mine))
    assert first.other_path != str(other)
    lonely = tmp_path / "lonely"
    write_numbered(lonely, TopicPartition("x", 0), limit=10)
    with pytest.raises(FatalError, match="have no partition in common"):
        compare(spark, str(mine), str(lonely))
