"""Transactions in one log: what opens and ends them, and how far they hold readers up."""

import struct

import pytest

from tailrace.model import AppendOrigin, Offset, ProducerId
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.records.checks import CorruptRecordError
from tailrace.storage.producers import (
    LATE_BUFFER_MS,
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    ProducerSequenceError,
    ProducerStates,
)
from tests.unit.storage.builders import NOW
from tests.unit.storage.producer_builders import (
    ABORT,
    COMMIT,
    append,
    completed_transaction,
    control,
    folder,
    marker,
    note,
    open_transaction,
    producer,
    reload,
    reloaded,
    segments,
    sent,
    states,
    unstable,
)

TRANSACTION_MS_MAX = 5 * 60 * 1000
LATE_MS = TRANSACTION_MS_MAX + LATE_BUFFER_MS


def in_transaction(sequence: int = 0, **options: int) -> Batch:
    """A transactional batch."""
    return sent(sequence, is_transactional=True, **options)


def emptied(batch: Batch) -> Batch:
    """Return the header that compaction leaves of a batch whose records have all gone."""
    data = bytearray(batch.view[: layout.HEADER_SIZE])
    layout.LENGTH.pack_into(data, layout.LENGTH_POSITION, len(data) - layout.LOG_OVERHEAD)
    struct.pack_into(">i", data, layout.RECORD_COUNT_POSITION, 0)
    return Batch(memoryview(data))


def late(known: ProducerStates, now_ms: int) -> list[int]:
    """The producers whose transactions are late."""
    found = known.late_transactions(now_ms, transaction_ms_max=TRANSACTION_MS_MAX)
    return [each.producer_id for each in found]


def test_a_transaction_runs_from_its_first_batch_to_the_marker() -> None:
    """The marker changes nothing of the batches that are known."""
    known = states()
    append(known, sent(0), 9)
    assert append(known, in_transaction(1, count=5), 16) is None
    assert producer(known).transaction_start == 16
    append(known, in_transaction(6, count=5), 26)
    before = producer(known)
    assert before.transaction_start == 16
    assert (before.batches[-2].first_sequence, before.last_sequence) == (1, 10)
    assert (before.batches[-2].base_offset, before.last_offset) == (16, 30)
    assert append(known, marker(COMMIT, coordinator_epoch=15), 40) == (7, 16, 40, False)
    assert producer(known).batches == before.batches
    assert producer(known).coordinator_epoch == 15
    assert not producer(known).has_open_transaction


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    """Clients and coordinators are refused; the error says where the transaction began."""
    known = states()
    append(known, in_transaction(), 5)
    for origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
        with pytest.raises(InvalidTransactionStateError, match="offset 5") as raised:
            known.check(sent(1), origin=origin)
        assert (raised.value.producer_id, raised.value.transaction_start) == (7, 5)


