"""Scripted work on a directory of logs, and the oracle that says what a crash may leave of it."""

import contextlib
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from tailrace.model import TopicPartition
from tailrace.runtime.files import Files
from tailrace.storage.config import LogConfig, log_config
from tailrace.storage.directories import LogDirectory, open_log_directory
from tailrace.storage.manager import LogManager
from tailrace.testing import MemoryFiles, ProcessKilledError
from tests.unit.storage.builders import NOW, batch

ONE = TopicPartition("flights", 0)
TWO = TopicPartition("planes", 1)
PRODUCER_ID = 7
IDS = {ONE: uuid.UUID(int=1), TWO: uuid.UUID(int=2)}
CONFIG = log_config(
    {"segment.bytes": "500", "segment.index.bytes": "60", "index.interval.bytes": "80"}
)


@dataclass(slots=True)
class Oracle:
    """What was sent, what was acknowledged, and what a lost machine must still have."""

    sent: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    """Batches as they must stand in the log, in order."""
    acknowledged: dict[TopicPartition, int] = field(default_factory=dict)
    """How many of them."""
    on_device: dict[TopicPartition, int] = field(default_factory=dict)
    """Offset below which nothing may be lost; known from `sync` and `checkpoint`."""
    deleted: set[TopicPartition] = field(default_factory=set)
    """Partitions whose deletion was acknowledged."""


class Broker:
    """A log directory and its manager, driven by a script."""

    def __init__(self, files: Files, oracle: Oracle) -> None:
        self.files = files
        self.oracle = oracle
        self.directory: LogDirectory = open_log_directory(
            files, "data", node_id=1, new_id=uuid.UUID(int=9)
        )
        self.logs = LogManager(files, self.directory)
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
        log = self.logs.get(partition)
        assert log is not None
        data = batch(
            value,
            value[::-1],
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=2 * len(self.oracle.sent[partition]),
        )
        stamped = bytearray(data)
        stamped[:8] = log.end_offset.to_bytes(8, "big")
        stamped[12:16] = bytes(4)
        self.oracle.sent[partition].append(bytes(stamped))
        log.append(memoryview(data), leader_epoch=0, now_ms=NOW)
        self.oracle.acknowledged[partition] += 1

    def checkpoint(self) -> None:
        """What the broker does every minute."""
        self.logs.checkpoint()
        self._note_recovery_points()

    def sync(self, partition: TopicPartition) -> None:
        """Flush one log."""
        log = self.logs.get(partition)
        assert log is not None
        log.sync()
        self._note_recovery_points()

    def delete(self, partition: TopicPartition) -> None:
        """Delete a partition and what is left of it."""
        self.oracle.sent.pop(partition)
        self.oracle.acknowledged.pop(partition)
        self.oracle.on_device.pop(partition, None)
        folder = self.logs.delete(partition, "0123456789abcdef0123456789abcdef")
        self.oracle.deleted.add(partition)
        self.logs.remove_deleted(folder)

    def stop(self) -> None:
        """An orderly stop."""
        self.logs.close()
        self._note_recovery_points()
        self.directory.close()

    def _note_recovery_points(self) -> None:
        for log in self.logs:
            self.oracle.on_device[log.partition] = log.positions.recovery_point


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


WORKLOADS: tuple[Callable[[Broker], None], ...] = (
    append_and_roll,
    checkpoints,
    clean_stop,
    create_and_delete,
)


def run(workload: Callable[[Broker], None], files: MemoryFiles) -> Oracle:
    """Run a workload until it ends or the process is killed; returns what it had done."""
    oracle = Oracle()
    with contextlib.suppress(ProcessKilledError):
        workload(Broker(files, oracle))
    return oracle


def operation_count(workload: Callable[[Broker], None]) -> int:
    """How many changing calls a workload makes."""
    files = MemoryFiles()
    run(workload, files)
    return len(files.operations)


def stored(files: MemoryFiles) -> dict[TopicPartition, list[bytes]]:
    """Start on what a crash left, with recovery; the batches of each partition. Then stop."""
    broker = Broker(files, Oracle())
    found: dict[TopicPartition, list[bytes]] = {}
    for log in broker.logs:
        batches = list(log.batches(0))
        for each in batches:
            each.check()
        found[log.partition] = [bytes(each.view) for each in batches]
        expected_end = batches[-1].next_offset if batches else log.start_offset
        assert log.end_offset == expected_end
        producer = log.producers.get(PRODUCER_ID)
        assert (-1 if producer is None else producer.last_sequence) == len(batches) * 2 - 1
    broker.stop()
    return found


def check(oracle: Oracle, found: dict[TopicPartition, list[bytes]], *, is_kill: bool) -> None:
    """Hold what was found after a crash against what may be there."""
    for partition in oracle.deleted:
        assert partition not in found
    for partition, sent in oracle.sent.items():
        batches = found.get(partition, [])
        assert batches == sent[: len(batches)]
        if is_kill:
            assert len(batches) >= oracle.acknowledged[partition]
        recovered_end = 2 * len(batches)
        assert recovered_end >= oracle.on_device.get(partition, 0)


def crash_all_ways(files: MemoryFiles, seed: int) -> list[tuple[bool, MemoryFiles]]:
    """Disks after a kill, a power loss and some torn ones; and whether it was a kill."""
    chance = random.Random(seed)
    torn = [(False, files.crash(chance=chance)) for _ in range(3)]
    return [(True, files.crash(keep_unsynced=True)), (False, files.crash()), *torn]
