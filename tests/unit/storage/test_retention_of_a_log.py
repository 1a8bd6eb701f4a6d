"""Retention and DeleteRecords on a whole log: which segments and snapshots go, and what remains."""

import logging
import re

import pytest

from tailrace.errors import OffsetOutOfRangeError
from tailrace.model import LeaderEpoch, Offset
from tailrace.runtime.clock import iso_time
from tailrace.storage.log import Log
from tailrace.storage.retention import DeletionReason, SegmentDeletion
from tailrace.storage.shrink import delete_old_segments, raise_log_start
from tailrace.storage.snapshots import list_snapshots
from tailrace.testing import DiskFault, MemoryFiles
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
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
from tests.unit.storage.transactional import TransactionalProducer

SIZE = len(batch(b"value"))


def log_of(count: int, *, timestamp: int = NOW, **given: object) -> Log:
    """Records of one size, five to a segment; the high watermark stays at 0."""
    config = settings(**{"segment_bytes": 5 * SIZE, **given})
    log = open_at(MemoryFiles(), config=config)
    for _ in range(count):
        data = batch(timestamps=[timestamp])
        log.append(memoryview(data), leader_epoch=LeaderEpoch(0), now_ms=NOW)
    return log


def replicate_all(log: Log) -> None:
    """The high watermark is the end of the log."""
    log.advance_high_watermark(log.end_offset)


def produced(log: Log, sequence: int, *, producer_id: int = 1) -> None:
    """One record of an idempotent producer, in a segment of its own."""
    append(log, batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence))


def snapshots(log: Log) -> list[Offset]:
    """Offsets of the snapshots in the folder."""
    return list_snapshots(log.folder.files, FOLDER)


@pytest.mark.parametrize("ends_empty", [True, False], ids=["empty active segment", "full one"])
def test_snapshots_go_with_their_segments(ends_empty: bool) -> None:  # noqa: FBT001
    """One remains: that of the new active segment."""
    log = open_at(MemoryFiles(), config=settings(retention_bytes=0, retention_ms=60_000))
    for sequence in range(3):
        produced(log, sequence)
        if sequence < 2 or ends_empty:
            log.roll()
    assert len(snapshots(log)) == (3 if ends_empty else 2)
    delete_old_segments(log, NOW + 60_001)
    assert (snapshots(log), log.start_offset, bases(log)) == ([3], 3, [3])


def test_what_the_log_start_removes_lets_time_go_on() -> None:
    """The log start and the age remove segments in one call; a second call finds nothing."""
    log = open_at(MemoryFiles(), config=settings(retention_ms=900))
    for delta in (100, 0, 100):
        append(log, batch(timestamps=[NOW + delta]))
        if log.end_offset < 3:
            log.roll()
    assert delete_old_segments(log, NOW + 901) == ()
    raise_log_start(log, 1)
    assert delete_old_segments(log, NOW + 901) == (
        SegmentDeletion(base_offset=0, reason=DeletionReason.LOG_START),
        SegmentDeletion(base_offset=1, reason=DeletionReason.TIME),
    )
    assert delete_old_segments(log, NOW + 901) == ()
    assert bases(log) == [2]


def test_each_deleted_segment_has_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """It names the rule, the setting, the newest record, and the time of the last write."""
    day_ms = 24 * 3_600_000
    files = MemoryFiles()
    log = open_at(files, config=settings(retention_ms=7 * day_ms, retention_bytes=2 * SIZE))
    for age_ms in (0, 0, 900 * day_ms, 0):
        append(log, batch(timestamps=[NOW - age_ms]))
        log.roll()
    raise_log_start(log, 1)
    files.set_modified_ms(path(2, ".log"), NOW - 1)
    with caplog.at_level(logging.INFO):
        gone = delete_old_segments(log, NOW)
    assert len(gone) == 3
    *_, last = [line for line in caplog.messages if line.startswith("segment_deleted")]
    assert [re.sub(".*reason=", "", line) for line in caplog.messages] == [
        "its last offset, 0, is below the log start offset, 1",
        f"the log has {2 * SIZE} bytes without it, retention.bytes is {2 * SIZE} bytes",
        "its newest record is 900 d old, retention.ms is 7 d",
    ]
    assert last.startswith(
        f"segment_deleted path={path(2, '.log')} offsets=2..2 bytes={SIZE} "
        f"newest={iso_time(NOW - 900 * day_ms)} written={iso_time(NOW - 1)} reason="
    )


