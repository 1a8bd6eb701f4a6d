"""A log directory and the logs in it: identity, lock, start, stop, topics that come and go."""

import errno
import random
import uuid

import pytest

from tailrace.errors import DirectoryError, StorageError
from tailrace.model import Offset, TopicPartition
from tailrace.storage.directories import (
    LogDirectory,
    UnusableDirectoryError,
    open_log_directory,
)
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.shrink import truncate_to
from tailrace.testing import DiskFault, MemoryFiles
from tests.unit.storage.builders import (
    NOW,
    SetClock,
    append,
    append_values,
    batch,
    records,
    settings,
)

ID = uuid.UUID("12345678-1234-4234-8234-123456789abc")
ONE, TWO = TopicPartition("flights", 0), TopicPartition("planes", 0)
META = "data/meta.properties"


def opened(files: MemoryFiles, **options: object) -> LogDirectory:
    """The directory `data` of node 1."""
    named = {"node_id": 1, "new_id": ID, **options}
    return open_log_directory(files, "data", **named)  # type: ignore[arg-type]


def with_meta(text: str) -> MemoryFiles:
    """A disk with this meta.properties."""
    files = MemoryFiles()
    files.make_directory("data")
    files.open(META, create=True)
    files.overwrite(META, text.encode())
    return files


def logs_in(files: MemoryFiles, *, has_other_replicas: bool = False) -> DirectoryLogs:
    """The directory's logs, none of them open."""
    return DirectoryLogs.from_checkpoints(
        files,
        opened(files),
        clock=SetClock(),
        chance=random.Random(0),
        has_other_replicas=has_other_replicas,
    )


def started(files: MemoryFiles) -> DirectoryLogs:
    """A manager with every partition that is on the disk open."""
    logs = logs_in(files)
    logs.directory.take_mark()
    for partition in logs.find_partitions():
        logs.open(partition, topic_id=ID, config=settings())
    return logs


def add(logs: DirectoryLogs, partition: TopicPartition = ONE, count: int = 12) -> Log:
    """A new partition with some records."""
    log = logs.open(partition, topic_id=ID, config=settings())
    append_values(log, *[b"value"] * count)
    return log


def test_a_new_directory_gets_an_identity() -> None:
    """Version 1, as Kafka writes it; and the same one is found again."""
    files = MemoryFiles()
    directory = opened(files, cluster_id="demo")
    text = files.content(META).decode()
    assert text == (
        "#\nversion=1\nnode.id=1\ncluster.id=demo\ndirectory.id=EjRWeBI0QjSCNBI0Vniavw\n".replace(
            "EjRWeBI0QjSCNBI0Vniavw", directory.identity.directory_id
        )
    )
    directory.close()
    assert opened(files.crash(), cluster_id="demo").identity == directory.identity


def test_version_0_of_a_broker_with_zookeeper_gets_a_directory_id() -> None:
    """The file becomes one of version 1, with the ids of node and cluster that it had."""
    files = with_meta("#\n#Mon\nversion=0\nbroker.id=1\ncluster.id=abc\n")
    directory = opened(files)
    identity = directory.identity
    assert (identity.node_id, identity.cluster_id) == (1, "abc")
    assert files.content(META).decode() == (
        f"#\nversion=1\nnode.id=1\ncluster.id=abc\ndirectory.id={identity.directory_id}\n"
    )
    directory.close()
    again = opened(files.crash())
    assert (again.identity, again.is_new) == (identity, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version=1\nnode.id=2\ncluster.id=a\n", "belongs to node 2"),
        ("version=1\nnode.id=1\ncluster.id=b\n", "belongs to cluster b"),
        ("version=2\nnode.id=1\ncluster.id=a\n", "version 2"),
        ("version=1\nnode.id=1\n", "'cluster.id' is missing"),
        ("version=1\nnode.id=x\ncluster.id=a\n", "cannot be understood"),
        ("", "'broker.id' is missing"),
    ],
)
def test_a_directory_that_is_not_ours_is_refused_in_one_line(text: str, said: str) -> None:
    """It is of another node or cluster, newer, or unreadable; the lock is released."""
    files = with_meta(text)
    for _ in range(2):
        with pytest.raises(DirectoryError, match=said) as caught:
            opened(files, cluster_id="a")
        assert "\n" not in str(caught.value)
    assert files.content(META) == text.encode()


