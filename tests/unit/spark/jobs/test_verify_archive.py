"""Stray files of an archive, as a verification finds them without Spark."""

from collections.abc import Callable
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


class Lake:
    """An archive of one round, and what a run does to it while a verification waits."""

    def __init__(self, *steps: Callable[["Lake"], object]) -> None:
        self.folder = DiskFolder("/lake", MemoryFiles())
        self.manifest = open_manifest(self.folder, form=FORMAT, files_of=files_of, owned=NAME)
        self.named: list[RangeFiles] = []
        self.name(0)
        self.manifest.add([asdict(self.named.pop())], settings={"by": "date"})
        self.waits = 0
        self._steps = iter(steps)

    def name(self, number: int) -> None:
        """A run names a file of the round that comes next."""
        self.named.append(publish(self.folder, number))

    def count(self, number: int | None = None) -> None:
        """It counts the files that it has named, or only the one of this number."""
        chosen = [each for each in self.named if number in (None, each.start)]
        self.manifest.add([asdict(each) for each in chosen])

    def strays(self) -> list[str]:
        """The names in the findings."""
        return [each.path for each in stray_findings(self.folder, pause=self._pause)]

    def _pause(self, _: float) -> None:
        self.waits += 1
        next(self._steps, lambda _: None)(self)


def test_files_that_are_named_and_count_a_moment_later_are_no_finding() -> None:
    """The run names another file of its round while the verification waits."""
    lake = Lake(lambda lake: lake.name(4), lambda lake: lake.count())
    lake.name(2)
    assert (lake.strays(), lake.waits) == ([], 2)


def test_a_file_that_does_not_count_is_a_finding() -> None:
    """One that a killed run has left is, as readers see it; what is staged is not."""
    lake = Lake()
    lake.name(2)
    lake.folder.replace(attempt_name(".parquet"), b"rows")
    assert (lake.strays(), lake.waits) == ([lake.named[0].files[0].name], 1)


def test_a_file_that_the_next_round_does_not_count_is_a_finding() -> None:
    """A run counts all that it has named at once, so the verification waits no longer."""
    lake = Lake(lambda lake: lake.count(2), lambda lake: lake.count())
    lake.name(2)
    lake.name(4)
    assert (lake.strays(), lake.waits) == ([lake.named[1].files[0].name], 1)


def test_a_file_of_another_name_is_a_finding_at_once() -> None:
    """No run counts it."""
    lake = Lake()
    lake.folder.replace("topic=t/notes.parquet", b"rows")
    assert (lake.strays(), lake.waits) == (["topic=t/notes.parquet"], 0)
