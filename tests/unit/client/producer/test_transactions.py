"""Transactions as the producer sees them: what is asked of whom, and what answers change."""

import sys
from itertools import count
from types import FrameType
from typing import Any

import pytest

from tailrace.client.group_offsets import ConsumerGroupMetadata
from tailrace.client.nodes import (
    DisconnectedError,
    Node,
)
from tailrace.client.producer.errors import (
    AuthorizationError,
    BrokerRefusedError,
    ClosedProducerError,
    DeliveryTimeoutError,
    ProducerFencedError,
    RejectedRecordError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionStateError,
)
from tailrace.client.producer.identity.flow import State
from tailrace.client.producer.identity.requests import PendingOperation
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tailrace.protocol.messages.end_txn import EndTxnRequest
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
)
from tailrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.unit.client.producer.transaction_life import (
    ABORTABLE,
    COMMIT_OFFSETS,
    CONSUMED,
    END,
    FIND,
    GROUP,
    INIT,
    NAME,
    OFFSETS,
    PARTITIONS,
    T0,
    T1,
    Life,
    abort,
    closed_batch,
    fail_batch,
    is_ongoing,
    state_of,
    upto_init,
    upto_offset_commit,
    upto_offsets,
)


def test_a_transaction_from_begin_to_commit() -> None:
    """The coordinator is found, gives an id, gets partition, offsets and the end, in this order."""
    life = Life().initialized().begun()
    assert not life.manager.may_drain(closed_batch(T0))
    life.manager.note_append(T0)
    offsets = life.manager.send_offsets(CONSUMED, GROUP)
    life.serve(OFFSETS)
    life.serve(PARTITIONS)
    batch = life.sent(T0)
    assert batch.identity == (7, 0, 0)
    life.manager.sequences.completed(batch, 10)
    life.serve(FIND)
    life.serve(COMMIT_OFFSETS)
    offsets.take()
    commit = life.manager.commit()
    assert state_of(life) is State.COMMITTING
    life.serve(END)
    commit.take()
    assert state_of(life) is State.READY
    assert not is_ongoing(life)


