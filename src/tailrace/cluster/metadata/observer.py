"""`ObserverLog`: a copy of the metadata log of a quorum that this node is no voter of (KIP-595).

    append     batches as the leader has sent them; not applied yet
    commit     what is below the leader's high watermark -> image
    cut        the end of the log where it differs from the leader's
    install    a snapshot of the leader in place of all that the log has

An observer counts for no majority, so it does not wait for the device at each append, as Kafka's do
not. A crash of the machine may take the end of the log, or tear its last batch: a start cuts what
is damaged, and the leader sends it again. Nothing is lost by that, and so a start may drop any part
that it cannot prove, down to an empty log.

Not here: requests (`broker.kraft.metadata_fetch`).

The file `committed` has the offset below which a leader has confirmed all, for the next start: an
older copy of the quorum's log is refused then, too. It is as durable as the log, whose end a loss
of power may take.

Invariants: `image` is the replay of committed records alone, and a batch that is refused changes
nothing. The epoch of a leader is in `quorum-state`, on the device, before anything is done in it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from copy import copy
from typing import Final

from tailrace.cluster.metadata.features import check_levels
from tailrace.cluster.metadata.folder import Memory, MetadataFolder, MetadataLogConfig
from tailrace.cluster.metadata.image import (
    EVERYTHING_CHANGED,
    NOTHING_CHANGED,
    ImageChange,
    MetadataImage,
)
from tailrace.cluster.metadata.proof import newest_snapshot
from tailrace.cluster.metadata.quorum_state import (
    EPOCHS_SKIPPED_MAX,
    QuorumState,
    write_quorum_state,
)
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot_download import SnapshotDownload
from tailrace.cluster.metadata.upkeep import SnapshotUpkeep
from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.errors import CorruptionError, DirectoryError, FatalError
from tailrace.model import LeaderEpoch, Offset
from tailrace.records.batch import Batch, read_batches
from tailrace.runtime.files import Files
from tailrace.storage.checkpoints import read_text
from tailrace.storage.epochs import EpochEnd, EpochEntry
from tailrace.storage.log import Log
from tailrace.storage.shrink import truncate_fully_and_start_at, truncate_to

NO_LEADER = -1
_COMMITTED: Final = "committed"
_COMMITTED_LINE: Final = re.compile(r"([0-9]{20}) \1\n")
"""The offset twice, so that a torn write is noticed. Kafka passes the file over."""


class LeaderContradictionError(FatalError):
    """A leader contradicts what the quorum has committed, or what it said before."""


class DivergedError(LeaderContradictionError):
    """The quorum has lost records that it had committed: it is another one, or an old copy."""


class ObserverLog:
    """The log of an observer; one thread at a time may call it."""

    def __init__(
        self,
        folder: MetadataFolder,
        log: Log,
        replay: MetadataReplay,
        *,
        config: MetadataLogConfig,
        state: QuorumState,
        committed: int,
    ) -> None:
        """`committed` is what the file of this name has."""
        self._folder = folder
        self._committed = committed
        self._log = log
        self._replay = replay
        self._state = state
        self._upkeep = SnapshotUpkeep(folder, log, config, bytes_since_snapshot=0)
        self.high_watermark = -1
        """Everything below is committed, and equal to what the leader has; -1: not known yet."""

    # -- positions ----------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """The state at `next_offset`."""
        return self._replay.image

    @property
    def next_offset(self) -> int:
        """The offset after the last record that is in the image."""
        return self._replay.next_offset

    @property
    def is_in_transaction(self) -> bool:
        """Whether records below `next_offset` wait for the end of their transaction (KIP-868)."""
        return self._replay.is_in_transaction

    @property
    def kraft_version(self) -> int:
        """1 if the log names the voters, 0 if the settings do (KIP-853)."""
        return self._replay.kraft_version

    @property
    def end_offset(self) -> int:
        """The offset after the last record, committed or not."""
        return self._log.end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the record before `end_offset`; 0 if there is none."""
        latest = self._log.epochs.latest
        # An empty log continues a snapshot, whose name has the epoch.
        return latest if latest >= 0 else self._replay.epoch

    @property
    def epoch(self) -> int:
        """The newest epoch of the quorum that is known."""
        return self._state.epoch

    @property
    def leader_id(self) -> int:
        """The leader in that epoch; `NO_LEADER` if it is not known."""
        return self._state.leader_id

    # -- following ----------------------------------------------------------------------------

    def follow(self, leader_id: int, epoch: int, *, voters: Sequence[int] = ()) -> None:
        """Note the leader of an epoch; on the device on return. `voters` are those of the settings.

        Raises:
            LeaderContradictionError: the epoch is over, has another leader, or is too far away.
            OSError: the device refuses.
        """
        known = self._state
        if epoch < known.epoch:
            raise LeaderContradictionError(f"epoch {epoch} is over, and {known.epoch} has begun")
        # `quorum-state` would keep it, and refuse the real leaders from then on.
        if epoch - known.epoch > EPOCHS_SKIPPED_MAX:
            raise LeaderContradictionError(
                f"epoch {epoch} cannot follow {known.epoch}: no quorum holds that many elections"
            )
        if epoch == known.epoch and known.leader_id not in (NO_LEADER, leader_id):
            raise LeaderContradictionError(
                f"epoch {epoch} has two leaders, {known.leader_id} and {leader_id}"
            )
        new = QuorumState(leader_id, epoch, None if self.kraft_version else tuple(voters))
        if new != known:
            write_quorum_state(self._folder.files, self._folder.path, new)
            self._state = new

    def append(self, records: memoryview) -> int:
        """Append batches of the leader; returns their number. A partial last one is left out.

        Raises:
            CorruptionError: bytes that are no batch, or a batch that does not follow the log.
            InvalidRecordError, UnsupportedMagicError: as the readers of batches; as with the
                others, nothing is appended.
            OSError: the device refuses.
        """
        end, epoch = self._log.end_offset, self.last_epoch
        pieces: list[memoryview] = []
        reader = read_batches(records)
        for position, batch in reader:
            # No checksum covers either. A metadata log has no gaps, since nothing compacts it.
            if batch.base_offset != end:
                raise CorruptionError(
                    f"the leader sent a batch of offset {batch.base_offset} where {end} follows",
                    position=position,
                )
            if not epoch <= batch.leader_epoch <= self.epoch:
                raise CorruptionError(
                    f"the leader of epoch {self.epoch} sent a batch of epoch {batch.leader_epoch} "
                    f"after one of {epoch}",
                    position=position,
                )
            batch.check()
            end, epoch = batch.next_offset, batch.leader_epoch
            pieces.append(batch.view)
        whole = records[: reader.position]
        # One write for all, unless they need more than one segment.
        writes = [whole] if len(whole) <= self._log.config.segment_bytes else pieces
        for each in writes if pieces else ():
            self._log.append_as_follower(each, now_ms=self._folder.clock.now_ms())
        return len(pieces)

    def commit(self, high_watermark: int) -> ImageChange:
        """Apply what the leader says is committed; returns what it has changed in the image.

        Only after an answer for `end_offset` and `last_epoch`: by that the leader has confirmed
        that all records here are its own. -1: a new leader does not know it yet.

        Raises:
            LeaderContradictionError: the watermark goes back.
            MetadataFaultError, UnknownRecordError, DirectoryError: a committed record contradicts
                those before it, or this release does not know it, or the level of a feature. The
                image is as before.
            CorruptionError: the device has damaged what was appended. The image is as before.
            OSError: the device refuses.
        """
        if high_watermark < 0:
            return NOTHING_CHANGED
        reached = min(high_watermark, self._log.end_offset)
        if reached < self.high_watermark:
            raise LeaderContradictionError(
                f"the high watermark was {self.high_watermark}, and is {high_watermark} now"
            )
        ahead, sizes = copy(self._replay), [0]

        def committed() -> Iterator[Batch]:
            for batch in self._log.batches(ahead.next_offset):
                if batch.next_offset > reached:
                    return
                sizes.append(batch.size)
                yield batch

        # One delta for all: a log of many small batches would copy the topics for each of them.
        change = ahead.see_all(committed())
        if change.features:
            check_levels(ahead.image.features, folder=self._folder.path)
        if ahead.next_offset > self._committed:
            # Before the image changes: the caller gets no change when the device refuses.
            _write_committed(self._folder.files, self._folder.path, ahead.next_offset)
            self._committed = ahead.next_offset
        self._replay, self.high_watermark = ahead, reached
        self._log.advance_high_watermark(ahead.next_offset)
        self._upkeep.note_applied(sum(sizes))
        return change

    def cut(self, *, epoch: int, end_offset: int) -> None:
        """Cut the log where the leader's differs; on the device on return.

        `epoch` is the leader's newest epoch at or below `last_epoch`, and `end_offset` its end.

        Raises:
            DivergedError: committed records would go; nothing was changed.
            LeaderContradictionError: nothing would go; nothing was changed.
            OSError: the device refuses; the log refuses every further call.
        """
        offset = self._log.epochs.divergence(
            EpochEnd(LeaderEpoch(epoch), Offset(end_offset)), log_end=self._log.end_offset
        )
        committed = max(self.next_offset, self.high_watermark, self._committed)
        if offset < committed:
            raise DivergedError(
                f"the log of leader {self.leader_id} differs from {self._folder.path} at offset "
                f"{offset}, and the quorum had committed all below {committed}: it was restored "
                "from an older copy, or is another quorum with the same cluster id; if the cluster "
                "is right, move the folder away, and it is fetched again; nothing was changed"
            )
        # An honest leader always names an offset below the one that it was asked for.
        if offset >= self._log.end_offset or epoch > self.last_epoch:
            raise LeaderContradictionError(
                f"the leader's epoch {epoch} ends at {end_offset}, and the log here ends at "
                f"{self._log.end_offset} with epoch {self.last_epoch}, which does not differ"
            )
        truncate_to(self._log, offset)

    def begin_download(self, *, end_offset: int, epoch: int) -> SnapshotDownload:
        """A snapshot of the leader, to be installed when it is whole.

        Raises:
            LeaderContradictionError: it lacks what is committed, or is of an epoch to come.
        """
        # A loss of power may have taken the end of the log, which the snapshot need not have.
        committed = max(self.next_offset, min(self._committed, self.end_offset), 1)
        if end_offset < committed:
            raise LeaderContradictionError(
                f"the leader has a snapshot for offset {end_offset}, and everything below "
                f"{committed} is committed"
            )
        if not 0 <= epoch <= self.epoch:
            raise LeaderContradictionError(
                f"the leader of epoch {self.epoch} has a snapshot of epoch {epoch}"
            )
        return SnapshotDownload(
            self._folder.files, self._folder.path, end_offset=end_offset, epoch=epoch
        )

    def install(self, download: SnapshotDownload) -> ImageChange:
        """Replace log and image by a snapshot; after a crash it is there whole, or not at all.

        Raises:
            CorruptionError, MalformedRecordError: it is damaged. This and the next ones leave all
                as it was.
            MetadataFaultError, UnknownRecordError, UnsupportedCodecError, UnsupportedMagicError,
                DirectoryError: as `commit`.
            OSError: the device refuses.
        """
        content, found = download.load(), download.found
        check_levels(content.image.features, folder=self._folder.path)
        replay = MetadataReplay(content.image, next_offset=found.next_offset, epoch=found.epoch)
        replay.timestamp = content.log_timestamp
        # The name before the cut: after a crash in between a start finds a log that ends before its
        # newest snapshot, and cuts it then.
        download.finish()
        truncate_fully_and_start_at(self._log, found.next_offset)
        if content.voters is not None:
            replay.quorum = {"VotersRecord": content.voters}
        self._replay = replay
        self.high_watermark = max(self.high_watermark, found.next_offset)
        self._upkeep.note_snapshot()
        return EVERYTHING_CHANGED

    # -- upkeep -------------------------------------------------------------------------------

    def is_tidying_due(self) -> bool:
        """Whether `tidy` may have something to do; asks no device."""
        return self._upkeep.is_due()

    def tidy(self) -> None:
        """Write a snapshot if one is due, and delete what retention does not keep.

        Raises:
            OSError: the device refuses; the log is as usable as before.
        """
        self._upkeep.tidy(self._replay)

    def close(self) -> None:
        """Put the log on the device, and close its files.

        Raises:
            OSError: the device refuses; what is missing then is fetched again.
        """
        try:
            self._log.commit()
            self._log.finish()
        finally:
            self._log.close()

    def abandon(self) -> None:
        """Close the files as a killed process would."""
        self._log.close()


