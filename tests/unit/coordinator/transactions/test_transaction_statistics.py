"""Transactions and their markers in numbers."""

from tailrace.coordinator.transactions.settings import TransactionSettings
from tailrace.coordinator.transactions.state import TransactionStatus
from tailrace.errors import RetriableError
from tests.unit.coordinator.transactions.stage import A, C, Stage, play, stored


class AwayError(RetriableError):
    """An error of a partition."""


class FullLogError(RetriableError):
    """An error of a log."""


ONGOING = stored(TransactionStatus.ONGOING)


def test_ids_count_by_the_state_of_their_transaction() -> None:
    """Right after a load and with each change; a state without ids is not there."""

    async def scenario(stage: Stage) -> None:
        assert stage.statistics().by_state == {"Empty": 1, "Ongoing": 1}
        stage.partitions.is_free.clear()
        await stage.end()
        assert stage.statistics().by_state == {"Empty": 1, "PrepareCommit": 1}
        stage.partitions.is_free.set()
        await stage.outside.pass_time(1)
        assert stage.statistics().by_state == {"Empty": 1, "CompleteCommit": 1}
        await stage.restart()
        assert stage.statistics().by_state == {"Empty": 1, "CompleteCommit": 1}

    play(scenario, ONGOING, stored(transactional_id="other"))


def test_markers_count_as_waiting_until_partitions_take_them() -> None:
    """One for each partition of the transaction, and none is left when the shard stops."""

    async def scenario(stage: Stage) -> None:
        found = stage.statistics()
        assert (found.marker_waiting_count, found.marker_count) == (0, 0)
        await stage.end()
        await stage.outside.pass_time(1)
        found = stage.statistics()
        assert (found.marker_waiting_count, found.marker_count) == (2, 0)
        await stage.shards.stop()
        await stage.outside.pass_time(0.001)
        assert stage.statistics().marker_waiting_count == 0
        stage.partitions.is_free.set()
        await stage.load()
        await stage.outside.pass_time(1)
        found = stage.statistics()
        assert (found.marker_waiting_count, found.marker_count) == (0, 2)

    play(scenario, ONGOING, are_markers_held=True)


def test_markers_that_are_tried_again_count_each_time() -> None:
    """And wait meanwhile, while the other partition has its marker."""

    async def scenario(stage: Stage) -> None:
        stage.partitions.faults[A] = [AwayError("away")] * 3
        await stage.end()
        await stage.outside.pass_time(0.5)
        found = stage.statistics()
        assert (found.marker_retry_count, found.marker_waiting_count) == (3, 1)
        assert found.marker_count == 1
        await stage.outside.pass_time(5)
        found = stage.statistics()
        assert (found.marker_retry_count, found.marker_waiting_count) == (3, 0)
        assert [each for each, _ in stage.partitions.written] == [C, A]

    play(scenario, ONGOING)


def test_transactions_that_time_out_count() -> None:
    """Once the abort is stored; those that their clients end do not."""

    async def scenario(stage: Stage) -> None:
        stage.log.refusal = FullLogError("full")
        await stage.outside.pass_time(71)
        assert stage.statistics().timeout_count == 0
        stage.log.refusal = None
        await stage.end(transactional_id="other")
        await stage.outside.pass_time(11)
        assert stage.statistics().timeout_count == 1
        await stage.restart()
        await stage.outside.pass_time(11)
        assert stage.statistics().timeout_count == 1

    play(
        scenario,
        ONGOING,
        stored(TransactionStatus.ONGOING, transactional_id="other"),
        settings=TransactionSettings(),
    )
