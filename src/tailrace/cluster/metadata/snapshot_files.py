"""The snapshot files of a metadata log: `<end offset>-<epoch>.checkpoint`, found and written.

A snapshot is written whole under another name, synced, and renamed: a file with the name of a
snapshot is whole unless its device has damaged it.
"""

import re
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.cluster.metadata.batches import decoded_records
from tailrace.errors import TailraceError
from tailrace.records.batch import read_batches
from tailrace.runtime.files import Files, read_exactly
from tailrace.storage.checkpoints import write_whole

if TYPE_CHECKING:
    from tailrace.cluster.metadata.snapshot import Snapshot

_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_LEFT: Final = re.compile(r".*\.checkpoint.*\.part|.*\.checkpoint\.deleted")
PART_SUFFIX: Final = ".part"
_HEADER_BYTES: Final = 1 << 16
"""More than the first batch takes, which has the header and the voters."""


class SnapshotFile(NamedTuple):
    """A snapshot file by what its name says."""

    next_offset: int
    """The snapshot has all records below this offset."""
    epoch: int
    """Epoch of the last of them."""
    path: str


def snapshot_path(folder: str, next_offset: int, epoch: int) -> str:
    """The name of a snapshot of the records below an offset."""
    return f"{folder}/{next_offset:020}-{epoch:010}.checkpoint"


def find_snapshots(files: Files, folder: str) -> list[SnapshotFile]:
    """The snapshots of a folder, oldest first."""
    found = filter(None, map(_NAME.fullmatch, files.list(folder)))
    return sorted(SnapshotFile(int(each[1]), int(each[2]), f"{folder}/{each[0]}") for each in found)


def load_snapshot(files: Files, found: SnapshotFile) -> "Snapshot":
    """The content of a snapshot file.

    Raises:
        CorruptionError, UnknownRecordError, MalformedRecordError, MetadataFaultError: as
            `read_snapshot`.
        OSError: it cannot be read.
    """
    from tailrace.cluster.metadata.snapshot import read_snapshot

    with closing(files.open(found.path, read_only=True)) as file:
        data = read_exactly(file, found.path, position=0, size=file.size())
    return read_snapshot(memoryview(data))


def snapshot_size(files: Files, found: SnapshotFile) -> int:
    """Bytes of a snapshot file; raises OSError if it cannot be opened."""
    with closing(files.open(found.path, read_only=True)) as file:
        return file.size()


def snapshot_time(files: Files, found: SnapshotFile) -> int:
    """Time of the last record in a snapshot, in milliseconds since 1970; -1 if it is damaged.

    Raises:
        OSError: it cannot be read.
    """
    from tailrace.protocol.metadata_records import SnapshotHeaderRecord

    with closing(files.open(found.path, read_only=True)) as file:
        # Its first batch alone: a snapshot may be large, and this is asked of each.
        data = file.read(0, _HEADER_BYTES)
    try:
        _, batch = next(iter(read_batches(memoryview(data))))
        (_, (_, header)), *_ = decoded_records(batch)
    except (TailraceError, StopIteration, ValueError):
        # Older than any other: a damaged one is the first that retention deletes.
        return -1
    if not isinstance(header, SnapshotHeaderRecord):
        return -1
    return header.last_contained_log_timestamp


def save_snapshot(
    files: Files, folder: str, snapshot: "Snapshot", *, next_offset: int, epoch: int, now_ms: int
) -> SnapshotFile:
    """Write a snapshot of the records below `next_offset`; on the device on return.

    Raises:
        OSError: the device refuses; there may be a part of a file, which the next start removes.
    """
    from tailrace.cluster.metadata.snapshot import write_snapshot

    path = snapshot_path(folder, next_offset, epoch)
    data = write_snapshot(snapshot, epoch=epoch, timestamp=now_ms)
    write_whole(files, path + PART_SUFFIX, data, is_synced=True)
    # Whole and synced under the other name before: a crash leaves no part under this one.
    files.rename(path + PART_SUFFIX, path)
    files.sync_directory(folder)
    return SnapshotFile(next_offset, epoch, path)


def remove_snapshot_leftovers(files: Files, folder: str) -> None:
    """Remove parts of snapshots that a crash has left, and retired ones.

    Raises:
        OSError: a file cannot be removed.
    """
    for name in files.list(folder):
        if _LEFT.fullmatch(name):
            files.remove(f"{folder}/{name}")
