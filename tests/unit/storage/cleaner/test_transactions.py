"""Transactions and idempotent producers: what compaction must not forget, and for how long."""

import pytest

from tailrace.model import Offset
from tailrace.records.batch import read_batches
from tailrace.records.builder import BatchBuilder
from tailrace.records.control import ControlType, EndTransactionMarker
from tailrace.storage.producers import open_producers
from tailrace.storage.segments import Segments
from tests.unit.storage.cleaner.shelves import (
    FOLDER,
    LATER,
    NOW,
    RETENTION_MS,
    Shelf,
    last_sequences,
)
from tests.unit.storage.producer_builders import (
    aborted_txn,
)

pytestmark = pytest.mark.usefixtures("engine")

ABORTED = [aborted_txn(1, 8, 10, 11), aborted_txn(2, 11, 16, 17)]


def in_two_passes(shelf: Shelf, first_dirty: int, now_ms: int = NOW) -> int:
    """Cleans once to set horizons and once when they have passed; where the last round ended."""
    end = shelf.clean(first_dirty, now_ms=now_ms).end
    return max(end, shelf.clean(end, now_ms=now_ms + RETENTION_MS).end)


def test_data_of_an_aborted_transaction_goes_and_its_marker_stays() -> None:
    """Committed records stay, as do both markers and the entry of the transaction index."""
    shelf = Shelf()
    shelf.append_transaction(1, 1, 2)
    shelf.append_transaction(2, 2, 3)
    shelf.append_transaction(1, 3, 4)
    shelf.abort(1)
    shelf.commit(2)
    shelf.append_transaction(1, 2)
    shelf.commit(1)
    aborted = shelf.aborted()
    shelf.roll()
    shelf.clean()
    assert shelf.keys() == [3, 2]
    assert [record.offset for record in shelf.records()] == [3, 8]
    assert shelf.offsets() == [3, 6, 7, 8, 9]
    assert aborted
    assert shelf.aborted() == aborted


def test_aborted_transactions_are_known_while_a_map_takes_several_rounds() -> None:
    """The index keeps an entry as long as the pass has met data of it, and no longer."""
    shelf = Shelf()
    shelf.append_transaction(1, 1, 2)
    shelf.append_transaction(2, 2, 3)
    shelf.append_transaction(1, 3, 4)
    shelf.commit(1)
    shelf.commit(2)
    shelf.append_transaction(1, 2, 3)
    shelf.abort(1)
    shelf.append_transaction(2, 4, 5)
    shelf.append_transaction(1, 5, 6)
    shelf.commit(1)
    shelf.abort(2)
    shelf.append_transaction(2, 6, 7)
    shelf.commit(2)
    shelf.roll()
    assert shelf.aborted() == ABORTED
    # Room for three keys; Kafka's map ends at a whole batch, this one at a record.
    first = shelf.clean(0, map_bytes=128)
    assert first.end == 5
    assert [batch.base_offset for batch in shelf.batches()] == [
        0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19,
    ]  # fmt: skip
    assert shelf.offsets() == [0, 2, 4, 5, 6, 7, 10, 13, 14, 15, 16, 17, 18, 19]
    assert shelf.aborted() == ABORTED
    second = shelf.clean(first.end, map_bytes=128)
    assert second.end > first.end
    assert {10, 16} <= set(shelf.offsets())
    assert shelf.aborted() == []
    dirty = second.end
    while dirty < 20:
        dirty = shelf.clean(dirty, now_ms=LATER, map_bytes=128).end
    assert not {10, 16} & set(shelf.offsets())
    assert [batch.base_offset for batch in shelf.batches()] == [0, 2, 4, 6, 7, 13, 15, 17, 19]
    assert shelf.aborted() == []


def test_aborted_data_goes_from_segments_before_that_of_its_marker() -> None:
    """The markers of aborted data may stand in later segments, even in the active one."""
    shelf = Shelf()
    shelf.append_transaction(1, 1, 2)
    shelf.append_transaction(3, 2, 3)
    shelf.append_transaction(2, 3, 4)
    shelf.roll()
    shelf.append_transaction(2, 5, 6)
    shelf.append_transaction(3, 6, 7)
    shelf.append_transaction(1, 7, 8)
    shelf.abort(2)
    shelf.append_transaction(3, 8, 9)
    shelf.commit(3)
    shelf.append_transaction(1, 9, 10)
    shelf.abort(1)
    dirty = shelf.clean(0).end
    assert shelf.keys() == [2, 3, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10]
    shelf.roll()
    shelf.append_transaction(2, 11)
    shelf.append_transaction(1, 12)
    shelf.clean(dirty)
    assert shelf.keys() == [2, 3, 6, 7, 8, 9, 11, 12]


