"""A bounded number of attempts with growing pauses between them.

What may be tried again is said by the class of the error; see `tailrace.errors`.
"""

from collections.abc import Callable
from typing import TypeVar

from tailrace.errors import RetriableError

T = TypeVar("T")

ATTEMPTS_MAX = 6
"""With the pauses below: 3.1 seconds of waiting, which an election of a leader fits into."""

PAUSE_MS_FIRST = 100
"""Pause after the first failure; each further one is twice as long (Kafka: retry.backoff.ms)."""


def retry(
    attempt: Callable[[], T], *, recover: Callable[[], None], pause: Callable[[float], None]
) -> T:
    """What `attempt` returns, as soon as it returns.

    After a failure that may pass, `pause` is called with seconds and then `recover`, which makes
    ready for the next attempt. The last failure is raised as it is.

    Raises:
        RetriableError: from the last attempt.
    """
    for number in range(ATTEMPTS_MAX - 1):
        try:
            return attempt()
        except RetriableError:
            pause(PAUSE_MS_FIRST * 2**number / 1000)
            recover()
    return attempt()
