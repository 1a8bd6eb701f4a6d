"""Whether the two indexes of a segment agree with its log, checked during a walk over that log.

The walk shows each batch to `OffsetIndexCheck` and `TimeIndexCheck`, which read their entries along
with it; neither holds more than a few entries. An index is read, not mapped: a broker may cut it.

Invariant: an entry is judged by sound batches only; what stands in or behind damage is left alone,
because the damage has been reported already.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tailrace.model import NO_TIMESTAMP, TimestampType
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.records.batch import Batch
from tailrace.runtime.files import File

_CHUNK_ENTRIES = 4096


class _Entry(NamedTuple):
    position: int
    """Position of the entry in the index file, in bytes."""
    fields: tuple[int, ...]
    is_rising: bool
    """Whether it stands in order between its neighbours."""


class BatchTimes(NamedTuple):
    """The fields of a batch that the time index is checked against."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    is_create_time: bool


def times_of(batch: Batch) -> BatchTimes:
    """Offsets and times of a batch."""
    is_create_time = batch.timestamp_type is TimestampType.CREATE_TIME
    return BatchTimes(batch.base_offset, batch.last_offset, batch.max_timestamp, is_create_time)


class OffsetIndexCheck:
    """Each entry points at the start of a batch, and its offset ends a batch from there on."""

    def __init__(self, path: str, base_offset: int, entries: Iterator[_Entry]) -> None:
        self._path = path
        self._base_offset = base_offset
        self._entries = entries
        self._next = next(entries, None)
        self._open: _Entry | None = None
        """The entry whose append has begun and not ended yet."""

    def has_entry(self, position: int) -> bool:
        """Whether `see` has to be told of the batch at `position`, if that is sound."""
        entry = self._next
        return self._open is not None or (
            entry is not None and (not entry.is_rising or entry.fields[1] <= position)
        )

    def see(self, position: int, last_offset: int, *, is_sound: bool) -> Iterator[Finding]:
        """Check the entries up to a batch that ends at `last_offset`, and yield their findings."""
        while self._next is not None:
            entry = self._next
            if not entry.is_rising:
                yield self._finding(entry, "does not stand in rising order between its neighbours")
            elif entry.fields[1] < position:
                yield self._finding(entry, f"points at {entry.fields[1]}, where no batch starts")
            elif entry.fields[1] == position:
                yield from self._close()
                self._open = entry
            else:
                break
            self._next = next(self._entries, None)
        opened = self._open
        if opened is not None and (
            not is_sound or last_offset == self._base_offset + opened.fields[0]
        ):
            self._open = None

    def finish(self, end: int, *, is_active: bool) -> Iterator[Finding]:
        """Check the index entries behind the last batch, which ends at `end`.

        In the active segment the last entry may announce an append that has not arrived: it is
        written just before.
        """
        yield from self._close()
        while self._next is not None:
            entry, self._next = self._next, next(self._entries, None)
            if not entry.is_rising:
                yield self._finding(entry, "does not stand in rising order between its neighbours")
            elif entry.fields[1] < end:
                yield self._finding(entry, f"points at {entry.fields[1]}, where no batch starts")
            elif is_active and self._next is None and entry.fields[1] == end:
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

    def _finding(
        self, entry: _Entry, sentence: str, severity: Severity = Severity.ERROR
    ) -> Finding:
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

    def __init__(self, path: str, base_offset: int, entries: Iterator[_Entry]) -> None:
        self._path = path
        self._base_offset = base_offset
        self._entries = entries
        self._next = next(entries, None)
        self._newest = NO_TIMESTAMP
        self._reached: BatchTimes | None = None
        """The first batch with that timestamp."""
        self._is_exact = True
        """Whether every batch so far was sound, so that `_newest` is no guess."""
        self._was_sound = True

    def has_entry(self, last_offset: int) -> bool:
        """Whether `see` has to be told of the sound batch that ends at `last_offset`."""
        entry = self._next
        return not self._was_sound or (
            entry is not None
            and (not entry.is_rising or self._base_offset + entry.fields[1] <= last_offset)
        )

    def is_newer(self, timestamp: int) -> bool:
        """Whether a timestamp is larger than that of all sound batches so far."""
        return timestamp > self._newest

    def see(self, batch: BatchTimes, *, is_sound: bool) -> Iterator[Finding]:
        """Check the index entries up to this batch; returns the findings."""
        if not is_sound:
            self._is_exact = self._was_sound = False
            return
        if batch.max_timestamp > self._newest:
            self._newest, self._reached = batch.max_timestamp, batch
        while self._next is not None:
            entry = self._next
            timestamp, relative = entry.fields
            offset = self._base_offset + relative
            if not entry.is_rising:
                yield self._finding(entry, "does not stand in rising order between its neighbours")
            elif offset < batch.base_offset:
                if self._was_sound:
                    yield self._finding(entry, "has an offset that no batch holds")
            elif offset > batch.last_offset:
                break
            elif timestamp < self._newest:
                yield self._finding(
                    entry, f"says {timestamp}, and a record up to it has {self._newest}"
                )
            elif timestamp > self._newest and self._is_exact:
                yield self._finding(
                    entry, f"says {timestamp}, and no record up to it is younger than "
                    f"{self._newest}",
                )  # fmt: skip
            elif self._is_exact and self._is_late(batch):
                assert self._reached is not None
                yield self._finding(
                    entry, f"says {timestamp}, which the batch at offset "
                    f"{self._reached.base_offset} has already",
                )  # fmt: skip
            self._next = next(self._entries, None)
        self._was_sound = True

    def _is_late(self, batch: BatchTimes) -> bool:
        """Whether an entry for this batch belongs to an earlier one."""
        first = self._reached
        return first is not None and first.base_offset < batch.base_offset and first.is_create_time

    def finish(self, *, is_active: bool) -> Iterator[Finding]:
        """Check the index entries behind the last batch; see `OffsetIndexCheck.finish`."""
        while self._next is not None:
            entry, self._next = self._next, next(self._entries, None)
            if not entry.is_rising:
                yield self._finding(entry, "does not stand in rising order between its neighbours")
            elif not self._was_sound:
                continue
            elif is_active and self._next is None:
                sentence = "announces an append that has not arrived"
                yield self._finding(entry, sentence, severity=Severity.INFO)
            else:
                yield self._finding(entry, "has an offset behind the last batch")

    def _finding(
        self, entry: _Entry, sentence: str, severity: Severity = Severity.ERROR
    ) -> Finding:
        return Finding(
            severity=severity,
            rule=Rule.TIME_INDEX,
            path=self._path,
            position=entry.position,
            offset=self._base_offset + entry.fields[1],
            sentence=f"the entry {sentence}",
        )


