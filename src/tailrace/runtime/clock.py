"""The wall clock, as a seam, and the pauses of threads that have time.

Deadlines are not here: they and durations are the event loop's (`loop.time()`), which the test
loop of `tailrace.testing` replaces as a whole.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time of day."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...

    def pause(self, seconds: float) -> None:
        """Keep this thread waiting; never the one of the event loop."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)
