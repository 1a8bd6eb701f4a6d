"""A bounded number of attempts with growing pauses between them.

What may be tried again is said by the class of the error; see `tailrace.errors`.
"""

from collections.abc import Callable
from typing import TypeVar

from tailrace.client.nodes import Backoff
from tailrace.errors import RetriableError

T = TypeVar("T")

ATTEMPTS_MAX = 7
"""With the default pauses: 3.5 seconds of waiting, which an election of a leader fits into."""


def retry(
    attempt: Callable[[], T],
    *,
    recover: Callable[[], None],
    pause: Callable[[float], None],
    pauses: Backoff,
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
            pause(pauses.pause_s(number))
            recover()
    return attempt()
