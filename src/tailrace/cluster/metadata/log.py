"""`MetadataLog`: the metadata log of a quorum of one node, opened, written and kept short.

    open     what the files prove (`proof`); the log is cut after it
    lead     a new epoch, LeaderChange; by `election` and `save` where a state is ahead of the log
    append   records -> one batch -> device -> image
    save     batches that a state ahead of the log has already, by one flush
    tidy     a snapshot by size and time; old snapshots and the segments below them go

All is in the folder `__cluster_metadata-0`, in Kafka's formats, and Kafka continues with it.

Invariant: `image` is the replay of what is on the device. A batch whose append fails is not in the
image, and the log takes no further one until the next start.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Final

from tailrace.cluster.metadata.batches import (
    BatchPlace,
    RecordToWrite,
    control_batch,
    data_batch,
    joined_batches,
)
from tailrace.cluster.metadata.features import check_levels
from tailrace.cluster.metadata.folder import Memory, MetadataFolder, MetadataLogConfig
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.proof import MetadataProof, prove_metadata
from tailrace.cluster.metadata.quorum_state import (
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.upkeep import SnapshotUpkeep, save_state
from tailrace.config.settings import INT32_MAX
from tailrace.errors import DirectoryError, StorageError
from tailrace.protocol.fields import Message
from tailrace.records.batch import read_batches
from tailrace.records.control import ControlType
from tailrace.storage.checkpoints import write_whole
from tailrace.storage.log import Log
from tailrace.storage.shrink import truncate_fully_and_start_at

if TYPE_CHECKING:
    from tailrace.cluster.metadata.served import ServedMetadataLog
    from tailrace.protocol.metadata_records import VotersRecordVoter

_LOST: Final = "records-lost"
"""File that is in the folder from the time before a damaged log is cut until a start has saved what
it found instead. Kafka passes it over."""
_NOT_ACKNOWLEDGED: Final = (
    "the device failed while the last change was saved, and the next start may find it; the "
    "cluster's state does not change until then"
)


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
        self._upkeep = SnapshotUpkeep(
            folder, log, config, bytes_since_snapshot=proof.bytes_since_snapshot
        )
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

    def lead(self, own: "VotersRecordVoter | None" = None, *, step: int = 1) -> None:
        """Begin a later epoch with this node as leader; it is on the device on return.

        The epoch is `step` above the last one that is known here. A transaction of metadata that is
        open is aborted. `own` is this node as the log has to name it, where it names the voters:
        another address or directory is written there.

        Raises:
            OSError: the device refuses.
        """
        # Above each epoch that the log or the file has: Kafka never goes back to an older one.
        before = read_quorum_state(self._folder.files, self._folder.path)
        known = max(self._replay.epoch, 0 if before is None else before.epoch)
        self._epoch = min(known + step, INT32_MAX)
        self._note_epoch(self._epoch)
        self._write(control_batch(self._election(own), self._place()))
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

    def election(self, place: BatchPlace) -> bytes:
        """The batch with which this node begins a later epoch at the end of a state ahead, to save.

        Of one record, since the log has its voters from `lead`.
        """
        return control_batch([self._leader_change()], place)

    def save(self, batches: Sequence[bytes], image: MetadataImage) -> None:
        """Write batches that follow the log's end; `image` is the state after them.

        Those of data become one, with one flush: a device that loses its power may keep later bytes
        and lose earlier ones, and of several batches the next start would take that for a loss of
        what was acknowledged. The caller has replayed the records, so they are not replayed here.
        The epoch is that of the last one from then on.

        Raises:
            OSError: the device refuses. After a crash all is there, or nothing; where there are
                batches of control among them, the first of them. The log takes no further one until
                the next start.
        """
        self._check_follows()
        [(_, last)] = read_batches(memoryview(batches[-1]))
        is_later = last.leader_epoch > self._epoch
        if is_later:
            self._note_epoch(last.leader_epoch)
        now_ms = self._folder.clock.now_ms()
        written = 0
        # Mostly one, for a flush is what a device takes longest for (group commit).
        for each in joined_batches(batches):
            self._log.append_as_follower(memoryview(each), now_ms=now_ms)
            self._log.commit()
            written += len(each)
        if is_later:
            self._log.epochs.save()
            self._epoch = last.leader_epoch
        ahead = copy(self._replay)
        ahead.image, ahead.next_offset = image, self._log.end_offset
        ahead.epoch, ahead.timestamp = self._epoch, now_ms
        self._replay = ahead
        self._log.advance_high_watermark(self._log.end_offset)
        self._upkeep.note_applied(written)

    def served(self) -> "ServedMetadataLog":
        """The log as its observers read it; from any thread."""
        from tailrace.cluster.metadata.served import ServedMetadataLog

        return ServedMetadataLog(self._folder, self._log)

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
        return self._upkeep.is_due()

    def tidy(self) -> None:
        """Write a snapshot if one is due, and delete what retention does not keep.

        Raises:
            OSError: the device refuses; the log is as usable as before.
        """
        self._upkeep.tidy(self._replay)

    def due_snapshot(self) -> Callable[[], None] | None:
        """The function that writes a snapshot of the present state, if one is due.

        It raises OSError where the device refuses, and may run on a thread beside `save`.
        """
        return self._upkeep.due_snapshot(self._replay)

    def write_snapshot(self) -> None:
        """Write a snapshot of the present state, unless there is one or a transaction is open.

        Raises:
            OSError: the device refuses.
        """
        self._upkeep.write_snapshot(self._replay)

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

    def _election(self, own: "VotersRecordVoter | None") -> Iterator[tuple[ControlType, Message]]:
        from tailrace.protocol.metadata_records import (
            KRaftVersionRecord,
            VotersRecord,
        )

        yield self._leader_change()
        voters = self._replay.voters
        if voters is None:
            return
        # The snapshot that a quorum begins with has them, and no batch yet.
        is_new = self._log.end_offset == self._log.start_offset
        if own is not None and voters.voters != (own,):
            # In the first batch of an epoch, as Kafka's leader (LeaderState): a controller of
            # Kafka's on this directory is a voter only by this id of a directory, and the others
            # ask for votes at this address.
            is_new, voters = True, VotersRecord(voters=(own,))
        if is_new:
            yield ControlType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=1)
            yield ControlType.VOTERS, voters

    def _leader_change(self) -> tuple[ControlType, Message]:
        from tailrace.protocol.metadata_records import LeaderChangeMessage, Voter

        voter = (Voter(voter_id=self._node_id),)
        return ControlType.LEADER_CHANGE, LeaderChangeMessage(
            leader_id=self._node_id, voters=voter, granting_voters=voter
        )

    def _note_epoch(self, epoch: int) -> None:
        # The file before the batch, as in Kafka (KIP-595): after a crash in between the epoch is
        # used up, and never has two leaders' batches.
        in_settings = (self._node_id,) if self._replay.kraft_version == 0 else None
        state = QuorumState(self._node_id, epoch, in_settings)
        write_quorum_state(self._folder.files, self._folder.path, state)

    def _place(self) -> BatchPlace:
        return BatchPlace(self._log.end_offset, self._epoch, self._folder.clock.now_ms())

    def _check_follows(self) -> None:
        if self._log.end_offset != self._replay.next_offset:
            # The caller of the last append got an error, and the batch is in the log all the same.
            raise StorageError(errno.EIO, _NOT_ACKNOWLEDGED, self._folder.path)

    def _write(self, batch: bytes) -> None:
        self._check_follows()
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
        self._upkeep.note_applied(len(batch))


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
    memory = folder.read_memory(proof.replay)
    _check_quorum(memory, proof.replay, path=path, node_id=node_id)
    folder.make(memory)
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
            save_state(folder, replay)
        replay = proof.replay = replay.without_transaction()
    folder.keep_damaged(proof.damaged)
    log = folder.open_log(config, report=report)
    # An open transaction cannot be continued after a cut, and offsets must follow the snapshot.
    if must_restart or log.end_offset != replay.next_offset:
        if not has_state:
            replay = proof.replay = replay.without_state()
        truncate_fully_and_start_at(log, replay.next_offset)
    log.advance_high_watermark(log.end_offset)
    return MetadataLog(folder, log, proof, config=config, node_id=node_id)


def _check_quorum(memory: Memory, replay: MetadataReplay, *, path: str, node_id: int) -> None:
    """Check that the node can lead the quorum of its metadata log."""
    if memory.voters not in ((), (node_id,)):
        raise DirectoryError(
            f"{path} belongs to a quorum with the voters {', '.join(map(str, memory.voters))}; "
            f"this node, {node_id}, can only lead a quorum of its own; nothing was changed"
        )
    # An observer of a quorum whose settings name no voters: its log is a copy, and the controller
    # that it follows continues without it.
    if memory.state is not None and memory.state.leader_id not in (-1, node_id):
        raise DirectoryError(
            f"{path} follows the quorum that node {memory.state.leader_id} leads; start this node "
            "with process.roles=broker, or move the folder away; nothing was changed"
        )
    epoch = max(replay.epoch, 0 if memory.state is None else memory.state.epoch)
    if epoch >= INT32_MAX:
        raise DirectoryError(f"{path}: no epoch can follow {epoch}; nothing was changed")