def test_deleted_records_take_the_snapshots_of_their_segments_along() -> None:
    """No other snapshots go."""
    log = open_at(MemoryFiles())
    for sequence in range(3):
        produced(log, sequence)
        if sequence < 2:
            log.roll()
    assert snapshots(log) == [1, 2]
    raise_log_start(log, log.end_offset - 1)
    delete_old_segments(log, NOW)
    assert snapshots(log) == [2]


def test_producers_of_deleted_records_stay_known() -> None:
    """Older snapshots than that of the active segment are deleted in their time."""
    files = MemoryFiles()
    log = open_at(files)
    produced(log, 0, producer_id=1)
    log.roll()
    produced(log, 0, producer_id=2)
    log.roll()
    assert (len(log.producers), snapshots(log)) == (2, [1, 2])
    raise_log_start(log, 2)
    delete_old_segments(log, NOW)
    assert files.exists(path(1, ".snapshot.deleted"))
    log.folder.removals.remove_due(NOW + log.config.file_delete_delay_ms)
    assert not [name for name in files.list(FOLDER) if name.endswith(".deleted")]
    assert (len(log.producers), snapshots(log)) == (2, [2])


def test_retention_forgets_no_producer() -> None:
    """The age of its records is not how long it has been idle."""
    log = open_at(MemoryFiles(), config=settings(retention_bytes=0, segment_bytes=100))
    for producer_id in (1, 2):
        produced(log, 0, producer_id=producer_id)
        append_values(log, b"other")
    log.roll()
    delete_old_segments(log, NOW)
    assert (log.size, len(log.producers)) == (0, 2)


@pytest.mark.parametrize("count", [0, 1, 25])
def test_deletion_leaves_the_end_where_it_was(count: int) -> None:
    """No segment is deleted twice, and the next record gets the next offset."""
    log = log_of(count, retention_ms=0, timestamp=NOW - 10)
    replicate_all(log)
    for _ in range(2):
        delete_old_segments(log, NOW)
        assert (log.end_offset, len(log.segments)) == (count, 1)
    assert delete_old_segments(log, NOW) == ()
    assert append(log, batch()).base_offset == count


def test_a_transaction_index_is_deleted_with_its_segment() -> None:
    """A segment without a transaction index is deleted too."""
    files = MemoryFiles()
    log = open_at(files)
    producer = TransactionalProducer(log, 1)
    producer.append()
    producer.abort()
    log.roll()
    append_values(log, b"other")
    log.roll()
    assert [files.exists(path(base, ".txnindex")) for base in (0, 2)] == [True, False]
    raise_log_start(log, 3)
    assert [each.base_offset for each in delete_old_segments(log, NOW)] == [0, 2]
    assert not files.exists(path(0, ".txnindex"))
    assert files.exists(path(0, ".txnindex.deleted"))
    log.folder.removals.remove_due(NOW + log.config.file_delete_delay_ms)
    assert not [name for name in files.list(FOLDER) if ".txnindex" in name]


def test_files_are_renamed_now_and_deleted_later() -> None:
    """Files are deleted after `file.delete.delay.ms`, by the clock of the folder."""
    files, clock = MemoryFiles(), SetClock()
    config = settings(
        segment_bytes=5 * SIZE, retention_ms=999, file_delete_delay_ms=1000, index_interval_bytes=1
    )
    log = open_at(files, config=config, clock=clock)
    for _ in range(100):
        append(log, batch(timestamps=[NOW - 1000]))
    old = [path for segment in log.segments for path in segment.paths()]
    delete_old_segments(log, NOW)
    assert bases(log) == [100]
    assert not any(files.exists(each) for each in old)
    assert all(files.exists(f"{each}.deleted") for each in old)
    log.folder.removals.remove_due(NOW + 999)
    assert all(files.exists(f"{each}.deleted") for each in old)
    log.folder.removals.remove_due(NOW + 1000)
    assert not any(files.exists(f"{each}.deleted") for each in old)