def open_observer_log(
    folder: MetadataFolder,
    config: MetadataLogConfig,
    *,
    node_id: int,
    report: Callable[[str], None],
) -> ObserverLog:
    """Open the log of a broker that follows a quorum; the folder is made if there is none.

    The image is that of the newest snapshot, or empty: which of the records after it are committed,
    only the leader says. `report` gets a sentence for all that is damaged or dropped.

    Raises:
        DirectoryError: the node is a voter of the quorum, or has led it, so that there may be no
            other copy; the folder is no metadata log; or a record or a feature's level is not known
            to this release. Nothing was changed.
        StorageError, OSError: a file cannot be read or written.
    """
    files, path = folder.files, folder.path
    is_new = not files.is_directory(path)
    base = None if is_new else newest_snapshot(files, path, report=report)
    replay = MetadataReplay() if base is None else base.replay
    check_levels(replay.image.features, folder=path)
    memory = folder.read_memory(replay)
    _check_role(memory, path=path, node_id=node_id)
    folder.make(memory)
    folder.keep_damaged(() if base is None else base.damaged)
    log = folder.open_log(config, report=report)
    try:
        _settle(
            log,
            replay,
            # `quorum-state` is written before a batch of its epoch.
            epoch_max=INT32_MAX if memory.state is None else memory.state.epoch,
            report=report,
        )
    except BaseException:
        log.close()
        raise
    state = memory.state or QuorumState(NO_LEADER, 0, memory.voters)
    last_epoch = max(log.epochs.latest, replay.epoch)
    if state.epoch < last_epoch:
        # As Kafka: the file is older than the log, or was lost.
        state = QuorumState(NO_LEADER, last_epoch, state.voters)
    committed = _read_committed(files, path, report=report)
    return ObserverLog(folder, log, replay, config=config, state=state, committed=committed)


