"""Offsets of a log: what appends answer, how far each kind of reader sees, what a search finds."""

import pytest

from tailrace.errors import OffsetOutOfRangeError, RecordTooLargeError
from tailrace.model import Codec, LeaderEpoch, Offset, SpecialTimestamp
from tailrace.records.batch import read_batches
from tailrace.storage.log import Log
from tailrace.storage.offset_lookup import find_offset
from tailrace.storage.positions import ReadLimit
from tailrace.storage.producers import InvalidProducerEpochError, ProducerSequenceError
from tailrace.storage.recovery import open_log
from tailrace.storage.shrink import retention_facts, truncate_fully_and_start_at, truncate_to
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
    folder_at,
    open_at,
    path,
    records,
    settings,
    values,
)
from tests.unit.storage.transactional import append_plain

BIG = settings(segment_bytes=10**6, segment_index_bytes=1200)


def read_offsets(log: Log, offset: int, *, limit: ReadLimit) -> list[int]:
    """Offsets of the batches that a read gives, from first to last."""
    view = log.read(offset, bytes_max=10**6, is_first_whole=True, limit=limit).read()
    return [
        offset
        for _, found in read_batches(view)
        for offset in range(found.base_offset, found.next_offset)
    ]


def idempotent(sequence: int, count: int = 1, *, epoch: int = 0) -> bytearray:
    """A batch of producer 1."""
    return batch(*[b"v"] * count, producer_id=1, producer_epoch=epoch, base_sequence=sequence)


def test_an_append_answers_with_its_first_offset() -> None:
    """An append answers with its first offset, behind a roll too."""
    log = open_at(MemoryFiles(), config=BIG)
    assert append_plain(log, 3).base_offset == 0
    assert append_plain(log, 3).base_offset == 3
    log.roll()
    assert append_plain(log, 3).base_offset == 6


def test_a_roll_does_not_change_what_the_high_watermark_shows() -> None:
    """Readers see records below the high watermark, wherever segments begin."""
    log = open_at(MemoryFiles(), config=BIG)
    append_plain(log, 3)
    limit = ReadLimit.HIGH_WATERMARK
    assert read_offsets(log, 0, limit=limit) == []
    log.advance_high_watermark(3)
    assert read_offsets(log, 0, limit=limit) == [0, 1, 2]
    log.roll()
    assert read_offsets(log, 0, limit=limit) == [0, 1, 2]
    append_plain(log, 3)
    assert read_offsets(log, 3, limit=limit) == []


def test_a_replica_reads_up_to_the_end() -> None:
    """A replica can read from each offset, whatever the high watermark."""
    log = open_at(MemoryFiles(), config=BIG)
    append_plain(log, 3)
    append_plain(log, 2)
    for offset in range(5):
        expected = list(range(0 if offset < 3 else 3, 5))
        assert read_offsets(log, offset, limit=ReadLimit.LOG_END) == expected
    assert read_offsets(log, 5, limit=ReadLimit.LOG_END) == []


@pytest.mark.parametrize("segment_bytes", [100, 10**6])
@pytest.mark.parametrize("high_watermark", [0, 1, 3, 4, 5])
def test_a_consumer_reads_up_to_the_high_watermark(high_watermark: int, segment_bytes: int) -> None:
    """A batch that it cuts is not shown, not even if the first one must be whole."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=segment_bytes))
    append_plain(log, 3)
    append_plain(log, 2)
    log.advance_high_watermark(high_watermark)
    shown = [offset for end in (3, 5) if end <= high_watermark for offset in range(end)]
    for offset in range(6):
        found = read_offsets(log, offset, limit=ReadLimit.HIGH_WATERMARK)
        assert set(found) <= set(shown)
        assert bool(found) == (offset in shown)


@pytest.mark.parametrize("limit", ReadLimit)
def test_a_read_at_or_behind_its_limit_is_empty(limit: ReadLimit) -> None:
    """The read is empty if the limit is in the same, an earlier or a later segment."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=150))
    append_values(log, *[b"v"] * 3)
    append_plain(log)
    append_plain(log)
    assert bases(log) == [0, 2, 4]
    end = log.positions.limit(limit)
    assert read_offsets(log, 2, limit=limit)
    for offset in range(end, log.end_offset + 1):
        assert read_offsets(log, offset, limit=limit) == []


def test_a_log_that_starts_late_knows_its_ends() -> None:
    """Empty at the end; out of range below the start and behind the end."""
    log = started_at(1024)
    append_values(log, b"42")
    assert read_offsets(log, 1025, limit=ReadLimit.LOG_END) == []
    for offset in (0, 1023, 1026):
        with pytest.raises(OffsetOutOfRangeError):
            read_offsets(log, offset, limit=ReadLimit.LOG_END)


