"""Logs over several directories: where partitions go, and what a failing device takes along."""

import errno
import os
import random
import uuid
from pathlib import Path

import pytest

from tailrace.errors import DirectoryError, OffsetOutOfRangeError, StorageError
from tailrace.model import TopicPartition
from tailrace.runtime.files import DiskFiles, Files
from tailrace.storage import names
from tailrace.storage.config import DAY_MS, LogConfig
from tailrace.storage.directories import (
    OpenedDirectories,
    UnusableDirectoryError,
    open_log_directories,
)
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.manager import (
    AssignedElsewhereError,
    LogManager,
    is_shortage,
    take_marks,
)
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import DiskFault, MemoryFiles
from tailrace.testing.files import MemoryFile
from tests.unit.storage.builders import NOW, SetClock, append, append_values, batch, settings

ID = uuid.UUID("12345678-1234-4234-8234-123456789abc")
ONE, TWO = TopicPartition("flights", 0), TopicPartition("planes", 0)
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEAN = ".kafka_cleanshutdown"


def opened(files: Files, *paths: str) -> OpenedDirectories:
    """The directories of node 1."""
    return open_log_directories(files, paths, node_id=1, chance=random.Random(str(paths)))


def manager(
    files: Files,
    *paths: str,
    clock: SetClock | None = None,
    has_other_replicas: bool = False,
) -> LogManager:
    """The logs of some directories, none of them open."""
    found = opened(files, *(paths or ("data",)))
    return LogManager(
        [
            DirectoryLogs.from_checkpoints(
                files,
                each,
                clock=clock or SetClock(),
                chance=random.Random(0),
                has_other_replicas=has_other_replicas,
            )
            for each in found.usable
        ],
        left_out=found.left_out,
    )


def create(logs: LogManager, partition: TopicPartition = ONE, **given: object) -> Log:
    """The log of a new partition."""
    return logs.create(partition, topic_id=ID, config=settings(**given))


def reopen(logs: LogManager, config: LogConfig | None = None) -> None:
    """Open every partition that is on the disk."""
    for partition in logs.find_partitions():
        logs.open(partition, topic_id=ID, config=config or settings())


def offsets_in(files: MemoryFiles, path: str) -> dict[str, int]:
    """An offset checkpoint: offset by `topic partition`."""
    lines = files.content(path).decode().splitlines()[2:]
    return {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines}


def test_a_new_log_has_a_folder_and_takes_records() -> None:
    """The folder is in the only directory there is."""
    files = MemoryFiles()
    log = create(manager(files))
    append_values(log, b"value")
    assert files.is_directory("data/flights-0")
    assert log.end_offset == 1


def test_get_of_an_unknown_partition_makes_nothing() -> None:
    """A get of an unknown partition returns None and makes no folder."""
    files = MemoryFiles()
    assert manager(files).get(ONE) is None
    assert not files.exists("data/flights-0")


def test_new_partitions_go_where_the_fewest_are() -> None:
    """After each of twenty the three directories differ by one at most."""
    logs = manager(MemoryFiles(), "a", "b", "c")
    for number in range(20):
        create(logs, TopicPartition("t", number))
        counts = [len(each) for each in logs.directories]
        assert sum(counts) == number + 1
        assert max(counts) - min(counts) <= 1


def test_announced_partitions_are_created_with_one_checkpoint() -> None:
    """It names all of them before there is a folder; what an older log of a name had is gone."""
    files = MemoryFiles()
    logs = manager(files)
    create(logs, TWO)
    logs.take_out(TWO, "0" * 32)()
    names = [TWO, *(TopicPartition("t", number) for number in range(5))]
    logs.online[0].offsets.announce(names)
    expected = {f"{topic} {number}": 0 for topic, number in names}
    assert offsets_in(files, f"data/{RECOVERY_POINTS}") == expected
    files.faults.append(DiskFault(operation="write", path_part=RECOVERY_POINTS))
    for each in names:
        create(logs, each)
    with pytest.raises(StorageError):
        create(logs)


