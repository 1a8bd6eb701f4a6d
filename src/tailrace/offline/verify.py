"""Whether a directory is what a broker wrote: every rule that a loader relies on, file by file.

    log         frames, checksums, records, offsets that rise           } `segment_check`
    indexes     each entry in order, and true of the log                }
    producers   sequences without a gap, markers that end a transaction } `partition_walk`
    epochs      do not fall; aborted transactions are in their index    }
    partition   partition.metadata, the epoch checkpoint, index files without a log, leftovers
    directory   meta.properties, checkpoints readable and none above the end of its log

Nothing is repaired; `tailrace.offline.repair` does that. The audit on Spark
(`tailrace.spark.jobs.audit`) calls the same rules, on many machines.

Memory does not grow with the log: segments are read once, window by window, with the indexes beside
them. Findings come as they are made; of one rule in one file no more than 20 are listed.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from tailrace.errors import CorruptionError, DirectoryError
from tailrace.model import INTERNAL_TOPICS, METADATA_TOPIC, OFFSET_MAX, Offset, TopicPartition
from tailrace.offline.findings import Finding, FindingLimit, Rule, Severity, file_finding
from tailrace.offline.leftovers import (
    check_directory_leftovers,
    check_identity,
    check_partition_leftovers,
    check_set_aside,
)
from tailrace.offline.partition_walk import PartitionWalk
from tailrace.offline.segment_check import Checked, Hole, Progress, SegmentCheck, SegmentWalk
from tailrace.reading.directory import DataDirectory, list_segments
from tailrace.reading.listing import SegmentFiles, exchanged
from tailrace.reading.reader import FolderGoneError
from tailrace.records.batch import Batch
from tailrace.runtime.files import File, Files
from tailrace.storage import names
from tailrace.storage.checkpoints import (
    read_epoch_checkpoint,
    read_offset_checkpoint,
    read_partition_metadata,
)
from tailrace.storage.segment_walk import Sound
from tailrace.storage.walk import walk_batches, walk_headers
from tailrace.values import dataclass, field, replace

_COMPARED_WITH_LOGS = (names.RECOVERY_POINTS, names.LOG_START_OFFSETS)
_OTHER_CHECKPOINTS = (names.HIGH_WATERMARKS, names.CLEANER_OFFSETS)

# Rules that do not hold while a broker appends, rolls, deletes or exchanges segments, and so after
# it was killed there: its next start completes or removes what is unfinished.
_UNFINISHED = frozenset({Rule.LEFTOVER, Rule.ORPHAN, Rule.TAIL})

# Rules of files that the start after a kill rebuilds from the recovery point on.
_DERIVED = frozenset({Rule.OFFSET_INDEX, Rule.TIME_INDEX, Rule.TRANSACTION_INDEX})

WALKS_MAX = 5
"""Over a partition in which a broker exchanges files under the walk."""

OpenSegment = Callable[[SegmentFiles, int | None], SegmentWalk]
"""Opens a segment; the second argument is the base offset of the next one. Raises OSError."""

Checkpoints = Mapping[str, Mapping[TopicPartition, int]]
"""By path of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFiles:
    """A partition's folder as it stood when it was listed."""

    folder: str
    checkpoints: Mapping[str, int]
    """Entries of the directory's checkpoints for this partition, by path."""
    epochs: tuple[tuple[int, int], ...]
    """The epoch checkpoint; none if it is not there or cannot be read."""
    segments: tuple[SegmentFiles, ...]
    listed: tuple[str, ...]
    """The names of all files."""
    is_in_use: bool = False
    """Whether a broker is at work in the directory, or was killed there: its mark is missing."""

    @property
    def recovery_point(self) -> int:
        """The offset up to which the log was on the device, by the checkpoint; 0 without one."""
        return self._entry(names.RECOVERY_POINTS)

    @property
    def log_start(self) -> int:
        """The log start offset by the checkpoint; 0 without one."""
        return self._entry(names.LOG_START_OFFSETS)

    def _entry(self, name: str) -> int:
        entries = self.checkpoints.items()
        return max((at for path, at in entries if path.endswith(f"/{name}")), default=0)

    @property
    def size(self) -> int:
        """Bytes of its log files."""
        return sum(segment.size for segment in self.segments)

    def with_following(self) -> Iterator[tuple[SegmentFiles, int | None]]:
        """Each segment with the base offset of the next one."""
        limits = [*(each.base_offset for each in self.segments[1:]), None]
        return zip(self.segments, limits, strict=False)


