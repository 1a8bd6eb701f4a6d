"""An archive held against its manifest and against the log: nothing missing, double or changed.

    manifest     the ranges of each partition follow on each other
    files        each is there, is whole, is in the manifest, and has the rows and the digest that
                 the manifest says, with offsets that rise within its range
    log          what the log still has of a range gives the same rows and digests; if it gives
                 others, row by row; and its topics are those that were archived
    table        an archive with one: it has the files of the rounds that it says it has

A log may have fewer records than its archive: retention and compaction remove them. It may not
have one that the archive does not have in the same form.

Invariant: nothing is changed. With a digest over every lossless column, an archive without a
finding has the records that the log had when they were archived.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.model import Offset, TopicPartition
from tailrace.spark.digests import Digest
from tailrace.spark.folder import Folder, open_folder
from tailrace.spark.jobs.archive import (
    FORMAT,
    ArchiveSettings,
    archived_ends,
    check_arguments,
    compare_archived,
    files_of,
    ranges_of,
    require_archive,
)
from tailrace.spark.jobs.archive_files import (
    NAME,
    ArchiveTask,
    DataFile,
    RangeFiles,
    range_of,
    row_groups,
    split_by_period,
)
from tailrace.spark.jobs.manifest import Manifest, uncounted
from tailrace.spark.jobs.tables import checked_round, open_noted_table
from tailrace.spark.jobs.topics import identities_of
from tailrace.spark.jobs.work import Job, Progress
from tailrace.spark.offsets import Extent, choose_partitions
from tailrace.spark.options import SourceOptions
from tailrace.spark.planning import OffsetRange
from tailrace.spark.stores import open_store
from tailrace.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

FINDINGS_MAX: Final = 20
"""Findings that are reported of one file."""

QUIET_S: Final = 5.0
"""Time without a new name after which no run is about to count a file: to give one takes less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFinding:
    """One thing that is not as it should be."""

    rule: str
    """`gap`, `overlap`, `stray`, `missing`, `size`, `unreadable`, `rows`, `offsets`, `digest`,
    `content`, `log`, `topic`, `table`; may be added to, and is never changed."""
    path: str
    """The file, or the partition."""
    offset: int | None = None
    sentence: str
    """The finding as a sentence, with its values."""

    def __str__(self) -> str:
        location = self.path if self.offset is None else f"{self.path}, offset {self.offset}"
        return f"{location}: {self.sentence} [{self.rule}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReport:
    """The results of a verification."""

    findings: tuple[ArchiveFinding, ...]
    ranges: int
    files: int
    rows: int
    compared: int
    """Offsets that were held against the log."""
    ahead: int
    """Offsets that the log has after the end of the archive."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """One range, and what of it the log still has."""

    entry: RangeFiles
    in_log: Extent | None


def check_verification(
    options: SourceOptions | None, target: str, *, table_options: Mapping[str, str] | None = None
) -> None:
    """Raise what would end a verification before its first file, without Spark.

    Raises:
        ConfigError, FatalError, CorruptionError: as `verify_archive`.
    """
    manifest = Manifest.open(open_folder(target), form=FORMAT)
    require_archive(manifest)
    with open_noted_table(manifest, table_options or {}) as table:
        if table is not None:
            checked_round(table, manifest)
    if options is not None:
        _compared_logs(options, manifest)


def verify_archive(
    spark: "SparkSession",
    source_options: Mapping[str, str] | None,
    target: str,
    *,
    table_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> ArchiveReport:
    """Compare the archive at `target` with its manifest and, with options, with the logs.

    The options of its table are those that it was written with.

    Raises:
        ConfigError: faults of the arguments.
        FatalError: there is no archive, or something cannot be reached.
        MissingExtraError: the packages of its format are not installed.
        CorruptionError: the manifest is damaged, or a log.
    """
    options = None
    if source_options is not None:
        options = check_arguments(source_options, target, ArchiveSettings())
    folder = open_folder(target)
    manifest = Manifest.open(folder, form=FORMAT)
    require_archive(manifest)
    ranges = ranges_of(manifest)
    findings = [
        *range_findings(ranges),
        *stray_findings(folder),
        *table_findings(folder, table_options or {}),
    ]
    logs = _Logs() if options is None else _compared_logs(options, manifest)
    findings += logs.findings
    for sentence in logs.unchecked:
        logger.warning("%s", sentence)
    directories = () if options is None else options.directories
    job = Job(spark, directories=directories, progress=progress)
    checks = [
        _Check(entry=each, in_log=_in_log(each, logs.extents))
        for each in ranges
        if not each.is_lost
    ]
    task = None if options is None else _task(options, folder, manifest)
    check = partial(
        _check_range, target=folder.path, columns=manifest.settings["columns"], task=task
    )
    for _, found in job.results(checks, check, amount=lambda _: 1):
        findings += found
    ends = archived_ends(ranges)
    compared = [each.in_log for each in checks if each.in_log is not None]
    return ArchiveReport(
        findings=tuple(findings),
        ranges=len(checks),
        files=sum(len(each.entry.names) for each in checks),
        rows=sum(each.entry.rows for each in checks),
        compared=sum(each.end - each.start for each in compared),
        ahead=sum(
            max(extent.end - max(ends.get(partition, 0), extent.start), 0)
            for partition, extent in logs.extents.items()
        ),
        seconds=job.seconds,
    )


def range_findings(ranges: Sequence[RangeFiles]) -> Iterator[ArchiveFinding]:
    """Ranges of a partition that do not follow on each other."""
    by_partition: dict[TopicPartition, list[RangeFiles]] = {}
    for each in ranges:
        by_partition.setdefault(TopicPartition(each.topic, each.partition), []).append(each)
    for partition, found in by_partition.items():
        # Rounds of one run may come in any order of partitions.
        found.sort(key=lambda each: (each.start, each.limit))
        for before, after in pairwise(found):
            if after.start != before.limit:
                is_gap = after.start > before.limit
                yield ArchiveFinding(
                    rule="gap" if is_gap else "overlap",
                    path=str(partition),
                    offset=min(before.limit, after.start),
                    sentence=f"the manifest has {before.start} to {before.limit}, and then "
                    f"{after.start} to {after.limit}",
                )


def stray_findings(
    folder: Folder, *, pause: Callable[[float], object] = time.sleep
) -> Iterator[ArchiveFinding]:
    """Files that Spark would read, and that do not count.

    It waits for a run that is at work; `pause` takes seconds.
    """
    # First the names, then the manifest: the files of a round in between are in both or in neither.
    names, manifest = _seen_names(folder), Manifest.open(folder, form=FORMAT)
    strays = uncounted(manifest, files_of=files_of, names=names)
    # A run names the files of a round one by one, and counts them then. They look like what a
    # killed run has left, so a run gets time until its next round counts or it names no more.
    while any(map(NAME.fullmatch, strays)):
        pause(QUIET_S)
        before, rounds = names, manifest.rounds
        names, manifest = _seen_names(folder), Manifest.open(folder, form=FORMAT)
        left = set(names).intersection(strays)
        strays = uncounted(manifest, files_of=files_of, names=sorted(left))
        if manifest.rounds > rounds or names == before:
            break
    for name in strays:
        yield ArchiveFinding(
            rule="stray", path=name, sentence="it is not in the manifest; readers see it"
        )


def _seen_names(folder: Folder) -> list[str]:
    """Files that Spark and Hive read: they pass over names with `_` or `.` in front."""
    return [
        name
        for name in folder.names()
        if not any(part.startswith(("_", ".")) for part in name.split("/"))
    ]


def table_findings(folder: Folder, options: Mapping[str, str]) -> Iterator[ArchiveFinding]:
    """Files that the table of an archive lacks, or has beside those of the archive."""
    manifest = Manifest.open(folder, form=FORMAT)
    with open_noted_table(manifest, options) as table:
        if table is None:
            return
        # First the table, then the manifest again: a round in between is in the manifest alone, and
        # is no finding.
        number = checked_round(table, manifest)
        there = table.names()
    # Read again: a run that is at work has each round in the manifest before it is in the table.
    manifest = Manifest.open(folder, form=FORMAT)
    later = manifest.entries_since(min(number + 1, manifest.rounds))
    pending = {file.name for entry in later for file in range_of(entry).files}
    counted = {file.name for each in ranges_of(manifest) for file in each.files}
    for name in sorted(counted - pending - there):
        sentence = f"the table has round {number}, and not this file"
        yield ArchiveFinding(rule="table", path=name, sentence=sentence)
    for name in sorted(there - counted):
        sentence = "the table has it, the manifest does not"
        yield ArchiveFinding(rule="table", path=name, sentence=sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logs:
    """The logs that an archive is held against."""

    extents: Mapping[TopicPartition, Extent] = field(default_factory=dict)
    """The offsets of the partitions whose topics are those of the archive."""
    findings: Sequence[ArchiveFinding] = ()
    """The topics that are not."""
    unchecked: Sequence[str] = ()
    """Sentences about the topics of which that is not known."""


def _compared_logs(options: SourceOptions, manifest: Manifest) -> _Logs:
    store = open_store(options)
    try:
        known = store.partitions(options.selection)
        extents = store.extents(choose_partitions(options.selection, known))
        found = identities_of(extents, store.cluster_id)
    finally:
        store.close()
    compared = compare_archived(manifest, found, archived_ends(ranges_of(manifest)))
    findings = [
        ArchiveFinding(rule="topic", path=topic, sentence=sentence)
        for topic, sentence in compared.others.items()
    ]
    same = {each: found for each, found in extents.items() if each.topic not in compared.others}
    return _Logs(extents=same, findings=findings, unchecked=compared.unchecked)


def _in_log(entry: RangeFiles, extents: Mapping[TopicPartition, Extent]) -> Extent | None:
    extent = extents.get(TopicPartition(entry.topic, entry.partition))
    if extent is None:
        return None
    start, limit = max(entry.start, extent.start), min(entry.limit, extent.end)
    return extent._replace(start=start, end=limit) if start < limit else None


def _task(options: SourceOptions, folder: Folder, manifest: Manifest) -> ArchiveTask:
    return ArchiveTask(
        # Records that retention deletes while this runs are no fault of the archive.
        options=replace(options, fails_on_data_loss=False),
        target=folder.path,
        columns=tuple(manifest.settings["columns"]),
        by=manifest.settings["by"],
        file_bytes=0,
        codec="none",
    )


def _check_range(
    check: _Check, *, target: str, columns: Sequence[str], task: ArchiveTask | None
) -> list[ArchiveFinding]:
    """Runs on an executor: the findings of one range."""
    folder = open_folder(target)
    entry = check.entry
    found = [
        finding
        for file in (*entry.files, *([entry.dead_letters] if entry.dead_letters else []))
        for finding in file_findings(folder, file, columns=columns, entry=entry)
    ]
    if task is None or check.in_log is None:
        return found
    start, limit, topic_id = check.in_log
    wanted = OffsetRange(
        partition=TopicPartition(entry.topic, entry.partition),
        start=Offset(start),
        limit=Offset(limit),
        size=0,
        topic_id=topic_id,
    )
    # The digest of the log is compared with the manifest's, so that sound files are read once, for
    # themselves. Rows are compared only to say which of them differ.
    if found or not _is_as_archived(task, wanted, entry):
        found += _compared(task, wanted, entry=entry, folder=folder)
    return found


def file_findings(
    folder: Folder, file: DataFile, *, columns: Sequence[str], entry: RangeFiles
) -> list[ArchiveFinding]:
    """Check one file by itself and against the manifest; returns the findings."""
    try:
        # Cheap, and a torn upload shows here: Parquet would say something about a footer.
        size = folder.size(file.name)
        if size != file.bytes:
            sentence = f"it has {size} bytes; the manifest says {file.bytes}"
            return [ArchiveFinding(rule="size", path=file.name, sentence=sentence)]
        with folder.source(file.name) as source:
            return list(
                _content_findings(pq.ParquetFile(source), file, columns=columns, entry=entry)
            )
    except FileNotFoundError:
        return [ArchiveFinding(rule="missing", path=file.name, sentence="it is not there")]
    except (pa.ArrowException, OSError) as error:
        return [ArchiveFinding(rule="unreadable", path=file.name, sentence=str(error))]


def _content_findings(
    parquet: pq.ParquetFile, file: DataFile, *, columns: Sequence[str], entry: RangeFiles
) -> Iterator[ArchiveFinding]:
    names = [name for name in columns if name in parquet.schema_arrow.names]
    digest = Digest()
    rows, last = 0, entry.start - 1
    for number in range(parquet.num_row_groups):
        table = parquet.read_row_group(number, columns=names).select(names)
        digest.update(table)
        rows += len(table)
        # The last offset of the row group before, so that the border is checked too.
        offsets = np.concatenate(([last], table.column("offset").to_numpy()))
        wrong = np.flatnonzero((np.diff(offsets) <= 0) | (offsets[1:] >= entry.limit))
        if len(wrong):
            at = int(wrong[0])
            yield ArchiveFinding(
                rule="offsets",
                path=file.name,
                offset=int(offsets[at + 1]),
                sentence=f"it comes after offset {offsets[at]}, in a range from {entry.start} "
                f"to {entry.limit}",
            )
            # One is enough: after a wrong offset all that follow would be reported.
            return
        last = int(offsets[-1])
    if rows != file.rows:
        sentence = f"it has {rows} rows; the manifest says {file.rows}"
        yield ArchiveFinding(rule="rows", path=file.name, sentence=sentence)
    if digest.hexdigest() != file.digest:
        sentence = "its content does not have the digest that the manifest says"
        yield ArchiveFinding(rule="digest", path=file.name, sentence=sentence)


def _is_as_archived(task: ArchiveTask, wanted: OffsetRange, entry: RangeFiles) -> bool:
    """Whether the log gives the rows and digests of the manifest; the files are not read."""
    rows: dict[str, int] = {}
    digests: dict[str, Digest] = {}
    for table in row_groups(task, wanted):
        for period, part in split_by_period(table, task.by):
            rows[period] = rows.get(period, 0) + len(part)
            digests.setdefault(period, Digest()).update(part)
    found = {period: (rows[period], digests[period].hexdigest()) for period in rows}
    return found == {_period(file): (file.rows, file.digest) for file in entry.files}


def _compared(
    task: ArchiveTask, wanted: OffsetRange, *, entry: RangeFiles, folder: Folder
) -> list[ArchiveFinding]:
    """Compare by offset; returns records that the archive lacks or has in another form."""
    files = {_period(file): file for file in entry.files}
    found: list[ArchiveFinding] = []
    for table in row_groups(task, wanted):
        for period, part in split_by_period(table, task.by):
            path = files[period].name if period in files else f"topic={entry.topic}/{period}"
            try:
                archived = _rows(folder, files.get(period), part)
            except (pa.ArrowException, OSError):
                continue  # That it cannot be read is a finding already.
            found += _differences(part, archived, path)
            if len(found) >= FINDINGS_MAX:
                return found[:FINDINGS_MAX]
    return found


def _rows(folder: Folder, file: DataFile | None, part: pa.Table) -> pa.Table:
    if file is None:
        return part.slice(0, 0)
    offsets = part.column("offset")
    # Row groups are left out by their statistics; the filter needs the exact offsets after that.
    between = [("offset", ">=", offsets[0].as_py()), ("offset", "<=", offsets[-1].as_py())]
    with folder.source(file.name) as source:
        table = pq.read_table(source, columns=part.column_names, filters=between)
    table = table.select(part.column_names).cast(part.schema)
    return table.filter(pc.is_in(table.column("offset"), value_set=offsets))


def _differences(part: pa.Table, archived: pa.Table, path: str) -> Iterator[ArchiveFinding]:
    there = pc.is_in(part.column("offset"), value_set=archived.column("offset"))
    for offset in part.filter(pc.invert(there)).column("offset").slice(0, FINDINGS_MAX).to_pylist():
        sentence = "the log has this record, the archive does not"
        yield ArchiveFinding(rule="log", path=path, offset=offset, sentence=sentence)
    part = part.filter(there)
    if len(part) != len(archived):
        return  # An offset is there twice, which is a finding already.
    for name in part.column_names:
        if part.column(name).combine_chunks().equals(archived.column(name).combine_chunks()):
            continue
        pairs = zip(
            part.column("offset").to_pylist(),
            part.column(name).to_pylist(),
            archived.column(name).to_pylist(),
            strict=True,
        )
        offset = next((each for each, left, right in pairs if left != right), None)
        yield ArchiveFinding(
            rule="content", path=path, offset=offset, sentence=f"{name} is not as in the log"
        )


def _period(file: DataFile) -> str:
    return file.name.split("/", 1)[1].rpartition("/")[0]
