"""Run long Python loops on the event loop in slices, with other callbacks in between.

A callback may take at most 5 ms (decision 23). A slice is shorter, because its last step may take
some time. Work that cannot be split into short steps belongs on a thread (`threads`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

SLICE_S: Final = 0.002
"""Length of a slice in seconds, after which other callbacks run."""

AT_ONCE_MAX: Final = 100
"""Most parts of one request that wait beside each other."""

now: Callable[[], float] = time.perf_counter
"""Seconds by which slices are measured."""


@contextmanager
def measured_by(clock: Callable[[], float]) -> Iterator[None]:
    """Measure the slices of all loops by another clock meanwhile.

    For simulations: by virtual time no slice ends, on however slow a machine they run.
    """
    global now  # noqa: PLW0603 - there is one processor, which all loops share
    before, now = now, clock
    try:
        yield
    finally:
        now = before


class Slices:
    """Measures the current slice, and yields to the loop at its end."""

    def __init__(self) -> None:
        self._started = now()

    @property
    def is_over(self) -> bool:
        """Whether the slice is used up: for loops whose steps are cheaper than `turn`."""
        return now() - self._started >= SLICE_S

    async def turn(self) -> None:
        """Let other callbacks run, if the slice is used up."""
        if self.is_over:
            await self.rest()

    async def rest(self) -> None:
        """Let other callbacks run now."""
        await asyncio.sleep(0)
        self._started = now()


async def each_in_slices(items: Iterable[T], work: Callable[[T], R], slices: Slices) -> list[R]:
    done = []
    for item in items:
        done.append(work(item))
        await slices.turn()
    return done


async def gather_in_parts(waiting: Iterable[Awaitable[T]]) -> list[T]:
    """The results of all, in their order; at most `AT_ONCE_MAX` of them wait beside each other."""
    each = iter(waiting)
    results: list[T] = []
    # All at once, a request of 10,000 parts would make as many tasks, and hold the loop for as
    # long.
    while part := list(islice(each, AT_ONCE_MAX)):
        results += await asyncio.gather(*part)
    return results
