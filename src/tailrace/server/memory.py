"""One pool of memory for the requests of all connections (KIP-72).

    connection A  [########----]  receives        held: counted in the pool
    connection B  [############]  is answered     held until the answer is made
    connection C  [##]            waits           its socket is not read until there is memory

A small request stays in the buffer that each connection has anyway, and claims nothing. A large one
claims memory in steps: its first mebibyte when it has filled that buffer, and all the rest when the
first mebibyte has arrived. So a client that announces a length and sends little reserves nothing,
and a request that holds all of its memory can be received to its end. Where fields become
objects, in all requests but Produce, memory for the objects is claimed when the request is whole.
First claims are met before later ones, so that requests of usual size pass large ones.

In each turn of the loop about a mebibyte of large requests is received (`ReceiveTurns`): writing to
new memory makes the kernel provide each page, which costs more than the copy.

While somebody waits, it is looked every second who holds memory without progress: requests of which
hardly anything arrives, and requests that have been answered for ten seconds (a Fetch that waits
for records, a Produce that waits for a device that hangs). Their connections are closed, oldest
first, until nobody waits. If all that is held belongs to those who wait, the oldest go until one
can be served. So nobody waits for ever for a peer that has reserved and stalls. (Kafka has no such
rule: there a few stalled requests of 100 MB stop a broker whose `queued.max.request.bytes` is set.)
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

ANSWERING_S_MAX: Final = 10.0
"""How long a request may keep its memory while it is answered and somebody waits. Kafka's clients
give up after 30 s (`request.timeout.ms`), so those who wait get their turn before that."""

EVICTIONS_PER_TURN: Final = 20
"""Connections that are closed in one turn of the loop: each takes some 100 us, most of it a line in
the log."""

BYTES_PER_TURN: Final = 1024 * 1024
"""Of large requests; received into new memory, they take about a millisecond."""

RETRY_S: Final = 0.05
"""How long to wait before trying again to free memory that a worker thread still uses."""


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
        """Whether its request is not whole yet; `became_whole` ends that."""
        self.is_queued = False
        """Whether bytes of it have come that nobody has received yet; see `ReceiveTurns`."""
        self.whole_at_s = 0.0
        """When its request was whole, on the loop's clock."""
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
        self.is_receiving = True
        target_bytes = min(target_bytes, self._memory.bytes_max)
        if self.held_bytes >= target_bytes:
            return True
        if not self.is_waiting:
            self.wanted_bytes = target_bytes - self.held_bytes
            self._memory.claim(self)
        return not self.is_waiting

    def became_whole(self) -> None:
        """Note that the request is there, and is answered from now on."""
        self.is_receiving = False
        self.whole_at_s = asyncio.get_running_loop().time()

    def stalls(self, now_s: float) -> bool:
        """Whether it holds memory, asks for no more, and nothing has come of it for long."""
        if self.is_waiting or not self.held_bytes:
            return False
        if not self.is_receiving:
            return now_s - self.whole_at_s >= ANSWERING_S_MAX
        return not self.is_new and not self.is_queued and self.received_bytes < BYTES_PER_CHECK_MIN

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
        """Oldest first."""
        self._first: dict[Share, None] = {}
        """Who waits and holds nothing yet."""
        self._more: dict[Share, None] = {}
        """Who waits and holds a part; all of them are holders too."""
        self._check: asyncio.Handle | None = None

    def claim(self, share: Share) -> None:
        """Meet a claim now if that is possible, else later; `Share.claim` calls this."""
        (self._more if share.held_bytes else self._first)[share] = None
        self._grant()
        self._look_later()

    def release(self, share: Share) -> None:
        """Take back all that a share holds, and meet the claims of others."""
        for shares in (self._first, self._more, self._holders):
            shares.pop(share, None)
        self.held_bytes -= share.held_bytes
        share.held_bytes = share.wanted_bytes = 0
        self._grant()

    @property
    def _is_waited_for(self) -> bool:
        return bool(self._first or self._more)

    def _grant(self) -> None:
        # First claims before claims for a rest, each in their order.
        for waiting in (self._first, self._more):
            while waiting:
                share = next(iter(waiting))
                if self.held_bytes + share.wanted_bytes > self.bytes_max:
                    return
                del waiting[share]
                self.held_bytes += share.wanted_bytes
                share.held_bytes += share.wanted_bytes
                share.wanted_bytes = 0
                share.is_new = True
                self._holders[share] = None
                # In a turn of its own: the claim may stand in the middle of its connection's work.
                asyncio.get_running_loop().call_soon(share.granted)

    def _look_later(self) -> None:
        if self._is_waited_for and self._check is None:
            self._check = asyncio.get_running_loop().call_later(CHECK_S, self._look)

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        stalled = deque(share for share in self._holders if share.stalls(now_s))
        for share in self._holders:
            share.received_bytes, share.is_new = 0, False
        self._evict_some(stalled)

    def _evict_some(self, stalled: deque[Share]) -> None:
        """Close who stalls, oldest first, until nobody waits; some in each turn of the loop."""
        now_s = asyncio.get_running_loop().time()
        for _ in range(EVICTIONS_PER_TURN):
            if not self._is_waited_for:
                break
            if stalled:
                share = stalled.popleft()
                # It may have given back or sent something since it was looked at.
                if share.received_bytes or not share.stalls(now_s):
                    continue
            elif len(self._more) == len(self._holders):
                # Nobody can go on: those who have waited longest have had their time.
                share = next(iter(self._holders))
            else:
                break
            self._evict(share)
        else:
            self._check = asyncio.get_running_loop().call_soon(self._evict_some, stalled)
            return
        self._check = None
        self._look_later()

    def _evict(self, share: Share) -> None:
        logger.warning(
            "request_evicted held_bytes=%d reason=others wait for memory "
            "(queued.max.request.bytes=%d)",
            share.held_bytes,
            self.bytes_max,
        )
        share.evict()


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
