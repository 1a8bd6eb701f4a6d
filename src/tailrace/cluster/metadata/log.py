"""`MetadataLog`: the metadata log of a quorum of one node, opened, written and kept short.

    open     what the files prove (`proof`); the log is cut after it
    lead     a new epoch, LeaderChange
    append   records -> one batch -> device -> image
    tidy     a snapshot by size and time; old snapshots and the segments below them go

All is in the folder `__cluster_metadata-0`, in Kafka's formats, and Kafka continues with it.

Invariant: `image` is the replay of what is on the device. A batch whose append fails is not in the
image, and the log takes no further one until the next start.
"""

import errno
import random
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Final, NamedTuple

from tailrace.cluster.metadata.batches import BatchPlace, RecordToWrite, control_batch, data_batch
from tailrace.cluster.metadata.features import check_levels
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.proof import PARTITION, MetadataProof, prove_metadata
from tailrace.cluster.metadata.quorum_state import (
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot_files import (
    find_snapshots,
    remove_snapshot_leftovers,
    save_snapshot,
    snapshot_size,
    snapshot_time,
)
from tailrace.config.settings import INT32_MAX, setting, settings_of
from tailrace.errors import CorruptionError, DirectoryError, StorageError
from tailrace.protocol.fields import Message
from tailrace.records.batch import read_batches
from tailrace.records.control import ControlType
from tailrace.runtime.clock import Clock
from tailrace.runtime.files import Files
from tailrace.storage.checkpoints import (
    format_topic_id,
    parse_topic_id,
    read_partition_metadata,
    write_partition_metadata,
    write_whole,
)
from tailrace.storage.config import log_config, segment_configs
from tailrace.storage.folder import PartitionFolder, Removals
from tailrace.storage.log import Log
from tailrace.storage.names import (
    DELETED_SUFFIX,
    PARTITION_METADATA,
    partition_directory_name,
)
from tailrace.storage.recovery import LogCut, open_log
from tailrace.storage.shrink import (
    delete_old_segments,
    raise_log_start,
    truncate_fully_and_start_at,
)
from tailrace.values import dataclass

TOPIC_ID: Final = parse_topic_id("AAAAAAAAAAAAAAAAAAAAAQ")
"""The id of the metadata log in every cluster."""
_DAMAGED_SUFFIX: Final = ".damaged"
_LOST: Final = "records-lost"
"""File that is in the folder from the time before a damaged log is cut until a start has saved what
it found instead. Kafka passes it over."""
DELETE_DELAY_MS: Final = 60_000
"""Time from taking a snapshot out of service to its deletion, as in Kafka."""

_NOT_ACKNOWLEDGED: Final = (
    "the device failed while the last change was saved, and the next start may find it; the "
    "cluster's state does not change until then"
)

TIDY_MS: Final = 3_600_000
"""Time after which snapshots are looked at that may have become too old."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MetadataLogConfig:
    """Kafka's settings of the metadata log; bytes and milliseconds."""

    segment_bytes: int = setting(
        "metadata.log.segment.bytes",
        default=1 << 30,
        low=8 << 20,
        high=INT32_MAX,
        text="`segment.bytes` of the metadata log.",
    )
    segment_ms: int = setting(
        "metadata.log.segment.ms",
        default=604_800_000,
        low=1,
        text="`segment.ms` of the metadata log.",
    )
    snapshot_bytes: int = setting(
        "metadata.log.max.record.bytes.between.snapshots",
        default=20 << 20,
        low=1,
        text="A snapshot of the cluster's state is written when the metadata log has grown by "
        "this number of bytes.",
    )
    snapshot_ms: int = setting(
        "metadata.log.max.snapshot.interval.ms",
        default=3_600_000,
        low=0,
        text="A snapshot of the cluster's state is written when the last one is so old and "
        "something has changed; 0: none by time.",
    )
    retention_bytes: int = setting(
        "metadata.max.retention.bytes",
        default=100 << 20,
        low=-1,
        text="Most bytes of the metadata log and its snapshots; the newest snapshot is always "
        "kept. -1: no limit.",
    )
    retention_ms: int = setting(
        "metadata.max.retention.ms",
        default=604_800_000,
        low=-1,
        text="How long a snapshot is kept that is not the newest; -1: no limit.",
    )


METADATA_LOG_SETTINGS: Final = settings_of(MetadataLogConfig)


class MetadataFolder(NamedTuple):
    """The folder of a metadata log, with the services that its log works with."""

    files: Files
    clock: Clock
    chance: random.Random
    removals: Removals
    directory: str
    """The metadata.log.dir, in which the folder is."""

    @property
    def path(self) -> str:
        return f"{self.directory}/{partition_directory_name(PARTITION)}"


class MetadataLog:
    """The log of the node that is the quorum's only voter; one thread at a time may call it."""

    def __init__(
        self,
        folder: MetadataFolder,
        log: Log,
        proof: MetadataProof,
        *,
        config: MetadataLogConfig,
        node_id: int,
    ) -> None:
        self._folder = folder
        self._node_id = node_id
        self._log = log
        self._replay = proof.replay
        self._config = config
        self._bytes_since_snapshot = proof.bytes_since_snapshot
        self._snapshot_at = self._tidied_at = folder.clock.now_ms()
        self._epoch = proof.replay.epoch
        self._has_led = False
        self.has_lost_records = folder.files.exists(f"{folder.path}/{_LOST}")
        """Whether changes that were acknowledged are missing, since the log was damaged: at this
        start, or at one that has not come to `forget_loss`."""
        self.removed_topics = proof.removed_topics
        """Ids of topics that were removed since the newest snapshot, when the log was opened."""

    @property
    def image(self) -> MetadataImage:
        return self._replay.image

    @property
    def kraft_version(self) -> int:
        """1 if the log names the voters, 0 if the settings do (KIP-853)."""
        return self._replay.kraft_version

    @property
    def epoch(self) -> int:
        """The epoch in which this node leads."""
        return self._epoch

    @property
    def end_offset(self) -> int:
        """The offset after the last record, all of which are on the device."""
        return self._log.end_offset

    def lead(self) -> None:
        """Begin the next epoch with this node as leader; it is on the device on return.

        A transaction of metadata that is open is aborted.

        Raises:
            OSError: the device refuses.
        """
        files, path, node_id = self._folder.files, self._folder.path, self._node_id
        # Above each epoch that the log or the file has: Kafka never goes back to an older one.
        before = read_quorum_state(files, path)
        self._epoch = 1 + max(self._replay.epoch, 0 if before is None else before.epoch)
        in_settings = (node_id,) if self._replay.kraft_version == 0 else None
        # The file before the batch, as in Kafka (KIP-595): after a crash in between the epoch is
        # used up, and never has two leaders' batches.
        write_quorum_state(files, path, QuorumState(node_id, self._epoch, in_settings))
        self._write(control_batch(self._election(), self._place()))
        # A killed node leaves a checkpoint that has the epochs of all batches.
        self._log.epochs.save()
        self._has_led = True
        if self._replay.is_in_transaction:
            from tailrace.protocol.metadata_records import AbortTransactionRecord

            self.append([RecordToWrite(AbortTransactionRecord(reason="Controller failover"), 0)])

    def lead_if_needed(self) -> None:
        """Lead, unless this start does already: the first change waits for it, and no start does.

        Raises:
            OSError: the device refuses.
        """
        if not self._has_led:
            self.lead()

    def append(self, records: Sequence[RecordToWrite]) -> MetadataImage:
        """Write records as one batch; they are on the device on return. Returns the new image.

        Raises:
            MetadataFaultError: a record contradicts the state; nothing is written.
            OSError: the device refuses. After a crash the batch is there whole, or not at all. If
                it may be there, the log takes no further one until the next start.
        """
        self.lead_if_needed()
        self._write(data_batch(records, self._place()))
        return self.image

    def forget_loss(self) -> None:
        """Take what is here for all that there is, from the next start on.

        Raises:
            OSError: the device refuses.
        """
        if self.has_lost_records:
            self._folder.files.remove(f"{self._folder.path}/{_LOST}")
            self._folder.files.sync_directory(self._folder.path)

    def is_tidying_due(self) -> bool:
        """Whether `tidy` may have something to do; asks no device."""
        now_ms = self._folder.clock.now_ms()
        return self._is_snapshot_due() or now_ms - self._tidied_at >= TIDY_MS

    def tidy(self) -> None:
        """Write a snapshot if one is due, and delete what retention does not keep.

        Raises:
            OSError: the device refuses; the log is as usable as before.
        """
        self._tidied_at = self._folder.clock.now_ms()
        # So that the next commits do not sync segments that grow no more.
        self._log.sync_rolled()
        if self._is_snapshot_due():
            self.write_snapshot()
        while self._trim():
            pass

    def write_snapshot(self) -> None:
        """Write a snapshot of the present state, unless there is one or a transaction is open.

        Raises:
            OSError: the device refuses.
        """
        replay, files, path = self._replay, self._folder.files, self._folder.path
        newest = find_snapshots(files, path)[-1:]
        now_ms = self._folder.clock.now_ms()
        # A snapshot within a transaction of metadata would lack its first records (KIP-868).
        has_one = bool(newest) and newest[0].next_offset == replay.next_offset
        if not has_one and not replay.is_in_transaction:
            _save(self._folder, replay)
        self._bytes_since_snapshot, self._snapshot_at = 0, now_ms

    def close(self) -> None:
        """Give the indexes their length and close the files.

        Raises:
            OSError: the device refuses; all records are on it already.
        """
        try:
            self._log.finish()
        finally:
            self._log.close()

    def abandon(self) -> None:
        """Close the files as a killed process would."""
        self._log.close()

    def _election(self) -> Iterator[tuple[ControlType, Message]]:
        from tailrace.protocol.metadata_records import LeaderChangeMessage, Voter

        voter = (Voter(voter_id=self._node_id),)
        change = LeaderChangeMessage(leader_id=self._node_id, voters=voter, granting_voters=voter)
        yield ControlType.LEADER_CHANGE, change
        voters = self._replay.voters
        if voters is not None and self._log.end_offset == self._log.start_offset:
            from tailrace.protocol.metadata_records import KRaftVersionRecord

            # The snapshot that a quorum begins with has them, and no batch yet.
            yield ControlType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=1)
            yield ControlType.VOTERS, voters

    def _place(self) -> BatchPlace:
        return BatchPlace(self._log.end_offset, self._epoch, self._folder.clock.now_ms())

    def _write(self, batch: bytes) -> None:
        if self._log.end_offset != self._replay.next_offset:
            # The caller of the last append got an error, and the batch is in the log all the same.
            raise StorageError(errno.EIO, _NOT_ACKNOWLEDGED, self._folder.path)
        # Replayed before it is written: a batch that contradicts the state is refused, and nothing
        # of it reaches the device.
        ahead = copy(self._replay)
        data = memoryview(batch)
        for _, each in read_batches(data):
            ahead.see(each)
        # As a follower: the batch has its offset and epoch already, and an append of a leader would
        # assign others. On the device before it counts: the quorum has no other copy.
        self._log.append_as_follower(data, now_ms=self._folder.clock.now_ms())
        self._log.commit()
        self._log.advance_high_watermark(self._log.end_offset)
        self._replay = ahead
        self._bytes_since_snapshot += len(batch)

    def _is_snapshot_due(self) -> bool:
        config = self._config
        age_ms = self._folder.clock.now_ms() - self._snapshot_at
        return self._bytes_since_snapshot >= config.snapshot_bytes or (
            self._bytes_since_snapshot > 0 and 0 < config.snapshot_ms <= age_ms
        )

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


