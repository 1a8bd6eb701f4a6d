"""The process dies, the machine loses power, or a device refuses, at every call of a move."""

import contextlib
import errno
import os
import random
import sys
import uuid
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from tailrace.model import TopicPartition
from tailrace.records.builder import records_of
from tailrace.replication.moves import PartitionMoves
from tailrace.replication.replicas import Replicas
from tailrace.storage.cleaner.worker import CleanerConfig, LogCleaner, Throttle
from tailrace.storage.config import log_config
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager, take_marks
from tailrace.storage.moving import begin_move, settle_futures
from tailrace.storage.names import set_aside_file_name
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import MemoryFiles, Outside, ProcessKilledError, virtual_runtime
from tests.crash.workloads import crash_all_ways
from tests.steps import Steps
from tests.unit.storage.builders import NOW, SetClock, append, batch

PARTITION = TopicPartition("flights", 0)
ID = uuid.UUID(int=1)
CONFIG = log_config(
    {"internal.segment.bytes": "500", "segment.index.bytes": "60", "index.interval.bytes": "80"}
)
START = 3
KEPT = set_aside_file_name(0, 77)
PARTS = 4


@dataclass(slots=True)
class Oracle:
    """Batches that were acknowledged, and those that must outlive the machine."""

    sent: list[bytes] = field(default_factory=list)
    acknowledged: int = 0
    on_device: int = 0
    start_min: int = 0
    is_set_aside: bool = False
    """Whether a recovery has kept something beside the log."""


class Broker:
    """Two log directories and their manager, as a start leaves them."""

    def __init__(self, files: MemoryFiles) -> None:
        self.directories = [
            DirectoryLogs.from_checkpoints(
                files,
                open_log_directory(files, path, node_id=1, new_id=uuid.UUID(int=number)),
                clock=SetClock(),
                chance=random.Random(0),
            )
            for number, path in ((8, "one"), (9, "two"))
        ]
        self.logs = LogManager(self.directories)
        take_marks(self.logs)
        self.again = settle_futures(self.logs)
        self.found = self.logs.find_partitions()
        for partition in self.found:
            self.logs.open(partition, topic_id=ID, config=CONFIG)


def send(oracle: Oracle, log: Log, count: int) -> None:
    """Append records, each of them acknowledged."""
    for _ in range(count):
        number = len(oracle.sent)
        oracle.sent.append(b"value %d" % number)
        data = batch(oracle.sent[-1], producer_id=7, producer_epoch=0, base_sequence=number)
        append(log, data)
        oracle.acknowledged += 1


def work(oracle: Oracle, files: MemoryFiles) -> None:
    """A log moves while it is appended to, goes on, and moves back."""
    broker = Broker(files)
    logs = broker.logs
    home, target = broker.directories
    log = logs.create(PARTITION, topic_id=ID, config=CONFIG)
    assert logs.home_of(log) is home
    send(oracle, log, 7)
    raise_log_start(log, START)
    home.checkpoint()
    with_bytes = files.open(f"{log.folder.path}/{KEPT}", create=True)
    with_bytes.write(0, b"kept")
    with_bytes.sync()
    with_bytes.close()
    files.sync_directory(log.folder.path)
    oracle.is_set_aside = True
    oracle.start_min, oracle.on_device = START, log.positions.recovery_point
    for turn in range(2):
        move = begin_move(log, home=home, target=target, topic_id=ID, unique_id=f"{turn:032x}")
        move.copy()
        send(oracle, log, 1)
        while move.copy():
            pass
        move.prepare()
        send(oracle, log, 1)
        assert not move.is_ready
        move.catch_up()
        move.swap(f"{turn + 16:032x}")
        logs.exchange(PARTITION, move.future, target)
        log.close()
        oracle.on_device = oracle.acknowledged
        home, target, log = target, home, move.future
        send(oracle, log, 2)
        logs.directories[turn].checkpoint()
    for directory in broker.directories:
        directory.removals.remove_due(NOW + 10**9)
    send(oracle, log, 1)


