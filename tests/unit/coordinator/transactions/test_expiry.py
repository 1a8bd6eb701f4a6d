"""Time: transactions that are open for too long, and ids that nobody uses."""

import asyncio

import pytest

from tailrace.coordinator.errors import CoordinatorLoadInProgressError
from tailrace.coordinator.transactions.settings import TransactionSettings
from tailrace.coordinator.transactions.state import Transaction, TransactionStatus
from tailrace.protocol.errors import ErrorCode
from tailrace.records.batch import Batch
from tests.unit.coordinator.transactions.stage import (
    NOBODY,
    NOW,
    PRODUCER,
    A,
    C,
    Stage,
    log_of,
    play,
    producer_at,
    stored,
)

WEEK_MS = 604_800_000
IDLE = [
    TransactionStatus.EMPTY,
    TransactionStatus.COMPLETE_COMMIT,
    TransactionStatus.COMPLETE_ABORT,
]


def test_a_transaction_that_is_open_for_too_long_is_aborted() -> None:
    """At the first search after its timeout, under the next epoch."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(59.9)
        assert stage.transaction().status is TransactionStatus.ONGOING
        await stage.outside.pass_time(10.2)
        assert stage.partitions.ends == [(A, 7, 4, False), (C, 7, 4, False)]
        assert stage.transaction().status is TransactionStatus.COMPLETE_ABORT

    stage = play(scenario, stored(TransactionStatus.ONGOING))
    assert stage.statuses() == [
        TransactionStatus.ONGOING,
        TransactionStatus.PREPARE_ABORT,
        TransactionStatus.COMPLETE_ABORT,
    ]


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, ErrorCode.PRODUCER_FENCED),
        (5, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_the_client_of_an_aborted_transaction_cannot_commit_it(
    version: int, error: ErrorCode
) -> None:
    """It hears so by what its version knows, and a new InitProducerId goes on."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(80)
        assert await stage.end(version=version) == (error, NOBODY)
        assert await stage.add() is ErrorCode.PRODUCER_FENCED
        assert await stage.init() == (ErrorCode.NONE, producer_at(7, 5))

    play(scenario, stored(TransactionStatus.ONGOING))


@pytest.mark.parametrize("status", [each for each in TransactionStatus if each < 6])
def test_only_open_transactions_time_out(status: TransactionStatus) -> None:
    """One that ends, or has ended, is left alone, however old it is."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(100)
        is_open = status is TransactionStatus.ONGOING
        assert stage.transaction().producer_epoch == PRODUCER.producer_epoch + is_open

    play(scenario, stored(status, start_ms=1), are_markers_held=True)


def test_the_timeout_counts_from_the_first_partition() -> None:
    """More partitions do not prolong a transaction; its end and the next begin do."""

    async def scenario(stage: Stage) -> None:
        await stage.add(partitions=[A])
        await stage.outside.pass_time(45)
        await stage.add(partitions=[C])
        _, producer = await stage.end()
        await stage.outside.pass_time(1)
        await stage.add(producer, [A])
        await stage.outside.pass_time(45)
        assert stage.transaction().status is TransactionStatus.ONGOING
        await stage.add(producer, [C])
        await stage.outside.pass_time(25)
        assert stage.transaction().status is TransactionStatus.COMPLETE_ABORT

    play(scenario, stored())


def test_an_abort_by_time_that_could_not_be_written_is_tried_again() -> None:
    """At the next search, and the epoch is raised once."""

    async def scenario(stage: Stage) -> None:
        stage.log.refusal = OSError(28, "no space left on device")
        await stage.outside.pass_time(100)
        assert stage.transaction().producer == PRODUCER
        assert stage.transaction().status is TransactionStatus.ONGOING
        stage.log.refusal = None
        await stage.outside.pass_time(11)
        assert stage.transaction().producer_epoch == PRODUCER.producer_epoch + 1
        assert stage.transaction().status is TransactionStatus.COMPLETE_ABORT

    play(scenario, stored(TransactionStatus.ONGOING))


def test_an_abort_at_the_last_epoch_brings_a_new_producer_id() -> None:
    """The decision names one, however long the markers wait, and it counts with the end."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(100)
        prepared = stage.transaction()
        assert prepared.producer == producer_at(7, 32_767)
        assert (prepared.next_producer_id, prepared.last_epoch) == (1000, 32_766)
        assert stage.statistics().timeout_count == 1
        stage.partitions.is_free.set()
        await stage.outside.pass_time(1)
        assert stage.transaction().producer == producer_at(1000, 0)
        assert stage.producer_ids == [1000, 1001]

    stage = play(scenario, stored(TransactionStatus.ONGOING, epoch=32_766), are_markers_held=True)
    assert stage.statuses() == [
        TransactionStatus.ONGOING,
        TransactionStatus.PREPARE_ABORT,
        TransactionStatus.COMPLETE_ABORT,
    ]


