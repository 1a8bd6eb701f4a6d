"""An event loop on virtual time: when no callback is due, time jumps to the next timer.

A test of a 30-second timeout takes no time, and is deterministic. A loop without callbacks and
timers can never continue, and a loop that always has a callback never comes to its timers; both
raise an error instead of hanging.
"""

import asyncio
import contextvars
import selectors
from collections.abc import Callable
from typing import Any, Final, TypeVarTuple

Ts = TypeVarTuple("Ts")

TURNS_MAX: Final = 100_000
"""Turns of the loop without progress of time after which an error is raised."""

TURNS_PER_TICK: Final = 1000
"""Turns after which the clock advances one tick, as a real clock does much earlier. Otherwise a
wait until 0.1 + 0.2 seconds would never end: at 0.3 the remainder is 2**-54, and the loop calls
back for everything that is due within a tick."""

TICK: Final = 1e-9
"""Resolution of asyncio's clock, in seconds."""


class _JumpingSelector(selectors.SelectSelector):
    """A selector that never sleeps, and counts the time that it would have slept."""

    def __init__(self) -> None:
        super().__init__()
        self.slept = 0.0
        self._turns = 0
        self._moment = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """The ready sockets; only the loop's own self-pipe is ever registered."""
        self._turns = self._turns + 1 if self._moment == self.slept else 0
        if self._turns == TURNS_MAX:
            raise RuntimeError(
                f"the test cannot continue: {TURNS_MAX} turns of the loop at {self.slept:.6f} s "
                "without progress of time"
            )
        if self._turns % TURNS_PER_TICK == TURNS_PER_TICK - 1:
            self.slept += TICK
        self._moment = self.slept
        # With callbacks to run, the self-pipe, which wakes a loop that waits, can be read later.
        ready = super().select(0) if timeout != 0 else []
        if not ready:
            if timeout is None:
                raise RuntimeError("the test cannot continue: no callback is due, no timer is set")
            self.slept += max(timeout, 0)
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """A real asyncio loop on virtual time; starts at 0 and only timers move it."""

    def __init__(self) -> None:
        self.around: Callable[[Callable[..., object], tuple[Any, ...]], None] | None = None
        """Called in place of each callback, with it and its arguments; see `watchdog`."""
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Schedule a callback as asyncio does, to run inside `around`."""
        return super().call_soon(self._run, callback, args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback as asyncio does, to run inside `around`."""
        return super().call_at(when, self._run, callback, args, context=context)

    def _run(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if self.around is None:
            callback(*arguments)
        else:
            self.around(callback, arguments)

    def time(self) -> float:
        """Virtual seconds since the loop was created."""
        return self._jumping.slept

    def skip(self, seconds: float) -> None:
        """Advance time at once; timers that are due run in the next turn of the loop."""
        self._jumping.slept += seconds


class VirtualClock:
    """A wall clock that follows a jumping loop and can be set."""

    def __init__(self, loop: JumpingLoop) -> None:
        self._loop = loop
        self._start_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return self._start_ms + round(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        """Virtual seconds since the loop was created."""
        return self._loop.time()

    def pause(self, seconds: float) -> None:
        """Advance virtual time, without running the timers that are due meanwhile."""
        self._loop.skip(seconds)

    def set(self, now_ms: int) -> None:
        """Set the time of day, forwards or backwards; timers are not affected."""
        self._start_ms = now_ms - round(self._loop.time() * 1000)
