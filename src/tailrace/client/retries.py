"""`retry`: a bounded number of attempts with growing pauses between them.

Only a RetriableError is retried; see `tailrace.errors`.
"""

from collections.abc import Callable
from typing import TypeVar

from tailrace.client.nodes import Backoff
from tailrace.errors import RetriableError

T = TypeVar("T")

ATTEMPTS_MAX = 7
"""With the default pauses this waits 3.5 seconds, long enough for a leader election."""


def retry(
    attempt: Callable[[], T],
    *,
    recover: Callable[[], None],
    pause: Callable[[float], None],
    pauses: Backoff,
) -> T:
    """Call `attempt` until it returns, and return its result.

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
