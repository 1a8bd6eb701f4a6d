"""Rates over windows, and token buckets, as Kafka's metrics compute them.

    values ─► windows of a second, the last ones kept ─► sum, and the time since the oldest began

A window begins with the first value after the end of the one before it. One that had no value for
as long as all windows last is emptied, and begins again (`SampledStat`). Nothing here reads a
clock: each call gets the time, in milliseconds since an arbitrary moment.
"""

from collections import deque
from math import floor
from typing import Final

from tailrace.values import dataclass

_SECOND_MS: Final = 1000
_INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Windows:
    """The number of windows over which something is measured, and their length."""

    count: int
    size_ms: int

    @property
    def all_ms(self) -> int:
        """The time that all windows take."""
        return self.count * self.size_ms


@dataclass(slots=True, eq=False)
class _Sample:
    """The sum of one window."""

    begin_ms: int
    last_ms: int
    """When a value was last added."""
    value: float = 0.0


class WindowedSum:
    """The sum of the values of the last windows."""

    __slots__ = ("_begin_ms", "_due_ms", "_samples", "_windows", "total")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        # One more than the windows: the oldest may reach into them from before.
        self._samples: deque[_Sample] = deque(maxlen=windows.count + 1)
        self.total = 0.0
        """The sum when it was last measured, and values since; at least the sum."""
        self._begin_ms = 0
        self._due_ms = 0
        """Before this time no window has to be emptied."""

    def add(self, value: float, now_ms: int) -> None:
        """Add a value; a negative one takes back what was added."""
        samples = self._samples
        if not samples or now_ms - samples[-1].begin_ms >= self._windows.size_ms:
            samples.append(_Sample(now_ms, now_ms))
            self._count()
        newest = samples[-1]
        newest.value += value
        newest.last_ms = now_ms
        self.total += value

    @property
    def last_ms(self) -> int:
        """When a value was last added; 0: none was."""
        return self._samples[-1].last_ms if self._samples else 0

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The sum, and the milliseconds since the oldest window has begun."""
        if now_ms >= self._due_ms:
            if not self._samples:
                self._samples.append(_Sample(now_ms, now_ms))
            for sample in self._samples:
                if now_ms - sample.last_ms >= self._windows.all_ms:
                    # It begins now: a rest is no time over which later values are spread.
                    sample.begin_ms, sample.last_ms, sample.value = now_ms, now_ms, 0.0
            self._count()
        return self.total, now_ms - self._begin_ms

    def _count(self) -> None:
        # Once for each window and not for each value, which most requests add.
        self.total = sum(each.value for each in self._samples)
        self._begin_ms = min(each.begin_ms for each in self._samples)
        self._due_ms = min(each.last_ms for each in self._samples) + self._windows.all_ms


class Rate:
    """Values in a second over the last windows: Kafka's `Rate`, with the throttle of `QuotaUtils`.

    The time is at least that of all windows but one, so that the first values are no flood.
    """

    __slots__ = ("_least_s", "_sum", "_windows", "record")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._least_s = (windows.count - 1) * windows.size_ms / _SECOND_MS
        self._sum = WindowedSum(windows)
        self.record = self._sum.add
        """Records a value, as `WindowedSum.add`; without a call in between, for small requests."""

    @property
    def last_ms(self) -> int:
        """When a value was last recorded; 0: none was."""
        return self._sum.last_ms

    def per_second(self, now_ms: int) -> float:
        total, window_ms = self._measure(now_ms)
        return total * _SECOND_MS / window_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Milliseconds without values after which the rate is at the limit; 0: it is not above."""
        total, window_ms = self._measure(now_ms)
        rate = total * _SECOND_MS / window_ms
        return java_round((rate - limit) / limit * window_ms) if rate > limit else 0

    def has_room(self, value: float, limit: float, now_ms: int) -> bool:
        """Whether the rate stays within the limit with this value, too."""
        # At first without the time, which is never less, and with windows that may have ended: it
        # is asked for each of the smallest requests.
        fits = self._sum.total + value <= limit * self._least_s
        return fits or value <= self.room(limit, now_ms)

    def room(self, limit: float, now_ms: int) -> float:
        """The largest value that leaves the rate at the limit; negative: it is above already."""
        total, window_ms = self._measure(now_ms)
        return limit * window_ms / _SECOND_MS - total

    def _measure(self, now_ms: int) -> tuple[float, int]:
        total, elapsed_ms = self._sum.measure(now_ms)
        missing = self._windows.count - 1 - elapsed_ms // self._windows.size_ms
        if missing > 0:
            elapsed_ms += missing * self._windows.size_ms
        return total, max(elapsed_ms, 1)


class TokenBucket:
    """Tokens that come at a rate, up to those of all windows (KIP-599); may be overdrawn."""

    __slots__ = ("_at_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens: float | None = None
        """None: it is full, whatever the rate."""
        self._at_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        """The tokens now, of a bucket that gets `rate` tokens in a second."""
        burst = self._windows.all_ms / _SECOND_MS * rate
        if self._tokens is None:
            self._tokens = burst
        else:
            come = rate * (now_ms - self._at_ms) / _SECOND_MS
            self._tokens = min(burst, self._tokens + come)
        self._at_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: int) -> None:
        self._tokens = self.tokens(rate, now_ms) - count

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """Milliseconds until it is not overdrawn any more; 0: it is not."""
        tokens = self.tokens(rate, now_ms)
        return java_round(-tokens / rate * _SECOND_MS) if tokens < 0 else 0


def java_round(value: float) -> int:
    """The nearest whole number, the larger one of two, of 64 bits at most, as `Math.round`."""
    # The smallest quotas lead to times that are infinite.
    return floor(value + 0.5) if value < _INT64_MAX else _INT64_MAX
