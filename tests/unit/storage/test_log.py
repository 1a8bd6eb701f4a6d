"""A log while it is open: append, roll, read, find by time, and what a failing disk does to it."""

import errno

import pytest

from tailrace.errors import OffsetOutOfRangeError, RecordTooLargeError
from tailrace.model import Codec, LeaderEpoch, Offset, ProducerId, SpecialTimestamp
from tailrace.records.batch import read_batches
from tailrace.storage.config import DAY_MS
from tailrace.storage.log import Log
from tailrace.storage.offset_lookup import find_offset
from tailrace.storage.producers import InvalidProducerEpochError, ProducerSequenceError
from tailrace.storage.shrink import raise_log_start
from tailrace.storage.snapshots import decode_snapshot
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

SIZE = len(batch(b"value 0"))
"""Bytes of a batch that `filled` appends, as long as its number has one digit."""


def index_entries(log: Log) -> list[tuple[int, ...]]:
    """Entries of the active segment's offset index."""
    entries = log.segments.active.offset_index.entries
    return [entries.entry(number) for number in range(entries.count)]


def test_an_entry_comes_when_more_than_the_interval_lies_behind_the_last() -> None:
    """Strictly more; the first append never has one, and the bytes of an entry's own count."""
    big = settings(segment_bytes=10**6, index_interval_bytes=2 * SIZE)
    log = filled(MemoryFiles(), 8, config=big)
    assert index_entries(log) == [(3, 3 * SIZE), (6, 6 * SIZE)]
    exact = settings(segment_bytes=10**6, index_interval_bytes=SIZE)
    assert index_entries(filled(MemoryFiles(), 5, config=exact)) == [(2, 2 * SIZE), (4, 4 * SIZE)]
    always = settings(segment_bytes=10**6, index_interval_bytes=0)
    assert index_entries(filled(MemoryFiles(), 3, config=always)) == [(1, SIZE), (2, 2 * SIZE)]


def test_indexes_are_preallocated_and_trimmed_on_roll() -> None:
    """The active segment has full-sized index files, a closed one those of its entries."""
    files = MemoryFiles()
    log = filled(files, 2)
    assert len(files.content(path(0, ".index"))) == 120
    assert len(files.content(path(0, ".timeindex"))) == 120
    log.roll()
    assert files.content(path(0, ".index")) == b""
    assert len(files.content(path(0, ".timeindex"))) == 12
    assert len(files.content(path(2, ".index"))) == 120


def test_a_segment_rolls_when_the_next_batch_does_not_fit() -> None:
    """A segment may be filled to its last byte; the new one has the log end as its base."""
    exact = settings(segment_bytes=3 * SIZE)
    assert bases(filled(MemoryFiles(), 7, config=exact)) == [0, 3, 6]
    assert bases(filled(MemoryFiles(), 7, config=settings(segment_bytes=3 * SIZE - 1))) == [
        0, 2, 4, 6,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("index_bytes", "expected"), [(24, [0, 2, 4, 6]), (36, [0, 3, 6]), (48, [0, 4])]
)
def test_a_full_index_rolls_the_segment(index_bytes: int, expected: list[int]) -> None:
    """The time index fills first: it keeps one of its slots for the roll itself."""
    config = settings(segment_bytes=10**6, segment_index_bytes=index_bytes, index_interval_bytes=0)
    log = filled(MemoryFiles(), 7, config=config)
    assert bases(log) == expected
    assert len(values(log)) == 7


def test_an_offset_that_does_not_fit_31_bits_rolls_the_segment() -> None:
    """The indexes hold offsets relative to the base in an int32."""
    log = filled(MemoryFiles(), 1)
    log.positions.advance_end(Offset(2**31))
    append(log, batch(b"far"))
    assert bases(log) == [0, 2**31]
    log = filled(MemoryFiles(), 1)
    log.positions.advance_end(Offset(2**31 - 1))
    append(log, batch(b"last that fits"))
    assert bases(log) == [0]