def test_a_commit_marker_stays_until_its_data_is_gone_and_the_horizon_has_passed() -> None:
    """First the data goes, then a horizon is set, and only then the marker goes."""
    shelf = Shelf()
    shelf.append_transaction(1, 1)
    shelf.append_transaction(1, 2, 3)
    shelf.commit(1)
    shelf.append_transaction(1, 2)
    shelf.commit(1)
    shelf.roll()
    dirty = shelf.clean(0).end
    assert shelf.keys() == [1, 3, 2]
    assert shelf.offsets() == [0, 2, 3, 4, 5]
    shelf.append_transaction(1, 1, 3)
    shelf.commit(1)
    shelf.roll()
    dirty = shelf.clean(dirty).end
    assert shelf.keys() == [2, 1, 3]
    assert shelf.offsets() == [3, 4, 5, 6, 7, 8]
    dirty = shelf.clean(dirty).end
    marker = next(batch for batch in shelf.batches() if batch.base_offset == 3)
    assert marker.delete_horizon_or_none == NOW + RETENTION_MS
    shelf.clean(dirty, now_ms=LATER - 1)
    assert 3 in shelf.offsets()
    shelf.clean(dirty, now_ms=LATER)
    assert shelf.offsets() == [4, 5, 6, 7, 8]


def test_a_batch_of_which_nothing_is_read_does_not_stop_the_pass() -> None:
    """Batches that go unread count as read, and the pass goes on behind them."""
    shelf = Shelf()
    shelf.append_transaction(1, 1)
    shelf.abort(1)
    shelf.append_transaction(1, 2)
    shelf.append_transaction(1, 2)
    shelf.commit(1)
    shelf.roll()
    size = sum(shelf.sizes())
    cleaned = shelf.clean(0)
    assert cleaned.statistics.bytes_read == size
    assert cleaned.statistics.records_read == 4
    assert shelf.keys() == [2]
    assert shelf.offsets() == [1, 3, 4]
    in_two_passes(shelf, 0)
    assert shelf.keys() == [2]
    assert shelf.offsets() == [3, 4]


def test_a_commit_marker_stays_behind_an_empty_batch_of_its_producer() -> None:
    """The header that keeps a sequence number counts as data of the transaction."""
    shelf = Shelf()
    shelf.append_transaction(1, 2, 3)
    shelf.roll()
    shelf.append_transaction(2, 2, 3)
    shelf.commit(2)
    shelf.roll()
    shelf.append_keys(2)
    shelf.append_keys(3)
    shelf.commit(1)
    shelf.roll()
    dirty = 0
    for _ in range(2):
        dirty = shelf.clean(dirty, now_ms=LATER).end
        assert shelf.keys() == [2, 3]
        assert shelf.offsets() == [4, 5, 6, 7]
        assert shelf.last_offsets() == [1, 3, 4, 5, 6, 7]
    shelf.append_transaction(2, 1)
    shelf.commit(2)
    shelf.roll()
    dirty = shelf.clean(dirty, now_ms=LATER).end
    assert shelf.keys() == [2, 3, 1]
    assert shelf.offsets() == [4, 5, 6, 7, 8, 9]
    assert shelf.last_offsets() == [1, 4, 5, 6, 7, 8, 9]
    in_two_passes(shelf, dirty, LATER)
    assert shelf.offsets() == [5, 6, 7, 8, 9]
    assert shelf.last_offsets() == [1, 5, 6, 7, 8, 9]


def test_an_empty_control_batch_is_kept_for_its_epoch_and_harms_nobody() -> None:
    """A producer of which only a marker is left keeps its epoch in a header, through every pass."""
    shelf = Shelf()
    shelf.commit(1)
    shelf.append_keys(2)
    shelf.append_keys(3)
    shelf.roll()
    dirty = in_two_passes(shelf, 0)
    for _ in range(2):
        assert shelf.keys() == [2, 3]
        assert shelf.offsets() == [1, 2]
        assert shelf.last_offsets() == [0, 1, 2]
        assert shelf.batches()[0].record_count == 0
        shelf.clean(dirty, now_ms=2**62)


