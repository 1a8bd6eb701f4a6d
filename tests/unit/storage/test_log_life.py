"""A log through its days: it rolls by time, gets new settings, is flushed, closed, deleted."""

import errno
import os
import random
import uuid
from collections.abc import Callable

import pytest

from tailrace.errors import StorageError
from tailrace.model import Offset, Position, TopicPartition
from tailrace.records.batch import read_batches
from tailrace.records.builder import records_of
from tailrace.storage import names
from tailrace.storage.config import DAY_MS, LogConfig
from tailrace.storage.directories import open_log_directory
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.folder import Removals
from tailrace.storage.log import Log, is_flush_due
from tailrace.storage.offset_lookup import find_offset
from tailrace.storage.segment import Segment, SegmentAppend, open_segment
from tailrace.storage.shrink import raise_log_start, replace_segments, truncate_to
from tailrace.testing import DiskFault, MemoryFiles
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    SetClock,
    append,
    append_values,
    bases,
    batch,
    filled,
    open_at,
    path,
    settings,
    values,
)

HOUR_MS = 3_600_000
TOPIC_ID = uuid.UUID(int=5)


def append_at(log: Log, now_ms: int, *, timestamp: int = -1) -> int:
    """One record, by a clock; returns how many segments there are then."""
    append(log, batch(timestamps=[timestamp]), now_ms=now_ms)
    return len(log.segments)


def hourly(**given: object) -> LogConfig:
    """Segments of an hour, otherwise large."""
    return settings(
        segment_ms=HOUR_MS,
        segment_bytes=10**6,
        message_timestamp_after_max_ms=DAY_MS,
        **given,
    )


def test_time_rolls_by_the_clock_without_timestamps_and_by_timestamps_with_them() -> None:
    """Never to leave an empty segment, and by what the first record of the segment has."""
    clock = SetClock()
    log = open_at(MemoryFiles(), config=hourly(), clock=clock)
    step = HOUR_MS + 1

    def append_after(waited_ms: int, *, timestamp: int = -1) -> int:
        clock.time_ms += waited_ms
        return append_at(log, clock.time_ms, timestamp=timestamp)

    assert append_after(step) == 1
    assert append_after(0) == 2
    assert append_after(step) == 3
    assert append_after(step) == 4
    timestamp = clock.time_ms + step
    assert append_after(0, timestamp=timestamp) == 4
    assert append_after(step, timestamp=timestamp) == 5
    assert append_after(step, timestamp=timestamp) == 5
    assert append_after(0, timestamp=clock.time_ms) == 6
    clock.time_ms += step
    log.append_as_follower(memoryview(b""), now_ms=clock.time_ms)
    assert len(log.segments) == 6


def test_jitter_brings_the_roll_forward() -> None:
    """The segment rolls at the drawn time, never earlier than the largest jitter allows."""
    jitter_max_ms = 20 * 60_000
    config = hourly(segment_jitter_ms=jitter_max_ms)
    jitter_ms = random.Random(0).randrange(jitter_max_ms)
    log = open_at(MemoryFiles(), config=config)
    assert append_at(log, NOW, timestamp=NOW) == 1
    assert append_at(log, NOW, timestamp=NOW + HOUR_MS - jitter_max_ms) == 1
    assert append_at(log, NOW, timestamp=NOW + HOUR_MS - jitter_ms) == 1
    assert append_at(log, NOW, timestamp=NOW + HOUR_MS - jitter_ms + 1) == 2


