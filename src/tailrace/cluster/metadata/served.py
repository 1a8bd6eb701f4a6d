"""`ServedMetadataLog`: the metadata log of a directory, as a controller serves it to observers.

    watermark    what is on the device, which is all that counts: the quorum has one voter
    read         a slice of a segment, which is read when it is sent
    snapshots    the files of the folder, as they were at the last `look_for_snapshots`

Any thread may call it while another one appends.

Invariant: nothing is served that a crash of the machine could take.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from tailrace.cluster.metadata.folder import MetadataFolder
from tailrace.cluster.metadata.snapshot_files import SnapshotFile, find_snapshots
from tailrace.model import LeaderEpoch
from tailrace.protocol.fields import Records
from tailrace.runtime.files import read_exactly
from tailrace.storage.log import Log


class SnapshotKey(NamedTuple):
    """The name of a snapshot."""

    end_offset: int
    epoch: int


class SnapshotPart(NamedTuple):
    """Some bytes of a snapshot."""

    size: int
    """Bytes of the whole snapshot."""
    data: bytes


class ServedMetadataLog:
    """Batches and snapshots of a log that another thread may write."""

    def __init__(self, folder: MetadataFolder, log: Log) -> None:
        self._folder = folder
        self._log = log
        self.snapshots: Sequence[SnapshotFile] = ()
        """The snapshots, oldest first."""
        self.look_for_snapshots()

    def look_for_snapshots(self) -> None:
        """List the snapshots again, after one has come or gone.

        Raises:
            OSError: the folder cannot be read.
        """
        # Not at each Fetch: that would be a call of the file system on the event loop.
        self.snapshots = find_snapshots(self._folder.files, self._folder.path)

    @property
    def log_start(self) -> int:
        return self._log.start_offset

    @property
    def watermark(self) -> int:
        return self._log.positions.high_watermark

    @property
    def end_offset(self) -> int:
        # What is appended and not flushed yet does not count for anybody.
        return self.watermark

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is not above `epoch`, and the offset after its last record."""
        found = self._log.epochs.end_offset_for(LeaderEpoch(epoch), log_end=self._log.end_offset)
        return found.epoch, min(found.end_offset, self.watermark)

    def read(self, offset: int, *, size_max: int) -> Records:
        """Bytes from the batch that has `offset`: one whole batch, and more up to `size_max`.

        Raises:
            OffsetOutOfRangeError: below the log start offset, or above the end.
            CorruptionError: bytes that cannot be the start of a batch.
            StorageError: the log has failed, or is closed.
        """
        found = self._log.read(offset, bytes_max=size_max, is_first_whole=True)
        return b"" if found.records is None else found.records

    def snapshot_keys(self) -> Sequence[SnapshotKey]:
        """The names of the snapshots, oldest first."""
        return [SnapshotKey(each.next_offset, each.epoch) for each in self.snapshots]

    def read_snapshot(self, key: SnapshotKey, position: int, size_max: int) -> SnapshotPart | None:
        """Bytes of a snapshot from a position on; None: there is no such snapshot. Waits.

        Raises:
            OSError: the device refuses.
        """
        found = [each for each in self.snapshots if (each.next_offset, each.epoch) == key]
        if not found:
            return None
        path = found[0].path
        try:
            file = self._folder.files.open(path, read_only=True)
        except FileNotFoundError:
            # Retention has renamed it in this moment.
            return None
        with closing(file):
            size = file.size()
            count = max(0, min(size_max, size - position))
            return SnapshotPart(size, read_exactly(file, path, position=position, size=count))
