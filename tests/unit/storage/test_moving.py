"""Tests of a move to another log directory, and of the starts that follow it."""

import errno
import random
import struct
import uuid

import pytest

from tailrace.errors import DirectoryError, StorageError
from tailrace.model import LeaderEpoch, Offset, TopicPartition
from tailrace.records.builder import records_of
from tailrace.storage import names
from tailrace.storage.checkpoints import read_offset_checkpoint
from tailrace.storage.config import log_config
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager
from tailrace.storage.moving import MoveError, PartitionMove, begin_move, settle_futures
from tailrace.storage.shrink import raise_log_start, truncate_to
from tailrace.testing import DiskFault, MemoryFiles
from tests.unit.storage.builders import NOW, SetClock, append, batch, values

PARTITION = TopicPartition("flights", 0)
ID = uuid.UUID(int=1)
CONFIG = log_config({})


DIRECTORIES = ("one", "two")


def directory_logs(files: MemoryFiles, number: int, path: str) -> DirectoryLogs:
    """One log directory; a new one gets its id from the number."""
    return DirectoryLogs.from_checkpoints(
        files,
        open_log_directory(files, path, node_id=1, new_id=uuid.UUID(int=number + 8)),
        clock=SetClock(),
        chance=random.Random(0),
    )


def start(files: MemoryFiles, paths: tuple[str, ...] = DIRECTORIES) -> LogManager:
    """Log directories, as a start finds them."""
    logs = LogManager([directory_logs(files, number, path) for number, path in enumerate(paths)])
    settle_futures(logs)
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
    """Offsets of all records."""
    assert log is not None
    return [record.offset for each in log.batches(0) for record in records_of(each)]


def begin(logs: LogManager, log: Log, *, number: int = 3, path: str | None = None) -> PartitionMove:
    """Begin to move a log to the other directory, or to the one that is named."""
    home = logs.home_of(log)
    (target,) = (
        each for each in logs.directories if each is not home and path in (None, each.path)
    )
    return begin_move(log, home=home, target=target, topic_id=ID, unique_id=f"{number:032x}")


def futures(files: MemoryFiles, path: str) -> list[str]:
    """The names of copies in a directory."""
    return [name for name in files.list(path) if name.endswith("-future")]


def killed_in_the_swap(files: MemoryFiles, log: Log) -> MemoryFiles:
    """The disk when the process has died between the renames."""
    aside = names.delete_directory_name(PARTITION, f"{4:032x}")
    files.rename(log.folder.path, log.folder.path.replace("flights-0", aside))
    return files.crash(keep_unsynced=True)


def filled(logs: LogManager) -> Log:
    """A log with five records."""
    log = logs.create(PARTITION, topic_id=ID, config=CONFIG)
    add(log, *range(5))
    log.advance_high_watermark(5)
    return log


def move(logs: LogManager, log: Log) -> Log:
    """Move a log to the other directory."""
    moved = begin(logs, log)
    moved.catch_up()
    moved.swap(f"{4:032x}")
    logs.exchange(PARTITION, moved.future, moved.target)
    moved.hand_over()
    return moved.future


def test_a_log_that_is_cut_meanwhile_is_copied_again() -> None:
    """A follower's records may be others after it, at the same offsets and up to the same end."""
    logs = start(MemoryFiles())
    log = filled(logs)
    moved = begin(logs, log)
    moved.catch_up()
    assert moved.lag == 0
    truncate_to(log, 3)
    for value in (b"other", b"records"):
        append(log, batch(value), epoch=4)
    ready = [moved.is_ready]
    moved.catch_up()
    assert [*ready, moved.is_ready] == [False, True]
    assert values(moved.future) == values(log)
    assert moved.future.epochs.entries == log.epochs.entries


def recovery_points(files: MemoryFiles, path: str) -> dict[TopicPartition, int]:
    """Return the recovery points that a directory has on the device."""
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
    """Otherwise a later folder of that name would be trusted up to the old point."""
    files = MemoryFiles()
    logs = start(files)
    log = logs.create(PARTITION, topic_id=ID, config=CONFIG)
    add(log, 0)
    given_up = begin(logs, log)
    given_up.catch_up()
    assert recovery_points(files, "two") == {PARTITION: 1}
    given_up.discard()
    given_up.target.checkpoint()
    assert recovery_points(files, "two") == {}


