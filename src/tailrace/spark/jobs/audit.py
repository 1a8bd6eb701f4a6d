"""Every byte of whole data directories, looked at in parallel; replicas, held against each other.

    report = audit(spark, ["/data/1", "/data/2"])
    report.frame(spark).where("severity = 'error'").show()

The rules are those of `tailrace log verify` (`tailrace.offline.verify`), and so are the findings.
A partition of up to `PIECE_BYTES` is one piece of work. A larger one is cut into its segments, each
checked by itself, and then walked by headers in a second Spark job (`offline.verify`).

Nothing is changed, and a broker may be at work: what it appends after the directories were listed
is not looked at.

Invariant: the findings do not depend on how the work was cut.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from tailrace.errors import FatalError, counted
from tailrace.model import TopicPartition
from tailrace.offline.findings import Finding, FindingLimit, Rule, Severity
from tailrace.offline.replicas import Comparison, DifferenceKind, compare_logs
from tailrace.offline.verify import (
    PartitionFiles,
    SegmentReport,
    check_segment,
    checkpoints_of,
    join_segments,
    list_partition,
    verify_directory,
    verify_partition,
    verify_settled,
)
from tailrace.reading.directory import DataDirectory, find_partitions
from tailrace.reading.listing import SegmentFiles
from tailrace.reading.reader import FolderGoneError
from tailrace.runtime.files import DiskFiles, Files
from tailrace.spark.jobs.work import (
    Job,
    Progress,
)
from tailrace.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIECE_BYTES: Final = 256 * 1024 * 1024
"""Bytes of log that are one task's work: less than a second of reading, and some of checking."""

_PIECE_BYTES_MIN: Final = 256 * 1024
"""Least size that a piece counts: opening its files takes as long as checking that many bytes."""

_ITEM_BYTES_MIN: Final = 4 * 1024 * 1024
"""Least size of a Spark task."""

SCHEMA: Final = (
    "topic string, partition int, severity string, rule string, sentence string, file string, "
    "position bigint, offset bigint"
)
"""Schema of the findings as a DataFrame; one about a directory has no topic and partition."""


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A finding, and the partition in which it came up; None for the directory's own files."""

    partition: TopicPartition | None
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The results of an audit."""

    directories: tuple[str, ...]
    partitions: tuple[tuple[TopicPartition, PartitionFiles], ...]
    """The partitions as they were listed; replicas in two directories are two entries."""
    findings: tuple[AuditFinding, ...]
    """Findings in the order of the partitions; for a rule and a file 20, then their number."""
    seconds: float

    @property
    def size(self) -> int:
        """Bytes of the files that were checked."""
        return sum(files.size for _, files in self.partitions)

    @property
    def counts(self) -> dict[Severity, int]:
        """Findings by severity, zeros included."""
        counts = dict.fromkeys(Severity, 0)
        for each in self.findings:
            counts[each.finding.severity] += 1
        return counts

    @property
    def exit_code(self) -> int:
        """The exit code of `tailrace log verify`.

        0: clean. 1: errors or warnings. 2: neither, but not all could be looked at.
        """
        counts = self.counts
        if counts[Severity.ERROR] or counts[Severity.WARNING]:
            return 1
        return 2 if counts[Severity.UNVERIFIED] else 0

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """The findings as a DataFrame of `SCHEMA`."""
        rows = [
            (
                *(each.partition or (None, None)),
                each.finding.severity.value,
                each.finding.rule.value,
                each.finding.sentence,
                each.finding.path,
                each.finding.position,
                each.finding.offset,
            )
            for each in self.findings
        ]
        return spark.createDataFrame(rows, SCHEMA)


@dataclass(frozen=True, slots=True)
class Whole:
    """A partition that is checked in one step."""

    files: PartitionFiles

    @property
    def size(self) -> int:
        return self.files.size


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of a partition that is checked in two."""

    segment: SegmentFiles
    following: int | None
    """Base offset of the next one."""

    @property
    def size(self) -> int:
        return self.segment.size