def test_requests_have_the_id_epoch_and_names() -> None:
    """Every request has the id and epoch; those for a group go to the group's coordinator."""
    life = Life()
    pending = life.manager.init_transactions()
    find = life.ask(FIND)
    assert find.body == FindCoordinatorRequest(
        key=NAME, key_type=CoordinatorKeyType.TRANSACTION, coordinator_keys=(NAME,)
    )
    assert find.coordinator is None
    life.reply(find)
    init = life.ask(INIT)
    assert init.node == Node(2, "broker", 9092)
    assert init.body == InitProducerIdRequest(
        transactional_id=NAME, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    life.reply(init)
    pending.take()
    life.begun(T1, T0)
    life.manager.send_offsets(CONSUMED, GROUP)
    life.serve(OFFSETS)
    find = life.ask(FIND)
    assert isinstance(find.body, FindCoordinatorRequest)
    assert (find.body.key, find.body.key_type) == ("consumers", CoordinatorKeyType.GROUP)
    life.reply(find)
    offsets = life.ask(COMMIT_OFFSETS)
    assert offsets.node == Node(1, "broker", 9092)
    assert offsets.first_version == 3
    body = offsets.body
    assert isinstance(body, TxnOffsetCommitRequest)
    assert (body.group_id, body.member_id, body.generation_id) == ("consumers", "member", 3)
    assert body.group_instance_id == "instance"
    (topic,) = body.topics
    assert [each.committed_offset for each in topic.partitions] == [42, 7]
    life.reply(offsets)
    life.manager.abort()
    end = life.ask(END)
    assert end.body == EndTxnRequest(
        transactional_id=NAME, producer_id=7, producer_epoch=0, committed=False
    )


def test_a_group_without_member_needs_no_new_version() -> None:
    """Only a generation and a member need the version that carries them (KIP-447)."""
    life = Life().initialized().begun()
    life.manager.send_offsets(CONSUMED, ConsumerGroupMetadata("consumers"))
    life.serve(OFFSETS)
    life.serve(FIND)
    assert life.ask(COMMIT_OFFSETS).first_version == 0


def test_partitions_are_asked_for_once() -> None:
    """New ones together; those asked for or added are not asked for again."""
    life = Life().initialized().begun()
    for partition in (T0, T1, T0):
        life.manager.note_append(partition)
    request = life.ask(PARTITIONS)
    body = request.body
    assert isinstance(body, AddPartitionsToTxnRequest)
    assert body.v3_and_below_topics[0].partitions == (0, 1)
    life.manager.note_append(T0)
    life.reply(request)
    life.manager.note_append(T1)
    assert life.is_idle()
    assert life.manager.may_drain(closed_batch(T0))


def test_partitions_of_a_commit_are_added_first() -> None:
    """A partition that was written to just before the commit is added, sent, then committed."""
    life = Life().initialized().begun(T0)
    life.manager.note_append(T1)
    life.has_incomplete = True
    life.manager.commit()
    life.serve(PARTITIONS)
    assert life.is_idle()
    life.manager.sequences.completed(life.sent(T1), 0)
    life.has_incomplete = False
    life.serve(END)
    assert state_of(life) is State.READY


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_waits_for_every_batch(is_commit: bool) -> None:  # noqa: FBT001
    """EndTxn is not sent while a batch has no outcome."""
    life = Life().initialized().begun(T0)
    life.has_incomplete = True
    pending = life.manager.commit() if is_commit else life.manager.abort()
    assert life.is_idle()
    assert not pending.is_done
    life.has_incomplete = False
    life.serve(END)
    pending.take()


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_empty_transaction_ends_without_a_request(is_commit: bool) -> None:  # noqa: FBT001
    """The coordinator is not told of a transaction with nothing in it."""
    life = Life().initialized().begun()
    pending = life.manager.commit() if is_commit else life.manager.abort()
    assert life.is_idle()
    pending.take()
    assert state_of(life) is State.READY


def test_an_aborted_transaction_asks_for_no_partition_any_more() -> None:
    """Partitions that were not asked for stay unasked, and their batches fail unsent."""
    life = Life().initialized().begun()
    life.manager.note_append(T0)
    pending = life.manager.abort()
    assert life.manager.is_aborting_batches
    assert isinstance(life.manager.flow.abort_reason(), TransactionAbortedError)
    assert life.is_idle()
    pending.take()


def test_an_abort_repeats_a_request_that_has_no_answer() -> None:
    """AddPartitionsToTxn that may have reached the coordinator is repeated before the end."""
    life = Life().initialized().begun()
    life.manager.note_append(T0)
    life.serve(PARTITIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    life.manager.abort()
    life.serve(PARTITIONS)
    life.serve(END)
    assert state_of(life) is State.READY


def test_an_abort_drops_offsets_that_were_not_committed() -> None:
    """Waiting callers get TransactionAbortedError."""
    life = Life()
    offsets = upto_offset_commit(life)
    life.manager.abort()
    with pytest.raises(TransactionAbortedError):
        offsets.take()
    life.serve(END)
    assert state_of(life) is State.READY


@pytest.mark.parametrize(
    "code",
    [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED],
)
def test_init_transactions_may_be_called_again_once_it_is_allowed(code: int) -> None:
    """An unauthorized InitProducerId fails the call and leaves the producer as it was."""
    life = Life()
    pending = upto_init(life)
    life.serve(INIT, code)
    with pytest.raises(AuthorizationError):
        pending.take()
    assert isinstance(life.manager.flow.abort_reason(), AuthorizationError)
    assert life.is_idle()
    assert state_of(life) is State.UNINITIALIZED
    again = life.manager.init_transactions()
    life.serve(INIT)
    again.take()


def test_an_idempotent_producer_asks_again_for_an_id_it_was_refused() -> None:
    """Waiting batches fail with the refusal, and the next request comes after a pause."""
    life = Life(is_transactional=False)
    life.serve(INIT, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert life.manager.is_aborting_batches
    assert isinstance(life.manager.flow.abort_reason(), AuthorizationError)
    assert life.manager.flow.next_request(life.now, has_incomplete=False) is None
    life.manager.resolve_sequences(life.now)
    assert life.manager.flow.next_request(life.now, has_incomplete=False) is None
    life.serve(INIT)
    assert state_of(life) is State.READY
    assert not life.manager.is_aborting_batches


def test_init_transactions_abortable() -> None:
    """TRANSACTION_ABORTABLE in InitProducerId fails the call, which may be repeated."""
    life = Life()
    pending = upto_init(life)
    life.serve(INIT, ErrorCode.TRANSACTION_ABORTABLE)
    with pytest.raises(TransactionAbortableError):
        pending.take()
    assert life.is_idle()
    life.manager.init_transactions()
    life.serve(INIT)
    assert state_of(life) is State.READY


def test_a_first_partition_that_comes_too_early_is_asked_again_soon() -> None:
    """While the coordinator ends the last transaction the pause is at most 20 ms (KAFKA-5482)."""
    life = Life().initialized().begun()
    life.manager.note_append(T0)
    life.serve(PARTITIONS, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert (life.next_deadline() or 0.0) - life.now == pytest.approx(0.02)
    life.serve(PARTITIONS)
    life.manager.note_append(T1)
    life.serve(PARTITIONS, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert (life.next_deadline() or 0.0) - life.now > 0.05


def test_a_pause_that_ends_between_two_looks_at_the_clock_is_not_forgotten() -> None:
    """A driver asks what is due, and some milliseconds later until when it may sleep."""
    life = Life().initialized().begun()
    life.manager.note_append(T0)
    life.serve(PARTITIONS, ErrorCode.CONCURRENT_TRANSACTIONS)
    life.now += 0.001
    assert life.manager.flow.next_request(life.now, has_incomplete=False) is None
    life.now += 0.1
    deadline = life.next_deadline()
    assert deadline is not None
    assert deadline < life.now
    life.serve(PARTITIONS)


def test_other_errors_of_a_first_partition_pause_as_ever() -> None:
    """Only CONCURRENT_TRANSACTIONS has the short pause."""
    life = Life().initialized().begun()
    life.manager.note_append(T0)
    life.serve(PARTITIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert (life.next_deadline() or 0.0) - life.now > 0.05


def test_calls_outside_of_their_state_say_so_and_change_nothing() -> None:
    """Each call has its place; after a misplaced one the right one works."""
    life = Life()
    for call in (
        life.manager.begin,
        life.manager.commit,
        life.manager.abort,
        lambda: life.manager.may_append(T0),
        lambda: life.manager.send_offsets(CONSUMED, GROUP),
    ):
        with pytest.raises(TransactionStateError):
            call()
    life.initialized()
    with pytest.raises(TransactionStateError):
        life.manager.may_append(T0)
    with pytest.raises(TransactionStateError):
        life.manager.init_transactions()
    life.begun(T0)
    with pytest.raises(TransactionStateError):
        life.manager.begin()
    life.manager.commit()
    life.serve(END)
    assert state_of(life) is State.READY


def test_transactions_need_a_transactional_id() -> None:
    """An idempotent producer has none of the operations, and may send at any time."""
    life = Life(is_transactional=False)
    for call in (life.manager.begin, life.manager.commit, life.manager.init_transactions):
        with pytest.raises(TransactionStateError, match=r"transactional\.id"):
            call()
    life.manager.may_append(T0)
    life.manager.note_append(T0)
    life.serve(INIT)
    assert life.is_idle()


@pytest.mark.parametrize("name", ["init_transactions", "commit", "abort"])
def test_a_call_that_was_given_up_is_found_by_the_same_call(name: str) -> None:
    """After a time-out only the same call may follow, and gets the outcome of the first."""
    life = Life()
    if name != "init_transactions":
        life.initialized().begun(T0)
    first = getattr(life.manager, name)()
    others = {"commit", "abort", "begin"} - {name}
    for other in others:
        with pytest.raises(TransactionStateError, match="has not been reported yet"):
            getattr(life.manager, other)()
    with pytest.raises(TransactionStateError, match="has not been reported yet"):
        life.manager.may_append(T0)
    assert getattr(life.manager, name)() is first
    for key in (FIND, INIT) if name == "init_transactions" else (END,):
        life.serve(key)
    second = getattr(life.manager, name)()
    assert second is first
    second.take()
    life.manager.begin()


def test_the_first_outcome_of_an_operation_counts() -> None:
    """One that has failed does not succeed afterwards."""
    pending = PendingOperation()
    pending.finish(ABORTABLE)
    pending.finish()
    with pytest.raises(TransactionAbortableError):
        pending.take()


def test_a_failed_batch_makes_the_commit_impossible() -> None:
    """After a refused batch the transaction can only be aborted, which bumps the epoch."""
    life = Life().initialized().begun(T0)
    fail_batch(life)
    with pytest.raises(TransactionAbortableError):
        life.manager.commit()
    life.producer = (7, 1)
    abort(life, END, INIT)
    assert life.begun(T0).sent(T0).base_sequence == 0


def test_a_batch_that_fails_during_the_commit_fails_the_commit() -> None:
    """The commit that waits for it ends with its error, and EndTxn is not sent."""
    life = Life().initialized().begun(T0)
    batch = life.sent(T0)
    life.has_incomplete = True
    commit = life.manager.commit()
    error = DeliveryTimeoutError("late")
    life.manager.failed(batch, error, was_refused=False)
    life.has_incomplete = False
    assert commit.error is error
    assert state_of(life) is State.ABORTABLE_ERROR
    assert life.is_idle()
    with pytest.raises(DeliveryTimeoutError):
        commit.take()
    life.manager.resolve_sequences(life.now)
    life.manager.abort()
    life.serve(END)
    life.serve(INIT)
    assert state_of(life) is State.READY


def test_a_batch_that_was_never_sent_fails_the_transaction_when_it_expires() -> None:
    """If several batches expire, the error of the first one is reported."""
    life = Life().initialized().begun(T0)
    first = DeliveryTimeoutError("first")
    life.manager.failed(closed_batch(T0), first, was_refused=False)
    life.manager.failed(closed_batch(T0), DeliveryTimeoutError("second"), was_refused=False)
    assert state_of(life) is State.ABORTABLE_ERROR
    assert life.manager.flow.abort_reason() is first


def test_a_record_that_got_into_no_batch_fails_the_transaction() -> None:
    """The transaction lacks it, so it may not be committed."""
    life = Life().initialized().begun(T0)
    life.manager.record_refused(RejectedRecordError("too large"))
    with pytest.raises(TransactionAbortableError):
        life.manager.commit()
    life.manager.abort()
    life.serve(END)
    assert state_of(life) is State.READY
    life.manager.record_refused(RejectedRecordError("too large"))
    assert state_of(life) is State.READY


def test_failures_during_an_abort_change_nothing() -> None:
    """The transaction is aborted anyhow."""
    life = Life().initialized().begun(T0)
    batch = life.sent(T0)
    pending_abort = life.manager.abort()
    life.manager.failed(
        batch, TransactionAbortableError("no"), code=ErrorCode.INVALID_TXN_STATE, was_refused=True
    )
    assert state_of(life) is State.ABORTING
    life.serve(END)
    pending_abort.take()
    assert state_of(life) is State.READY


def test_an_end_of_an_abort_that_is_refused_is_fatal() -> None:
    """There is nothing left to try when the abort itself is refused."""
    life = Life().initialized().begun(T0)
    pending_abort = life.manager.abort()
    life.serve(END, ErrorCode.TRANSACTION_ABORTABLE)
    with pytest.raises(BrokerRefusedError):
        pending_abort.take()
    assert state_of(life) is State.FATAL_ERROR


def test_a_batch_of_unknown_fate_bumps_the_epoch_at_the_abort() -> None:
    """The batch may be in the log, so the numbers go on in a new epoch."""
    life = Life().initialized().begun(T0)
    life.manager.sequences.completed(life.sent(T0), 0)
    late = life.sent(T0)
    assert life.manager.sequences.can_retry(late, ErrorCode.NETWORK_EXCEPTION, log_start_offset=-1)
    late.attempts = 1
    life.manager.failed(late, DeliveryTimeoutError("late"), was_refused=False)
    life.manager.resolve_sequences(life.now)
    life.producer = (7, 1)
    abort(life, END, INIT)
    assert life.begun(T0).sent(T0).identity.producer_epoch == 1


def test_a_batch_of_unknown_fate_is_fatal_with_an_old_coordinator() -> None:
    """Without a new epoch the next batch could be taken for the lost one."""
    life = Life(init_version=2).initialized().begun(T0)
    late = life.sent(T0)
    late.attempts = 1
    life.manager.failed(late, DeliveryTimeoutError("late"), was_refused=False)
    life.manager.resolve_sequences(life.now)
    assert state_of(life) is State.FATAL_ERROR


def test_a_refused_batch_gives_its_number_back_to_an_old_coordinator() -> None:
    """Without epochs the next transaction goes on where the log is."""
    life = Life(init_version=2).initialized().begun(T0)
    life.manager.sequences.completed(life.sent(T0), 0)
    fail_batch(life, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    life.manager.resolve_sequences(life.now)
    abort(life, END)
    assert life.begun(T0).sent(T0).base_sequence == 1


def test_an_unknown_producer_begins_at_zero_with_an_old_coordinator() -> None:
    """The leader knows nothing any more, so it takes 0."""
    life = Life(init_version=2).initialized().begun(T0)
    life.manager.sequences.completed(life.sent(T0), 100)
    fail_batch(life, code=ErrorCode.UNKNOWN_PRODUCER_ID)
    life.manager.resolve_sequences(life.now)
    abort(life, END)
    assert life.begun(T0).sent(T0).base_sequence == 0


@pytest.mark.parametrize(("log_start_offset", "is_retried"), [(50, False), (101, True)])
def test_a_producer_whose_records_were_deleted_goes_on(
    log_start_offset: int,
    is_retried: bool,  # noqa: FBT001
) -> None:
    """If the log begins behind its last record it is numbered from 0, else the batch fails."""
    life = Life().initialized().begun(T0)
    life.manager.sequences.completed(life.sent(T0), 100)
    batch = life.sent(T0)
    code = ErrorCode.UNKNOWN_PRODUCER_ID
    answer = life.manager.sequences.can_retry(batch, code, log_start_offset=log_start_offset)
    assert answer is is_retried
    assert batch.base_sequence == (0 if is_retried else 1)


def test_a_gap_in_a_transaction_fails_its_first_batch() -> None:
    """A record is missing in the log, so the transaction can only be aborted."""
    life = Life().initialized().begun(T0)
    life.manager.sequences.completed(life.sent(T0), 0)
    first, second = life.sent(T0), life.sent(T0)
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert life.manager.sequences.can_retry(second, code, log_start_offset=-1)
    assert not life.manager.sequences.can_retry(first, code, log_start_offset=-1)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ],
)
def test_a_batch_can_end_the_producer(code: int) -> None:
    """These answers to a batch are fatal."""
    life = Life().initialized().begun(T0)
    fail_batch(life, code=code)
    assert state_of(life) is State.FATAL_ERROR
    assert not life.manager.may_drain(closed_batch(T0))


def test_an_old_epoch_in_produce_is_abortable_and_then_fenced() -> None:
    """INVALID_PRODUCER_EPOCH fails the transaction; the abort then finds the producer fenced."""
    life = Life().initialized().begun(T0)
    fail_batch(life, code=ErrorCode.INVALID_PRODUCER_EPOCH)
    assert state_of(life) is State.ABORTABLE_ERROR
    pending_abort = life.manager.abort()
    life.serve(END, ErrorCode.PRODUCER_FENCED)
    with pytest.raises(ProducerFencedError):
        pending_abort.take()


def test_batches_in_flight_may_be_sent_again_in_a_failed_transaction() -> None:
    """Batches go for partitions in the transaction only, and for none after a fatal error."""
    life = Life().initialized().begun(T0)
    batch = life.sent(T0)
    life.manager.note_append(T1)
    request = life.ask(PARTITIONS)
    life.manager.record_refused(RejectedRecordError("too large"))
    assert life.manager.sequences.can_retry(batch, ErrorCode.NETWORK_EXCEPTION, log_start_offset=-1)
    assert life.manager.may_drain(batch)
    assert not life.manager.may_drain(closed_batch(T1))
    life.reply(request)
    assert life.manager.may_drain(closed_batch(T1))
    life.manager.flow.fail(ClosedProducerError("closed"))
    assert not life.manager.may_drain(batch)


def test_requests_of_a_failed_transaction_are_dropped_but_look_ups() -> None:
    """A look-up helps the abort; the rest of the transaction is not asked for any more."""
    life = Life()
    pending = upto_offset_commit(life)
    life.serve(COMMIT_OFFSETS, ErrorCode.NOT_COORDINATOR)
    find = life.ask(FIND)
    life.manager.record_refused(RejectedRecordError("too large"))
    with pytest.raises(RejectedRecordError):
        pending.take()
    life.manager.flow.answered(find, DisconnectedError("gone"), life.now)
    life.serve(FIND)
    assert life.is_idle()


def test_a_request_in_flight_is_not_repeated_in_a_failed_transaction() -> None:
    """Its connection was lost after the transaction had failed."""
    life = Life()
    pending = upto_offsets(life)
    request = life.ask(OFFSETS)
    life.manager.record_refused(RejectedRecordError("too large"))
    life.manager.flow.answered(request, DisconnectedError("gone"), life.now)
    assert pending.is_done
    assert life.is_idle()


def test_close_fails_what_waits() -> None:
    """Pending operations fail with the error, and late answers are ignored."""
    life = Life()
    upto = upto_offset_commit(life)
    request = life.ask(COMMIT_OFFSETS)
    life.manager.flow.fail(ClosedProducerError("closed"))
    with pytest.raises(ClosedProducerError):
        upto.take()
    life.reply(request)
    assert life.is_idle()


def test_a_failure_outside_of_a_transaction_is_fatal() -> None:
    """A batch that fails where no batch can be shows that the producer has lost its way."""
    life = Life().initialized()
    life.manager.failed(closed_batch(T0), RejectedRecordError("no"), was_refused=True)
    assert state_of(life) is State.FATAL_ERROR
    for call in (life.manager.begin, life.manager.commit, life.manager.abort):
        with pytest.raises(TransactionStateError):
            call()


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_is_ongoing_until_its_end(is_commit: bool) -> None:  # noqa: FBT001
    """A transaction is ongoing from begin to the answer of EndTxn, even if it has failed."""
    life = Life().initialized()
    assert not is_ongoing(life)
    life.begun(T0)
    assert is_ongoing(life)
    if not is_commit:
        life.manager.record_refused(RejectedRecordError("too large"))
        assert is_ongoing(life)
    pending = life.manager.commit() if is_commit else life.manager.abort()
    assert is_ongoing(life)
    life.serve(END)
    pending.take()
    assert not is_ongoing(life)


def interrupted_commit(life: Life, at: int) -> bool:
    """Call `commit` with Ctrl-C at the `at`th line that it runs; whether it has so many."""
    left = at

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        left -= event == "line"
        if left == 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        life.manager.commit()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_a_commit_that_is_interrupted_is_noted_or_has_not_begun() -> None:
    """Ctrl-C at any point leaves a commit that is known, or none that was begun."""
    for at in count(1):
        life = Life().initialized().begun(T0)
        if not interrupted_commit(life, at):
            break
        is_noted = life.manager.unsettled is not None
        assert is_noted == (state_of(life) is State.COMMITTING)
    assert at > 10
