"""Which leader wrote what: the first offset of each leader epoch (KIP-101).

    epoch  start offset
    0      0              offsets 0 to 5 were written under epoch 0
    3      6              offsets from 6 on under epoch 3

Kept in `leader-epoch-checkpoint`, which is replaced whenever an epoch begins: that is when a
leader changes, not when a record comes.
"""

from bisect import bisect_right

from tailrace.model import NO_LEADER_EPOCH
from tailrace.runtime.files import Files
from tailrace.storage.checkpoints import read_epoch_checkpoint, write_epoch_checkpoint
from tailrace.storage.names import LEADER_EPOCHS


class LeaderEpochs:
    """The epochs of one log, in memory and in the checkpoint."""

    def __init__(self, files: Files, directory: str, entries: list[tuple[int, int]]) -> None:
        self._files = files
        self._directory = directory
        self._entries = entries

    @property
    def latest(self) -> int:
        """The newest epoch, or -1."""
        return self._entries[-1][0] if self._entries else NO_LEADER_EPOCH

    def at(self, offset: int) -> int:
        """The epoch that an offset was written under, or -1 when it is older than all known."""
        number = bisect_right(self._entries, offset, key=lambda entry: entry[1]) - 1
        return self._entries[number][0] if number >= 0 else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`, if it is newer than the latest.

        An older epoch that has no record, because it began at the same offset, is forgotten.

        Raises:
            OSError: the checkpoint could not be replaced; nothing is noted.
        """
        if epoch > self.latest:
            entries = [entry for entry in self._entries if entry[1] < start_offset]
            self._replace([*entries, (epoch, start_offset)])

    def cut_end(self, log_end: int) -> None:
        """Forget epochs that begin at or behind the end of the log, after the tail was cut."""
        kept = [entry for entry in self._entries if entry[1] < log_end]
        if len(kept) < len(self._entries):
            self._replace(kept)

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        write_epoch_checkpoint(self._files, self._directory, LEADER_EPOCHS, entries=entries)
        self._entries = entries


def open_leader_epochs(files: Files, directory: str) -> LeaderEpochs:
    """Read the checkpoint of a partition folder; a missing one is empty.

    Raises:
        CorruptionError: the checkpoint is malformed.
    """
    entries = read_epoch_checkpoint(files, f"{directory}/{LEADER_EPOCHS}")
    return LeaderEpochs(files, directory, entries)
