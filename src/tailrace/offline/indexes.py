"""Whether the three indexes of a segment agree with its log.

The walk over a segment shows each batch to `OffsetIndexCheck` and `TimeIndexCheck`, which read
their entries along with it; neither holds more than a few entries. The transaction index is
compared with the markers after the walk (`check_aborts`): each entry has its marker, each abort its
entry. An index is read, not mapped: a broker may cut it.

Invariant: an entry is judged by sound batches only. One that points into damage is left alone,
because the damage has been reported already.
"""

import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tailrace.kernels.index_entries import (
    OffsetState,
    TimeState,
    check_offset_entries,
    check_time_entries,
)
from tailrace.model import NO_TIMESTAMP, TimestampType
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.reading.producers import EndedTransaction
from tailrace.records.batch import Batch
from tailrace.records.layout import LOG_APPEND_TIME_FLAG
from tailrace.records.runs import BatchRun, Field, last_offset
from tailrace.runtime.files import File, Files
from tailrace.storage.index.transaction import ENTRY, VERSION, AbortedTxn

_CHUNK_ENTRIES = 4096

# One read at the end of an index is compared with it, to find where the unused part begins.
_ZEROS = bytes(65536)

Rises = Callable[[tuple[int, ...], tuple[int, ...]], bool]
"""Whether two entries, by their fields, are in order."""


class Entry(NamedTuple):
    """An entry of either index."""

    position: int
    """Position of the entry in the index file, in bytes."""
    fields: tuple[int, ...]
    is_rising: bool
    """Whether it is in order between its neighbours."""


