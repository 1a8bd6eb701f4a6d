"""`LimitedLines`: log lines that a client can cause, of which those of a flood are counted.

    request_refused peer=10.0.0.7:51234 reason=...          the first one
    repeated name=request_refused address=10.0.0.7 count=311 seconds=10

    access_denied principal=User:alice operation=READ ...   the first one of these fields
    repeated name=access_denied principal=User:alice operation=READ ... count=40 seconds=10

Invariant: an address gets one line for the first of an event (`log`), or the same fields do
(`log_equal`), and one for each `WINDOW_S` in which there are more. At most `COUNTS_MAX` are counted
at a time, and further ones together.
"""

import asyncio
import logging
from collections.abc import Hashable
from typing import Final

from tailrace.values import dataclass

WINDOW_S: Final = 10.0
COUNTS_MAX: Final = 1000


@dataclass(slots=True)
class _Repeated:
    """Lines that have something in common, of which the first was written."""

    logger: logging.Logger
    level: int
    message: str
    """The line that counts them, without the numbers."""
    values: tuple[object, ...]
    count: int = 0


class LimitedLines:
    """The lines of one server, on its event loop."""

    def __init__(self, *, counts_max: int = COUNTS_MAX) -> None:
        self._counts_max = counts_max
        self._counts: dict[Hashable, _Repeated] = {}
        """Lines of this window, by what they have in common."""
        self._timer: asyncio.TimerHandle | None = None

    def log(
        self,
        logger: logging.Logger,
        level: int,
        message: str,
        *values: object,
        peer: str,
        api: str = "",
    ) -> None:
        """Log a line, unless the address of `peer` has caused one of the same event before.

        `message` begins with the event, a word, and `peer=%s`; `values` are for what follows. Lines
        about requests of different APIs are counted apart.
        """
        event, address = message.partition(" ")[0], peer.rpartition(":")[0]
        repeated = _Repeated(logger, level, "repeated name=%s address=%s", (event, address))
        if api:
            repeated.message += " api=%s"
            repeated.values += (api,)
        if self._is_first((logger, level, repeated.values), repeated):
            logger.log(level, message, peer, *values)

    def log_equal(
        self, logger: logging.Logger, level: int, message: str, *values: Hashable
    ) -> None:
        """Log a line, unless the same one was logged before; `message` begins with the event."""
        event, _, fields = message.partition(" ")
        repeated = _Repeated(logger, level, f"repeated name=%s {fields}", (event, *values))
        if self._is_first((logger, level, message, values), repeated):
            logger.log(level, message, *values)

    def _is_first(self, key: Hashable, repeated: _Repeated) -> bool:
        if not repeated.logger.isEnabledFor(repeated.level):
            return False
        if key not in self._counts and len(self._counts) >= self._counts_max:
            event = repeated.values[0]
            key = repeated.logger, repeated.level, event
            repeated.message, repeated.values = "repeated name=%s address=others", (event,)
        found = self._counts.setdefault(key, repeated)
        found.count += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_S, self._end_window)
        return found.count == 1

    def close(self) -> None:
        """Log the counts that are due later."""
        if self._timer is not None:
            self._timer.cancel()
            self._end_window()

    def _end_window(self) -> None:
        self._timer = None
        for each in self._counts.values():
            if each.count > 1:
                each.logger.log(
                    each.level,
                    f"{each.message} count=%d seconds=%.0f",  # noqa: G004 - no value is in it
                    *each.values, each.count, WINDOW_S,
                )  # fmt: skip
        self._counts.clear()
