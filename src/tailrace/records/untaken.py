"""`read_untaken`: the batches of a window that a reader of bytes leaves.

    window    | taken . taken . taken | batch | batch | taken . taken | ba
                                        ^       ^
                                        come as a `Batch` each

A reader of bytes, such as a kernel, takes many small batches with one call, and leaves what needs
objects: compressed batches, transactions, markers, damage. The order is that of the log: when a
batch comes, those before it have been taken, and those after it have not.
"""

from collections.abc import Callable
from typing import TypeAlias

from tailrace.records.batch import Batch, BatchReader
from tailrace.records.legacy import converted

TakeBatches: TypeAlias = Callable[[memoryview, int], int]
"""Takes whole batches from a position of a window on; returns where the first one begins that it
leaves, or the window's end, or where a partial batch begins."""


def leave_all(window: memoryview, position: int) -> int:  # noqa: ARG001 - it takes nothing
    """A `TakeBatches` that leaves every batch."""
    return position


class UntakenReader(BatchReader):
    """Iterates over `(position, batch)`; `position` then says where the whole batches end."""

    __slots__ = ("_take",)

    def __init__(self, view: memoryview, take: TakeBatches) -> None:
        super().__init__(view, convert=converted)
        self._take = take

    def __next__(self) -> tuple[int, Batch]:
        """The next batch that is left, and the position where it starts."""
        # Before each batch and not once: what `take` leaves lies between batches that it takes.
        self.position = self._take(self._view, self.position)
        return super().__next__()


def read_untaken(view: memoryview, take: TakeBatches) -> UntakenReader:
    """The whole batches of `view` that `take` leaves; ends silently at a partial one.

    Raises:
        CorruptionError: from the iteration, as `read_all_batches`; it has the position.
    """
    return UntakenReader(view, take)