def check(oracle: Oracle, disk: MemoryFiles, *, is_kill: bool) -> None:
    """Start on what is there: one log, an unbroken prefix, that takes records."""
    broker = Broker(disk)
    log = broker.logs.get(PARTITION)
    if log is None:
        assert not oracle.acknowledged or (not is_kill and not oracle.on_device)
        return
    assert not oracle.is_set_aside or disk.content(f"{log.folder.path}/{KEPT}") == b"kept"
    batches = list(log.batches(log.start_offset))
    for each in batches:
        each.check()
    found = [record for each in batches for record in records_of(each)]
    found = [record for record in found if record.offset >= log.start_offset]
    assert [record.value for record in found] == oracle.sent[log.start_offset : log.end_offset]
    assert oracle.start_min <= log.start_offset <= START
    assert log.end_offset >= (oracle.acknowledged if is_kill else oracle.on_device)
    send(Oracle(sent=[b""] * log.end_offset), log, 1)
    broker.logs.close()
    for path in ("one", "two"):
        assert not [name for name in disk.list(path) if name.endswith("-future")]


def run(files: MemoryFiles) -> Oracle:
    """Work until it ends or the process is killed."""
    oracle = Oracle()
    with contextlib.suppress(ProcessKilledError):
        work(oracle, files)
    return oracle


@pytest.mark.parametrize("part", range(PARTS))
def test_a_crash_in_a_move_leaves_one_whole_log(part: int, steps: Steps) -> None:
    """The crash may come at any operation, with any part of the unsynced data on the device."""
    whole = MemoryFiles()
    assert run(whole).acknowledged == 7 + 2 * 4 + 1
    for stop_at in steps(range(part, len(whole.operations) + 1, PARTS)):
        files = MemoryFiles()
        files.stop_at, files.stop_partial_bytes = stop_at, 30
        oracle = run(files)
        for is_kill, disk in crash_all_ways(files, seed=stop_at):
            check(oracle, disk, is_kill=is_kill)


def test_a_crash_in_the_start_after_a_move_loses_nothing(steps: Steps) -> None:
    """A start that completes a move can itself be interrupted at any operation."""
    whole = MemoryFiles()
    run(whole)
    for stop_at in steps(range(0, len(whole.operations), 17)):
        files = MemoryFiles()
        files.stop_at = stop_at
        oracle = run(files)
        for number in range(0, 30, 3):
            second = files.crash(keep_unsynced=True)
            second.stop_at = number
            with contextlib.suppress(ProcessKilledError):
                Broker(second)
            for is_kill, disk in crash_all_ways(second, seed=number):
                check(oracle, disk, is_kill=is_kill)


OPENING = frozenset({"open", "open_existing", "sync_directory", "list"})
GROWING = frozenset({"open", "write", "resize", "rename", "make_directory"})


class Refusal(NamedTuple):
    """A way in which devices refuse, from one call on."""

    error: int
    operations: frozenset[str] | None
    """Calls that can fail in this way; None for all."""
    times: int
    """Number of calls that fail; if it is more than one, those on the same directory."""
    is_named: bool = True
    """Whether the error says which file it is about."""


REFUSALS = {
    "one input/output error": Refusal(errno.EIO, None, 1),
    "two input/output errors": Refusal(errno.EIO, None, 2),
    "one without a name": Refusal(errno.EIO, None, 1, is_named=False),
    "a dead device": Refusal(errno.EIO, None, 10**9),
    "descriptors short once": Refusal(errno.EMFILE, OPENING, 1),
    "descriptors short for long": Refusal(errno.EMFILE, OPENING, 10**9),
    "room short once": Refusal(errno.ENOSPC, GROWING, 1),
    "room short for long": Refusal(errno.ENOSPC, GROWING, 10**9),
}