def test_a_log_reads_back_what_was_written_over_many_segments() -> None:
    """Whole records are read from each offset on; the flush callback is called for each roll."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=100))
    rolled: list[int] = []
    log.on_rolled = lambda log: rolled.append(log.segments.active.base_offset)
    for number in range(100):
        append(log, batch(b"%d" % number, timestamps=[NOW + number], key=b"k%d" % number))
    assert len(log.segments) == 100
    assert rolled == list(range(1, 100))
    assert log.positions.recovery_point == 0
    for offset in range(100):
        view = log.read(offset, bytes_max=10**6, is_first_whole=True).read()
        [[first]] = [list(records_of(each)) for _, each in read_batches(view)]
        assert (first.offset, first.timestamp) == (offset, NOW + offset)
        assert (first.key, first.value) == (b"k%d" % offset, b"%d" % offset)
    assert not log.read(100, bytes_max=10**6, is_first_whole=True).read()


def test_an_append_is_read_back_and_not_yet_flushed() -> None:
    """The recovery point waits for the device."""
    log = open_at(MemoryFiles())
    assert not log.read(0, bytes_max=1, is_first_whole=True).read()
    append(log, batch(b"ABC", b"DE"))
    assert (log.end_offset, log.positions.recovery_point) == (2, 0)
    assert values(log) == [b"ABC", b"DE"]


def test_a_flush_notes_how_far_and_when() -> None:
    """A flush notes its offset and time, so that `flush.messages` and `flush.ms` are kept."""
    clock = SetClock()
    log = open_at(MemoryFiles(), clock=clock, config=settings(flush_messages=2))
    assert (log.positions.recovery_point, log.last_sync_ms) == (0, NOW)
    due = []
    for _ in range(2):
        append_values(log, b"a")
        due.append(is_flush_due(log))
    assert due == [False, True]
    clock.time_ms += 1
    log.roll()
    log.sync()
    assert (log.positions.recovery_point, log.last_sync_ms) == (2, NOW + 1)
    assert not is_flush_due(log)


def test_a_flush_of_an_empty_active_segment_has_its_files_on_the_device() -> None:
    """Log and indexes, beside those of the closed one."""
    files = MemoryFiles()
    log = open_at(files)
    append_values(log, b"test")
    log.roll()
    assert log.segments.active.size == 0
    log.sync()
    found = files.crash().list(FOLDER)
    assert len([name for name in found if name.endswith(".log")]) == 2
    assert len([name for name in found if name.endswith(".index")]) == 2


def flush_all(log: Log) -> None:
    """By `flush.messages` or `flush.ms`."""
    log.sync()


def flush_records(log: Log) -> None:
    """Under `tailrace.durability=sync`."""
    log.commit()


def flush_rolled(log: Log) -> None:
    """By the checkpoint."""
    log.sync_rolled()


@pytest.mark.parametrize("flush", [flush_all, flush_records, flush_rolled])
def test_a_segment_that_was_flushed_before_it_was_finished_is_flushed_again(
    flush: Callable[[Log], None],
) -> None:
    """A segment that a roll has trimmed is complete on the device after the next flush."""
    files = MemoryFiles()
    log = open_at(files, config=settings(preallocate="true"))
    files.sync_directory(FOLDER)
    append_values(log, b"one", b"two")
    log.sync()
    log.roll()
    append_values(log, b"three")
    flush(log)
    finished = [".log"] if flush is flush_records else [".log", ".index", ".timeindex"]
    crashed = files.crash()
    for suffix in finished:
        assert crashed.content(path(0, suffix)) == files.content(path(0, suffix))
    assert log.positions.recovery_point == (3 if flush is flush_all else 2)


@pytest.mark.parametrize("flush", [flush_all, flush_records])
def test_a_closed_segment_that_is_on_the_device_is_not_flushed_again(
    flush: Callable[[Log], None],
) -> None:
    """Each flush of it would cost the producers that wait as much as that of their records."""
    files = MemoryFiles()
    log = filled(files, 30)
    log.sync_rolled()
    assert len(log.segments) > 2
    assert log.positions.recovery_point == log.segments.active.base_offset
    files.operations.clear()
    flush(log)
    flushed = {name for operation, name in files.operations if operation == "sync"}
    assert {name for name in flushed if name.endswith(".log")} == {log.segments.active.log.path}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_flush_without_room_for_index_entries_is_tried_again(error: int) -> None:
    """The entries wait in memory: the records can be read, and a later flush has all of them."""
    files = MemoryFiles()
    config = settings(segment_bytes=100_000, segment_index_bytes=10_000)
    log = filled(files, 12, config=config)
    for path_part in (".index", ".timeindex"):
        files.faults.append(DiskFault(operation="write", path_part=path_part, error=error))
        with pytest.raises(OSError, match=os.strerror(error)):
            log.sync()
        files.faults.clear()
        append_values(log, b"later")
    assert log.positions.recovery_point == 0
    log.sync()
    assert log.positions.recovery_point == 14
    survived = open_at(files.crash(), config=config, checkpoints=(14, 0))
    assert values(survived) == values(log)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize(
    ("flush", "operation", "path_part"),
    [
        (flush_all, "sync_directory", ""),
        (flush_all, "open_existing", ".snapshot"),
        (flush_all, "open_existing", ".index"),
        (flush_records, "sync_directory", ""),
        (flush_rolled, "sync_directory", ""),
        (flush_rolled, "open_existing", ".snapshot"),
    ],
)
def test_a_flush_for_want_of_descriptors_is_tried_again(
    flush: Callable[[Log], None], operation: str, path_part: str, error: int
) -> None:
    """Nothing is lost when a file cannot be opened, and the log goes on."""
    files = MemoryFiles()
    log = filled(files, 12)
    for segment in log.segments:
        segment.rest()
    files.faults.append(DiskFault(operation=operation, path_part=path_part, error=error))
    with pytest.raises(OSError, match=r"(?i)too many open files"):
        flush(log)
    files.faults.clear()
    append_values(log, b"later")
    flush(log)
    if flush is flush_rolled:
        assert log.positions.recovery_point == bases(log)[-1]
    else:
        assert values(open_at(files.crash())) == values(log)


class InterruptedFiles(MemoryFiles):
    """A disk on which something else happens while a folder is being flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] = lambda: None

    def sync_directory(self, path: str) -> None:
        """Have it happen, then put the names on the device."""
        self.meanwhile()
        super().sync_directory(path)


