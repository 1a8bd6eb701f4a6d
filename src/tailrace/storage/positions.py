"""The offsets that every question about a log is answered from, and their order.

log start <= last stable <= high watermark <= log end
             recovery point                <= log end

log start       the first offset a reader may ask for
last stable     everything below is decided: no open transaction (= high watermark for now)
high watermark  everything below is on all replicas in sync (= log end on one node)
log end         the offset that the next record gets
recovery point  everything below is known to be on the device
"""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Positions:
    """Offsets of one log; `check` asserts their order and is called after every change."""

    log_start: int
    recovery_point: int
    last_stable: int
    high_watermark: int
    log_end: int

    def check(self) -> None:
        """Assert the order."""
        assert self.log_start >= 0
        assert self.log_start <= self.last_stable
        assert self.last_stable <= self.high_watermark
        assert self.high_watermark <= self.log_end
        assert self.recovery_point <= self.log_end

    def advance_end(self, log_end: int) -> None:
        """Move the end behind an append; on one node the high watermark goes with it."""
        assert log_end > self.log_end
        self.log_end = self.high_watermark = self.last_stable = log_end
        self.check()

    def advance_recovery_point(self, offset: int) -> None:
        """Note that everything below `offset` is on the device."""
        self.recovery_point = max(self.recovery_point, offset)
        self.check()
