"""Tests of coroutines that run without a task until they wait."""

import asyncio

import pytest

from tailrace.runtime.steps import run_eagerly
from tailrace.testing import Outside


def test_a_coroutine_that_does_not_wait_gives_its_result() -> None:
    """No loop is needed for it."""

    async def answer() -> int:
        return 1

    assert run_eagerly(answer()) == 1


def test_an_error_before_the_first_wait_is_raised_at_once() -> None:
    """The caller gets it, and not the one who would have awaited."""

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_eagerly(fail())


async def test_the_rest_of_a_coroutine_that_waits_is_awaited(outside: Outside) -> None:
    """It waits for a future, lets others run, and gives its result."""
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def add() -> int:
        found = await first
        await outside.pass_time(1)
        return found + 1

    rest = run_eagerly(add())
    assert not isinstance(rest, int)
    first.set_result(2)
    assert await rest == 3


async def test_a_cancelled_rest_cancels_the_coroutine(outside: Outside) -> None:
    """The coroutine can clean up."""
    cleaned = []

    async def wait_forever() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append(True)

    rest = run_eagerly(wait_forever())
    assert rest is not None
    task = asyncio.ensure_future(rest)
    await outside.pass_time(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]
