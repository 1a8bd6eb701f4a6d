"""`Coalesced`: one thread runs an operation for all threads that wait for it (group commit).

thread 1   run(a)   works on a
thread 2   run(b)   waits               works on b and c
thread 3   run(c)   waits               finds its work done
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from tailrace.values import dataclass

T = TypeVar("T")


@dataclass(slots=True)
class _Waiting(Generic[T]):
    item: T
    weight: int
    is_done: bool = False
    error: BaseException | None = None


class Coalesced(Generic[T]):
    """Work on items in groups, one group after the other, in the order of the calls."""

    def __init__(
        self,
        work: Callable[[Sequence[T]], None],
        turn: AbstractContextManager[object],
        *,
        weight_max: int,
    ) -> None:
        """`turn` is held while a group is worked on; a group weighs at most `weight_max`."""
        self._work = work
        self._turn = turn
        self._weight_max = weight_max
        self._waiting: list[_Waiting[T]] = []
        self._adding = threading.Lock()

    @property
    def waiting_count(self) -> int:
        """Number of items that no call works on yet."""
        return len(self._waiting)

    def run(self, item: T, *, weight: int = 1) -> None:
        """Return when the item was worked on; an item that is heavier goes alone.

        Raises:
            BaseException: the work on its group failed, the same for each of its items.
        """
        mine = _Waiting(item, weight)
        # Queued before the turn is taken: the thread with the next turn works on it too. A device
        # takes as long for the fsync of one call as for that of many.
        with self._adding:
            self._waiting.append(mine)
        with self._turn:
            # Usually the thread that had the turn before has done it already.
            while not mine.is_done:
                self._work_on_next()
        if mine.error is not None:
            raise mine.error

    def _work_on_next(self) -> None:
        with self._adding:
            # The first one always goes, however heavy: otherwise it would wait forever.
            count, weight = 1, self._waiting[0].weight
            for each in self._waiting[1:]:
                weight += each.weight
                if weight > self._weight_max:
                    break
                count += 1
            group, self._waiting = self._waiting[:count], self._waiting[count:]
        error = None
        try:
            self._work([each.item for each in group])
        except BaseException as failure:  # noqa: BLE001 - each caller gets it
            error = failure
        for each in group:
            each.is_done, each.error = True, error