def test_a_committed_transaction_across_segments_stays() -> None:
    """Neither the record nor the marker in the next segment goes."""
    shelf = Shelf()
    shelf.append_transaction(1, 1)
    shelf.roll()
    shelf.commit(1)
    shelf.roll()
    in_two_passes(shelf, 0)
    assert shelf.offsets() == [0, 1]
    assert shelf.last_offsets() == [0, 1]


def test_an_aborted_transaction_across_segments_leaves_header_and_marker() -> None:
    """The producer's last batch stays as a header, and the marker for as long as that is there."""
    shelf = Shelf(segment_bytes=1024)
    shelf.append_transaction(1, 1)
    shelf.roll()
    shelf.abort(1)
    shelf.roll()
    for now_ms in (NOW, 2**62):
        shelf.clean(0, now_ms=now_ms)
        assert shelf.offsets() == [1]
        assert shelf.last_offsets() == [0, 1]


def test_an_abort_marker_goes_once_its_horizon_has_passed() -> None:
    """After the aborted data the marker gets a horizon, and goes with the pass behind it."""
    shelf = Shelf()
    shelf.append_transaction(1, 1)
    shelf.append_transaction(1, 2, 3)
    shelf.abort(1)
    shelf.append_transaction(1, 3)
    shelf.commit(1)
    shelf.roll()
    dirty = shelf.clean(0).end
    assert shelf.keys() == [3]
    assert shelf.offsets() == [3, 4, 5]
    in_two_passes(shelf, dirty)
    assert shelf.keys() == [3]
    assert shelf.offsets() == [4, 5]


def test_a_producer_that_begins_at_sequence_0_again_leaves_one_empty_batch() -> None:
    """Which batch is the last is decided by offsets, as coordinators use the same sequence."""
    shelf = Shelf()
    shelf.append_transaction(1, 1)
    shelf.commit(1)
    shelf.append_transaction(1, 2)
    shelf.commit(1)
    shelf.append_keys(1)
    shelf.append_keys(2)
    shelf.roll()
    shelf.clean(0)
    assert shelf.offsets() == [1, 3, 4, 5]
    assert shelf.last_offsets() == [1, 2, 3, 4, 5]
    in_two_passes(shelf, 0)
    assert shelf.offsets() == [3, 4, 5]
    assert shelf.last_offsets() == [2, 3, 4, 5]


def test_an_abort_marker_stays_behind_an_empty_batch_until_the_producer_writes_again() -> None:
    """Marker and index entry last as long as the header, and one pass longer."""
    shelf = Shelf()
    shelf.append_transaction(1, 2, 3)
    shelf.abort(1)
    shelf.roll()
    indexed = [aborted_txn(1, 0, 2, 3)]
    dirty = shelf.clean(0).end
    for now_ms in (NOW, LATER):
        assert shelf.aborted() == indexed
        assert shelf.keys() == []
        assert shelf.offsets() == [2]
        assert shelf.last_offsets() == [1, 2]
        shelf.clean(dirty, now_ms=now_ms)
    shelf.append_transaction(1, 1)
    shelf.roll()
    dirty = shelf.clean(dirty, now_ms=LATER).end
    assert shelf.aborted() == indexed
    assert shelf.keys() == [1]
    assert shelf.offsets() == [2, 3]
    assert shelf.last_offsets() == [2, 3]
    in_two_passes(shelf, dirty, LATER)
    assert shelf.offsets() == [3]
    assert shelf.last_offsets() == [3]
    assert shelf.aborted() == []


def test_the_last_batch_of_every_producer_stays() -> None:
    """Sequence numbers outlive the records: a header is left where no record is."""
    shelf = Shelf()
    shelf.append_keys(0)
    shelf.append_keys(0, producer_id=1)
    shelf.append_keys(0, producer_id=2)
    shelf.append_keys(0, producer_id=3)
    shelf.append_keys(1, producer_id=2)
    shelf.roll()
    shelf.clean()
    assert shelf.last_offsets() == [1, 3, 4]
    assert last_sequences(shelf) == {1: 0, 2: 1, 3: 0}
    assert shelf.keys() == [0, 1]
    assert shelf.offsets() == [3, 4]