def test_a_batch_outside_of_the_open_transaction_is_taken_from_the_leader(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is told in the log, and the transaction stays open."""
    known = states()
    append(known, in_transaction(), 5)
    append(known, sent(1), 6, origin=AppendOrigin.REPLICATION)
    assert "without a transaction" in caplog.text
    assert producer(known).transaction_start == 5
    assert producer(known).last_sequence == 1


def test_a_transactional_batch_that_is_sent_again_is_known() -> None:
    """The batch is known in its transaction and after it."""
    known = states()
    first = in_transaction(count=2)
    append(known, first, 3)
    for _ in range(2):
        repeated = known.check(first)
        assert repeated is not None
        assert repeated.base_offset == 3
        append(known, marker(), 5)


def test_a_marker_of_a_newer_epoch_bumps_the_epoch() -> None:
    """The state of the old epoch is dropped; the new one begins at sequence 0."""
    known = states()
    append(known, sent(0), 0)
    assert append(known, marker(ABORT, epoch=1), 1) is None
    assert producer(known).epoch == 1
    assert not producer(known).has_open_transaction
    assert producer(known).batches == ()
    assert producer(known).last_sequence == -1
    append(known, sent(0, epoch=1), 2)
    assert producer(known).batches[0].first_sequence == 0


def test_after_a_bump_only_sequence_zero_is_taken() -> None:
    """Only sequence 0 is taken in the bumped epoch and in any after it."""
    known = states()
    append(known, in_transaction(0), 0)
    append(known, in_transaction(1), 1)
    append(known, marker(ABORT, epoch=1), 2)
    for epoch in (1, 2):
        with pytest.raises(ProducerSequenceError, match="where 0 is due"):
            known.check(in_transaction(2, epoch=epoch))
    append(known, in_transaction(0, epoch=1), 3)
    assert (producer(known).epoch, producer(known).last_sequence) == (1, 0)


def test_an_abort_that_fences_leaves_the_producer_known() -> None:
    """Without batches or a transaction, and for its full time: the epoch must stay fenced."""
    known = states()
    append(known, in_transaction(), 0)
    completed = append(known, marker(ABORT, epoch=1), 1)
    assert completed == completed_transaction(7, 0, 1, is_aborted=True)
    assert not producer(known).has_open_transaction
    assert producer(known).last_offset == -1
    known.expire(NOW)
    assert producer(known).epoch == 1


def test_a_marker_of_an_older_epoch_is_refused() -> None:
    """The transaction stays open."""
    known = states()
    append(known, in_transaction(epoch=5), 99)
    with pytest.raises(InvalidProducerEpochError, match="epoch 3, and the log has epoch 5"):
        known.check(marker(COMMIT, epoch=3), origin=AppendOrigin.COORDINATOR)
    assert unstable(known) == 99


def test_a_marker_of_an_older_coordinator_is_refused() -> None:
    """One of the same or a newer one is taken, also where no transaction is open."""
    known = states()
    append(known, in_transaction(epoch=5), 99)
    append(known, marker(epoch=5, coordinator_epoch=1), 100)
    assert producer(known).coordinator_epoch == 1
    assert append(known, marker(epoch=5, coordinator_epoch=1), 101) is None
    assert append(known, marker(epoch=5, coordinator_epoch=2), 102) is None
    with pytest.raises(
        CoordinatorFencedError, match="epoch 1, and the log has a marker of coordinator epoch 2"
    ) as raised:
        known.check(marker(epoch=5, coordinator_epoch=1), origin=AppendOrigin.COORDINATOR)
    error = raised.value
    assert (error.producer_id, error.epoch, error.known_epoch) == (7, 1, 2)


def test_an_older_coordinator_stays_fenced_after_a_start() -> None:
    """Its epoch is in the snapshot."""
    files = folder()
    before = states(files)
    append(before, in_transaction(), 99)
    append(before, marker(coordinator_epoch=1), 100)
    before.write_snapshot(Offset(101))
    known = reloaded(files, log_end=101)
    with pytest.raises(CoordinatorFencedError):
        known.check(marker(coordinator_epoch=0), origin=AppendOrigin.COORDINATOR)


def test_old_markers_from_the_leader_are_logged_and_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both of an old epoch and of an old coordinator; they end the transaction."""
    known = states()
    append(known, marker(epoch=5, coordinator_epoch=3), 98)
    append(known, in_transaction(epoch=5), 99)
    old = marker(ABORT, epoch=4, coordinator_epoch=2)
    completed = append(known, old, 100, origin=AppendOrigin.REPLICATION)
    assert completed == (7, 99, 100, True)
    assert "producer 7 sent epoch 4" in caplog.text
    assert "the coordinator of producer 7 sent a marker with epoch 2" in caplog.text
    assert (producer(known).epoch, producer(known).coordinator_epoch) == (4, 2)


def test_a_control_batch_that_compaction_has_emptied_says_nothing() -> None:
    """Its transaction has gone from the log as well; none is opened or ended by it."""
    known = states()
    empty = emptied(marker(producer_id=23))
    assert known.check(empty) is None
    assert append(known, empty, 15) is None
    assert known.get(ProducerId(23)) is None
    append(known, in_transaction(), 16)
    assert append(known, emptied(marker()), 17) is None
    assert unstable(known) == 16


def test_a_control_record_of_another_type_ends_nothing() -> None:
    """No other control record ends a transaction, even one of an undefined type."""
    known = states()
    append(known, in_transaction(), 0)
    before = producer(known)
    assert append(known, control(struct.pack(">hh", 0, 77), b""), 1) is None
    assert producer(known) == before


@pytest.mark.parametrize(
    ("key", "value"), [(None, b"\0" * 6), (b"\0", b"\0" * 6), (b"\0\0\0\1", None)]
)
def test_a_marker_that_cannot_be_read_is_refused(key: bytes | None, value: bytes | None) -> None:
    """The check and the note refuse it, and nothing has changed."""
    known = states()
    append(known, in_transaction(), 0)
    before = producer(known)
    broken = control(key, value)
    with pytest.raises(CorruptRecordError):
        known.check(broken, origin=AppendOrigin.COORDINATOR)
    with pytest.raises(CorruptRecordError):
        known.note(broken, base_offset=Offset(1), last_offset=Offset(1), timestamp=NOW)
    assert producer(known) == before


def test_the_first_unstable_offset_waits_for_markers_and_the_high_watermark() -> None:
    """An open transaction holds it, and so does an ended one that is not replicated."""
    known = states()
    assert unstable(known) is None
    append(known, in_transaction(epoch=5), 99)
    assert unstable(known) == 99
    append(known, in_transaction(epoch=5, producer_id=8), 105)
    assert unstable(known) == 99
    append(known, marker(COMMIT, epoch=5), 109)
    assert unstable(known) == 99
    for high_watermark, first in ((100, 99), (109, 99), (110, 105)):
        known.advance_high_watermark(Offset(high_watermark))
        assert unstable(known) == first
    append(known, marker(ABORT, epoch=5, producer_id=8), 112)
    assert unstable(known) == 105
    known.advance_high_watermark(Offset(113))
    assert unstable(known) is None


def test_transactions_that_end_in_any_order_are_passed_in_order_of_their_start() -> None:
    """One that ended later holds readers up as long as it began earlier."""
    known = states()
    for producer_id in (1, 2, 3):
        append(known, in_transaction(producer_id=producer_id), producer_id * 10)
    for offset, producer_id in ((40, 3), (41, 1), (42, 2)):
        append(known, marker(producer_id=producer_id), offset)
        assert unstable(known) == 10
    for high_watermark, first in ((41, 10), (42, 20), (43, None)):
        known.advance_high_watermark(Offset(high_watermark))
        assert unstable(known) == first


def test_the_last_stable_offset_of_an_ended_transaction() -> None:
    """The offset is the start of the oldest other transaction, or the one behind the marker."""
    known = states()
    first = 992342
    starts = {1: first, 2: first + 25, 3: first + 57}
    for producer_id, start in starts.items():
        note(known, in_transaction(producer_id=producer_id), offset=start)
    last = first + 72
    for producer_id, stable, first_unstable in (
        (1, starts[2], starts[2]),
        (3, starts[2], starts[2]),
        (2, None, None),
    ):
        completed = completed_transaction(producer_id, starts[producer_id], last, is_aborted=False)
        assert known.last_stable_offset(completed) == (stable or last + 1)
        known.complete(completed)
        known.advance_high_watermark(Offset(last + 1))
        assert unstable(known) == first_unstable
        last += 78


def test_markers_without_records_complete_nothing() -> None:
    """Between two transactions and after them; readers wait for those with records only."""
    known = states()
    append(known, in_transaction(0, count=5), 16)
    known.advance_high_watermark(Offset(21))
    assert unstable(known) == 16
    assert append(known, marker(COMMIT), 21) == (7, 16, 21, False)
    assert append(known, marker(COMMIT), 22) is None
    assert append(known, marker(ABORT), 23) is None
    append(known, in_transaction(5, count=4), 24)
    assert append(known, marker(ABORT), 28) == (7, 24, 28, True)
    assert append(known, marker(ABORT), 29) is None
    append(known, in_transaction(9, count=2), 30)
    known.advance_high_watermark(Offset(32))
    assert unstable(known) == 30


def test_a_transaction_is_late_when_nobody_has_ended_it_in_time() -> None:
    """A transaction is late five minutes after the longest timeout, until its marker comes."""
    known = states()
    append(known, in_transaction(producer_id=39, epoch=2), 100)
    append(known, in_transaction(producer_id=57, epoch=9), 150, timestamp=NOW + 500)
    assert late(known, NOW + 500) == []
    assert late(known, NOW + LATE_MS) == []
    assert late(known, NOW + LATE_MS + 1) == [39]
    later = NOW + LATE_MS + 501
    assert known.late_transactions(later, transaction_ms_max=TRANSACTION_MS_MAX) == [
        open_transaction(39, 100, NOW),
        open_transaction(57, 150, NOW + 500),
    ]
    append(known, marker(producer_id=39, epoch=2), 200)
    assert late(known, later) == [57]
    append(known, marker(producer_id=57, epoch=9), 250)
    assert late(known, later) == []


def test_a_transaction_without_timestamps_is_never_late() -> None:
    """Nobody can say how long it has been open."""
    known = states()
    append(known, in_transaction(), 0, timestamp=-1)
    assert late(known, NOW) == []


def test_a_late_transaction_is_late_after_a_start() -> None:
    """The snapshot has the time of its last batch."""
    files = folder()
    before = states(files)
    append(before, in_transaction(producer_id=39), 100)
    append(before, in_transaction(producer_id=57), 150, timestamp=NOW + 500)
    before.write_snapshot(Offset(151))
    assert late(before, NOW + LATE_MS + 1) == [39]
    assert late(reloaded(files, log_end=151), NOW + LATE_MS + 1) == [39]


def test_a_late_transaction_that_is_cut_off_is_late_no_more() -> None:
    """The log ends before it began, or begins anew."""
    for is_partial in (True, False):
        files = folder()
        known = states(files)
        append(known, in_transaction(), 100)
        assert late(known, NOW + LATE_MS + 1) == [7]
        if is_partial:
            reload(known, segments(files), log_start=0, log_end=80)
        else:
            known.truncate_fully(Offset(150))
        assert late(known, NOW + LATE_MS + 1) == []
        assert unstable(known) is None