def started_at(offset: int) -> Log:
    """A log in an empty folder, of which a checkpoint says where it starts."""
    files = MemoryFiles()
    files.make_directory(FOLDER)
    return open_log(folder_at(files), config=BIG, is_clean=False, checkpoints=(0, offset))


def test_an_empty_folder_with_a_checkpoint_starts_there() -> None:
    """Somebody has deleted the segments; offsets are not given twice."""
    log = started_at(500)
    assert (log.start_offset, log.end_offset) == (500, 500)


def test_an_existing_empty_log_takes_records() -> None:
    """Its files are there and hold nothing."""
    files = MemoryFiles()
    files.make_directory(FOLDER)
    for suffix in (".log", ".index"):
        files.open(path(0, suffix), create=True)
    log = open_at(files)
    append_values(log, b"test")
    assert values(log) == [b"test"]


@pytest.mark.parametrize("codec", [each for each in Codec if each])
def test_an_offset_inside_of_a_compressed_batch_gives_the_batch(codec: Codec) -> None:
    """The read begins with the batch's first record."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=150))
    append(log, batch(b"hello", b"there", codec=codec))
    append(log, batch(b"alpha", b"beta", codec=codec))
    assert [read_offsets(log, offset, limit=ReadLimit.LOG_END)[0] for offset in range(4)] == [
        0, 0, 2, 2,
    ]  # fmt: skip
    assert values(log) == [b"hello", b"there", b"alpha", b"beta"]


def test_values_and_timestamps_can_be_missing() -> None:
    """A null is not an empty value."""
    log = open_at(MemoryFiles())
    for content in (None, b""):
        data = batch(content, timestamps=[-1])  # type: ignore[arg-type]
        append(log, data)
    assert values(log) == [None, b""]
    assert [record.timestamp for record in records(log)] == [-1, -1]


def test_a_batch_above_the_topics_limit_is_refused() -> None:
    """One below it is not."""
    small, large = batch(b"You", b"bethe"), batch(b"change (I need more bytes)", b"More padding")
    log = open_at(MemoryFiles(), config=settings(max_message_bytes=len(large) - 1))
    append(log, small)
    with pytest.raises(RecordTooLargeError) as caught:
        append(log, large)
    assert (caught.value.setting, log.end_offset) == ("max.message.bytes", 2)


def test_the_high_watermark_tells_only_news() -> None:
    """The high watermark does not pass the end, and does not go back by itself."""
    log = open_at(MemoryFiles(), config=BIG)
    for _ in range(100):
        append_plain(log)
    news = [log.advance_high_watermark(offset) for offset in (99, 99, 100, 100, 101, 5)]
    assert news == [True, False, True, False, False, False]
    assert log.positions.high_watermark == 100


def test_a_watcher_of_the_high_watermark_sees_each_change() -> None:
    """An append alone does not move it; a truncation below it does."""
    log = open_at(MemoryFiles(), config=BIG)
    seen = [log.positions.high_watermark]
    append_plain(log, 3)
    append_plain(log, 3)
    seen.append(log.positions.high_watermark)
    assert log.advance_high_watermark(4)
    seen.append(log.positions.high_watermark)
    truncate_to(log, 3)
    seen.append(log.positions.high_watermark)
    append_plain(log, 3)
    truncate_fully_and_start_at(log, 4)
    seen.append(log.positions.high_watermark)
    assert seen == [0, 0, 4, 3, 4]


def test_the_offsets_of_a_read_are_those_of_the_log() -> None:
    """The offsets come with each slice, and do not change by being asked for."""
    log = open_at(MemoryFiles(), config=BIG)
    append_plain(log, 2)
    append_plain(log)
    log.advance_high_watermark(2)
    for _ in range(2):
        found = log.read(0, bytes_max=100, is_first_whole=True)
        assert (found.log_start_offset, found.high_watermark, found.last_stable_offset) == (0, 2, 2)


def test_searches_answer_with_the_leader_epoch() -> None:
    """The answer has the leader epoch of the record found, or of the log's start or end."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=200, index_interval_bytes=1))
    assert find_offset(log, 0) is None
    for epoch in (0, 1):
        append(log, batch(b"value", timestamps=[NOW + epoch]), epoch=epoch)
    for timestamp, expected in (
        (NOW, ((NOW, 0), 0)),
        (NOW + 1, ((NOW + 1, 1), 1)),
        (SpecialTimestamp.EARLIEST, ((-1, 0), 0)),
        (SpecialTimestamp.EARLIEST_LOCAL, ((-1, 0), 0)),
        (SpecialTimestamp.LATEST, ((-1, 2), 1)),
    ):
        assert find_offset(log, timestamp) == expected
    log.epochs.assign(LeaderEpoch(2), Offset(2))
    assert find_offset(log, SpecialTimestamp.LATEST) == ((-1, 2), 2)