def test_a_producer_that_is_forgotten_leaves_no_header() -> None:
    """Once a producer is not active any more its batches go like any other."""
    shelf = Shelf()
    shelf.append_keys(0, producer_id=1)
    shelf.append_keys(0)
    shelf.roll()
    shelf.clean()
    assert shelf.last_offsets() == [0, 1]
    shelf.clean(producers={})
    assert shelf.last_offsets() == [1]


def test_the_last_sequence_stays_even_if_its_transaction_was_aborted() -> None:
    """The header goes when the producer has written again."""
    shelf = Shelf()
    shelf.append_transaction(1, 1)
    shelf.append_transaction(1, 2, 3)
    shelf.abort(1)
    shelf.roll()
    shelf.clean(0)
    assert shelf.last_offsets() == [2, 3]
    assert last_sequences(shelf) == {1: 2}
    assert shelf.keys() == []
    assert shelf.offsets() == [3]
    shelf.append_transaction(1, 1, 5)
    shelf.roll()
    shelf.clean(0)
    assert shelf.last_offsets() == [3, 5]
    assert last_sequences(shelf) == {1: 4}
    assert shelf.keys() == [1, 5]
    assert shelf.offsets() == [3, 4, 5]


def test_a_record_with_the_key_of_a_marker_does_not_take_the_marker() -> None:
    """Markers have no part in the map, whatever bytes a producer uses as its key."""
    shelf = Shelf()
    shelf.append_transaction(1, 1)
    shelf.commit(1)
    key = EndTransactionMarker(type=ControlType.COMMIT, coordinator_epoch=0).key
    shelf.append((key, b"foo"), producer_id=2, is_transactional=True)
    shelf.commit(2)
    shelf.roll()
    shelf.clean()
    assert shelf.last_offsets() == [0, 1, 2, 3]
    assert shelf.offsets() == [0, 1, 2, 3]


def test_control_records_that_end_nothing_stay() -> None:
    """A record of the cluster's own, such as a change of leader, is no marker and never goes."""
    shelf = Shelf()
    builder = BatchBuilder(is_control=True)
    builder.append(b"\x00\x00\x00\x02", b"leader", timestamp=NOW)
    shelf.write(builder.build(), 1, max_timestamp=NOW)
    shelf.append_keys(1)
    shelf.roll()
    in_two_passes(shelf, 0)
    assert shelf.last_offsets() == [0, 1]


def repeated(shelf: Shelf, producer_id: int, count: int) -> tuple[int, int] | None:
    """Offsets of the batch that a producer's first batch, sent once more, repeats after a start."""
    producers = open_producers(
        shelf.files,
        FOLDER,
        segments=Segments(shelf.segments),
        log_start=Offset(0),
        log_end=Offset(shelf.end),
    )
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=0)
    for _ in range(count):
        builder.append(b"key", b"value", timestamp=NOW)
    [(_, batch)] = read_batches(memoryview(builder.build()))
    known = producers.check(batch)
    return None if known is None else (known.last_offset - count + 1, known.last_offset)


def test_a_duplicate_is_known_after_cleaning_and_a_start() -> None:
    """Offsets and sequences of each producer's last batch outlive its records."""
    shelf = Shelf()
    shelf.append_keys(1, 2, 3, producer_id=1)
    shelf.append_keys(3, 1, 4, producer_id=2)
    shelf.append_keys(1, 4, producer_id=3)
    shelf.roll()
    shelf.clean()
    assert shelf.last_offsets() == [2, 5, 7]
    assert last_sequences(shelf) == {1: 2, 2: 2, 3: 1}
    assert shelf.keys() == [2, 3, 1, 4]
    assert shelf.offsets() == [1, 3, 6, 7]
    assert repeated(shelf, 1, 3) == (0, 2)
    assert repeated(shelf, 3, 2) == (6, 7)
    assert repeated(shelf, 2, 3) == (3, 5)
    shelf.append_keys(2, producer_id=4)
    shelf.roll()
    shelf.clean()
    assert last_sequences(shelf) == {1: 2, 2: 2, 3: 1, 4: 0}
    assert shelf.last_offsets() == [2, 5, 7, 8]
    assert shelf.keys() == [3, 1, 4, 2]
    assert shelf.offsets() == [3, 6, 7, 8]
    assert repeated(shelf, 1, 3) == (0, 2)
