"""The process dies, or the machine loses power, at every file operation of a move."""

import contextlib
import random
import uuid
from dataclasses import dataclass, field

import pytest

from tailrace.model import TopicPartition
from tailrace.records.builder import records_of
from tailrace.storage.config import log_config
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager
from tailrace.storage.moving import begin_move, settle_futures
from tailrace.storage.names import set_aside_file_name
from tailrace.testing import MemoryFiles, ProcessKilledError
from tests.crash.workloads import crash_all_ways
from tests.unit.storage.builders import NOW, SetClock, append, batch

PARTITION = TopicPartition("flights", 0)
ID = uuid.UUID(int=1)
CONFIG = log_config(
    {"segment.bytes": "500", "segment.index.bytes": "60", "index.interval.bytes": "80"}
)
START = 3
KEPT = set_aside_file_name(0, 77)
PARTS = 4


@dataclass(slots=True)
class Oracle:
    """What was acknowledged, and what a lost machine must still have."""

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
            DirectoryLogs(
                files,
                open_log_directory(files, path, node_id=1, new_id=uuid.UUID(int=number)),
                clock=SetClock(),
                chance=random.Random(0),
            )
            for number, path in ((8, "one"), (9, "two"))
        ]
        self.logs = LogManager(self.directories)
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
    log.raise_log_start(START)
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
        move.catch_up(lambda _: None, is_over=lambda: False)
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
def test_a_crash_in_a_move_leaves_one_whole_log(part: int) -> None:
    """At any operation, with any part of what was not synced on the device."""
    whole = MemoryFiles()
    assert run(whole).acknowledged == 7 + 2 * 4 + 1
    for stop_at in range(part, len(whole.operations) + 1, PARTS):
        files = MemoryFiles()
        files.stop_at, files.stop_partial_bytes = stop_at, 30
        oracle = run(files)
        for is_kill, disk in crash_all_ways(files, seed=stop_at):
            check(oracle, disk, is_kill=is_kill)


def test_a_crash_in_the_start_after_a_move_loses_nothing() -> None:
    """What a start does with copies can itself be broken off anywhere."""
    whole = MemoryFiles()
    run(whole)
    for stop_at in range(0, len(whole.operations), 17):
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
