"""Finds what blocks an event loop: callbacks that compute for too long, and blocking calls.

    with Watchdog(outside) as watchdog:
        outside.run(produce_a_bomb())
    assert watchdog.findings == []

Work is measured in CPU time of the loop's thread, so that a busy machine causes no findings. A slow
one causes none either: its budget is larger by as much as it is slower at that moment, by a loop
that is timed beside the work. A call that waits for a device takes no CPU time, so the memory disk
reports each one made on the loop.
Work under `InlineThreads` counts as work of another thread.

Waits for the interpreter's lock are not found; `make hostile` measures those in a real broker.
"""

import gc
import time
from collections.abc import Callable
from typing import Any, Final, Self

from tailrace.testing.outside import Outside

BUDGET_S: Final = 0.005
"""CPU seconds that one callback may take (decision 23), on a machine of the usual speed."""

_STEPS: Final = 10_000
_STEPS_S: Final = 0.0006
"""CPU time of a loop's steps on a machine of the usual speed, in seconds."""

BLOCKING: Final = frozenset({"sync", "sync_directory", "remove_tree"})
"""Calls of the disk that wait for its device, or that remove a directory of any size."""


class Watchdog:
    """Watches the loop of a virtual runtime until the end of the `with` block."""

    def __init__(self, outside: Outside, *, budget_s: float = BUDGET_S) -> None:
        self.findings: list[str] = []
        """A sentence for each callback above the budget and each blocking call."""
        self.longest_s = 0.0
        """CPU time of the longest callback, without the work of `InlineThreads`."""
        self._outside = outside
        self._budget_s = budget_s
        self._collects = False
        self._slowness = 1.0

    def __enter__(self) -> Self:
        self._slowness = slowness()
        self._outside.loop.around = self._around
        self._outside.files.on_call = self._called
        # The test process's own garbage is not the broker's work.
        self._collects = gc.isenabled()
        gc.disable()
        return self

    def __exit__(self, *_: object) -> None:
        if self._collects:
            gc.enable()
        self._outside.loop.around = None
        self._outside.files.on_call = None

    def _around(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        threads = self._outside.threads
        others_s, start_s = threads.worked_s, time.thread_time()
        try:
            callback(*arguments)
        finally:
            spent_s = time.thread_time() - start_s - (threads.worked_s - others_s)
            self.longest_s = max(self.longest_s, spent_s)
            if spent_s > self._budget_s:
                budget_s = self._budget_s * max(self._slowness, slowness())
                if spent_s > budget_s:
                    self.findings.append(
                        f"{_name(callback)} ran for {spent_s * 1000:.1f} ms on the loop; "
                        f"{budget_s * 1000:.1f} are allowed"
                    )

    def _called(self, operation: str, path: str) -> None:
        if operation in BLOCKING and not self._outside.threads.is_working:
            self.findings.append(f"{operation} {path} was called on the loop")


def slowness() -> float:
    """The factor by which this machine is slower now than one of the usual speed; at least 1."""
    started_s = time.thread_time()
    total = 0
    for number in range(_STEPS):
        total += number * number & 255
    return max(1.0, (time.thread_time() - started_s) / _STEPS_S)


def _name(callback: Callable[..., object]) -> str:
    task = getattr(callback, "__self__", None)
    coroutine = getattr(task, "get_coro", None)
    named = coroutine() if coroutine is not None else callback
    return str(getattr(named, "__qualname__", repr(named)))
