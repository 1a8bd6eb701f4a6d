"""Deadlines by key."""

from tailrace.coordinator.deadlines import Timers
from tailrace.testing.outside import Outside, virtual_runtime


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
