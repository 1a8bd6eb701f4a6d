"""The wall clock, as a seam.

Only the wall clock: durations and deadlines are the event loop's (`loop.time()`), which the test
loop of `tailrace.testing` replaces as a whole.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time of day."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000