def test_rolling_an_empty_segment_changes_nothing() -> None:
    """An empty active segment is the new segment already."""
    files = MemoryFiles()
    log = filled(files, 1)
    log.roll()
    before = files.list(FOLDER)
    assert log.roll() is log.segments.active
    assert files.list(FOLDER) == before
    append_values(log, b"more")
    assert bases(log) == [0, 1]


def test_every_offset_is_read_from_its_batch_on() -> None:
    """Across segments and index entries; the first batch holds the offset asked for."""
    log = filled(MemoryFiles(), 30)
    for offset in range(30):
        found = log.read(offset, bytes_max=10**6, is_first_whole=True)
        _, first = next(read_batches(found.read()))
        assert first.base_offset == offset
        assert records(log, offset)[0].value == b"value %d" % offset


def test_an_offset_inside_a_batch_gives_the_whole_batch() -> None:
    """The reader skips what it did not ask for."""
    log = open_at(MemoryFiles())
    append(log, batch(b"a", b"b", b"c"))
    append(log, batch(b"d", b"e"))
    for offset, first_offset in ((0, 0), (2, 0), (3, 3), (4, 3)):
        found = log.read(offset, bytes_max=10**6, is_first_whole=True)
        assert next(read_batches(found.read()))[1].base_offset == first_offset


def test_a_limit_cuts_inside_a_batch_unless_the_first_must_be_whole() -> None:
    """KIP-74: a consumer with too small a limit still gets on."""
    log = filled(MemoryFiles(), 3)
    assert len(log.read(0, bytes_max=10, is_first_whole=False).read()) == 10
    for size in (SIZE - 1, SIZE):
        found = log.read(0, bytes_max=size, is_first_whole=False)
        assert found.is_first_incomplete == (size < SIZE)
    assert len(log.read(0, bytes_max=10, is_first_whole=True).read()) == SIZE
    assert len(log.read(0, bytes_max=0, is_first_whole=False).read()) == 0
    assert len(log.read(0, bytes_max=SIZE + 5, is_first_whole=True).read()) == SIZE + 5
    assert len(log.read(1, bytes_max=10**6, is_first_whole=True).read()) == 2 * SIZE


def test_the_end_is_empty_and_beyond_it_is_out_of_range() -> None:
    """An offset beyond the end or below the log start is an error that has the log's range."""
    log = filled(MemoryFiles(), 3)
    assert len(log.read(3, bytes_max=100, is_first_whole=True).read()) == 0
    log.positions.log_start = Offset(1)
    for offset in (0, 4, -1):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.read(offset, bytes_max=100, is_first_whole=True)
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (1, 3)


def test_a_view_stays_valid_while_the_log_grows_rolls_and_closes() -> None:
    """Bytes that were returned to a slow consumer do not change."""
    log = filled(MemoryFiles(), 2)
    view = log.read(0, bytes_max=10**6, is_first_whole=True).read()
    before = bytes(view)
    append_values(log, *[b"more"] * 20)
    log.close()
    assert bytes(view) == before


def find(log: Log, timestamp: int) -> tuple[int, int, int] | None:
    """Timestamp less NOW, offset and epoch."""
    found = find_offset(log, timestamp)
    return None if found is None else (found[0].timestamp - NOW, found[0].offset, found[1])


def test_the_special_timestamps_ask_for_the_ends() -> None:
    """Earliest, latest, largest timestamp, and a tier that there is not."""
    log = filled(MemoryFiles(), 9)
    append(log, batch(b"late", timestamps=[NOW + 50]), epoch=2)
    append(log, batch(b"older", timestamps=[NOW + 20]), epoch=2)
    assert find_offset(log, SpecialTimestamp.EARLIEST) == ((-1, 0), 0)
    assert find_offset(log, SpecialTimestamp.EARLIEST_LOCAL) == ((-1, 0), 0)
    assert find_offset(log, SpecialTimestamp.LATEST) == ((-1, 11), 2)
    assert find_offset(log, SpecialTimestamp.LATEST_TIERED) == ((-1, -1), -1)
    assert find(log, SpecialTimestamp.MAX_TIMESTAMP) == (50, 9, 2)


