"""The leader epochs of a log: the first offset of each (KIP-101).

    epoch  start offset
    0      0              offsets 0 to 5 were written under epoch 0
    3      6              offsets from 6 on under epoch 3

The file is `leader-epoch-checkpoint`. Changes run on the event loop and change memory only. `save`
replaces the file: at the next flush of the log, before its recovery point moves, and before a new
log start is checkpointed (`evidence` relies on that). After a crash before `save`, a start rebuilds
the same entries from the batches after the recovery point and from the log start. (Kafka waits for
the device when an epoch begins; an event loop cannot.) After `cut_end` and `clear` the caller saves
before anything is appended, because the log does not show what was cut.

Epochs and start offsets both rise strictly. A new entry replaces the entries that it contradicts,
as in Kafka. The entries are one tuple that is replaced whole, so a reader on another thread sees
the state before a change or after it.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.model import NO_LEADER_EPOCH, LeaderEpoch, Offset
from tailrace.runtime.files import Files
from tailrace.storage.checkpoints import read_epoch_checkpoint, write_epoch_checkpoint
from tailrace.storage.names import LEADER_EPOCHS


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset that was written under it."""

    epoch: LeaderEpoch
    start_offset: Offset


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after its last record, as OffsetForLeaderEpoch answers."""

    epoch: LeaderEpoch
    end_offset: Offset


UNKNOWN_END = EpochEnd(NO_LEADER_EPOCH, Offset(-1))
"""The answer for an epoch that this log knows nothing about."""


class LeaderEpochs:
    """The epochs of one log, in memory and in the checkpoint."""

    def __init__(self, files: Files, directory: str, entries: tuple[EpochEntry, ...]) -> None:
        self._files = files
        self._directory = directory
        self._entries = entries
        self._saved = entries
        # Flushes run on several threads, and all would write the same temporary file.
        self._saving = threading.Lock()

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """Every epoch that has a record, oldest first."""
        return self._entries

    @property
    def latest(self) -> LeaderEpoch:
        """The newest epoch, or -1."""
        return self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    @property
    def earliest(self) -> LeaderEpoch:
        """The oldest epoch, or -1."""
        return self._entries[0].epoch if self._entries else NO_LEADER_EPOCH

    def at(self, offset: Offset) -> LeaderEpoch:
        """The epoch of an offset, or -1 if the offset is below all entries."""
        number = bisect_right(self._entries, offset, key=_start_offset) - 1
        return self._entries[number].epoch if number >= 0 else NO_LEADER_EPOCH

    def entry(self, epoch: LeaderEpoch) -> EpochEntry | None:
        return next((entry for entry in self._entries if entry.epoch == epoch), None)

    def previous(self, epoch: LeaderEpoch) -> EpochEntry | None:
        """The newest entry that is older than this epoch."""
        number = bisect_left(self._entries, epoch, key=_epoch) - 1
        return self._entries[number] if number >= 0 else None

    def next(self, epoch: LeaderEpoch) -> EpochEntry | None:
        """The oldest entry that is newer than this epoch."""
        number = bisect_right(self._entries, epoch, key=_epoch)
        return self._entries[number] if number < len(self._entries) else None

    def end_offset_for(self, epoch: LeaderEpoch, *, log_end: Offset) -> EpochEnd:
        """The newest known epoch at or below `epoch`, and its end offset (OffsetForLeaderEpoch).

        The latest epoch ends at the end of the log. An epoch older than all entries ends where the
        first entry begins. `UNKNOWN_END` is the answer for -1 and for epochs above the latest.
        """
        if epoch == NO_LEADER_EPOCH or not self._entries:
            return UNKNOWN_END
        if epoch == self.latest:
            return EpochEnd(epoch, log_end)
        newer = self.next(epoch)
        # A later epoch than any here: the caller knows more than this log.
        if newer is None:
            return UNKNOWN_END
        floor = self.entry(epoch) or self.previous(epoch)
        return EpochEnd(epoch if floor is None else floor.epoch, newer.start_offset)

    def divergence(self, leader: EpochEnd, *, log_end: Offset) -> Offset:
        """The end of what this log may have in common with its leader's (KIP-101, KIP-595).

        `leader` is the leader's newest epoch at or below the latest one here, and its end there.
        """
        own = self.end_offset_for(leader.epoch, log_end=log_end)
        if own == UNKNOWN_END:
            # No epochs that old here: nothing to compare with but the offset.
            return min(leader.end_offset, log_end)
        if own.epoch != leader.epoch:
            # This log lacks the leader's epoch. Records after the newest older one are certainly
            # not the leader's; whether those before are, it says when it is asked again (KIP-279).
            return min(own.end_offset, log_end)
        return min(own.end_offset, leader.end_offset, log_end)

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Begin `epoch` at `start_offset`; in the file after `save`.

        Nothing changes if it is the latest epoch already. Entries with this or a later epoch, or
        with this or a later start offset, are removed.

        Raises:
            ValueError: the epoch or the offset is negative.
        """
        self._entries = _assigned(self._entries, EpochEntry(epoch, start_offset))

    def restore(self, entries: tuple[EpochEntry, ...]) -> None:
        """Have the entries of before again: what was to begin an epoch could not be written."""
        self._entries = entries

    def cut_end(self, log_end: Offset) -> bool:
        """Remove epochs that begin at or after the end of the log; returns whether there were any.

        In the file after `save`, which has to come before the next append.
        """
        kept = tuple(each for each in self._entries if each.start_offset < log_end)
        if log_end < 0 or len(kept) == len(self._entries):
            return False
        self._entries = kept
        return True

    def cut_start(self, log_start: Offset) -> None:
        """Remove epochs that end at or before the start of the log, after the head was cut.

        The epoch of the new start offset, or the latest if none has it, begins there from now on.
        In the file after `save`.
        """
        count = bisect_right(self._entries, log_start, key=_start_offset)
        if count:
            # Kafka does the same: the epoch is that of the first record that is left.
            first = EpochEntry(self._entries[count - 1].epoch, log_start)
            self._entries = (first, *self._entries[count:])

    def move_to(self, directory: str) -> None:
        """Use another path from now on: the folder was renamed."""
        self._directory = directory

    def clear(self) -> None:
        """Remove every epoch, because the log restarts.

        In the file after `save`, which has to come before the next append.
        """
        self._entries = ()

    def save(self) -> None:
        """Replace the checkpoint if anything has changed; on the device on return.

        Waits for the device, and may run on another thread than the changes.

        Raises:
            OSError: the checkpoint could not be replaced; the next call tries again.
        """
        with self._saving:
            entries = self._entries
            # Most flushes come without a new epoch, and then no file is written.
            if entries != self._saved:
                write_epoch_checkpoint(self._files, self._directory, LEADER_EPOCHS, entries=entries)
                self._saved = entries