@pytest.mark.parametrize("flush", [flush_all, flush_records, flush_rolled])
def test_a_flush_during_which_the_log_is_closed_is_no_success(flush: Callable[[Log], None]) -> None:
    """Files that were closed before they were flushed do not count as flushed."""
    files = InterruptedFiles()
    log = filled(files, 8)
    point = log.positions.recovery_point
    files.meanwhile = lambda: log.fail("its directory has failed")
    with pytest.raises(StorageError, match="its directory has failed"):
        flush(log)
    assert log.positions.recovery_point == point


@pytest.mark.parametrize("flush", [flush_all, flush_rolled])
def test_a_flush_during_which_the_log_is_cut_says_nothing_of_new_records(
    flush: Callable[[Log], None],
) -> None:
    """They have the offsets of what was flushed, and are not on the device themselves."""
    files = InterruptedFiles()
    log = filled(files, 12)

    def cut() -> None:
        files.meanwhile = lambda: None
        truncate_to(log, 1)
        append_values(log, *[b"anew"] * 20)

    files.meanwhile = cut
    flush(log)
    assert log.positions.recovery_point <= 1


def test_each_roll_gives_the_segment_that_takes_the_next_record() -> None:
    """A new segment starts at the log end, also if a lower offset is asked for."""
    log = open_at(MemoryFiles())
    assert (log.roll().base_offset, len(log.segments), log.end_offset) == (0, 1, 0)
    append_values(log, b"v1")
    assert (log.roll().base_offset, len(log.segments), log.end_offset) == (1, 2, 1)
    append_values(log, b"v2")
    assert (log.roll(1).base_offset, len(log.segments), log.end_offset) == (2, 3, 2)


def test_a_roll_below_the_active_segment_is_a_fault_of_ours() -> None:
    """No file is made that would overlap."""
    files = MemoryFiles()
    log = filled(files, 3)
    log.roll()
    log.positions.log_end = Offset(1)
    before = files.list(FOLDER)
    with pytest.raises(AssertionError):
        log.roll()
    assert files.list(FOLDER) == before


def test_a_roll_takes_over_a_file_that_is_there() -> None:
    """Left of an attempt that failed, with indexes and all; it is emptied."""
    files = MemoryFiles()
    log = filled(files, 2)
    for suffix in (".log", ".index", ".timeindex"):
        files.open(path(2, suffix), create=True).write(0, b"left over")
    log.roll()
    append_values(log, b"v1", b"v2")
    assert (bases(log), values(log)) == ([0, 2], [b"value 0", b"value 1", b"v1", b"v2"])


def test_new_settings_count_from_the_next_call_on() -> None:
    """New settings replace the old ones as a whole, from the next call on."""
    log = filled(MemoryFiles(), 2)
    changed = settings(segment_bytes=100)
    log.config = changed
    assert log.config is changed
    append_values(log, b"next")
    assert bases(log) == [0, 2]


