"""One pool of memory for the requests of all connections (KIP-72).

    connection A  [########----]  receives        held: counted in the pool
    connection B  [############]  is answered     held until the answer is there
    connection C  [##]            waits           its socket is not read until there is memory

Small requests stand in the buffer that each connection has anyway, ask for nothing, and wait for
nobody. A large one claims its first mebibyte when its size has been read, and the rest, all at
once, when that much has come: who lies about a length reserves little, and who has been given the
rest can always finish. What is claimed first goes before what is claimed for a rest, so that
requests of usual size pass the large ones. In each turn of the loop about a mebibyte of large
requests is received (`ReceiveTurns`): a page of new memory costs more than to copy into it.

While somebody waits, every second, connections are closed which hold memory and hardly send. If
all that is held belongs to those who wait, the oldest go until one can be served. So nobody waits
for ever for a peer that has reserved and stalls. (Kafka has no such rule: there a few stalled
requests of 100 MB stop a broker whose `queued.max.request.bytes` is set.)
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from tailrace.runtime.memory import LargeMemory

logger = logging.getLogger(__name__)

CHECK_S: Final = 1.0
"""How often it is looked who holds memory and stalls, while somebody waits."""

BYTES_PER_CHECK_MIN: Final = 64 * 1024
"""What a connection has to send between two looks to keep its memory: half a megabit a second."""


BYTES_PER_TURN: Final = 1024 * 1024
"""Of large requests; received into new memory, they take about a millisecond."""

RETRY_S: Final = 0.05
"""How long memory is left alone that a worker thread still looks at."""


class Share:
    """What one connection holds of the pool, and what it waits for."""

    def __init__(
        self, memory: "RequestMemory", *, granted: Callable[[], None], evict: Callable[[], None]
    ) -> None:
        """`granted` is called when a claim that had to wait is met, `evict` to close the peer."""
        self.held_bytes = 0
        self.wanted_bytes = 0
        """0 when it does not wait."""
        self.is_receiving = False
        """Whether its request is not whole yet."""
        self.received_bytes = 0
        """Since the last look at it."""
        self.is_new = True
        """Whether nobody has looked at it since its last claim was met."""
        self.granted = granted
        self.evict = evict
        self._memory = memory

    @property
    def is_waiting(self) -> bool:
        """Whether a claim has not been met yet."""
        return self.wanted_bytes > 0

    def claim(self, target_bytes: int) -> bool:
        """Ask to hold so much in all; False when it must wait, until `granted` is called."""
        target_bytes = min(target_bytes, self._memory.bytes_max)
        if self.held_bytes >= target_bytes:
            return True
        if not self.is_waiting:
            self.wanted_bytes = target_bytes - self.held_bytes
            self._memory.claim(self)
        return not self.is_waiting

    def release(self) -> None:
        """Give back what is held and claimed."""
        if self.held_bytes or self.is_waiting:
            self._memory.release(self)

    def end(self) -> None:
        """Give back all, and forget whom to call.

        The connection holds its share. If the share held the connection too, both would stay in
        memory until Python's collector of cycles comes.
        """
        self.release()
        self.granted = self.evict = _nothing


class RequestMemory:
    """The pool."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` must allow the largest request."""
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._holders: dict[Share, None] = {}
        self._waiting: dict[Share, None] = {}
        self._check: asyncio.TimerHandle | None = None

    def claim(self, share: Share) -> None:
        """Meet a claim now if that is possible, else later; `Share.claim` calls this."""
        self._waiting[share] = None
        self._grant()
        if self._waiting and self._check is None:
            self._check = asyncio.get_running_loop().call_later(CHECK_S, self._look)

    def release(self, share: Share) -> None:
        """Take back all that a share holds, and meet the claims of others."""
        self._waiting.pop(share, None)
        self._holders.pop(share, None)
        self.held_bytes -= share.held_bytes
        share.held_bytes = share.wanted_bytes = 0
        self._grant()

    def _grant(self) -> None:
        # First claims before claims for a rest, each in their order.
        for share in sorted(self._waiting, key=lambda each: each.held_bytes > 0):
            if self.held_bytes + share.wanted_bytes > self.bytes_max:
                break
            del self._waiting[share]
            self.held_bytes += share.wanted_bytes
            share.held_bytes += share.wanted_bytes
            share.wanted_bytes = 0
            share.is_new = True
            self._holders[share] = None
            # In a turn of its own: the claim may stand in the middle of its connection's work.
            asyncio.get_running_loop().call_soon(share.granted)

    def _evict(self, share: Share) -> None:
        logger.warning(
            "request_evicted held_bytes=%d reason=others wait for memory "
            "(queued.max.request.bytes=%d)",
            share.held_bytes,
            self.bytes_max,
        )
        share.evict()

    def _look(self) -> None:
        self._check = None
        receiving = [each for each in self._holders if each.is_receiving and not each.is_waiting]
        stalled = [
            each
            for each in receiving
            if not each.is_new and each.received_bytes < BYTES_PER_CHECK_MIN
        ]
        for share in self._holders:
            share.received_bytes, share.is_new = 0, False
        if self._waiting:
            for share in stalled:
                self._evict(share)
            # Nobody can go on: those who have waited longest have had their time.
            for share in tuple(self._holders):
                if not all(each.is_waiting for each in self._holders):
                    break
                self._evict(share)
        if self._waiting and self._check is None:
            self._check = asyncio.get_running_loop().call_later(CHECK_S, self._look)


def _nothing() -> None:
    pass


class ReceiveTurns:
    """Shares out among connections how much of large requests is received in a turn of the loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], int]] = deque()
        self._received_bytes = 0
        """In this turn."""
        self._is_scheduled = False

    def ask(self, receive: Callable[[], int]) -> bool:
        """Call `receive` in this turn, or else after those who asked before; whether it was now.

        It returns how many bytes it received, and raises nothing.
        """
        is_now = not self._waiting and self._received_bytes < BYTES_PER_TURN
        if is_now:
            self._received_bytes += receive()
        else:
            self._waiting.append(receive)
        self._schedule()
        return is_now

    def _schedule(self) -> None:
        if not self._is_scheduled and (self._waiting or self._received_bytes):
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._is_scheduled = False
        self._received_bytes = 0
        while self._waiting and self._received_bytes < BYTES_PER_TURN:
            self._received_bytes += self._waiting.popleft()()
        self._schedule()


def discard(memory: LargeMemory) -> None:
    """Give memory back to the system, a slice in each turn of the loop."""
    try:
        is_left = memory.shrink()
    except BufferError:
        asyncio.get_running_loop().call_later(RETRY_S, discard, memory)
        return
    if is_left:
        asyncio.get_running_loop().call_soon(discard, memory)
