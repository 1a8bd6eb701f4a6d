"""Run a coroutine without a task as long as it need not wait.

A task takes a turn of the loop and some 20 us, and most answers of a coordinator wait for nothing.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


def now_or_later(coroutine: Coroutine[Any, Any, T]) -> T | Awaitable[T]:
    """The result of a coroutine if it has one without waiting; else an awaitable for it.

    Its first step, until it waits, runs at once and outside of a task, so it may not use
    `asyncio.timeout` or ask for its task there. What it raises in that step is raised here.
    """
    try:
        waited_for = coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    return _Rest(coroutine, waited_for)


class _Rest(Awaitable[T]):
    """A coroutine that waits for the first time; can be awaited once."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], waited_for: object) -> None:
        self._coroutine = coroutine
        self._waited_for = waited_for

    def __await__(self) -> Generator[Any, Any, T]:
        waited_for = self._waited_for
        step: Callable[[], object]
        while True:
            try:
                value = yield waited_for
            except BaseException as error:  # noqa: BLE001 - also a cancellation is the coroutine's
                step = partial(self._coroutine.throw, error)
            else:
                step = partial(self._coroutine.send, value)
            try:
                waited_for = step()
            except StopIteration as done:
                result: T = done.value
                return result
