"""Steps: the waits of a call, so that one text serves threads and event loops.

A call that waits is a generator that runs under its engine's lock. It yields an `Until`, and is
sent whether that came true in time; or a `CallUser`, which runs without the lock, and is sent the
result. An exception of either is raised at the `yield`: of user code, Ctrl-C, or a cancellation.

    def flush(self, timeout: float | None = None) -> Steps[None]:
        is_over = self._engine.flushed()
        if not (yield Until(is_over, self._deadline(timeout))):
            raise TimeoutError

Not here: who runs them (`thread.ThreadDriver.run`, `loop.LoopDriver.run`).
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Until(NamedTuple):
    """Do I/O until the predicate is true, or until the deadline."""

    is_done: Callable[[], bool]
    """Called under the lock, after each turn of the engine."""
    deadline: float
    """Monotonic seconds; infinite: no limit."""


class CallUser(NamedTuple):
    """Call user code without the lock; on an event loop, a coroutine that it returns is awaited."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class LetOthersRun(NamedTuple):
    """Let other tasks of the event loop run; a thread does not wait."""


Steps = Generator[Until | CallUser | LetOthersRun, Any, T]
"""A call that returns a T."""
