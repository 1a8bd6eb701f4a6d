"""A leader's metadata log in memory, and observers that copy it, without a network."""

import random

from tailrace.cluster.metadata.batches import BatchPlace, RecordToWrite, control_batch, data_batch
from tailrace.cluster.metadata.folder import MetadataFolder, MetadataLogConfig
from tailrace.cluster.metadata.image import ImageChange
from tailrace.cluster.metadata.observer import ObserverLog, open_observer_log
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot import Snapshot, write_snapshot
from tailrace.protocol.metadata_records import LeaderChangeMessage, Voter
from tailrace.records.batch import read_batches
from tailrace.records.control import ControlType
from tailrace.storage.folder import Removals
from tailrace.testing import MemoryFiles
from tests.unit.cluster.metadata_logs import DIRECTORY, LEVEL, setting
from tests.unit.storage.builders import SetClock

LEADER = 100
NODE = 2


class Leader:
    """Batches by offset, as the leader of a quorum has them."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        """First offset, epoch and bytes of each."""
        self.end = 0
        self.epoch = 0

    def lead(self) -> None:
        """Begin the next epoch."""
        self.epoch += 1
        voter = (Voter(voter_id=LEADER),)
        change = LeaderChangeMessage(leader_id=LEADER, voters=voter, granting_voters=voter)
        place = BatchPlace(self.end, self.epoch, 0)
        self._append(control_batch([(ControlType.LEADER_CHANGE, change)], place), 1)

    def write(self, *records: RecordToWrite) -> None:
        """Append a batch."""
        self._append(data_batch(records, BatchPlace(self.end, self.epoch, 0)), len(records))

    def _append(self, batch: bytes, count: int) -> None:
        self.batches.append((self.end, self.epoch, batch))
        self.end += count

    def since(self, offset: int) -> memoryview:
        """The batches from an offset on."""
        return memoryview(b"".join(data for at, _, data in self.batches if at >= offset))

    def lose_from(self, offset: int) -> None:
        """Another node leads, which does not have the batches from an offset on."""
        self.batches = [each for each in self.batches if each[0] < offset]
        self.end = offset
        self.epoch += 1

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The newest epoch at or below this one, and its end: the answer to one that diverges."""
        newest = max((each for _, each, _ in self.batches if each <= epoch), default=0)
        later = [at for at, each, _ in self.batches if each > newest]
        return newest, min(later, default=self.end)

    def snapshot(self, end: int) -> tuple[int, bytes]:
        """The epoch and the bytes of a snapshot of all below an offset."""
        replay = MetadataReplay()
        data = b"".join(data for at, _, data in self.batches if at < end)
        replay.see_all(batch for _, batch in read_batches(memoryview(data)))
        assert replay.next_offset == end
        content = Snapshot(image=replay.image, log_timestamp=replay.timestamp)
        return replay.epoch, write_snapshot(content, epoch=replay.epoch, timestamp=0)


def leader_of(*values: int) -> Leader:
    """A leader of epoch 1 with a value of a setting in each batch after the first two."""
    leader = Leader()
    leader.lead()
    leader.write(LEVEL)
    for each in values:
        leader.write(setting(each))
    return leader


class Copy:
    """One start after another of an observer on the same disk."""

    def __init__(self, files: MemoryFiles | None = None, **config: int) -> None:
        self.files = files or MemoryFiles()
        self.clock = SetClock()
        self.config = MetadataLogConfig(**config)
        self.told: list[str] = []
        self.removals = Removals(self.files)
        if not self.files.exists(DIRECTORY):
            self.files.make_directory(DIRECTORY)

    def open(self, node_id: int = NODE) -> ObserverLog:
        """The log, as a start finds it."""
        folder = MetadataFolder(self.files, self.clock, random.Random(0), self.removals, DIRECTORY)
        return open_observer_log(folder, self.config, node_id=node_id, report=self.told.append)


def follow(log: ObserverLog, leader: Leader, *, committed: int | None = None) -> ImageChange:
    """Fetch all that the leader has, as answers would bring it, cuts included."""
    if leader.epoch > log.epoch:
        log.follow(LEADER, leader.epoch)
    for _ in range(20):
        epoch, end = leader.end_of(log.last_epoch)
        if epoch == log.last_epoch and log.end_offset <= end:
            break
        log.cut(epoch=epoch, end_offset=end)
    log.append(leader.since(log.end_offset))
    return log.commit(leader.end if committed is None else committed)


def install(log: ObserverLog, leader: Leader, end: int, *, part_bytes: int = 100) -> None:
    """Fetch a snapshot of the leader in parts."""
    if leader.epoch > log.epoch:
        log.follow(LEADER, leader.epoch)
    epoch, data = leader.snapshot(end)
    download = log.begin_download(end_offset=end, epoch=epoch)
    while not download.is_whole:
        at = download.position
        download.add(memoryview(data)[at : at + part_bytes], position=at, size=len(data))
    log.install(download)
