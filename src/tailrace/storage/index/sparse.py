"""An index file of fixed-size entries in rising order: preallocated while active, then trimmed.

The index of an active segment has its full size, and zeros after the entries; the count of entries
is only in memory. On roll and on close the file is trimmed to its entries. After a kill the length
says nothing, so recovery rebuilds the entries from the log.

    file     0 ............. 95, zeros     what other processes see
    memory                96 .. 103        the entries that wait to be written

New entries wait in memory, and `WAITING_ENTRIES_MAX` of them are written in one call, because a
call costs as much for one entry as for all. `write_all`, `trim` and whatever else changes the file
write them too. A kill loses them, which is no loss: recovery does not trust this file then.

A search reads single blocks of the file. It interpolates the position of the entry, because keys
rise nearly evenly in a log: one or two reads of 2 KiB find an entry among 250,000. Every second
block is in the middle of the remaining range, so a search never needs more than twice the reads of
a binary search. The newest entry is kept in memory.

The file is open only while it is needed, so that a partition that nobody uses has one descriptor,
that of its log: `rest` lets it go, and the next call that needs it opens it again. A file that is
not there any more, because retention or a deletion has renamed it, is an index without entries: a
search then begins at the start of the segment, and what would be written waits in memory.

Another thread may append or truncate meanwhile. A search then returns an entry from before or
after; the callers compare the entry with the log.
"""

import errno
import os
import struct
import threading
from typing import Any, Final

from tailrace.errors import CorruptionError
from tailrace.runtime.files import Buffer, CutMeanwhileError, File, FileCutError, Files

BLOCK_ENTRIES: Final = 256
"""Entries per read of a search: half a page of the page cache."""

WAITING_ENTRIES_MAX: Final = 32
"""Entries that are written together. A reader in another process scans the log after the entries
that were written: with the usual interval of 4 KiB, at most 128 KiB of it, or 32 batches."""