Piece: TypeAlias = Whole | Part


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings up to a limit, and the number of those above it."""

    passed: tuple[Finding, ...]
    excess: Mapping[tuple[str, Rule], int]


def check_directories(directories: Sequence[str]) -> None:
    """Raise if an audit cannot read directories; needs no Spark.

    Raises:
        DirectoryError: a directory cannot be read, or holds no partition.
    """
    for each in directories:
        find_partitions(DiskFiles(), os.path.abspath(each))


def audit(
    spark: "SparkSession",
    directories: Sequence[str],
    *,
    piece_bytes: int = PIECE_BYTES,
    progress: Progress | None = None,
) -> AuditReport:
    """Check every byte of data directories, which all executors see under the same paths.

    A partition of more than `piece_bytes` is cut into its segments.

    Raises:
        DirectoryError: a directory cannot be read, or holds no partition.
        FatalError: an executor does not see a directory.
    """
    found = [find_partitions(DiskFiles(), os.path.abspath(each)) for each in directories]
    paths = tuple(each.path for each in found)
    job = Job(spark, directories=paths, progress=progress)
    listed = _Listing()
    for each in found:
        listed.add(each)
    _check(job, listed, piece_bytes=piece_bytes)
    return AuditReport(
        directories=paths,
        partitions=tuple(listed.partitions),
        findings=tuple(listed.findings()),
        seconds=job.seconds,
    )


def _check(job: Job, listed: "_Listing", *, piece_bytes: int) -> None:
    """The two Spark jobs; what they find goes into the listing."""
    pieces = cut([files for _, files in listed.partitions], piece_bytes)
    # All cores get work, if there is enough of it to be worth their tasks.
    item_bytes = min(sum(piece.size for _, piece in pieces) // job.round_size, PIECE_BYTES)
    items = pack(pieces, max(item_bytes, _ITEM_BYTES_MIN))
    reports: dict[int, dict[int, SegmentReport]] = {}
    for item, results in job.results(
        items, check_pieces, amount=lambda item: sum(piece.size for _, piece in item)
    ):
        for (index, _), result in zip(item, results, strict=True):
            if isinstance(result, Findings):
                listed.note(index, result)
            else:
                reports.setdefault(index, {})[result.base_offset] = result
    split = [(listed.partitions[index][1], each) for index, each in reports.items()]
    for index, (_, findings) in zip(reports, job.results(split, join), strict=True):
        listed.note(index, findings)


class _Listing:
    """The partitions of an audit, with the findings of each."""

    def __init__(self) -> None:
        self.partitions: list[tuple[TopicPartition, PartitionFiles]] = []
        self._limit = FindingLimit()
        self._of_directories: list[Finding] = []
        self._of_partitions: list[list[Finding]] = []

    def add(self, directory: DataDirectory) -> None:
        files = DiskFiles()
        checkpoints, findings = verify_directory(files, directory)
        self._of_directories += self._limit.take(findings)
        for partition, folder in directory.partitions.items():
            known = checkpoints_of(checkpoints, partition)
            try:
                found, faults = list_partition(files, folder, checkpoints=known)
            except FolderGoneError:
                continue  # A broker has just deleted the partition.
            self.partitions.append((partition, found))
            self._of_partitions.append(list(self._limit.take(faults)))

    def note(self, index: int, findings: Findings) -> None:
        # The limit is over the whole audit, as it is in `log verify`: 20 findings of a rule and a
        # file.
        self._of_partitions[index] += self._limit.take(findings.passed)
        self._limit.add(findings.excess)

    def findings(self) -> Iterator[AuditFinding]:
        """The directories' first, then partition by partition; lastly what was too much."""
        for each in self._of_directories:
            yield AuditFinding(None, each)
        for (partition, _), found in zip(self.partitions, self._of_partitions, strict=True):
            for each in found:
                yield AuditFinding(partition, each)
        # Numbers of findings above the limit know their file only; its folder tells the partition.
        owners = {files.folder: partition for partition, files in self.partitions}
        for each in self._limit.rest():
            yield AuditFinding(owners.get(os.path.dirname(each.path)), each)


