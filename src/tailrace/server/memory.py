"""One pool of memory for the requests of all connections (KIP-72).

    connection A  [########----]  receives        held: counted in the pool
    connection B  [############]  is answered     held until the response is made
    connection C  [##]            waits           its socket is not read until there is memory

A small request stays in the input buffer of its connection, and claims nothing. A large one claims
memory in steps: about 1 MiB when it has filled the input buffer, and its full size when that is
received. So a client that announces a length and sends few bytes reserves nothing, and a request
that holds its full size can be received completely. All requests but Produce are decoded into
objects; memory for these is claimed when the request is complete. First claims are granted before
later ones, so that requests of usual size overtake large ones.

In each turn of the loop about 1 MiB of large requests is received (`ReceiveTurns`): a write to new
memory makes the kernel allocate each page, which costs more than the copy.

While a connection waits, the pool checks every second for requests that hold memory without
progress: those that receive less than `BYTES_PER_CHECK_MIN`, and those that are being answered for
more than ten seconds (a Fetch that waits for records, a Produce that waits for a hanging device).
Their connections are closed, oldest first, until none waits. If all memory belongs to waiting
requests, the oldest are closed until one can continue. So no request waits forever for a stalled
peer. (Kafka has no such rule: there a few stalled requests of 100 MB stop a broker with
`queued.max.request.bytes`.)
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from tailrace.runtime.memory import LargeMemory

CHECK_S: Final = 1.0
"""Interval of the check for stalled requests, while a connection waits for memory."""

BYTES_PER_CHECK_MIN: Final = 64 * 1024
"""Bytes that a connection must send between two checks to keep its memory: 0.5 Mbit/s."""

ANSWERING_S_MAX: Final = 10.0
"""Longest time that a request may keep its memory while it is answered and another one waits.
Kafka's clients time out after 30 s (`request.timeout.ms`), so waiting requests continue before."""

EVICTIONS_PER_TURN: Final = 20
"""Connections that are closed in one turn of the loop: each takes some 100 us."""

BYTES_PER_TURN: Final = 1024 * 1024
"""Bytes of large requests that are received in one turn of the loop: about a millisecond."""

RETRY_S: Final = 0.05
"""Pause before trying again to free memory that a worker thread still uses."""


class ConnectionMemory:
    """The memory of the pool that one connection holds or waits for."""

    def __init__(
        self, memory: "RequestMemory", *, granted: Callable[[], None], evict: Callable[[], None]
    ) -> None:
        """`granted` is called when a waiting claim is granted, `evict` to close the connection."""
        self.held_bytes = 0
        self.wanted_bytes = 0
        """Bytes of the waiting claim; 0 without one."""
        self.is_receiving = False
        """Whether its request is not completely received; until `became_whole`."""
        self.is_queued = False
        """Whether the connection waits for its turn to receive; see `ReceiveTurns`."""
        self.whole_at_s = 0.0
        """When its request was complete, on the loop's clock."""
        self.received_bytes = 0
        """Bytes received since the last check."""
        self.is_new = True
        """Whether there was no check since its last claim was granted."""
        self.granted = granted
        self.evict = evict
        self._memory = memory

    @property
    def is_waiting(self) -> bool:
        """Whether a claim has not been granted yet."""
        return self.wanted_bytes > 0

    def claim(self, target_bytes: int) -> bool:
        """Claim `target_bytes` in total; False if it must wait, until `granted` is called."""
        self.is_receiving = True
        target_bytes = min(target_bytes, self._memory.bytes_max)
        if self.held_bytes >= target_bytes:
            return True
        if not self.is_waiting:
            self.wanted_bytes = target_bytes - self.held_bytes
            self._memory.claim(self)
        return not self.is_waiting

    def became_whole(self) -> None:
        """Note that the request is complete, and is being answered."""
        self.is_receiving = False
        self.whole_at_s = asyncio.get_running_loop().time()

    def stalls(self, now_s: float) -> bool:
        """Whether it holds memory, waits for no more, and has made no progress for too long."""
        if self.is_waiting or not self.held_bytes:
            return False
        # A Fetch that waits for records, or a Produce that waits for a device that hangs.
        if not self.is_receiving:
            return now_s - self.whole_at_s >= ANSWERING_S_MAX
        return not self.is_new and not self.is_queued and self.received_bytes < BYTES_PER_CHECK_MIN

    def release(self) -> None:
        """Release the held memory and withdraw a waiting claim."""
        if self.held_bytes or self.is_waiting:
            self._memory.release(self)

    def end(self) -> None:
        """Release everything, and drop the callbacks."""
        self.release()
        # They refer to the connection, which refers to this object: both would stay in memory until
        # the garbage collector runs.
        self.granted = self.evict = _nothing