def test_a_partition_is_opened_where_it_is() -> None:
    """The folder decides, whatever the counts are."""
    files = MemoryFiles()
    first = manager(files, "a", "b")
    places = {}
    for number in range(4):
        log = create(first, TopicPartition("t", number))
        append_values(log, b"%d" % number)
        places[log.partition] = log.folder.path
    first.close()
    again = manager(files.crash(), "a", "b")
    reopen(again)
    assert {log.partition: log.folder.path for log in again} == places
    assert all(log.end_offset == 1 for log in again)


@pytest.mark.parametrize("broken", [("a",), ("a", "b")])
def test_the_next_directory_is_tried(broken: tuple[str, ...]) -> None:
    """When a folder cannot be made; the partition is in one directory only."""
    files = MemoryFiles()
    logs = manager(files, "a", "b", "c")
    files.faults += [
        DiskFault(operation="make_directory", path_part=f"{name}/flights-0") for name in broken
    ]
    create(logs)
    found = [each.path for each in logs.directories if files.exists(f"{each.path}/flights-0")]
    assert len(found) == 1
    assert found[0] not in broken


def test_a_half_made_partition_is_taken_back_before_the_next_directory_is_tried() -> None:
    """Otherwise it would be in two places; if it cannot be removed, no other is tried."""
    files = MemoryFiles()
    logs = manager(files, "a", "b")
    files.faults.append(DiskFault(operation="write", path_part="a/flights-0"))
    create(logs)
    assert not files.exists("a/flights-0")
    assert files.exists("b/flights-0")
    files.faults.append(DiskFault(operation="remove_tree", path_part="a/planes-0"))
    files.faults.append(DiskFault(operation="write", path_part="a/planes-0"))
    with pytest.raises(StorageError):
        create(logs, TWO)
    assert not files.exists("b/planes-0")


def test_partitions_that_are_made_at_the_same_time_are_spread() -> None:
    """A directory counts those that it does not have yet."""
    files = MemoryFiles()
    logs = manager(files, "a", "b")

    def between(operation: str, path: str) -> None:
        if operation == "make_directory" and path == "a/flights-0":
            files.on_call = lambda _operation, _path: None
            create(logs, TWO)

    files.on_call = between
    create(logs)
    assert files.exists("a/flights-0")
    assert files.exists("b/planes-0")


def test_a_partition_that_was_refused_may_be_made_later_in_one_directory_only() -> None:
    """The one with the folder of the first attempt, also when that directory has failed since."""
    files = MemoryFiles()
    logs = manager(files, "a", "b")
    files.faults.append(DiskFault(operation="write", path_part="/flights-0"))
    files.faults.append(DiskFault(operation="remove_tree", path_part="a/flights-0"))
    with pytest.raises(StorageError):
        create(logs)
    create(logs, TWO)
    assert files.exists("a/planes-0")
    files.faults.clear()
    assert create(logs).folder.path == "a/flights-0"
    files.faults.append(DiskFault(operation="write", path_part="b/t-0"))
    files.faults.append(DiskFault(operation="remove_tree", path_part="b/t-0"))
    partition = TopicPartition("t", 0)
    with pytest.raises(StorageError):
        create(logs, partition)
    files.faults.clear()
    logs.fail(logs.directories[1], OSError("gone"))
    with pytest.raises(StorageError, match="gone"):
        create(logs, partition)
    assert not files.exists("a/t-0")


def test_no_other_directory_is_tried_when_a_device_hides_its_folders() -> None:
    """The partition may be there, and in two places the next start would refuse it."""
    files = MemoryFiles()
    logs = manager(files, "a", "b")
    files.faults.append(DiskFault(operation="is_directory", path_part="a/flights-0"))
    with pytest.raises(StorageError):
        create(logs)
    assert not files.exists("b/flights-0")


