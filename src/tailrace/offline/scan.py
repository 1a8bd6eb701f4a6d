"""Summarise a directory from the 61-byte headers of its batches.

Checksums are not computed and records not looked into; `tailrace.offline.verify` does that. Only a
segment whose headers do not lead from its start to its end is read as a whole: what is sound after
its damage is counted too.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from tailrace.errors import CorruptionError
from tailrace.model import Codec, Offset, Position, TimestampType, TopicPartition
from tailrace.reading.damage import find_segment_damage, sound_ranges
from tailrace.reading.directory import believed_log_start, settled_or_gone
from tailrace.reading.listing import SegmentFiles
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.runtime.files import File, Files
from tailrace.storage.segment_walk import NOT_WHOLE
from tailrace.storage.set_aside import is_blank
from tailrace.storage.walk import walk_batches, walk_headers
from tailrace.values import dataclass, field


@dataclass(slots=True, kw_only=True)
class PartitionScan:
    """One partition in numbers."""

    partition: TopicPartition
    start_offset: int = 0
    """The first offset that a reader may ask for."""
    end_offset: int = 0
    """The offset after the last whole batch that could be read."""
    oldest_timestamp: int | None = None
    """Smallest timestamp (ms) that a batch begins with; None without any."""
    newest_timestamp: int | None = None
    """Largest timestamp (ms) of all batches; None without any."""
    segments: int = 0
    bytes: int = 0
    """Size of all log files."""
    batches: int = 0
    records: int = 0
    """Sum of the headers' counts, markers of transactions included."""
    codecs: Counter[str] = field(default_factory=Counter)
    """Batches by codec."""
    damage: list[str] = field(default_factory=list)
    """A sentence for each damaged range among the segments whose headers do not lead to the end."""
    tail_bytes: int = 0
    """After the last whole batch: an append in progress, or a torn one."""

    def add(self, batch: Batch) -> None:
        self.batches += 1
        # The header is not checked here, and damage may have made the count negative.
        self.records += max(0, batch.record_count)
        self.end_offset = max(self.end_offset, batch.next_offset)
        stored = batch.attributes & layout.CODEC_MASK
        if batch.legacy is not None:
            stored = batch.legacy.codec_number
        self.codecs[_codec_name(stored)] += 1
        is_first_known = (
            batch.timestamp_type is TimestampType.CREATE_TIME
            and batch.delete_horizon_or_none is None
        )
        # With a delete horizon the field has that instead (KIP-534); with LogAppendTime all records
        # have the largest.
        oldest = batch.base_timestamp if is_first_known else batch.max_timestamp
        if oldest >= 0:
            known = self.oldest_timestamp
            self.oldest_timestamp = oldest if known is None else min(known, oldest)
        if batch.max_timestamp >= 0:
            self.newest_timestamp = max(self.newest_timestamp or 0, batch.max_timestamp)


def scan_partition(
    files: Files,
    root: str,
    partition: TopicPartition,
    *,
    folder: str,
    progress: Callable[[int], None] = lambda _: None,
) -> PartitionScan:
    """The partition in numbers; `root` has the checkpoints.

    Where a broker exchanges files meanwhile it is counted again from the start. `progress` takes
    bytes that have been counted, each byte once.

    Raises:
        FolderGoneError: a broker has deleted the partition meanwhile.
        DirectoryError: a file cannot be read, or files were exchanged at each try.
    """
    reported = 0

    def report(count: int) -> None:
        # A scan that is repeated must not count bytes twice.
        nonlocal reported
        if count > reported:
            progress(count - reported)
            reported = count

    def scan(segments: Sequence[SegmentFiles], _: Sequence[str]) -> PartitionScan:
        found = PartitionScan(partition=partition)
        _scan_segments(files, root, found, folder=folder, segments=segments, report=report)
        return found

    return settled_or_gone(files, folder, scan)


def _scan_segments(
    files: Files,
    root: str,
    found: PartitionScan,
    *,
    folder: str,
    segments: Sequence[SegmentFiles],
    report: Callable[[int], None],
) -> None:
    """Count what the segments hold; `report` takes how many bytes have been counted.

    Raises:
        OSError: a file cannot be read.
    """
    count = 0
    found.segments = len(segments)
    found.bytes = sum(segment.size for segment in segments)
    found.start_offset = believed_log_start(
        files, root, found.partition, folder=folder, segments=segments
    )
    found.end_offset = found.start_offset
    for number, segment in enumerate(segments):
        # An empty segment proves its base offset: the log had reached it when it was rolled.
        found.end_offset = max(found.end_offset, segment.base_offset)
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        with closing(files.open(segment.path, read_only=True)) as log:
            if _leads_to_end(log, segment):
                batches = walk_headers(log, segment.path, start=0, limit=segment.size)
            else:
                batches = _sound_batches(log, segment, following, found=found)
            for position, batch in batches:
                found.add(batch)
                report(count + position + batch.size)
        count += segment.size


def _leads_to_end(log: File, segment: SegmentFiles) -> bool:
    """Whether headers lead from the start of a segment to its end, and offsets rise."""
    # 61 bytes of each batch: a directory is summed up in the time that its headers take to read.
    end, next_offset = 0, segment.base_offset
    try:
        for position, batch in walk_headers(log, segment.path, start=0, limit=segment.size):
            if batch.base_offset < next_offset:
                return False
            end, next_offset = position + batch.size, batch.next_offset
    except CorruptionError:
        return False
    return is_blank(log, segment.path, start=end, limit=segment.size)


def _sound_batches(
    log: File, segment: SegmentFiles, following: Offset | None, *, found: PartitionScan
) -> Iterator[tuple[Position, Batch]]:
    """The batches around the damage of a segment; `found` gets what is damaged."""
    damage = find_segment_damage(log, segment, following=following)
    for drop in damage.drops:
        end = drop.position + drop.size_bytes
        if following is None and end == segment.size and drop.reason == NOT_WHOLE:
            found.tail_bytes = drop.size_bytes
        else:
            place = f"{drop.path}, position {drop.position}"
            found.damage.append(f"{place}: {drop.reason}; left out: {drop.lost}")
    # Whole batches here and not headers: after damage a header alone proves nothing.
    for start, limit in sound_ranges(damage):
        yield from walk_batches(log, segment.path, start=start, limit=limit)


def _codec_name(number: int) -> str:
    try:
        return Codec(number).label
    except ValueError:
        return f"unknown-{number}"
