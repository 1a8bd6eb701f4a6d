"""Calls of several threads that one of them does for all: a group commit, whatever is committed.

    thread 1   do(a)   works on a
    thread 2   do(b)   waits               works on b and c
    thread 3   do(c)   waits               finds its work done

A device takes as long for the work of one call as for that of many.
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


class Grouped(Generic[T]):
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

    def do(self, item: T, *, weight: int = 1) -> None:
        """Return when the item was worked on; an item that is heavier goes alone.

        Raises:
            BaseException: the work on its group failed, the same for each of its items.
        """
        mine = _Waiting(item, weight)
        with self._adding:
            self._waiting.append(mine)
        with self._turn:
            while not mine.is_done:
                self._work_on_next()
        if mine.error is not None:
            raise mine.error

    def _work_on_next(self) -> None:
        with self._adding:
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
