"""`Backoff`: pauses between attempts, which grow; `retry`: a bounded number of attempts.

Each pause is twice as long as the last, up to a limit (KIP-580). Jitter keeps many clients that
lost the same broker from reconnecting at the same moment.
"""

import math
from collections.abc import Callable
from random import Random
from typing import TypeVar

from tailrace.errors import RetriableError

T = TypeVar("T")

FACTOR = 2.0
JITTER = 0.2
"""Fraction by which a pause may be shorter or longer than its mean."""

ATTEMPTS_MAX = 7
"""With the default pauses this waits 3.5 seconds, long enough for a leader election."""


class Backoff:
    """The pauses between attempts of one kind."""

    def __init__(self, first_ms: float, max_ms: float, chance: Random) -> None:
        self._first_ms = min(first_ms, max_ms)
        self._max_ms = max_ms
        self._chance = chance
        self._doublings_max = (
            # Not a power of the number of failures: that would overflow after a thousand.
            math.log(max_ms / max(first_ms, 1), FACTOR) if max_ms > first_ms else 0.0
        )

    def pause_s(self, failures: int) -> float:
        """Seconds to pause after `failures` failures in a row before this one; 0 is the first.

        Never above `max_ms`. It is constant if `max_ms` is not above `first_ms`.
        """
        if not self._doublings_max:
            return self._first_ms / 1000
        mean: float = self._first_ms * FACTOR ** min(failures, self._doublings_max)
        return min(mean * self._chance.uniform(1 - JITTER, 1 + JITTER), self._max_ms) / 1000


def retry(
    attempt: Callable[[], T],
    *,
    recover: Callable[[], None],
    pause: Callable[[float], None],
    pauses: Backoff,
) -> T:
    """Call `attempt` until it returns, and return its result; only a RetriableError is retried.

    After each RetriableError, `pause` is called with seconds, and then `recover`, which prepares
    the next attempt.

    Raises:
        RetriableError: from the last attempt.
    """
    for number in range(ATTEMPTS_MAX - 1):
        try:
            return attempt()
        except RetriableError:
            pause(pauses.pause_s(number))
            recover()
    return attempt()
