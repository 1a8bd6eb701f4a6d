"""The clocks of the machine, as a seam, and the pauses of threads.

Deadlines are not here: they and durations on the event loop are those of `loop.time()`, which the
test loop of `tailrace.testing` replaces as a whole.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time of day, and how much time has passed."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump in either direction when it is set."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some moment; never goes back. For durations on worker threads."""
        ...

    def pause(self, seconds: float) -> None:
        """Keep this thread waiting; never the one of the event loop."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds of the system's monotonic clock."""
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)