@pytest.mark.parametrize(
    ("start", "expected"),
    [(1, (50, 1, 0)), (2, (40, 2, 0)), (3, (30, 4, 0)), (6, (9, 8, 0)), (8, (9, 8, 0)), (9, None)],
    ids=[
        "below",
        "at the largest",
        "inside the batch",
        "in another segment",
        "at the other segment",
        "all deleted",
    ],
)
def test_the_largest_timestamp_is_that_of_a_record_that_is_left(
    start: int, expected: tuple[int, int, int] | None
) -> None:
    """Records below the log start do not count, even in a segment or batch that it cuts."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=10**6))
    for ages in ((0, 50, 40), (20, 30, 3), (8, 7)):
        stamps = [NOW + age for age in ages]
        append(log, batch(*[b"value"] * len(ages), timestamps=stamps))
    log.roll()
    append(log, batch(b"value", timestamps=[NOW + 9]))
    raise_log_start(log, start)
    assert find(log, SpecialTimestamp.MAX_TIMESTAMP) == expected


def test_an_empty_log_has_no_largest_timestamp() -> None:
    """An empty log has no record at or after any time, but its ends are known."""
    log = open_at(MemoryFiles())
    assert find_offset(log, SpecialTimestamp.MAX_TIMESTAMP) is None
    assert find_offset(log, 0) is None
    assert find_offset(log, SpecialTimestamp.EARLIEST) == ((-1, 0), -1)
    append(log, batch(b"untimed", timestamps=[-1]))
    assert find_offset(log, SpecialTimestamp.MAX_TIMESTAMP) is None


@pytest.mark.parametrize("codec", Codec)
def test_a_timestamp_finds_the_first_record_at_least_as_young(codec: Codec) -> None:
    """Inside of batches too, compressed or not, across segments; beyond the youngest is None."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=300, index_interval_bytes=0))
    times = [10, 40, 20, 30, 60, 50, 80, 70, 90, 90, 100, 85]
    for number in range(0, len(times), 3):
        stamps = [NOW + time for time in times[number : number + 3]]
        append(log, batch(b"a", b"b", b"c", timestamps=stamps, codec=codec))
    assert len(bases(log)) > 1
    for wanted in range(102):
        expected = next(((t, at, 0) for at, t in enumerate(times) if t >= wanted), None)
        assert find(log, NOW + wanted) == expected


def test_with_log_append_time_records_have_the_brokers_timestamp() -> None:
    """The timestamp is in the answer, in the batch and in the index."""
    config = settings(message_timestamp_type="LogAppendTime")
    log = open_at(MemoryFiles(), config=config)
    done = append(log, batch(b"a", b"b", timestamps=[5, 6]), now_ms=NOW + 7)
    assert done.log_append_time == NOW + 7
    assert [record.timestamp for record in records(log)] == [NOW + 7] * 2
    assert find(log, NOW) == (7, 0, 0)
    assert find(log, NOW + 8) is None


def test_the_log_start_offset_hides_older_records_from_a_search() -> None:
    """Older records are not found, even in the batch that has the log start offset."""
    log = open_at(MemoryFiles())
    append(log, batch(b"a", b"b", b"c", timestamps=[NOW, NOW + 1, NOW + 2]))
    log.positions.log_start = Offset(1)
    assert find(log, NOW) == (1, 1, 0)
    assert find_offset(log, SpecialTimestamp.EARLIEST) == ((-1, 1), 0)


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    """A batch is refused by its size on disk, and the log is as before."""
    log = filled(MemoryFiles(), 2)
    with pytest.raises(RecordTooLargeError) as caught:
        append(log, batch(b"x" * 1000))
    assert caught.value.setting == "segment.bytes"
    assert (log.end_offset, bases(log)) == (2, [0])