def verify(
    files: Files, directory: DataDirectory, *, progress: Progress = lambda _: None
) -> Iterator[Finding]:
    """Every finding in every partition; none at all for a clean directory.

    Raises:
        DirectoryError: a folder or a log file cannot be listed.
    """
    limit = FindingLimit()
    for each in verify_folders(files, directory, progress=progress):
        yield from limit.take(each.findings)
        limit.add(each.excess)
    yield from limit.rest()


class FolderFindings(NamedTuple):
    """The findings of one partition, or of what lies beside the partitions."""

    findings: tuple[Finding, ...]
    excess: Mapping[tuple[str, Rule], int]
    """Numbers of those that are not listed, by file and rule; see `FindingLimit`."""


def verify_folders(
    files: Files, directory: DataDirectory, *, progress: Progress = lambda _: None
) -> Iterator[FolderFindings]:
    """The findings as `verify` has them, folder by folder, that of the directory first.

    Raises:
        DirectoryError: a folder or a log file cannot be listed.
    """
    # Before the logs are listed: a broker at work writes the checkpoints after its logs, so they
    # may only lag.
    checkpoints, findings = verify_directory(files, directory)
    yield FolderFindings(tuple(findings), {})
    for partition, folder in directory.partitions.items():
        try:
            found, faults = list_partition(
                files, folder, checkpoints=checkpoints_of(checkpoints, partition)
            )
        except FolderGoneError:
            continue  # A broker has just deleted the partition.
        walk = partial(
            verify_partition,
            files,
            open_segment=partial(_open_check, files, progress=progress),
        )
        passed, excess = verify_settled(files, found, walk)
        yield FolderFindings((*faults, *passed), excess)


def verify_settled(
    files: Files, found: PartitionFiles, walk: Callable[[PartitionFiles], Iterator[Finding]]
) -> tuple[tuple[Finding, ...], Mapping[tuple[str, Rule], int]]:
    """Walk a partition until no file changes meanwhile; returns at most `FindingLimit` findings.

    If a broker has exchanged or deleted files meanwhile, the findings are dropped, and the
    partition is walked again. If that happens in each of `WALKS_MAX` walks, it is unverified.
    """
    for _ in range(WALKS_MAX):
        limit = FindingLimit()
        try:
            passed = tuple(limit.take(walk(found)))
            again, _ = list_partition(files, found.folder, checkpoints=found.checkpoints)
        except DirectoryError:
            # Then it is not a deletion that has come in between.
            if files.is_directory(found.folder):
                raise
            return (), {}  # The partition was deleted.
        # Findings must be of files that are all there; without any, what retention has deleted does
        # not matter.
        is_bad = any(each.severity is not Severity.INFO for each in passed)
        # Retention takes the first segments; what was found in the others holds.
        first = Offset(0) if is_bad or not again.segments else again.segments[0].base_offset
        if not exchanged(
            found.segments, again.segments, start_offset=first, limit_offset=OFFSET_MAX
        ):
            return tuple(each for each in passed if _is_still_true(files, each)), limit.excess()
        found = again
    sentence = f"its files were exchanged in each of {WALKS_MAX} walks over it; verify it again"
    finding = Finding(
        severity=Severity.UNVERIFIED, rule=Rule.READABLE, path=found.folder, sentence=sentence
    )
    return (finding,), {}


def _is_still_true(files: Files, finding: Finding) -> bool:
    """Whether a finding about files that wait for a broker is still true."""
    return finding.rule not in {Rule.LEFTOVER, Rule.ORPHAN} or files.exists(finding.path)


