"""The waits of a consumer's operations, so that one text serves threads and event loops.

An operation is a generator that runs under the engine's lock. It yields a `Wait`, and is sent
whether that came true in time; or a `Call` of user code, which runs without the lock, and is sent
its result or has its exception raised at the `yield`.

    offsets = yield from self._steps_of_end_offsets(partitions, deadline)

Not here: who runs them (`consumer` for threads, `aio` for tasks).
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Wait(NamedTuple):
    """Go on when the predicate holds, or at the deadline."""

    is_done: Callable[[], bool]
    deadline: float
    """Monotonic seconds; infinite: no limit."""


class Call(NamedTuple):
    """Call user code without the lock; a coroutine is awaited by `AsyncConsumer`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


Steps = Generator[Wait | Call, Any, T]
"""An operation that returns a T."""
