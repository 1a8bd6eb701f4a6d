"""Whatever happens to clients, leaders and the log: transactions end as their clients were told."""

import asyncio
import random

import pytest

from tailrace.coordinator.transactions.state import IDLE
from tests.unit.coordinator.transactions.stage import Stage, play, stored
from tests.unit.coordinator.transactions.trouble import (
    CALM_S,
    Client,
    Sent,
    TroubledPartitions,
    trouble,
)


def check(sent: list[Sent]) -> None:
    """Hold transactions against what was answered for them."""
    for each in sent:
        assert set(each.ends) == each.partitions, "the records of a transaction are open"
        assert len(set(each.ends.values())) <= 1, "a transaction is committed in part"
        if each.answer is not None:
            assert set(each.ends.values()) == {each.answer}, "it has not ended as answered"


@pytest.mark.parametrize("seed", range(6))
def test_transactions_end_as_answered_whole_and_once(seed: int) -> None:
    """Four ids, one with two clients and one near the end of its epochs; then nothing is open."""
    chance = random.Random(seed)

    async def scenario(stage: Stage) -> None:
        partitions = TroubledPartitions(stage.outside, chance)
        stage.partitions = partitions  # type: ignore[assignment]
        await stage.restart()
        clients = [Client(stage, partitions, chance, each) for each in ("t", "u", "v", "w", "w")]
        living = asyncio.gather(*(each.live() for each in clients))
        await trouble(stage, partitions, chance)
        partitions.is_calm = True
        await asyncio.wait_for(living, CALM_S)
        await stage.outside.pass_time(CALM_S)
        for each in stage.machine():
            assert each.status in IDLE, "a transaction is open"
        check([sent for client in clients for sent in client.sent])
        assert all(len(each) == 1 for each in partitions.outcomes.values())
        assert partitions.counts["answered True"] > 20
        assert partitions.counts["answered False"] > 5

    play(scenario, stored(epoch=32_755))