def test_a_partition_in_two_directories_is_refused() -> None:
    """Neither is taken for the true one."""
    files = MemoryFiles()
    logs = manager(files, "a", "b")
    for name in ("a", "b"):
        files.make_directory(f"{name}/flights-0")
    with pytest.raises(DirectoryError, match="flights-0 is in a and in b; move the older"):
        logs.find_partitions()


def test_new_directories_join_the_cluster_of_the_others() -> None:
    """Wherever the old one stands in the list; each has an id of its own."""
    files = MemoryFiles()
    first = opened(files, "old").usable[0]
    first.close()
    directories = opened(files, "new", "old", "newer").usable
    assert {each.identity.cluster_id for each in directories} == {first.identity.cluster_id}
    assert len({each.identity.directory_id for each in directories}) == 3


def test_directory_ids_are_read_where_there_are_some() -> None:
    """Version 0 may have none, and gets one."""
    files = MemoryFiles()
    texts = {
        "a": "version=1\nnode.id=1\ncluster.id=c\ndirectory.id=one\n",
        "b": "version=1\nnode.id=1\ncluster.id=c\ndirectory.id=two\n",
        "c": "version=0\nbroker.id=1\ncluster.id=c\n",
    }
    for name, text in texts.items():
        files.make_directory(name)
        files.open(f"{name}/meta.properties", create=True)
        files.overwrite(f"{name}/meta.properties", text.encode())
    directories = opened(files, *texts).usable
    assert [each.identity.directory_id for each in directories][:2] == ["one", "two"]
    assert [each.is_new for each in directories] == [False, False, True]
    assert len(directories[2].identity.directory_id) == 22


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ("version=1\nnode.id=1\ncluster.id=other\n", "belongs to cluster other"),
        ("version=1\nnode.id=2\ncluster.id=other\n", "belongs to node 2"),
    ],
)
def test_a_foreign_directory_among_several_stops_the_start(meta: str, said: str) -> None:
    """The others are released."""
    files = MemoryFiles()
    opened(files, "a").usable[0].close()
    files.make_directory("b")
    files.open("b/meta.properties", create=True)
    files.overwrite("b/meta.properties", meta.encode())
    for _ in range(2):
        with pytest.raises(DirectoryError, match=said):
            opened(files, "a", "b")


def test_a_copy_of_a_directory_is_refused() -> None:
    """Two with one id would both be taken for the same."""
    files = MemoryFiles()
    opened(files, "a").usable[0].close()
    files.make_directory("b")
    files.open("b/meta.properties", create=True)
    files.overwrite("b/meta.properties", files.content("a/meta.properties"))
    with pytest.raises(DirectoryError, match="b and a have the same directory id"):
        opened(files, "a", "b")


def test_a_directory_is_used_by_one_manager() -> None:
    """The second one is refused until the first is closed."""
    files = MemoryFiles()
    logs = manager(files, "a", "b")
    with pytest.raises(DirectoryError, match="in use by another process"):
        manager(files, "c", "b")
    logs.close()
    manager(files, "c", "b")


def test_the_lock_is_held_until_the_close() -> None:
    """Until the close, another attempt to take the lock is refused."""
    files = MemoryFiles()
    logs = manager(files)
    with pytest.raises(BlockingIOError):
        files.lock("data/.lock")
    logs.close()
    files.lock("data/.lock").release()


def test_a_directory_that_cannot_be_used_is_left_out() -> None:
    """The others take new partitions; an old one that is not found is not made anew."""
    files = MemoryFiles()
    files.faults.append(DiskFault(operation="make_directory", path_part="b", error=errno.EACCES))
    logs = manager(files, "a", "b")
    assert logs.left_out == {
        "b": "cannot use b as a log directory: permission denied; run as its owner or choose "
        "another directory"
    }
    append_values(create(logs), b"value")
    with pytest.raises(StorageError, match="a log directory that may have it is out of service"):
        logs.open(TWO, topic_id=ID, config=settings())
    assert not files.exists("a/planes-0")


