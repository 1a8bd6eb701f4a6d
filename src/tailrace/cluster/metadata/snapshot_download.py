"""`SnapshotDownload`: a snapshot that comes from a quorum's leader in parts (KIP-630).

    add     parts, in their order ─► `<end offset>-<epoch>.checkpoint.part`
    load    all bytes are there: the file is on the device, and every batch in it is right
    finish  renamed: a snapshot like any other

Not here: requests, and the log, which ends where the snapshot does (`observer`).

Invariant: a file has the name of a snapshot only after `load` has read it whole.
"""

from typing import Final

from tailrace.cluster.metadata.snapshot import Snapshot
from tailrace.cluster.metadata.snapshot_files import (
    PART_SUFFIX,
    SnapshotFile,
    load_snapshot,
    snapshot_path,
)
from tailrace.errors import CorruptionError
from tailrace.runtime.files import File, Files

SIZE_MAX: Final = 1 << 30
"""Largest snapshot that is taken. It is read into memory whole, and its size is only what a
controller claims. A million partitions of three replicas take about 110 MB."""


class SnapshotDownload:
    """One snapshot on its way; one thread at a time may call it."""

    def __init__(self, files: Files, folder: str, *, end_offset: int, epoch: int) -> None:
        self.found = SnapshotFile(end_offset, epoch, snapshot_path(folder, end_offset, epoch))
        """The snapshot, as it will be called."""
        self.position = 0
        """The bytes that are there: where the next part has to begin."""
        self._files = files
        self._folder = folder
        self._size: int | None = None
        self._file: File | None = None

    @property
    def is_whole(self) -> bool:
        """Whether no part is missing."""
        return self.position == self._size

    def add(self, part: memoryview, *, position: int, size: int) -> None:
        """Write the next part of a snapshot of `size` bytes.

        Raises:
            CorruptionError: the part does not continue the others, or contradicts them; the
                download is of no use any more.
            OSError: the device refuses.
        """
        if self._size is None:
            if not 0 < size <= SIZE_MAX:
                raise self._refused(f"its size is {size} bytes, not 1 to {SIZE_MAX}")
            self._size = size
        if size != self._size:
            raise self._refused(f"its size was {self._size} bytes before, and is {size} now")
        if position != self.position:
            raise self._refused(f"a part begins at byte {position}, not at {self.position}")
        # An empty part would be asked for again and again.
        if not 0 < len(part) <= size - position:
            raise self._refused(f"a part has {len(part)} bytes, and {size - position} are missing")
        if self._file is None:
            self._file = self._files.open(self.found.path + PART_SUFFIX, create=True)
            # Another download may have left its part here.
            self._file.resize(0)
        self._file.write(position, part)
        self.position += len(part)

    def load(self) -> Snapshot:
        """The content of the whole snapshot, whose bytes are on the device on return.

        Raises:
            CorruptionError, UnknownRecordError, MalformedRecordError, MetadataFaultError,
                UnsupportedCodecError, UnsupportedMagicError: as `read_snapshot`.
            OSError: the device refuses.
        """
        assert self.is_whole, "a part is missing"
        assert self._file is not None
        self._file.sync()
        return load_snapshot(self._files, self.found._replace(path=self.found.path + PART_SUFFIX))

    def finish(self) -> None:
        """Give the snapshot its name; it is there after any crash from now on.

        Raises:
            OSError: the device refuses.
        """
        self._close()
        self._files.rename(self.found.path + PART_SUFFIX, self.found.path)
        self._files.sync_directory(self._folder)

    def abandon(self) -> None:
        """Remove what has come.

        Raises:
            OSError: the file cannot be removed; the next start removes it.
        """
        if self._file is not None:
            self._close()
            self._files.remove(self.found.path + PART_SUFFIX)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _refused(self, rule: str) -> CorruptionError:
        return CorruptionError(
            f"snapshot {self.found.next_offset}-{self.found.epoch} of the leader: {rule}"
        )