def offset_entries_rise(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether two entries of an offset index stand in order."""
    return after[0] > before[0] and after[1] > before[1]


def time_entries_rise(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether two entries of a time index stand in order."""
    return after[0] > before[0] and after[1] >= before[1]


def read_entries(
    file: File,
    layout: struct.Struct,
    *,
    is_active: bool,
    rises: Callable[[tuple[int, ...], tuple[int, ...]], bool],
) -> Iterator[_Entry]:
    """The entries in use, in the order of the file.

    Where two neighbours are out of order, the one that does not fit the entries around it is wrong.
    """
    used = _used_bytes(file) if is_active else file.size()
    before: tuple[int, ...] = (-1, -1)
    held: _Entry | None = None
    for entry in _raw_entries(file, layout, -(-used // layout.size)):
        if held is not None:
            is_rising = rises(before, held.fields)
            if is_rising and not rises(held.fields, entry.fields):
                is_rising = not rises(before, entry.fields)
            before = held.fields if is_rising else before
            yield held if is_rising else held._replace(is_rising=False)
        held = entry
    if held is not None:
        yield held._replace(is_rising=rises(before, held.fields))


def _raw_entries(file: File, layout: struct.Struct, count: int) -> Iterator[_Entry]:
    for first in range(0, count, _CHUNK_ENTRIES):
        size = min(_CHUNK_ENTRIES, count - first) * layout.size
        data = file.read(first * layout.size, size)
        whole = len(data) // layout.size * layout.size
        for number, fields in enumerate(layout.iter_unpack(data[:whole]), first):
            yield _Entry(number * layout.size, fields, is_rising=True)


def _used_bytes(file: File) -> int:
    """Bytes up to the last one that is not zero: the rest is room for entries to come."""
    end = file.size()
    while end > 0:
        start = max(0, end - 65536)
        used = len(file.read(start, end - start).rstrip(b"\0"))
        if used:
            return start + used
        end = start
    return 0