def test_a_missing_folder_is_made_when_every_directory_is_there() -> None:
    """Then it was lost with its records, and nobody else has it."""
    logs = manager(MemoryFiles(), "a", "b")
    assert logs.open(TWO, topic_id=ID, config=settings()).end_offset == 0


def test_a_start_without_the_first_directory_is_refused() -> None:
    """It has the cluster's metadata log; nothing stays locked."""
    files = MemoryFiles()
    files.faults.append(DiskFault(operation="make_directory", path_part="a"))
    with pytest.raises(UnusableDirectoryError, match="has the cluster's metadata log"):
        opened(files, "a", "b")
    opened(files, "b")


def test_a_directory_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    """On a real disk the error is one line, and the other directory serves."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    bad.write_text("a file in its place")
    logs = manager(DiskFiles(), str(good), str(bad))
    append_values(create(logs), b"value")
    assert "the path is a file" in logs.left_out[str(bad)]
    logs.close()
    assert os.listdir(good / "flights-0")


def test_a_failed_directory_takes_only_its_own_partitions() -> None:
    """Each call on them is refused with the reason, and nothing is done on its disk any more."""
    files = MemoryFiles()
    logs = manager(files, "a", "b")
    failed: list[DirectoryLogs] = []
    logs.on_failure = failed.append
    here, there = create(logs, ONE), create(logs, TWO)
    append_values(here, b"value")
    append_values(there, b"value")
    home = logs.home_of(there)
    logs.fail(home, OSError(errno.EIO, "broken"))
    logs.fail(home, OSError(errno.EIO, "again"))
    assert failed == [home]
    assert home.failure == (
        "cannot use b as a log directory: the device failed (input/output error); check it, then "
        "start again"
    )
    before = len(files.operations)
    for call in (
        lambda: append(there, batch()),
        lambda: there.read(0, bytes_max=1, is_first_whole=True),
        there.commit,
    ):
        with pytest.raises(StorageError, match="input/output error"):
            call()
    logs.take_out(TWO, "ab" * 16)()
    assert len(files.operations) == before
    append_values(here, b"value")
    logs.close()
    assert files.exists(f"a/{CLEAN}")
    assert not files.exists(f"b/{CLEAN}")


def test_a_full_disk_is_told_once_and_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, and again only if the disk had room in between."""
    files = MemoryFiles()
    logs = manager(files)
    (directory,) = logs.directories
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refuse() -> None:
        raise error

    assert is_shortage(error)
    assert [logs.guard(directory, refuse) for _ in range(3)] == [False] * 3
    assert logs.online == [directory]
    assert len([line for line in caplog.messages if line.startswith("disk_full")]) == 1
    logs.has_room(directory)
    logs.guard(directory, refuse)
    assert len([line for line in caplog.messages if line.startswith("disk_full")]) == 2