class BatchTimes(NamedTuple):
    """The fields of a batch that the time index is checked against."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    is_create_time: bool


def times_of(batch: Batch) -> BatchTimes:
    is_create_time = batch.timestamp_type is TimestampType.CREATE_TIME
    return BatchTimes(batch.base_offset, batch.last_offset, batch.max_timestamp, is_create_time)


class IndexEntries:
    """The entries of an index in use, in the order of the file; a chunk of them is in memory.

    Where two neighbours are out of order, the one that does not fit the entries around it is wrong.
    """

    def __init__(self, file: File | None, layout: struct.Struct, *, rises: Rises) -> None:
        """No entries without a file; what is zero at the end is room for entries to come."""
        self._file = file
        self._layout = layout
        self._rises = rises
        self._count = 0 if file is None else -(-used_bytes(file) // layout.size)
        # Number of the first entry in `chunk`.
        self._first = 0
        self._number = 0
        self.chunk = b""
        """Whole entries of the file, one after the other."""
        self.before: tuple[int, ...] = (-1, -1)
        """The fields of the last entry that stood in order."""
        self.next = self._read_next()
        """The entry that has not been passed yet; None at the end."""

    @property
    def place(self) -> int:
        """Position of `next` in `chunk`; its end if there is none."""
        return (self._number - self._first) * self._layout.size

    @property
    def is_last(self) -> bool:
        """Whether no entry follows `chunk`."""
        return self._first + len(self.chunk) // self._layout.size >= self._count

    def advance(self) -> None:
        """Pass `next`."""
        assert self.next is not None
        if self.next.is_rising:
            self.before = self.next.fields
        self._number += 1
        self.next = self._read_next()

    def advance_to(self, place: int, before: tuple[int, ...]) -> None:
        """Pass all entries up to a place in `chunk`, the last of which are `before`: all rise."""
        if place != self.place:
            self._number = self._first + place // self._layout.size
            self.before = before
            self.next = self._read_next()

    def at(self, place: int) -> Entry:
        """The entry at a place in `chunk`, which is in order."""
        fields = self._layout.unpack_from(self.chunk, place)
        return Entry(self._first * self._layout.size + place, fields, is_rising=True)

    def _read_next(self) -> Entry | None:
        fields = self._fields(self._number)
        if fields is None:
            return None
        is_rising = self._rises(self.before, fields)
        following = self._fields(self._number + 1)
        # Of two neighbours out of order either may be wrong: the one that does not fit both sides
        # is.
        if is_rising and following is not None and not self._rises(fields, following):
            is_rising = not self._rises(self.before, following)
        return Entry(self._number * self._layout.size, fields, is_rising)

    def _fields(self, number: int) -> tuple[int, ...] | None:
        """The fields of the entry with this number, which is `_number` or the one after it."""
        size = self._layout.size
        if number >= self._count:
            return None
        if not self._first <= number < self._first + len(self.chunk) // size:
            assert self._file is not None
            self._first = self._number
            # 32 or 48 KiB: a read for each entry would take longer than the check.
            wanted = min(_CHUNK_ENTRIES, self._count - self._first) * size
            data = self._file.read(self._first * size, wanted)
            self.chunk = data[: len(data) // size * size]
            if number >= self._first + len(self.chunk) // size:
                self._count = self._first + len(self.chunk) // size  # A broker has cut the file.
                return None
        return self._layout.unpack_from(self.chunk, (number - self._first) * size)


class OffsetIndexCheck:
    """Each entry points at the start of a batch, and its offset ends a batch from there on."""

    def __init__(self, path: str, base_offset: int, entries: IndexEntries) -> None:
        self._path = path
        self._base_offset = base_offset
        self._entries = entries
        # The entry whose append has begun and not ended yet.
        self._open: Entry | None = None

    def see_run(self, position: int, run: BatchRun) -> Iterator[Finding]:
        """Yield the faults of the entries up to the end of a sound run."""
        if self._has_passed(position, run):
            return
        for at, header in zip(run.positions, run.headers, strict=True):
            yield from self.see(position + at, last_offset(header))

    def _has_passed(self, position: int, run: BatchRun) -> bool:
        """Whether all those entries are in order; the check is then past the run."""
        entries, opened = self._entries, self._open
        state = array("q", (
            position, self._base_offset, entries.place, entries.is_last, *entries.before,
            -1 if opened is None else opened.fields[0], -1,
        ))  # fmt: skip
        # One call for all entries of half a megabyte of log; a fault makes the run go batch by
        # batch, for the words.
        if check_offset_entries(run.view, run.batch_count, entries.chunk, state) != 1:
            return False
        if state[OffsetState.OPEN_OFFSET] < 0:
            self._open = None
        elif state[OffsetState.OPEN_ENTRY] >= 0:
            self._open = entries.at(state[OffsetState.OPEN_ENTRY])
        before = state[OffsetState.OFFSET_BEFORE], state[OffsetState.POSITION_BEFORE]
        entries.advance_to(state[OffsetState.ENTRY], before)
        return True

    def see(self, position: int, last_offset: int) -> Iterator[Finding]:
        """Check the entries up to a sound batch that ends at `last_offset`."""
        while (entry := self._entries.next) is not None:
            if not entry.is_rising:
                yield self._finding(entry, "is not in rising order between its neighbours")
            elif entry.fields[1] < position:
                yield self._finding(entry, f"points at {entry.fields[1]}, where no batch starts")
            # From here on one of the batches of this append has to end at the entry's offset.
            elif entry.fields[1] == position:
                yield from self._close()
                self._open = entry
            else:
                break
            self._entries.advance()
        opened = self._open
        if opened is not None and last_offset == self._base_offset + opened.fields[0]:
            self._open = None

    def skip(self, position: int, end: int) -> Iterator[Finding]:
        """Pass the entries up to the end of damaged bytes; only those before them are judged."""
        self._open = None
        while (entry := self._entries.next) is not None and entry.fields[1] < end:
            if not entry.is_rising:
                yield self._finding(entry, "is not in rising order between its neighbours")
            elif entry.fields[1] < position:
                yield self._finding(entry, f"points at {entry.fields[1]}, where no batch starts")
            self._entries.advance()

    def finish(self, end: int, *, is_active: bool) -> Iterator[Finding]:
        """Check the index entries after the last batch, which ends at `end`.

        In the active segment the last entry may announce an append that has not arrived: it is
        written just before.
        """
        yield from self._close()
        while (entry := self._entries.next) is not None:
            self._entries.advance()
            if not entry.is_rising:
                yield self._finding(entry, "is not in rising order between its neighbours")
            elif entry.fields[1] < end:
                yield self._finding(entry, f"points at {entry.fields[1]}, where no batch starts")
            elif is_active and self._entries.next is None and entry.fields[1] == end:
                sentence = "announces an append that has not arrived"
                yield self._finding(entry, sentence, severity=Severity.INFO)
            else:
                yield self._finding(
                    entry, f"points at {entry.fields[1]}, and the log's batches end at {end}"
                )

    def _close(self) -> Iterator[Finding]:
        if self._open is not None:
            entry, self._open = self._open, None
            offset = self._base_offset + entry.fields[0]
            yield self._finding(
                entry, f"points at {entry.fields[1]}, and no batch from there ends at {offset}"
            )

    def _finding(self, entry: Entry, sentence: str, severity: Severity = Severity.ERROR) -> Finding:
        return Finding(
            severity=severity,
            rule=Rule.OFFSET_INDEX,
            path=self._path,
            position=entry.position,
            offset=self._base_offset + entry.fields[0],
            sentence=f"the entry {sentence}",
        )


class TimeIndexCheck:
    """Each entry's offset exists, and its timestamp is the largest of all records up to it.

    The offset is that of the first record with the timestamp, because a search for exactly this
    timestamp begins there. An exception are timestamps that the broker sets: all batches of one
    append have the same one then, and the entry has the offset of the last batch.
    """

    def __init__(self, path: str, base_offset: int, entries: IndexEntries) -> None:
        self._path = path
        self._base_offset = base_offset
        self._entries = entries
        self._newest = NO_TIMESTAMP
        # Base offset of the first batch with that timestamp; -1 before the first batch.
        self._newest_base = -1
        self._is_newest_create_time = False
        # Whether every batch so far was sound, so that `_newest` is no guess.
        self._is_exact = True
        self._was_sound = True

    def see_run(self, run: BatchRun) -> Iterator[Finding]:
        """Yield the faults of the entries up to the end of a sound run."""
        if self._was_sound and self._has_passed(run):
            return
        for header in run.headers:
            times = BatchTimes(
                header[Field.BASE_OFFSET],
                last_offset(header),
                header[Field.MAX_TIMESTAMP],
                is_create_time=not header[Field.ATTRIBUTES] & LOG_APPEND_TIME_FLAG,
            )
            yield from self.see(times)

    def _has_passed(self, run: BatchRun) -> bool:
        """Whether all those entries are in order; the check is then past the run."""
        entries = self._entries
        state = array("q", (
            self._base_offset, entries.place, entries.is_last, *entries.before,
            self._newest, self._newest_base, self._is_newest_create_time,
        ))  # fmt: skip
        if check_time_entries(run.view, run.batch_count, entries.chunk, state) != 1:
            return False
        self._newest, self._newest_base = state[TimeState.NEWEST], state[TimeState.NEWEST_BASE]
        self._is_newest_create_time = state[TimeState.NEWEST_IS_CREATE_TIME] == 1
        before = state[TimeState.TIMESTAMP_BEFORE], state[TimeState.OFFSET_BEFORE]
        entries.advance_to(state[TimeState.ENTRY], before)
        return True

    def see(self, batch: BatchTimes) -> Iterator[Finding]:
        """Check the index entries up to this sound batch."""
        if batch.max_timestamp > self._newest:
            self._newest, self._newest_base = batch.max_timestamp, batch.base_offset
            self._is_newest_create_time = batch.is_create_time
        while (entry := self._entries.next) is not None:
            timestamp, relative = entry.fields
            offset = self._base_offset + relative
            if not entry.is_rising:
                yield self._finding(entry, "is not in rising order between its neighbours")
            elif offset < batch.base_offset:
                if self._was_sound:
                    yield self._finding(entry, "has an offset that no batch holds")
            elif offset > batch.last_offset:
                break
            elif timestamp < self._newest:
                yield self._finding(
                    entry, f"says {timestamp}, and a record up to it has {self._newest}"
                )
            # After damage it may be the timestamp of a record that is lost.
            elif timestamp > self._newest and self._is_exact:
                yield self._finding(
                    entry, f"says {timestamp}, and no record up to it is younger than "
                    f"{self._newest}",
                )  # fmt: skip
            elif self._is_exact and self._is_late(batch):
                yield self._finding(
                    entry, f"says {timestamp}, which the batch at offset "
                    f"{self._newest_base} has already",
                )  # fmt: skip
            self._entries.advance()
        self._was_sound = True

    def skip(self) -> None:
        """Pass damaged bytes, whose times nobody knows."""
        self._is_exact = self._was_sound = False

    def _is_late(self, batch: BatchTimes) -> bool:
        """Whether an entry for this batch belongs to an earlier one."""
        return self._newest_base < batch.base_offset and self._is_newest_create_time

    def finish(self, *, is_active: bool) -> Iterator[Finding]:
        """Check the index entries after the last batch; see `OffsetIndexCheck.finish`."""
        while (entry := self._entries.next) is not None:
            self._entries.advance()
            if not entry.is_rising:
                yield self._finding(entry, "is not in rising order between its neighbours")
            elif not self._was_sound:
                continue
            elif is_active and self._entries.next is None:
                sentence = "announces an append that has not arrived"
                yield self._finding(entry, sentence, severity=Severity.INFO)
            else:
                yield self._finding(entry, "has an offset after the last batch")

    def _finding(self, entry: Entry, sentence: str, severity: Severity = Severity.ERROR) -> Finding:
        return Finding(
            severity=severity,
            rule=Rule.TIME_INDEX,
            path=self._path,
            position=entry.position,
            offset=self._base_offset + entry.fields[1],
            sentence=f"the entry {sentence}",
        )


def offset_entries_rise(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether two entries of an offset index are in order."""
    return after[0] > before[0] and after[1] > before[1]


