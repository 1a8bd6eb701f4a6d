"""The `.log` file of one segment: whole batches one behind the other, from byte 0.

Appends go to the position that this object remembers, not to the end of the file. What an append
that failed halfway (a full disk) has left is cut at once or, where that fails too, by `trim`.
Reads are slices of a map that is renewed when the file has grown past it.
"""

import contextlib
from collections.abc import Iterator

from tailrace.errors import CorruptionError
from tailrace.records.batch import Batch
from tailrace.records.legacy import read_all_batches
from tailrace.runtime.files import Buffer, File, Files


class RecordsFile:
    """Batches of one segment; positions and sizes in bytes."""

    def __init__(self, *, path: str, file: File) -> None:
        self.path = path
        self.size = file.size()
        """Bytes of whole batches; what the file has behind them does not count."""
        self._file = file
        self._view = memoryview(b"")

    def append(self, data: Buffer) -> int:
        """Write batches behind the last one; returns the position where they start.

        In the page cache when this returns: a killed process keeps them, a lost machine may not.

        Raises:
            OSError: the device is full or failing; nothing counts as appended.
        """
        position = self.size
        try:
            self._file.write(position, data)
        except OSError:
            with contextlib.suppress(OSError):
                self._file.resize(position)
            raise
        self.size = position + len(data)
        return position

    def view(self, start: int, limit: int) -> memoryview:
        """Bytes from `start` up to `limit`, without a copy."""
        assert 0 <= start <= limit <= self.size
        if limit > len(self._view):
            self._view = self._file.view(self.size)
        return self._view[start:limit]

    def batches(self, position: int = 0) -> Iterator[tuple[int, Batch]]:
        """Each batch from `position` on, with its position; ends before a partial one.

        Entries of format v0 and v1 come as batches of v2 in memory; see `records.legacy`.

        Raises:
            CorruptionError: bytes that cannot be the start of a batch, or a damaged entry of an
                older format; it has path and position.
        """
        try:
            for start, batch in read_all_batches(self.view(position, self.size)):
                yield position + start, batch
        except CorruptionError as error:
            raise error.located(
                path=self.path, position=position + (error.position or 0)
            ) from error

    def truncate(self, size: int) -> None:
        """Cut behind `size` bytes.

        Only recovery may call this: views handed out before would lose their bytes.
        """
        self._view = memoryview(b"")
        self._file.resize(size)
        self.size = size

    def trim(self) -> None:
        """Cut what a failed append may have left behind the last batch."""
        if self._file.size() > self.size:
            self._file.resize(self.size)

    def sync(self) -> None:
        """Return when all appended bytes are on the device."""
        self._file.sync()

    def close(self) -> None:
        """Release the descriptor; slices handed out stay valid."""
        self._view = memoryview(b"")
        self._file.close()


def open_records_file(
    files: Files, path: str, *, create: bool = False, read_only: bool = False
) -> RecordsFile:
    """Open the log file of a segment, or create an empty one."""
    return RecordsFile(path=path, file=files.open(path, create=create, read_only=read_only))