def open_leader_epochs(files: Files, directory: str) -> LeaderEpochs:
    """Read the checkpoint of a partition folder; a missing one is empty.

    Raises:
        CorruptionError: the checkpoint is malformed.
        OSError: it cannot be read.
    """
    entries: tuple[EpochEntry, ...] = ()
    for epoch, start_offset in read_epoch_checkpoint(files, f"{directory}/{LEADER_EPOCHS}"):
        entries = _assigned(entries, EpochEntry(LeaderEpoch(epoch), Offset(start_offset)))
    return LeaderEpochs(files, directory, entries)


def write_epochs(files: Files, directory: str, entries: Sequence[tuple[int, int]]) -> LeaderEpochs:
    """Replace the checkpoint of a partition folder; on the device on return.

    Raises:
        OSError: the checkpoint could not be replaced.
    """
    known = tuple(EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in entries)
    write_epoch_checkpoint(files, directory, LEADER_EPOCHS, entries=known)
    return LeaderEpochs(files, directory, known)


def _epoch(entry: EpochEntry) -> LeaderEpoch:
    return entry.epoch


def _start_offset(entry: EpochEntry) -> Offset:
    return entry.start_offset


def _assigned(entries: tuple[EpochEntry, ...], new: EpochEntry) -> tuple[EpochEntry, ...]:
    if new.epoch < 0 or new.start_offset < 0:
        raise ValueError(f"epoch {new.epoch} from offset {new.start_offset}: one is negative")
    if entries and entries[-1].epoch == new.epoch and entries[-1].start_offset <= new.start_offset:
        return entries
    kept = (
        entry
        for entry in entries
        if entry.epoch < new.epoch and entry.start_offset < new.start_offset
    )
    return (*kept, new)