def verify_directory(files: Files, directory: DataDirectory) -> tuple[Checkpoints, list[Finding]]:
    """The checkpoints that logs are held against, and what is wrong beside the partitions.

    To be called before the logs are listed: a broker at work writes the checkpoints after its
    logs, so they may only lag.
    """
    checkpoints: dict[str, dict[TopicPartition, int]] = {}
    findings: list[Finding] = []
    for name in (*_COMPARED_WITH_LOGS, *_OTHER_CHECKPOINTS):
        path = f"{directory.path}/{name}"
        try:
            known = read_offset_checkpoint(files, path)
        except (CorruptionError, OSError) as error:
            findings.append(file_finding(path, Rule.CHECKPOINT, error))
        else:
            checkpoints |= {path: known} if name in _COMPARED_WITH_LOGS else {}
    identity = f"{directory.path}/{names.META_PROPERTIES}"
    try:
        findings += check_identity(files, identity)
        findings += check_directory_leftovers(files, directory.path)
    except OSError as error:
        findings.append(file_finding(identity, Rule.READABLE, error))
    return checkpoints, findings


def checkpoints_of(checkpoints: Checkpoints, partition: TopicPartition) -> dict[str, int]:
    """The entries of the checkpoints for one partition, by path; none for Kafka's metadata log."""
    if partition.topic == METADATA_TOPIC:
        return {}
    return {path: known[partition] for path, known in checkpoints.items() if partition in known}


def list_partition(
    files: Files, folder: str, *, checkpoints: Mapping[str, int]
) -> tuple[PartitionFiles, list[Finding]]:
    """The files of a partition, and what is wrong with its small ones.

    Raises:
        DirectoryError: the folder or a log file cannot be listed.
    """
    metadata, epoch_path = f"{folder}/{names.PARTITION_METADATA}", f"{folder}/{names.LEADER_EPOCHS}"
    findings = []
    try:
        read_partition_metadata(files, metadata)
    except (CorruptionError, OSError) as error:
        findings.append(file_finding(metadata, Rule.METADATA, error))
    epochs: list[tuple[int, int]] = []
    try:
        epochs = read_epoch_checkpoint(files, epoch_path)
    except (CorruptionError, OSError) as error:
        findings.append(file_finding(epoch_path, Rule.LEADER_EPOCH, error))
    # After the small files, as with the checkpoints: what they say may only lag.
    segments, listed = list_segments(files, folder)
    found = PartitionFiles(
        folder=folder,
        checkpoints=checkpoints,
        epochs=tuple(epochs),
        segments=tuple(segments),
        listed=tuple(listed),
        is_in_use=_is_in_use(files, folder.rpartition("/")[0]),
    )
    return found, findings


def verify_partition(
    files: Files, found: PartitionFiles, *, open_segment: OpenSegment | None = None
) -> Iterator[Finding]:
    """Every finding of a partition that is listed; a file that cannot be read ends it with one.

    Each segment is walked as `open_segment` says, or else by a `SegmentCheck`.
    """
    open_segment = open_segment or partial(_open_check, files, progress=lambda _: None)
    try:
        for each in (
            *_orphans(files, found),
            *check_partition_leftovers(found.folder, list(found.listed)),
        ):
            yield _as_work(each, found)
        for each in _walk(files, found, open_segment):
            yield _as_work(each, found)
    except OSError as error:
        yield file_finding(found.folder, Rule.READABLE, error)