def test_a_nearly_full_disk_has_room_only_between_refusals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last append before a checkpoint decides, so that each interval has two lines at most."""
    caplog.set_level("INFO")
    logs = manager(MemoryFiles())
    (directory,) = logs.directories
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for _ in range(3):
        logs.took_append(directory)
        logs.refused(directory, error)
        logs.has_room(directory)
    assert [line.split()[0] for line in caplog.messages] == ["disk_full"]
    assert logs.statistics().full_count == 1
    logs.took_append(directory)
    logs.has_room(directory)
    logs.has_room(directory)
    assert [line.split()[0] for line in caplog.messages] == ["disk_full", "disk_has_room"]
    assert logs.statistics().full_count == 0


def test_a_failed_flush_is_a_failure_even_of_a_full_disk() -> None:
    """The page cache no longer has the unwritten bytes, so a second flush would not write them."""
    files = MemoryFiles()
    logs = manager(files, "a", "b")
    log = create(logs)
    append_values(log, *[b"value"] * 12)
    files.faults.append(DiskFault(operation="sync", path_part="flights-0", error=errno.ENOSPC))
    home = logs.home_of(log)
    assert not logs.guard(home, home.checkpoint)
    assert home.failure is not None
    assert "a flush failed" in home.failure
    assert len(logs.online) == 1


def test_a_log_that_failed_before_does_not_fail_its_directory() -> None:
    """A checkpoint passes it by, and writes down the others."""
    files = MemoryFiles()
    logs = manager(files)
    bad, good = create(logs, ONE), create(logs, TWO)
    append_values(good, *[b"value"] * 12)
    bad.fail("it was damaged")
    (directory,) = logs.directories
    assert logs.guard(directory, directory.checkpoint)
    points = offsets_in(files, f"data/{RECOVERY_POINTS}")
    assert points["planes 0"] == good.segments.active.base_offset


def test_one_log_that_cannot_be_closed_costs_its_directory_the_mark() -> None:
    """The other directory is closed in order and has its mark."""
    files = MemoryFiles()
    logs = manager(files, "a", "b")
    for partition in (ONE, TWO):
        append_values(create(logs, partition), b"value")
    files.faults.append(DiskFault(operation="sync", path_part="a/flights-0"))
    with pytest.raises(OSError, match="error"):
        logs.close()
    after = files.crash()
    assert not after.exists(f"a/{CLEAN}")
    assert after.exists(f"b/{CLEAN}")
    assert after.content("b/planes-0/00000000000000000000.log")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_mark_that_cannot_be_taken_fails_its_directory(error: int) -> None:
    """A full disk as well: a mark that outlives changes would have the next start trust them."""
    files = MemoryFiles()
    manager(files, "a", "b").close()
    disk = files.crash()
    disk.faults.append(DiskFault(operation="remove", path_part="b/", error=error))
    again = manager(disk, "a", "b")
    take_marks(again)
    assert [each.path for each in again.online] == ["a"]
    assert not disk.exists(f"a/{CLEAN}")


def test_a_start_that_is_broken_off_leaves_no_mark() -> None:
    """There is no clean-shutdown mark, even if some logs were open already."""
    files = MemoryFiles()
    first = manager(files)
    for partition in (ONE, TWO):
        append_values(create(first, partition), b"value")
    first.close()
    disk = files.crash()
    again = manager(disk)
    assert disk.exists(f"data/{CLEAN}")
    take_marks(again)
    again.find_partitions()
    again.open(ONE, topic_id=ID, config=settings())
    again.abandon()
    assert not disk.exists(f"data/{CLEAN}")


@pytest.mark.parametrize("path", ["data", "data/", "./data", "deep/down/data"])
def test_recovery_points_are_written_for_every_log(path: str) -> None:
    """Recovery points are written in the log's own directory, however its path is written."""
    files = MemoryFiles()
    logs = manager(files, path)
    found = []
    for partition in (ONE, TWO):
        log = create(logs, partition)
        append_values(log, *[b"value"] * 50)
        log.sync()
        found.append(log)
    for directory in logs.directories:
        directory.checkpoint()
    assert [log.positions.recovery_point for log in found] == [50, 50]
    points = offsets_in(files, f"{path}/{RECOVERY_POINTS}")
    assert points == {"flights 0": 50, "planes 0": 50}


def test_a_checkpoint_has_the_logs_of_its_directory() -> None:
    """A checkpoint lists the logs of its own directory only."""
    files = MemoryFiles()
    logs = manager(files, "a", "b")
    partitions = [TopicPartition("t", number) for number in range(5)]
    for count, partition in enumerate(partitions):
        log = create(logs, partition)
        append_values(log, *[b"value"] * (count + 1))
        log.sync()
    for directory in logs.directories:
        directory.checkpoint()
    assert offsets_in(files, f"a/{RECOVERY_POINTS}") == {"t 0": 1, "t 2": 3, "t 4": 5}
    assert offsets_in(files, f"b/{RECOVERY_POINTS}") == {"t 1": 2, "t 3": 4}


