"""`Timed`: measures the work of a coroutine, and not its waits."""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Stopwatch(Protocol):
    """Measures the time from `resume` to `pause`, again and again."""

    def resume(self) -> None:
        """A step begins."""
        ...

    def pause(self) -> None:
        """A step has ended."""
        ...


class Timed(Generic[T]):
    """An awaitable that counts the time of its steps, and not of what it waits for."""

    def __init__(self, awaitable: Awaitable[T], stopwatch: Stopwatch) -> None:
        self._awaitable = awaitable
        self._stopwatch = stopwatch

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._awaitable.__await__()
        step: Callable[[], Any] = steps.__next__
        while True:
            self._stopwatch.resume()
            try:
                waits_for = step()
            except StopIteration as result:
                found: T = result.value
                return found
            finally:
                self._stopwatch.pause()
            try:
                value = yield waits_for
            except BaseException as error:  # noqa: BLE001 - it is that of the steps to handle
                step = _thrower(steps, error)
            else:
                step = _sender(steps, value)


def _sender(steps: Generator[Any, Any, Any], value: object) -> Callable[[], Any]:
    return lambda: steps.send(value)


def _thrower(steps: Generator[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: steps.throw(error)