def open_metadata_log(
    folder: MetadataFolder,
    config: MetadataLogConfig,
    *,
    node_id: int,
    report: Callable[[str], None],
) -> MetadataLog:
    """Open the log for this node to write it; the folder is made if there is none.

    `report` gets a sentence for all that is damaged or cut. Damage before sound batches does not
    cost these: a snapshot of what is proven comes first, and the log continues after it.

    Raises:
        DirectoryError: as `prove_metadata`, the cluster has features that are not known here, or
            the quorum has other voters; nothing was changed.
        StorageError, OSError: a file cannot be read or written.
    """
    files, path = folder.files, folder.path
    proof = prove_metadata(files, path, report=report)
    check_levels(proof.replay.image.features, folder=path)
    has_id = files.is_directory(path) and _check_files(files, path, proof.replay, node_id=node_id)
    if not files.is_directory(path):
        files.make_directory(path)
        files.sync_directory(folder.directory)
    if not has_id:
        write_partition_metadata(files, path, PARTITION_METADATA, topic_id=TOPIC_ID)
    remove_snapshot_leftovers(files, path)
    if proof.has_lost_records:
        # Before the log is cut: nothing tells of the loss then.
        write_whole(files, f"{path}/{_LOST}", b"", is_synced=True)
        files.sync_directory(path)
    replay = proof.replay
    has_state = bool(replay.image.features)
    must_restart = False
    if has_state and not proof.is_whole:
        # A snapshot first: opening the log cuts it at the damage, wherever the snapshot below is.
        must_restart = replay.is_in_transaction
        if replay.next_offset > proof.snapshot_offset:
            _save(folder, replay)
        replay = proof.replay = replay.without_transaction()
    # Kept for the operator, under a name that Kafka and this broker pass over.
    for each in proof.damaged:
        files.rename(each.path, each.path + _DAMAGED_SUFFIX)

    def report_cut(cut: LogCut) -> None:
        report(f"{cut.path}: {cut.bytes_cut} bytes cut at {cut.position}: {cut.reason}")

    log = open_log(
        PartitionFolder(
            partition=PARTITION,
            path=path,
            files=files,
            clock=folder.clock,
            chance=folder.chance,
            removals=folder.removals,
        ),
        config=log_config(
            {
                **segment_configs(config.segment_bytes),
                "segment.ms": str(config.segment_ms),
                "retention.bytes": "-1",
                "retention.ms": "-1",
            }
        ),
        is_clean=False,
        report=report_cut,
    )
    # An open transaction cannot be continued after a cut, and offsets must follow the snapshot.
    if must_restart or log.end_offset != replay.next_offset:
        if not has_state:
            replay = proof.replay = replay.without_state()
        truncate_fully_and_start_at(log, replay.next_offset)
    log.advance_high_watermark(log.end_offset)
    return MetadataLog(folder, log, proof, config=config, node_id=node_id)


