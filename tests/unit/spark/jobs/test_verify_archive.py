"""Stray files of an archive, as a verification finds them without Spark."""

from dataclasses import asdict

from tailrace.spark.folder import DiskFolder
from tailrace.spark.jobs.archive import FORMAT, files_of
from tailrace.spark.jobs.archive_files import NAME, DataFile, RangeFiles
from tailrace.spark.jobs.manifest import attempt_name, open_manifest
from tailrace.spark.jobs.verify_archive import stray_findings
from tailrace.testing.files import MemoryFiles


def publish(folder: DiskFolder, number: int) -> RangeFiles:
    """Give a file of two records its name, as a round does before it counts."""
    staged = attempt_name(".parquet")
    folder.replace(staged, b"rows")
    name = f"topic=t/date=2013-01-01/0-{number:020}-{number + 2:020}.parquet"
    assert NAME.fullmatch(name)
    folder.publish({staged: name})
    file = DataFile(name=name, rows=2, bytes=4, first=number, last=number + 1, digest="")
    return RangeFiles(topic="t", partition=0, start=number, limit=number + 2, rows=2, files=(file,))


def found_beside_a_round(at: int) -> tuple[list[str], bool]:
    """The rules of findings if a run counts a round before the read of this number.

    Also whether there were so many reads.
    """
    files = MemoryFiles()
    folder = DiskFolder("/lake", files)
    manifest = open_manifest(folder, form=FORMAT, files_of=files_of, owned=NAME)
    manifest.add([asdict(publish(folder, 0))], settings={"by": "date"})
    due = len(files.reads) + at

    def work(operation: str, path: str) -> None:
        del operation, path
        if len(files.reads) == due:
            files.on_read = None
            manifest.add([asdict(publish(folder, 2))])

    files.on_read = work
    found = [each.rule for each in stray_findings(DiskFolder("/lake", files))]
    return found, files.on_read is None


def test_a_round_that_comes_meanwhile_is_no_finding() -> None:
    """A run is at work, and counts its files before any read of the look."""
    at = 0
    while (outcome := found_beside_a_round(at)) == ([], True):
        at += 1
    assert outcome == ([], False)
    assert at > 5


def test_a_file_that_does_not_count_is_a_finding() -> None:
    """One that a killed run has left is, as readers see it; what is staged is not."""
    files = MemoryFiles()
    folder = DiskFolder("/lake", files)
    manifest = open_manifest(folder, form=FORMAT, files_of=files_of, owned=NAME)
    manifest.add([asdict(publish(folder, 0))], settings={"by": "date"})
    left = publish(folder, 2)
    folder.replace(attempt_name(".parquet"), b"rows")
    [found] = stray_findings(folder)
    assert (found.rule, found.path) == ("stray", left.files[0].name)
