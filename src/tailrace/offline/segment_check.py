"""Checks of one segment by itself: the findings of `storage.segment_walk`, and its two indexes.

No earlier segment has to be known for it, so the segments of a partition may be checked in any
order, and on several machines. Segments are read once, window by window, with the indexes beside
them.

Not here: gaps, leader epochs, producers and transactions, which `partition_walk` follows through
all segments of a partition.

Invariant: a sound batch lies between its segment's base offset and that of the next one. So
the sound batches of an earlier segment end before this one begins.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeAlias

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError
from tailrace.model import Offset, TimestampType
from tailrace.offline.findings import Finding, Rule, Severity, batch_finding
from tailrace.offline.indexes import (
    IndexEntries,
    OffsetIndexCheck,
    TimeIndexCheck,
    offset_entries_rise,
    time_entries_rise,
    times_of,
    used_bytes,
)
from tailrace.reading.listing import SegmentFiles
from tailrace.records.codecs import DecompressedTooLargeError, check_framing
from tailrace.records.runs import BatchRun
from tailrace.runtime.files import File, Files
from tailrace.storage import names
from tailrace.storage.index import offset as offset_index
from tailrace.storage.index import time as time_index
from tailrace.storage.segment_walk import Damage, Fault, Sound, walk_segment
from tailrace.values import replace

Progress = Callable[[int], None]
"""Takes bytes of log that have been looked at since the last call."""


class Hole(NamedTuple):
    """Damaged bytes of a segment, in which sound batches may be missing."""

    position: int
    end: int


Checked: TypeAlias = Finding | Sound | Hole
"""The results of a walk over a segment. A batch may lack its records, if it is no control batch."""


class SegmentWalk(Protocol):
    """One walk over one segment."""

    is_complete: bool
    """Whether it came to the end of the file; known when the walk is over."""
    has_grown: bool
    """Whether a broker has appended since the walk began; likewise."""

    def walk(self) -> Iterator[Checked]:
        """Every batch, by itself or in a run, and what is found by the way.

        Raises:
            OSError: a file cannot be read.
        """
        ...

    def close(self) -> None:
        """Release the files."""
        ...


class SegmentCheck:
    """A walk that looks at every byte; see the module. `open` makes it."""

    def __init__(
        self,
        files: Files,
        segment: SegmentFiles,
        log: File,
        *,
        following: int | None,
        progress: Progress,
    ) -> None:
        self.is_complete = True
        self.has_grown = False
        self._segment = segment
        # Base offset of the next segment; None: this one takes the appends.
        self._following = following
        self._progress = progress
        self._files = files
        self._log = log
        self._opened = [log]

    @classmethod
    def open(
        cls,
        files: Files,
        segment: SegmentFiles,
        *,
        following: int | None,
        progress: Progress = lambda _: None,
    ) -> "SegmentCheck":
        """A check of this segment; `following` is the base offset of the next one, if any.

        Raises:
            OSError: the log file cannot be opened; FileNotFoundError if a broker has just deleted
                it.
        """
        log = files.open(segment.path, read_only=True)
        return cls(files, segment, log, following=following, progress=progress)

    def walk(self) -> Iterator[Checked]:
        """Every batch and every damaged range, with the rules that do not hold."""
        segment, is_active, size = self._segment, self._following is None, self._log.size()
        # After the size of the log: a broker writes an entry before its batch, so entries for later
        # batches are recognised at the end.
        offsets = self._open_index(names.OFFSET_INDEX_SUFFIX)
        times = self._open_index(names.TIME_INDEX_SUFFIX)
        yield from _odd_sizes(offsets, times, is_active=is_active)
        offset_check = _offset_check(segment, *offsets)
        time_check = _time_check(segment, *times)
        if size > INT32_MAX:
            # Positions in an index have 32 bits, and Kafka's `segment.bytes` ends there.
            self.is_complete = False
            yield Finding(
                severity=Severity.ERROR,
                rule=Rule.FRAME,
                path=segment.path,
                position=0,
                sentence=f"the file has {size} bytes, more than the {INT32_MAX} of the largest "
                "segment; it is not looked at",
            )
            return
        end = 0
        for found in walk_segment(
            self._log,
            segment.path,
            base_offset=segment.base_offset,
            size=size,
            following=None if self._following is None else Offset(self._following),
        ):
            if isinstance(found, Damage):
                yield from _damage_findings(segment.path, found, is_active=is_active)
                if found.is_hole:
                    yield from offset_check.skip(found.position, found.end)
                    time_check.skip()
                    yield Hole(found.position, found.end)
                    end = found.end
                self._progress(found.end - found.position)
                continue
            position, piece, _ = found
            yield from _batch_warnings(segment.path, found)
            yield found
            if isinstance(piece, BatchRun):
                yield from offset_check.see_run(position, piece)
                yield from time_check.see_run(piece)
            else:
                yield from offset_check.see(position, piece.last_offset)
                yield from time_check.see(times_of(piece))
            end = position + piece.size
            self._progress(piece.size)
        self.has_grown = is_active and self._log.size() > size
        # If a broker has appended since, the last entries may belong to its new batches.
        if not self.has_grown:
            yield from offset_check.finish(end, is_active=is_active)
            yield from time_check.finish(is_active=is_active)

    def close(self) -> None:
        """Release the files."""
        for file in self._opened:
            file.close()

    def _open_index(self, suffix: str) -> tuple[str, File | None]:
        """Path and file; a missing index is in order, since a broker writes it again."""
        path = self._segment.sibling(suffix)
        try:
            file = self._files.open(path, read_only=True)
        except FileNotFoundError:
            return path, None
        self._opened.append(file)
        return path, file


_RULES = {
    Fault.FRAME: Rule.FRAME,
    Fault.CHECKSUM: Rule.CHECKSUM,
    Fault.RECORDS: Rule.RECORDS,
    Fault.MARKER: Rule.TRANSACTION,
    Fault.OFFSETS: Rule.OFFSET_ORDER,
    Fault.NOT_WHOLE: Rule.TAIL,
    Fault.ZEROS: Rule.TAIL,
    Fault.PADDING: Rule.TAIL,
}


def _damage_findings(path: str, damage: Damage, *, is_active: bool) -> Iterator[Finding]:
    """The finding of damage; none for the room for appends of the segment that takes them."""
    count = damage.end - damage.position
    severity, sentence = Severity.ERROR, damage.reason
    if damage.fault is Fault.PADDING:
        if is_active:
            return
        severity = Severity.INFO
        sentence = f"{count} zeros are left of the room for appends; a broker removes them"
    elif damage.fault is Fault.ZEROS:
        sentence = f"the last {count} bytes are zeros, and this is not the last segment"
    elif damage.fault is Fault.NOT_WHOLE and is_active:
        severity = Severity.WARNING
        sentence = f"{count} bytes of an append in progress, or of a torn one"
    elif damage.fault is Fault.NOT_WHOLE:
        sentence = f"the last {count} bytes are no whole batch, and this is not the last segment"
    elif damage.fault in {Fault.FRAME, Fault.CHECKSUM}:
        sentence = f"{damage.reason}; {count} bytes are left out"
    yield Finding(
        severity=severity,
        rule=_RULES[damage.fault],
        path=path,
        position=damage.position,
        offset=damage.offset,
        sentence=sentence,
    )


def _batch_warnings(path: str, found: Sound) -> Iterator[Finding]:
    """The warnings about a sound batch; there are none about a run."""
    position, batch, totals = found
    if isinstance(batch, BatchRun) or totals is None:
        return

    def warning(rule: Rule, sentence: str) -> Finding:
        finding = batch_finding(path, position, batch, rule=rule, sentence=sentence)
        return replace(finding, severity=Severity.WARNING)

    if isinstance(totals, DecompressedTooLargeError):
        yield warning(Rule.LIMIT, f"the records are not checked: {totals}")
    else:
        try:
            check_framing(batch.codec, batch.payload)
        except CorruptionError as error:
            # Sound, and read here: a broker took it before it looked at the framing.
            yield warning(Rule.FRAMING, error.rule)
        newest, largest = batch.base_timestamp + totals.timestamp_delta_max, batch.max_timestamp
        is_create_time = batch.timestamp_type is TimestampType.CREATE_TIME
        if totals.records and is_create_time and newest > largest:
            sentence = f"a record has timestamp {newest}; the header's largest is {largest}"
            yield batch_finding(path, position, batch, rule=Rule.RECORDS, sentence=sentence)
    wrapper = batch.legacy
    # No checksum covers the offset of a v0 wrapper, which has to be that of the last record inside.
    # Readers do without it, but Kafka takes it for the end of a log.
    if (
        wrapper is not None
        and wrapper.codec_number
        and not wrapper.magic
        and wrapper.offset != batch.last_offset
    ):
        sentence = f"a wrapper has offset {wrapper.offset}, and its last record {batch.last_offset}"
        yield warning(Rule.OFFSET_ORDER, sentence)


def _offset_check(segment: SegmentFiles, path: str, file: File | None) -> OffsetIndexCheck:
    entries = IndexEntries(file, offset_index.ENTRY, rises=offset_entries_rise)
    return OffsetIndexCheck(path, segment.base_offset, entries)


def _time_check(segment: SegmentFiles, path: str, file: File | None) -> TimeIndexCheck:
    entries = IndexEntries(file, time_index.ENTRY, rises=time_entries_rise)
    return TimeIndexCheck(path, segment.base_offset, entries)


def _odd_sizes(
    offsets: tuple[str, File | None], times: tuple[str, File | None], *, is_active: bool
) -> Iterator[Finding]:
    """Indexes whose size is not that of their entries."""
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
                sentence=f"{size % entry.size} bytes are left over after entries of {entry.size}",
            )
            continue
        # An entry may end with zeros, so whole entries count.
        used = 0 if file is None else -(-used_bytes(file) // entry.size) * entry.size
        if used < size and not is_active:
            yield Finding(
                severity=Severity.WARNING,
                rule=rule,
                path=path,
                position=used,
                sentence=f"{size - used} zeros are room for entries, which a broker cuts",
            )