def cut(partitions: Sequence[PartitionFiles], piece_bytes: int) -> list[tuple[int, Piece]]:
    """The pieces of work, each with the index of its partition; large ones are cut by segments."""
    pieces: list[tuple[int, Piece]] = []
    for index, files in enumerate(partitions):
        # A single segment cannot be cut, so checking it in two steps would read its headers twice
        # for nothing.
        if files.size <= piece_bytes or len(files.segments) == 1:
            pieces.append((index, Whole(files)))
        else:
            pieces += [(index, Part(*pair)) for pair in files.with_following()]
    return pieces


def pack(pieces: Sequence[tuple[int, Piece]], item_bytes: int) -> list[list[tuple[int, Piece]]]:
    """Work items of up to `item_bytes`, or of one piece; small partitions share one."""
    items: list[list[tuple[int, Piece]]] = []
    room = 0
    for index, piece in pieces:
        # A thousand empty partitions are not one item.
        size = max(piece.size, _PIECE_BYTES_MIN)
        if not items or size > room:
            items.append([])
            room = item_bytes
        items[-1].append((index, piece))
        room -= size
    return items


def check_pieces(item: Sequence[tuple[int, Piece]]) -> list[Findings | SegmentReport]:
    files = DiskFiles()
    return [_check_piece(files, piece) for _, piece in item]


def join(item: tuple[PartitionFiles, Mapping[int, SegmentReport]]) -> Findings:
    found, reports = item
    files = DiskFiles()

    def walk(listed: PartitionFiles) -> Iterator[Finding]:
        # A broker may clean the log between the two steps.
        # Files that were exchanged since are walked in one step.
        return (
            join_segments(files, found, reports)
            if listed is found
            else verify_partition(files, listed)
        )

    passed, excess = verify_settled(files, found, walk)
    counts = Counter(excess)
    for report in reports.values():
        counts.update(report.excess)
    return Findings(passed, dict(counts))


def _check_piece(files: Files, piece: Piece) -> Findings | SegmentReport:
    match piece:
        case Whole(found):
            return Findings(*verify_settled(files, found, partial(verify_partition, files)))
        case Part(segment, following):
            return check_segment(files, segment, following=following)
        case _:
            assert_never(piece)


@dataclass(frozen=True, slots=True)
class ComparedPartition:
    """Two replicas of a partition."""

    partition: TopicPartition
    comparison: Comparison


def replicas_told(compared: Sequence[ComparedPartition]) -> str:
    """Tell in one line how many replicas were compared, how many differ, and in what."""
    different = [each for each in compared if each.comparison.differences]
    kinds: Counter[DifferenceKind] = Counter()
    for each in different:
        kinds.update(each.comparison.counts)
    listed = ", ".join(f"{kinds[kind]} {kind.value}" for kind in DifferenceKind if kinds[kind])
    rest = f" ({listed})" if listed else ""
    return f"{counted(len(compared), 'replica')} compared, {len(different)} different{rest}"


def compare(spark: "SparkSession", directory: str, other_directory: str) -> list[ComparedPartition]:
    """Compare every partition that both directories have with its replica.

    Raises:
        DirectoryError: a directory cannot be read, or holds no partition.
        FatalError: an executor does not see a directory, or no partition is in both.
    """
    first, second = (
        find_partitions(DiskFiles(), os.path.abspath(each)) for each in (directory, other_directory)
    )
    job = Job(spark, directories=(first.path, second.path))
    # Partitions that only one of them has are no replicas; `log verify` finds what is wrong with
    # them.
    shared = [each for each in first.partitions if each in second.partitions]
    if not shared:
        raise FatalError(f"{first.path} and {second.path} have no partition in common")
    folders = [(first.partitions[each], second.partitions[each]) for each in shared]
    results = [comparison for _, comparison in job.results(folders, compare_folders)]
    return [ComparedPartition(*pair) for pair in zip(shared, results, strict=True)]


def compare_folders(folders: tuple[str, str]) -> Comparison:
    return compare_logs(DiskFiles(), *folders)
