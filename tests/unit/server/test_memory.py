"""Tests of evicting clients when others wait for the memory of requests."""

from collections.abc import Awaitable, Callable
from typing import Any

from tailrace.server.memory import (
    ANSWERING_S_MAX,
    BYTES_PER_CHECK_MIN,
    CHECK_S,
    EVICTIONS_PER_TURN,
    ConnectionMemory,
    RequestMemory,
)
from tailrace.testing import Outside, virtual_runtime


class Clients:
    """Shares of one pool, and which of them were evicted."""

    def __init__(self, bytes_max: int) -> None:
        self.memory = RequestMemory(bytes_max)
        self.evicted: list[int] = []
        self.granted: list[int] = []
        self.on_evicted: Callable[[], None] = lambda: None
        self._count = 0

    def claim(self, size: int) -> ConnectionMemory:
        """A new client's claim."""
        number = self._count
        self._count += 1

        def evict() -> None:
            self.evicted.append(number)
            self.on_evicted()
            share.release()

        def granted() -> None:
            self.granted.append(number)

        share = ConnectionMemory(self.memory, granted=granted, evict=evict)
        share.claim(size)
        return share


Scenario = Callable[[Outside], Awaitable[None]]
Around = Callable[[Callable[..., object], tuple[Any, ...]], None]


def run(scenario: Scenario, *, around: Around | None = None) -> None:
    """Run a scenario on virtual time."""

    async def main(outside: Outside) -> None:
        await scenario(outside)

    with virtual_runtime() as outside:
        outside.loop.around = around
        outside.run(main(outside))


def test_only_as_many_requests_are_evicted_as_waiters_need() -> None:
    """The oldest of many stalled requests is evicted; the others stay once nobody waits."""

    async def scenario(outside: Outside) -> None:
        clients = Clients(1000)
        for _ in range(10):
            clients.claim(100)
        waiting = clients.claim(100)
        await outside.pass_time(3 * CHECK_S)
        assert clients.evicted == [0]
        assert not waiting.is_waiting

    run(scenario)


def test_evictions_are_spread_over_turns_of_the_loop() -> None:
    """A thousand that stall are not closed in one callback."""
    at_once = [0]
    evicted: list[int] = []

    def around(callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        before = len(evicted)
        callback(*arguments)
        at_once.append(len(evicted) - before)

    async def scenario(outside: Outside) -> None:
        clients = Clients(1000)
        clients.evicted = evicted
        for _ in range(1000):
            clients.claim(1)
        clients.claim(1000)
        await outside.pass_time(2.5 * CHECK_S)
        assert len(evicted) == 1000
        assert clients.granted[-1] == 1000

    run(scenario, around=around)
    assert max(at_once) == EVICTIONS_PER_TURN


def test_a_request_that_receives_bytes_between_evictions_stays() -> None:
    """A request that was stalled at one check and not at the next is kept."""

    async def scenario(outside: Outside) -> None:
        clients = Clients(1000)
        shares = [clients.claim(10) for _ in range(100)]
        clients.claim(990)

        def send() -> None:
            shares[99].received_bytes = 1

        clients.on_evicted = send
        await outside.pass_time(2.5 * CHECK_S)
        assert clients.evicted == list(range(99))

    run(scenario)


def test_what_has_come_and_was_not_received_counts_as_sent() -> None:
    """After the loop was held up, a sender whose bytes wait for their turn does not stall."""

    async def scenario(outside: Outside) -> None:
        clients = Clients(1000)
        queued, stalled = clients.claim(500), clients.claim(500)
        queued.is_queued = True
        clients.claim(500)
        await outside.pass_time(3 * CHECK_S)
        assert clients.evicted == [1]
        assert stalled.held_bytes == 0

    run(scenario)


def test_a_request_that_is_answered_for_long_makes_room() -> None:
    """The request is evicted only when somebody waits, and only after its time."""

    async def scenario(outside: Outside) -> None:
        clients = Clients(1000)
        clients.claim(1000).became_whole()
        await outside.pass_time(10 * ANSWERING_S_MAX)
        assert clients.evicted == []
        clients.claim(1000).became_whole()
        await outside.pass_time(2 * CHECK_S)
        assert clients.evicted == [0]
        third = clients.claim(1)
        await outside.pass_time(ANSWERING_S_MAX - 4 * CHECK_S)
        assert clients.evicted == [0]
        await outside.pass_time(4 * CHECK_S)
        assert clients.evicted == [0, 1]
        assert not third.is_waiting

    run(scenario)


def test_if_all_holders_wait_for_more_memory_the_oldest_are_evicted() -> None:
    """They are evicted one by one until another can be served."""

    async def scenario(outside: Outside) -> None:
        clients = Clients(1000)
        shares = [clients.claim(100) for _ in range(10)]
        for share in shares:
            share.claim(300)
        await outside.pass_time(1.5 * CHECK_S)
        assert clients.evicted == [0, 1]
        assert [share.is_waiting for share in shares[2:]] == [False] + 7 * [True]

    run(scenario)


def test_a_request_that_arrives_fast_enough_keeps_its_memory() -> None:
    """It is kept however long it takes, even while others wait."""

    async def scenario(outside: Outside) -> None:
        clients = Clients(1000)
        slow = clients.claim(1000)
        clients.claim(1000)
        for _ in range(100):
            slow.received_bytes += BYTES_PER_CHECK_MIN
            await outside.pass_time(CHECK_S)
        assert clients.evicted == []

    run(scenario)