@pytest.mark.parametrize(
    "fault",
    [
        DiskFault(operation="write", path_part=".log", error=errno.ENOSPC),
        DiskFault(operation="write", path_part=".log", partial_bytes=70),
        DiskFault(operation="write", path_part=".index", error=errno.ENOSPC),
        DiskFault(operation="write", path_part=".timeindex"),
        DiskFault(operation="write", path_part="epoch"),
        DiskFault(operation="rename", path_part="epoch"),
        DiskFault(operation="open", path_part=".log"),
        DiskFault(operation="open", path_part=".index"),
        DiskFault(operation="open", path_part=".timeindex"),
        DiskFault(operation="resize"),
        DiskFault(operation="resize", after=1),
        DiskFault(operation="resize", after=2),
        DiskFault(operation="resize", after=3),
    ],
    ids=lambda fault: f"{fault.operation}-{fault.path_part}-{fault.after}",
)
@pytest.mark.parametrize("count", [2, 4, 5, 7, 9])
def test_an_append_that_fails_leaves_the_log_as_it_was(fault: DiskFault, count: int) -> None:
    """Whatever step fails, readers see no change, later appends work, and a kill loses nothing."""
    files = MemoryFiles()
    config = settings(index_interval_bytes=0)
    log = filled(files, count, config=config)
    before = records(log)
    again = DiskFault(
        operation=fault.operation, path_part=fault.path_part, after=fault.after,
        error=fault.error, partial_bytes=fault.partial_bytes,
    )  # fmt: skip
    files.faults.append(again)
    try:
        append(log, batch(b"this may fail"), epoch=1)
    except OSError:
        assert log.end_offset == count
        assert records(log) == before
        assert log.epochs.latest == 0
    else:
        before = records(log)
    files.faults.clear()
    append(log, batch(b"s"), epoch=1)
    append(log, batch(b"second"), epoch=1)
    after = records(log)
    assert after[: len(before)] == before
    assert [record.value for record in after[-2:]] == [b"s", b"second"]
    assert log.epochs.at(Offset(log.end_offset - 1)) == 1
    killed = open_at(files.crash(keep_unsynced=True), config=config)
    assert records(killed) == after
    assert killed.epochs.at(Offset(killed.end_offset - 1)) == 1
    stop_cleanly(log)
    assert records(open_at(files, config=config, is_clean=True)) == after


def test_a_partial_write_is_gone_after_an_orderly_stop() -> None:
    """Otherwise the next start would append after unreadable bytes."""
    files = MemoryFiles()
    log = filled(files, 2)
    files.faults += [
        DiskFault(operation="write", path_part=".log", error=errno.ENOSPC, partial_bytes=50),
        DiskFault(operation="resize", path_part=".log"),
    ]
    with pytest.raises(OSError, match="space"):
        append_values(log, b"lost")
    files.faults.clear()
    assert len(files.content(path(0, ".log"))) == 2 * SIZE + 50
    stop_cleanly(log)
    log = open_at(files, is_clean=True)
    append_values(log, b"next")
    assert values(log) == [b"value 0", b"value 1", b"next"]


def test_a_full_disk_has_room_again() -> None:
    """ENOSPC by capacity; freed space is used at once."""
    files = MemoryFiles(capacity_bytes=700)
    log = filled(files, 3)
    with pytest.raises(OSError, match="space") as caught:
        append_values(log, b"x" * 300)
    assert caught.value.errno == errno.ENOSPC
    files.capacity_bytes = None
    append_values(log, b"y" * 300)
    assert values(log)[3:] == [b"y" * 300]


