"""A log whose tail is cut, as a follower's is that has more than its new leader."""

from collections.abc import Callable

import pytest

from tailrace.errors import RetriableError, StorageError
from tailrace.model import LeaderEpoch, Offset, ProducerId
from tailrace.storage.log import Log
from tailrace.storage.positions import ReadLimit
from tailrace.storage.producers import KnownProducer
from tailrace.storage.shrink import raise_log_start, truncate_fully_and_start_at, truncate_to
from tailrace.storage.snapshots import list_snapshots
from tailrace.testing import DiskFault, MemoryFiles
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    append,
    append_values,
    bases,
    batch,
    filled,
    open_at,
    path,
    records,
    settings,
    stop_cleanly,
    values,
)
from tests.unit.storage.transactional import append_plain, follow, replicated

SIZE = len(batch(b"value 0"))


def produced(log: Log, sequence: int) -> None:
    """One record of idempotent producer 1."""
    append(log, batch(b"v", producer_id=1, producer_epoch=0, base_sequence=sequence))


def producer(log: Log) -> KnownProducer:
    """Return the state of the producer."""
    known = log.producers.get(ProducerId(1))
    assert known is not None
    return known


def test_a_truncation_at_or_behind_the_end_changes_nothing() -> None:
    """A truncation at or behind the end changes neither records nor files."""
    files = MemoryFiles()
    log = filled(files, 10)
    before = len(files.operations)
    for offset in (10, 11):
        truncate_to(log, offset)
    assert (log.end_offset, len(values(log)), len(files.operations)) == (10, 10, before)


