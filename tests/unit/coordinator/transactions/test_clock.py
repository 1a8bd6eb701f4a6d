"""A time of day that goes back, as when a leader's clock is behind that of the leader before."""

import asyncio

import pytest

from tailrace.coordinator.transactions.state import TransactionStatus
from tailrace.protocol.errors import ErrorCode
from tests.unit.coordinator.transactions.stage import (
    NOW,
    PRODUCER,
    B,
    Stage,
    play,
    producer_at,
    stored,
)

LATER = NOW + 3_600_000
"""The time of the stored state, an hour ahead of the broker's clock."""
NONE = ErrorCode.NONE
ONGOING = TransactionStatus.ONGOING


def is_of_now(stage: Stage) -> bool:
    """Whether the newest change has the broker's time, and not one that was before it."""
    return stage.outside.clock.now_ms() - 1_000 <= stage.transaction().updated_ms < LATER


def test_an_epoch_is_raised_at_an_earlier_time() -> None:
    """The record has the time of the request."""

    async def scenario(stage: Stage) -> None:
        expected = producer_at(PRODUCER.producer_id, PRODUCER.producer_epoch + 1)
        assert await stage.init() == (NONE, expected)
        assert is_of_now(stage)

    play(scenario, stored(updated_ms=LATER))


def test_a_producer_id_is_replaced_at_an_earlier_time() -> None:
    """Its epochs are used up."""

    async def scenario(stage: Stage) -> None:
        assert await stage.init() == (NONE, producer_at(1000, 0))
        assert is_of_now(stage)

    play(scenario, stored(updated_ms=LATER, epoch=32_766))


def test_partitions_are_added_at_an_earlier_time() -> None:
    """A transaction that begins then has begun then; one that is open keeps its start."""

    async def begin(stage: Stage) -> None:
        assert await stage.add(partitions=(B,)) is NONE
        assert is_of_now(stage)
        assert stage.transaction().start_ms == stage.outside.clock.now_ms()

    async def add(stage: Stage) -> None:
        assert await stage.add(partitions=(B,)) is NONE
        assert is_of_now(stage)
        assert stage.transaction().start_ms == LATER

    play(begin, stored(updated_ms=LATER))
    play(add, stored(ONGOING, updated_ms=LATER, start_ms=LATER))


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_is_ended_at_an_earlier_time(is_commit: bool) -> None:  # noqa: FBT001
    """Its end is prepared, and after the markers it is complete; its start is kept."""

    async def scenario(stage: Stage) -> None:
        ending = asyncio.ensure_future(stage.end(is_commit=is_commit))
        await stage.outside.pass_time(1)
        assert (await ending).error is NONE
        assert stage.transaction().is_prepared
        assert is_of_now(stage)
        stage.partitions.is_free.set()
        await stage.outside.pass_time(1)
        complete = TransactionStatus.COMPLETE_COMMIT
        if not is_commit:
            complete = TransactionStatus.COMPLETE_ABORT
        assert stage.transaction().status is complete
        assert is_of_now(stage)
        assert stage.transaction().start_ms == LATER

    play(scenario, stored(ONGOING, updated_ms=LATER, start_ms=LATER), are_markers_held=True)