def test_an_end_between_a_search_and_its_abort_wins(caplog: pytest.LogCaptureFixture) -> None:
    """The search has found the transaction; its client raises the epoch before the abort does."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(69.9)
        stage.log.is_free.clear()
        await stage.outside.pass_time(1)
        ending = asyncio.ensure_future(stage.end())
        await stage.outside.pass_time(1)
        assert not ending.done()
        stage.log.is_free.set()
        await stage.outside.pass_time(1)
        assert await ending == (ErrorCode.NONE, producer_at(7, 4))
        assert stage.transaction().status is TransactionStatus.COMPLETE_COMMIT
        assert stage.statistics().timeout_count == 0

    play(scenario, stored(TransactionStatus.ONGOING))
    assert caplog.messages == []


def test_a_transaction_that_begins_while_an_abort_waits_for_a_producer_id_stays_open() -> None:
    """The abort was that of the transaction before, which its client has committed meanwhile."""

    async def scenario(stage: Stage) -> None:
        last = producer_at(7, 32_766)
        stage.has_producer_ids.clear()
        await stage.outside.pass_time(75)
        assert await stage.end(last, version=4) == (ErrorCode.NONE, last)
        await stage.outside.pass_time(1)
        assert await stage.add(last, client_version=0) is ErrorCode.NONE
        stage.has_producer_ids.set()
        await stage.outside.pass_time(1)
        found = stage.transaction()
        assert (found.status, found.producer) == (TransactionStatus.ONGOING, last)
        await stage.outside.pass_time(70)
        assert stage.transaction().status is TransactionStatus.COMPLETE_ABORT
        assert stage.statistics().timeout_count == 1

    play(scenario, stored(TransactionStatus.ONGOING, epoch=32_766))


def test_an_abort_waits_for_a_producer_id() -> None:
    """There is none at the first searches, and the transaction stays open."""

    async def scenario(stage: Stage) -> None:
        stage.producer_id_fault = CoordinatorLoadInProgressError("no producer ids yet")
        await stage.outside.pass_time(100)
        assert stage.transaction().status is TransactionStatus.ONGOING
        stage.producer_id_fault = None
        await stage.outside.pass_time(10)
        assert stage.transaction().producer == producer_at(1000, 0)

    play(scenario, stored(TransactionStatus.ONGOING, epoch=32_766))


@pytest.mark.parametrize("record_count", [1, 2, 3])
def test_a_restart_keeps_the_producer_id_that_an_abort_has_brought(record_count: int) -> None:
    """After any record of the abort: the end of the transaction has the id of its decision."""

    async def abort(stage: Stage) -> None:
        await stage.outside.pass_time(80)

    before = play(abort, stored(TransactionStatus.ONGOING, epoch=32_766))
    known = [state for _, state in before.records() if state is not None][:record_count]

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(80)
        is_decided = record_count > 1
        new = producer_at(1000 if is_decided else 2000, 0)
        assert stage.transaction().producer == new
        assert await stage.end(producer_at(7, 32_766), is_commit=False) == (ErrorCode.NONE, new)
        found = await stage.init(expected=producer_at(7, 32_766))
        # The epoch before is in no record, as in Kafka.
        expected = (ErrorCode.PRODUCER_FENCED, NOBODY) if is_decided else (ErrorCode.NONE, new)
        assert found == expected

    play(scenario, *known, producer_id=2000)


def test_a_transaction_is_aborted_once_however_long_its_markers_take() -> None:
    """It is not open any more; later searches pass it over."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(300)
        assert stage.transaction().producer_epoch == PRODUCER.producer_epoch + 1

    stage = play(scenario, stored(TransactionStatus.ONGOING), are_markers_held=True)
    assert stage.statuses()[1:] == [TransactionStatus.PREPARE_ABORT]


