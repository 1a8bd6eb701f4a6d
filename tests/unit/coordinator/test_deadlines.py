"""Deadlines by key."""

import pytest

from tailrace.coordinator.deadlines import Deadlines, Records, Timers
from tailrace.coordinator.errors import NotCoordinatorError
from tailrace.testing.coordinator_log import MemoryPartitionLog
from tailrace.testing.outside import Outside, virtual_runtime
from tests.unit.coordinator.tally import PARTITION, added, tally_on


def test_a_deadline_that_moves_away_comes_at_its_last_time() -> None:
    """Each heartbeat of a member moves its session's end, and nothing is called meanwhile."""
    expired: list[float] = []

    async def scenario(outside: Outside) -> None:
        timers = Timers()
        for _ in range(100):
            timers.set("member", 10_000, lambda: expired.append(outside.loop.time()))
            await outside.pass_time(3)
        assert expired == []
        await outside.pass_time(6.9)
        assert expired == []
        await outside.pass_time(0.2)
        assert len(expired) == 1
        assert "member" not in timers

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_deadline_can_come_nearer_and_can_be_forgotten() -> None:
    """The newest time counts, and what was cancelled is never called."""
    expired: list[str] = []

    async def scenario(outside: Outside) -> None:
        timers = Timers()
        timers.set("near", 60_000, lambda: expired.append("far"))
        timers.set("near", 1_000, lambda: expired.append("near"))
        timers.set("cancelled", 1_000, lambda: expired.append("cancelled"))
        timers.cancel("cancelled")
        timers.cancel("never set")
        await outside.pass_time(120)
        assert expired == ["near"]
        timers.set("cleared", 1_000, lambda: expired.append("cleared"))
        timers.clear()
        await outside.pass_time(120)
        assert expired == ["near"]
        assert len(timers) == 0

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_moving_a_deadline_away_sets_no_timer_of_the_loop() -> None:
    """A hundred thousand heartbeats leave one timer behind, not a hundred thousand."""

    async def scenario(outside: Outside) -> None:
        timers = Timers()
        before = len(outside.loop._scheduled)  # type: ignore[attr-defined]
        for _ in range(100_000):
            timers.set("member", 10_000, lambda: None)
        assert len(outside.loop._scheduled) == before + 1  # type: ignore[attr-defined]

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_decision_that_fails_is_taken_again() -> None:
    """Half a second later, if it was asked for, until its records are in the log."""

    async def scenario(outside: Outside) -> None:
        log = MemoryPartitionLog(PARTITION)
        shard = tally_on(outside, log)
        await shard.load()
        deadlines = Deadlines()
        assert shard.machine.propose is not None
        deadlines.start(shard.machine.propose)
        taken: list[str] = []

        def decide(name: str) -> Records:
            taken.append(name)
            if taken.count(name) == 1:
                raise RuntimeError("a defect")
            return (added(name, 1),)

        log.refusal = OSError(28, "no space left on device")
        deadlines.set("repeated", 1000, lambda _: decide("repeated"), is_repeated=True)
        deadlines.set("once", 1000, lambda _: decide("once"))
        for count in (1, 2, 3):
            await outside.pass_time(1.1 if count == 1 else 0.5)
            assert taken.count("repeated") == count
            assert "repeated" in deadlines
        log.refusal = None
        await outside.pass_time(60)
        assert taken.count("repeated") == 4
        assert taken.count("once") == 1
        assert len(deadlines) == 0
        assert shard.machine.counts == {"repeated": 1}

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_decision_that_has_failed_is_not_taken_where_it_does_not_count_any_more(
    *, is_moved: bool
) -> None:
    """Its key was given another moment, or another broker has the partition."""

    async def scenario(outside: Outside) -> None:
        log = MemoryPartitionLog(PARTITION)
        shard = tally_on(outside, log)
        await shard.load()
        deadlines = Deadlines()
        assert shard.machine.propose is not None
        deadlines.start(shard.machine.propose)
        log.refusal = OSError(28, "full") if is_moved else NotCoordinatorError("not here")
        deadlines.set("key", 1000, lambda _: (added("a", 1),), is_repeated=True)
        await outside.pass_time(1.1)
        log.refusal = None
        if is_moved:
            deadlines.set("key", 60_000, lambda _: ())
        await outside.pass_time(120)
        assert shard.machine.counts == {}

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
