"""A file of fixed-size entries in rising order: preallocated, mapped, trimmed.

While its segment takes writes the file has its full size and the rest is zeros; how many entries
count is known only in memory. On roll and on close it is trimmed to the entries in use. After a
kill the length says nothing, so recovery rebuilds the entries from the log.

Entries are written by `pwrite` and read through a map (see `tailrace.runtime.files` for why).
Searches are binary, over the map itself: 1 to 2 microseconds, where decoding a column to search it
costs 35 to 350 (numpy on big-endian data).
"""

import struct

from tailrace.errors import CorruptionError
from tailrace.runtime.files import Buffer, File, Files


class SparseIndex:
    """Entries of one `struct` format; the caller knows what the fields mean."""

    def __init__(self, *, path: str, entry: struct.Struct, file: File, count: int) -> None:
        self.path = path
        self.count = count
        """Entries in use."""
        self._entry = entry
        self._file = file
        size = file.size()
        self._view = file.view(size)
        self.capacity = size // entry.size
        """Entries that the file has room for."""
        self.odd_bytes = size % entry.size
        """Bytes behind the last entry when the file was opened; any at all mean damage."""

    def check_length(self) -> None:
        """Check that the file was whole when it was opened.

        Raises:
            CorruptionError: its length was no multiple of the entry size.
        """
        if self.odd_bytes:
            raise CorruptionError(
                f"{self.odd_bytes} bytes are left over behind entries of {self._entry.size}",
                path=self.path,
            )

    def entry(self, number: int) -> tuple[int, ...]:
        """The fields of entry `number`, from 0 to count - 1."""
        assert 0 <= number < self.count
        return self._entry.unpack_from(self._view, number * self._entry.size)

    def last_or_none(self) -> tuple[int, ...] | None:
        """The newest entry."""
        return self.entry(self.count - 1) if self.count else None

    def floor(self, key: int, *, field: int = 0) -> int:
        """Number of the last entry whose `field` is at most `key`; -1 when there is none."""
        low, high = 0, self.count
        unpack, size, view = self._entry.unpack_from, self._entry.size, self._view
        while low < high:
            middle = (low + high) // 2
            if unpack(view, middle * size)[field] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def append(self, *fields: int) -> None:
        """Write one entry behind the last.

        Raises:
            OSError: the device is full; the entry does not count.
        """
        assert self.count < self.capacity
        self._file.write(self.count * self._entry.size, self._entry.pack(*fields))
        self.count += 1

    def extend(self, entries: Buffer) -> None:
        """Write many entries, packed one behind the other.

        Raises:
            OSError: the device is full; none of them counts.
        """
        count = len(entries) // self._entry.size
        assert self.count + count <= self.capacity
        self._file.write(self.count * self._entry.size, entries)
        self.count += count

    def resize(self, capacity: int) -> None:
        """Give the file room for `capacity` entries; those beyond it are dropped."""
        # The old map is dropped, not released: another thread may be searching in it.
        self._file.resize(capacity * self._entry.size)
        self.count = min(self.count, capacity)
        self._view = self._file.view(capacity * self._entry.size)
        self.capacity = capacity

    def truncate(self, count: int, *, capacity: int) -> None:
        """Keep the first `count` entries, and give the file room for at least `capacity`.

        Raises:
            OSError: the device refused; the call may be repeated.
        """
        assert 0 <= count <= self.count
        dropped, self.count = self.count - count, count
        if dropped:
            # Zeros, not a shorter file: another thread may be searching in the map.
            self._file.write(count * self._entry.size, bytes(dropped * self._entry.size))
        if self.capacity < capacity:
            self.resize(capacity)

    def trim(self) -> None:
        """Cut the file to the entries in use."""
        if self.capacity > self.count or self._file.size() > self.count * self._entry.size:
            self.resize(self.count)

    def clear(self, bytes_max: int) -> None:
        """Forget all entries, and give the file at most `bytes_max` of zeros."""
        capacity = bytes_max // self._entry.size
        if self.count or self.capacity != capacity:
            self.resize(0)
            self.resize(capacity)

    def sync(self) -> None:
        """Return when the entries are on the device."""
        self._file.sync()

    def close(self) -> None:
        """Release map and descriptor, untrimmed."""
        self._view = memoryview(b"")
        self._file.close()


def open_sparse_index(
    files: Files, path: str, entry: struct.Struct, *, capacity: int
) -> SparseIndex:
    """Open or create an index file with room for `capacity` entries, or more if it has more.

    What the file holds counts as entries in use: a caller that cannot trust it calls `clear`.

    Raises:
        OSError: it cannot be opened or grown.
    """
    file = files.open(path, create=True)
    try:
        size = file.size()
        index = SparseIndex(path=path, entry=entry, file=file, count=size // entry.size)
        if size != capacity * entry.size:
            index.resize(max(capacity, index.count))
    except BaseException:
        file.close()
        raise
    return index
