"""Tests of a coordinator's errors in a transaction: it asks again, aborts, or ends the producer."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.client.nodes import (
    AuthenticationError,
    DisconnectedError,
    Node,
    UnsupportedVersionError,
)
from tailrace.client.producer.errors import (
    AuthorizationError,
    BrokerRefusedError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionStateError,
)
from tailrace.client.producer.identity.flow import State
from tailrace.client.producer.identity.requests import PendingOperation
from tailrace.client.producer.identity.sequences import ProducerIdAndEpoch
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.examples import examples
from tests.unit.client.producer.transaction_life import (
    COMMIT_OFFSETS,
    CONSUMED,
    END,
    FENCED,
    FIND,
    FORGOTTEN,
    GROUP,
    INIT,
    LOST_COORDINATOR,
    OFFSETS,
    PARTITIONS,
    PASSING,
    STEP_NAMES,
    STEPS,
    T0,
    T1,
    Life,
    closed_batch,
    finish,
    state_of,
    upto_end,
    upto_init,
    upto_offset_commit,
    upto_offsets,
    upto_partitions,
)
from tests.unit.protocol.strategies import messages


@pytest.mark.parametrize(("key", "upto"), STEPS, ids=STEP_NAMES)
@pytest.mark.parametrize("code", PASSING)
def test_an_error_that_passes_is_asked_again(
    key: ApiKey, upto: Callable[[Life], PendingOperation], code: int
) -> None:
    """The same request goes to the same coordinator after a pause, with growing pauses."""
    life = Life()
    pending = upto(life)
    waits = []
    for _ in range(3):
        life.serve(key, code)
        waits.append((life.next_deadline() or 0.0) - life.now)
    assert all(wait > 0 for wait in waits)
    assert waits[2] > waits[0] or key is PARTITIONS
    finish(life, key)
    pending.take()
    assert life.manager.error is None


@pytest.mark.parametrize(("key", "upto"), STEPS, ids=STEP_NAMES)
@pytest.mark.parametrize("code", LOST_COORDINATOR)
def test_a_coordinator_that_moved_is_looked_up(
    key: ApiKey, upto: Callable[[Life], PendingOperation], code: int
) -> None:
    """After NOT_COORDINATOR comes FindCoordinator, then the same request."""
    life = Life()
    pending = upto(life)
    life.serve(key, code)
    life.serve(FIND)
    finish(life, key)
    pending.take()


@pytest.mark.parametrize(("key", "upto"), STEPS, ids=STEP_NAMES)
def test_a_lost_connection_is_asked_again(
    key: ApiKey, upto: Callable[[Life], PendingOperation]
) -> None:
    """No answer means to look the coordinator up and to ask again."""
    life = Life()
    pending = upto(life)
    life.manager.flow.answered(life.ask(key), DisconnectedError("gone"), life.now)
    life.serve(FIND)
    finish(life, key)
    pending.take()


def test_offsets_that_time_out_look_for_their_coordinator() -> None:
    """REQUEST_TIMED_OUT of a group's coordinator is taken for its loss."""
    life = Life()
    pending = upto_offset_commit(life)
    life.serve(COMMIT_OFFSETS, ErrorCode.REQUEST_TIMED_OUT)
    life.serve(FIND)
    life.serve(COMMIT_OFFSETS)
    pending.take()


def test_a_request_that_cannot_be_sent_is_handed_out_again() -> None:
    """Without a connection the request waits, and costs no pause."""
    life = Life()
    upto_init(life)
    request = life.ask(INIT)
    assert life.manager.flow.next_request(life.now, has_incomplete=False) is None
    life.manager.flow.queue.requeue(request)
    assert life.ask(INIT) is request


@pytest.mark.parametrize(("key", "upto"), STEPS, ids=STEP_NAMES)
@pytest.mark.parametrize("code", FENCED)
def test_a_fenced_producer_can_only_be_closed(
    key: ApiKey, upto: Callable[[Life], PendingOperation], code: int
) -> None:
    """Both codes of a newer producer end this one, and every call says so."""
    life = Life()
    pending = upto(life)
    life.serve(key, code)
    with pytest.raises(ProducerFencedError):
        pending.take()
    assert state_of(life) is State.FATAL_ERROR
    for call in (
        life.manager.begin,
        life.manager.commit,
        life.manager.abort,
        life.manager.init_transactions,
        lambda: life.manager.may_append(T0),
        lambda: life.manager.send_offsets(CONSUMED, GROUP),
    ):
        with pytest.raises(ProducerFencedError):
            call()
    assert life.is_idle()