def test_a_log_start_is_noted_while_its_segments_are_there() -> None:
    """Once they are gone the first segment says where the log starts."""
    files = MemoryFiles()
    logs = manager(files)
    log = create(logs)
    for number in range(50):
        append_values(log, b"value")
        if number and number % 10 == 0:
            log.roll()
    (directory,) = logs.directories
    raise_log_start(log, 31)
    directory.checkpoint_log_starts()
    assert offsets_in(files, f"data/{LOG_STARTS}") == {"flights 0": 31}
    logs.delete_old_segments(log, NOW)
    assert log.start_offset == 31
    assert log.segments.first.base_offset == 31
    directory.checkpoint_log_starts()
    assert offsets_in(files, f"data/{LOG_STARTS}") == {}


def test_old_segments_go_by_age() -> None:
    """All of them; a new one begins at the log end, and their files go after the delay."""
    files, clock = MemoryFiles(), SetClock()
    logs = manager(files, clock=clock)
    log = create(logs, retention_ms=600_000)
    for number in range(200):
        append(log, batch(b"%d" % number, timestamps=[NOW]))
    assert len(log.segments) > 1
    assert logs.delete_old_segments(log, NOW + 600_000) == ()
    clock.time_ms = NOW + 600_001
    logs.delete_old_segments(log, clock.time_ms)
    assert len(log.segments) == 1
    (directory,) = logs.directories
    directory.removals.remove_due(clock.time_ms + log.config.file_delete_delay_ms)
    kinds = sorted(name.partition(".")[2] for name in files.list("data/flights-0"))
    assert [kind for kind in kinds if kind in {"log", "index", "timeindex", "snapshot"}] == [
        "index", "log", "snapshot", "timeindex",
    ]  # fmt: skip
    assert not [name for name in files.list("data/flights-0") if name.endswith(".deleted")]
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0, bytes_max=1, is_first_whole=True)
    append_values(log, b"value")
    assert log.end_offset == 201


def test_old_segments_go_by_size() -> None:
    """Retention removes segments while the log stays above retention.bytes; here six are left."""
    files = MemoryFiles()
    logs = manager(files)
    size = len(batch(b"value"))
    log = create(logs, segment_bytes=10 * size, retention_bytes=5 * 10 * size + 10)
    for _ in range(200):
        append(log, batch(b"value"))
    assert len(log.segments) == 20
    logs.delete_old_segments(log, NOW)
    assert len(log.segments) == 6
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0, bytes_max=1, is_first_whole=True)
    append_values(log, b"value")


def test_a_compacted_log_is_left_to_the_cleaner() -> None:
    """Neither age nor size lets a segment of it go."""
    logs = manager(MemoryFiles())
    log = create(logs, cleanup_policy="compact", retention_ms=1, retention_bytes=1)
    for _ in range(50):
        append(log, batch(b"value"))
    count = len(log.segments)
    assert logs.delete_old_segments(log, NOW + 10_000_000_000) == ()
    assert len(log.segments) == count


def test_a_log_is_flushed_when_flush_ms_has_passed() -> None:
    """It is not flushed before; the flush moves the recovery point."""
    files, clock = MemoryFiles(), SetClock()
    logs = manager(files, clock=clock)
    log = create(logs, flush_ms=1000)
    append_values(log, b"value")
    (directory,) = logs.directories
    directory.sync_due(NOW + 999)
    assert log.positions.recovery_point == 0
    clock.time_ms = NOW + 1000
    directory.sync_due(clock.time_ms)
    assert (log.positions.recovery_point, log.last_sync_ms) == (1, NOW + 1000)
    assert files.crash().content("data/flights-0/00000000000000000000.log")


def test_a_deleted_log_is_one_folder_until_its_delay_has_passed() -> None:
    """All its files are in the renamed folder, the old name is free, and then all is gone."""
    files = MemoryFiles()
    logs = manager(files)
    append_values(create(logs, file_delete_delay_ms=1000), *[b"value"] * 12)
    before = files.list("data/flights-0")
    logs.take_out(ONE, "ab" * 16)()
    folder = f"data/flights-0.{'ab' * 16}-delete"
    assert files.list(folder) == before
    create(logs)
    (directory,) = logs.directories
    directory.removals.remove_due(NOW + 999)
    assert files.exists(folder)
    directory.removals.remove_due(NOW + 1000)
    assert not files.exists(folder)
    assert files.exists("data/flights-0")


