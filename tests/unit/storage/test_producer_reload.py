"""The producers after a start or a cut: the newest sound snapshot, and the batches behind it."""

from collections.abc import Callable

import crc32c
import pytest

from tailrace.model import Offset, ProducerId
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.storage.producers import (
    InvalidProducerEpochError,
    KnownProducer,
    ProducerSequenceError,
    ProducerStates,
    open_producers,
)
from tailrace.storage.segments import Segments
from tailrace.storage.snapshots import encode_snapshot
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import FOLDER, NOW, batch, flip, path
from tests.unit.storage.producer_builders import (
    ABORT,
    COMMIT,
    append,
    control,
    folder,
    known_batch,
    known_producer,
    known_producers,
    marker,
    note,
    producer,
    reload,
    reloaded,
    segments,
    sent,
    snapshots,
    states,
    unstable,
    write,
)


def in_transaction(sequence: int = 0, **options: int) -> Batch:
    """A transactional batch."""
    return sent(sequence, is_transactional=True, **options)


def put(
    files: MemoryFiles, offset: int, producers: dict[ProducerId, KnownProducer] | None = None
) -> None:
    """Put a snapshot into the folder."""
    file = files.open(path(offset, ".snapshot"), create=True)
    file.write(0, encode_snapshot(producers or {}))


def started(
    files: MemoryFiles, found: Segments, *, log_end: int, log_start: int = 0
) -> ProducerStates:
    """The state at a start, from plain numbers."""
    return open_producers(
        files, FOLDER, segments=found, log_start=Offset(log_start), log_end=Offset(log_end)
    )


def opened(files: MemoryFiles, *batches: Batch) -> ProducerStates:
    """The state of a log with one segment of these batches, from offset 0 on."""
    found = segments(files)
    log_end = write(found.active, *batches, offset=0)
    return started(files, found, log_end=log_end)


def test_an_open_transaction_goes_on_after_a_start() -> None:
    """The snapshot has the transaction's start and the last of its batches."""
    files = folder()
    before = states(files)
    append(before, in_transaction(0), 0)
    append(before, in_transaction(1), 1)
    before.write_snapshot(Offset(2))
    known = reloaded(files, log_end=3)
    (only,) = producer(known).batches
    assert (only.first_sequence, only.last_sequence) == (1, 1)
    assert (only.base_offset, only.last_offset) == (1, 1)
    assert producer(known).transaction_start == 0
    assert unstable(known) == 0
    append(known, in_transaction(2), 2)


def test_an_ended_transaction_has_ended_after_a_start() -> None:
    """The snapshot has no transaction, and the last of its batches."""
    files = folder()
    before = states(files)
    append(before, in_transaction(0), 0)
    append(before, in_transaction(1), 1)
    append(before, marker(ABORT), 2)
    before.write_snapshot(Offset(3))
    known = reloaded(files, log_end=3)
    (only,) = producer(known).batches
    assert (only.first_sequence, only.last_sequence) == (1, 1)
    assert (only.base_offset, only.last_offset) == (1, 1)
    assert not producer(known).has_open_transaction
    assert unstable(known) is None


def test_a_marker_alone_is_known_after_a_start() -> None:
    """Its time, and that no transaction is open."""
    files = folder()
    before = states(files)
    append(before, marker(ABORT), 0, timestamp=NOW + 3)
    before.write_snapshot(Offset(1))
    known = reloaded(files, log_end=1)
    assert producer(known).timestamp == NOW + 3
    assert not producer(known).has_open_transaction


def test_all_producers_of_a_snapshot_are_known() -> None:
    """Each producer has its own last batch."""
    files = folder()
    before = states(files)
    append(before, sent(0, producer_id=1), 0)
    append(before, sent(0, producer_id=2), 1)
    before.write_snapshot(Offset(2))
    reload(before, segments(files), log_start=1, log_end=2)
    assert len(before) == 2
    for producer_id in (1, 2):
        found = producer(before, producer_id)
        assert (found.last_sequence, found.last_offset) == (0, producer_id - 1)


def test_snapshots_outside_of_the_log_are_removed() -> None:
    """A reload removes snapshots behind the log's end, and those that are not behind its start."""
    files = folder()
    known = states(files)
    for sequence in range(5):
        append(known, sent(sequence), sequence)
        known.write_snapshot(Offset(sequence + 1))
    reload(known, segments(files, *range(5)), log_start=1, log_end=3)
    assert snapshots(files) == [2, 3]
    assert known.snapshots.paths == [path(2, ".snapshot"), path(3, ".snapshot")]


