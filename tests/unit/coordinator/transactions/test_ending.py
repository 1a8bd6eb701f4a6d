"""EndTxn: every state, by clients that keep their epoch and by those of KIP-890."""

import asyncio
from functools import partial

import pytest

from tailrace.coordinator.errors import CoordinatorLoadInProgressError
from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions.state import TransactionStatus
from tailrace.model import ProducerEpoch
from tailrace.protocol.errors import ErrorCode
from tests.unit.coordinator.transactions.stage import (
    COORDINATOR_EPOCH,
    NOBODY,
    PRODUCER,
    A,
    C,
    Stage,
    play,
    producer_at,
    stored,
)

NONE = ErrorCode.NONE
INVALID = ErrorCode.INVALID_TXN_STATE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED

EMPTY = TransactionStatus.EMPTY
ONGOING = TransactionStatus.ONGOING
PREPARE_COMMIT = TransactionStatus.PREPARE_COMMIT
PREPARE_ABORT = TransactionStatus.PREPARE_ABORT
COMPLETE_COMMIT = TransactionStatus.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionStatus.COMPLETE_ABORT


def at(epoch: int) -> TransactionalProducer:
    """The stored producer id with another epoch; the stored one is 3."""
    return TransactionalProducer(PRODUCER.producer_id, ProducerEpoch(epoch))


@pytest.mark.parametrize(
    ("status", "commit", "abort"),
    [
        (EMPTY, INVALID, INVALID),
        (ONGOING, NONE, NONE),
        (PREPARE_COMMIT, CONCURRENT, CONCURRENT),
        (PREPARE_ABORT, CONCURRENT, CONCURRENT),
        (COMPLETE_COMMIT, NONE, INVALID),
        (COMPLETE_ABORT, INVALID, NONE),
    ],
)
def test_an_end_with_a_kept_epoch_is_answered_by_the_state(
    status: TransactionStatus, commit: ErrorCode, abort: ErrorCode
) -> None:
    """Up to version 4, where a repeated request cannot be told from a new one."""

    async def scenario(stage: Stage, *, is_commit: bool) -> None:
        found = await stage.end(is_commit=is_commit, version=4)
        expected = commit if is_commit else abort
        assert found.error is expected
        assert (found.producer == PRODUCER) == (expected is NONE)

    for is_commit in (True, False):
        play(
            partial(scenario, is_commit=is_commit),
            stored(status, client_version=0),
            are_markers_held=True,
        )


@pytest.mark.parametrize(
    ("status", "epoch", "commit", "abort"),
    [
        (EMPTY, 3, INVALID, at(4)),
        (EMPTY, 2, FENCED, FENCED),
        (ONGOING, 3, at(4), at(4)),
        (ONGOING, 2, FENCED, FENCED),
        (ONGOING, 4, FENCED, FENCED),
        (PREPARE_COMMIT, 1, CONCURRENT, CONCURRENT),
        (PREPARE_COMMIT, 2, CONCURRENT, CONCURRENT),
        (PREPARE_COMMIT, 3, CONCURRENT, CONCURRENT),
        (PREPARE_COMMIT, 4, CONCURRENT, CONCURRENT),
        (PREPARE_ABORT, 2, CONCURRENT, CONCURRENT),
        (PREPARE_ABORT, 3, CONCURRENT, CONCURRENT),
        (COMPLETE_COMMIT, 2, at(3), INVALID),
        (COMPLETE_COMMIT, 3, INVALID, at(4)),
        (COMPLETE_COMMIT, 1, FENCED, FENCED),
        (COMPLETE_COMMIT, 4, FENCED, FENCED),
        (COMPLETE_ABORT, 2, INVALID, at(3)),
        (COMPLETE_ABORT, 3, INVALID, at(4)),
        (COMPLETE_ABORT, 1, FENCED, FENCED),
    ],
)
def test_an_end_that_raises_the_epoch_is_answered_by_state_and_epoch(
    status: TransactionStatus,
    epoch: int,
    commit: ErrorCode | TransactionalProducer,
    abort: ErrorCode | TransactionalProducer,
) -> None:
    """Version 5: with the epoch before, it is a repetition; with the current one, the next end."""

    async def scenario(stage: Stage, *, is_commit: bool) -> None:
        found = await stage.end(at(epoch), is_commit=is_commit)
        expected = commit if is_commit else abort
        if isinstance(expected, ErrorCode):
            assert found == (expected, NOBODY)
        else:
            assert found == (NONE, expected)

    for is_commit in (True, False):
        play(
            partial(scenario, is_commit=is_commit),
            stored(status),
            are_markers_held=True,
        )


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_is_prepared_then_marked_then_complete(version: int, is_commit: bool) -> None:  # noqa: FBT001 - a case
    """Since version 5 under the next epoch, which is the marker's and the client's next one."""
    epoch = 4 if version == 5 else 3

    async def scenario(stage: Stage) -> None:
        stage.partitions.is_free.clear()
        found = await stage.end(is_commit=is_commit, version=version)
        assert found == (NONE, at(epoch))
        await stage.outside.pass_time(1)
        assert stage.transaction().is_prepared
        assert stage.transaction().partitions == {A, C}
        stage.partitions.is_free.set()
        await stage.outside.pass_time(0.001)
        assert stage.partitions.ends == [
            (A, 7, epoch, is_commit),
            (C, 7, epoch, is_commit),
        ]
        _, marker = stage.partitions.written[0]
        assert marker.coordinator_epoch == COORDINATOR_EPOCH
        assert marker.transaction_version == (2 if version == 5 else 0)
        state = stage.transaction()
        assert (state.partitions, state.producer) == (frozenset(), at(epoch))
        assert state.start_ms != -1

    assert play(scenario, stored(ONGOING)).statuses() == [
        ONGOING,
        PREPARE_COMMIT if is_commit else PREPARE_ABORT,
        COMPLETE_COMMIT if is_commit else COMPLETE_ABORT,
    ]