@pytest.mark.parametrize("count", [10, 20])
def test_a_log_that_was_truncated_takes_as_many_records_again(count: int) -> None:
    """After a cut in the middle, to nothing, or of segments, size and offsets are as at first."""
    log = filled(MemoryFiles(), count, config=settings(segment_bytes=10 * SIZE))
    sizes = [each.size for each in log.batches(0)]
    old_bases = bases(log)
    for offset in (count // 2, 0):
        truncate_to(log, offset)
        assert (log.end_offset, log.positions.high_watermark) == (offset, offset)
        assert log.size == sum(sizes[:offset])
        assert [record.offset for record in records(log)] == list(range(offset))
        for number in range(offset, count):
            append(log, batch(b"value %d" % number, timestamps=[NOW + number]))
        assert (log.end_offset, bases(log)) == (count, old_bases)


def test_the_time_of_a_segment_counts_from_its_first_record_after_a_truncation() -> None:
    """Records that were cut away do not let the segment span more than `segment.ms`."""
    log = open_at(MemoryFiles(), config=settings(segment_ms=5000))
    for age in (0, 1):
        append(log, batch(b"value", timestamps=[NOW - age]))
    truncate_to(log, 0)
    for age in (4000, 3000, -2000):
        append(log, batch(b"value", timestamps=[NOW - age]))
    assert bases(log) == [0, 2]


def test_segments_behind_the_offset_go_and_the_last_one_is_cut() -> None:
    """Their files are renamed; what is left is active again."""
    files = MemoryFiles()
    log = filled(files, 20, config=settings(segment_bytes=5 * SIZE))
    assert len(bases(log)) > 3
    truncate_to(log, 3)
    assert bases(log) == [0]
    assert (log.end_offset, log.positions.recovery_point) == (3, 0)
    later = [name for name in files.list(FOLDER) if "0" * 19 + "1" < name < "1"]
    assert len(later) > 3
    assert all(name.endswith((".deleted", ".snapshot")) for name in later)
    assert len(log.folder.removals) > 3
    append_values(log, b"next")
    assert values(log) == [b"value 0", b"value 1", b"value 2", b"next"]


def test_a_truncation_into_a_batch_drops_it_whole() -> None:
    """The log ends where the batch before it does."""
    log = open_at(MemoryFiles())
    append(log, batch(b"a", b"b"))
    append(log, batch(b"c", b"d", b"e"))
    truncate_to(log, 4)
    assert (log.end_offset, values(log)) == (2, [b"a", b"b"])


def test_a_truncated_segment_has_its_full_indexes_again() -> None:
    """Which a roll had trimmed, so that it can be filled once more."""
    config = settings(segment_bytes=10 * SIZE, index_interval_bytes=SIZE - 1)
    files = MemoryFiles()
    log = open_at(files, config=config)
    for number in range(20):
        append(log, batch(b"value 0", timestamps=[NOW + number]))
    assert bases(log) == [0, 10]
    first = log.segments.first
    assert (first.offset_index.entries.count, first.time_index.entries.count) == (9, 9)
    assert len(files.content(path(0, ".index"))) == 9 * 8
    truncate_to(log, 0)
    assert bases(log) == [0]
    assert len(files.content(path(0, ".index"))) == 120
    assert len(files.content(path(0, ".timeindex"))) == 120
    for number in range(10):
        append(log, batch(b"value 0", timestamps=[NOW + number]))
    assert bases(log) == [0]


@pytest.mark.parametrize("offset", [29, 30])
def test_a_truncation_at_the_end_forgets_an_epoch_without_records(offset: int) -> None:
    """A leader that wrote nothing has begun no epoch."""
    log = open_at(MemoryFiles())
    follow(log, replicated(27, b"a", b"b", leader_epoch=19))
    log.epochs.assign(LeaderEpoch(24), Offset(log.end_offset))
    truncate_to(log, offset)
    assert [tuple(each) for each in log.epochs.entries] == [(19, 27)]
    assert log.end_offset == 29


def test_epochs_follow_the_truncation() -> None:
    """Epochs are removed in memory and in the checkpoint."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=10 * SIZE))
    for offset in range(20):
        epoch = (offset >= 10) + (offset >= 16)
        follow(log, replicated(offset, b"value 0", leader_epoch=epoch))
    assert bases(log) == [0, 10]
    log.epochs.save()
    for offset, count in ((20, 3), (11, 2), (10, 1), (0, 0)):
        truncate_to(log, offset)
        assert len(log.epochs.entries) == count
        text = files.content(f"{FOLDER}/leader-epoch-checkpoint")
        assert text.split(b"\n")[1] == b"%d" % count


def test_snapshots_behind_the_end_go_and_the_newest_below_is_used() -> None:
    """The producer state is that of the offset where the log ends now."""
    files = MemoryFiles()
    log = open_at(files)
    for sequence in range(3):
        produced(log, sequence)
        if sequence:
            log.producers.write_snapshot(log.end_offset)
    truncate_to(log, 2)
    assert (list_snapshots(files, FOLDER), producer(log).last_offset) == ([2], 1)
    truncate_to(log, 1)
    assert (list_snapshots(files, FOLDER), producer(log).last_offset) == ([], 0)
    truncate_to(log, 0)
    assert (list_snapshots(files, FOLDER), len(log.producers)) == ([], 0)


def test_without_snapshots_producers_are_known_from_the_batches() -> None:
    """The producers of all batches from the log start on are known."""
    log = open_at(MemoryFiles())
    produced(log, 0)
    produced(log, 1)
    truncate_to(log, 1)
    assert (producer(log).last_sequence, len(log.producers)) == (0, 1)


def test_a_snapshot_of_a_roll_has_what_was_before_the_batch_that_rolled() -> None:
    """The snapshot stays valid when the batch that rolled the segment is truncated."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=100))
    produced(log, 0)
    produced(log, 1)
    assert (bases(log), list_snapshots(files, FOLDER)) == ([0, 1], [1])
    truncate_to(log, 1)
    assert (bases(log), log.segments.active.size) == ([0, 1], 0)
    assert list_snapshots(files, FOLDER) == [1]
    assert (producer(log).last_sequence, producer(log).last_offset) == (0, 0)


def test_the_high_watermark_follows_the_end_back() -> None:
    """The high watermark moves back with the end, not by an append, and never passes the end."""
    log = open_at(MemoryFiles())
    positions = log.positions
    append_plain(log, 3)
    assert positions.high_watermark == 0
    log.advance_high_watermark(1)
    assert positions.high_watermark == 1
    log.advance_high_watermark(5)
    assert positions.high_watermark == 3
    follow(log, replicated(3, b"a", b"b", b"c"))
    log.advance_high_watermark(6)
    assert positions.high_watermark == 6
    truncate_to(log, 3)
    assert positions.high_watermark == 3
    append_plain(log, 3)
    assert (positions.high_watermark, log.end_offset, log.start_offset) == (3, 6, 0)
    truncate_fully_and_start_at(log, 4)
    assert (positions.high_watermark, log.end_offset, log.start_offset) == (4, 4, 4)


@pytest.mark.parametrize("offset", [0, 2, 5, 9, 30])
def test_a_log_can_begin_anew_at_any_offset(offset: int) -> None:
    """One empty segment there, no producer, no epoch, no snapshot, and it takes records."""
    files = MemoryFiles()
    log = filled(files, 4, config=settings(segment_bytes=3 * SIZE))
    produced(log, 0)
    log.roll()
    stop_cleanly(log)
    log = open_at(files, config=settings(segment_bytes=3 * SIZE), is_clean=True)
    assert (bases(log), len(list_snapshots(files, FOLDER))) == ([0, 3, 5], 2)
    truncate_fully_and_start_at(log, offset)
    assert (bases(log), log.size) == ([offset], 0)
    assert (log.start_offset, log.end_offset, log.positions.last_stable) == (offset,) * 3
    assert (len(log.producers), log.epochs.entries) == (0, ())
    assert list_snapshots(files, FOLDER) == []
    append(log, batch(b"new"), epoch=3)
    assert [(each.offset, each.value) for each in records(log)] == [(offset, b"new")]
    again = open_at(files.crash(keep_unsynced=True))
    assert (again.start_offset, values(again)) == (offset, [b"new"])


def test_a_truncation_below_the_first_segment_begins_anew() -> None:
    """There is no record left that could stay."""
    log = open_at(MemoryFiles())
    truncate_fully_and_start_at(log, 50)
    append_values(log, b"a")
    truncate_to(log, 20)
    assert (bases(log), log.start_offset, log.end_offset) == ([20], 20, 20)


def test_a_truncation_below_the_log_start_takes_it_along() -> None:
    """The log is empty then."""
    log = filled(MemoryFiles(), 5)
    raise_log_start(log, 4)
    truncate_to(log, 2)
    assert (log.start_offset, log.end_offset) == (2, 2)
    assert not log.read(2, bytes_max=100, is_first_whole=True).read()


def test_a_reader_that_holds_a_slice_does_not_keep_the_log_from_being_cut() -> None:
    """It gets an error in place of bytes that stand there now and belong to another batch."""
    log = filled(MemoryFiles(), 5)
    held = log.read(0, bytes_max=10**6, is_first_whole=True, limit=ReadLimit.LOG_END)
    truncate_to(log, 1)
    append_values(log, b"other")
    with pytest.raises(RetriableError):
        held.read()


@pytest.mark.parametrize(
    "fault",
    [
        DiskFault(operation="rename", path_part=".log"),
        DiskFault(operation="rename", path_part=".index", after=1),
        DiskFault(operation="sync_directory"),
        DiskFault(operation="resize", path_part=".log"),
        DiskFault(operation="sync", path_part=".log"),
        DiskFault(operation="rename", path_part="epoch"),
    ],
    ids=lambda fault: f"{fault.operation}-{fault.path_part}",
)
@pytest.mark.parametrize("cut", [truncate_to, truncate_fully_and_start_at])
def test_a_failed_truncation_ends_the_log_and_leaves_a_prefix(
    cut: Callable[[Log, int], None], fault: DiskFault
) -> None:
    """Until the next start nothing is read or written that may not be there then."""
    files = MemoryFiles()
    log = filled(files, 20)
    append(log, batch(b"of the next epoch"), epoch=1)
    before = records(log)
    files.faults.append(
        DiskFault(operation=fault.operation, path_part=fault.path_part, after=fault.after)
    )
    try:
        cut(log, 3)
    except OSError:
        for call in (log.sync, log.roll, lambda: truncate_to(log, 1)):
            with pytest.raises(StorageError, match="restart the broker"):
                call()
    files.faults.clear()
    log.close()
    after = records(open_at(files.crash(keep_unsynced=True)))
    assert after == before[: len(after)]


def test_commit_puts_the_name_of_a_segment_made_after_a_truncation_on_the_device() -> None:
    """Though one of the same offset was there before, and its name was."""
    files = MemoryFiles()
    log = filled(files, 6, config=settings(segment_bytes=3 * SIZE))
    assert bases(log) == [0, 3]
    log.commit()
    truncate_to(log, 2)
    for number in (2, 3):
        append(log, batch(b"again %d" % number))
    log.roll()
    append_values(log, b"last")
    log.commit()
    lost = files.crash()
    assert values(open_at(lost)) == [b"value 0", b"value 1", b"again 2", b"again 3", b"last"]


class Interrupted(MemoryFiles):
    """A disk on which something else happens during a sync, once."""

    meanwhile: Callable[[], None] | None = None

    def sync_directory(self, path: str) -> None:
        """Sync the directory, and then make the waiting call."""
        super().sync_directory(path)
        call, self.meanwhile = self.meanwhile, None
        if call is not None:
            call()


def test_a_sync_that_a_truncation_overtakes_claims_nothing() -> None:
    """Other records may have the offsets by then."""
    files = Interrupted()
    log = filled(files, 6)

    def overtake() -> None:
        truncate_to(log, 2)
        append_values(log, *[b"other"] * 6)

    files.meanwhile = overtake
    log.sync()
    assert (log.end_offset, log.positions.recovery_point) == (8, 0)
