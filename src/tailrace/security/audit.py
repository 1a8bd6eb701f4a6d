"""Log lines of refused logins, of which those of a flood are counted.

Invariant: an address gets one line for its first refusal, and one for each `WINDOW_S` in which it
has more; at most `ADDRESSES_MAX` addresses are known, and further ones are counted together.
"""

import asyncio
import logging
from collections import Counter
from typing import Final

logger = logging.getLogger(__name__)

WINDOW_S: Final = 10.0
ADDRESSES_MAX: Final = 1000
_SHOWN_MAX: Final = 100


class LoginAudit:
    """The refused logins of a broker."""

    def __init__(self) -> None:
        self.refused_count = 0
        """Refused logins since the start."""
        self.granted_count = 0
        """Logins since the start, those of clients that renew a session included."""
        self._recent: Counter[str] = Counter()
        """Refusals of this window by address; empty for those of further addresses."""
        self._timer: asyncio.TimerHandle | None = None

    def granted(self, peer: str, *, listener: str, mechanism: str, user: str) -> None:
        """Note a login."""
        self.granted_count += 1
        logger.debug(
            "login peer=%s listener=%s mechanism=%s user=%s", peer, listener, mechanism, user
        )

    def refused(self, peer: str, *, listener: str, mechanism: str, user: str, reason: str) -> None:
        """Note a refusal; `reason` is for the operator, and has no password and no token."""
        self.refused_count += 1
        address = peer.rpartition(":")[0]
        if address not in self._recent and len(self._recent) >= ADDRESSES_MAX:
            address = ""
        self._recent[address] += 1
        if self._recent[address] == 1:
            # What a client sends is quoted, so that it cannot make a line of its own.
            logger.warning(
                "login_refused peer=%s listener=%s mechanism=%s user=%.*r reason=%s",
                peer, listener, mechanism or "-", _SHOWN_MAX, user, reason,
            )  # fmt: skip
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_S, self._end_window)

    def close(self) -> None:
        """Count no further; reports what was counted."""
        if self._timer is not None:
            self._timer.cancel()
            self._end_window()

    def _end_window(self) -> None:
        self._timer = None
        for address, count in self._recent.items():
            if count > 1:
                logger.warning(
                    "logins_refused address=%s count=%d seconds=%.0f",
                    address or "others", count, WINDOW_S,
                )  # fmt: skip
        self._recent.clear()
