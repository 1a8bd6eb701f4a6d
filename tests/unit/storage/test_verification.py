"""A transaction begins in a log when its coordinator has been asked, and never on an old answer."""

import pytest

from tailrace.model import AppendOrigin, LeaderEpoch, ProducerEpoch, ProducerId
from tailrace.records.control import build_end_marker
from tailrace.storage.log import Log
from tailrace.storage.producers import (
    EXPIRATION_MS,
    AbortedSequenceError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    ProducerSequenceError,
)
from tailrace.storage.verification import VerificationGuard
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import NOW, batch, open_at, stop_cleanly
from tests.unit.storage.producer_builders import append, marker, sent, states
from tests.unit.storage.transactional import follow, replicated, replicated_marker

PRODUCER = ProducerId(7)
OTHER_GUARD = VerificationGuard()


def verifying() -> Log:
    """A log in which no transaction begins without a guard."""
    log = open_at(MemoryFiles())
    log.producers.verifications.is_required = True
    return log


def begin(log: Log, sequence: int = 0, *, epoch: int = 0) -> VerificationGuard | None:
    """Begin to verify a batch of the producer."""
    return log.producers.begin_verification(
        PRODUCER, epoch=ProducerEpoch(epoch), sequence=sequence, now_ms=NOW
    )