def test_a_directory_is_open_once() -> None:
    """The second open fails with the holder of the lock, and with advice."""
    files = MemoryFiles()
    first = opened(files)
    with pytest.raises(DirectoryError, match="in use by another process"):
        opened(files)
    first.close()
    opened(files)


@pytest.mark.parametrize(
    ("operation", "error", "said"),
    [
        ("make_directory", errno.EACCES, "permission denied"),
        ("write", errno.ENOSPC, "the disk is full"),
        ("open", errno.EROFS, "read-only"),
        ("sync", errno.EIO, "input/output error"),
    ],
)
def test_a_directory_that_cannot_be_used(operation: str, error: int, said: str) -> None:
    """The device's refusal in an operator's words."""
    files = MemoryFiles()
    files.faults.append(DiskFault(operation=operation, error=error))
    with pytest.raises(DirectoryError, match=said):
        opened(files)


def test_the_number_of_a_broker_in_the_mark_is_put_back() -> None:
    """A Kafka that finds another number takes the stop for a crash; a bad mark counts as none."""
    for text, expected in (('{"version":0,"brokerEpoch":12}', 12), ("[[", -1), ("[1]", -1)):
        files = MemoryFiles()
        opened(files).close()
        files.open("data/.kafka_cleanshutdown", create=True)
        files.overwrite("data/.kafka_cleanshutdown", text.encode())
        directory = opened(files)
        assert directory.was_clean
        directory.mark_clean()
        left = files.content("data/.kafka_cleanshutdown").decode()
        assert left == f'{{"version":0,"brokerEpoch":{expected}}}'