@pytest.mark.parametrize("version", [4, 5])
def test_the_next_transaction_may_begin_when_an_end_is_answered(version: int) -> None:
    """The markers are written by then, so that the client need not come again."""

    async def scenario(stage: Stage) -> None:
        producer = PRODUCER
        for is_commit in (True, False, True):
            assert await stage.add(producer) is NONE
            found = await stage.end(producer, is_commit=is_commit, version=version)
            assert found.error is NONE
            assert stage.transaction().status is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
            producer = found.producer if version == 5 else producer

    play(scenario, stored())


def test_an_end_is_answered_soon_where_its_markers_take_long() -> None:
    """The decision is all that the answer promises; a partition may be away for hours."""

    async def scenario(stage: Stage) -> None:
        started = stage.outside.loop.time()
        assert (await stage.end()).error is NONE
        assert stage.outside.loop.time() - started <= 0.01
        assert stage.transaction().is_prepared

    play(scenario, stored(ONGOING), are_markers_held=True)


def test_an_end_is_not_answered_before_it_is_committed() -> None:
    """Nor are markers written: another leader may not know of it."""

    async def scenario(stage: Stage) -> None:
        stage.log.hold_commits()
        ending = asyncio.ensure_future(stage.end())
        await stage.outside.pass_time(5)
        assert not ending.done()
        assert stage.partitions.waiting == 0
        assert stage.partitions.written == []
        stage.log.commit()
        assert (await ending).error is NONE
        await stage.outside.pass_time(0.001)
        assert len(stage.partitions.written) == 2

    play(scenario, stored(ONGOING))


def test_a_refusal_is_not_answered_before_what_it_rests_on_is_committed() -> None:
    """A fenced producer is told so when the fence cannot be lost any more."""

    async def scenario(stage: Stage) -> None:
        stage.log.hold_commits()
        asking = asyncio.ensure_future(stage.init())
        fenced = asyncio.ensure_future(stage.add())
        await stage.outside.pass_time(5)
        assert [asking.done(), fenced.done()] == [False, False]
        stage.log.commit()
        assert (await asking).error is NONE
        assert await fenced is FENCED

    play(scenario, stored())


def test_a_client_that_leaves_does_not_take_the_end_along() -> None:
    """Its connection breaks while the record is being committed; the markers come all the same."""

    async def scenario(stage: Stage) -> None:
        stage.log.hold_commits()
        ending = asyncio.ensure_future(stage.end())
        await stage.outside.pass_time(1)
        ending.cancel()
        await stage.outside.pass_time(1)
        stage.log.commit()
        await stage.outside.pass_time(1)
        assert stage.transaction().status is COMPLETE_COMMIT

    play(scenario, stored(ONGOING))


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("transactional_id", "producer", "error"),
    [
        ("unknown", PRODUCER, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (
            "t",
            producer_at(8, 3),
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ),
        ("t", at(1), FENCED),
        ("t", at(4), FENCED),
        ("", PRODUCER, ErrorCode.INVALID_REQUEST),
    ],
)
def test_the_end_of_another_producer_is_refused(
    version: int, transactional_id: str, producer: TransactionalProducer, error: ErrorCode
) -> None:
    """By the id, the producer id or the epoch, whether it is smaller or larger."""

    async def scenario(stage: Stage) -> None:
        found = await stage.end(producer, transactional_id=transactional_id, version=version)
        assert found == (error, NOBODY)

    assert play(scenario, stored(ONGOING)).statuses() == [ONGOING]


@pytest.mark.parametrize(
    ("version", "error"),
    [(0, ErrorCode.INVALID_PRODUCER_EPOCH), (1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, FENCED)],
)
def test_an_old_client_hears_of_its_fence_as_it_knows_it(version: int, error: ErrorCode) -> None:
    """Clients such as librdkafka send version 0 or 1, and rely on 47."""

    async def scenario(stage: Stage) -> None:
        assert await stage.end(at(2), version=version) == (error, NOBODY)

    play(scenario, stored(ONGOING))


def test_a_client_may_change_between_kept_and_raised_epochs() -> None:
    """The transaction version is that of each request, not of the id."""

    async def scenario(stage: Stage) -> None:
        producer = PRODUCER
        for version in (5, 4, 4, 5, 4):
            assert await stage.add(producer) is NONE
            error, following = await stage.end(producer, version=version)
            assert error is NONE
            assert following.producer_epoch == producer.producer_epoch + (version == 5)
            producer = following
            await stage.outside.pass_time(0.001)

    play(scenario, stored())


