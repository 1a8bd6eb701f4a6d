"""`run_eagerly`: run a coroutine without a task as long as it need not wait."""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


def run_eagerly(coroutine: Coroutine[Any, Any, T]) -> T | Awaitable[T]:
    """The result of a coroutine if it has one without waiting; else an awaitable for it.

    Its first step, until it waits, runs at once and outside of a task, so it may not use
    `asyncio.timeout` or ask for its task there. An error of that step is raised here.
    """
    # Most answers of a coordinator wait for nothing, and a task would cost 20 us and a turn of the
    # loop. Python has this since 3.12, as `asyncio.eager_task_factory`, for all tasks of a loop.
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
        # The task that awaits drives the coroutine by hand: it has been started already, and Python
        # lets nobody await a coroutine that is under way.
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
