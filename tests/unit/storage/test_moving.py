"""What a move to another log directory leaves in the target, for the starts that follow."""

import random
import struct
import uuid

from tailrace.model import TopicPartition
from tailrace.records.builder import records_of
from tailrace.storage import names
from tailrace.storage.checkpoints import read_offset_checkpoint
from tailrace.storage.config import log_config
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager
from tailrace.storage.moving import Move, begin_move
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import NOW, SetClock, batch

PARTITION = TopicPartition("flights", 0)
ID = uuid.UUID(int=1)
CONFIG = log_config({})


def start(files: MemoryFiles) -> LogManager:
    """Two log directories, as a start finds them."""
    logs = LogManager(
        [
            DirectoryLogs(
                files,
                open_log_directory(files, path, node_id=1, new_id=uuid.UUID(int=number)),
                clock=SetClock(),
                chance=random.Random(0),
            )
            for number, path in ((8, "one"), (9, "two"))
        ]
    )
    for partition in logs.find_partitions():
        logs.open(partition, topic_id=ID, config=CONFIG)
    return logs


def add(log: Log, *offsets: int) -> None:
    """Append a batch of one record at each of these offsets."""
    for offset in offsets:
        data = batch(b"value %d" % offset, timestamps=[NOW + offset])
        struct.pack_into(">q", data, 0, offset)
        struct.pack_into(">i", data, 12, 0)
        log.append_as_follower(memoryview(data), now_ms=NOW)


def offsets_of(log: Log | None) -> list[int]:
    """Of all records."""
    assert log is not None
    return [record.offset for each in log.batches(0) for record in records_of(each)]


def begin(logs: LogManager, log: Log) -> Move:
    """Begin to move a log to the other directory."""
    home = logs.home_of(log)
    (target,) = (each for each in logs.directories if each is not home)
    return begin_move(log, home=home, target=target, topic_id=ID, unique_id=f"{3:032x}")


def move(logs: LogManager, log: Log) -> Log:
    """Move a log to the other directory."""
    moved = begin(logs, log)
    moved.catch_up(lambda _: None, is_over=lambda: False)
    moved.swap(f"{4:032x}")
    logs.exchange(PARTITION, moved.future, moved.target)
    moved.hand_over()
    return moved.future


def recovery_points(files: MemoryFiles, path: str) -> dict[TopicPartition, int]:
    """As a directory has them on the device."""
    return read_offset_checkpoint(files, f"{path}/{names.RECOVERY_POINTS}")


def test_the_gaps_of_a_log_that_has_moved_are_served_after_a_crash() -> None:
    """They came with the copy, which was whole: none of them is a tail that was lost."""
    files = MemoryFiles()
    logs = start(files)
    log = logs.create(PARTITION, topic_id=ID, config=CONFIG)
    for part in ((0, 1, 2), (10, 11), (20,)):
        log.roll(part[0])
        add(log, *part)
    moved = move(logs, log)
    assert recovery_points(files.crash(), "two") == {PARTITION: 21}
    add(moved, 21)
    again = start(files.crash(keep_unsynced=True))
    assert offsets_of(again.get(PARTITION)) == [0, 1, 2, 10, 11, 20, 21]


def test_a_tail_that_is_lost_after_a_move_is_found() -> None:
    """The target's recovery points have the log, so a gap behind them is judged, not served."""
    files = MemoryFiles()
    logs = start(files)
    log = logs.create(PARTITION, topic_id=ID, config=CONFIG)
    add(log, 0, 1)
    moved = move(logs, log)
    add(moved, 2)
    moved.roll(5)
    add(moved, 5)
    disk = files.crash(keep_unsynced=True)
    again = start(disk)
    assert offsets_of(again.get(PARTITION)) == [0, 1, 2]
    assert names.set_aside_file_name(5, 0) in disk.list("two/flights-0")


def test_what_was_set_aside_moves_along() -> None:
    """A repair can still bring it back when the old folder has gone."""
    files = MemoryFiles()
    logs = start(files)
    log = logs.create(PARTITION, topic_id=ID, config=CONFIG)
    add(log, 0)
    kept = (names.set_aside_file_name(7, 0), f"quarantine-{0:020d}-70.bytes")
    for number, name in enumerate(kept):
        file = files.open(f"{log.folder.path}/{name}", create=True)
        file.write(0, b"kept %d" % number)
        file.close()
    moved = move(logs, log)
    logs.directories[0].removals.remove_due(NOW + 10**9)
    disk = files.crash()
    assert moved.folder.path == "two/flights-0"
    assert [disk.content(f"two/flights-0/{name}") for name in kept] == [b"kept 0", b"kept 1"]


def test_a_copy_that_is_given_up_leaves_no_recovery_point() -> None:
    """Else a folder that came there later would count as known since it was made."""
    files = MemoryFiles()
    logs = start(files)
    log = logs.create(PARTITION, topic_id=ID, config=CONFIG)
    add(log, 0)
    given_up = begin(logs, log)
    given_up.catch_up(lambda _: None, is_over=lambda: False)
    assert recovery_points(files, "two") == {PARTITION: 1}
    given_up.discard()
    given_up.target.checkpoint()
    assert recovery_points(files, "two") == {}


def test_a_folder_of_another_pattern_is_no_copy() -> None:
    """An operator's own folder that ends in -future is left alone."""
    assert names.parse_future_directory_name(f"flights-0.{5:032x}-future") == PARTITION
    assert names.parse_future_directory_name("flights-0.keep-future") is None