def test_without_a_delay_files_are_gone_with_the_next_round() -> None:
    """The segments that went are told with the rule that took them."""
    log = log_of(15, retention_bytes=5 * SIZE, file_delete_delay_ms=0)
    replicate_all(log)
    gone = delete_old_segments(log, NOW)
    assert gone == tuple(
        SegmentDeletion(base_offset=each, reason=DeletionReason.SIZE) for each in (0, 5)
    )
    log.folder.removals.remove_due(NOW)
    names = log.folder.files.list(FOLDER)
    assert [name for name in names if name.endswith((".log", ".deleted"))] == [
        "00000000000000000010.log"
    ]


def test_old_segments_go_once_they_are_replicated() -> None:
    """No segment is deleted before; later all are, and the newest epoch begins at the new start."""
    log = log_of(100, retention_ms=999, timestamp=NOW - 1000)
    log.epochs.assign(LeaderEpoch(1), Offset(90))
    count = len(log.segments)
    assert delete_old_segments(log, NOW) == ()
    assert (len(log.segments), log.start_offset) == (count, 0)
    for high_watermark in range(25, 31):
        log.advance_high_watermark(high_watermark)
        delete_old_segments(log, NOW)
        assert log.start_offset <= high_watermark
        ends = [*bases(log)[1:], log.end_offset]
        assert all(end > high_watermark for end in ends)
    replicate_all(log)
    delete_old_segments(log, NOW)
    assert (bases(log), log.start_offset) == ([100], 100)
    assert [tuple(each) for each in log.epochs.entries] == [(1, 100)]


def test_no_high_watermark_lets_a_segment_behind_it_go() -> None:
    """The first segment left holds the high watermark or begins there, whatever it is."""
    log = log_of(100, retention_ms=999, timestamp=NOW - 1000)
    assert len(log.segments) > 5
    for high_watermark in range(101):
        log.advance_high_watermark(high_watermark)
        assert log.positions.high_watermark == high_watermark
        delete_old_segments(log, NOW)
        first, *later = bases(log)
        assert log.start_offset == first <= high_watermark
        assert all(base > high_watermark for base in later)
    assert (log.start_offset, bases(log), log.size) == (100, [100], 0)


def test_some_segments_go_when_some_are_replicated() -> None:
    """The log start does not pass the high watermark."""
    log = log_of(100, retention_ms=999, timestamp=NOW - 1000)
    log.advance_high_watermark(23)
    count = len(log.segments)
    delete_old_segments(log, NOW)
    assert len(log.segments) == count - 4
    assert log.start_offset == 20


def test_records_above_the_high_watermark_cannot_be_deleted() -> None:
    """The error says up to where they can."""
    log = log_of(100)
    log.advance_high_watermark(25)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        raise_log_start(log, 26)
    assert caught.value.log_end_offset == 25
    assert log.start_offset == 0
    assert raise_log_start(log, 25)
    assert not raise_log_start(log, 25)


@pytest.mark.parametrize(("start", "expected"), [(1, [0, 5, 10]), (6, [5, 10]), (15, [10])])
def test_deleted_records_take_whole_segments_along(start: int, expected: list[int]) -> None:
    """The active one stays."""
    log = log_of(15)
    replicate_all(log)
    raise_log_start(log, start)
    delete_old_segments(log, NOW)
    assert (bases(log), log.start_offset) == (expected, start)


@pytest.mark.parametrize(("limit", "expected"), [(10 * SIZE, [5, 10]), (15 * SIZE, [0, 5, 10])])
def test_a_log_keeps_as_much_as_its_limit(limit: int, expected: list[int]) -> None:
    """The oldest segments go while what is left has `retention.bytes`."""
    log = log_of(15, retention_bytes=limit)
    replicate_all(log)
    delete_old_segments(log, NOW)
    assert (bases(log), log.start_offset) == (expected, expected[0])


@pytest.mark.parametrize(("timestamp", "expected"), [(10, [15]), (NOW, [0, 5, 10])])
def test_a_log_keeps_what_is_young(timestamp: int, expected: list[int]) -> None:
    """The age of a segment is that of its largest timestamp."""
    log = log_of(
        15, retention_ms=10_000, timestamp=timestamp, message_timestamp_before_max_ms=2**62
    )
    replicate_all(log)
    delete_old_segments(log, NOW)
    assert bases(log) == expected