def _as_work(finding: Finding, found: PartitionFiles) -> Finding:
    """The finding as information, if a broker at work may bring it about.

    From its recovery point on a log is recovered after a kill, with all that is derived from it.
    """
    # A directory that was stopped in order has nothing unfinished.
    if not found.is_in_use or finding.severity not in {Severity.ERROR, Severity.WARNING}:
        return finding
    name = finding.path.rpartition("/")[2].removesuffix(names.SWAP_SUFFIX)
    parsed = names.parse_segment_file_name(name)
    if finding.rule in _UNFINISHED:
        is_work = finding.severity is Severity.WARNING
    elif finding.rule in _DERIVED and parsed is not None:
        limits = (each.base_offset for each in found.segments if each.base_offset > parsed[0])
        end = min(limits, default=OFFSET_MAX)
        # The indexes of a closed segment have room for entries again while a start opens them.
        is_work = end >= found.recovery_point or finding.severity is Severity.WARNING
    elif finding.rule is Rule.SNAPSHOT and parsed is not None:
        # A start reads or removes those.
        is_work = parsed[0] >= found.recovery_point
    else:
        is_work = False
    return replace(finding, severity=Severity.INFO) if is_work else finding


def _is_in_use(files: Files, root: str) -> bool:
    """Whether a directory of a broker lacks the mark that an orderly stop leaves.

    A backup without `meta.properties` may lack it too, and says nothing.
    """
    # A broker removes the mark when it starts, and writes it when it stops in order.
    has_mark = files.exists(f"{root}/{names.CLEAN_SHUTDOWN}")
    return not has_mark and files.exists(f"{root}/{names.META_PROPERTIES}")


def _walk(files: Files, found: PartitionFiles, open_segment: OpenSegment) -> Iterator[Finding]:
    walk = PartitionWalk(
        files=files,
        folder=found.folder,
        next_offset=found.segments[0].base_offset if found.segments else 0,
        epochs=found.epochs,
        log_start=found.log_start,
        is_in_use=found.is_in_use,
        is_of_coordinator=_topic_of(found.folder) in INTERNAL_TOPICS,
    )
    yield from walk.begin(found.listed)
    for segment, following in found.with_following():
        try:
            check = open_segment(segment, following)
        except FileNotFoundError:
            continue  # A broker has just deleted it, which it does only at the start of a log.
        except OSError as error:
            walk.is_complete = False
            yield file_finding(segment.path, Rule.READABLE, error)
            continue
        try:
            yield from walk.walk(segment, check, following=following)
        finally:
            check.close()
    if not found.segments:
        # A broker begins such a log at its log start offset.
        walk.next_offset = found.log_start
    # Where the log ends is not known, so nothing can be beyond it, or fit after it.
    elif not (walk.is_complete and walk.is_end_known):
        yield from check_set_aside(
            files, found.folder, segments=(), listed=found.listed, is_sound=False
        )
        return
    yield from walk.finish()
    yield from _beyond_the_end(found, walk.next_offset)
    yield from check_set_aside(
        files,
        found.folder,
        segments=found.segments,
        listed=found.listed,
        is_sound=walk.is_sound and walk.is_complete and walk.is_end_known,
    )


def _topic_of(folder: str) -> str | None:
    partition = names.parse_partition_directory_name(folder.rpartition("/")[2])
    return None if partition is None else partition.topic


def _beyond_the_end(found: PartitionFiles, end: int) -> Iterator[Finding]:
    """The checkpoints that know of offsets which the log does not have."""
    beyond = {path: offset for path, offset in found.checkpoints.items() if offset > end}
    if found.epochs and found.epochs[-1][1] > end:
        beyond[f"{found.folder}/{names.LEADER_EPOCHS}"] = found.epochs[-1][1]
    for path, offset in beyond.items():
        yield Finding(
            severity=Severity.ERROR,
            rule=Rule.CHECKPOINT,
            path=path,
            offset=offset,
            sentence=f"it knows offset {offset} of {found.folder}, whose log ends at {end}",
        )