def test_the_longest_topic_name_can_be_deleted() -> None:
    """The folder's new name fits, even for a topic name longer than Kafka allows."""
    files = MemoryFiles()
    logs = manager(files)
    for length in (249, 253):
        partition = TopicPartition("x" * length, 0)
        create(logs, partition)
        logs.take_out(partition, f"{length:032x}")()
    assert all(len(name) <= 255 for name in files.list("data"))


def test_a_manager_closes_with_a_deletion_delay_of_zero() -> None:
    """Deleted files wait for nothing, and the close does not wait for them."""
    files = MemoryFiles()
    logs = manager(files)
    append_values(create(logs, file_delete_delay_ms=0), b"value")
    logs.take_out(ONE, "ab" * 16)()
    (directory,) = logs.directories
    directory.removals.remove_due(NOW)
    logs.close()
    assert [name for name in files.list("data") if "flights" in name] == []


def test_a_folder_of_another_topic_id_is_set_aside() -> None:
    """The folder gets a -stray name and keeps its files; all other folders are found."""
    files = MemoryFiles()
    first = manager(files, "a", "b")
    for partition in (ONE, TWO, TopicPartition("flights", 1)):
        append_values(create(first, partition), b"value")
    first.close()
    inside = files.list("a/flights-0")
    again = manager(files, "a", "b")
    found = again.find_partitions({"flights": uuid.UUID(int=5), "planes": ID})
    assert found == {TWO: ID}
    for folder, name in (("a", "flights-0"), ("a", "flights-1")):
        assert not files.exists(f"{folder}/{name}")
        assert files.list(f"{folder}/{name}.{ID.hex}-stray") == inside
    assert create(again).end_offset == 0


def test_a_replica_that_comes_and_goes_is_set_aside_each_time(tmp_path: Path) -> None:
    """Each folder keeps its records, under a name that Kafka takes too."""
    path = str(tmp_path / "data")
    for number in range(3):
        logs = manager(DiskFiles(), path)
        append_values(create(logs), b"%d" % number)
        logs.close()
        again = manager(DiskFiles(), path)
        again.find_partitions()
        (home,) = again.directories
        home.set_aside(ONE, ID, reason="other brokers have it")
        again.close()
    aside = [name for name in DiskFiles().list(path) if name.endswith("-stray")]
    assert len(aside) == 3
    assert not any(map(names.stops_kafka, aside))
    stored = [(Path(path) / name / f"{0:020d}.log").read_bytes() for name in sorted(aside)]
    assert {data[-2:-1] for data in stored} == {b"0", b"1", b"2"}


def test_folders_of_the_known_topics_are_not_set_aside() -> None:
    """Folders of unknown topics stay too, so that the caller can adopt them."""
    files = MemoryFiles()
    first = manager(files, "a", "b")
    for partition in (ONE, TWO):
        create(first, partition)
    first.close()
    found = manager(files, "a", "b").find_partitions({"flights": ID})
    assert found == {ONE: ID, TWO: ID}


def test_folders_that_are_no_partitions_are_let_be() -> None:
    """The index cache of tiered storage, which Kafka keeps in a log directory, among them."""
    files = MemoryFiles()
    files.make_directory("data/remote-log-index-cache")
    logs = manager(files)
    assert logs.find_partitions() == {}
    logs.close()
    assert files.exists("data/remote-log-index-cache")


def test_a_directory_whose_checkpoints_cannot_be_read_is_unusable() -> None:
    """Unlike one in which they are malformed, which only costs time."""

    class Unreadable(MemoryFiles):
        """A disk that fails in reading checkpoints; `DiskFault` is for changes only."""

        def open(self, path: str, **options: bool) -> MemoryFile:
            """Open a file, unless it is the one that cannot be read."""
            if path.endswith(RECOVERY_POINTS):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return super().open(path, **options)

        def exists(self, path: str) -> bool:
            """The file is there."""
            return path.endswith(RECOVERY_POINTS) or super().exists(path)

    with pytest.raises(UnusableDirectoryError, match="input/output error"):
        manager(Unreadable())