@pytest.mark.parametrize(
    ("key", "upto", "code"),
    [
        (PARTITIONS, upto_partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (PARTITIONS, upto_partitions, ErrorCode.INVALID_TXN_STATE),
        (OFFSETS, upto_offsets, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (OFFSETS, upto_offsets, ErrorCode.INVALID_TXN_STATE),
        (COMMIT_OFFSETS, upto_offset_commit, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (COMMIT_OFFSETS, upto_offset_commit, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (COMMIT_OFFSETS, upto_offset_commit, ErrorCode.UNKNOWN_PRODUCER_ID),
        (END, upto_end, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (END, upto_end, ErrorCode.INVALID_TXN_STATE),
        (INIT, upto_init, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (INIT, upto_init, ErrorCode.UNKNOWN_SERVER_ERROR),
        (END, upto_end, 9999),
    ],
)
def test_a_fatal_error_ends_the_producer(
    key: ApiKey, upto: Callable[[Life], PendingOperation], code: int
) -> None:
    """The call fails with the error, and later calls with TransactionStateError."""
    life = Life()
    pending = upto(life)
    life.serve(key, code)
    with pytest.raises((AuthorizationError, BrokerRefusedError)):
        pending.take()
    assert state_of(life) is State.FATAL_ERROR
    with pytest.raises(TransactionStateError, match="close it"):
        life.manager.begin()


def test_a_commit_of_a_transaction_that_has_timed_out_says_so() -> None:
    """With the setting, its value, and what to do; an abort has no such advice."""
    life = Life()
    pending = upto_end(life)
    life.serve(END, ErrorCode.INVALID_TXN_STATE)
    with pytest.raises(BrokerRefusedError) as raised:
        pending.take()
    assert raised.value.code is ErrorCode.INVALID_TXN_STATE
    told = str(raised.value)
    assert "the coordinator has aborted the transaction" in told
    assert "longer than transaction.timeout.ms (60000 ms)" in told
    assert "with a new one" in told


@pytest.mark.parametrize(
    ("key", "upto", "code", "error"),
    [
        (PARTITIONS, upto_partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (PARTITIONS, upto_partitions, ErrorCode.OPERATION_NOT_ATTEMPTED, TransactionAbortableError),
        (PARTITIONS, upto_partitions, ErrorCode.INVALID_TOPIC_EXCEPTION, TransactionAbortableError),
        (PARTITIONS, upto_partitions, ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortableError),
        (OFFSETS, upto_offsets, ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError),
        (OFFSETS, upto_offsets, ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortableError),
        (
            COMMIT_OFFSETS,
            upto_offset_commit,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            AuthorizationError,
        ),
        (
            COMMIT_OFFSETS,
            upto_offset_commit,
            ErrorCode.FENCED_INSTANCE_ID,
            TransactionAbortableError,
        ),
        (
            COMMIT_OFFSETS,
            upto_offset_commit,
            ErrorCode.UNKNOWN_MEMBER_ID,
            TransactionAbortableError,
        ),
        (
            COMMIT_OFFSETS,
            upto_offset_commit,
            ErrorCode.ILLEGAL_GENERATION,
            TransactionAbortableError,
        ),
        (
            COMMIT_OFFSETS,
            upto_offset_commit,
            ErrorCode.TRANSACTION_ABORTABLE,
            TransactionAbortableError,
        ),
        (END, upto_end, ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortableError),
    ],
)
def test_an_abortable_error_leaves_the_abort(
    key: ApiKey, upto: Callable[[Life], PendingOperation], code: int, error: type[Exception]
) -> None:
    """The call fails with the error, others with TransactionAbortableError; abort goes on."""
    life = Life()
    pending = upto(life)
    life.serve(key, code)
    with pytest.raises(error):
        pending.take()
    assert state_of(life) is State.ABORTABLE_ERROR
    for call in (life.manager.commit, lambda: life.manager.may_append(T0), life.manager.begin):
        with pytest.raises(TransactionAbortableError, match="abort"):
            call()
    pending_abort = life.manager.abort()
    if key not in {PARTITIONS, OFFSETS}:
        life.serve(END)
    assert life.is_idle()
    pending_abort.take()
    life.begun(T0)
    assert life.manager.may_drain(closed_batch(T0))


@pytest.mark.parametrize("code", FORGOTTEN)
@pytest.mark.parametrize(
    ("key", "upto"), [(PARTITIONS, upto_partitions), (OFFSETS, upto_offsets), (END, upto_end)]
)
def test_a_forgotten_producer_gets_a_new_epoch_after_the_abort(
    key: ApiKey, upto: Callable[[Life], PendingOperation], code: int
) -> None:
    """With InitProducerId v3 the transaction is aborted and the epoch asked for (KIP-360)."""
    life = Life()
    pending = upto(life)
    life.serve(key, code)
    with pytest.raises(TransactionAbortableError):
        pending.take()
    pending_abort = life.manager.abort()
    if key is END:
        life.serve(END)
    life.producer = (7, 1)
    request = life.ask(INIT)
    assert isinstance(request.body, InitProducerIdRequest)
    assert (request.body.producer_id, request.body.producer_epoch) == (7, 0)
    life.reply(request)
    pending_abort.take()
    assert life.manager.producer == ProducerIdAndEpoch(7, 1)
    assert life.begun(T0).sent(T0).base_sequence == 0


@pytest.mark.parametrize("code", FORGOTTEN)
@pytest.mark.parametrize(
    ("key", "upto"), [(PARTITIONS, upto_partitions), (OFFSETS, upto_offsets), (END, upto_end)]
)
def test_an_old_coordinator_gives_a_forgotten_producer_nothing(
    key: ApiKey, upto: Callable[[Life], PendingOperation], code: int
) -> None:
    """Before InitProducerId v3 there is no way on but to close."""
    life = Life(init_version=2)
    pending = upto(life)
    life.serve(key, code)
    with pytest.raises(BrokerRefusedError):
        pending.take()
    assert state_of(life) is State.FATAL_ERROR


@pytest.mark.parametrize(
    ("key", "upto"), [(PARTITIONS, upto_partitions), (OFFSETS, upto_offsets), (END, upto_end)]
)
def test_a_producer_whose_id_went_to_another_can_only_be_closed(
    key: ApiKey, upto: Callable[[Life], PendingOperation]
) -> None:
    """INVALID_PRODUCER_ID_MAPPING is fatal in every answer, as in Kafka 4.3, with advice."""
    life = Life()
    pending = upto(life)
    life.serve(key, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    with pytest.raises(BrokerRefusedError, match="make a new one"):
        pending.take()
    assert state_of(life) is State.FATAL_ERROR
    assert life.is_idle()


def test_a_transaction_timeout_that_is_too_long_names_both_settings() -> None:
    """The message of INVALID_TRANSACTION_TIMEOUT has the producer's setting and the broker's."""
    life = Life()
    pending = upto_init(life)
    life.serve(INIT, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    with pytest.raises(BrokerRefusedError) as caught:
        pending.take()
    assert "transaction.timeout.ms" in str(caught.value)
    assert "transaction.max.timeout.ms" in str(caught.value)


@pytest.mark.parametrize("code", FENCED)
def test_a_fenced_producer_is_told_both_possible_reasons(code: int) -> None:
    """The message has both causes of an old epoch: another producer, or a timeout."""
    life = Life()
    pending = upto_end(life)
    life.serve(END, code)
    with pytest.raises(ProducerFencedError, match=r"transaction\.timeout\.ms"):
        pending.take()


def test_find_coordinator_errors() -> None:
    """An unauthorized transactional id is fatal; retriable errors are retried."""
    life = Life()
    pending = life.manager.init_transactions()
    life.serve(FIND, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert life.next_deadline() is not None
    life.serve(FIND, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError):
        pending.take()
    assert state_of(life) is State.FATAL_ERROR


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortableError),
    ],
)
def test_a_groups_coordinator_that_is_refused_is_abortable(
    code: int, error: type[Exception]
) -> None:
    """A user without rights on the group must abort the transaction, but keeps the producer."""
    life = Life()
    pending = upto_offsets(life)
    life.serve(OFFSETS)
    life.serve(FIND, code)
    with pytest.raises(error):
        pending.take()
    life.manager.abort()
    life.serve(END)
    assert state_of(life) is State.READY


@pytest.mark.parametrize(
    "answer",
    [
        FindCoordinatorResponse(),
        FindCoordinatorResponse(node_id=1, host="", port=1),
    ],
)
def test_an_answer_without_coordinator_is_fatal(answer: FindCoordinatorResponse) -> None:
    """An answer without a coordinator is a fatal error with a clear message."""
    life = Life()
    pending = life.manager.init_transactions()
    life.manager.flow.answered(life.ask(FIND), answer, life.now)
    with pytest.raises(BrokerRefusedError, match="named"):
        pending.take()


def test_old_answers_name_the_coordinator_too() -> None:
    """Up to v3 FindCoordinator names one broker outside of a list."""
    life = Life()
    life.manager.init_transactions()
    answer = FindCoordinatorResponse(node_id=4, host="old", port=1)
    life.manager.flow.answered(life.ask(FIND), answer, life.now)
    assert life.ask(INIT).node == Node(4, "old", 1)


def test_an_answer_without_identity_is_fatal() -> None:
    """InitProducerId without error and without id ends in a clear error."""
    life = Life()
    pending = upto_init(life)
    life.manager.flow.answered(life.ask(INIT), InitProducerIdResponse(), life.now)
    with pytest.raises(BrokerRefusedError, match="epoch 0"):
        pending.take()


@pytest.mark.parametrize(
    ("key", "upto"), [(PARTITIONS, upto_partitions), (COMMIT_OFFSETS, upto_offset_commit)]
)
def test_an_answer_about_other_partitions_is_fatal(
    key: ApiKey, upto: Callable[[Life], PendingOperation]
) -> None:
    """An answer that lacks the requested partitions is a fatal error with a clear message."""
    life = Life()
    pending = upto(life)
    request = life.ask(key)
    life.manager.flow.answered(request, APIS[key].response(), life.now)
    with pytest.raises(BrokerRefusedError, match="other partitions"):
        pending.take()


@pytest.mark.parametrize("error", [UnsupportedVersionError("old"), AuthenticationError("who?")])
@pytest.mark.parametrize("key", [FIND, INIT, COMMIT_OFFSETS])
def test_a_broker_that_cannot_be_spoken_to_is_fatal(key: ApiKey, error: Exception) -> None:
    """No shared version, or no authentication, fails the call with that error."""
    life = Life()
    upto = {FIND: lambda _: life.manager.init_transactions(), COMMIT_OFFSETS: upto_offset_commit}
    pending = upto.get(key, upto_init)(life)
    life.manager.flow.answered(life.ask(key), error, life.now)
    with pytest.raises(type(error)):
        pending.take()
    assert state_of(life) is State.FATAL_ERROR


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, State.READY),
        (ErrorCode.UNKNOWN_SERVER_ERROR, State.FATAL_ERROR),
    ],
)
def test_offsets_that_fail_during_an_abort(code: int, state: State) -> None:
    """Only a fatal error of the offsets fails the abort."""
    life = Life()
    upto_offsets(life)
    pending = life.manager.abort()
    life.serve(OFFSETS, code)
    assert life.is_idle()
    assert state_of(life) is state
    assert (pending.error is None) is (state is State.READY)


@pytest.mark.parametrize(
    ("code", "is_retried"),
    [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True), (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)],
)
def test_one_partition_decides_for_all_of_its_request(code: int, *, is_retried: bool) -> None:
    """All are in or none; those that were not attempted follow the one that was."""
    life = Life().initialized().begun()
    for partition in (T0, T1):
        life.manager.note_append(partition)
    codes = {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 1: code}
    results = tuple(
        AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=codes[each])
        for each in codes
    )
    topic = AddPartitionsToTxnTopicResult(name=T0.topic, results_by_partition=results)
    answer = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(topic,))
    life.manager.flow.answered(life.ask(PARTITIONS), answer, life.now)
    if is_retried:
        life.serve(PARTITIONS)
        assert life.manager.may_drain(closed_batch(T1))
    else:
        assert isinstance(life.manager.error, AuthorizationError)
        assert "t-1" in str(life.manager.error)


def test_a_lost_coordinator_loses_no_knowledge_of_it() -> None:
    """The producer remembers that epochs can be bumped while the coordinator is away."""
    life = Life()
    pending = upto_end(life)
    life.manager.flow.answered(life.ask(END), DisconnectedError("gone"), life.now)
    life.serve(FIND)
    life.serve(END, ErrorCode.UNKNOWN_PRODUCER_ID)
    assert isinstance(pending.error, TransactionAbortableError)
    assert state_of(life) is State.ABORTABLE_ERROR


@pytest.mark.parametrize(("key", "upto"), STEPS, ids=STEP_NAMES)
def test_any_answer_leads_to_a_state(key: ApiKey, upto: Callable[[Life], PendingOperation]) -> None:
    """Whatever a coordinator answers, the call ends, or the request is repeated after a pause."""

    @settings(max_examples=examples(60), deadline=None, derandomize=True, database=None)
    @given(data=st.data(), version=st.sampled_from(list(APIS[key].versions)))
    def holds(data: st.DataObject, version: int) -> None:
        life = Life()
        pending = upto(life)
        answer = data.draw(messages(APIS[key].response, version))
        assert isinstance(answer, APIS[key].response)
        life.manager.flow.answered(life.ask(key), answer, life.now)
        request = life.manager.flow.next_request(life.now, has_incomplete=False)
        has_way_on = request is not None or life.next_deadline() is not None
        assert pending.is_done or has_way_on

    holds()


def test_any_answer_to_a_look_up_leads_to_a_state() -> None:
    """Any answer to FindCoordinator, in each version's form, leads to a defined state."""

    @settings(max_examples=examples(100), deadline=None, derandomize=True, database=None)
    @given(data=st.data(), version=st.sampled_from(list(APIS[FIND].versions)))
    def holds(data: st.DataObject, version: int) -> None:
        life = Life()
        pending = life.manager.init_transactions()
        answer = data.draw(messages(APIS[FIND].response, version))
        assert isinstance(answer, APIS[FIND].response)
        life.manager.flow.answered(life.ask(FIND), answer, life.now)
        request = life.manager.flow.next_request(life.now, has_incomplete=False)
        has_way_on = request is not None or life.next_deadline() is not None
        assert pending.is_done or has_way_on

    holds()