def _read_committed(files: Files, path: str, *, report: Callable[[str], None]) -> int:
    """The offset in `committed`; 0 where there is none, or it is damaged, and then it is removed.

    The start is not refused: a loss of power may leave anything in the file, as in the log's end.
    """
    file_path = f"{path}/{_COMMITTED}"
    if not files.exists(file_path):
        return 0
    try:
        found = _COMMITTED_LINE.fullmatch(read_text(files, file_path))
    except CorruptionError:
        found = None
    if found is not None and int(found[1]) <= INT64_MAX:
        return int(found[1])
    # Writes replace the first line only.
    files.remove(file_path)
    report(
        f"{file_path} was damaged and is removed: this start does not notice it if the "
        "controllers' log was restored from an older copy; the next one does again"
    )
    return 0


def _write_committed(files: Files, path: str, offset: int) -> None:
    # In place, in one write of the same length: a kill leaves the old one or the new one.
    with closing(files.open(f"{path}/{_COMMITTED}", create=True)) as file:
        file.write(0, f"{offset:020} {offset:020}\n".encode())


def _check_role(memory: Memory, *, path: str, node_id: int) -> None:
    """Check that the quorum has the log without this node."""
    led = memory.state is not None and memory.state.leader_id == node_id
    if led or node_id in memory.voters:
        raise DirectoryError(
            f"{path} is the log of a quorum with this node, {node_id}, as a voter, and may be its "
            "only copy; start it with process.roles=broker,controller, or move the folder away to "
            "follow another quorum; nothing was changed"
        )