class RequestMemory:
    """The pool of memory for large requests."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` must be at least the size of the largest request."""
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._holders: dict[ConnectionMemory, None] = {}
        """Shares with memory, oldest first."""
        self._first: dict[ConnectionMemory, None] = {}
        """Waiting shares without memory."""
        self._more: dict[ConnectionMemory, None] = {}
        """Waiting shares that hold a part; all of them are in `_holders` too."""
        self._check: asyncio.Handle | None = None

    def claim(self, share: ConnectionMemory) -> None:
        """Grant a claim now if possible, else later; `ConnectionMemory.claim` calls this."""
        (self._more if share.held_bytes else self._first)[share] = None
        self._grant()
        self._look_later()

    def release(self, share: ConnectionMemory) -> None:
        """Release the memory of a share, and grant waiting claims."""
        for shares in (self._first, self._more, self._holders):
            shares.pop(share, None)
        self.held_bytes -= share.held_bytes
        share.held_bytes = share.wanted_bytes = 0
        self._grant()

    @property
    def _is_waited_for(self) -> bool:
        return bool(self._first or self._more)

    def _grant(self) -> None:
        # First claims before claims of the full size, each in order: requests of usual size
        # overtake large ones. Within a list nobody overtakes: a large claim would wait for ever.
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
                # In a later turn: the claim may come from the middle of its connection's work.
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

    def _evict_some(self, stalled: deque[ConnectionMemory]) -> None:
        """Close stalled connections, oldest first, until none waits; some in each turn."""
        now_s = asyncio.get_running_loop().time()
        for _ in range(EVICTIONS_PER_TURN):
            if not self._is_waited_for:
                break
            if stalled:
                share = stalled.popleft()
                # It may have made progress since the check.
                if share.received_bytes or not share.stalls(now_s):
                    continue
            elif len(self._more) == len(self._holders):
                # All holders wait for more memory, so none can continue: close the oldest.
                share = next(iter(self._holders))
            else:
                break
            share.evict()
        else:
            self._check = asyncio.get_running_loop().call_soon(self._evict_some, stalled)
            return
        self._check = None
        self._look_later()


def _nothing() -> None:
    pass


class ReceiveTurns:
    """Limits how much of large requests is received in a turn of the loop, for all connections."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], int]] = deque()
        self._received_bytes = 0
        """Bytes received in this turn."""
        self._is_scheduled = False

    def ask(self, receive: Callable[[], int]) -> bool:
        """Call `receive` now or in a later turn, in order; returns whether it was called now.

        `receive` returns how many bytes it received, and must not raise.
        """
        # A write to new memory makes the kernel allocate each page, which costs more than the copy:
        # twenty large requests at once would hold up the loop.
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
    """Release memory to the system, a slice in each turn of the loop."""
    try:
        is_left = memory.shrink()
    except BufferError:
        # A worker thread still has a view of it.
        asyncio.get_running_loop().call_later(RETRY_S, discard, memory)
        return
    if is_left:
        asyncio.get_running_loop().call_soon(discard, memory)