def test_the_clean_mark_is_used_once() -> None:
    """It is gone from the device before a log changes, and stays if the start ends before that."""
    files = MemoryFiles()
    directory = opened(files)
    assert not directory.was_clean
    directory.mark_clean()
    directory.close()
    assert files.content("data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'
    assert opened(files).was_clean
    disk = files.crash()
    directory = opened(disk)
    assert directory.was_clean
    directory.take_mark()
    assert not disk.crash().exists("data/.kafka_cleanshutdown")


def test_a_malformed_checkpoint_counts_as_empty_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Everything is then recovered, which is slow and right; and it is said."""
    files = MemoryFiles()
    logs = started(files)
    before = records(add(logs))
    logs.checkpoint()
    after = files.crash(keep_unsynced=True)
    after.overwrite("data/recovery-point-offset-checkpoint", b"garbage")
    log = started(after).get(ONE)
    assert log is not None
    assert (records(log), log.positions.recovery_point) == (before, 0)
    (line,) = [each for each in caplog.messages if each.startswith("checkpoint_unreadable")]
    assert "data/recovery-point-offset-checkpoint" in line
    assert "every segment is checked" in line


def test_an_orderly_stop_has_everything_on_the_device() -> None:
    """Records, checkpoints, mark: a lost machine loses nothing afterwards."""
    files = MemoryFiles()
    logs = started(files)
    before = records(add(logs))
    logs.close()
    after = files.crash()
    assert after.content("data/recovery-point-offset-checkpoint") == b"0\n1\nflights 0 12\n"
    log = started(after).get(ONE)
    assert log is not None
    assert records(log) == before
    assert log.positions.recovery_point == 12


def test_a_log_that_cannot_be_closed_does_not_stop_the_others() -> None:
    """They are on the device; there is no mark, so the next start recovers."""
    files = MemoryFiles()
    logs = started(files)
    add(logs, ONE)
    before = records(add(logs, TWO))
    files.faults.append(DiskFault(operation="sync", path_part="flights-0"))
    with pytest.raises(OSError, match="error"):
        logs.close()
    after = files.crash()
    assert not after.exists("data/.kafka_cleanshutdown")
    log = started(after).get(TWO)
    assert log is not None
    assert records(log) == before


def test_a_checkpoint_notes_what_is_on_the_device() -> None:
    """Closed segments; and log start offsets above the first segment's base."""
    files = MemoryFiles()
    logs = started(files)
    log = add(logs)
    log.positions.log_start = Offset(3)
    logs.checkpoint()
    active = log.segments.active.base_offset
    text = files.content("data/recovery-point-offset-checkpoint")
    assert text == f"0\n1\nflights 0 {active}\n".encode()
    assert files.content("data/log-start-offset-checkpoint") == b"0\n1\nflights 0 3\n"


def test_a_deleted_partition_does_not_come_back() -> None:
    """It stays deleted after a crash before the removal; the next start restarts the delay."""
    files = MemoryFiles()
    logs = started(files)
    add(logs)
    logs.take_out(ONE, "ab" * 16)()
    folder = f"data/flights-0.{'ab' * 16}-delete"
    assert logs.get(ONE) is None
    after = files.crash()
    assert after.exists(folder)
    again = started(after)
    assert again.find_partitions() == {}
    again.removals.remove_due(NOW + 59_999)
    assert after.exists(folder)
    again.removals.remove_due(NOW + 60_000)
    assert not after.exists(folder)
    logs.removals.remove_due(NOW + 59_999)
    assert files.exists(folder)
    logs.removals.remove_due(NOW + 60_000)
    assert not files.exists(folder)


def test_folders_of_others_stay(caplog: pytest.LogCaptureFixture) -> None:
    """Other folders stay, even with a suffix like that of deleted partitions; the log says so."""
    files = MemoryFiles()
    mine = f"data/x-0.{'ab' * 16}-delete"
    folders = ("to-delete", "lost+found", "flights-0.ab-future", "backup-2024.old-delete")
    for name in folders:
        files.make_directory(f"data/{name}")
    files.open(mine, create=True)
    logs = started(files)
    assert logs.find_partitions() == {}
    told = {line.split()[1] for line in caplog.messages if line.startswith("folder_ignored")}
    assert told == {"path=data/lost+found", "path=data/to-delete"}
    logs.removals.remove_due(NOW + 60_000)
    assert all(files.exists(f"data/{name}") for name in folders)
    assert files.exists(mine)


def test_a_new_partition_does_not_inherit_offsets_of_a_deleted_one() -> None:
    """Otherwise recovery would trust or remove the wrong parts of the new log."""
    files = MemoryFiles()
    logs = started(files)
    add(logs).positions.log_start = Offset(9)
    logs.checkpoint()
    logs.take_out(ONE, "ab" * 16)()
    log = add(logs, count=1)
    assert (log.start_offset, log.positions.recovery_point) == (0, 0)
    after = started(files.crash(keep_unsynced=True)).get(ONE)
    assert after is not None
    assert (after.start_offset, after.end_offset) == (0, 1)


def test_a_full_disk_does_not_leave_a_new_partition_the_cleaner_offset_of_a_deleted_one() -> None:
    """Compaction would step over its first records: an old value may come back with that."""
    files = MemoryFiles()
    logs = started(files)
    add(logs, count=20)
    logs.offsets.note_cleaned(ONE, 10)
    logs.checkpoint()
    logs.take_out(ONE, "ab" * 16)()
    name = "data/cleaner-offset-checkpoint"
    files.faults.append(DiskFault(operation="write", path_part=name, error=errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        logs.checkpoint()
    files.faults.clear()
    add(logs, count=20)
    assert files.content(name) == b"0\n0\n"
    after = started(files.crash(keep_unsynced=True))
    assert after.offsets.cleaner_offset(ONE) is None


@pytest.mark.parametrize("has_other_replicas", [False, True])
def test_records_after_a_cut_that_a_kill_has_ended_do_not_count_as_flushed(
    *, has_other_replicas: bool
) -> None:
    """The next start lowers the recovery point, so that the one after it reads their epochs."""

    def opened_again() -> tuple[DirectoryLogs, Log]:
        logs = logs_in(files, has_other_replicas=has_other_replicas)
        return logs, logs.open(ONE, topic_id=ID, config=settings())

    files = MemoryFiles()
    logs, log = opened_again()
    append_values(log, *[b"value"] * 30)
    log.sync()
    logs.checkpoint()
    # A follower's cut is followed by the checkpoints, and the broker is killed in between.
    truncate_to(log, 2)
    logs.abandon()
    files = files.crash(keep_unsynced=True)
    logs, log = opened_again()
    assert files.content("data/recovery-point-offset-checkpoint") == b"0\n1\nflights 0 2\n"
    for _ in range(12):
        append(log, batch(b"new"), epoch=1)
    assert log.segments.active.base_offset > 2
    logs.abandon()
    files = files.crash(keep_unsynced=True)
    _, log = opened_again()
    assert [tuple(each) for each in log.epochs.entries] == [(0, 0), (1, 2)]


def test_a_folder_of_another_topic_id_is_refused() -> None:
    """A recreated topic has another id, and none of the old records."""
    files = MemoryFiles()
    logs = started(files)
    add(logs)
    logs.abandon()
    again = logs_in(files.crash(keep_unsynced=True))
    with pytest.raises(DirectoryError, match="another topic"):
        again.open(ONE, topic_id=uuid.UUID(int=5), config=settings())


def test_high_watermarks_are_left_for_kafka() -> None:
    """They are written at each checkpoint and at the end; a deleted partition has none."""
    files = MemoryFiles()
    logs = started(files)
    add(logs, ONE, count=3)
    add(logs, TWO, count=2)
    logs.checkpoint()
    name = "data/replication-offset-checkpoint"
    assert files.content(name) == b"0\n2\nflights 0 3\nplanes 0 2\n"
    logs.take_out(ONE, "ab" * 16)()
    logs.close()
    assert files.content(name) == b"0\n1\nplanes 0 2\n"


def test_a_log_that_was_compacted_once_may_have_gaps_for_ever() -> None:
    """Its policy may change; what compaction has left is not taken for a tail that was lost."""
    files = MemoryFiles()
    logs = started(files)
    log = add(logs, count=0)
    for offset in (0, 50, 100):
        data = batch(b"value %d" % offset)
        data[:8] = offset.to_bytes(8, "big")
        data[12:16] = bytes(4)
        log.append_as_follower(memoryview(data), now_ms=NOW)
        log.roll(offset + 50)
    logs.offsets.note_cleaned(ONE, 100)
    log.sync()
    again = started(files.crash(keep_unsynced=True)).get(ONE)
    assert again is not None
    assert [record.offset for record in records(again)] == [0, 50, 100]


def test_a_segment_under_another_name_does_not_explain_a_gap() -> None:
    """A copy of a file under a far offset is set aside at the first start, not at the second."""
    files = MemoryFiles()
    add(started(files), count=20)
    files = files.crash(keep_unsynced=True)
    copied = bytearray(files.content(f"data/flights-0/{0:020d}.log"))
    second = len(batch(b"value"))
    copied[second : second + 8] = (5).to_bytes(8, "big")  # No checksum covers the base offset.
    path = f"data/flights-0/{1 << 40:020d}.log"
    files.open(path, create=True).close()
    files.overwrite(path, bytes(copied))
    for _ in range(2):
        log = started(files).get(ONE)
        assert log is not None
        assert log.end_offset == 20
        files = files.crash(keep_unsynced=True)
    assert not files.exists(path)


CHECKPOINTS = ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint")


def with_a_gap() -> MemoryFiles:
    """Return the disk of a killed broker with a log whose first segment lacks its last batch."""
    files = MemoryFiles()
    log = add(started(files), count=20)
    first = f"data/flights-0/{0:020d}.log"
    left = len(files.content(first)) - len(batch(b"value"))
    files = files.crash(keep_unsynced=True)
    files.overwrite(first, files.content(first)[:left])
    assert len(log.segments) > 1
    return files


def found_in(files: MemoryFiles) -> int:
    """Return the number of records that a start finds."""
    log = started(files).get(ONE)
    assert log is not None
    return len(records(log))


def test_a_directory_knows_a_log_from_the_moment_it_is_made() -> None:
    """A gap is a lost tail even before the first checkpoint, and the data after it is removed."""
    files = with_a_gap()
    assert files.content("data/recovery-point-offset-checkpoint") == b"0\n1\nflights 0 0\n"
    kept = sorted(name for name in files.list("data/flights-0") if name.endswith(".log"))
    assert found_in(files) < 20
    names = files.list("data/flights-0")
    assert [name for name in kept[1:] if f"set-aside-{name[:20]}-0.bytes" not in names] == []


@pytest.mark.parametrize("damage", [b"0\n7\n", None])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_gap_is_kept_where_a_checkpoint_does_not_tell(name: str, damage: bytes | None) -> None:
    """A compacted log of Kafka whose checkpoints are gone looks like this; all of it is served."""
    files = with_a_gap()
    path = f"data/{name}"
    if damage is None:
        files.overwrite("data/recovery-point-offset-checkpoint", b"0\n1\nplanes 0 0\n")
    else:
        files.open(path, create=True).close()
        files.overwrite(path, damage)
    assert found_in(files) == 19


def test_a_folder_that_a_failing_device_hides_is_not_removed() -> None:
    """It looks like a new one, and making that fails: the records in it stay."""

    class Hiding(MemoryFiles):
        """A disk on which a folder is not found."""

        def is_directory(self, path: str) -> bool:
            """Not that of the partition."""
            return not path.endswith("flights-0") and super().is_directory(path)

    files = Hiding()
    logs = started(files)
    add(logs).close()
    files.faults.append(DiskFault(operation="sync_directory", path_part="data"))
    with pytest.raises(StorageError):
        logs.open(ONE, topic_id=ID, config=settings())
    assert files.content(f"data/flights-0/{0:020d}.log")


def test_a_folder_of_a_deleted_topic_waits_like_any_other() -> None:
    """Its deletion was interrupted; it has its time from the start that finds it."""
    files = MemoryFiles()
    add(started(files)).close()
    files = files.crash(keep_unsynced=True)
    logs = logs_in(files)
    logs.discard(ONE, "ab" * 16)
    assert logs.find_partitions() == {}
    folder = f"data/flights-0.{'ab' * 16}-delete"
    logs.removals.remove_due(NOW + 59_999)
    assert files.exists(folder)
    logs.removals.remove_due(NOW + 60_000)
    assert not files.exists(folder)


def test_a_refusing_device_is_a_storage_error() -> None:
    """When a partition is made and when one is deleted; the message has a reason."""
    files = MemoryFiles()
    logs = started(files)
    files.faults.append(DiskFault(operation="make_directory", error=errno.ENOSPC))
    with pytest.raises(StorageError, match="the disk is full"):
        add(logs)
    files.faults.clear()
    add(logs)
    files.faults.append(DiskFault(operation="rename"))
    with pytest.raises(StorageError, match="error"):
        logs.take_out(ONE, "ab" * 16)()


def test_a_partition_deleted_while_a_checkpoint_runs_does_not_fail_it() -> None:
    """The checkpoint is on a thread; what it finds closed and renamed is not the device's fault."""
    files = MemoryFiles()
    logs = started(files)
    first, second = add(logs, ONE), add(logs, TWO)
    seen = iter(logs)
    logs.take_out(ONE, "ab" * 16)()
    assert next(seen) is first
    with pytest.raises(OSError, match="closed"):
        first.sync_rolled()
    logs.checkpoint()
    text = files.content("data/recovery-point-offset-checkpoint")
    assert text == f"0\n1\nplanes 0 {second.segments.active.base_offset}\n".encode()


def test_a_malformed_topic_id_is_written_anew_if_the_topic_is_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The id is found by the topic's name in the cluster's file, and the log tells of it."""
    files = MemoryFiles()
    logs = started(files)
    add(logs)
    logs.close()
    after = files.crash()
    metadata = "data/flights-0/partition.metadata"
    before = after.content(metadata)
    after.overwrite(metadata, b"garbage")
    assert logs_in(after).find_partitions({"flights": ID}) == {ONE: ID}
    assert after.content(metadata) == before
    assert any(each.startswith("partition_metadata_rebuilt") for each in caplog.messages)


def test_a_malformed_topic_id_is_not_guessed_where_there_are_other_replicas() -> None:
    """The records may be of a deleted topic of the name; the operator hears what to do."""
    files = MemoryFiles()
    logs = started(files)
    add(logs)
    logs.close()
    after = files.crash()
    metadata = "data/flights-0/partition.metadata"
    after.overwrite(metadata, b"garbage")
    with pytest.raises(UnusableDirectoryError, match=r"flights-0/partition\.metadata.* move the "):
        logs_in(after, has_other_replicas=True).find_partitions({"flights": ID})
    assert after.content(metadata).startswith(b"garbage")


def test_a_malformed_topic_id_of_an_unknown_topic_takes_the_directory_out() -> None:
    """It is not guessed at; the file is named."""
    files = MemoryFiles()
    logs = started(files)
    add(logs)
    logs.close()
    after = files.crash()
    after.overwrite("data/flights-0/partition.metadata", b"garbage")
    with pytest.raises(UnusableDirectoryError, match=r"partition\.metadata"):
        started(after)
