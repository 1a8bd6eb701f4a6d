"""The time index: from a timestamp to an offset, which the offset index turns into a position.

    entry, 12 bytes, big-endian         meaning
    0  int64  timestamp in ms           the largest so far in this segment
    8  int32  offset - base offset      no record up to this offset has a larger timestamp

Timestamps strictly rise, offsets never fall. One slot is reserved for the entry that roll and close
add, so that the last entry of a closed segment is always its largest timestamp.
"""

import struct
from bisect import bisect_left
from typing import NamedTuple

from tailrace.errors import CorruptionError
from tailrace.model import NO_TIMESTAMP, Offset
from tailrace.runtime.files import Files
from tailrace.storage.index.sparse import SparseIndex, open_sparse_index

ENTRY = struct.Struct(">qi")
assert ENTRY.size == 12


class TimestampOffset(NamedTuple):
    """A timestamp in milliseconds, and an offset; no record up to it has a larger timestamp."""

    timestamp: int
    offset: Offset


class TimeIndex:
    """The `.timeindex` file of one segment."""

    def __init__(self, base_offset: Offset, entries: SparseIndex) -> None:
        self.base_offset = base_offset
        self.entries = entries

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll before the next entry."""
        return self.room <= 0

    @property
    def room(self) -> int:
        """Entries that still fit; the last slot is reserved for the end of the segment."""
        return self.entries.capacity - 1 - self.entries.count

    @property
    def last(self) -> TimestampOffset:
        """The newest entry, or (-1, base offset)."""
        fields = self.entries.last_or_none()
        if fields is None:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(fields[0], fields[1] + self.base_offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or below `timestamp`; (-1, base offset) when there is none."""
        _, found = self.entries.floor_entry(timestamp)
        if found is None:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(found[0], found[1] + self.base_offset)

    def maybe_append(self, timestamp: int, offset: Offset) -> None:
        """Add an entry if `timestamp` is larger than that of the last one."""
        last = self.entries.last_or_none() or (NO_TIMESTAMP, 0)
        # Kafka skips equal ones too: the first entry of a timestamp is where a search for it
        # begins.
        if timestamp > last[0]:
            assert offset >= self.base_offset + last[1]
            self.entries.append(timestamp, offset - self.base_offset)

    def truncate_to(self, offset: Offset, *, bytes_max: int) -> None:
        """Remove the entries at or above `offset`; the file gets `bytes_max` of room again.

        Raises:
            OSError: the device refused; the call may be repeated.
        """
        numbers = range(self.entries.count)
        key = offset - self.base_offset
        count = bisect_left(numbers, key, key=lambda number: self.entries.entry(number)[1])
        self.entries.truncate(count, capacity=bytes_max // ENTRY.size)

    def check(self) -> None:
        """Check the entries without reading the log.

        Raises:
            CorruptionError: the length is no multiple of the entry size; or the last entry is not
                above the first one, or has an offset below the base offset.
        """
        self.entries.check_length()
        last = self.entries.last_or_none()
        if last is None:
            return
        is_rising = self.entries.count == 1 or last[0] > self.entries.entry(0)[0]
        if not is_rising or last[0] < 0 or last[1] < 0:
            raise CorruptionError(
                f"the last entry {last} cannot follow the first", path=self.entries.path
            )


def open_time_index(files: Files, path: str, *, base_offset: Offset, bytes_max: int) -> TimeIndex:
    """Open or create the index with `bytes_max` preallocated."""
    capacity = bytes_max // ENTRY.size
    return TimeIndex(base_offset, open_sparse_index(files, path, ENTRY, capacity=capacity))
