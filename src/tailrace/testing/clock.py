"""An event loop whose time jumps: when nothing is left to do now, it is the next timer's time.

A test of a 30-second timeout takes no time, and always the same path. A loop that has neither
work nor timers can never go on, and one that always has work to do now never comes to its timers;
both say so instead of hanging.
"""

import asyncio
import contextvars
import selectors
from collections.abc import Callable
from typing import Any, Final, TypeVarTuple

Ts = TypeVarTuple("Ts")

TURNS_MAX: Final = 100_000
"""Turns of the loop at one moment after which it is not going to come to the next."""

TURNS_PER_TICK: Final = 1000
"""Turns after which the clock is one tick further, as a real one would be long before. Whoever
waits for 0.1 + 0.2 seconds would find at 0.3 that a 2**-54 is left, and ask again for ever: the
loop calls back for anything that is due within a tick."""

TICK: Final = 1e-9
"""Of the clocks that asyncio uses, in seconds."""


class _JumpingSelector(selectors.SelectSelector):
    """Never sleeps; tells the loop how long it would have slept."""

    def __init__(self) -> None:
        super().__init__()
        self.slept = 0.0
        self._turns = 0
        self._moment = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """Ready sockets now, of which only the loop's own self-pipe is ever watched."""
        self._turns = self._turns + 1 if self._moment == self.slept else 0
        if self._turns == TURNS_MAX:
            raise RuntimeError(f"the test can not go on: time stands still at {self.slept:.6f} s")
        if self._turns % TURNS_PER_TICK == TURNS_PER_TICK - 1:
            self.slept += TICK
        self._moment = self.slept
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("the test can not go on: no callback is due and no timer is set")
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
        """As asyncio's, by way of `around`."""
        return super().call_soon(self._run, callback, args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """As asyncio's, by way of `around`."""
        return super().call_at(when, self._run, callback, args, context=context)

    def _run(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if self.around is None:
            callback(*arguments)
        else:
            self.around(callback, arguments)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.slept

    def skip(self, seconds: float) -> None:
        """Let time go by at once; timers that are due run when the loop comes to it."""
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
        """Virtual seconds since the loop was made."""
        return self._loop.time()

    def pause(self, seconds: float) -> None:
        """Let virtual time go by, without anything that is due meanwhile."""
        self._loop.skip(seconds)

    def set(self, now_ms: int) -> None:
        """Jump to a time of day, forwards or backwards; timers do not notice."""
        self._start_ms = now_ms - round(self._loop.time() * 1000)
