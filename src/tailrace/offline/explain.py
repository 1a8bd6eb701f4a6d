"""Explains why each segment of a partition is still there, and why compaction waits.

The facts come from the files as they are; the decisions are those of the broker, made by the
same functions (`storage.retention`, `storage.cleaner.plan`). Without a checkpoint of the high
watermark, as a node that is alone leaves, it is the end of the log.

Nothing is changed and no lock is taken.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.errors import CorruptionError
from tailrace.model import METADATA_TOPIC, OFFSET_MAX, Offset, TopicPartition
from tailrace.reading.directory import believed_log_start, settled_or_gone
from tailrace.reading.listing import SegmentFiles
from tailrace.reading.lookup import find_end, newest_timestamp, position_near
from tailrace.reading.transactions import find_open_transactions
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.checkpoints import read_offset_checkpoint
from tailrace.storage.cleaner import plan as cleaning
from tailrace.storage.config import LogConfig
from tailrace.storage.retention import RetentionFacts, explain_retention
from tailrace.storage.walk import walk_headers
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReason:
    """A segment, with the reason for which it goes or stays."""

    base_offset: int
    size_bytes: int
    timestamp_ms: int
    """Largest timestamp, or when the file was last changed."""
    is_deletable: bool
    sentence: str


_OF_METADATA = (
    "stays: Kafka alone deletes from its metadata log, up to a snapshot (metadata.max.retention.*)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionState:
    """The state of a log's compaction, and whether the next round would clean it."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    dirty_ratio: float
    clean_bytes: int
    cleanable_bytes: int
    is_due: bool
    sentence: str
    """Reason why compaction waits, with names and values of settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReasons:
    """One partition."""

    partition: TopicPartition
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    segments: tuple[SegmentReason, ...]
    compaction: CompactionState | None
    """State of compaction; None if cleanup.policy does not name compact."""


def explain_partition(
    files: Files,
    root: str,
    partition: TopicPartition,
    *,
    folder: str,
    config: LogConfig,
    now_ms: int,
) -> PartitionReasons:
    """Every segment of a partition, and its compaction; `root` has the checkpoints.

    Raises:
        FolderGoneError: a broker has deleted the partition meanwhile.
        DirectoryError: a file cannot be read.
    """

    def look(segments: Sequence[SegmentFiles], _: Sequence[str]) -> _Facts:
        return _look(files, root, partition, folder=folder, segments=segments, config=config)

    # All facts from one listing: offsets of one moment and segments of another contradict each
    # other.
    known = settled_or_gone(files, folder, look)
    compaction = None
    # Retention of that log goes by snapshots (KIP-630), and not by these settings.
    is_kafkas = partition.topic == METADATA_TOPIC
    if config.is_compacted and known.cleaning is not None and not is_kafkas:
        checkpoint = _checkpoint(files, root, names.CLEANER_OFFSETS).get(partition)
        compaction = _compaction(
            known.cleaning, checkpoint=checkpoint, config=config, now_ms=now_ms
        )
    reasons = explain_retention(
        known.segments,
        config=config,
        log_start=known.start,
        high_watermark=known.watermark,
        now_ms=now_ms,
    )
    return PartitionReasons(
        partition=partition,
        log_start_offset=known.start,
        high_watermark=known.watermark,
        last_stable_offset=known.stable,
        log_end_offset=known.end,
        segments=tuple(
            SegmentReason(
                base_offset=fact.base_offset,
                size_bytes=fact.size_bytes,
                timestamp_ms=fact.timestamp_ms,
                is_deletable=each.is_deletable and not is_kafkas,
                sentence=_OF_METADATA if is_kafkas else each.sentence,
            )
            for fact, each in zip(known.segments, reasons, strict=True)
        ),
        compaction=compaction,
    )


class _Facts(NamedTuple):
    """Offsets, segments and settings, as read from the files."""

    start: int
    watermark: int
    stable: int
    end: int
    segments: list[RetentionFacts]
    cleaning: cleaning.LogFacts | None
    """Facts for the cleaner; None if the log is not compacted, or is not there."""


def _look(
    files: Files,
    root: str,
    partition: TopicPartition,
    *,
    folder: str,
    segments: Sequence[SegmentFiles],
    config: LogConfig,
) -> _Facts:
    end = find_end(files, segments)
    start = believed_log_start(files, root, partition, folder=folder, segments=segments)
    # A log that has lost its tail may end below its start, and a broker begins again at the start.
    end = Offset(max(end, start))
    watermarks = _checkpoint(files, root, names.HIGH_WATERMARKS)
    # Without an entry everything counts as replicated, as at the start of this broker.
    watermark = min(watermarks.get(partition, end), end)
    unstable = find_open_transactions(files, folder, segments, end=end).first_offset
    stable = watermark if unstable is None else min(unstable, watermark)
    limits = _limits(segments, end)
    facts = [_facts(files, each, limit) for each, limit in zip(segments, limits, strict=True)]
    log = None
    if config.is_compacted and segments:
        pairs = zip(segments, facts, strict=True)
        log = cleaning.LogFacts(
            log_start=start,
            last_stable=stable,
            log_end=end,
            segments=tuple(_cleaning_facts(files, each, fact) for each, fact in pairs),
        )
    return _Facts(start, watermark, stable, end, facts, log)


def _limits(segments: Sequence[SegmentFiles], end: int) -> list[int]:
    return [*(each.base_offset for each in segments[1:]), end][: len(segments)]


def _checkpoint(files: Files, root: str, name: str) -> dict[TopicPartition, int]:
    try:
        return read_offset_checkpoint(files, f"{root}/{name}")
    except CorruptionError:
        return {}  # It counts as empty, as for a broker.


def _facts(files: Files, segment: SegmentFiles, limit: int) -> RetentionFacts:
    timestamp = newest_timestamp(files, segment)
    # The time index may lag what was appended last, so the headers after it are read.
    if timestamp is None or limit > segment.base_offset:
        timestamp = _newest_after(files, segment, -1 if timestamp is None else timestamp)
    return RetentionFacts(
        base_offset=segment.base_offset,
        next_base_offset=limit,
        size_bytes=segment.size,
        # Kafka takes the file's time where records have none.
        timestamp_ms=timestamp if timestamp >= 0 else files.modified_ms(segment.path),
    )


def _newest_after(files: Files, segment: SegmentFiles, timestamp: int) -> int:
    """The largest timestamp of the segment; from the last index entry on, headers are read."""
    file = files.open(segment.path, read_only=True)
    try:
        # The index knows the largest timestamp up to its last entry; headers after it are read.
        near = 0
        if timestamp >= 0:
            near = position_near(files, segment, file, offset=OFFSET_MAX)
        for _, batch in walk_headers(file, segment.path, start=near, limit=segment.size):
            timestamp = max(timestamp, batch.max_timestamp)
    except CorruptionError:
        # What is before the damage counts.
        return timestamp
    finally:
        file.close()
    return timestamp


def _cleaning_facts(
    files: Files, segment: SegmentFiles, fact: RetentionFacts
) -> cleaning.CleanableSegment:
    first = None
    file = files.open(segment.path, read_only=True)
    try:
        found = next(walk_headers(file, segment.path, start=0, limit=segment.size), None)
        first = None if found is None or found[1].max_timestamp < 0 else found[1].max_timestamp
    except CorruptionError:
        first = None
    finally:
        file.close()
    return cleaning.CleanableSegment(
        base_offset=segment.base_offset,
        size_bytes=segment.size,
        largest_timestamp_ms=fact.timestamp_ms,
        first_timestamp_ms=first,
    )


def _compaction(
    log: cleaning.LogFacts, *, checkpoint: int | None, config: LogConfig, now_ms: int
) -> CompactionState:
    dirty = cleaning.plan_range(log, checkpoint=checkpoint, config=config, now_ms=now_ms)
    planned = cleaning.plan_cleaning(log, dirty, config=config, now_ms=now_ms)
    return CompactionState(
        first_dirty_offset=planned.first_dirty,
        first_uncleanable_offset=dirty.first_uncleanable,
        dirty_ratio=planned.dirty_ratio,
        clean_bytes=planned.clean_bytes,
        cleanable_bytes=planned.cleanable_bytes,
        is_due=planned.is_due,
        sentence=f"{_verdict(planned, config)}; {_limit(log, dirty, config)}",
    )


def _verdict(planned: cleaning.CleaningPlan, config: LogConfig) -> str:
    share = f"{planned.dirty_ratio:.2f} of {planned.total_bytes} bytes are dirty"
    limit = f"min.cleanable.dirty.ratio is {config.min_cleanable_dirty_ratio}"
    if not planned.cleanable_bytes:
        return "no whole segment is dirty and cleanable"
    if planned.dirty_ratio > config.min_cleanable_dirty_ratio:
        return f"due at the next round: {share}, {limit}"
    if planned.is_due:
        lag = f"max.compaction.lag.ms is {config.max_compaction_lag_ms}"
        return f"due at the next round: a record waits {planned.delay_ms} ms too long, {lag}"
    return f"waits: {share}, {limit}"


def _limit(log: cleaning.LogFacts, dirty: cleaning.DirtyRange, config: LogConfig) -> str:
    """Explain which rule limits the offsets that may be cleaned."""
    limit = dirty.first_uncleanable
    if limit > min(log.active_base, log.last_stable):
        return f"nothing from offset {limit} on may be cleaned yet"
    if limit == log.active_base:
        return f"the active segment begins at {limit} and is never cleaned"
    if limit == log.last_stable:
        return f"an open transaction holds the last stable offset at {limit}"
    lag = f"min.compaction.lag.ms is {config.min_compaction_lag_ms}"
    return f"the segment at {limit} is too young, {lag}"