def test_a_closed_log_takes_no_calls() -> None:
    """A closed log can be closed again, and slices that were handed out can still be read."""
    log = filled(MemoryFiles(), 2)
    held = log.read(0, bytes_max=10**6, is_first_whole=True)
    before = bytes(held.read())
    log.close()
    log.close()
    for call in (
        log.roll,
        log.sync,
        log.commit,
        log.finish,
        lambda: append_values(log, b"late"),
        lambda: log.read(0, bytes_max=1, is_first_whole=True),
        lambda: find_offset(log, 0),
        lambda: raise_log_start(log, 1),
    ):
        with pytest.raises(StorageError, match="closed"):
            call()
    assert held.read() == before
    assert log.end_offset == 2


def test_a_new_segment_takes_the_place_of_old_ones() -> None:
    """They leave service when it is there, and are deleted later."""
    files = MemoryFiles()
    log = filled(files, 24)
    old = list(log.segments)[:2]
    whole = [bytes(each.log.read(Position(0), each.size)) for each in old]
    end = old[1].next_offset()
    config = settings(segment_bytes=10**6)
    new = make_swap(log, b"".join(whole), last_offset=end - 1, config=config)
    before = values(log)
    replace_segments(log, [new], old)
    assert bases(log)[:2] == [0, end]
    assert values(log) == before
    assert files.exists(path(0, ".log"))
    assert files.exists(path(old[1].base_offset, ".log.deleted"))
    log.folder.removals.remove_due(NOW + DAY_MS)
    assert not [name for name in files.list(FOLDER) if not name.endswith(NAMES_OF_SERVICE)]
    assert values(open_at(files.crash(keep_unsynced=True), config=config)) == before


NAMES_OF_SERVICE = (".log", ".index", ".timeindex", ".snapshot", "checkpoint")


def make_swap(log: Log, data: bytes, *, last_offset: int, config: LogConfig) -> Segment:
    """A segment at the log's first offset, as compaction leaves it."""
    segment = open_segment(
        log.folder.files,
        FOLDER,
        base_offset=Offset(0),
        config=config,
        create=True,
        suffix=".cleaned",
    )
    segment.append(
        SegmentAppend(
            data=data,
            last_offset=Offset(last_offset),
            max_timestamp=NOW + last_offset,
            max_timestamp_offset=Offset(last_offset),
        )
    )
    segment.finish()
    segment.sync()
    segment.change_suffix(".cleaned", ".swap")
    log.folder.files.sync_directory(FOLDER)
    return segment


def test_files_are_deleted_when_their_time_has_come() -> None:
    """They are not deleted before; a file that is missing already is no error."""
    files = MemoryFiles()
    files.make_directory("d")
    for name in ("a", "b", "c"):
        files.open(f"d/{name}", create=True)
    removals = Removals(files)
    removals.add_files(["d/a", "d/b"], due_ms=NOW)
    removals.add_files(["d/c"], due_ms=NOW + 1)
    files.remove("d/a")
    assert removals.remove_due(NOW - 1) == 0
    assert files.list("d") == ["b", "c"]
    removals.remove_due(NOW)
    assert (files.list("d"), len(removals)) == (["c"], 1)


def test_a_file_that_cannot_be_deleted_does_not_keep_the_others() -> None:
    """All are tried, then the first failure is raised; a folder goes with its content."""
    files = MemoryFiles()
    files.make_directory("d/e-delete")
    for name in ("d/a", "d/b", "d/e-delete/f"):
        files.open(name, create=True)
    removals = Removals(files)
    removals.add_files(["d/a", "d/b"], due_ms=NOW)
    removals.add_folder("d/e-delete", due_ms=NOW)
    files.faults.append(DiskFault(operation="remove", path_part="d/a"))
    with pytest.raises(OSError, match="error"):
        removals.remove_due(NOW)
    assert (files.list("d"), len(removals)) == (["a"], 0)


