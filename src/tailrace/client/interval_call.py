"""`IntervalCall`: when the `on_metrics` of a program is due; `figures_call`: the call itself.

Not here: who makes the call. A producer makes it where it makes delivery callbacks, a consumer
inside of `poll`.

Invariant: a client is not kept alive by its calls, and a closed one is not called about.
"""

import weakref
from collections.abc import Callable
from math import inf
from typing import Protocol

from tailrace.errors import kind_of


class _Engine(Protocol):
    """The part of a producer or consumer that knows whether it is closed."""

    @property
    def closed_error(self) -> Exception | None: ...


class IntervalCall:
    """A call of user code that is due at the end of each interval."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_s = interval_ms / 1000
        self._call: Callable[[], object] | None = None
        self._is_taken = False
        """The last call waits to be made, or is being made."""
        self.due_at = inf
        """Monotonic seconds of the end of the present interval; infinite if there is no call."""

    def begin(self, call: Callable[[], object], now: float) -> None:
        """Begin the first interval; with an interval of 0 the call is never due."""
        if self._interval_s:
            self._call = call
            self.due_at = now + self._interval_s

    def take(self, now: float) -> Callable[[], object] | None:
        """The call to make, if it is due and the last one has ended; begins the next interval."""
        if now < self.due_at:
            return None
        self.due_at = now + self._interval_s
        # A call that takes longer than the interval is not made twice at once.
        if self._is_taken:
            return None
        self._is_taken = True
        return self._made

    def _made(self) -> object:
        assert self._call is not None, "a call that is due was given before"
        try:
            return self._call()
        finally:
            self._is_taken = False


def check_on_metrics(callback: object) -> None:
    """Raises TypeError if `on_metrics` cannot be called."""
    if callback is not None and not callable(callback):
        raise TypeError(f"on_metrics is {kind_of(callback)}; it has to be callable")


def figures_call(
    engine: _Engine,
    on_metrics: Callable[..., object],
    *,
    metrics: Callable[[], object],
    statistics: Callable[[], object],
) -> Callable[[], object]:
    """A call of `on_metrics` with what two methods of a client return; nothing once it is closed.

    The methods are kept by weak references, and so is the client.
    """
    # A bound method would keep its client alive, and a client that is dropped ends by itself.
    figures = weakref.WeakMethod(metrics), weakref.WeakMethod(statistics)

    def call() -> object:
        methods = [each() for each in figures]
        if None in methods or engine.closed_error is not None:
            return None
        return on_metrics(*(method() for method in methods if method is not None))

    return call