def test_the_expiry_of_producers_passes_by_a_deleted_log() -> None:
    """Before, it takes the log in; after, only those that are left."""
    logs = manager(MemoryFiles())
    one, two = create(logs, ONE), create(logs, TWO)

    def send(log: Log, producer_id: int) -> None:
        append(log, batch(producer_id=producer_id, producer_epoch=0, base_sequence=0))

    def expire() -> None:
        for log in logs:
            log.producers.expire(NOW + DAY_MS)

    for log in (one, two):
        send(log, 1)
    expire()
    assert (len(one.producers), len(two.producers)) == (0, 0)
    for log in (one, two):
        send(log, 2)
    logs.take_out(ONE, ID.hex)()
    expire()
    assert (len(one.producers), len(two.producers)) == (1, 0)


def test_statistics_count_logs_and_directories() -> None:
    """The logs of a failed directory, and the directory itself, are not counted as in service."""
    files = MemoryFiles()
    logs = manager(files, "a", "b")
    for number in range(4):
        append_values(create(logs, TopicPartition("t", number)), b"value")
    before = logs.statistics()
    logs.fail(logs.directories[0], OSError("gone"))
    after = logs.statistics()
    assert (before.log_count, before.directory_count, before.failed_count) == (4, 2, 0)
    assert (after.log_count, after.directory_count, after.failed_count) == (2, 1, 1)
    assert before.log_bytes == 2 * after.log_bytes > 0
    assert after.full_count == 0


def test_a_new_log_goes_to_the_directory_that_was_assigned() -> None:
    """Also where others have fewer logs; without an id of theirs the fewest logs decide."""
    logs = manager(MemoryFiles(), "a", "b")
    first, second = logs.directories
    for number in range(3):
        name = TopicPartition("t", number)
        logs.create(
            name, topic_id=ID, config=settings(), directory_id=second.directory.directory_id
        )
    assert (len(first), len(second)) == (0, 3)
    logs.create(ONE, topic_id=ID, config=settings(), directory_id=uuid.UUID(int=12345))
    assert len(first) == 1


def test_cordoned_directories_get_no_new_logs() -> None:
    """Unless one was assigned, or all of them are cordoned: the first one in service gets it."""
    logs = manager(MemoryFiles(), "a", "b", "c")
    first, second, third = logs.directories
    assert logs.cordon(["b"])
    assert not logs.cordon(["b"])
    for number in range(4):
        create(logs, TopicPartition("t", number))
    assert [len(each) for each in logs.directories] == [2, 0, 2]
    logs.create(ONE, topic_id=ID, config=settings(), directory_id=second.directory.directory_id)
    logs.fail(first, OSError("gone"))
    logs.cordon(["a", "b", "c"])
    create(logs, TWO)
    assert (len(second), len(third)) == (2, 2)
    logs.cordon([])
    create(logs, TopicPartition("t", 4))
    create(logs, TopicPartition("t", 5))
    assert (len(second), len(third)) == (3, 3)


def test_a_directory_out_of_service_keeps_the_logs_that_are_assigned_to_it() -> None:
    """No empty log is made elsewhere, which would be served instead of what it may have."""
    logs = manager(MemoryFiles(), "a", "b")
    first, second = logs.directories
    logs.fail(second, OSError("gone"))
    assigned = second.directory.directory_id
    with pytest.raises(AssignedElsewhereError, match=str(assigned)):
        logs.create(ONE, topic_id=ID, config=settings(), directory_id=assigned)
    assert len(first) == 0
    logs.create(ONE, topic_id=ID, config=settings(), directory_id=first.directory.directory_id)
    logs.create(TWO, topic_id=ID, config=settings())
    assert len(first) == 2