def test_an_end_that_comes_before_the_search_wins() -> None:
    """The transaction is past its timeout, and its client commits it."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(65)
        assert (await stage.end()).error is ErrorCode.NONE
        await stage.outside.pass_time(20)
        assert stage.transaction().status is TransactionStatus.COMPLETE_COMMIT

    slow = TransactionSettings(abort_interval_ms=69_000)
    play(scenario, stored(TransactionStatus.ONGOING), settings=slow)


@pytest.mark.parametrize("status", IDLE)
def test_an_id_that_nobody_uses_is_removed(status: TransactionStatus) -> None:
    """A tombstone is written; its client is unknown then, and begins anew with InitProducerId."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(3_601)
        assert list(stage.machine()) == []
        assert (await stage.end()).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        found = await stage.coordinator.describe("t", bool)
        assert found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert (await stage.init()).producer == producer_at(1000, 0)
        await stage.restart()
        assert stage.transaction().producer == producer_at(1000, 0)

    stage = play(scenario, stored(status, updated_ms=NOW - WEEK_MS))
    assert stage.statuses() == [status, None, TransactionStatus.EMPTY]


@pytest.mark.parametrize("status", IDLE)
def test_an_id_is_kept_for_a_week(status: TransactionStatus) -> None:
    """Since its last change, and not since its last request."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(3_601)
        assert stage.transaction().status is status

    play(scenario, stored(status, updated_ms=NOW - WEEK_MS + 3_700_000))


@pytest.mark.parametrize(
    "status",
    [
        TransactionStatus.ONGOING,
        TransactionStatus.PREPARE_COMMIT,
        TransactionStatus.PREPARE_ABORT,
    ],
)
def test_an_id_with_a_transaction_is_kept(status: TransactionStatus) -> None:
    """However old its last change is; the timeout of the transaction ends it before."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(3_601)
        assert stage.transaction().status is status

    kept = stored(status, updated_ms=1, start_ms=NOW)
    slow = TransactionSettings(abort_interval_ms=10**9)
    play(scenario, kept, settings=slow, are_markers_held=True)


def test_an_id_is_removed_some_time_after_its_last_transaction() -> None:
    """When it comes back, its transactions time out as before."""

    async def scenario(stage: Stage) -> None:
        await stage.add()
        await stage.end()
        await stage.outside.pass_time(59)
        assert stage.transaction().status is TransactionStatus.COMPLETE_COMMIT
        await stage.outside.pass_time(12)
        assert list(stage.machine()) == []
        _, producer = await stage.init(timeout_ms=1_000)
        await stage.add(producer)
        await stage.outside.pass_time(11)
        assert stage.transaction().status is TransactionStatus.COMPLETE_ABORT

    soon = TransactionSettings(id_expiration_ms=60_000, expiry_interval_ms=10_000)
    play(scenario, stored(), settings=soon)


def test_an_id_whose_tombstone_could_not_be_written_is_kept() -> None:
    """It is served as before, and removed by a later search."""

    async def scenario(stage: Stage) -> None:
        stage.log.refusal = OSError(28, "no space left on device")
        await stage.outside.pass_time(3_601)
        assert stage.transaction().status is TransactionStatus.EMPTY
        stage.log.refusal = None
        assert stage.log.content == log_of(old()).content
        await stage.outside.pass_time(3_601)
        assert list(stage.machine()) == []

    def old() -> Transaction:
        return stored(updated_ms=NOW - WEEK_MS)

    play(scenario, old())


def test_tombstones_fit_into_their_batches() -> None:
    """12,000 ids of 100 characters, and some of 30,000, are all removed by small batches."""
    ids = [f"{number:0100}" for number in range(12_000)]
    ids += [f"{number}" * 30_000 for number in range(1, 10)]

    async def scenario(stage: Stage) -> None:
        before = len(stage.log.content)
        await stage.outside.pass_time(3_601)
        assert list(stage.machine()) == []
        batches = [Batch(memoryview(each)) for each in stage.log.content[before:]]
        assert sum(each.record_count for each in batches) == len(ids)
        assert all(each.size < 700_000 for each in batches)

    play(
        scenario,
        *(stored(transactional_id=each, updated_ms=NOW - WEEK_MS) for each in ids),
    )