def test_nothing_can_be_aborted_and_still_raises_the_epoch() -> None:
    """A client whose first write failed does not know whether it is in a transaction (KIP-890)."""

    async def scenario(stage: Stage) -> None:
        for epoch in (4, 5, 6):
            found = await stage.end(at(epoch - 1), is_commit=False)
            assert found == (NONE, at(epoch))
            await stage.outside.pass_time(0.001)
            assert stage.transaction().status is COMPLETE_ABORT
            assert stage.transaction().start_ms == stage.transaction().updated_ms
        assert stage.partitions.written == []

    play(scenario, stored())


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_used_up_epoch_ends_with_a_new_producer_id(is_commit: bool) -> None:  # noqa: FBT001 - a case
    """The markers have epoch 32767 of the old one; client and next transaction have the new one."""
    new = producer_at(1000, 0)

    async def scenario(stage: Stage) -> None:
        stage.partitions.is_free.clear()
        assert await stage.end(at(32_766), is_commit=is_commit) == (NONE, new)
        assert (await stage.end(at(32_766), is_commit=is_commit)).error is CONCURRENT
        assert await stage.add(new) is CONCURRENT
        stage.partitions.is_free.set()
        await stage.outside.pass_time(0.001)
        assert stage.partitions.ends == [(A, 7, 32_767, is_commit), (C, 7, 32_767, is_commit)]
        for _ in range(2):
            assert await stage.end(at(32_766), is_commit=is_commit) == (NONE, new)
        assert (await stage.end(at(32_766), is_commit=not is_commit)).error is INVALID
        assert await stage.add(new) is NONE
        assert (await stage.end(new)).producer == producer_at(1000, 1)

    stage = play(scenario, stored(ONGOING, epoch=32_766))
    prepared = stage.records()[1][1]
    assert prepared is not None
    assert (prepared.producer, prepared.next_producer_id) == (at(32_767), 1000)


def test_an_end_waits_for_the_producer_id_that_it_needs() -> None:
    """Without one the client asks again, and nothing has changed."""

    async def scenario(stage: Stage) -> None:
        stage.producer_id_fault = CoordinatorLoadInProgressError("no producer ids yet")
        found = await stage.end(at(32_766))
        assert found == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NOBODY)
        stage.producer_id_fault = None
        assert (await stage.end(at(32_766))).error is NONE

    play(scenario, stored(ONGOING, epoch=32_766))


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_late_abort_of_a_used_up_epoch_gets_a_new_producer_id(is_fenced: bool) -> None:  # noqa: FBT001 - a case
    """The coordinator has aborted before with epoch 32767, and has replaced the producer id."""
    new = producer_at(1000, 0)

    async def scenario(stage: Stage) -> None:
        if is_fenced:
            assert (await stage.init()).error is CONCURRENT
        await stage.outside.pass_time(80)
        assert stage.transaction().producer == new
        assert (await stage.end(at(32_766))).error is INVALID
        for _ in range(2):
            assert await stage.end(at(32_766), is_commit=False) == (NONE, new)
            await stage.outside.pass_time(0.001)
        assert stage.partitions.ends == [(A, 7, 32_767, False), (C, 7, 32_767, False)]
        assert await stage.add(new) is NONE

    assert play(scenario, stored(ONGOING, epoch=32_766)).producer_ids == [1000, 1001]


def test_a_late_abort_replaces_a_producer_id_that_was_left_at_its_last_epoch() -> None:
    """An older Kafka has aborted the transaction, and its record has no new producer id."""

    async def scenario(stage: Stage) -> None:
        for _ in range(2):
            found = await stage.end(at(32_766), is_commit=False)
            assert found == (NONE, producer_at(1000, 0))
            await stage.outside.pass_time(0.001)

    play(scenario, stored(COMPLETE_ABORT, epoch=32_767))


def test_a_client_cannot_take_the_epoch_that_only_fences() -> None:
    """Epoch 32767 could not be fenced any more; the producer id is replaced instead."""

    async def scenario(stage: Stage) -> None:
        for is_commit in (True, False):
            assert (await stage.end(at(32_767), is_commit=is_commit)).error is FENCED
        assert await stage.add(at(32_767)) is FENCED
        assert (await stage.init()).producer == producer_at(1000, 0)

    play(scenario, stored(COMPLETE_ABORT, epoch=32_767))


def test_an_end_that_could_not_be_written_changes_nothing() -> None:
    """The client asks again, and the epoch is raised once."""

    async def scenario(stage: Stage) -> None:
        stage.log.refusal = OSError(28, "no space left on device")
        for is_commit in (True, False):
            found = await stage.end(is_commit=is_commit)
            assert found == (ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)
        await stage.outside.pass_time(1)
        assert stage.partitions.written == []
        stage.log.refusal = None
        assert await stage.end() == (NONE, at(4))

    play(scenario, stored(ONGOING))
