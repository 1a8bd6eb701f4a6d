"""Virtual time."""

import asyncio

import pytest

from tailrace.testing import virtual_runtime


def test_time_jumps_to_the_next_timer() -> None:
    """An hour passes at once, on the loop and on the wall clock."""

    async def wait() -> float:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        loop.call_later(3600, done.set_result, None)
        await done
        return loop.time()

    with virtual_runtime() as outside:
        before = outside.clock.now_ms()
        assert outside.run(wait()) == 3600
        assert outside.clock.now_ms() - before == 3_600_000
        outside.clock.set(5)
        assert outside.clock.now_ms() == 5


def test_a_loop_that_never_comes_to_its_timers_says_so() -> None:
    """It always has work to do at once, so time stands still."""
    with virtual_runtime() as outside:

        def again() -> None:
            outside.loop.call_soon(again)

        again()
        with pytest.raises(RuntimeError, match="turns of the loop at 0"):
            outside.loop.run_forever()


def test_a_test_that_can_not_go_on_says_so() -> None:
    """The test fails instead of hanging."""

    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with virtual_runtime() as outside:
        task = wait()
        with pytest.raises(RuntimeError, match="cannot continue"):
            outside.run(task)
        for each in asyncio.all_tasks(outside.loop):
            each.cancel()
        outside.loop.call_soon(lambda: None)
        outside.loop.run_until_complete(asyncio.wait_for(outside.loop.shutdown_asyncgens(), 1))