def test_a_snapshot_behind_the_log_end_is_gone_for_good() -> None:
    """Its offsets will be given out again, so it must not be back after a crash."""
    files = folder()
    put(files, 9)
    for directory in (FOLDER, FOLDER.rpartition("/")[0], "."):
        files.sync_directory(directory)
    reloaded(files, log_end=8)
    assert snapshots(files.crash()) == []


def test_the_newest_snapshot_stays_without_a_segment_of_its_offset() -> None:
    """An orderly stop has left it; older ones need a segment."""
    files = folder()
    for offset in (5, 2, 42):
        put(files, offset)
    known = reloaded(files, 5, log_end=42)
    assert snapshots(files) == [5, 42]
    assert known.snapshots.paths == [path(5, ".snapshot"), path(42, ".snapshot")]


def test_the_last_two_segments_get_snapshots_when_a_replay_comes_by() -> None:
    """A later cut of the tail needs only a short replay then, as in Kafka."""
    files = folder()
    put(files, 5)
    known = reloaded(files, 5, 20, 42, 50, log_end=60)
    assert snapshots(files) == [5, 42, 50]
    assert known.snapshots.paths == [path(each, ".snapshot") for each in (5, 42, 50)]


def test_snapshots_without_a_segment_are_removed() -> None:
    """A snapshot is removed if its segment is gone and a newer snapshot counts."""
    files = folder()
    for offset in (5, 2, 42):
        put(files, offset)
    reloaded(files, 42, log_end=42)
    assert snapshots(files) == [42]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: data[:0],
    "cut": lambda data: data[: len(data) // 2],
    "overwritten": lambda data: bytes(37) + data[37:],
    "one bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_snapshot_is_removed_and_an_older_one_serves(damage: str) -> None:
    """The operator is told why."""
    files = folder()
    before = states(files)
    for sequence in range(2):
        append(before, sent(sequence), sequence)
        before.write_snapshot(Offset(sequence + 1))
    newest = path(2, ".snapshot")
    files.overwrite(newest, DAMAGE[damage](files.content(newest)))
    known = reloaded(files, 0, 1, log_end=20)
    assert not files.exists(newest)
    assert producer(known).last_offset == 0


@pytest.mark.parametrize(
    "producers",
    [
        known_producers({7: known_producer(0, (known_batch(0, 20, 0, NOW),), NOW)}),
        known_producers({7: known_producer(0, (), NOW, 0, 20)}),
        known_producers({7: known_producer(0, (), NOW, 0, 5), 8: known_producer(0, (), NOW, 0, 5)}),
    ],
)
def test_a_snapshot_that_cannot_be_of_its_offset_is_removed(
    producers: dict[ProducerId, KnownProducer],
) -> None:
    """It knows of offsets that come later, or of two transactions that begin at one offset."""
    files = folder()
    put(files, 20, producers)
    known = reloaded(files, log_end=20)
    assert len(known) == 0
    assert snapshots(files) == []


def test_the_first_unstable_offset_after_a_cut() -> None:
    """A cut behind the marker leaves none; one before it leaves the transaction's start."""
    files = folder()
    known = states(files)
    append(known, in_transaction(0), 99)
    assert unstable(known) == 99
    known.write_snapshot(Offset(100))
    append(known, marker(COMMIT), 105)
    known.advance_high_watermark(Offset(106))
    assert unstable(known) is None
    known.write_snapshot(Offset(106))
    append(known, sent(1), 106)
    reload(known, segments(files, 0, 100), log_start=0, log_end=106)
    assert unstable(known) is None
    reload(known, segments(files, 0, 100), log_start=0, log_end=100)
    assert unstable(known) == 99


def test_the_oldest_transaction_of_a_snapshot_counts() -> None:
    """Whichever of the producers was known first."""
    files = folder()
    before = states(files)
    append(before, sent(0), 0)
    append(before, in_transaction(producer_id=8), 1)
    append(before, in_transaction(1), 2)
    before.write_snapshot(Offset(3))
    known = reloaded(files, log_end=3)
    assert unstable(known) == 1
    append(known, marker(producer_id=8), 3)
    known.advance_high_watermark(Offset(4))
    assert unstable(known) == 2


@pytest.mark.parametrize("is_partial", [True, False])
def test_a_transaction_that_is_cut_off_holds_nobody_up(*, is_partial: bool) -> None:
    """A transaction that was truncated, or not replicated, does not hold back readers."""
    files = folder()
    known = states(files)
    append(known, in_transaction(), 5)
    append(known, marker(), 6)
    assert unstable(known) == 5
    if is_partial:
        reload(known, segments(files), log_start=0, log_end=5)
    else:
        known.truncate_fully(Offset(5))
    assert unstable(known) is None


BATCHES = (
    sent(0, count=3),
    in_transaction(0, producer_id=8, count=2),
    in_transaction(3),
    Batch(memoryview(batch(b"of nobody"))),
    marker(ABORT, producer_id=8, coordinator_epoch=4),
    in_transaction(0, producer_id=9),
    marker(COMMIT),
    sent(4, count=2),
    in_transaction(2, producer_id=8),
)


def test_a_replay_gives_what_the_appends_gave() -> None:
    """Producers, open transactions and those that are not replicated."""
    known = states()
    offset = 0
    for each in BATCHES:
        following = offset + each.record_count
        if each.has_producer:
            note(known, each, offset=offset, now_ms=-1)
        offset = following
    replayed = opened(folder(), *BATCHES)
    for producer_id in (7, 8, 9):
        assert replayed.get(ProducerId(producer_id)) == known.get(ProducerId(producer_id))
    for high_watermark in (0, 8, 9, 10, 11, 14):
        for each_state in (known, replayed):
            each_state.advance_high_watermark(Offset(high_watermark))
        assert unstable(replayed) == unstable(known)
    assert unstable(replayed) == 8


def test_a_replay_goes_on_from_a_snapshot() -> None:
    """A marker behind it ends the transaction that the snapshot has as open."""
    files = folder()
    found = segments(files, 0, 2)
    first, second = found
    write(first, sent(0, producer_id=9), in_transaction(1), offset=0)
    write(second, marker(ABORT), sent(2), offset=2)
    put(files, 2, known_producers({7: known_producer(0, (known_batch(1, 1, 0, NOW),), NOW, -1, 1)}))
    known = started(files, found, log_end=4)
    assert known.get(ProducerId(9)) is None
    assert unstable(known) == 1
    known.advance_high_watermark(Offset(3))
    assert unstable(known) is None
    assert [each.last_sequence for each in producer(known).batches] == [1, 2]


def test_batches_without_records_count_by_their_headers() -> None:
    """Compaction keeps the last sequence of a producer by an empty batch."""
    full = sent(5, count=4)
    data = bytearray(full.view[: layout.HEADER_SIZE])
    layout.LENGTH.pack_into(data, layout.LENGTH_POSITION, len(data) - layout.LOG_OVERHEAD)
    data[layout.RECORD_COUNT_POSITION :] = bytes(4)
    known = opened(folder(), Batch(memoryview(data)))
    assert (producer(known).last_sequence, producer(known).last_offset) == (8, 3)
    assert producer(known).batches[0].first_sequence == 5


def test_a_replay_checks_no_sequences() -> None:
    """Compaction leaves gaps, and the log is what counts."""
    known = opened(folder(), sent(5), sent(90), sent(3, epoch=2), sent(1, epoch=1))
    assert (producer(known).epoch, producer(known).last_sequence) == (1, 1)


def test_a_log_start_within_a_batch_takes_the_batch_whole() -> None:
    """Its producer goes on behind it."""
    files = folder()
    found = segments(files)
    write(found.active, sent(0, count=3), sent(3, count=5), offset=0)
    known = started(files, found, log_start=5, log_end=8)
    (only,) = producer(known).batches
    assert (only.base_offset, only.last_offset) == (3, 7)


def test_a_damaged_marker_ends_the_replay_of_its_segment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its transaction stays open, so that no reader passes it; the next segment counts."""
    files = folder()
    found = segments(files, 0, 3)
    first, second = found
    write(first, in_transaction(0), marker(COMMIT), sent(1), offset=0)
    write(second, sent(0, producer_id=8), offset=3)
    flip(
        files, path(0, ".log"), in_transaction(0).size + marker(COMMIT).size - 2
    )  # the coordinator's epoch
    known = started(files, found, log_end=4)
    assert "producers_incomplete" in caplog.text
    assert unstable(known) == 0
    assert producer(known).last_sequence == 0
    assert producer(known, 8).last_sequence == 0


def test_markers_that_cannot_be_read_end_the_replay_of_their_segment() -> None:
    """Without an error: the log opens."""
    compressed = bytearray(control(b"\0\0\0\1", bytes(6)).view)
    compressed[layout.ATTRIBUTES_POSITION + 1] |= 7
    for broken in (control(b"\0", b""), with_crc(compressed)):
        known = opened(folder(), in_transaction(0), broken, sent(1))
        assert producer(known).last_sequence == 0
        assert unstable(known) == 0


def with_crc(data: bytearray) -> Batch:
    """The batch with a CRC that holds."""
    layout.CRC.pack_into(
        data, layout.CRC_POSITION, crc32c.crc32c(data[layout.ATTRIBUTES_POSITION :])
    )
    return Batch(memoryview(data))


def test_a_batch_of_offsets_that_are_not_due_ends_the_replay_of_its_segment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Below those before it, or behind the log end: its header is damaged."""
    for offset in (0, 9):
        files = folder()
        found = segments(files)
        write(found.active, sent(0), sent(1), sent(2), offset=0)
        data = bytearray(files.content(path(0, ".log")))
        layout.BASE_OFFSET.pack_into(data, 2 * sent(0).size, offset)
        files.overwrite(path(0, ".log"), bytes(data))
        known = started(files, found, log_end=3)
        assert producer(known).last_sequence == 1
        assert f"offsets {offset} to {offset} where 2 to 2 are due" in caplog.text
        caplog.clear()


def test_a_segment_behind_the_log_end_is_not_replayed(caplog: pytest.LogCaptureFixture) -> None:
    """It is empty, or about to go, and no damage."""
    files = folder()
    found = segments(files, 0, 2)
    first, second = found
    write(first, sent(0), sent(1), offset=0)
    write(second, sent(2), offset=2)
    known = started(files, found, log_end=2)
    assert producer(known).last_sequence == 1
    assert not caplog.records


def repeated_offset(known: ProducerStates, batch: Batch) -> int:
    """The offset of the batch of the log that this one repeats."""
    found = known.check(batch)
    assert found is not None
    return found.base_offset


def test_a_batch_before_the_snapshot_is_known_when_it_is_repeated() -> None:
    """After an orderly stop each of the last five batches is recognised, and no older one."""
    files = folder()
    found = segments(files, 0, 4)
    first, second = found
    sent_before = [sent(sequence) for sequence in range(7)]
    offset = write(first, *sent_before[:3], sent(0, producer_id=8), offset=0)
    write(second, *sent_before[3:], offset=offset)
    last = known_producer(0, (known_batch(6, 7, 0, NOW),), NOW)
    put(files, 8, known_producers({7: last}))
    known = started(files, found, log_end=8)
    assert [repeated_offset(known, each) for each in sent_before[2:]] == [2, 4, 5, 6, 7]
    with pytest.raises(ProducerSequenceError):
        known.check(sent_before[1])
    assert known.check(sent(7)) is None


def test_a_batch_of_an_older_epoch_before_the_snapshot_is_not_taken_for_a_repeated_one() -> None:
    """Only batches of the epoch in the snapshot are recalled."""
    files = folder()
    found = segments(files)
    write(found.active, sent(0), sent(1), sent(0, epoch=1), sent(1, epoch=1), offset=0)
    put(files, 4, known_producers({7: known_producer(1, (known_batch(1, 3, 0, NOW),), NOW)}))
    known = started(files, found, log_end=4)
    assert repeated_offset(known, sent(0, epoch=1)) == 2
    with pytest.raises(InvalidProducerEpochError):
        known.check(sent(1))


def test_damage_before_the_snapshot_only_keeps_older_batches_unknown() -> None:
    """A sequence that does not fit is refused, and the producer goes on."""
    files = folder()
    found = segments(files)
    write(found.active, sent(0), sent(1), sent(2), offset=0)
    put(files, 3, known_producers({7: known_producer(0, (known_batch(2, 2, 0, NOW),), NOW)}))
    flip(files, path(0, ".log"), layout.MAGIC_POSITION)
    known = started(files, found, log_end=3)
    with pytest.raises(ProducerSequenceError):
        known.check(sent(0))
    assert repeated_offset(known, sent(2)) == 2
    assert known.check(sent(3)) is None