def test_a_log_without_timestamps_is_as_old_as_its_files() -> None:
    """The time of the last write counts."""
    log = log_of(15, retention_ms=10_000, timestamp=-1)
    replicate_all(log)
    for segment in log.segments:
        log.folder.files.set_modified_ms(segment.log.path, NOW - 20_000)
    log.folder.files.set_modified_ms(log.segments.active.log.path, NOW)
    delete_old_segments(log, NOW)
    assert bases(log) == [10]


def test_a_log_that_is_only_compacted_keeps_old_segments() -> None:
    """A log that is only compacted keeps segments however old records and files are."""
    log = log_of(
        15, cleanup_policy="compact", retention_ms=10_000, timestamp=NOW - 20_000, retention_bytes=0
    )
    replicate_all(log)
    log.folder.files.set_modified_ms(path(0, ".log"), NOW - 20_000)
    delete_old_segments(log, NOW)
    assert bases(log) == [0, 5, 10]


def test_a_log_of_both_policies_loses_old_segments() -> None:
    """Retention treats it like a log that is only deleted from."""
    log = log_of(15, cleanup_policy="compact,delete", retention_ms=10_000, timestamp=NOW - 20_000)
    replicate_all(log)
    delete_old_segments(log, NOW)
    assert bases(log) == [15]


def test_a_log_that_is_only_compacted_loses_deleted_records() -> None:
    """Segments below the log start are deleted under every policy."""
    log = log_of(15, cleanup_policy="compact", retention_ms=10_000, timestamp=NOW - 20_000)
    replicate_all(log)
    raise_log_start(log, 5)
    delete_old_segments(log, NOW)
    assert (bases(log), log.start_offset) == ([5, 10], 5)


@pytest.mark.parametrize(
    ("starts", "expected"),
    [((0, 5, 10), [(1, 5), (2, 10)]), ((0, 7, 10), [(0, 5), (1, 7), (2, 10)])],
)
def test_epochs_follow_the_log_start(
    starts: tuple[int, ...], expected: list[tuple[int, int]]
) -> None:
    """Epochs below the log start go; the epoch that holds it begins there."""
    log = log_of(15, retention_bytes=10 * SIZE)
    for epoch, start in enumerate(starts):
        log.epochs.assign(LeaderEpoch(epoch), Offset(start))
    replicate_all(log)
    delete_old_segments(log, NOW)
    assert [tuple(each) for each in log.epochs.entries] == expected


def test_a_segment_that_cannot_be_renamed_stays_until_the_next_call() -> None:
    """The segments before it are gone, and records below the log start are not served."""
    log = log_of(15, retention_bytes=0)
    replicate_all(log)
    files = log.folder.files
    assert isinstance(files, MemoryFiles)
    files.faults.append(DiskFault(operation="rename", path_part="05.log"))
    with pytest.raises(OSError, match="error"):
        delete_old_segments(log, NOW)
    files.faults.clear()
    assert (bases(log), log.start_offset) == ([5, 10, 15], 15)
    assert not values(log)
    append_values(log, b"goes on")
    assert values(log) == [b"goes on"]
    raise_log_start(log, 16)
    log.config = settings()
    delete_old_segments(log, NOW)
    assert bases(log) == [15]


def test_a_sync_does_not_fail_over_a_segment_that_went_meanwhile() -> None:
    """It runs on another thread, and the device is not to blame."""

    class Interrupted(MemoryFiles):
        log: Log | None = None

        def count(self, operation: str, path: str) -> None:
            super().count(operation, path)
            if operation == "sync" and path.endswith("00.log") and self.log is not None:
                log, self.log = self.log, None
                delete_old_segments(log, NOW)

    files = Interrupted()
    log = open_at(files, config=settings(segment_bytes=5 * SIZE, retention_bytes=0))
    append_values(log, *[b"value"] * 15)
    files.log = log
    log.sync_rolled()
    assert (bases(log), log.positions.recovery_point) == ([15], 10)
    files.log = None
    log.commit()
    log.sync()
    assert log.positions.recovery_point == 15


def test_after_a_crash_retention_goes_on_where_it_was() -> None:
    """Deleted segments stay deleted when the process dies, and are deleted for good then."""
    files = MemoryFiles()
    log = filled(files, 12)
    raise_log_start(log, bases(log)[1] + 1)
    delete_old_segments(log, NOW)
    again = open_at(files.crash(keep_unsynced=True))
    assert again.start_offset == bases(log)[0]
    assert not [name for name in again.folder.files.list(FOLDER) if name.endswith(".deleted")]
