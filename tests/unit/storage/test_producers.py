"""Sequence numbers and epochs of producers: what is new, what was sent before, what is refused."""

import logging
import struct

import pytest

from tailrace.model import AppendOrigin, Offset, ProducerId
from tailrace.records import layout
from tailrace.records.batch import Batch
from tailrace.storage.producers import (
    EXPIRATION_MS,
    InvalidProducerEpochError,
    ProducerSequenceError,
    ProducerStates,
)
from tests.unit.storage.builders import FOLDER, NOW
from tests.unit.storage.producer_builders import (
    LAST,
    append,
    folder,
    marker,
    note,
    producer,
    reloaded,
    sent,
    states,
)

REPLICATION = AppendOrigin.REPLICATION


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """The log may have forgotten it; to check changes nothing."""
    known = states()
    assert known.check(sent(1234)) is None
    assert len(known) == 0


def test_the_next_sequence_is_taken_and_a_gap_refused() -> None:
    """The error says what came and what is due."""
    known = states()
    note(known, sent(0, count=3))
    assert known.check(sent(3)) is None
    with pytest.raises(ProducerSequenceError, match="sequence 4 where 3 is due") as raised:
        known.check(sent(4))
    assert (raised.value.producer_id, raised.value.sequence, raised.value.expected) == (7, 4, 3)
    assert known.check(sent(4, producer_id=8)) is None


def test_one_of_the_last_five_is_known_by_both_of_its_ends() -> None:
    """It comes with its first offsets; what is older or only overlaps is out of order."""
    known = states()
    batches = [sent(2 * number, count=2) for number in range(6)]
    note(known, *batches, offset=100)
    for number, each in enumerate(batches[1:], start=1):
        found = known.check(each)
        assert found is not None
        assert (found.base_offset, found.last_offset) == (100 + 2 * number, 101 + 2 * number)
    for other in (batches[0], sent(2), sent(3), sent(2, count=3), sent(11)):
        with pytest.raises(ProducerSequenceError):
            known.check(other)


def test_a_new_epoch_begins_at_zero_and_ends_the_old_one() -> None:
    """The old epoch's batches are not known any more, not even as duplicates."""
    known = states()
    note(known, sent(0), sent(1))
    for sequence in (1, 2):
        with pytest.raises(ProducerSequenceError, match=f"sequence {sequence} where 0 is due"):
            known.check(sent(sequence, epoch=1))
    assert known.check(sent(0, epoch=3)) is None
    note(known, sent(0, epoch=3), offset=2)
    with pytest.raises(
        InvalidProducerEpochError, match="epoch 2, and the log has epoch 3"
    ) as raised:
        known.check(sent(0, epoch=2))
    assert (raised.value.epoch, raised.value.known_epoch) == (2, 3)
    with pytest.raises(InvalidProducerEpochError):
        known.check(sent(1))
    assert known.check(sent(1, epoch=3)) is None


@pytest.mark.parametrize("count", [1, 4])
def test_after_the_largest_sequence_comes_zero(count: int) -> None:
    """Sequences wrap between two batches and within one."""
    known = states()
    first = LAST if count == 1 else LAST - 1
    note(known, sent(first, count=count))
    following = count - 1 - (LAST - first)
    assert known.check(sent(following)) is None
    duplicate = known.check(sent(first, count=count))
    assert duplicate is not None
    assert (duplicate.first_sequence, duplicate.base_offset) == (first, 0)
    with pytest.raises(ProducerSequenceError, match=f"where {following} is due"):
        known.check(sent(following + 1))


def test_one_batch_may_run_across_the_largest_sequence() -> None:
    """Its last sequence is less than its first, and both of its offsets are known."""
    known = states()
    append(known, sent(LAST - 10, count=21, epoch=15), 2000, origin=REPLICATION)
    (only,) = producer(known).batches
    assert (only.first_sequence, only.last_sequence) == (LAST - 10, 9)
    assert (only.base_offset, only.last_offset) == (2000, 2020)


def test_a_check_changes_nothing() -> None:
    """The state moves when a batch is noted, not when it is found good."""
    known = states()
    first, second = sent(0, count=6), sent(6, count=5)
    assert known.check(first) is None
    assert known.get(ProducerId(7)) is None
    note(known, first, offset=15)
    before = producer(known)
    assert known.check(second) is None
    assert producer(known) == before
    assert (before.last_sequence, before.last_offset) == (5, 20)
    note(known, second, offset=26)
    assert (producer(known).last_sequence, producer(known).last_offset) == (10, 30)
    assert producer(known).batches[0].first_sequence == 0


def test_replication_may_begin_at_any_sequence() -> None:
    """A follower accepts the first sequence of a producer as the leader has it."""
    known = states()
    append(known, sent(16, epoch=5), 735, origin=REPLICATION)
    (only,) = producer(known).batches
    assert producer(known).epoch == 5
    assert (only.first_sequence, only.last_sequence) == (16, 16)
    assert (only.base_offset, only.last_offset) == (735, 735)


def test_a_gap_is_refused_from_a_client_and_taken_from_the_leader() -> None:
    """The follower counts on from what it was given."""
    known = states()
    append(known, sent(0), 0)
    with pytest.raises(ProducerSequenceError):
        known.check(sent(3))
    assert producer(known).last_sequence == 0
    append(known, sent(3), 1, origin=REPLICATION)
    assert producer(known).last_sequence == 3


