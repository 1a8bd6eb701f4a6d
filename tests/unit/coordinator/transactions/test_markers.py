"""Markers: when they are written, tried again, left out, and what follows them."""

import asyncio

import pytest

from tailrace.coordinator.transactions.markers import MarkerFencedError, MarkerNotNeededError
from tailrace.coordinator.transactions.state import TransactionStatus
from tailrace.errors import FatalError, RetriableError
from tailrace.protocol.errors import ErrorCode
from tests.unit.coordinator.transactions.stage import A, C, Stage, log_of, play, producer_at, stored

PREPARED = [TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT]
COMPLETE = {
    TransactionStatus.PREPARE_COMMIT: TransactionStatus.COMPLETE_COMMIT,
    TransactionStatus.PREPARE_ABORT: TransactionStatus.COMPLETE_ABORT,
}


@pytest.mark.parametrize("status", PREPARED)
def test_loading_takes_up_prepared_ends(status: TransactionStatus) -> None:
    """All their partitions get markers, and the completion follows."""

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(0.001)
        is_commit = status is TransactionStatus.PREPARE_COMMIT
        assert stage.partitions.ends == [(A, 7, 3, is_commit), (C, 7, 3, is_commit)]
        assert stage.transaction().status is COMPLETE[status]
        assert stage.transaction().previous_producer_id == 7

    play(scenario, stored(status, previous_producer_id=-1))


def test_loading_leaves_all_other_transactions_as_they_are() -> None:
    """No markers for what is open, complete or empty."""
    others = [each for each in range(6) if TransactionStatus(each) not in PREPARED]

    async def scenario(stage: Stage) -> None:
        await stage.outside.pass_time(5)
        assert stage.partitions.written == []

    stage = play(
        scenario,
        *(stored(TransactionStatus(each), transactional_id=str(each)) for each in others),
    )
    assert len(stage.log.content) == len(others)


def test_partitions_do_not_wait_for_each_other() -> None:
    """One has no leader; the other has its marker at once, and once."""

    async def scenario(stage: Stage) -> None:
        stage.partitions.faults[A] = [RetriableError("the partition has no leader")] * 8
        assert (await stage.end()).error is ErrorCode.NONE
        await stage.outside.pass_time(0.001)
        assert [partition for partition, _ in stage.partitions.written] == [C]
        assert stage.transaction().is_prepared
        await stage.outside.pass_time(60)
        assert [partition for partition, _ in stage.partitions.written] == [C, A]
        assert stage.transaction().status is TransactionStatus.COMPLETE_COMMIT

    play(scenario, stored(TransactionStatus.ONGOING))


def test_a_marker_is_tried_again_less_and_less_often() -> None:
    """After 0.1 s, 0.2 s and so on, at last every 5 s: a leader may be away for long."""

    async def scenario(stage: Stage) -> None:
        faults = stage.partitions.faults[A]
        faults += [RetriableError("the connection was lost")] * 1000
        await stage.end()
        await stage.outside.pass_time(0.71)
        assert 1000 - len(faults) == 4
        await stage.outside.pass_time(60)
        before = len(faults)
        await stage.outside.pass_time(50)
        assert before - len(faults) == 10

    play(scenario, stored(TransactionStatus.ONGOING))


def test_a_partition_that_takes_no_markers_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not at each attempt, nor for each transaction; and again when it is lost once more."""

    def told() -> int:
        return caplog.text.count("transaction_markers_delayed partition=flights-0")

    async def scenario(stage: Stage) -> None:
        faults = stage.partitions.faults[A] = [RetriableError("the directory has failed")] * 40
        await stage.end()
        await stage.outside.pass_time(5)
        assert told() == 0
        await stage.outside.pass_time(100)
        assert faults
        assert told() == 1
        faults.clear()
        await stage.outside.pass_time(5)
        assert stage.transaction().status is TransactionStatus.COMPLETE_COMMIT
        assert told() == 1

    other = stored(TransactionStatus.PREPARE_COMMIT, transactional_id="u")
    play(scenario, stored(TransactionStatus.ONGOING), other)


def test_a_partition_that_needs_no_marker_is_done() -> None:
    """Its topic is deleted, or its leader too old to have had the transaction's records."""

    async def scenario(stage: Stage) -> None:
        stage.partitions.faults[A] = [MarkerNotNeededError("the topic is deleted")]
        await stage.end()
        await stage.outside.pass_time(0.001)
        assert [partition for partition, _ in stage.partitions.written] == [C]
        assert stage.transaction().status is TransactionStatus.COMPLETE_COMMIT

    play(scenario, stored(TransactionStatus.ONGOING))