def time_entries_rise(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether two entries of a time index are in order."""
    return after[0] > before[0] and after[1] >= before[1]


def used_bytes(file: File) -> int:
    """Bytes up to the last one that is not zero: the rest is room for entries to come."""
    end = file.size()
    while end > 0:
        start = max(0, end - len(_ZEROS))
        data = file.read(start, end - start)
        # `rstrip` alone takes 2 ns for each zero, and a new index has 20 million of them.
        if not _ZEROS.startswith(data):
            return start + len(data.rstrip(b"\0"))
        end = start
    return 0


def check_aborts(
    files: Files,
    path: str,
    *,
    base_offset: int,
    limit_offset: int,
    markers: Sequence[EndedTransaction],
    is_sound: bool,
) -> Iterator[Finding]:
    """Check the transaction index at `path`; a missing file has no entries.

    `markers` are those of the segment, whose offsets lie below `limit_offset`; with `is_sound` they
    are all there are.

    Raises:
        OSError: the index cannot be read.
    """
    data = _content(files, path)
    whole = len(data) // ENTRY.size * ENTRY.size
    if whole < len(data):
        sentence = f"{len(data) - whole} bytes are left over after entries of {ENTRY.size}"
        yield _finding(path, sentence, position=whole, offset=None)
    aborts = {each.last_offset: each for each in markers if each.is_aborted}
    seen = set()
    before = base_offset - 1
    for number, (version, *fields) in enumerate(ENTRY.iter_unpack(memoryview(data)[:whole])):
        entry, position = AbortedTxn(*fields), number * ENTRY.size
        # Of a transaction that ends in the part that could not be read.
        if version == VERSION and entry.last_offset >= limit_offset and not is_sound:
            continue
        fault = _fault(version, entry, before=before, limit_offset=limit_offset)
        if fault is None:
            before = entry.last_offset
            seen.add(before)
            fault = _disagreement(entry, aborts.get(before), is_sound=is_sound)
        if fault is not None:
            yield _finding(path, f"the entry {fault}", position=position, offset=entry.last_offset)
    for offset, marker in aborts.items():
        # A transaction that began before a hole may have lost its entry with its records.
        if offset not in seen and marker.first_offset is not None and marker.is_unbroken:
            yield _finding(
                path,
                f"no entry for the transaction of producer {marker.producer_id} from offset "
                f"{marker.first_offset}, which the marker at {offset} aborts",
                position=None,
                offset=offset,
            )


def _fault(version: int, entry: AbortedTxn, *, before: int, limit_offset: int) -> str | None:
    if version != VERSION:
        return f"has version {version}, not {VERSION}"
    if not before < entry.last_offset < limit_offset:
        return (
            f"ends at offset {entry.last_offset}, where one above {before} and below "
            f"{limit_offset} is due"
        )
    if not 0 <= entry.first_offset <= entry.last_offset:
        return f"begins at offset {entry.first_offset} and ends at {entry.last_offset}"
    if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
        return (
            f"has the last stable offset {entry.last_stable_offset}, after its marker at "
            f"{entry.last_offset}"
        )
    return None


def _disagreement(
    entry: AbortedTxn, marker: EndedTransaction | None, *, is_sound: bool
) -> str | None:
    if marker is None:
        return f"has no abort marker at offset {entry.last_offset}" if is_sound else None
    if entry.producer_id != marker.producer_id:
        return f"names producer {entry.producer_id}; the marker is of {marker.producer_id}"
    first = marker.first_offset
    if first is not None and (
        entry.first_offset != first
        if marker.is_exact
        else marker.is_unbroken and entry.first_offset > first
    ):
        return f"begins at offset {entry.first_offset}; the transaction begins at {first}"
    if marker.is_exact and entry.last_stable_offset != marker.last_stable_offset:
        return (
            f"has the last stable offset {entry.last_stable_offset}, where it is "
            f"{marker.last_stable_offset}"
        )
    return None


def _content(files: Files, path: str) -> bytes:
    try:
        file = files.open(path, read_only=True)
    except FileNotFoundError:
        return b""
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def _finding(path: str, sentence: str, *, position: int | None, offset: int | None) -> Finding:
    return Finding(
        severity=Severity.ERROR,
        rule=Rule.TRANSACTION_INDEX,
        path=path,
        position=position,
        offset=offset,
        sentence=sentence,
    )