def test_a_folder_of_another_pattern_is_no_copy() -> None:
    """An operator's own folder that ends in -future is left alone."""
    assert names.parse_future_directory_name(f"flights-0.{5:032x}-future") == PARTITION
    assert names.parse_future_directory_name("flights-0.keep-future") is None


@pytest.mark.parametrize(
    ("operation", "path_part"),
    [
        ("list", "one/flights-0"),
        ("sync_directory", f"two/flights-0.{3:032x}"),
        ("rename", f"two/flights-0.{3:032x}"),
        ("sync_directory", "two"),
    ],
)
def test_a_move_that_cannot_begin_leaves_no_folder(operation: str, path_part: str) -> None:
    """Otherwise a start could not tell which of two copies is complete."""
    files = MemoryFiles()
    logs = start(files)
    log = filled(logs)
    after = 2 if path_part == "two" else 0  # Behind those of the checkpoint.
    files.faults.append(DiskFault(operation=operation, path_part=path_part, after=after))
    with pytest.raises(MoveError) as raised:
        begin(logs, log)
    assert raised.value.directory.path == path_part.partition("/")[0]
    assert futures(files, "two") == []


def test_a_move_begins_with_removing_what_an_earlier_one_has_left() -> None:
    """After a crash between the renames, the copy that a start finds is the complete one."""
    files = MemoryFiles()
    logs = start(files)
    log = filled(logs)
    left = begin(logs, log, number=1)
    files.faults.append(DiskFault(operation="rename", path_part="-future"))
    left.discard()
    files.faults.clear()
    assert len(futures(files, "two")) == 1
    moved = begin(logs, log, number=2)
    moved.catch_up()
    assert futures(files.crash(), "two") == [f"flights-0.{2:032x}-future"]
    again = start(killed_in_the_swap(files, log))
    assert offsets_of(again.get(PARTITION)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("is_prepared", [False, True])
@pytest.mark.parametrize("whole", ["two", "three"])
def test_of_copies_in_several_directories_a_start_takes_the_whole_one(
    whole: str, *, is_prepared: bool
) -> None:
    """A directory that was away may come back with the beginning of one."""
    files = MemoryFiles()
    paths = ("one", "two", "three")
    logs = start(files, paths)
    log = logs.create(PARTITION, topic_id=ID, config=CONFIG)
    add(log, 0, 1)
    (other,) = {"two", "three"} - {whole}
    left = begin(logs, log, path=other)
    if is_prepared:
        left.catch_up()
    add(log, 2)
    begin(logs, log, path=whole).catch_up()
    disk = killed_in_the_swap(files, log)
    again = start(disk, paths)
    found = again.get(PARTITION)
    assert offsets_of(found) == [0, 1, 2]
    assert found is not None
    assert found.folder.path == f"{whole}/flights-0"
    assert [futures(disk, path) for path in paths] == [[], [], []]


def test_copies_that_a_start_cannot_tell_apart_are_an_error() -> None:
    """It takes none, and removes none."""
    files = MemoryFiles()
    logs = start(files)
    log = filled(logs)
    begin(logs, log).catch_up()
    files.make_directory(f"two/flights-0.{7:032x}-future")
    disk = killed_in_the_swap(files, log)
    with pytest.raises(DirectoryError, match="several copies of flights-0"):
        start(disk)
    assert len(futures(disk, "two")) == 2


def test_a_copy_of_another_topic_is_not_served() -> None:
    """The topic was deleted and made anew while a directory was away."""
    files = MemoryFiles()
    logs = start(files)
    log = filled(logs)
    begin(logs, log).catch_up()
    disk = killed_in_the_swap(files, log)
    logs = LogManager(
        [directory_logs(disk, number, path) for number, path in enumerate(DIRECTORIES)]
    )
    assert settle_futures(logs, {"flights": uuid.UUID(int=2)}) == {}
    assert logs.find_partitions() == {}
    assert settle_futures(logs, {"flights": ID}) == {}
    assert logs.find_partitions() == {PARTITION: ID}


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        (DiskFault(operation="list", path_part="one", error=errno.EMFILE), "one"),
        (DiskFault(operation="rename", path_part="-future", error=errno.ENOSPC), "two"),
    ],
)
def test_a_shortage_at_a_start_does_not_make_a_partition_anew(
    fault: DiskFault, failed: str
) -> None:
    """The directory that may have the log, or has the copy, is out of service then."""
    files = MemoryFiles()
    logs = start(files)
    log = filled(logs)
    begin(logs, log).catch_up()
    disk = killed_in_the_swap(files, log)
    disk.faults.append(fault)
    logs = start(disk)
    assert [each.path for each in logs.directories if each.failure is not None] == [failed]
    assert logs.get(PARTITION) is None
    assert len(futures(disk, "two")) == 1
    assert offsets_of(start(disk.crash(keep_unsynced=True)).get(PARTITION)) == [0, 1, 2, 3, 4]