def test_files_that_leave_service_are_renamed_in_order() -> None:
    """After a failure those before it wait to be deleted."""
    files = MemoryFiles()
    log = filled(files, 1)
    paths = log.segments.first.paths()
    files.faults.append(DiskFault(operation="rename", path_part=".index"))
    with pytest.raises(OSError, match="error"):
        log.folder.retire(paths, delay_ms=0)
    assert files.exists(paths[0] + ".deleted")
    assert files.exists(paths[1])
    assert len(log.folder.removals) == 1
    assert log.folder.removals.remove_due(NOW) == 1
    assert not files.exists(paths[0] + ".deleted")


def test_every_file_of_a_segment_names_its_offset() -> None:
    """The offset is parsed from the names of segment files, and from no other names."""
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    for suffix in suffixes:
        name = names.segment_file_name(23423423, suffix)
        assert names.parse_segment_file_name(name) == (23423423, suffix)
    for name in ("leader-epoch-checkpoint", "partition.metadata", "23423423.log"):
        assert names.parse_segment_file_name(name) is None


def started(files: MemoryFiles) -> DirectoryLogs:
    """The logs of a directory."""
    directory = open_log_directory(files, "data", node_id=1, new_id=uuid.UUID(int=9))
    return DirectoryLogs.from_checkpoints(
        files, directory, clock=SetClock(), chance=random.Random(0)
    )


def test_the_topic_id_is_in_the_folder_from_the_first_moment_on() -> None:
    """Before any record, and on the device; a start reads it from there."""
    files = MemoryFiles()
    logs = started(files)
    log = logs.open(PARTITION, topic_id=TOPIC_ID, config=settings())
    assert started(files.crash()).find_partitions()[PARTITION] == TOPIC_ID
    append_values(log, b"simple value")
    logs.close()
    again = started(files.crash())
    assert again.find_partitions() == {PARTITION: TOPIC_ID}
    assert values(again.open(PARTITION, topic_id=TOPIC_ID, config=settings())) == [b"simple value"]


def test_the_topic_id_goes_with_a_folder_on_its_way_out() -> None:
    """No file of the log stays under the old name."""
    files = MemoryFiles()
    logs = started(files)
    logs.open(PARTITION, topic_id=TOPIC_ID, config=settings())
    logs.take_out(PARTITION, "ab" * 16)()
    folder = f"data/{names.delete_directory_name(PARTITION, 'ab' * 16)}"
    assert names.PARTITION_METADATA in files.list(folder)
    assert not files.is_directory(FOLDER)


def test_a_log_can_be_deleted_once_it_is_closed() -> None:
    """Its folder is renamed, and gone after the delay, with all segments."""
    files = MemoryFiles()
    logs = started(files)
    log = logs.open(PARTITION, topic_id=TOPIC_ID, config=settings())
    append_values(log, *[b"value"] * 12)
    log.close()
    logs.take_out(PARTITION, "ab" * 16)()
    assert logs.get(PARTITION) is None
    assert any("-delete" in name for name in files.list("data"))
    logs.removals.remove_due(NOW + settings().file_delete_delay_ms)
    assert not any("flights" in name for name in files.list("data"))


def test_a_folder_that_is_not_empty_is_deleted_whole() -> None:
    """Anything in it besides segments is deleted too."""
    files = MemoryFiles()
    logs = started(files)
    logs.open(PARTITION, topic_id=TOPIC_ID, config=settings())
    files.open(f"{FOLDER}/notes.txt", create=True)
    logs.take_out(PARTITION, "ab" * 16)()
    logs.removals.remove_due(NOW + DAY_MS)
    assert not any("flights" in name for name in files.list("data"))


def test_a_flush_of_a_log_whose_folder_is_gone_does_not_stop_the_checkpoint() -> None:
    """The folder was deleted meanwhile, on the loop's thread."""
    files = MemoryFiles()
    logs = started(files)
    other = TopicPartition("planes", 0)
    for partition in (PARTITION, other):
        log = logs.open(partition, topic_id=TOPIC_ID, config=settings())
        append_values(log, *[b"value"] * 12)
    seen = iter(logs)
    first = next(seen)
    logs.take_out(PARTITION, "ab" * 16)()
    with pytest.raises(OSError, match="closed"):
        first.sync_rolled()
    logs.checkpoint()
    assert b"planes 0" in files.content("data/recovery-point-offset-checkpoint")
