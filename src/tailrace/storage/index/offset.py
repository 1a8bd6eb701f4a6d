"""The offset index: from an offset to a position in the segment's log file.

    entry, 8 bytes, big-endian          meaning
    0  int32  offset - base offset      the last offset of one append
    4  int32  position                  where that append starts in the .log file

One entry for each `index.interval.bytes` of log, offsets strictly rising. No header, no checksum:
it can always be rebuilt from the log.
"""

import struct
from typing import NamedTuple

from tailrace.errors import CorruptionError
from tailrace.model import Offset, Position
from tailrace.runtime.files import Files
from tailrace.storage.index.sparse import SparseIndex, open_sparse_index

ENTRY = struct.Struct(">ii")
assert ENTRY.size == 8


class OffsetPosition(NamedTuple):
    """An offset, and a position in bytes at or before which its batch starts."""

    offset: Offset
    position: Position


class OffsetIndex:
    """The `.index` file of one segment."""

    def __init__(self, base_offset: Offset, entries: SparseIndex) -> None:
        self.base_offset = base_offset
        self.entries = entries

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll before the next entry."""
        return self.room <= 0

    @property
    def room(self) -> int:
        """Entries that still fit."""
        return self.entries.capacity - self.entries.count

    def lookup(self, offset: Offset) -> OffsetPosition:
        """The last entry at or below `offset`; the segment's start when there is none."""
        _, found = self.entries.floor_entry(offset - self.base_offset)
        if found is None:
            return OffsetPosition(self.base_offset, Position(0))
        return OffsetPosition(found[0] + self.base_offset, found[1])

    def tail_offset(self, entry_count: int) -> Offset:
        """Offset of an entry counted from the end; the base offset if there are fewer.

        Raises:
            OSError: the device refused, or something else has cut the file.
        """
        number = self.entries.count - entry_count
        relative = self.entries.entry(number)[0] if number >= 0 else 0
        return Offset(self.base_offset + relative)

    def first_from(self, position: Position) -> OffsetPosition | None:
        """The first entry whose position is at least `position`, or None.

        No batch that starts before `position` has an offset as large as that entry's.
        """
        # Positions rise with offsets, so the same search works on either field.
        number = self.entries.floor(position - 1, field=1) + 1
        if number >= self.entries.count:
            return None
        relative, found = self.entries.entry(number)
        return OffsetPosition(relative + self.base_offset, found)

    def append(self, offset: Offset, position: Position) -> None:
        """Add an entry: the append with last offset `offset` starts at `position`."""
        last = self.entries.last_or_none()
        assert last is None or offset - self.base_offset > last[0]
        self.entries.append(offset - self.base_offset, position)

    def truncate_to(self, offset: Offset, *, bytes_max: int) -> None:
        """Remove the entries at or above `offset`; the file gets `bytes_max` of room again.

        Raises:
            OSError: the device refused; the call may be repeated.
        """
        count = self.entries.floor(offset - 1 - self.base_offset) + 1
        self.entries.truncate(count, capacity=bytes_max // ENTRY.size)

    def check(self, log_size: int) -> None:
        """Check the entries without reading the log.

        Raises:
            CorruptionError: the length is no multiple of the entry size; or the last entry is not
                above the first one (as in zeros), below the base offset or beyond the log's end.
        """
        self.entries.check_length()
        last = self.entries.last_or_none()
        if last is None:
            return
        # Zeros of a preallocated file look like entries; to read all of it would take too long.
        first = self.entries.entry(0)
        is_rising = self.entries.count == 1 or (last[0] > first[0] and last[1] > first[1])
        if not is_rising or last[0] < 0 or not 0 <= last[1] < log_size:
            raise CorruptionError(
                f"the last entry {last} does not fit a log of {log_size} bytes",
                path=self.entries.path,
            )


def open_offset_index(
    files: Files, path: str, *, base_offset: Offset, bytes_max: int
) -> OffsetIndex:
    """Open or create the index with `bytes_max` preallocated."""
    capacity = bytes_max // ENTRY.size
    return OffsetIndex(base_offset, open_sparse_index(files, path, ENTRY, capacity=capacity))
