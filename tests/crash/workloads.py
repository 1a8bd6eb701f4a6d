"""Scripted work on a directory of logs, and the oracle that says what a crash may leave of it."""

import contextlib
import copy
import random
import uuid
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from errno import EMFILE
from typing import Any, NamedTuple, TypeVar

import pytest

from tailrace.model import AppendOrigin, LeaderEpoch, ProducerId, TopicPartition
from tailrace.records.batch import Batch, stamp
from tailrace.records.control import (
    ControlType,
    build_end_marker,
    end_transaction_marker_or_none,
)
from tailrace.runtime.files import Files
from tailrace.storage.config import DAY_MS, LogConfig, log_config
from tailrace.storage.directories import LogDirectory, open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.index.sparse import WAITING_ENTRIES_MAX
from tailrace.storage.log import Log
from tailrace.storage.positions import ReadLimit
from tailrace.storage.shrink import delete_old_segments, raise_log_start, truncate_to
from tailrace.testing import DiskFault, MemoryFiles, Outside, ProcessKilledError, virtual_runtime
from tests.unit.storage.builders import NOW, SetClock, batch

T = TypeVar("T")

ONE = TopicPartition("flights", 0)
TWO = TopicPartition("planes", 1)
PRODUCER_ID = 7
IDS = {ONE: uuid.UUID(int=1), TWO: uuid.UUID(int=2)}
SETTINGS = {
    "internal.segment.bytes": "500",
    "segment.index.bytes": "60",
    "index.interval.bytes": "80",
}
CONFIG = log_config(SETTINGS)
SHORT = log_config({**SETTINGS, "retention.bytes": "600"})
"""Keeps little more than a segment."""
FINE = log_config({"index.interval.bytes": "0", "segment.index.bytes": "1000"})
"""Every append but the first of a segment has an index entry."""


@dataclass(slots=True)
class Oracle:
    """Batches that were sent and acknowledged, and those that must outlive the machine."""

    sent: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    """Batches as they must stand in the log, in order."""
    acknowledged: dict[TopicPartition, int] = field(default_factory=dict)
    """Number of these that were acknowledged."""
    on_device: dict[TopicPartition, int] = field(default_factory=dict)
    """Offset below which nothing may be lost; known from `sync` and `checkpoint`."""
    deleted: set[TopicPartition] = field(default_factory=set)
    """Partitions whose deletion was acknowledged."""
    start_max: dict[TopicPartition, int] = field(default_factory=dict)
    """Offset from which on nothing was asked to be deleted."""
    start_min: dict[TopicPartition, int] = field(default_factory=dict)
    """Log start that a lost machine must still know; known from `checkpoint`."""


class Found(NamedTuple):
    """The part of a partition that a start found."""

    start: int
    end: int
    batches: list[bytes]


