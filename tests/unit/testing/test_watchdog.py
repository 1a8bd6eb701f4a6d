"""The watchdog finds what holds up a loop, and nothing else."""

import asyncio

import pytest

from tailrace.testing import Outside, Watchdog, virtual_runtime


def compute() -> None:
    """Some 50 ms of work."""
    sum(range(3_000_000))


def test_a_callback_that_computes_too_long_is_found_by_name() -> None:
    """A coroutine that computes between two awaits is a finding that names it."""

    async def slow(outside: Outside) -> None:
        await outside.pass_time(1)
        compute()

    with virtual_runtime() as outside, Watchdog(outside) as watchdog:
        outside.run(slow(outside))
    assert len(watchdog.findings) == 1
    assert "slow ran for" in watchdog.findings[0]


def test_work_on_a_worker_thread_is_no_finding() -> None:
    """Computing and blocking by way of the threads seam is what the seam is for."""

    async def off_the_loop(outside: Outside) -> None:
        await outside.runtime.threads.run(compute)
        await outside.runtime.threads.run(lambda: outside.files.sync_directory("."))

    with virtual_runtime() as outside, Watchdog(outside) as watchdog:
        outside.run(off_the_loop(outside))
    assert watchdog.findings == []


@pytest.mark.parametrize("is_timer", [False, True])
def test_a_blocking_call_on_the_loop_is_found(*, is_timer: bool) -> None:
    """A flush that a callback waits for is a finding, however quick the disk was."""

    async def flush(outside: Outside) -> None:
        def call() -> None:
            outside.files.sync_directory(".")

        loop = asyncio.get_running_loop()
        loop.call_later(1, call) if is_timer else loop.call_soon(call)
        await outside.pass_time(2)

    with virtual_runtime() as outside, Watchdog(outside) as watchdog:
        outside.run(flush(outside))
    assert watchdog.findings == ["sync_directory . was called on the loop"]