def test_a_search_does_not_look_behind_its_limit() -> None:
    """A record that may yet be lost has no offset to go to; a replica may know it."""
    log = open_at(MemoryFiles())
    append(log, batch(timestamps=[NOW]))
    log.append(memoryview(batch(timestamps=[NOW + 5])), leader_epoch=LeaderEpoch(0), now_ms=NOW)
    assert find_offset(log, NOW + 1) is None
    assert find_offset(log, SpecialTimestamp.MAX_TIMESTAMP) is None
    assert find_offset(log, NOW + 1, limit=ReadLimit.LOG_END) == ((NOW + 5, 1), 0)
    assert find_offset(log, SpecialTimestamp.LATEST) == ((-1, 1), 0)
    assert find_offset(log, SpecialTimestamp.LATEST, limit=ReadLimit.LOG_END) == ((-1, 2), 0)


def test_batches_carry_the_epoch_of_their_leader() -> None:
    """Each one, and the list of epochs has it once."""
    log = open_at(MemoryFiles())
    for number in range(50):
        append(log, batch(b"%d" % number), epoch=72)
    assert {each.leader_epoch for each in log.batches(0)} == {72}
    assert [tuple(each) for each in log.epochs.entries] == [(72, 0)]


def test_a_batch_sent_again_is_known_among_the_last_five() -> None:
    """An older one is not, nor is one that overlaps; the answer is that of the first time."""
    log = open_at(MemoryFiles(), config=BIG)
    for sequence in range(6):
        append(log, idempotent(sequence))
    first, again = append(log, idempotent(6, 3)), append(log, idempotent(6, 3))
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert first.last_offset - first.base_offset == 2
    with pytest.raises(ProducerSequenceError):
        append(log, idempotent(7, 2))
    assert append(log, idempotent(2)).base_offset == 2
    with pytest.raises(ProducerSequenceError):
        append(log, idempotent(1))
    first, again = append(log, idempotent(9)), append(log, idempotent(9))
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert log.end_offset == 10


def test_a_gap_and_an_old_epoch_are_refused() -> None:
    """The log is as before."""
    log = open_at(MemoryFiles(), config=BIG)
    append(log, idempotent(0, epoch=1))
    with pytest.raises(ProducerSequenceError):
        append(log, idempotent(2, epoch=1))
    with pytest.raises(InvalidProducerEpochError):
        append(log, idempotent(0, epoch=0))
    assert log.end_offset == 1


def test_snapshots_of_rolls_stay_when_the_log_is_flushed() -> None:
    """The newest one serves a start, the older ones a truncation."""
    files = MemoryFiles()
    log = open_at(files)
    for count in (1, 2, 3):
        append_values(log, b"v")
        log.roll()
        assert list_snapshots(files, FOLDER) == list(range(1, count + 1))
    append_values(log, b"v")
    log.sync()
    assert list_snapshots(files, FOLDER) == [1, 2, 3]


def test_a_snapshot_that_cannot_be_flushed_keeps_the_recovery_point() -> None:
    """Otherwise data below the recovery point would lack its producers."""
    files = MemoryFiles()
    log = open_at(files)
    append_values(log, b"a")
    log.roll()
    files.faults.append(DiskFault(operation="sync", path_part=".snapshot"))
    with pytest.raises(OSError, match="error"):
        log.sync_rolled()
    assert log.positions.recovery_point == 0


def test_retention_sees_each_segment_with_the_offset_behind_it() -> None:
    """The segments come in order, the active one last."""
    log = filled(MemoryFiles(), 12, config=settings(segment_bytes=300))
    facts = retention_facts(log)
    assert [each.base_offset for each in facts] == bases(log)
    assert [each.next_base_offset for each in facts] == [*bases(log)[1:], 12]
    assert sum(each.size_bytes for each in facts) == log.size
    assert facts[-1].timestamp_ms == NOW + 11


def test_closed_segments_are_those_before_the_active_one() -> None:
    """Closed segments are listed from any offset on."""
    log = open_at(MemoryFiles())
    for _ in range(5):
        append_values(log, b"v")
        log.roll()

    def closed_from(offset: int) -> list[int]:
        found = log.segments.from_offset(Offset(offset))
        return [each.base_offset for each in found if each is not log.segments.active]

    assert log.segments.active.base_offset == 5
    expected = {0: [0, 1, 2, 3, 4], 2: [2, 3, 4], 5: [], 6: []}
    assert {offset: closed_from(offset) for offset in expected} == expected