def test_an_old_epoch_from_the_leader_is_logged_and_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The leader has checked it; from a coordinator it is refused as from a client."""
    known = states()
    append(known, sent(0, epoch=4), 0)
    with pytest.raises(InvalidProducerEpochError):
        known.check(sent(0, epoch=3), origin=AppendOrigin.COORDINATOR)
    assert not caplog.records
    append(known, sent(9, epoch=3), 1, origin=REPLICATION)
    assert "producer 7 sent epoch 3" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING
    assert producer(known).epoch == 3
    assert len(producer(known).batches) == 1


@pytest.mark.parametrize("sequence", [-1, 0])
def test_a_coordinator_numbers_nothing(sequence: int) -> None:
    """Offsets committed in a transaction all have one sequence, and are none sent before."""
    known = states()
    data = bytearray(sent(0, is_transactional=True).view)
    struct.pack_into(">i", data, layout.BASE_SEQUENCE_POSITION, sequence)
    offsets = Batch(memoryview(data))
    append(known, offsets, 99, origin=AppendOrigin.COORDINATOR)
    append(known, offsets, 100, origin=AppendOrigin.COORDINATOR)
    assert [each.first_sequence for each in producer(known).batches] == [sequence, sequence]
    assert [each.last_offset for each in producer(known).batches] == [99, 100]
    assert known.check(sent(sequence + 1, is_transactional=True)) is None


def test_a_batch_of_a_client_without_a_sequence_repeats_nothing() -> None:
    """It is never a duplicate, even of a batch that a coordinator wrote without a sequence."""
    known = states()
    data = bytearray(sent(0).view)
    struct.pack_into(">i", data, layout.BASE_SEQUENCE_POSITION, -1)
    unnumbered = Batch(memoryview(data))
    append(known, unnumbered, 5, origin=AppendOrigin.COORDINATOR)
    with pytest.raises(ProducerSequenceError, match="sequence -1 where 0 is due"):
        known.check(unnumbered)


def test_a_producer_of_whom_only_a_marker_is_known_begins_at_zero() -> None:
    """Its old epochs stay fenced, and its coordinator's epoch is kept."""
    known = states()
    append(known, marker(epoch=2, coordinator_epoch=5), 27)
    assert producer(known).epoch == 2
    assert (producer(known).last_sequence, producer(known).last_offset) == (-1, -1)
    with pytest.raises(InvalidProducerEpochError):
        known.check(sent(0, epoch=0))
    with pytest.raises(ProducerSequenceError):
        known.check(sent(17, epoch=2))
    append(known, sent(0, epoch=2), 39)
    assert producer(known).epoch == 2
    assert producer(known).last_sequence == 0
    assert producer(known).coordinator_epoch == 5


def test_an_idle_producer_is_forgotten_after_a_day() -> None:
    """The broker's clock counts; a forgotten producer may go on with any sequence."""
    known = states()
    append(known, sent(0, epoch=5), 1)
    known.expire(NOW + EXPIRATION_MS - 1)
    with pytest.raises(ProducerSequenceError):
        known.check(sent(4, epoch=5))
    known.expire(NOW + EXPIRATION_MS)
    assert len(known) == 0
    append(known, sent(4, epoch=5), 2)
    assert producer(known).last_sequence == 4


def test_the_time_until_a_producer_is_forgotten_can_be_set() -> None:
    """The time is given in milliseconds, instead of a day."""
    known = ProducerStates(folder(), FOLDER, expiration_ms=500)
    append(known, sent(0), 0)
    known.expire(NOW + 499)
    assert len(known) == 1
    known.expire(NOW + 500)
    assert len(known) == 0


def test_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    """The start of its transaction is kept too, however often producers expire."""
    known = states()
    append(known, sent(0, epoch=5, is_transactional=True), 99)
    append(known, sent(0, producer_id=8), 100)
    for days in (1, 2):
        known.expire(NOW + days * EXPIRATION_MS)
        assert producer(known).transaction_start == 99
        assert known.first_unstable_offset == 99
    assert known.get(ProducerId(8)) is None


def test_a_producer_read_at_the_start_has_a_day_from_the_first_call_on() -> None:
    """Its records may be old; after that day it may go on with any sequence."""
    files = folder()
    before = states(files)
    append(before, sent(0), 0, timestamp=5)
    append(before, sent(1), 1, timestamp=6)
    before.write_snapshot(Offset(2))
    known = reloaded(files, log_end=2)
    known.expire(NOW)
    known.expire(NOW + EXPIRATION_MS - 1)
    with pytest.raises(ProducerSequenceError):
        known.check(sent(9))
    known.expire(NOW + EXPIRATION_MS)
    append(known, sent(9), 2)
    assert len(known) == 1
    assert producer(known).last_sequence == 9


def test_the_leader_may_go_on_with_a_forgotten_producer() -> None:
    """A follower that has forgotten it knows what it is given from then on."""
    files = folder()
    before = states(files)
    append(before, sent(0), 0)
    append(before, sent(1), 1)
    before.write_snapshot(Offset(2))
    known = reloaded(files, log_end=2)
    known.expire(NOW)
    known.expire(NOW + EXPIRATION_MS)
    assert known.get(ProducerId(7)) is None
    append(known, sent(2), 2, origin=REPLICATION)
    (only,) = producer(known).batches
    assert producer(known).epoch == 0
    assert (only.first_sequence, only.last_sequence) == (2, 2)
