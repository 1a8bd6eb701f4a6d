"""InitProducerId: new ids, new epochs, repeated requests, and clients that came too late."""

import asyncio

import pytest

from tailrace.coordinator.errors import CoordinatorLoadInProgressError
from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions.state import Transaction, TransactionStatus
from tailrace.model import ProducerEpoch, ProducerId
from tailrace.protocol.errors import ErrorCode
from tests.unit.coordinator.transactions.stage import (
    NOBODY,
    NOW,
    PRODUCER,
    A,
    C,
    Stage,
    play,
    producer_at,
    stored,
)

IDLE = [
    TransactionStatus.EMPTY,
    TransactionStatus.COMPLETE_COMMIT,
    TransactionStatus.COMPLETE_ABORT,
]
PREPARED = [TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT]


def at(epoch: int) -> TransactionalProducer:
    """The stored producer id with another epoch."""
    return TransactionalProducer(PRODUCER.producer_id, ProducerEpoch(epoch))


def test_a_new_id_gets_a_new_producer_id_with_epoch_0() -> None:
    """The log says so before the client hears it, and there is no transaction."""

    async def scenario(stage: Stage) -> None:
        assert await stage.init() == (ErrorCode.NONE, producer_at(1000, 0))
        assert stage.transaction() == Transaction(
            transactional_id="t",
            producer_id=ProducerId(1000),
            producer_epoch=ProducerEpoch(0),
            previous_producer_id=ProducerId(1000),
            timeout_ms=60_000,
            updated_ms=stage.outside.clock.now_ms(),
        )

    assert play(scenario).statuses() == [TransactionStatus.EMPTY]


def test_a_new_id_whose_client_has_a_producer_id_gets_another() -> None:
    """The id has expired meanwhile; nothing is known of the client's epoch."""

    async def scenario(stage: Stage) -> None:
        found = await stage.init(expected=producer_at(55, 5))
        assert found == (ErrorCode.NONE, producer_at(1000, 0))

    play(scenario)


def test_a_producer_without_transactions_gets_a_new_producer_id_each_time() -> None:
    """Nothing is written, as there is nothing to remember."""

    async def scenario(stage: Stage) -> None:
        for producer_id in (1000, 1001):
            found = await stage.init(None)
            assert found == (ErrorCode.NONE, producer_at(producer_id, 0))
        assert stage.log.content == []

    play(scenario)


