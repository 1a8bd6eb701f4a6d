"""Worker threads of a real process, and work in a bounded number of places."""

import asyncio
import contextlib
import errno
import gc
import weakref
from functools import partial

import pytest

from tailrace.runtime.threads import BoundedThreads, WorkerThreads
from tailrace.testing import Outside


class Large:
    """Stands for a hundred megabytes."""


def test_an_error_keeps_no_variables_of_its_thread_alive() -> None:
    """An error from a thread does not keep the thread's local variables alive."""
    held: list[weakref.ref[Large]] = []

    def inner() -> None:
        large = Large()
        held.append(weakref.ref(large))
        raise KeyError(1)

    def outer() -> None:
        large = Large()
        held.append(weakref.ref(large))
        try:
            inner()
        except KeyError as error:
            raise ValueError(2) from error

    async def main() -> ValueError:
        threads = WorkerThreads()
        with contextlib.closing(threads):
            try:
                await threads.run(outer)
            except ValueError as error:
                return error
        raise AssertionError("no error came")

    error = asyncio.run(main())
    assert [each() for each in held] == [None, None]
    assert isinstance(error.__cause__, KeyError)


async def test_work_whose_caller_is_cancelled_keeps_its_place(outside: Outside) -> None:
    """No more pieces of work run at a time than there are places, though callers come and go."""
    bounded = BoundedThreads(outside.threads, 2)
    outside.threads.seconds_per_run = 10
    done: list[int] = []
    for number in range(10):
        caller = asyncio.ensure_future(bounded.run(partial(done.append, number)))
        await outside.pass_time(1)
        caller.cancel()
    assert outside.threads.runs_at_once_max == 2
    await outside.pass_time(100)
    # Those that were cancelled while they waited for a place were not begun.
    assert done == [0, 1]
    await bounded.run(partial(done.append, 10))
    assert done == [0, 1, 10]


def test_an_error_of_bounded_work_keeps_nothing_of_it() -> None:
    """Objects of the work are freed with the error, without the cycle collector."""

    def refuse(_: Large) -> None:
        raise OSError(errno.EIO, "refused")

    async def main() -> None:
        threads = WorkerThreads()
        with contextlib.closing(threads):
            large = Large()
            held = weakref.ref(large)
            work = partial(refuse, large)
            del large
            with contextlib.suppress(OSError):
                await BoundedThreads(threads, 1).run(work)
            del work
            # The thread drops its own reference a moment after the loop is told.
            await threads.run(lambda: None)
            assert held() is None

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


async def test_an_error_of_work_whose_caller_is_gone_leaves_its_place_free(
    outside: Outside,
) -> None:
    """The error is not logged as unhandled, and the next work runs."""
    told: list[object] = []
    outside.loop.set_exception_handler(lambda _, context: told.append(context))
    bounded = BoundedThreads(outside.threads, 1)
    outside.threads.seconds_per_run = 10

    def refuse() -> None:
        raise OSError(errno.EIO, "refused")

    caller = asyncio.ensure_future(bounded.run(refuse))
    await outside.pass_time(1)
    caller.cancel()
    await outside.pass_time(20)
    gc.collect()
    with pytest.raises(OSError, match="refused"):
        await bounded.run(refuse)
    assert told == []