def _voters(replay: MetadataReplay, state: QuorumState | None) -> list[int]:
    """Ids of the voters that the log names, or `quorum-state`; none if neither does."""
    if replay.voters is not None:
        return [each.voter_id for each in replay.voters.voters]
    return [] if state is None else list(state.voters or ())


def _check_files(files: Files, path: str, replay: MetadataReplay, *, node_id: int) -> bool:
    """Check that it is a metadata log whose quorum the node can lead; whether it has its id."""
    try:
        state = read_quorum_state(files, path)
        topic_id = read_partition_metadata(files, f"{path}/{PARTITION_METADATA}")
    except CorruptionError as error:
        raise DirectoryError(
            f"{error}; restore it, or remove it, since the log has what is needed of it; nothing "
            "was changed"
        ) from error
    if topic_id not in (None, TOPIC_ID):
        raise DirectoryError(
            f"{path} is the folder of a topic with the id {format_topic_id(topic_id)}, not the "
            "metadata log; nothing was changed"
        )
    named = _voters(replay, state)
    if named not in ([], [node_id]):
        raise DirectoryError(
            f"{path} belongs to a quorum with the voters {', '.join(map(str, named))}; this node, "
            f"{node_id}, can only lead a quorum of its own; nothing was changed"
        )
    epoch = max(replay.epoch, 0 if state is None else state.epoch)
    if epoch >= INT32_MAX:
        raise DirectoryError(f"{path}: no epoch can follow {epoch}; nothing was changed")
    return topic_id is not None


def _save(folder: MetadataFolder, replay: MetadataReplay) -> None:
    from tailrace.cluster.metadata.snapshot import Snapshot

    save_snapshot(
        folder.files,
        folder.path,
        Snapshot(image=replay.image, log_timestamp=replay.timestamp, voters=replay.voters),
        next_offset=replay.next_offset,
        epoch=replay.epoch,
        now_ms=folder.clock.now_ms(),
    )
