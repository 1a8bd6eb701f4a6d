"""The process dies, or the machine loses power, while a leader's followers are at some offset.

The next start must not take for committed what no follower had, and knows the epochs that the
leader has begun.
"""

import contextlib
import random
import uuid

from tailrace.model import LeaderEpoch, Offset
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.replication.partition import ClusterView, Partition
from tailrace.runtime.files import Files
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.testing import MemoryFiles, ProcessKilledError
from tests.crash.test_late_epochs import entries_by_batches
from tests.crash.workloads import CONFIG, IDS, ONE, crash_all_ways
from tests.steps import Steps
from tests.unit.storage.builders import NOW, SetClock, batch

ME, FOLLOWER = 1, 2


class Alive:
    """Both brokers, all the time."""

    def alive_epoch(self, broker_id: int) -> int | None:
        return broker_id

    def is_shutting_down(self, broker_id: int) -> bool:  # noqa: ARG002 - nobody shuts down here
        return False


def started(files: Files) -> DirectoryLogs:
    """A directory after a start, with the log open if it is there."""
    directory = open_log_directory(files, "data", node_id=ME, new_id=uuid.UUID(int=9))
    logs = DirectoryLogs.from_checkpoints(
        files, directory, clock=SetClock(), chance=random.Random(0), has_other_replicas=True
    )
    directory.take_mark()
    for partition in logs.find_partitions():
        logs.open(partition, topic_id=IDS[partition], config=CONFIG)
    return logs


class Committed:
    """The state of the leader when the crash comes."""

    def __init__(self) -> None:
        self.high_watermark = 0
        self.noted = 0
        """The high watermark of the last checkpoint that was written."""
        self.sent: list[bytes] = []


def fail(error: OSError) -> None:
    raise error


def leader_of(log: Log) -> Partition:
    cluster = ClusterView(
        node_id=ME, brokers=Alive(), has_partition=lambda _: True, clock=SetClock(), lag_ms=10
    )
    return Partition(log, on_failure=fail, cluster=cluster)


def work(files: Files, committed: Committed) -> None:
    """Epochs begin with and without records, and the follower lags by one batch, or by none."""
    logs = started(files)
    log = logs.open(ONE, topic_id=IDS[ONE], config=CONFIG)
    partition = leader_of(log)
    for epoch in range(1, 7):
        state = PartitionRecord(
            partition_id=0,
            topic_id=IDS[ONE],
            replicas=(ME, FOLLOWER),
            isr=(ME, FOLLOWER),
            leader=ME,
            leader_epoch=epoch,
            partition_epoch=epoch,
        )
        assert partition.lead(state, now_ms=NOW)
        for number in range(epoch % 3 * 2):
            before = log.end_offset
            value = b"%d of epoch %d" % (number, epoch)
            partition.append(memoryview(batch(value * 5)), now_ms=NOW)
            committed.sent.append(value * 5)
            fetched = Offset(before if number % 2 else log.end_offset)
            # Seen before the call: what a crash leaves may have it or not.
            committed.high_watermark = max(committed.high_watermark, fetched)
            partition.note_fetch(
                FOLLOWER,
                broker_epoch=FOLLOWER,
                offset=fetched,
                log_start=Offset(0),
                log_end=log.end_offset,
                now_ms=NOW,
            )
        if epoch % 2:
            logs.checkpoint_high_watermarks()
        else:
            logs.checkpoint()
        committed.noted = log.positions.high_watermark
    logs.close()
    logs.directory.close()


def test_a_start_takes_nothing_for_committed_that_was_not(steps: Steps) -> None:
    """The high watermark is that of a checkpoint, and at most the log end."""
    whole = MemoryFiles()
    work(whole, Committed())
    found = set()
    for stop_at in steps(range(len(whole.operations) + 1)):
        files, committed = MemoryFiles(), Committed()
        files.stop_at, files.stop_partial_bytes = stop_at, 10
        with contextlib.suppress(ProcessKilledError):
            work(files, committed)
        for is_kill, disk in crash_all_ways(files, seed=stop_at):
            logs = started(disk)
            log = logs.get(ONE)
            if log is None:
                continue
            high_watermark = log.positions.high_watermark
            found.add(high_watermark)
            assert high_watermark <= committed.high_watermark, stop_at
            assert min(committed.noted, log.end_offset) <= high_watermark, stop_at
            assert not is_kill or high_watermark >= committed.noted, stop_at
            assert log.positions.last_stable <= high_watermark
            entries = [tuple(each) for each in log.epochs.entries]
            assert entries == entries_by_batches(log, log.start_offset), stop_at
    assert len(found) > 3


def test_a_lost_tail_lowers_the_checkpoint_before_new_records_come(steps: Steps) -> None:
    """After a second crash they are not committed, though they have offsets that were."""
    for stop_at in steps(range(4)):
        files = MemoryFiles()
        logs = started(files)
        log: Log | None = logs.open(ONE, topic_id=IDS[ONE], config=CONFIG)
        assert log is not None
        for number in range(4):
            data = memoryview(batch(b"lost %d" % number))
            log.append(data, leader_epoch=LeaderEpoch(8), now_ms=NOW)
            if number == stop_at:
                log.sync()
        log.advance_high_watermark(log.end_offset)
        logs.checkpoint_high_watermarks()
        lost = files.crash()
        logs = started(lost)
        log = logs.get(ONE)
        assert log is not None
        assert log.end_offset == stop_at + 1
        for _ in range(4):
            log.append(memoryview(batch(b"new")), leader_epoch=LeaderEpoch(9), now_ms=NOW)
        log.sync()
        log = started(lost.crash()).get(ONE)
        assert log is not None
        assert (log.end_offset, log.positions.high_watermark) == (stop_at + 5, stop_at + 1)
