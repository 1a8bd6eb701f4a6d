"""The offsets of one log and their order: log start, last stable, high watermark, log end.

log start <= last stable <= high watermark <= log end
             recovery point                <= log end

log start       the first offset a reader may ask for
last stable     every transaction below is committed or aborted
high watermark  everything below is on all replicas in sync
log end         the offset that the next record gets
recovery point  everything below is known to be on the device
"""

import threading
from enum import Enum
from typing import assert_never

from tailrace.model import Offset
from tailrace.values import dataclass, field


class ReadLimit(Enum):
    """The offset up to which a reader may read."""

    LOG_END = "log end"
    """For replicas: everything."""
    HIGH_WATERMARK = "high watermark"
    """For read_uncommitted consumers: everything that all in-sync replicas have."""
    LAST_STABLE = "last stable offset"
    """For read_committed consumers: everything below the first open transaction."""


@dataclass(slots=True, kw_only=True)
class Positions:
    """Offsets of one log; their order is asserted after every change.

    One thread changes them; only the recovery point is changed on the thread that flushes.
    """

    log_start: Offset
    recovery_point: Offset
    last_stable: Offset
    high_watermark: Offset
    log_end: Offset
    cut_count: int = 0
    """Number of times that the end has moved back, so that offsets may now have other records."""
    _cutting: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def check(self) -> None:
        """Assert the order."""
        assert self.log_start >= 0
        assert self.log_start <= self.last_stable
        assert self.last_stable <= self.high_watermark
        assert self.high_watermark <= self.log_end
        assert self.recovery_point <= self.log_end

    def limit(self, limit: ReadLimit) -> Offset:
        """The first offset that a reader with this limit may not read."""
        match limit:
            case ReadLimit.LOG_END:
                return self.log_end
            case ReadLimit.HIGH_WATERMARK:
                return self.high_watermark
            case ReadLimit.LAST_STABLE:
                return self.last_stable
            case _:
                assert_never(limit)

    def advance_end(self, log_end: Offset) -> None:
        """Set the log end after an append."""
        assert log_end > self.log_end
        self.log_end = log_end

    def advance_high_watermark(self, offset: Offset) -> bool:
        """Raise the high watermark to `offset`, at most the log end; returns whether it moved."""
        offset = min(offset, self.log_end)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def settle_last_stable(self, first_unstable: Offset | None) -> None:
        """Move the last stable offset to the start of the first open transaction.

        Without one it is the high watermark. It is never below the log start.
        """
        stable = self.high_watermark
        if first_unstable is not None and first_unstable < stable:
            # DeleteRecords may have removed the beginning of the transaction.
            stable = max(first_unstable, self.log_start)
        self.last_stable = stable
        self.check()

    def raise_log_start(self, offset: Offset) -> bool:
        """Raise the log start to `offset`, which is at most the high watermark."""
        if offset <= self.log_start:
            return False
        self.log_start = offset
        self.last_stable = max(self.last_stable, offset)
        self.check()
        return True

    def advance_recovery_point(self, offset: Offset, *, cut_count: int) -> None:
        """Raise the recovery point to `offset`, at most the log end.

        Nothing changes if the log was cut since `cut_count` was read: other records may have these
        offsets.
        """
        with self._cutting:
            # Under the lock of `cut_end`, which runs on the loop's thread.
            if cut_count == self.cut_count:
                self.recovery_point = max(self.recovery_point, min(offset, self.log_end))

    def cut_end(self, log_end: Offset) -> None:
        """Lower the log end to `log_end`, and every offset above it too."""
        with self._cutting:
            self.cut_count += 1
            self.log_end = log_end
            self.recovery_point = min(self.recovery_point, log_end)
        self.log_start = min(self.log_start, log_end)
        self.high_watermark = min(self.high_watermark, log_end)
        self.last_stable = min(self.last_stable, self.high_watermark)
        self.check()

    def begin_at(self, offset: Offset) -> None:
        """Set all offsets for an empty log that starts at `offset`."""
        with self._cutting:
            self.cut_count += 1
            self.log_start = self.last_stable = self.high_watermark = self.log_end = offset
            self.recovery_point = min(self.recovery_point, offset)
        self.check()