def _settle(
    log: Log, replay: MetadataReplay, *, epoch_max: int, report: Callable[[str], None]
) -> None:
    """Cut from a log what does not continue its snapshot, or can be of no leader that was known."""
    base, path = replay.next_offset, log.folder.path
    epochs = [EpochEntry(LeaderEpoch(replay.epoch), log.start_offset)]
    end, fault = base, None
    if log.start_offset <= base < log.end_offset:
        for batch in log.batches(base):
            # No checksum covers these two, and a crash can lose whole batches between others.
            if batch.base_offset != end:
                fault = f"the log has a gap at offset {end}"
            elif not epochs[-1].epoch <= batch.leader_epoch <= epoch_max:
                fault = f"the batch at offset {end} has epoch {batch.leader_epoch}"
            if fault is not None:
                report(f"{path}: {fault}, and is cut there")
                truncate_to(log, end)
                break
            if batch.leader_epoch > epochs[-1].epoch:
                epochs.append(EpochEntry(batch.leader_epoch, Offset(end)))
            end = batch.next_offset
    # A snapshot of this node can be on the device before the records that are in it, and one of the
    # leader is there before the log is cut. Without a snapshot the log has to begin at 0.
    is_continued = log.start_offset <= base < log.end_offset
    is_empty = log.start_offset == log.end_offset
    is_alike = log.end_offset == base and (is_empty or log.epochs.latest == replay.epoch)
    if is_continued:
        # Those of the checkpoint may be damaged, or left by a crash. The answer to a Fetch that
        # names another epoch than the log has would be that the log differs where it does not.
        known = [each for each in log.epochs.entries if each.epoch > replay.epoch]
        if log.epochs.latest != epochs[-1].epoch or known != epochs[1:]:
            log.epochs.clear()
            for each in epochs:
                log.epochs.assign(each.epoch, each.start_offset)
            log.epochs.save()
    elif is_alike:
        # After a crash that came between a snapshot of the leader and the end of the cut.
        if is_empty and log.epochs.entries:
            log.epochs.clear()
            log.epochs.save()
    else:
        if not is_empty:
            report(
                f"{path}: records {log.start_offset} to {log.end_offset - 1} do not continue the "
                f"newest whole snapshot, which ends at {base}, and are fetched again if needed"
            )
        truncate_fully_and_start_at(log, base)