def test_retention_may_take_a_segment_that_is_being_copied() -> None:
    """The remaining segments are copied; a segment that was closed is no failure of the device."""
    files = MemoryFiles()
    logs = start(files)
    log = logs.create(PARTITION, topic_id=ID, config=CONFIG)
    add(log, 0, 1)
    log.roll()
    add(log, 2, 3)
    log.advance_high_watermark(4)
    moved = begin(logs, log)

    def on_read(_: str, path: str) -> None:
        if path == "one/flights-0/00000000000000000000.log":
            files.on_read = None
            raise_log_start(log, 2)
            assert logs.delete_old_segments(log, NOW)

    files.on_read = on_read
    moved.catch_up()
    assert offsets_of(moved.future) == [2, 3]
    assert moved.future.start_offset == 2


@pytest.mark.parametrize(
    ("filename", "failed"),
    [
        ("two", "two"),
        ("two/flights-0", "two"),
        ("one", "one"),
        ("one/flights-0/00000000000000000000.log", "one"),
        ("twofold/flights-0", None),
        (None, None),
    ],
)
def test_an_error_is_of_the_directory_that_it_names(
    filename: str | None, failed: str | None
) -> None:
    """One without a name ends the move, and no directory's service."""
    files = MemoryFiles()
    logs = start(files)
    moved = begin(logs, filled(logs))

    def refuse(operation: str, _: str) -> None:
        if operation == "write":
            raise OSError(errno.EIO, "broken", *([] if filename is None else [filename]))

    files.on_call = refuse
    with pytest.raises(StorageError) as raised:
        moved.catch_up()
    found = raised.value.directory.path if isinstance(raised.value, MoveError) else None
    assert found == failed


def test_a_log_that_ends_behind_its_last_batch_moves_with_its_end() -> None:
    """The copy gets the same end, and keeps it after a restart; the next record goes there."""
    files = MemoryFiles()
    logs = start(files)
    log = logs.create(PARTITION, topic_id=ID, config=CONFIG)
    add(log, 0, 1, 2)
    log.roll(10)
    logs.close()
    logs = start(files)
    found = logs.get(PARTITION)
    assert found is not None
    assert found.end_offset == 10
    turns = iter(range(100))
    moved = begin(logs, found)
    moved.catch_up(is_over=lambda: next(turns) == 50)
    assert moved.is_ready
    moved.swap(f"{4:032x}")
    logs.exchange(PARTITION, moved.future, moved.target)
    moved.hand_over()
    assert moved.future.end_offset == 10
    again = start(files.crash()).get(PARTITION)
    assert again is not None
    assert again.end_offset == 10
    add(again, 10)
    assert offsets_of(again) == [0, 1, 2, 10]


@pytest.mark.parametrize("call", [("sync_directory", "one"), ("sync_directory", "two")])
def test_a_checkpoint_in_the_middle_of_a_swap_is_no_failure(call: tuple[str, str]) -> None:
    """Another thread does not find the folder, whose name has changed; nothing is lost."""
    files = MemoryFiles()
    logs = start(files)
    log = filled(logs)
    raise_log_start(log, 2)
    log.epochs.assign(LeaderEpoch(7), Offset(log.end_offset))
    moved = begin(logs, log)
    moved.catch_up()
    done: list[str] = []

    def on_call(operation: str, path: str) -> None:
        if (operation, path) == call:
            files.on_call = None
            moved.home.checkpoint_log_starts()
            moved.home.checkpoint()
            done.append(path)

    files.on_call = on_call
    moved.swap(f"{4:032x}")
    assert done == [call[1]]
    logs.exchange(PARTITION, moved.future, moved.target)
    moved.hand_over()
    assert offsets_of(start(files.crash()).get(PARTITION)) == [2, 3, 4]