def test_a_failed_flush_is_never_tried_again() -> None:
    """A second fsync would report success for pages that the first one has dropped."""
    files = MemoryFiles()
    log = filled(files, 3)
    files.faults.append(DiskFault(operation="sync", path_part=".log"))
    with pytest.raises(OSError, match="error"):
        log.sync()
    files.faults.clear()
    with pytest.raises(OSError, match="restart the broker"):
        log.sync()
    assert log.positions.recovery_point == 0


def test_flushes_advance_the_recovery_point() -> None:
    """`sync_rolled` to the active segment's base, `sync` to the end; what is below survives."""
    files = MemoryFiles()
    log = filled(files, 12)
    log.sync_rolled()
    assert log.positions.recovery_point == bases(log)[-1]
    survived = open_at(files.crash(), checkpoints=(log.positions.recovery_point, 0))
    assert survived.end_offset >= bases(log)[-1]
    log.sync()
    assert log.positions.recovery_point == 12
    assert open_at(files.crash()).end_offset == 12


def test_epochs_are_noted_once_each() -> None:
    """Each has the offset it begins at, and an older epoch does not come back."""
    files = MemoryFiles()
    log = open_at(files)
    for epoch in (0, 0, 3, 3, 7):
        append(log, batch(), epoch=epoch)
    log.sync()
    assert files.content(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n3\n0 0\n3 2\n7 4\n"
    assert [log.epochs.at(Offset(offset)) for offset in range(6)] == [0, 0, 3, 3, 7, 7]
    assert log.epochs.latest == 7
    assert [each.leader_epoch for each in log.batches(0)] == [0, 0, 3, 3, 7]


def test_an_epoch_without_a_record_is_forgotten() -> None:
    """Two epochs never begin at the same offset, as Kafka demands of the file."""
    files = MemoryFiles()
    log = open_at(files)
    log.epochs.assign(LeaderEpoch(1), Offset(0))
    log.epochs.assign(LeaderEpoch(2), Offset(0))
    log.epochs.save()
    assert files.content(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n1\n2 0\n"


def test_a_partial_write_is_cut_at_once() -> None:
    """Otherwise its rest could pass for a batch after a shorter one that comes next."""
    files = MemoryFiles()
    log = filled(files, 2)
    files.faults.append(DiskFault(operation="write", path_part=".log", partial_bytes=70))
    with pytest.raises(OSError, match="error"):
        append_values(log, b"lost")
    assert len(files.content(path(0, ".log"))) == log.size == 2 * SIZE


def test_a_roll_that_failed_is_made_up_before_the_next_append() -> None:
    """The new segment's file may be there already, so the old one must not outgrow its base."""
    files = MemoryFiles()
    log = filled(files, 2)
    files.faults.append(DiskFault(operation="open", path_part=".index"))
    with pytest.raises(OSError, match="error"):
        append_values(log, b"x" * 500)
    files.faults.clear()
    append_values(log, b"small")
    assert bases(log) == [0, 2]
    killed = open_at(files.crash(keep_unsynced=True))
    assert values(killed) == [b"value 0", b"value 1", b"small"]


def sequenced(sequence: int, *contents: bytes, epoch: int = 0, timestamp: int = NOW) -> bytearray:
    """A batch of idempotent producer 7."""
    return batch(
        *contents,
        timestamps=[timestamp] * len(contents),
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_a_batch_sent_again_is_in_the_log_once(timestamp_type: str) -> None:
    """The answer has the offsets and the time of the first; the disk is not touched."""
    files = MemoryFiles()
    log = open_at(files, config=settings(message_timestamp_type=timestamp_type))
    append_values(log, b"other")
    first = append(log, sequenced(0, b"a", b"b"), now_ms=NOW + 5)
    append(log, sequenced(2, b"c"), now_ms=NOW + 6)
    operations, epoch = len(files.operations), log.epochs.latest
    again = append(log, sequenced(0, b"a", b"b"), now_ms=NOW + 9, epoch=3)
    assert (
        (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset) == (1, 2)
    )
    assert again.log_append_time == (NOW if timestamp_type == "CreateTime" else NOW + 5)
    assert (len(files.operations), log.epochs.latest) == (operations, epoch)
    assert values(log) == [b"other", b"a", b"b", b"c"]


def test_batches_sent_again_after_an_orderly_stop_are_in_the_log_once() -> None:
    """A client whose last requests were not answered before the stop sends all of them again."""
    files = MemoryFiles()
    log = open_at(files)
    for number in range(5):
        append(log, sequenced(number, b"value"))
    stop_cleanly(log)
    log = open_at(files, is_clean=True, checkpoints=(5, 0))
    offsets = [append(log, sequenced(number, b"value")).base_offset for number in range(6)]
    assert offsets == [0, 1, 2, 3, 4, 5]
    assert values(log) == [b"value"] * 6


def test_a_batch_sent_again_does_not_roll() -> None:
    """A duplicate does not roll the segment, even where a new batch of its size would."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=2 * SIZE))
    for number in range(2):
        append(log, sequenced(number, b"value 0"))
    append(log, sequenced(1, b"value 0"))
    assert bases(log) == [0]
    append(log, sequenced(2, b"value 0"))
    assert bases(log) == [0, 2]


def test_a_refused_or_failed_batch_leaves_no_trace_in_the_sequence() -> None:
    """After a gap, an old epoch and a full disk the next number is what it was."""
    files = MemoryFiles()
    log = open_at(files)
    append(log, sequenced(0, b"a", epoch=1))
    with pytest.raises(ProducerSequenceError):
        append(log, sequenced(2, b"gap", epoch=1))
    with pytest.raises(InvalidProducerEpochError):
        append(log, sequenced(0, b"old"))
    files.faults.append(DiskFault(operation="write", path_part=".log"))
    with pytest.raises(OSError, match="error"):
        append(log, sequenced(1, b"failed", epoch=1))
    files.faults.clear()
    append(log, sequenced(1, b"b", epoch=1))
    assert values(log) == [b"a", b"b"]


def test_snapshots_are_written_at_each_roll_and_at_the_end() -> None:
    """Named after the offset that comes next; an empty log has none."""
    files = MemoryFiles()
    stop_cleanly(open_at(files))
    assert not [name for name in files.list(FOLDER) if name.endswith(".snapshot")]
    log = open_at(files)
    for number in range(3):
        append(log, sequenced(number, b"v"))
    log.roll()
    assert decode_snapshot(files.content(path(3, ".snapshot")))[ProducerId(7)].last_sequence == 2
    append(log, sequenced(3, b"v"))
    stop_cleanly(log)
    assert decode_snapshot(files.content(path(4, ".snapshot")))[ProducerId(7)].last_sequence == 3


def test_a_snapshot_that_cannot_be_written_keeps_the_log_from_rolling() -> None:
    """Its content may be in segments that retention deletes; the next append tries again."""
    files = MemoryFiles()
    log = open_at(files)
    append(log, sequenced(0, b"a"))
    files.faults.append(DiskFault(operation="write", path_part=".snapshot"))
    with pytest.raises(OSError, match="error"):
        log.roll()
    with pytest.raises(OSError, match="error"):
        append(log, sequenced(1, b"b"))
    assert (len(log.segments), log.end_offset) == (1, 1)
    files.faults.clear()
    assert append(log, sequenced(1, b"b")).base_offset == 1
    assert bases(log) == [0, 1]


def test_idle_producers_are_forgotten() -> None:
    """A day after their last batch, by the broker's clock; any sequence is good then."""
    log = open_at(MemoryFiles())
    append(log, sequenced(0, b"value 0"))
    later = NOW + DAY_MS
    log.producers.expire(later - 1)
    assert len(log.producers) == 1
    log.producers.expire(later)
    assert len(log.producers) == 0
    assert append(log, sequenced(5, b"v"), now_ms=later).base_offset == 1
