"""The transaction index: the aborted transactions whose end markers are in one segment.

    entry, 34 bytes, big-endian         meaning
     0  int16  version                  0
     2  int64  producer id
    10  int64  first offset             of the transaction's first batch, maybe segments before
    18  int64  last offset              that of the abort marker
    26  int64  last stable offset       its value after the marker was written

Last offsets strictly rise. A read_committed consumer drops a producer's records from a first offset
up to the abort marker, so it needs each entry that overlaps the records that it reads.

This is not a sparse index: nothing is preallocated, and there is no file before the first abort. A
missing entry would show an aborted record to a consumer. So the entries are checked when they are
read, and recovery rebuilds them from the batches and the producer state.

After a crash of the machine the file has the synced entries, and perhaps a part of one more, which
`check` finds.
"""

import contextlib
import struct
from bisect import bisect_left
from typing import NamedTuple

from tailrace.errors import CorruptionError
from tailrace.model import Offset, ProducerId
from tailrace.runtime.files import File, FileCutError, Files

ENTRY = struct.Struct(">hqqqq")
assert ENTRY.size == 34

VERSION = 0


class AbortedTxn(NamedTuple):
    """One transaction that ended in an abort; fields in the order of the drawing."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class TransactionIndex:
    """The `.txnindex` file of one segment, which may not exist yet."""

    def __init__(self, files: Files, path: str, *, base_offset: Offset, file: File | None) -> None:
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self._file = file
        size = file.size() if file else 0
        self._count = size // ENTRY.size
        self._odd_bytes = size % ENTRY.size

    def append(self, aborted: AbortedTxn) -> None:
        """Add an entry; the first one creates the file. In the page cache when this returns.

        Raises:
            ValueError: its last offset is not above that of the entry before.
            CorruptionError: the entry before cannot be read.
            OSError: the device is full or failing; the entry does not count.
        """
        last = self._read(self._count - 1)[-1] if self._count else None
        if last is not None and aborted.last_offset <= last.last_offset:
            raise ValueError(
                f"{self.path}: an entry for {aborted.last_offset} cannot follow that for "
                f"{last.last_offset}"
            )
        if self._file is None:
            # Most segments never need one.
            self._file = self._files.open(self.path, create=True)
        position = self._count * ENTRY.size
        try:
            self._file.write(position, ENTRY.pack(VERSION, *aborted))
        except OSError:
            with contextlib.suppress(OSError):
                self._file.resize(position)
            raise
        self._count += 1
        self._odd_bytes = 0

    def entries(self) -> tuple[AbortedTxn, ...]:
        """Every whole entry, in order of last offsets.

        Raises:
            CorruptionError: an entry has an unknown version, cannot be a transaction of this
                segment, or does not follow the one before.
            OSError: the device is failing.
        """
        found = self._read(0)
        last_offset = Offset(self.base_offset - 1)
        for number, entry in enumerate(found):
            if entry.last_offset <= last_offset or entry.first_offset > entry.last_offset:
                raise CorruptionError(
                    f"a transaction from {entry.first_offset} to {entry.last_offset} where its "
                    f"end is due after {last_offset}",
                    path=self.path,
                    position=number * ENTRY.size,
                )
            last_offset = entry.last_offset
        return tuple(found)

    def collect(self, fetch_offset: Offset, limit_offset: Offset) -> tuple[list[AbortedTxn], bool]:
        """The entries that overlap offsets from `fetch_offset` up to below `limit_offset`.

        The flag says whether these are all: it is True if an entry has a last stable offset at or
        above the limit, because every later transaction began after it. If it is False, the next
        segment's index must be read too.

        Raises:
            CorruptionError: an entry has an unknown version.
            OSError: the device is failing.
        """
        entries = self._read(0)
        # An entry that ended before the range cannot complete it: its last stable offset is at most
        # the offset after its marker.
        start = bisect_left(entries, fetch_offset, key=lambda entry: entry.last_offset)
        found = []
        for entry in entries[start:]:
            if entry.first_offset < limit_offset:
                found.append(entry)
            # Whatever ends later began at or after that offset, so it lies beyond the range.
            if entry.last_stable_offset >= limit_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: Offset) -> None:
        """Remove the entries of transactions that ended at or above `offset`.

        Raises:
            CorruptionError: an entry cannot be read; nothing is removed.
            OSError: the device refused; the call may be repeated.
        """
        # By the marker: a transaction that began before the cut and ended after it is open again.
        count = bisect_left(self._read(0), offset, key=lambda entry: entry.last_offset)
        if count < self._count:
            self._cut(count)

    def clear(self) -> None:
        """Remove all entries; an existing file stays, empty.

        Raises:
            OSError: the device refused; the call may be repeated.
        """
        if self._count or self._odd_bytes:
            self._cut(0)

    def check(self) -> None:
        """Check the entries without reading the log.

        Raises:
            CorruptionError: the length is no multiple of the entry size, or as `entries`.
            OSError: the device is failing.
        """
        if self._odd_bytes:
            raise CorruptionError(
                f"{self._odd_bytes} bytes are left over after entries of {ENTRY.size}",
                path=self.path,
                position=self._count * ENTRY.size,
            )
        self.entries()

    def sync(self) -> None:
        """Sync the entries; the name of a new file needs a sync of the folder."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Release the descriptor."""
        if self._file is not None:
            self._file.close()

    def _read(self, start: int) -> list[AbortedTxn]:
        if self._file is None:
            return []
        count, position = self._count, start * ENTRY.size
        data = self._file.read(position, count * ENTRY.size - position)
        if len(data) < count * ENTRY.size - position and count == self._count:
            raise FileCutError(self.path, position=position + len(data))
        # Another thread may have cut the file after its length was read.
        whole = memoryview(data)[: len(data) // ENTRY.size * ENTRY.size]
        found = []
        for number, (version, *fields) in enumerate(ENTRY.iter_unpack(whole), start):
            if version != VERSION:
                raise CorruptionError(
                    f"the entry has version {version}, not {VERSION}",
                    path=self.path,
                    position=number * ENTRY.size,
                )
            found.append(AbortedTxn(*fields))
        return found

    def _cut(self, count: int) -> None:
        assert self._file is not None
        # The count first: a reader on another thread must not read what is being cut.
        self._count = count
        self._file.resize(count * ENTRY.size)
        self._odd_bytes = 0


def open_transaction_index(
    files: Files, path: str, *, base_offset: Offset, read_only: bool = False
) -> TransactionIndex:
    """Open the index; a missing file is an index without entries, and is not created.

    Raises:
        OSError: the file is there and cannot be opened.
    """
    file = files.open(path, read_only=read_only) if files.exists(path) else None
    return TransactionIndex(files, path, base_offset=base_offset, file=file)
