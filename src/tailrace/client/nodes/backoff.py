"""Exponential backoff with jitter: each pause is twice as long, up to a limit (KIP-580).

The jitter keeps many clients that lost the same broker from reconnecting at the same moment.
"""

import math
from random import Random

FACTOR = 2.0
JITTER = 0.2
"""Fraction by which a pause may be shorter or longer than its mean."""


class Backoff:
    """The pauses between attempts of one kind."""

    def __init__(self, first_ms: float, max_ms: float, chance: Random) -> None:
        self._first_ms = min(first_ms, max_ms)
        self._max_ms = max_ms
        self._chance = chance
        self._doublings_max = (
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