def send(
    log: Log,
    sequence: int = 0,
    *,
    epoch: int = 0,
    guard: VerificationGuard | None = None,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    is_transactional: bool = True,
) -> None:
    """Append a batch of one record."""
    data = batch(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    log.append(
        memoryview(data), leader_epoch=LeaderEpoch(0), now_ms=NOW, origin=origin, guard=guard
    )


def end(log: Log, *, epoch: int = 0, raises_epoch: bool = False, is_commit: bool = True) -> None:
    """Append the marker of the end, as the coordinator does: with no guard."""
    data = build_end_marker(
        PRODUCER, epoch, is_commit=is_commit, coordinator_epoch=0, timestamp=NOW
    )
    log.append(
        memoryview(data),
        leader_epoch=LeaderEpoch(0),
        now_ms=NOW,
        origin=AppendOrigin.COORDINATOR,
        raises_epoch=raises_epoch,
    )


def has_open_transaction(log: Log) -> bool:
    """Whether a transaction of the producer is open."""
    known = log.producers.get(PRODUCER)
    return known is not None and known.has_open_transaction


def test_the_entry_of_a_producer_is_used_until_its_batch_is_in_the_log() -> None:
    """A second question has the guard of the first; then there is neither."""
    known = states()
    guard = known.begin_verification(PRODUCER, epoch=ProducerEpoch(0), sequence=0, now_ms=NOW)
    assert (
        known.begin_verification(PRODUCER, epoch=ProducerEpoch(0), sequence=0, now_ms=NOW + 1)
        is guard
    )
    entry = known.verifications.get(PRODUCER)
    assert entry is not None
    assert entry.guard is guard
    append(known, sent(0, is_transactional=True), 0)
    assert known.verifications.get(PRODUCER) is None


def test_an_entry_takes_a_lower_sequence_or_a_newer_epoch() -> None:
    """An entry never goes back to an older epoch; its guard stays the same throughout."""
    known = states()
    guards, seen = [], []
    for sequence, epoch in ((1, 0), (0, 0), (3, 0), (2, 1), (0, 0)):
        guards.append(
            known.begin_verification(
                PRODUCER, epoch=ProducerEpoch(epoch), sequence=sequence, now_ms=NOW
            )
        )
        entry = known.verifications.get(PRODUCER)
        assert entry is not None
        seen.append((entry.lowest_sequence, entry.epoch))
    assert seen == [(1, 0), (0, 0), (0, 0), (2, 1), (2, 1)]
    assert guards[0] is not None
    assert set(guards) == {guards[0]}


@pytest.mark.parametrize("is_required", [True, False])
def test_no_batch_gets_ahead_of_one_that_is_being_verified(is_required: bool) -> None:  # noqa: FBT001
    """Even of a producer that the log does not know, and though verification is off by now."""
    known = states()
    known.verifications.is_required = True
    guard = known.begin_verification(PRODUCER, epoch=ProducerEpoch(0), sequence=0, now_ms=NOW)
    entry = known.verifications.get(PRODUCER)
    known.verifications.is_required = is_required
    with pytest.raises(ProducerSequenceError, match="sequence 4 where 0 is due"):
        known.check(sent(4, is_transactional=True), guard=guard)
    assert known.verifications.get(PRODUCER) is entry
    assert known.check(sent(0, is_transactional=True), guard=guard) is None


def test_a_question_that_comes_late_holds_up_no_later_transaction() -> None:
    """A request that a client gave up on, and sent again, may be handled when its batch is old."""
    log = verifying()
    send(log, 0, guard=begin(log, 0))
    end(log)
    begin(log, 0)
    send(log, 1, guard=begin(log, 1))
    assert has_open_transaction(log)


def test_an_entry_expires_as_a_producer_does() -> None:
    """Its age counts from when it was made, however often it is looked at."""
    known = states()
    known.begin_verification(PRODUCER, epoch=ProducerEpoch(0), sequence=0, now_ms=NOW)
    entry = known.verifications.get(PRODUCER)
    known.expire(NOW + EXPIRATION_MS // 2)
    known.begin_verification(
        PRODUCER, epoch=ProducerEpoch(0), sequence=0, now_ms=NOW + EXPIRATION_MS // 2
    )
    assert known.verifications.get(PRODUCER) is entry
    known.expire(NOW + EXPIRATION_MS)
    assert known.verifications.get(PRODUCER) is None


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_a_guard_lets_one_transaction_begin(origin: AppendOrigin) -> None:
    """A batch without a transaction leaves it; the next transaction needs another one."""
    log = verifying()
    assert log.producers.verifications.get(PRODUCER) is None
    guard = begin(log, 4)
    assert guard is not None
    send(log, 3, is_transactional=False, origin=origin)
    entry = log.producers.verifications.get(PRODUCER)
    assert entry is not None
    assert entry.guard is guard
    send(log, 4, guard=guard, origin=origin)
    assert has_open_transaction(log)
    assert log.producers.verifications.get(PRODUCER) is None
    assert begin(log, 5) is None  # There is nothing to ask: it is open.
    send(log, 5, origin=origin)
    end(log)
    assert not has_open_transaction(log)
    assert log.producers.verifications.get(PRODUCER) is None
    assert begin(log, 6) not in (None, guard)
    with pytest.raises(InvalidTransactionStateError):
        send(log, 6, guard=guard, origin=origin)


def test_an_unknown_producer_of_a_later_epoch_begins_its_transaction_at_any_sequence() -> None:
    """Its records of before are gone from the log; with the guard the batch is in it."""
    log = verifying()
    assert not has_open_transaction(log)
    assert log.producers.verifications.get(PRODUCER) is None
    guard = begin(log, 3, epoch=1)
    with pytest.raises(InvalidTransactionStateError):
        send(log, 3, epoch=1)
    assert log.end_offset == 0
    send(log, 3, epoch=1, guard=guard)
    assert log.end_offset == 1
    known = log.producers.get(PRODUCER)
    assert known is not None
    assert (known.epoch, known.last_sequence, known.transaction_start) == (1, 3, 0)


def test_a_marker_ends_what_is_being_verified() -> None:
    """A marker ends it, even without a record here; a batch with the old guard is refused."""
    log = verifying()
    guard = begin(log)
    end(log)
    assert not has_open_transaction(log)
    assert log.producers.verifications.get(PRODUCER) is None
    before = log.end_offset
    with pytest.raises(InvalidTransactionStateError, match="has not verified") as raised:
        send(log, guard=guard)
    assert raised.value.transaction_start is None
    assert log.end_offset == before


def test_without_verification_a_transaction_begins_and_its_entry_goes() -> None:
    """Verification was turned off between the question and the append."""
    log = verifying()
    assert begin(log) is not None
    log.producers.verifications.is_required = False
    send(log)
    assert has_open_transaction(log)
    assert log.producers.verifications.get(PRODUCER) is None


@pytest.mark.parametrize("shown", [None, OTHER_GUARD])
def test_a_batch_without_its_guard_begins_nothing(shown: VerificationGuard | None) -> None:
    """The batch may have been under way when verification was turned on; a retry has a guard."""
    log = open_at(MemoryFiles())
    log.producers.verifications.is_required = True
    with pytest.raises(InvalidTransactionStateError):
        send(log, 4, guard=shown)
    assert not has_open_transaction(log)
    assert log.end_offset == 0
    assert log.producers.verifications.get(PRODUCER) is None
    guard = begin(log, 4)
    with pytest.raises(InvalidTransactionStateError):
        send(log, 4, guard=shown)
    send(log, 4, guard=guard)
    assert has_open_transaction(log)
    assert log.producers.verifications.get(PRODUCER) is None


def test_a_batch_that_was_sent_again_needs_no_guard() -> None:
    """Its transaction may be over: it is acknowledged, and begins nothing."""
    log = verifying()
    send(log, guard=begin(log))
    end(log)
    before = log.end_offset
    send(log)
    assert log.end_offset == before
    assert not has_open_transaction(log)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_batch_with_the_sequence_of_an_aborted_one_is_refused(*, is_restarted: bool) -> None:
    """It is another one: its producer has thrown the aborted one away. A committed one counts."""
    files = MemoryFiles()
    log = open_at(files)
    send(log)
    end(log)
    send(log, 1)
    end(log, is_commit=False)
    if is_restarted:
        stop_cleanly(log)
        log = open_at(files, is_clean=True, checkpoints=(log.end_offset, 0))
    send(log)
    with pytest.raises(AbortedSequenceError, match="sequence 1 again, which is that of offset 2"):
        send(log, 1)
    assert log.end_offset == 4
    send(log, 2)
    assert log.end_offset == 5


def test_what_replication_brings_is_not_verified() -> None:
    """Its leader has done so; and a marker from there ends what was asked about here."""
    log = verifying()
    follow(
        log,
        replicated(
            0, b"v", producer_id=PRODUCER, producer_epoch=0, base_sequence=0, is_transactional=True
        ),
    )
    assert has_open_transaction(log)
    follow(log, replicated_marker(1, PRODUCER, is_commit=True))
    guard = begin(log, 1)
    follow(log, replicated_marker(2, PRODUCER, is_commit=True))
    with pytest.raises(InvalidTransactionStateError):
        send(log, 1, guard=guard)


def test_a_check_of_a_batch_drops_no_entry() -> None:
    """Only what is in the log counts: an append that fails may be tried again with its guard."""
    known = states()
    known.verifications.is_required = True
    guard = known.begin_verification(PRODUCER, epoch=ProducerEpoch(0), sequence=0, now_ms=NOW)
    for _ in range(2):
        assert known.check(sent(0, is_transactional=True), guard=guard) is None
    append(known, marker(), 0)
    assert known.verifications.get(PRODUCER) is None


def test_a_transaction_of_the_next_epoch_waits_for_the_marker_of_the_one_before() -> None:
    """With an epoch for each transaction (KIP-890), an open one of an older epoch lets none in."""
    log = verifying()
    send(log, guard=begin(log))
    with pytest.raises(InvalidTransactionStateError):
        send(log, epoch=1)
    guard = begin(log, epoch=1)
    assert guard is not None
    end(log, epoch=1, raises_epoch=True)
    with pytest.raises(InvalidTransactionStateError):
        send(log, epoch=1, guard=guard)
    send(log, epoch=1, guard=begin(log, epoch=1))
    assert has_open_transaction(log)


def test_a_batch_of_an_older_epoch_is_refused_before_the_coordinator_is_asked() -> None:
    """Only the log may know: the coordinator has a new producer id when epochs are used up."""
    log = verifying()
    send(log, guard=begin(log))
    end(log, epoch=1, raises_epoch=True)
    with pytest.raises(InvalidProducerEpochError) as raised:
        begin(log)
    assert (raised.value.epoch, raised.value.known_epoch) == (0, 1)


def test_a_marker_that_comes_again_late_does_not_end_the_next_transaction() -> None:
    """Its epoch is that of the next transaction already, which has to be open still (KIP-1228)."""
    log = verifying()
    send(log, guard=begin(log))
    end(log, epoch=1, raises_epoch=True)
    end(log, epoch=1, raises_epoch=True)
    send(log, epoch=1, guard=begin(log, epoch=1))
    with pytest.raises(InvalidProducerEpochError):
        end(log, epoch=1, raises_epoch=True)
    assert has_open_transaction(log)
    end(log, epoch=2, raises_epoch=True)
    assert not has_open_transaction(log)


def test_a_transaction_of_the_last_epoch_ends() -> None:
    """There is no next epoch for its marker, which in Kafka is let through, too."""
    log = verifying()
    send(log, guard=begin(log, epoch=32_767), epoch=32_767)
    end(log, epoch=32_767, raises_epoch=True)
    assert not has_open_transaction(log)


def test_a_producer_of_epochs_that_the_log_does_not_know_begins_at_zero() -> None:
    """Its first batch is on its way, or lost: a later one would leave a hole (KIP-890)."""
    log = verifying()
    guard = log.producers.begin_verification(
        PRODUCER, epoch=ProducerEpoch(0), sequence=3, now_ms=NOW, begins_at_zero=True
    )
    with pytest.raises(ProducerSequenceError) as raised:
        send(log, 3, guard=guard)
    assert (raised.value.sequence, raised.value.expected) == (3, 0)
    log.producers.begin_verification(
        PRODUCER, epoch=ProducerEpoch(0), sequence=0, now_ms=NOW, begins_at_zero=True
    )
    send(log, 0, guard=guard)
    assert has_open_transaction(log)
