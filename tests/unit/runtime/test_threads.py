"""Worker threads of a real process."""

import asyncio
import contextlib
import weakref

from tailrace.runtime.threads import WorkerThreads


class Large:
    """Stands for a hundred megabytes."""


def test_an_error_keeps_nothing_of_what_it_was_raised_in() -> None:
    """Who waits for a thread and catches its error does not hold the thread's memory with it."""
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
