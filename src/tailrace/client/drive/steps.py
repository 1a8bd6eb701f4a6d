"""Steps: the waits of a call, so that one text serves threads and event loops.

A call that waits is a generator that runs under its engine's lock. It yields an `Until`, and is
sent whether that came true in time; or a `CallUser`, which runs without the lock, and is sent the
result. An exception of either is raised at the `yield`: of user code, Ctrl-C, or a cancellation.

    def flush(self, timeout: float | None = None) -> Steps[None]:
        is_over = self._engine.flushed()
        if not (yield Until(is_over, self._deadline(timeout))):
            raise TimeoutError

`at_once` makes one call of several, so that none waits for another.

Not here: who runs them (`thread.ThreadDriver.run`, `loop.LoopDriver.run`).
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections import deque

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


def at_once(calls: "deque[Steps[None]]", clock: Callable[[], float]) -> "Steps[None]":
    """Take the steps of several calls, each as soon as its own wait is over.

    A call may append others. All that they yield has to be `Until`; `clock` is that of its
    deadlines.

    Raises: what the first of them raises; the others end there.
    """
    waits: dict[Steps[None], Until] = {}
    over: list[Steps[None]] = []

    def advance(call: Steps[None], *, sent: bool | None) -> None:
        try:
            wait = call.send(sent)
            assert isinstance(wait, Until), "only waits can be taken side by side"
            waits[call] = wait
        except StopIteration:
            waits.pop(call, None)

    def is_any_over() -> bool:
        # Each is looked at: the predicate of a wait may send what is due.
        over[:] = [call for call, wait in waits.items() if wait.is_done()]
        return bool(over)

    try:
        while calls or waits:
            while calls:
                advance(calls.popleft(), sent=None)
            if not waits:
                continue
            deadline = min(each.deadline for each in waits.values())
            if (yield Until(is_any_over, deadline)):
                for call in over:
                    advance(call, sent=True)
                continue
            # The wait for the deadline may have ended a little before it.
            now = max(clock(), deadline)
            for call in [each for each, wait in waits.items() if wait.deadline <= now]:
                advance(call, sent=False)
    finally:
        for call in (*waits, *calls):
            call.close()
