"""The clock of a `TestBroker` or a `TestCluster`: real time that a test moves on.

An event loop follows it.

    time of day       LogAppendTime, limits of timestamps, retention, expiry of producers and of
                      committed offsets, removal of deleted files; may be set, and then stops
    time of the loop  session and rebalance timeouts, waiting fetches, delays of faults, idle
                      connections, and when periodic jobs such as retention are due; only moves on

For a clock that is virtual altogether, on the memory network, see `clock`.
"""

import asyncio
import threading
import time
from typing import Final

# `datetime` ends there too. Far beyond it, a float has no single seconds: timers would never fire.
LAST_S: Final = 253_402_300_799
"""The last second of the year 9999, since 1970-01-01 UTC."""


class BrokerClock:
    """A `tailrace.runtime.clock.Clock`; may be moved on any thread."""

    def __init__(self) -> None:
        self._shift_s = 0.0
        self._standing_ms: int | None = None
        """The time of day that was set."""
        self._changing = threading.Lock()

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC: the system's and what it was moved by, or as set."""
        with self._changing:
            if self._standing_ms is not None:
                return self._standing_ms
            return time.time_ns() // 1_000_000 + int(self._shift_s * 1000)

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.monotonic() + self._shift_s

    def pause(self, seconds: float) -> None:
        """Sleep, in real time."""
        time.sleep(seconds)

    def advance(self, seconds: float) -> None:
        """Move both times on.

        Raises:
            ValueError: the time of day would be after the year 9999.
        """
        with self._changing:
            now_s = max(time.time() + self._shift_s, (self._standing_ms or 0) / 1000)
            if now_s + seconds > LAST_S:
                raise ValueError(f"a clock advances up to the year 9999, and not by {seconds} s")
            self._shift_s += seconds
            if self._standing_ms is not None:
                self._standing_ms += int(seconds * 1000)

    def set(self, now_ms: int) -> None:
        """Set the time of day, which does not move from now on, except by `advance`."""
        with self._changing:
            self._standing_ms = now_ms


class BrokerLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of a `BrokerClock`."""

    def __init__(self, clock: BrokerClock) -> None:
        self._clock = clock
        super().__init__()

    def time(self) -> float:
        """Seconds of the clock."""
        return self._clock.monotonic_s()


async def let_timers_fire() -> None:
    """Let the timers of the running loop fire that are due."""
    # The loop looks for due timers between two turns.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
