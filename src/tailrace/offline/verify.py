"""Whether a directory is what a broker wrote: every rule that a loader relies on, file by file.

    log         frames, checksums, records, offsets that rise, leader epochs that do not fall
    producers   sequences without a gap, markers that end a transaction; snapshots that agree
    indexes     each entry in order, and true of the log, aborted transactions included
    partition   partition.metadata, the epoch checkpoint, index files without a log, leftovers
    directory   meta.properties, checkpoints readable and none behind the end of its log

Nothing is repaired; `tailrace.offline.repair` does that.

Memory does not grow with the log: segments are read once, window by window, with the indexes beside
them. Findings come as they are made; of one rule in one file no more than 20 are told apart.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tailrace import kernels
from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError, UnsupportedCodecError
from tailrace.model import NO_LEADER_EPOCH, TimestampType, TopicPartition
from tailrace.offline.aborts import check_aborts
from tailrace.offline.directory import DataDirectory, list_segments
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.offline.indexes import (
    OffsetIndexCheck,
    TimeIndexCheck,
    offset_entries_rise,
    read_entries,
    time_entries_rise,
)
from tailrace.offline.leftovers import (
    check_directory_leftovers,
    check_identity,
    check_partition_leftovers,
)
from tailrace.offline.producers import EndedTransaction, ProducerWalk
from tailrace.offline.walk import walk_batches
from tailrace.records.batch import Batch
from tailrace.records.checks import check_records
from tailrace.runtime.files import File, Files
from tailrace.storage import names
from tailrace.storage.checkpoints import (
    read_epoch_checkpoint,
    read_offset_checkpoint,
    read_partition_metadata,
)
from tailrace.storage.index import offset as offset_index
from tailrace.storage.index import time as time_index
from tailrace.storage.reader import SegmentFiles
from tailrace.storage.snapshots import KnownProducer, list_snapshots, read_snapshot, snapshot_path

FINDINGS_MAX = 20
"""Of one rule in one file: damage rarely comes alone, and nobody reads the thousandth line."""

_OTHER_CHECKPOINTS = (names.HIGH_WATERMARKS, names.CLEANER_OFFSETS)

_KERNELS_FROM_BYTES = 16 * 1024 * 1024
"""In a log of this size it takes longer to walk the records without compiled kernels than to load
them."""

Progress = Callable[[int], None]
"""Takes bytes of log that have been looked at since the last call."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    """What the walk over a partition knows when it comes to a batch."""

    files: Files
    next_offset: int
    """No batch may begin below it."""
    epochs: list[tuple[int, int]]
    latest_epoch: int = NO_LEADER_EPOCH
    is_complete: bool = True
    """Whether every segment was walked to its end."""
    gaps: int = 0
    first_gap: tuple[int, int, int] = (0, 0, 0)
    """Position, and the offsets on both sides."""
    is_end_known: bool = True
    """Whether the last batch was sound, so that its end can be relied on."""
    faults: list[Finding] = field(default_factory=list)
    """Of the batch at hand: what makes it unusable."""
    producers: ProducerWalk = field(default_factory=ProducerWalk)
    snapshots: list[tuple[int, str]] = field(default_factory=list)
    """Offset and path of those that the walk has not come to, the lowest first."""
    markers: list[EndedTransaction] = field(default_factory=list)
    """Of the segment at hand."""
    is_sound: bool = True
    """Whether no batch so far was damaged."""


def verify(
    files: Files, directory: DataDirectory, *, progress: Progress = lambda _: None
) -> Iterator[Finding]:
    """Every finding in every partition; none at all for a clean directory."""
    seen: Counter[tuple[str, Rule]] = Counter()
    for finding in _verify(files, directory, progress):
        place = finding.path, finding.rule
        seen[place] += 1
        if seen[place] <= FINDINGS_MAX:
            yield finding
    for (path, rule), count in seen.items():
        if count > FINDINGS_MAX:
            yield Finding(
                severity=Severity.INFO,
                rule=Rule.MORE,
                path=path,
                sentence=f"{count - FINDINGS_MAX} more findings of the rule {rule.value}",
            )


def _verify(files: Files, directory: DataDirectory, progress: Progress) -> Iterator[Finding]:
    # Checkpoints first: a broker at work writes them behind its logs, so they may only lag.
    checkpoints: dict[str, dict[TopicPartition, int]] = {}
    for name in (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, *_OTHER_CHECKPOINTS):
        path = f"{directory.path}/{name}"
        try:
            checkpoints[path] = read_offset_checkpoint(files, path)
        except (CorruptionError, OSError) as error:
            yield _file_finding(path, Rule.CHECKPOINT, error)
    yield from _verify_directory(files, directory)
    # High watermarks and the cleaner's progress are not held against the log.
    for name in _OTHER_CHECKPOINTS:
        checkpoints.pop(f"{directory.path}/{name}", None)
    for partition, folder in directory.partitions.items():
        try:
            yield from _verify_partition(
                files, folder, checkpoints=_of(checkpoints, partition), progress=progress
            )
        except OSError as error:
            yield _file_finding(folder, Rule.READABLE, error)


def _verify_directory(files: Files, directory: DataDirectory) -> Iterator[Finding]:
    identity = f"{directory.path}/{names.META_PROPERTIES}"
    try:
        yield from check_identity(files, identity)
        yield from check_directory_leftovers(files, directory.path)
    except OSError as error:
        yield _file_finding(identity, Rule.READABLE, error)


def _verify_partition(
    files: Files, folder: str, *, checkpoints: dict[str, int], progress: Progress
) -> Iterator[Finding]:
    metadata, epoch_path = f"{folder}/{names.PARTITION_METADATA}", f"{folder}/{names.LEADER_EPOCHS}"
    try:
        read_partition_metadata(files, metadata)
    except (CorruptionError, OSError) as error:
        yield _file_finding(metadata, Rule.METADATA, error)
    epochs: list[tuple[int, int]] = []
    try:
        epochs = read_epoch_checkpoint(files, epoch_path)
    except (CorruptionError, OSError) as error:
        yield _file_finding(epoch_path, Rule.LEADER_EPOCH, error)
    segments, listed = list_segments(files, folder)
    if sum(segment.size for segment in segments) >= _KERNELS_FROM_BYTES:
        kernels.load()
    bases = {segment.base_offset for segment in segments}
    for name in listed:
        parsed = names.parse_segment_file_name(name)
        suffixes = (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
        if parsed and parsed[0] not in bases and parsed[1] in suffixes:
            path = f"{folder}/{name}"
            # A broker that rolls makes the three files one after the other.
            if not files.exists(f"{folder}/{names.segment_file_name(parsed[0], names.LOG_SUFFIX)}"):
                yield Finding(
                    severity=Severity.WARNING,
                    rule=Rule.ORPHAN,
                    path=path,
                    sentence="an index without a log file of the same name",
                )
    yield from check_partition_leftovers(folder, listed)
    start = segments[0].base_offset if segments else 0
    walk = _Walk(files=files, next_offset=start, epochs=epochs)
    yield from _begin_producers(folder, walk)
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        yield from _verify_segment(files, segment, following=following, walk=walk, say=progress)
    if not segments:
        # A broker begins such a log at its log start offset.
        starts = f"/{names.LOG_START_OFFSETS}"
        walk.next_offset = sum(at for path, at in checkpoints.items() if path.endswith(starts))
    elif not (walk.is_complete and walk.is_end_known):
        return
    yield from _finish_producers(folder, walk)
    behind = {path: offset for path, offset in checkpoints.items() if offset > walk.next_offset}
    if epochs and epochs[-1][1] > walk.next_offset:
        behind[epoch_path] = epochs[-1][1]
    for path, offset in behind.items():
        yield Finding(
            severity=Severity.ERROR,
            rule=Rule.CHECKPOINT,
            path=path,
            offset=offset,
            sentence=f"it knows offset {offset} of {folder}, whose log ends at {walk.next_offset}",
        )


def _verify_segment(
    files: Files, segment: SegmentFiles, *, following: int | None, walk: _Walk, say: Progress
) -> Iterator[Finding]:
    try:
        log = files.open(segment.path, read_only=True)
    except FileNotFoundError:
        return  # A broker has just deleted it, which it does only at the start of a log.
    except OSError as error:
        walk.is_complete = False
        yield _file_finding(segment.path, Rule.READABLE, error)
        return
    opened: list[File] = [log]
    try:
        size = log.size()
        is_active = following is None
        offsets = _open_index(files, segment, names.OFFSET_INDEX_SUFFIX, opened=opened)
        times = _open_index(files, segment, names.TIME_INDEX_SUFFIX, opened=opened)
        yield from _odd_sizes(offsets, times)
        offset_check = _offset_check(segment, *offsets, is_active=is_active)
        time_check = _time_check(segment, *times, is_active=is_active)
        end = walk.gaps = 0
        yield from _gap_before(segment, walk)
        walk.markers = []
        blocked = []
        try:
            if size > INT32_MAX:
                raise CorruptionError(
                    f"the file has {size} bytes, more than the {INT32_MAX} of the largest segment"
                )
            batches = walk_batches(log, segment.path, start=0, limit=size)
            for position, batch, next_base in _with_next(batches):
                yield from _verify_batch(
                    segment, position, batch, limits=(next_base, following), walk=walk
                )
                yield from walk.faults
                if walk.faults:
                    walk.is_sound = False
                    walk.producers.holes += 1
                elif batch.has_producer:
                    yield from _verify_producer(segment, position, batch, walk=walk)
                yield from offset_check.see(position, batch, is_sound=not walk.faults)
                yield from time_check.see(batch, is_sound=not walk.faults)
                end = position + batch.size
                say(batch.size)
        except CorruptionError as error:
            blocked.append(_blocking(segment, error, size))
            walk.is_sound = False
            walk.producers.holes += 1
        yield from _gap(segment, walk)
        yield from blocked
        walk.is_complete = walk.is_complete and not blocked
        has_grown = is_active and log.size() > size
        yield from _verify_aborts(segment, walk, following=following, is_final=not has_grown)
        if not blocked:
            yield from _tail(segment, end, size, is_active=is_active)
            # What a broker has appended since belongs to entries that came since.
            if not has_grown:
                yield from offset_check.finish(end, is_active=is_active)
                yield from time_check.finish(is_active=is_active)
    finally:
        for file in opened:
            file.close()


def _with_next(
    batches: Iterator[tuple[int, Batch]],
) -> Iterator[tuple[int, Batch, int | None]]:
    """Each batch with the base offset of the one behind it; all of them before an error."""
    held = None
    try:
        for position, batch in batches:
            if held is not None:
                yield (*held, batch.base_offset)
            held = position, batch
    except CorruptionError:
        if held is not None:
            yield (*held, None)
        raise
    if held is not None:
        yield (*held, None)


def _verify_batch(
    segment: SegmentFiles,
    position: int,
    batch: Batch,
    *,
    limits: tuple[int | None, int | None],
    walk: _Walk,
) -> Iterator[Finding]:
    """Yields what leaves the batch usable; faults that do not go to `walk.faults`.

    `limits` are the base offsets of the next batch and of the next segment.
    """
    walk.faults = []
    try:
        batch.check()
    except CorruptionError as error:
        walk.faults.append(
            _batch_finding(segment, position, batch, rule=Rule.CHECKSUM, sentence=error.rule)
        )
    else:
        yield from _verify_records(segment, position, batch, walk=walk)
        fault = _order_fault(segment, batch, limits=limits, walk=walk)
        if fault:
            walk.faults.append(
                _batch_finding(segment, position, batch, rule=Rule.OFFSET_ORDER, sentence=fault)
            )
    if walk.faults:
        # Nobody knows where such a batch ends, so what follows it may begin anywhere.
        walk.is_end_known = False
        return
    wrapper = batch.legacy
    if wrapper is not None and wrapper.codec_number and not wrapper.magic:
        yield from _verify_wrapper(segment, position, batch, stored=wrapper.offset)
    yield from _compare_snapshots(walk, batch.base_offset)
    if batch.base_offset > walk.next_offset:
        walk.producers.holes += 1
    if batch.base_offset > walk.next_offset and walk.is_end_known:
        if not walk.gaps:
            walk.first_gap = position, walk.next_offset, batch.base_offset
        walk.gaps += 1
    walk.next_offset, walk.is_end_known = batch.next_offset, True
    yield from _verify_epoch(segment, position, batch, walk=walk)


def _begin_producers(folder: str, walk: _Walk) -> Iterator[Finding]:
    """Read what was known before the first batch, and check that every snapshot can be read."""
    log_start = walk.next_offset
    walk.producers.is_history_known = not log_start
    for offset in list_snapshots(walk.files, folder):
        path = snapshot_path(folder, offset)
        try:
            known = read_snapshot(walk.files, path)
        except FileNotFoundError:
            continue  # A broker has just deleted it.
        except (CorruptionError, OSError) as error:
            yield _file_finding(path, Rule.SNAPSHOT, error)
            continue
        fault = _snapshot_fault(known, offset)
        if fault is not None:
            yield _snapshot_finding(path, offset, fault, severity=Severity.ERROR)
        elif offset == log_start:
            walk.producers.start_from(known)
        elif offset > log_start:
            walk.snapshots.append((offset, path))


def _snapshot_fault(known: dict[int, KnownProducer], offset: int) -> str | None:
    for producer_id, each in known.items():
        newest = max(each.last_offset, each.transaction_start)
        if newest >= offset:
            return f"producer {producer_id} has offset {newest}, in the state before {offset}"
        if min(each.epoch, each.coordinator_epoch, each.transaction_start) < -1:
            return f"producer {producer_id} has a negative epoch or offset"
    return None


def _compare_snapshots(walk: _Walk, limit: int) -> Iterator[Finding]:
    """Hold the snapshots up to offset `limit`, where no batch begins earlier, against the walk."""
    while walk.snapshots and walk.snapshots[0][0] <= limit:
        offset, path = walk.snapshots.pop(0)
        # One inside of a batch is of a log that was other than this; behind holes in the middle
        # of the log what it knew may be gone.
        if offset < walk.next_offset or not walk.is_sound or walk.producers.holes:
            continue
        yield from _compare_snapshot(walk, offset, path)


def _compare_snapshot(walk: _Walk, offset: int, path: str) -> Iterator[Finding]:
    try:
        fault = walk.producers.disagreement(read_snapshot(walk.files, path))
    except FileNotFoundError:
        return  # A broker has just deleted it.
    except (CorruptionError, OSError) as error:
        yield _file_finding(path, Rule.SNAPSHOT, error)
        return
    if fault is not None:
        yield _snapshot_finding(path, offset, fault)


def _finish_producers(folder: str, walk: _Walk) -> Iterator[Finding]:
    """The snapshot at the log end, those behind it, and the transactions that are open there."""
    for offset, path in walk.snapshots:
        if offset > walk.next_offset:
            sentence = f"it is of offset {offset}, and the log ends at {walk.next_offset}"
            yield _snapshot_finding(path, offset, f"{sentence}; a broker removes it")
        elif offset == walk.next_offset and walk.is_sound and not walk.producers.holes:
            yield from _compare_snapshot(walk, offset, path)
    for offset, producer_id in walk.producers.open_transactions():
        yield Finding(
            severity=Severity.INFO,
            rule=Rule.TRANSACTION,
            path=folder,
            offset=offset,
            sentence=f"the transaction of producer {producer_id} is open at the end of the log; "
            "readers of committed records stop before it",
        )


def _verify_producer(
    segment: SegmentFiles, position: int, batch: Batch, *, walk: _Walk
) -> Iterator[Finding]:
    fault = walk.producers.sequence_fault(batch)
    if fault is not None:
        finding = _batch_finding(segment, position, batch, rule=Rule.SEQUENCE, sentence=fault)
        yield replace(finding, severity=Severity.WARNING)
    try:
        ended = walk.producers.see(batch)
    except (CorruptionError, UnsupportedCodecError) as error:
        sentence = error.rule if isinstance(error, CorruptionError) else str(error)
        yield _batch_finding(segment, position, batch, rule=Rule.TRANSACTION, sentence=sentence)
        return
    if ended is not None:
        walk.markers.append(ended)


def _verify_aborts(
    segment: SegmentFiles, walk: _Walk, *, following: int | None, is_final: bool
) -> Iterator[Finding]:
    """The transaction index, and the markers that end nothing."""
    path = segment.path.removesuffix(names.LOG_SUFFIX) + names.TRANSACTION_INDEX_SUFFIX
    yield from check_aborts(
        walk.files,
        path,
        base_offset=segment.base_offset,
        limit_offset=walk.next_offset if following is None else following,
        markers=walk.markers,
        is_sound=walk.is_sound and is_final,
    )
    alone = [each for each in walk.markers if each.first_offset is None]
    if alone:
        yield Finding(
            severity=Severity.INFO,
            rule=Rule.TRANSACTION,
            path=segment.path,
            offset=alone[0].last_offset,
            sentence=f"{len(alone)} markers end a transaction without a record in this log, first "
            f"that of producer {alone[0].producer_id}",
        )


def _verify_epoch(
    segment: SegmentFiles, position: int, batch: Batch, *, walk: _Walk
) -> Iterator[Finding]:
    epoch = batch.leader_epoch
    number = bisect_right(walk.epochs, batch.base_offset, key=lambda entry: entry[1]) - 1
    due = walk.epochs[number][0] if number >= 0 else epoch
    if epoch == NO_LEADER_EPOCH:
        return
    if epoch != due:
        sentence = f"leader epoch {epoch}, where {names.LEADER_EPOCHS} has {due}"
        finding = _batch_finding(
            segment, position, batch, rule=Rule.LEADER_EPOCH, sentence=sentence
        )
        yield replace(finding, severity=Severity.WARNING)
    elif epoch < walk.latest_epoch:
        sentence = f"leader epoch {epoch} stands behind epoch {walk.latest_epoch}"
        yield _batch_finding(segment, position, batch, rule=Rule.LEADER_EPOCH, sentence=sentence)
    else:
        walk.latest_epoch = epoch


def _verify_records(
    segment: SegmentFiles, position: int, batch: Batch, *, walk: _Walk
) -> Iterator[Finding]:
    if kernels.worth_loading():
        kernels.load()
    try:
        totals = check_records(batch)
    except CorruptionError as error:
        walk.faults.append(
            _batch_finding(segment, position, batch, rule=Rule.RECORDS, sentence=error.rule)
        )
        return
    except UnsupportedCodecError as error:
        walk.faults.append(
            _batch_finding(segment, position, batch, rule=Rule.RECORDS, sentence=str(error))
        )
        return
    if totals.last_offset_delta > batch.last_offset_delta:
        last_offset = batch.base_offset + totals.last_offset_delta
        sentence = (
            f"the last record has offset {last_offset}; the header ends at {batch.last_offset}"
        )
        walk.faults.append(
            _batch_finding(segment, position, batch, rule=Rule.RECORDS, sentence=sentence)
        )
    newest, largest = batch.base_timestamp + totals.timestamp_delta_max, batch.max_timestamp
    is_create_time = batch.timestamp_type is TimestampType.CREATE_TIME
    if totals.records and is_create_time and newest > largest:
        sentence = f"a record has timestamp {newest}; the header's largest is {largest}"
        yield _batch_finding(segment, position, batch, rule=Rule.RECORDS, sentence=sentence)


def _verify_wrapper(
    segment: SegmentFiles, position: int, batch: Batch, *, stored: int
) -> Iterator[Finding]:
    """In format v0 the records inside have their offsets, and the wrapper's own is the last again.

    No checksum covers that one. Readers do without it, but Kafka takes it for the end of a log.
    """
    if stored != batch.last_offset:
        sentence = f"a wrapper has offset {stored}, and its last record {batch.last_offset}"
        finding = _batch_finding(
            segment, position, batch, rule=Rule.OFFSET_ORDER, sentence=sentence
        )
        yield replace(finding, severity=Severity.WARNING)


def _order_fault(
    segment: SegmentFiles, batch: Batch, *, limits: tuple[int | None, int | None], walk: _Walk
) -> str | None:
    """No checksum covers a base offset, so it is held against what stands around it."""
    first, last = batch.base_offset, batch.last_offset
    next_base, following = limits
    if first < walk.next_offset:
        return f"the batch begins at offset {first}, where {walk.next_offset} or more is due"
    if following is not None and last >= following:
        return f"the batch reaches to offset {last}, and the next segment begins at {following}"
    if next_base is not None and walk.next_offset < next_base <= last:
        return f"the batch has offsets {first} to {last}, and the next one begins at {next_base}"
    if last - segment.base_offset > INT32_MAX:
        return f"offset {last} is more than {INT32_MAX} above the segment's base"
    return None


def _gap(segment: SegmentFiles, walk: _Walk) -> Iterator[Finding]:
    if walk.gaps:
        position, before, after = walk.first_gap
        yield Finding(
            severity=Severity.INFO,
            rule=Rule.GAP,
            path=segment.path,
            position=position,
            offset=before,
            sentence=f"offsets are missing in {walk.gaps} places, first {before} to {after - 1}; "
            "compaction leaves such gaps",
        )


def _gap_before(segment: SegmentFiles, walk: _Walk) -> Iterator[Finding]:
    """Go on at the base offset of a segment; offsets between two segments may be missing."""
    if segment.base_offset <= walk.next_offset:
        return
    first, walk.next_offset = walk.next_offset, segment.base_offset
    walk.producers.holes += 1
    if walk.is_end_known and walk.is_complete:
        yield Finding(
            severity=Severity.INFO,
            rule=Rule.GAP,
            path=segment.path,
            position=0,
            offset=first,
            sentence=f"offsets {first} to {segment.base_offset - 1} are missing before this "
            "segment; compaction leaves such gaps, and so does a lost machine",
        )


def _blocking(segment: SegmentFiles, error: CorruptionError, size: int) -> Finding:
    position = error.position or 0
    rest = f"the {size - position} bytes from here on cannot be looked at"
    return Finding(
        severity=Severity.ERROR,
        rule=Rule.FRAME,
        path=segment.path,
        position=position,
        offset=error.offset,
        sentence=f"{error.rule}; {rest}",
    )


def _tail(segment: SegmentFiles, end: int, limit: int, *, is_active: bool) -> Iterator[Finding]:
    if end < limit:
        size = limit - end
        yield Finding(
            severity=Severity.WARNING if is_active else Severity.ERROR,
            rule=Rule.TAIL,
            path=segment.path,
            position=end,
            sentence=f"{size} bytes of an append in progress, or of a torn one"
            if is_active
            else f"the last {size} bytes are no whole batch, and this is not the last segment",
        )


def _open_index(
    files: Files, segment: SegmentFiles, suffix: str, *, opened: list[File]
) -> tuple[str, File | None]:
    """Path and file; a missing index is in order, since a broker writes it anew."""
    path = segment.path.removesuffix(names.LOG_SUFFIX) + suffix
    try:
        file = files.open(path, read_only=True)
    except FileNotFoundError:
        return path, None
    opened.append(file)
    return path, file


def _offset_check(
    segment: SegmentFiles, path: str, file: File | None, *, is_active: bool
) -> OffsetIndexCheck:
    entries = (
        read_entries(file, offset_index.ENTRY, is_active=is_active, rises=offset_entries_rise)
        if file
        else iter(())
    )
    return OffsetIndexCheck(path, segment.base_offset, entries)


def _time_check(
    segment: SegmentFiles, path: str, file: File | None, *, is_active: bool
) -> TimeIndexCheck:
    entries = (
        read_entries(file, time_index.ENTRY, is_active=is_active, rises=time_entries_rise)
        if file
        else iter(())
    )
    return TimeIndexCheck(path, segment.base_offset, entries)


def _odd_sizes(
    offsets: tuple[str, File | None], times: tuple[str, File | None]
) -> Iterator[Finding]:
    for (path, file), rule, entry in (
        (offsets, Rule.OFFSET_INDEX, offset_index.ENTRY),
        (times, Rule.TIME_INDEX, time_index.ENTRY),
    ):
        size = file.size() if file is not None else 0
        if size % entry.size:
            yield Finding(
                severity=Severity.ERROR,
                rule=rule,
                path=path,
                position=size - size % entry.size,
                sentence=f"{size % entry.size} bytes are left over behind entries of {entry.size}",
            )


def _of(
    checkpoints: dict[str, dict[TopicPartition, int]], partition: TopicPartition
) -> dict[str, int]:
    return {path: known[partition] for path, known in checkpoints.items() if partition in known}


def _batch_finding(
    segment: SegmentFiles, position: int, batch: Batch, *, rule: Rule, sentence: str
) -> Finding:
    return Finding(
        severity=Severity.ERROR,
        rule=rule,
        path=segment.path,
        position=position,
        offset=batch.base_offset,
        sentence=sentence,
    )


def _snapshot_finding(
    path: str, offset: int, sentence: str, *, severity: Severity = Severity.WARNING
) -> Finding:
    return Finding(
        severity=severity, rule=Rule.SNAPSHOT, path=path, offset=offset, sentence=sentence
    )


def _file_finding(path: str, rule: Rule, error: CorruptionError | OSError) -> Finding:
    if isinstance(error, CorruptionError):
        return Finding(severity=Severity.ERROR, rule=rule, path=path, sentence=error.rule)
    reason = error.strerror.lower() if error.strerror else str(error)
    return Finding(
        severity=Severity.UNVERIFIED,
        rule=Rule.READABLE,
        path=str(error.filename or path),
        sentence=f"cannot be read: {reason}",
    )
