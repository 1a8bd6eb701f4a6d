"""The clocks of the machine and the pauses of threads, as a seam.

Deadlines and durations on the event loop use `loop.time()` instead, which the test loop of
`tailrace.testing` replaces.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso_time(timestamp_ms: int) -> str:
    """UTC with milliseconds; the bare number where no calendar reaches, and - for none."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Clock(Protocol):
    """Tells the time of day, and how much time has passed."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump in either direction when it is set."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment; never goes back. For durations on worker threads."""
        ...

    def pause(self, seconds: float) -> None:
        """Sleep on this thread; must not be called on the event loop's thread."""
        ...


def elapsed_ms(clock: Clock) -> int:
    """Milliseconds since an arbitrary moment; unlike the time of day nobody can set it."""
    return int(clock.monotonic_s() * 1000)


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)
