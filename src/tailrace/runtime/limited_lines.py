"""`LimitedLines`: log lines that a client can cause, of which those of a flood are counted.

    request_refused peer=10.0.0.7:51234 reason=...          the first one
    repeated event=request_refused address=10.0.0.7 count=311 seconds=10

Invariant: an address gets one line for the first of an event, and one for each `WINDOW_S` in which
it causes more; at most `COUNTS_MAX` are counted at a time, and those of further addresses together.
"""

import asyncio
import logging
from collections import Counter
from typing import Final

WINDOW_S: Final = 10.0
COUNTS_MAX: Final = 1000


class LimitedLines:
    """The lines of one server, on its event loop."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[logging.Logger, int, str, str]] = Counter()
        """Lines of this window by logger, level, event and address.

        The address is empty for those that are above `COUNTS_MAX`.
        """
        self._timer: asyncio.TimerHandle | None = None

    def log(
        self, logger: logging.Logger, level: int, message: str, *values: object, peer: str
    ) -> None:
        """Log a line, unless the address of `peer` has caused one of the same event before.

        `message` begins with the event, a word, and `peer=%s`; `values` are for what follows.
        """
        event, address = message.partition(" ")[0], peer.rpartition(":")[0]
        key = logger, level, event, address
        if key not in self._counts and len(self._counts) >= COUNTS_MAX:
            key = logger, level, event, ""
        self._counts[key] += 1
        if self._counts[key] == 1:
            logger.log(level, message, peer, *values)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_S, self._end_window)

    def close(self) -> None:
        """Log the counts that are due later."""
        if self._timer is not None:
            self._timer.cancel()
            self._end_window()

    def _end_window(self) -> None:
        self._timer = None
        for (logger, level, event, address), count in self._counts.items():
            if count > 1:
                logger.log(
                    level,
                    "repeated event=%s address=%s count=%d seconds=%.0f",
                    event, address or "others", count, WINDOW_S,
                )  # fmt: skip
        self._counts.clear()