class SparseIndex:
    """Entries of one `struct` format.

    The fields are `Any`, because the caller knows what they mean: `OffsetIndex` has offsets and
    positions in them, `TimeIndex` timestamps and offsets.
    """

    def __init__(
        self, files: Files, *, path: str, entry: struct.Struct, file: File, count: int
    ) -> None:
        self.path = path
        self.count = count
        """Entries in use."""
        # The number of the first entry that is not in the file, and that entry and those after it.
        # Replaced whole, because other threads read it.
        self._waiting = count, b""
        # Held while waiting entries are written, dropped, or the file gets another length.
        self._changing = threading.Lock()
        self._entry = entry
        self._files = files
        # None while it is not needed. Dropped and never closed, as other threads may read.
        self._file: File | None = file
        self._is_closed = False
        size = file.size()
        self.capacity = size // entry.size
        """Number of entries that the file has room for."""
        self.odd_bytes = size % entry.size
        """Bytes after the last entry when the file was opened; any at all mean damage."""
        # The last entry once it was read or written, and its number.
        self._newest: tuple[int, tuple[Any, ...]] | None = None
        # The first entry once it was read or written.
        self._oldest: tuple[Any, ...] | None = None

    def check_length(self) -> None:
        """Check that the file was whole when it was opened.

        Raises:
            CorruptionError: its length was no multiple of the entry size.
        """
        if self.odd_bytes:
            raise CorruptionError(
                f"{self.odd_bytes} bytes are left over after entries of {self._entry.size}",
                path=self.path,
            )

    def entry(self, number: int) -> tuple[Any, ...]:
        """The fields of entry `number`, from 0 to count - 1.

        Raises:
            BlockingIOError: within `without_waiting`, and the page cache does not have it.
            OSError: the device refused, or something else has cut the file.
        """
        assert 0 <= number < self.count
        return self._entry.unpack(self._read(number, number + 1))

    def last_or_none(self) -> tuple[Any, ...] | None:
        """The newest entry, or None.

        Raises:
            OSError: as `entry`; only at the first call and after a truncation.
        """
        newest = self._numbered_last()
        return None if newest is None else newest[1]

    def floor(self, key: int, *, field: int = 0) -> int:
        """Number of the last entry whose `field` is at most `key`; -1 when there is none.

        Raises:
            OSError: as `entry`.
        """
        return self.floor_entry(key, field=field)[0]

    def floor_entry(self, key: int, *, field: int = 0) -> tuple[int, tuple[Any, ...] | None]:
        """The number that `floor` gives, and the fields of that entry.

        Raises:
            OSError: as `entry`.
        """
        newest = self._numbered_last()
        if newest is None:
            return -1, None
        last_number, last = newest
        # The usual search: of a consumer at the end of the log.
        if last[field] <= key:
            return newest
        # Only waiting entries can be searched then, and the newest did not serve.
        if self._waiting[0] and self._opened_or_none() is None:
            return -1, None
        first = self._first()
        if first[field] > key:
            return -1, None
        # Loop invariant: entries before `low` are at most `key`, `floor` is the last of them;
        # entries from `high` on are larger than `key`.
        low, floor, high, high_key = 1, first, last_number, last[field]
        unpack, size = self._entry.unpack_from, self._entry.size
        is_guess = True
        while low < high:
            middle = (low + high) // 2
            low_key = floor[field]
            if is_guess and low_key <= key < high_key:
                middle = low + (high - low) * (key - low_key) // (high_key - low_key)
            # Every second step halves the range: timestamps that jump would make each guess miss by
            # a little.
            is_guess = not is_guess
            start = max(low, middle - BLOCK_ENTRIES // 2)
            limit = min(high, start + BLOCK_ENTRIES)
            block = self._read(start, limit)
            left, right = 0, limit - start
            while left < right:
                at = (left + right) // 2
                fields = unpack(block, at * size)
                if fields[field] <= key:
                    left, floor = at + 1, fields
                else:
                    right = at
            if left < limit - start:
                high, high_key = start + left, unpack(block, left * size)[field]
            if left:
                low = start + left
        return low - 1, floor

    def append(self, *fields: int) -> None:
        """Write one entry after the last.

        Raises:
            OSError: the device is full; the entry does not count.
        """
        number, size = self.count, self._entry.size
        assert number < self.capacity
        first, waiting = self._waiting
        waiting += self._entry.pack(*fields)
        if len(waiting) >= WAITING_ENTRIES_MAX * size:
            with self._changing:
                # A file that is gone keeps its entries waiting: somebody may look before the
                # segment leaves service.
                is_written = self._write(first * size, waiting)
            if is_written:
                first, waiting = number + 1, b""
        # Before the count, which tells other threads that the entry is there.
        self._waiting = first, waiting
        self._newest = number, fields
        if not number:
            self._oldest = fields
        self.count = number + 1

    def take_back(self, count: int) -> None:
        """Keep only the first `count` entries, because what the others point at was not written."""
        self.count = count
        first, waiting = self._waiting
        kept = max(count - first, 0) * self._entry.size
        self._waiting = min(first, count), waiting[:kept]

    def extend(self, entries: Buffer) -> None:
        """Write many entries, packed one after the other.

        Raises:
            OSError: the device is full; none of them counts.
        """
        count = self.count + len(entries) // self._entry.size
        assert count <= self.capacity
        self._write_waiting()
        if not self._write(self.count * self._entry.size, entries):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        self._newest = self._oldest = None
        self._waiting = count, b""
        self.count = count

    def resize(self, capacity: int) -> None:
        """Give the file room for `capacity` entries; those beyond it are dropped."""
        # Count first: a search on another thread must not read entries that are being removed.
        self.take_back(min(self.count, capacity))
        self._newest = self._oldest = None
        with self._changing:
            self._write_waiting()
            file = self._opened_or_none()
            if file is not None:
                file.resize(capacity * self._entry.size)
        self._waiting = self.count, b""
        self.capacity = capacity

    def truncate(self, count: int, *, capacity: int) -> None:
        """Keep the first `count` entries, and give the file room for at least `capacity`.

        Raises:
            OSError: the device refused; the call may be repeated.
        """
        assert 0 <= count <= self.count
        dropped = self.count - count
        with self._changing:
            self.take_back(count)
            self._newest = self._oldest = None
            if dropped:
                # Zeros, not a shorter file: another thread may be searching there.
                self._write(count * self._entry.size, bytes(dropped * self._entry.size))
        if self.capacity < capacity:
            self.resize(capacity)

    def trim(self) -> None:
        """Cut the file to the entries in use."""
        size = self.count * self._entry.size
        file = self._opened_or_none()
        is_longer = file is not None and file.size() > size
        if self._waiting[1] or self.capacity > self.count or is_longer:
            self.resize(self.count)

    def clear(self, bytes_max: int) -> None:
        """Remove all entries; the file gets at most `bytes_max` of zeros."""
        capacity = bytes_max // self._entry.size
        if self.count or self.capacity != capacity:
            # Through zero: what is in the file must not come back as entries.
            self.resize(0)
            self.resize(capacity)

    def write_all(self) -> None:
        """Write the entries that wait; any thread.

        Raises:
            OSError: the device is full; they wait on.
        """
        with self._changing:
            self._write_waiting()

    def sync(self) -> None:
        """Return when the entries that were written are on the device."""
        file = self._opened_or_none()
        if file is not None:
            file.sync()

    def rest(self) -> None:
        """Release the descriptor until it is needed again. Any thread."""
        self._file = None

    def close(self) -> None:
        """Release the descriptor for good, untrimmed; entries that wait are not written."""
        self._is_closed = True
        self._file = None

    def _write_waiting(self) -> None:
        """Write the entries that wait; any thread, so they are not taken off here."""
        first, waiting = self._waiting
        if waiting:
            self._write(first * self._entry.size, waiting)

    def _write(self, position: int, data: Buffer) -> bool:
        """Write to the file; returns whether it is there."""
        file = self._opened_or_none()
        if file is None:
            return False
        file.write(position, data)
        return True

    def _opened_or_none(self) -> File | None:
        """The file, open from now on; None if it is not there any more.

        Raises:
            OSError: the index is closed, or the file cannot be opened.
        """
        file = self._file
        if file is None:
            if self._is_closed:  # Another index may have this name by now.
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
            try:
                file = self._file = self._files.open(self.path)
            except FileNotFoundError:
                return None
        return file

    def _numbered_last(self) -> tuple[int, tuple[Any, ...]] | None:
        """The newest entry and its number, consistent although another thread may append."""
        number, newest = self.count - 1, self._newest
        if number < 0:
            return None
        if newest is None or newest[0] != number:
            newest = self._newest = number, self.entry(number)
        return newest

    def _first(self) -> tuple[Any, ...]:
        oldest = self._oldest
        if oldest is None:
            oldest = self._oldest = self.entry(0)
        return oldest

    def _read(self, start: int, limit: int) -> bytes:
        size = self._entry.size
        first, waiting = self._waiting
        data = b""
        if start < first:
            file = self._opened_or_none()
            if file is None:
                raise CutMeanwhileError(self.path)
            data = file.read(start * size, (min(limit, first) - start) * size)
        if limit > first and len(data) == max(first - start, 0) * size:
            data += waiting[max(start - first, 0) * size : (limit - first) * size]
        if len(data) < (limit - start) * size:
            if limit > self.count:
                raise CutMeanwhileError(self.path)
            raise FileCutError(self.path, position=start * size + len(data))
        return data


def open_sparse_index(
    files: Files, path: str, entry: struct.Struct, *, capacity: int
) -> SparseIndex:
    """Open or create an index file with room for `capacity` entries, or more if it has more.

    All bytes of the file count as entries in use: a caller that does not trust them calls `clear`.

    Raises:
        OSError: it cannot be opened or grown.
    """
    file = files.open(path, create=True)
    try:
        size = file.size()
        index = SparseIndex(files, path=path, entry=entry, file=file, count=size // entry.size)
        if size != capacity * entry.size:
            index.resize(max(capacity, index.count))
    except BaseException:
        file.close()
        raise
    return index