@pytest.mark.parametrize("error", [MarkerFencedError, FatalError])
def test_a_refused_marker_leaves_the_transaction_to_the_next_leader(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """No more markers of it are written here, and no completion; a load takes it up again."""

    async def scenario(stage: Stage) -> None:
        stage.partitions.faults[A] = [error("the partition has a newer coordinator epoch")]
        stage.partitions.faults[C] = [RetriableError("the partition has no leader")]
        await stage.end()
        await stage.outside.pass_time(60)
        assert stage.partitions.written == []
        assert stage.transaction().is_prepared
        await stage.restart()
        await stage.outside.pass_time(0.001)
        assert stage.transaction().status is TransactionStatus.COMPLETE_COMMIT

    play(scenario, stored(TransactionStatus.ONGOING))
    is_fence = error is MarkerFencedError
    assert ("transaction_markers_failed" in caplog.text) != is_fence


def test_a_completion_that_could_not_be_written_is_tried_again() -> None:
    """Without the markers, which are written."""

    async def scenario(stage: Stage) -> None:
        stage.partitions.is_free.clear()
        await stage.end()
        stage.log.refusal = OSError(28, "no space left on device")
        stage.partitions.is_free.set()
        await stage.outside.pass_time(10)
        assert stage.transaction().is_prepared
        stage.log.refusal = None
        await stage.outside.pass_time(10)
        assert stage.transaction().status is TransactionStatus.COMPLETE_COMMIT
        assert len(stage.partitions.written) == 2

    stage = play(scenario, stored(TransactionStatus.ONGOING))
    assert len(stage.log.content) == 3


def test_a_completion_whose_commit_fails_is_written_once() -> None:
    """The record is in the log; what is tried again is to wait for its commit."""

    async def scenario(stage: Stage) -> None:
        stage.partitions.is_free.clear()
        await stage.end()
        stage.log.hold_commits()
        stage.partitions.is_free.set()
        await stage.outside.pass_time(1)
        stage.log.lose(OSError(5, "input/output error"))
        await stage.outside.pass_time(10)
        assert stage.transaction().status is TransactionStatus.COMPLETE_COMMIT

    stage = play(scenario, stored(TransactionStatus.ONGOING))
    assert len(stage.log.content) == 3


def test_markers_wait_until_the_end_is_committed_after_all() -> None:
    """The first wait for the commit failed, and its client was told to ask again."""

    async def scenario(stage: Stage) -> None:
        stage.log.hold_commits()
        ending = asyncio.ensure_future(stage.end())
        await stage.outside.pass_time(1)
        stage.log.lose(OSError(5, "input/output error"))
        assert (await ending).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await stage.outside.pass_time(1)
        assert (await stage.end()).error is ErrorCode.NONE
        assert stage.transaction().status is TransactionStatus.COMPLETE_COMMIT

    play(scenario, stored(TransactionStatus.ONGOING))


def test_a_broker_that_does_not_lead_any_more_writes_no_markers() -> None:
    """The new leader writes them; what is on its way is given up, and completes nothing."""

    async def scenario(stage: Stage) -> None:
        for each in (A, C):
            stage.partitions.faults[each] = [RetriableError("the partition has no leader")] * 3
        await stage.end()
        stage.shards.resign(0)
        await stage.outside.pass_time(60)
        assert stage.partitions.written == []

    stage = play(scenario, stored(TransactionStatus.ONGOING))
    assert stage.statuses()[-1] is TransactionStatus.PREPARE_COMMIT


def test_a_partition_that_goes_while_it_is_loaded_is_not_taken_up() -> None:
    """No markers, no answers; when it comes back, all is loaded again."""

    async def scenario(stage: Stage) -> None:
        await stage.shards.stop()
        stage.partitions.is_free.set()
        stage.log.seconds_per_read = 5
        await stage.load()
        stage.shards.resign(0)
        await stage.outside.pass_time(10)
        assert stage.partitions.written == []
        assert (await stage.init()).error is ErrorCode.NOT_COORDINATOR
        await stage.load()
        await stage.outside.pass_time(10)
        assert stage.transaction().status is TransactionStatus.COMPLETE_COMMIT

    play(scenario, stored(TransactionStatus.PREPARE_COMMIT), are_markers_held=True)


def test_transactions_of_many_ids_end_side_by_side() -> None:
    """One that is stuck holds up no other."""

    async def scenario(stage: Stage) -> None:
        stage.partitions.faults[A] = [RetriableError("the partition has no leader")] * 100
        for name in ("t", "u"):
            await stage.end(transactional_id=name)
        await stage.outside.pass_time(1)
        assert stage.transaction("t").is_prepared

    play(
        scenario,
        stored(TransactionStatus.ONGOING, partitions=[A]),
        stored(TransactionStatus.ONGOING, transactional_id="u", partitions=[C]),
    )


@pytest.mark.parametrize("record_count", [1, 2, 3, 4, 5])
def test_a_restart_after_any_record_ends_as_without_it(record_count: int) -> None:
    """Id, partitions, end, markers, completion: a new leader goes on from what is in the log."""
    whole: list[bytes] = []

    async def first(stage: Stage) -> None:
        _, producer = await stage.init()
        assert await stage.add(producer, [A]) is ErrorCode.NONE
        assert await stage.add(producer, [C]) is ErrorCode.NONE
        assert (await stage.end(producer)).error is ErrorCode.NONE
        await stage.outside.pass_time(0.001)
        whole.extend(stage.log.content)

    assert len(play(first).log.content) == 5

    async def again(stage: Stage) -> None:
        stage.log.content = whole[:record_count]
        await stage.restart()
        await stage.outside.pass_time(0.001)
        state = stage.transaction()
        if state.status in {TransactionStatus.EMPTY, TransactionStatus.ONGOING}:
            assert await stage.add(state.producer, [A, C]) is ErrorCode.NONE
        answer = await stage.end(producer_at(1000, 0))
        assert answer == (ErrorCode.NONE, (1000, 1))
        await stage.outside.pass_time(0.001)
        assert stage.transaction().status is TransactionStatus.COMPLETE_COMMIT
        assert stage.transaction().producer == (1000, 1)
        assert set(stage.partitions.ends) == (
            set() if record_count == 5 else {(A, 1000, 1, True), (C, 1000, 1, True)}
        )

    play(again)


def test_a_new_leader_has_the_state_that_the_old_one_had() -> None:
    """In every status, but for the epoch before the last InitProducerId."""
    states = [stored(TransactionStatus(each), transactional_id=str(each)) for each in range(6)]

    async def scenario(stage: Stage) -> None:
        assert sorted(stage.machine(), key=lambda each: each.transactional_id) == states

    stage = play(scenario, *states, are_markers_held=True)
    assert stage.log.content == log_of(*states).content
