"""Long loops on the event loop, in slices: others get their turn in between.

The budget of anything on the loop is 5 ms (decision 23); a slice takes less, since what it does
last may take some time itself. What cannot be cut into short steps belongs on a thread
(`threads`).
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

SLICE_S: Final = 0.002
"""How long to go on before others get their turn, in seconds."""


class Slices:
    """How long the caller has been at it since others last had their turn."""

    def __init__(self) -> None:
        self._started = time.perf_counter()

    async def turn(self) -> None:
        """Let others have their turn, if the slice is used up."""
        if time.perf_counter() - self._started >= SLICE_S:
            await self.rest()

    async def rest(self) -> None:
        """Let others have their turn now."""
        await asyncio.sleep(0)
        self._started = time.perf_counter()


async def each_in_slices(items: Iterable[T], work: Callable[[T], R], slices: Slices) -> list[R]:
    """What `work` returns for each item, with turns for others in between."""
    done = []
    for item in items:
        done.append(work(item))
        await slices.turn()
    return done