def _orphans(files: Files, found: PartitionFiles) -> Iterator[Finding]:
    bases = {segment.base_offset for segment in found.segments}
    for name in found.listed:
        parsed = names.parse_segment_file_name(name)
        suffixes = (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
        if parsed is None or parsed[0] in bases or parsed[1] not in suffixes:
            continue
        log = f"{found.folder}/{names.segment_file_name(parsed[0], names.LOG_SUFFIX)}"
        # A broker makes, exchanges and deletes the three files one after the other.
        twins = (log, log + names.DELETED_SUFFIX, log + names.SWAP_SUFFIX)
        # Looked at again, after the listing: a roll or a deletion may have been under way.
        if not any(map(files.exists, twins)) and files.exists(f"{found.folder}/{name}"):
            yield Finding(
                severity=Severity.WARNING,
                rule=Rule.ORPHAN,
                path=f"{found.folder}/{name}",
                sentence="an index without a log file of the same name",
            )


def _open_check(
    files: Files, segment: SegmentFiles, following: int | None, *, progress: Progress
) -> SegmentCheck:
    return SegmentCheck.open(files, segment, following=following, progress=progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReport:
    """Facts about one segment that the walk over its partition needs."""

    base_offset: int
    findings: tuple[Finding, ...] = ()
    """The findings that `FindingLimit` lets pass."""
    excess: Mapping[tuple[str, Rule], int] = field(default_factory=dict)
    """Number of findings it has held back; the reader that joins the reports counts them too."""
    end: int = 0
    """Position after the last batch that was looked at."""
    holes: tuple[Hole, ...] = ()
    """Ranges without a sound batch."""
    is_complete: bool = True
    has_grown: bool = False
    is_open: bool = True
    """Whether the file could be opened; `error` says why not."""
    error: OSError | None = None
    """The error that has ended the check."""


def check_segment(
    files: Files,
    segment: SegmentFiles,
    *,
    following: int | None,
    progress: Progress = lambda _: None,
) -> SegmentReport:
    """Look at every byte of a segment; `following` is the base offset of the next one, if any."""
    try:
        check = SegmentCheck.open(files, segment, following=following, progress=progress)
    except OSError as error:
        return SegmentReport(base_offset=segment.base_offset, is_open=False, error=error)
    limit = FindingLimit()
    findings: list[Finding] = []
    holes = []
    end, failure = 0, None
    try:
        for each in check.walk():
            if isinstance(each, Finding):
                findings += limit.take([each])
            elif isinstance(each, Hole):
                holes.append(each)
                end = each.end
            else:
                end = each.position + each.piece.size
    except OSError as error:
        failure = error
    finally:
        check.close()
    return SegmentReport(
        base_offset=segment.base_offset,
        findings=tuple(findings),
        excess=limit.excess(),
        end=end,
        holes=tuple(holes),
        is_complete=check.is_complete,
        has_grown=check.has_grown,
        error=failure,
    )


def join_segments(
    files: Files, found: PartitionFiles, reports: Mapping[int, SegmentReport]
) -> Iterator[Finding]:
    """Every finding of a partition, from the reports of its segments by base offset."""

    def open_segment(segment: SegmentFiles, following: int | None) -> "_Headers":
        del following
        report = reports[segment.base_offset]
        if report.error is not None and not report.is_open:
            raise report.error
        return _Headers(files.open(segment.path, read_only=True), segment, report)

    return verify_partition(files, found, open_segment=open_segment)


class _Headers:
    """A walk over headers, which repeats what a report says."""

    def __init__(self, log: File, segment: SegmentFiles, report: SegmentReport) -> None:
        self.is_complete, self.has_grown = report.is_complete, report.has_grown
        self._path = segment.path
        self._report = report
        self._log = log

    def walk(self) -> Iterator[Checked]:
        """The batches that the check has come to, with its findings before them."""
        report = self._report
        yield from report.findings
        start = 0
        for hole in report.holes:
            yield from self._batches(start, hole.position)
            yield hole
            start = hole.end
        yield from self._batches(start, report.end)
        if report.error is not None:
            raise report.error

    def _batches(self, start: int, limit: int) -> Iterator[Sound]:
        for position, header in walk_headers(self._log, self._path, start=start, limit=limit):
            yield Sound(position, self._whole(position, header) if header.is_control else header)

    def close(self) -> None:
        """Release the file."""
        self._log.close()

    def _whole(self, position: int, header: Batch) -> Batch:
        # Only markers are read whole: what a data batch says to a partition is in its header.
        end = position + header.size
        return next(walk_batches(self._log, self._path, start=position, limit=end))[1]
