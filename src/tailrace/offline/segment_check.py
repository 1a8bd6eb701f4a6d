"""Checks of one segment by itself: frames, checksums, records, offsets, and its two indexes.

No earlier segment has to be known for it, so the segments of a partition may be checked in any
order, and on several machines. Segments are read once, window by window, with the indexes beside
them.

Not here: gaps, leader epochs, producers and transactions, which `partition_walk` follows through
all segments of a partition.

Invariant: a sound batch stands between its segment's base offset and that of the next one. So
the sound batches of an earlier segment end before this one begins.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeAlias

from tailrace import kernels
from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.errors import CorruptionError, UnsupportedCodecError
from tailrace.model import OFFSET_MAX, Offset, TimestampType
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
from tailrace.records.batch import Batch
from tailrace.records.checks import check_records
from tailrace.records.codecs import DecompressedTooLargeError, check_framing
from tailrace.records.runs import BatchRun, Field, Piece, batches_of
from tailrace.runtime.files import File, Files
from tailrace.storage import names
from tailrace.storage.damage import NOT_WHOLE, DamagedRange, runs_across_damage
from tailrace.storage.index import offset as offset_index
from tailrace.storage.index import time as time_index
from tailrace.values import replace

Progress = Callable[[int], None]
"""Takes bytes of log that have been looked at since the last call."""


class CheckedBatch(NamedTuple):
    """A batch that a walk over a segment has come to."""

    position: int
    batch: Batch
    """Perhaps without its records, if it holds none of control."""
    is_sound: bool
    """Whether it is usable: checksum, records and offsets hold."""


class CheckedRun(NamedTuple):
    """Neighbouring sound batches that a walk over a segment has come to."""

    position: int
    run: BatchRun


class CheckedHole(NamedTuple):
    """Bytes of a segment in which a walk has found no sound batch."""

    position: int
    end: int


Checked: TypeAlias = Finding | CheckedBatch | CheckedRun | CheckedHole
"""The results of a walk over a segment."""


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
        self._following = following
        """Base offset of the next segment; None: this one takes the appends."""
        self._progress = progress
        self._files = files
        self._log = log
        self._opened = [log]
        self._next_offset = segment.base_offset
        """No batch may begin below it."""
        self._end = 0
        """Position behind the last batch so far."""

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
        offsets = self._open_index(names.OFFSET_INDEX_SUFFIX)
        times = self._open_index(names.TIME_INDEX_SUFFIX)
        yield from _odd_sizes(offsets, times, is_active=is_active)
        offset_check = _offset_check(segment, *offsets)
        time_check = _time_check(segment, *times)
        try:
            if size > INT32_MAX:
                raise CorruptionError(
                    f"the file has {size} bytes, more than the {INT32_MAX} of the largest segment"
                )
            pieces = runs_across_damage(
                self._log,
                segment.path,
                base_offset=segment.base_offset,
                size=size,
                following=None if self._following is None else Offset(self._following),
            )
            for found, next_base in _with_next(pieces):
                if isinstance(found, DamagedRange):
                    yield from self._see_damage(found, size)
                    if self._is_hole(found, size):
                        yield from offset_check.skip(found.position, found.end)
                        time_check.skip()
                        yield CheckedHole(found.position, found.end)
                        self._end = found.end
                    continue
                position, piece = found
                if isinstance(piece, BatchRun) and self._is_sound(piece, next_base=next_base):
                    yield CheckedRun(position, piece)
                    yield from offset_check.see_run(position, piece)
                    yield from time_check.see_run(piece)
                    self._next_offset = piece.next_offset
                else:
                    for checked in self._check_one_by_one(position, piece, next_base=next_base):
                        yield checked
                        if isinstance(checked, CheckedBatch):
                            at, batch, is_sound = checked
                            yield from offset_check.see(at, batch.last_offset, is_sound=is_sound)
                            yield from time_check.see(times_of(batch), is_sound=is_sound)
                self._end = position + piece.size
                self._progress(piece.size)
        except CorruptionError as error:
            self.is_complete = False
            yield _blocking(segment, error, size)
        self.has_grown = is_active and self._log.size() > size
        # If a broker has appended since, the last entries may belong to its new batches.
        if self.is_complete and not self.has_grown:
            yield from offset_check.finish(self._end, is_active=is_active)
            yield from time_check.finish(is_active=is_active)

    def close(self) -> None:
        """Release the files."""
        for file in self._opened:
            file.close()

    def _see_damage(self, found: DamagedRange, size: int) -> Iterator[Finding]:
        """The finding of a damaged range."""
        is_active, is_tail = self._following is None, found.end == size
        count = found.end - found.position
        severity, rule = Severity.ERROR, Rule.FRAME if found.is_frame else Rule.CHECKSUM
        sentence = f"{found.reason}; {count} bytes are left out"
        if found.is_blank and is_active:
            return  # Room for appends to come, as preallocation makes it.
        if found.is_blank and self._next_offset == self._following:
            severity, rule = Severity.INFO, Rule.TAIL
            sentence = f"{count} zeros are left of the room for appends; a broker removes them"
        elif found.is_blank:
            rule = Rule.TAIL
            sentence = f"the last {count} bytes are zeros, and this is not the last segment"
        elif found.reason == NOT_WHOLE and is_tail:
            severity, rule = Severity.WARNING if is_active else Severity.ERROR, Rule.TAIL
            sentence = (
                f"{count} bytes of an append in progress, or of a torn one"
                if is_active
                else f"the last {count} bytes are no whole batch, and this is not the last segment"
            )
        yield Finding(
            severity=severity,
            rule=rule,
            path=self._segment.path,
            position=found.position,
            offset=found.offset,
            sentence=sentence,
        )

    def _is_hole(self, found: DamagedRange, size: int) -> bool:
        """Whether offsets may be missing in a range, and it is not just the end of the file."""
        return not (found.is_blank or (found.reason == NOT_WHOLE and found.end == size))

    def _is_sound(self, run: BatchRun, *, next_base: int | None) -> bool:
        """Whether nothing is found in any batch of a run; its checksums and order hold already.

        `next_base` is the base offset of the batch behind it.
        """
        if kernels.walk_run(run.view, run.record_count) != 1:
            return False
        last_base = run.last_header[Field.BASE_OFFSET]
        first_fault = self._order_fault(run.base_offset, run.base_offset, next_base=None)
        last_fault = self._order_fault(last_base, run.last_offset, next_base=next_base)
        return first_fault is None and last_fault is None

    def _check_one_by_one(
        self, position: int, piece: Piece, *, next_base: int | None
    ) -> Iterator[Finding | CheckedBatch]:
        batches = [*batches_of(piece, Offset(-INT64_MAX), OFFSET_MAX)]
        bases = [*(batch.base_offset for _, batch in batches[1:]), next_base]
        for (at, batch), following in zip(batches, bases, strict=True):
            is_sound = True
            for finding, is_fault in self._check(position + at, batch, next_base=following):
                yield finding
                is_sound = is_sound and not is_fault
            yield CheckedBatch(position + at, batch, is_sound=is_sound)

    def _check(
        self, position: int, batch: Batch, *, next_base: int | None
    ) -> Iterator[tuple[Finding, bool]]:
        """Findings, each with whether it makes the batch unusable."""
        path = self._segment.path
        is_sound = True
        for finding, is_fault in _check_records(path, position, batch):
            yield finding, is_fault
            is_sound = is_sound and not is_fault
        fault = self._order_fault(batch.base_offset, batch.last_offset, next_base=next_base)
        if fault:
            yield batch_finding(path, position, batch, rule=Rule.OFFSET_ORDER, sentence=fault), True
        elif is_sound:
            for finding in _check_wrapper(path, position, batch):
                yield finding, False
            self._next_offset = batch.next_offset

    def _order_fault(self, first: int, last: int, *, next_base: int | None) -> str | None:
        """Return the reason why the offsets of a batch do not fit between its neighbours, or None.

        No checksum covers a base offset, so only its neighbours can tell.
        """
        due, following, base = self._next_offset, self._following, self._segment.base_offset
        if first < due:
            return f"the batch begins at offset {first}, where {due} or more is due"
        if following is not None and last >= following:
            return f"the batch reaches to offset {last}, and the next segment begins at {following}"
        if next_base is not None and first != due < next_base <= last:
            return (
                f"the batch has offsets {first} to {last}, and the next one begins at {next_base}"
            )
        if last - base > INT32_MAX:
            return f"offset {last} is more than {INT32_MAX} above the segment's base"
        return None

    def _open_index(self, suffix: str) -> tuple[str, File | None]:
        """Path and file; a missing index is in order, since a broker writes it anew."""
        path = self._segment.sibling(suffix)
        try:
            file = self._files.open(path, read_only=True)
        except FileNotFoundError:
            return path, None
        self._opened.append(file)
        return path, file


def _with_next(
    pieces: Iterator[tuple[int, Piece] | DamagedRange],
) -> Iterator[tuple[tuple[int, Piece] | DamagedRange, int | None]]:
    """Each piece with the base offset of the next batch, damage between them or not."""
    held: list[tuple[int, Piece] | DamagedRange] = []
    for found in pieces:
        if not isinstance(found, DamagedRange):
            for each in held:
                yield each, found[1].base_offset
            held = []
        held.append(found)
    for each in held:
        yield each, None


def _check_records(path: str, position: int, batch: Batch) -> Iterator[tuple[Finding, bool]]:
    """Findings, and of each whether the batch is unusable for it."""
    try:
        totals = check_records(batch)
    except DecompressedTooLargeError as error:
        sentence = f"the records are not checked: {error}"
        finding = batch_finding(path, position, batch, rule=Rule.LIMIT, sentence=sentence)
        yield replace(finding, severity=Severity.WARNING), False
        return
    except (CorruptionError, UnsupportedCodecError) as error:
        sentence = error.rule if isinstance(error, CorruptionError) else str(error)
        yield batch_finding(path, position, batch, rule=Rule.RECORDS, sentence=sentence), True
        return
    try:
        check_framing(batch.codec, batch.payload)
    except CorruptionError as error:
        # Sound, and read here: a broker took it before it looked at the framing.
        finding = batch_finding(path, position, batch, rule=Rule.FRAMING, sentence=error.rule)
        yield replace(finding, severity=Severity.WARNING), False
    if totals.last_offset_delta > batch.last_offset_delta:
        last = batch.base_offset + totals.last_offset_delta
        sentence = f"the last record has offset {last}; the header ends at {batch.last_offset}"
        yield batch_finding(path, position, batch, rule=Rule.RECORDS, sentence=sentence), True
    newest, largest = batch.base_timestamp + totals.timestamp_delta_max, batch.max_timestamp
    is_create_time = batch.timestamp_type is TimestampType.CREATE_TIME
    if totals.records and is_create_time and newest > largest:
        sentence = f"a record has timestamp {newest}; the header's largest is {largest}"
        yield batch_finding(path, position, batch, rule=Rule.RECORDS, sentence=sentence), False


def _check_wrapper(path: str, position: int, batch: Batch) -> Iterator[Finding]:
    """Findings about a v0 wrapper: its own offset has to be that of the last record inside.

    No checksum covers that one. Readers do without it, but Kafka takes it for the end of a log.
    """
    wrapper = batch.legacy
    if wrapper is None or not wrapper.codec_number or wrapper.magic:
        return
    if wrapper.offset != batch.last_offset:
        sentence = f"a wrapper has offset {wrapper.offset}, and its last record {batch.last_offset}"
        finding = batch_finding(path, position, batch, rule=Rule.OFFSET_ORDER, sentence=sentence)
        yield replace(finding, severity=Severity.WARNING)


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
                sentence=f"{size % entry.size} bytes are left over behind entries of {entry.size}",
            )
            continue
        used = 0 if file is None else -(-used_bytes(file) // entry.size) * entry.size
        if used < size and not is_active:
            yield Finding(
                severity=Severity.WARNING,
                rule=rule,
                path=path,
                position=used,
                sentence=f"{size - used} zeros are room for entries, which a broker cuts",
            )
