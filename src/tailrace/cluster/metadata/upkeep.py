"""`SnapshotUpkeep`: writes snapshots of a metadata log, and removes old ones and what is below.

Every node of a quorum, controller or broker, does this for itself (KIP-630).

Invariant: the newest snapshot is never removed, and the log reaches back to it at least.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from tailrace.cluster.metadata.folder import MetadataFolder, MetadataLogConfig
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot_files import (
    find_snapshots,
    save_snapshot,
    snapshot_size,
    snapshot_time,
)
from tailrace.storage.log import Log
from tailrace.storage.names import DELETED_SUFFIX
from tailrace.storage.shrink import delete_old_segments, raise_log_start

DELETE_DELAY_MS: Final = 60_000
"""Time from taking a snapshot out of service to its deletion, as in Kafka."""
TIDY_MS: Final = 3_600_000
"""Time after which snapshots are looked at that may have become too old."""


class SnapshotUpkeep:
    """Writes and removes the snapshots of one log."""

    def __init__(
        self,
        folder: MetadataFolder,
        log: Log,
        config: MetadataLogConfig,
        *,
        bytes_since_snapshot: int,
    ) -> None:
        self._folder = folder
        self._log = log
        self._config = config
        self._applied_bytes, self._snapshot_bytes = bytes_since_snapshot, 0
        self._snapshot_at = self._tidied_at = folder.clock.now_ms()

    def note_applied(self, size: int) -> None:
        """Count bytes of batches that are in the state and in no snapshot."""
        self._applied_bytes += size

    def note_snapshot(self) -> None:
        """A snapshot has all of the state."""
        self._note_snapshot(self._applied_bytes)

    def _note_snapshot(self, applied_bytes: int) -> None:
        self._snapshot_bytes, self._snapshot_at = applied_bytes, self._folder.clock.now_ms()

    def is_due(self) -> bool:
        """Whether `tidy` may have something to do; asks no device."""
        now_ms = self._folder.clock.now_ms()
        return self._is_snapshot_due() or now_ms - self._tidied_at >= TIDY_MS

    def tidy(self, replay: MetadataReplay) -> None:
        """Write a snapshot if one is due, and delete what retention does not keep.

        Raises:
            OSError: the device refuses; the log is as usable as before.
        """
        self._tidied_at = self._folder.clock.now_ms()
        # So that the next commits do not sync segments that grow no more.
        self._log.sync_rolled()
        if self._is_snapshot_due():
            self.write_snapshot(replay)
        while self._trim():
            pass

    def due_snapshot(self, replay: MetadataReplay) -> Callable[[], None] | None:
        """The function that writes a snapshot of a state, if one is due; it raises OSError.

        It may run beside all methods, on another thread: a state never changes.
        """
        if not self._is_snapshot_due():
            return None
        return partial(self._write_snapshot, replay, self._applied_bytes)

    def write_snapshot(self, replay: MetadataReplay) -> None:
        """Write a snapshot of a state, unless there is one or a transaction is open.

        Raises:
            OSError: the device refuses.
        """
        self._write_snapshot(replay, self._applied_bytes)

    def _write_snapshot(self, replay: MetadataReplay, applied_bytes: int) -> None:
        newest = find_snapshots(self._folder.files, self._folder.path)[-1:]
        # A snapshot within a transaction of metadata would lack its first records (KIP-868).
        has_one = bool(newest) and newest[0].next_offset == replay.next_offset
        if not has_one and not replay.is_in_transaction:
            save_state(self._folder, replay)
        self._note_snapshot(applied_bytes)

    def _is_snapshot_due(self) -> bool:
        config = self._config
        size = self._applied_bytes - self._snapshot_bytes
        age_ms = self._folder.clock.now_ms() - self._snapshot_at
        return size >= config.snapshot_bytes or (size > 0 and 0 < config.snapshot_ms <= age_ms)

    def _trim(self) -> bool:
        """Delete the oldest snapshot, if retention says so and there is a newer one."""
        files, path, config = self._folder.files, self._folder.path, self._config
        snapshots = find_snapshots(files, path)
        if len(snapshots) < 2:
            return False
        sizes = sum(snapshot_size(files, each) for each in snapshots) + self._log.size
        now_ms = self._folder.clock.now_ms()
        is_large = 0 <= config.retention_bytes < sizes
        is_old = 0 <= config.retention_ms < now_ms - snapshot_time(files, snapshots[0])
        if not is_large and not is_old:
            return False
        # The records below the next snapshot are in it.
        if snapshots[1].next_offset > self._log.start_offset:
            raise_log_start(self._log, snapshots[1].next_offset)
            delete_old_segments(self._log, now_ms)
        # Renamed first and deleted later, as in Kafka: somebody may be reading it.
        retired = snapshots[0].path + DELETED_SUFFIX
        files.rename(snapshots[0].path, retired)
        self._folder.removals.add_files([retired], due_ms=now_ms + DELETE_DELAY_MS)
        return True


def save_state(folder: MetadataFolder, replay: MetadataReplay) -> None:
    """Write a snapshot of a state; on the device on return.

    Raises:
        OSError: as `save_snapshot`.
    """
    from tailrace.cluster.metadata.snapshot import Snapshot

    save_snapshot(
        folder.files,
        folder.path,
        Snapshot(image=replay.image, log_timestamp=replay.timestamp, voters=replay.voters),
        next_offset=replay.next_offset,
        epoch=replay.epoch,
        now_ms=folder.clock.now_ms(),
    )