class Broker:
    """A log directory and its manager, driven by a script."""

    def __init__(self, files: Files, oracle: Oracle) -> None:
        self.files = files
        self.oracle = oracle
        self.directory: LogDirectory = open_log_directory(
            files, "data", node_id=1, new_id=uuid.UUID(int=9)
        )
        self.logs = DirectoryLogs.from_checkpoints(
            files, self.directory, clock=SetClock(), chance=random.Random(0)
        )
        self.directory.take_mark()
        for partition in self.logs.find_partitions():
            self.create(partition)

    def create(self, partition: TopicPartition, config: LogConfig = CONFIG) -> None:
        """Create or open a partition."""
        self.oracle.deleted.discard(partition)
        self.logs.open(partition, topic_id=IDS[partition], config=config)
        self.oracle.acknowledged.setdefault(partition, 0)
        self.oracle.sent.setdefault(partition, [])

    def append(self, partition: TopicPartition, value: bytes) -> None:
        """Append a batch of two records; its sequence numbers are its offsets."""
        data = batch(
            value,
            value[::-1],
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=2 * len(self.oracle.sent[partition]),
        )
        self._send(partition, data)

    def transact(self, partition: TopicPartition, producer_id: int) -> None:
        """Append a record to a producer's transaction."""
        known = self.log(partition).producers.get(ProducerId(producer_id))
        data = batch(
            b"of %d" % producer_id,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0 if known is None else known.last_sequence + 1,
            is_transactional=True,
        )
        self._send(partition, data)

    def end(self, partition: TopicPartition, producer_id: int, *, is_commit: bool) -> None:
        """Append the marker that ends a producer's transaction."""
        data = build_end_marker(
            producer_id, 0, is_commit=is_commit, coordinator_epoch=0, timestamp=NOW
        )
        self._send(partition, data, origin=AppendOrigin.COORDINATOR)

    def _send(
        self,
        partition: TopicPartition,
        data: bytearray,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> None:
        log = self.log(partition)
        stamped = bytearray(data)
        stamp(memoryview(stamped), base_offset=log.end_offset, leader_epoch=0)
        self.oracle.sent[partition].append(bytes(stamped))
        log.append(memoryview(data), leader_epoch=LeaderEpoch(0), now_ms=NOW, origin=origin)
        log.advance_high_watermark(log.end_offset)
        self.oracle.acknowledged[partition] += 1

    def log(self, partition: TopicPartition) -> Log:
        """The open log of a partition."""
        log = self.logs.get(partition)
        assert log is not None
        return log

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Cut a log, and write the checkpoints, which every cut has to."""
        oracle = self.oracle
        kept = [each for each in oracle.sent[partition] if last_offset(each) < offset]
        end = last_offset(kept[-1]) + 1 if kept else 0
        oracle.acknowledged[partition] = len(kept)
        oracle.on_device[partition] = min(oracle.on_device.get(partition, 0), end)
        truncate_to(self.log(partition), offset)
        oracle.sent[partition] = kept
        self.checkpoint()

    def fail_to_roll(self, partition: TopicPartition, base_offset: int = 0) -> None:
        """A roll to the log end, or to a later offset, that fails and leaves a file."""
        assert isinstance(self.files, MemoryFiles)
        self.files.faults.append(DiskFault(operation="open", path_part=".index", error=EMFILE))
        with pytest.raises(OSError):  # noqa: PT011 - a read may have failed before
            self.log(partition).roll(base_offset)
        self.files.faults.clear()

    def delete_records(self, partition: TopicPartition, offset: int) -> None:
        """Have a log start later."""
        self.oracle.start_max[partition] = offset
        raise_log_start(self.log(partition), offset)

    def retain(self, partition: TopicPartition) -> None:
        """Delete old segments, and for good what was renamed before."""
        log = self.log(partition)
        self.oracle.start_max[partition] = max(
            self.oracle.start_max.get(partition, 0), log.segments.active.base_offset
        )
        delete_old_segments(log, NOW)
        self.logs.removals.remove_due(NOW + DAY_MS)

    def checkpoint(self) -> None:
        """Write the checkpoints, as the broker does every minute."""
        self.logs.checkpoint()
        self._note_recovery_points()

    def sync(self, partition: TopicPartition) -> None:
        """Flush one log."""
        self.log(partition).sync()
        self._note_recovery_points(is_checkpoint=False)

    def delete(self, partition: TopicPartition) -> None:
        """Delete a partition and what is left of it."""
        self.oracle.sent.pop(partition)
        self.oracle.acknowledged.pop(partition)
        self.oracle.on_device.pop(partition, None)
        self.logs.take_out(partition, "0123456789abcdef0123456789abcdef")()
        self.oracle.deleted.add(partition)
        self.logs.removals.remove_due(NOW + DAY_MS)

    def stop(self) -> None:
        """An orderly stop."""
        self.logs.close()
        self._note_recovery_points()
        self.directory.close()

    def _note_recovery_points(self, *, is_checkpoint: bool = True) -> None:
        for log in self.logs:
            self.oracle.on_device[log.partition] = log.positions.recovery_point
            if is_checkpoint and log.start_offset > log.segments.first.base_offset:
                self.oracle.start_min[log.partition] = log.start_offset


def last_offset(data: bytes) -> int:
    """Last offset of a batch."""
    return Batch(memoryview(data)).last_offset


def append_and_roll(broker: Broker) -> None:
    """Appends that fill three segments."""
    broker.create(ONE)
    for number in range(12):
        broker.append(ONE, b"value %d" % number)


def checkpoints(broker: Broker) -> None:
    """Checkpoints and a flush between appends to two partitions."""
    broker.create(ONE)
    broker.create(TWO)
    for number in range(9):
        broker.append(ONE, b"one %d" % number * 5)
        broker.append(TWO, b"two %d" % number)
        if number in {3, 6}:
            broker.checkpoint()
    broker.sync(TWO)
    broker.append(TWO, b"last")


def clean_stop(broker: Broker) -> None:
    """An orderly stop, a start, more appends, and a stop again."""
    broker.create(ONE)
    for number in range(5):
        broker.append(ONE, b"before %d" % number)
    broker.stop()
    again = Broker(broker.files, broker.oracle)
    for number in range(3):
        again.append(ONE, b"after %d" % number)
    again.stop()


def create_and_delete(broker: Broker) -> None:
    """A partition is deleted, and one of the same name made and filled."""
    broker.create(ONE)
    broker.create(TWO)
    for number in range(6):
        broker.append(ONE, b"old %d" % number * 6)
        broker.append(TWO, b"stays %d" % number)
    broker.checkpoint()
    broker.delete(ONE)
    broker.create(ONE)
    for number in range(4):
        broker.append(ONE, b"new %d" % number * 6)
    broker.checkpoint()


def truncations(broker: Broker) -> None:
    """A log is cut in a segment, across segments and to nothing, and filled again each time."""
    broker.create(ONE)
    for number in range(7):
        broker.append(ONE, b"value %d" % number * 4)
    broker.checkpoint()
    for round_number, offset in enumerate((11, 4, 0)):
        broker.truncate(ONE, offset)
        for number in range(3):
            broker.append(ONE, b"round %d, %d" % (round_number, number) * 4)


def failed_rolls(broker: Broker) -> None:
    """Rolls fail before cuts, and before a roll at another offset."""
    broker.create(ONE)
    for round_number, offset in enumerate((5, 2, 0)):
        for number in range(4):
            broker.append(ONE, b"round %d, %d" % (round_number, number) * 4)
        broker.checkpoint()
        broker.fail_to_roll(ONE)
        broker.truncate(ONE, offset)
    broker.append(ONE, b"between")
    broker.fail_to_roll(ONE, 50)
    for number in range(4):
        broker.append(ONE, b"last %d" % number * 4)


def retention(broker: Broker) -> None:
    """Old segments go while new ones come."""
    broker.create(ONE, SHORT)
    for number in range(12):
        broker.append(ONE, b"value %d" % number * 5)
        if number in {5, 8}:
            broker.retain(ONE)
        if number == 6:
            broker.checkpoint()
    broker.retain(ONE)
    broker.append(ONE, b"last")


def deleted_records(broker: Broker) -> None:
    """The log start moves into a segment and past it, and everything is deleted in the end."""
    broker.create(ONE)
    for number in range(8):
        broker.append(ONE, b"value %d" % number * 5)
    for offset in (3, 9):
        broker.delete_records(ONE, offset)
        broker.checkpoint()
        broker.retain(ONE)
    broker.append(ONE, b"more")
    broker.delete_records(ONE, broker.log(ONE).end_offset)
    broker.checkpoint()
    broker.append(ONE, b"last")


def transactions(broker: Broker) -> None:
    """Commits and aborts of two producers over several segments, with a checkpoint and a stop."""
    broker.create(ONE)
    for number in range(4):
        broker.transact(ONE, 8)
        broker.transact(ONE, 9)
        broker.end(ONE, 8, is_commit=bool(number % 2))
        broker.transact(ONE, 9)
        if number != 2:
            broker.end(ONE, 9, is_commit=False)
        if number == 1:
            broker.checkpoint()
    broker.stop()
    again = Broker(broker.files, broker.oracle)
    again.transact(ONE, 8)
    again.end(ONE, 8, is_commit=False)
    again.sync(ONE)
    again.transact(ONE, 9)


def index_entries(broker: Broker) -> None:
    """Index entries are written together: when many wait, at a flush, and at a roll."""
    broker.create(ONE, FINE)
    for number in range(WAITING_ENTRIES_MAX + 12):
        broker.append(ONE, b"%d" % number)
        if number in {8, WAITING_ENTRIES_MAX + 6}:
            broker.sync(ONE)
    broker.log(ONE).roll()
    broker.append(ONE, b"next")
    broker.log(ONE).sync_rolled()
    broker.checkpoint()
    broker.append(ONE, b"last")


WORKLOADS: tuple[Callable[[Broker], None], ...] = (
    append_and_roll,
    checkpoints,
    clean_stop,
    create_and_delete,
    truncations,
    failed_rolls,
    retention,
    deleted_records,
    transactions,
    index_entries,
)


def run(workload: Callable[[Broker], None], files: MemoryFiles) -> Oracle:
    """Run a workload until it ends or the process is killed; returns what it had done."""
    oracle = Oracle()
    with contextlib.suppress(ProcessKilledError):
        workload(Broker(files, oracle))
    return oracle


def operation_count(workload: Callable[[Broker], None]) -> int:
    """Count the changing calls that a workload makes."""
    files = MemoryFiles()
    run(workload, files)
    return len(files.operations)


class Starts:
    """Results of starts on disks; crashes leave many equal disks, which are started once."""

    def __init__(self) -> None:
        self._known: dict[object, dict[TopicPartition, Found]] = {}

    def stored(self, disk: MemoryFiles) -> dict[TopicPartition, Found]:
        """The same as the function, which is not called twice for equal disks."""
        state = disk.state()
        if state not in self._known:
            self._known[state] = stored(disk)
        return self._known[state]


def stored(files: MemoryFiles) -> dict[TopicPartition, Found]:
    """Start on what a crash left, with recovery; what is there of each partition. Then stop."""
    broker = Broker(files, Oracle())
    found: dict[TopicPartition, Found] = {}
    for log in broker.logs:
        batches = list(log.batches(0))
        for each in batches:
            each.check()
        expected_end = batches[-1].next_offset if batches else log.start_offset
        assert log.end_offset == expected_end
        check_producers(log, batches)
        check_lookups(log, batches)
        found[log.partition] = Found(
            log.start_offset, log.end_offset, [bytes(each.view) for each in batches]
        )
    broker.stop()
    return found


def check_lookups(log: Log, batches: list[Batch]) -> None:
    """Find every batch by its last offset, with what there is of the indexes."""
    for each in batches:
        if each.base_offset >= log.start_offset:
            found = log.read(
                each.last_offset, bytes_max=1, is_first_whole=True, limit=ReadLimit.LOG_END
            )
            assert found.read() == each.view


def check_producers(log: Log, batches: list[Batch]) -> None:
    """Hold sequences, open transactions and noted aborts against what the batches say."""
    sequences: dict[int, int] = {}
    starts: dict[int, int] = {}
    aborts = []
    for each in batches:
        marker = end_transaction_marker_or_none(each) if each.is_control else None
        if marker is None:
            sequences[each.producer_id] = each.last_sequence
            if each.is_transactional:
                starts.setdefault(each.producer_id, each.base_offset)
        else:
            start = starts.pop(each.producer_id)
            if marker.type is ControlType.ABORT:
                aborts.append((each.producer_id, start, each.base_offset))
    for producer_id, sequence in sequences.items():
        known = log.producers.get(ProducerId(producer_id))
        assert known is not None
        assert known.last_sequence == sequence
    assert log.positions.last_stable == min(starts.values(), default=log.end_offset)
    assert aborts == [
        (each.producer_id, each.first_offset, each.last_offset)
        for segment in log.segments
        for each in segment.transactions.entries()
    ]


def check(oracle: Oracle, found: dict[TopicPartition, Found], *, is_kill: bool) -> None:
    """Hold what was found after a crash against what may be there."""
    for partition in oracle.deleted:
        assert partition not in found
    for partition, sent in oracle.sent.items():
        start, end, batches = found.get(partition, Found(0, 0, []))
        start_max = oracle.start_max.get(partition, 0)
        assert oracle.start_min.get(partition, 0) <= start <= start_max
        gone = sum(last_offset(each) < start for each in sent)
        # Whole segments below the start may be back.
        kept = [each for each in batches if last_offset(each) >= start]
        assert kept == sent[gone : gone + len(kept)]
        if is_kill:
            assert gone + len(kept) >= oracle.acknowledged[partition]
        assert end >= oracle.on_device.get(partition, 0)


def crash_all_ways(files: MemoryFiles, seed: int) -> list[tuple[bool, MemoryFiles]]:
    """The disks of `crash_five_ways` that differ; a kill comes first, of which most is asked."""
    found: dict[object, tuple[bool, MemoryFiles]] = {}
    for is_kill, disk in crash_five_ways(files, seed):
        found.setdefault(disk.state(), (is_kill, disk))
    return list(found.values())


def crashes_of(
    work: Callable[[Outside, T], Coroutine[Any, Any, None]], told: T, stop_at: Collection[int]
) -> tuple[range, list[tuple[MemoryFiles, T]]]:
    """The operations of a work, and what crashes at some of them leave: disks, with what was told.

    The work notes in `told` what was answered.
    """
    with virtual_runtime() as outside:
        files = outside.files
        found: dict[object, tuple[MemoryFiles, T]] = {}

        def look(_operation: str, _path: str) -> None:
            number = len(files.operations) - 1
            if number in stop_at:
                for _, disk in crash_all_ways(files, seed=number):
                    key = hash(disk.state()), repr(told)
                    found.setdefault(key, (disk, copy.deepcopy(told)))

        files.on_call = look
        outside.run(work(outside, told))
        return range(len(files.operations)), [*found.values()]


def crash_five_ways(files: MemoryFiles, seed: int) -> list[tuple[bool, MemoryFiles]]:
    """Disks after a kill, a power loss and some torn ones; and whether it was a kill."""
    chance = random.Random(seed)
    torn = [(False, files.crash(chance=chance)) for _ in range(3)]
    return [(True, files.crash(keep_unsynced=True)), (False, files.crash()), *torn]