@pytest.mark.parametrize(
    ("transactional_id", "more", "error"),
    [
        ("", {}, ErrorCode.INVALID_REQUEST),
        ("t" * 32_768, {}, ErrorCode.INVALID_REQUEST),
        ("t" * 32_767, {}, ErrorCode.NONE),
        (
            "t",
            {"expected": producer_at(7, -1)},
            ErrorCode.INVALID_REQUEST,
        ),
        (
            "t",
            {"expected": producer_at(-1, 3)},
            ErrorCode.INVALID_REQUEST,
        ),
        (
            None,
            {"expected": producer_at(7, -1)},
            ErrorCode.INVALID_REQUEST,
        ),
        ("t", {"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", {"timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", {"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", {"enable2_pc": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("t", {"keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
        ("t", {"timeout_ms": 900_000}, ErrorCode.NONE),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(
    transactional_id: str | None, more: dict[str, object], error: ErrorCode
) -> None:
    """Half a producer, a timeout out of its limits, and KIP-939, which is not served."""

    async def scenario(stage: Stage) -> None:
        found = await stage.init(transactional_id, **more)  # type: ignore[arg-type]
        assert found.error == error
        assert (found.producer == NOBODY) == (error is not ErrorCode.NONE)

    play(scenario)


@pytest.mark.parametrize("status", IDLE)
def test_a_client_that_has_nothing_fences_the_one_before(status: TransactionStatus) -> None:
    """It gets the next epoch, its timeout counts, and the partitions of the last one are gone."""

    async def scenario(stage: Stage) -> None:
        found = await stage.init(timeout_ms=5_000)
        assert found == (ErrorCode.NONE, at(4))
        state = stage.transaction()
        assert state.status is TransactionStatus.EMPTY
        assert (state.timeout_ms, state.start_ms, state.partitions) == (5_000, -1, frozenset())
        assert await stage.init(expected=at(3)) == (ErrorCode.PRODUCER_FENCED, NOBODY)
        assert await stage.add(at(3)) is ErrorCode.PRODUCER_FENCED

    play(scenario, stored(status))


def test_a_client_with_the_current_epoch_gets_the_next_and_may_ask_again() -> None:
    """The repeated request has the same answer, as the first answer may be lost (KIP-360)."""

    async def scenario(stage: Stage) -> None:
        for _ in range(3):
            assert await stage.init(expected=at(3)) == (ErrorCode.NONE, at(4))
        assert await stage.init(expected=at(4)) == (ErrorCode.NONE, at(5))
        assert await stage.init(expected=at(3)) == (ErrorCode.PRODUCER_FENCED, NOBODY)

    play(scenario, stored())


def test_a_repeated_request_is_fenced_by_a_client_that_had_nothing() -> None:
    """The newer client has the epoch that would be the answer."""

    async def scenario(stage: Stage) -> None:
        assert await stage.init(expected=at(3)) == (ErrorCode.NONE, at(4))
        assert await stage.init() == (ErrorCode.NONE, at(5))
        assert await stage.init(expected=at(4)) == (ErrorCode.PRODUCER_FENCED, NOBODY)

    play(scenario, stored())


def test_a_repeated_request_is_fenced_after_a_restart() -> None:
    """The epoch before is in no record, as in Kafka."""

    async def scenario(stage: Stage) -> None:
        assert await stage.init(expected=at(3)) == (ErrorCode.NONE, at(4))
        await stage.restart()
        assert await stage.init(expected=at(3)) == (ErrorCode.PRODUCER_FENCED, NOBODY)
        assert await stage.init(expected=at(4)) == (ErrorCode.NONE, at(5))

    play(scenario, stored())


@pytest.mark.parametrize(
    ("version", "error"),
    [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)],
)
@pytest.mark.parametrize("expected", [at(1), at(4), producer_at(8, 3)])
def test_a_client_that_is_not_the_newest_is_fenced(
    version: int, error: ErrorCode, expected: TransactionalProducer
) -> None:
    """Another epoch or another producer id: by the error that its version knows."""

    async def scenario(stage: Stage) -> None:
        found = await stage.init(expected=expected, version=version)
        assert found == (error, NOBODY)

    assert len(play(scenario, stored()).log.content) == 1


def test_an_open_transaction_is_aborted_before_its_id_is_given_again() -> None:
    """The client is told to ask again, and ends two epochs above the old one."""

    async def scenario(stage: Stage) -> None:
        stage.partitions.is_free.clear()
        for _ in range(2):
            assert await stage.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
        assert await stage.add() is ErrorCode.CONCURRENT_TRANSACTIONS
        stage.partitions.is_free.set()
        await stage.outside.pass_time(0.001)
        assert stage.partitions.ends == [(A, 7, 4, False), (C, 7, 4, False)]
        assert await stage.init() == (ErrorCode.NONE, at(5))

    stage = play(scenario, stored(TransactionStatus.ONGOING))
    assert stage.statuses() == [
        TransactionStatus.ONGOING,
        TransactionStatus.PREPARE_ABORT,
        TransactionStatus.COMPLETE_ABORT,
        TransactionStatus.EMPTY,
    ]


def test_a_client_of_another_producer_id_does_not_abort_an_open_transaction() -> None:
    """It is fenced, and the transaction goes on."""

    async def scenario(stage: Stage) -> None:
        found = await stage.init(expected=producer_at(8, 0))
        assert found == (ErrorCode.PRODUCER_FENCED, NOBODY)
        assert await stage.add() is ErrorCode.NONE

    play(scenario, stored(TransactionStatus.ONGOING))


@pytest.mark.parametrize("status", PREPARED)
def test_a_prepared_end_is_waited_for(status: TransactionStatus) -> None:
    """The client asks again until the markers are written."""

    async def scenario(stage: Stage) -> None:
        assert await stage.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
        stage.partitions.is_free.set()
        await stage.outside.pass_time(1)
        assert await stage.init() == (ErrorCode.NONE, at(5))

    play(scenario, stored(status, epoch=4), are_markers_held=True)


def test_an_abort_that_could_not_be_written_raises_the_epoch_once() -> None:
    """The client asks again after each failure, and no epoch is lost with them."""

    async def scenario(stage: Stage) -> None:
        stage.log.refusal = OSError(28, "no space left on device")
        for _ in range(3):
            assert await stage.init() == (ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)
        stage.log.refusal = None
        assert await stage.add(partitions=[A]) is ErrorCode.NONE
        assert await stage.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
        await stage.outside.pass_time(0.001)
        assert stage.partitions.ends == [(A, 7, 4, False), (C, 7, 4, False)]

    play(scenario, stored(TransactionStatus.ONGOING))


def test_an_epoch_that_could_not_be_written_is_given_again() -> None:
    """A failed append leaves the producer as it was, and the epoch before it, too."""

    async def scenario(stage: Stage) -> None:
        assert await stage.init(expected=at(3)) == (ErrorCode.NONE, at(4))
        stage.log.refusal = OSError(28, "no space left on device")
        assert await stage.init() == (ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)
        stage.log.refusal = None
        assert await stage.init(expected=at(3)) == (ErrorCode.NONE, at(4))
        assert await stage.init() == (ErrorCode.NONE, at(5))

    play(scenario, stored())


@pytest.mark.parametrize("status", IDLE)
def test_a_used_up_producer_id_is_replaced(status: TransactionStatus) -> None:
    """32766 is the last epoch that a client gets; the record keeps the producer id before."""

    async def scenario(stage: Stage) -> None:
        assert await stage.init() == (ErrorCode.NONE, at(32_766))
        assert await stage.init() == (ErrorCode.NONE, producer_at(1000, 0))
        assert stage.transaction().previous_producer_id == PRODUCER.producer_id

    play(scenario, stored(status, epoch=32_765))


def test_the_last_epoch_of_all_fences_a_client_that_has_the_last_but_one() -> None:
    """So an open transaction can be aborted, and with its end the producer id is replaced."""

    async def scenario(stage: Stage) -> None:
        assert await stage.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
        await stage.outside.pass_time(0.001)
        assert stage.partitions.ends == [(A, 7, 32_767, False), (C, 7, 32_767, False)]
        assert await stage.add(at(32_767)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await stage.init() == (ErrorCode.NONE, producer_at(1000, 1))

    play(scenario, stored(TransactionStatus.ONGOING, epoch=32_766))


def test_a_client_may_ask_with_the_epoch_whose_transaction_was_aborted() -> None:
    """It gets the epoch of the abort, which nobody else has had, also if it asks again."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(80)
        for _ in range(2):
            assert await stage.init(expected=at(3)) == (ErrorCode.NONE, at(4))
        assert await stage.init(expected=at(2)) == (ErrorCode.PRODUCER_FENCED, NOBODY)

    play(scenario, stored(TransactionStatus.ONGOING))


def test_a_client_may_ask_with_the_last_epoch_whose_transaction_was_aborted() -> None:
    """The producer id that came with the abort is the answer, also if it asks again."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(80)
        for _ in range(2):
            found = await stage.init(expected=at(32_766))
            assert found == (ErrorCode.NONE, producer_at(1000, 0))
        for epoch in (0, 32_765, 32_767):
            assert (await stage.init(expected=at(epoch))).error is not ErrorCode.NONE
        assert await stage.add(producer_at(1000, 0)) is ErrorCode.NONE

    play(scenario, stored(TransactionStatus.ONGOING, epoch=32_766))


def test_an_aborted_client_is_fenced_by_one_that_had_nothing() -> None:
    """The newer client has the epoch behind the abort."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(80)
        assert await stage.init() == (ErrorCode.NONE, producer_at(1000, 1))
        found = await stage.init(expected=at(32_766))
        assert found == (ErrorCode.PRODUCER_FENCED, NOBODY)

    play(scenario, stored(TransactionStatus.ONGOING, epoch=32_766))


def test_a_request_that_has_replaced_a_producer_id_may_be_repeated() -> None:
    """With the old id and its last epoch; the new id alone can go on from there."""

    async def scenario(stage: Stage) -> None:
        for _ in range(3):
            found = await stage.init(expected=at(32_766))
            assert found == (ErrorCode.NONE, producer_at(1000, 0))
        for epoch in (0, 32_765):
            assert await stage.init(expected=at(epoch)) == (ErrorCode.PRODUCER_FENCED, NOBODY)
        found = await stage.init(expected=producer_at(1000, 0))
        assert found == (ErrorCode.NONE, producer_at(1000, 1))
        assert await stage.init(expected=at(32_766)) == (ErrorCode.PRODUCER_FENCED, NOBODY)

    play(scenario, stored(epoch=32_766))


def test_a_repeated_request_for_the_last_epoch_is_answered_alike() -> None:
    """The producer id is used up, but not for the client that has not heard of its last epoch."""

    async def scenario(stage: Stage) -> None:
        for _ in range(2):
            assert await stage.init(expected=at(32_765)) == (ErrorCode.NONE, at(32_766))
        assert await stage.init(expected=at(9)) == (ErrorCode.PRODUCER_FENCED, NOBODY)

    play(scenario, stored(epoch=32_765))


def test_a_client_asks_again_while_there_are_no_producer_ids() -> None:
    """The controller cannot be reached: with or without a transactional id."""

    async def scenario(stage: Stage) -> None:
        stage.producer_id_fault = CoordinatorLoadInProgressError("no producer ids yet")
        for transactional_id in ("t", None):
            found = await stage.init(transactional_id)
            assert found == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NOBODY)
        assert stage.log.content == []
        stage.producer_id_fault = None
        assert await stage.init() == (ErrorCode.NONE, producer_at(1000, 0))

    play(scenario)


def test_an_id_that_comes_late_changes_nothing_if_it_is_not_needed_any_more() -> None:
    """Two clients ask for the same new id at once: the second gets the next epoch."""

    async def scenario(stage: Stage) -> None:
        first, second = await asyncio.gather(stage.init(), stage.init())
        assert first == (ErrorCode.NONE, producer_at(1000, 0))
        assert second == (ErrorCode.NONE, producer_at(1000, 1))

    play(scenario)


def test_requests_are_answered_by_the_leader_of_the_ids_partition_alone() -> None:
    """With the errors of a coordinator that is loading, and of a broker that is none."""

    async def scenario(stage: Stage) -> None:
        await stage.shards.stop()
        assert (await stage.init()).error is ErrorCode.NOT_COORDINATOR
        assert (await stage.end()).error is ErrorCode.NOT_COORDINATOR
        assert await stage.add() is ErrorCode.NOT_COORDINATOR
        stage.log.seconds_per_read = 5
        await stage.load()
        assert (await stage.init()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await stage.end()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await stage.add() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    play(scenario)


def test_the_time_of_a_change_is_in_the_record() -> None:
    """By it, unused ids expire."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(5)
        await stage.init()
        assert stage.transaction().updated_ms == stage.outside.clock.now_ms() >= NOW + 5_000

    play(scenario, stored())