class Device:
    """Refuses calls on a disk, from the one with the number `first` on."""

    def __init__(self, files: MemoryFiles, refusal: Refusal, first: int) -> None:
        self.calls = 0
        self._refusal = refusal
        self._first = first
        self._left = refusal.times
        self._directory: str | None = None
        files.on_call = files.on_read = self._call

    def _call(self, operation: str, path: str) -> None:
        allowed = self._refusal.operations
        if allowed is not None and operation not in allowed:
            return
        self.calls += 1
        directory = path.partition("/")[0]
        is_on_it = self._directory is None or directory == self._directory
        if self.calls <= self._first or not self._left or not is_on_it:
            return
        self._left -= 1
        self._directory = directory
        named = (path,) if self._refusal.is_named else ()
        raise OSError(self._refusal.error, os.strerror(self._refusal.error), *named)


async def move_refused(outside: Outside, oracle: Oracle, refusal: Refusal, first: int) -> int:
    """A partition moves and is written to while devices refuse; how many calls could have."""
    files = outside.files
    logs = Broker(files).logs
    replicas = Replicas(logs, outside.threads)
    logs.on_failure = replicas.directory_failed
    config = CleanerConfig(map_bytes_max=2**20, io_bytes_per_second=1e9)
    ids = iter(range(100, 200))
    moves = PartitionMoves(
        logs,
        replicas,
        LogCleaner(logs, config, outside.clock),
        threads=outside.threads,
        throttle=Throttle(outside.clock, 1e9),
        new_id=lambda: uuid.UUID(int=next(ids)),
    )
    log = logs.create(PARTITION, topic_id=ID, config=CONFIG)
    replicas.add(log)

    def produce() -> None:
        partition = replicas.get(PARTITION)
        assert partition is not None
        value = b"value %d" % oracle.acknowledged
        with contextlib.suppress(OSError):
            partition.append(memoryview(batch(value)), now_ms=NOW)
            oracle.sent.append(value)
            oracle.acknowledged += 1

    for _ in range(6):
        produce()
    log.sync()
    oracle.on_device = log.positions.recovery_point
    device = Device(files, refusal, first)
    moves.alter(PARTITION, "two", topic_id=ID)
    for _ in range(3):
        await outside.pass_time(0)
        produce()
    await outside.pass_time(60)
    for directory in logs.online:
        logs.guard(directory, lambda each=directory: each.removals.remove_due(NOW))  # type: ignore[misc]
    files.on_call = files.on_read = None
    produce()
    for directory in logs.online:
        directory.checkpoint()
        directory.removals.remove_due(NOW)
        for each in directory:
            oracle.on_device = max(oracle.on_device, each.positions.recovery_point)
    produce()
    await moves.stop()
    return device.calls


@pytest.mark.parametrize("name", REFUSALS)
def test_an_error_in_a_move_loses_nothing_and_needs_no_hand(name: str, steps: Steps) -> None:
    """The next start serves all that was acknowledged, whichever call fails in a directory."""
    with virtual_runtime() as outside:
        count = outside.run(move_refused(outside, Oracle(), REFUSALS[name], sys.maxsize))
    assert count > 20
    for first in steps(range(count)):
        oracle = Oracle()
        with virtual_runtime() as outside:
            outside.run(move_refused(outside, oracle, REFUSALS[name], first))
            disks = crash_all_ways(outside.files, seed=first)
        assert oracle.acknowledged >= 6
        for is_kill, disk in disks:
            broker = Broker(disk)
            log = broker.logs.get(PARTITION)
            assert log is not None, (first, is_kill)
            found = [record.value for each in log.batches(0) for record in records_of(each)]
            enough = oracle.acknowledged if is_kill else oracle.on_device
            assert found[:enough] == oracle.sent[:enough], (first, is_kill)
            broker.logs.close()
            for path in ("one", "two"):
                assert not [each for each in disk.list(path) if each.endswith("-future")]
