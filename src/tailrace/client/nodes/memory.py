"""`FrameMemory`: memory of large frames, used again once nobody looks at it.

Fetched records stay in the memory that they were received into, until they were decoded. New memory
for each answer costs more than to receive it: Python zeroes it, and the kernel gives and takes back
its pages.

Invariant: memory is given out only if no view of it exists.
"""

from typing import Final

KEPT_COUNT: Final = 4
"""One that is received into, two answers that wait (see `fetching`), and one that is decoded."""

KEPT_BYTES_MAX: Final = (4 << 20) + (64 << 10)
"""Larger memory is not kept: the default of `max.partition.fetch.bytes`, and what is around it."""


class FrameMemory:
    """Memory of one connection."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """Memory of at least `size` bytes, less than twice as many; its content is undefined."""
        for index, each in enumerate(self._kept):
            if size <= len(each) < 2 * size and _is_free(each):
                return self._kept.pop(index)
        return bytearray(size)

    def keep(self, memory: bytearray) -> None:
        """Note memory that others may still look at, for a later `take`."""
        if len(memory) <= KEPT_BYTES_MAX:
            del self._kept[: len(self._kept) + 1 - KEPT_COUNT]
            self._kept.append(memory)


def _is_free(memory: bytearray) -> bool:
    """Whether there is no view: Python refuses to resize a `bytearray` that has one."""
    try:
        last = memory.pop()
    except BufferError:
        return False
    memory.append(last)
    return True
