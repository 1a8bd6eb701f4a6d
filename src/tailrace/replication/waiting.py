"""Wait for partitions to change, or for replicas, with a deadline: Kafka's purgatory.

A request watches several partitions with one signal. A partition that changes fires the signals
that watch it; without a waiting request that costs one set lookup. The signal remembers which
partitions have changed, so that the request reads only those again.

A request that waits for one offset of one partition (acks=all, DeleteRecords) gets a future of
`OffsetWaits` instead.
"""

import asyncio
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from tailrace.errors import RetriableError
from tailrace.model import Offset

CLEARED_MIN: Final = 64
"""Requests that wait for one watermark, before those among them that are over are looked for."""


class ReplicasTimedOutError(RetriableError):
    """The replicas did not get as far as a request asks for in the time that it allows."""


class Signal:
    """Fires at least once after a change, and remembers what has changed; one coroutine waits."""

    def __init__(self, *, has_log_ends: bool = True, has_watermarks: bool = True) -> None:
        """Without `has_log_ends` or `has_watermarks`, one of these that moves wakes nobody."""
        self.has_log_ends = has_log_ends
        self.has_watermarks = has_watermarks
        self._has_fired = False
        self._waiter: asyncio.Future[None] | None = None
        self._changed: dict[Watched, None] = {}

    def fire(self, changed: "Watched | None" = None) -> None:
        """Wake the waiting coroutine, and remember what has changed."""
        if changed is not None:
            # A dict keeps the order of the changes, and each object once.
            self._changed[changed] = None
        self._has_fired = True
        _end(self._waiter)

    def remember(self, changed: "Watched") -> None:
        """Have `take_changed` return it, and wake nobody for it."""
        self._changed[changed] = None

    def take_changed(self) -> list["Watched"]:
        """The objects that have changed since the last call, each once."""
        taken = list(self._changed)
        self._changed.clear()
        return taken

    async def wait_until(self, deadline: float) -> bool:
        """Wait for `fire`; returns False if the loop's time reaches `deadline` first."""
        # The first step of a request may run outside of a task (`runtime.steps`), so there is no
        # `asyncio.timeout`, which also costs more.
        # A change between the read and the wait has fired it already: no wait, and none is missed.
        if not self._has_fired:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_at(deadline, _end, self._waiter)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        has_fired, self._has_fired = self._has_fired, False
        return has_fired


class Watched:
    """An object that can change, with the signals that watch it."""

    def __init__(self) -> None:
        # No set: requests are answered in the order in which they began to wait, and a simulated
        # cluster repeats itself.
        self._signals: dict[Signal, None] = {}

    def add(self, signal: Signal) -> None:
        """Fire `signal` at every change from now on."""
        self._signals[signal] = None

    def remove(self, signal: Signal) -> None:
        self._signals.pop(signal, None)

    def changed(self) -> None:
        for signal in self._signals:
            signal.fire(self)

    def log_end_moved(self) -> None:
        """Fire where somebody waits for that; the high watermark has not moved."""
        for signal in self._signals:
            if signal.has_log_ends:
                signal.fire(self)

    def watermark_moved(self) -> None:
        """Fire where somebody waits for that; the others find it with their next change."""
        for signal in self._signals:
            if signal.has_watermarks:
                signal.fire(self)
            else:
                signal.remember(self)


def _end(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class OffsetWaits:
    """Requests that wait until a watermark of a partition is at an offset or above."""

    def __init__(self) -> None:
        # The numbers keep the order of requests for the same offset; futures cannot be compared.
        self._waiting: list[tuple[Offset, int, asyncio.Future[None]]] = []
        self._count = 0
        self._cleared_at = CLEARED_MIN
        """The number of requests at which those that are over are taken out next."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, offset: Offset) -> asyncio.Future[None]:
        """A future that is done when the watermark is there; it may be cancelled."""
        if len(self._waiting) >= self._cleared_at:
            self._clear()
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heappush(self._waiting, (offset, self._count, waiting))
        return waiting

    def _clear(self) -> None:
        """Take out requests that have timed out, or whose clients have gone."""
        # A watermark may not move for hours: a follower is away, and so are the controllers that
        # would take it out of the ISR. Kafka's purgatory purges likewise.
        self._waiting = [each for each in self._waiting if not each[-1].done()]
        heapify(self._waiting)
        # Twice as many as are left, so that it costs each request the same, however many wait.
        self._cleared_at = max(CLEARED_MIN, 2 * len(self._waiting))

    def reach(self, offset: Offset) -> None:
        """The watermark is at `offset` now."""
        while self._waiting and self._waiting[0][0] <= offset:
            _, _, waiting = heappop(self._waiting)
            # Else its request has timed out, or its client has gone.
            if not waiting.done():
                waiting.set_result(None)

    def fail(self, error: Exception) -> None:
        """The watermark gets nowhere any more, for this reason."""
        waiting, self._waiting = self._waiting, []
        for _, _, each in waiting:
            _fail(each, error)


def expire(waiting: Sequence[asyncio.Future[None]], *, timeout_ms: int) -> Callable[[], None]:
    """Give futures a ReplicasTimedOutError after a time; the result ends that, and may be repeated.

    It cancels those that are left.
    """

    def time_out() -> None:
        error = ReplicasTimedOutError(
            f"the replicas in sync did not have it within {timeout_ms} ms"
        )
        for each in waiting:
            _fail(each, error)

    if not waiting:
        return lambda: None
    timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, time_out)

    def end() -> None:
        timer.cancel()
        for each in waiting:
            each.cancel()

    return end


def _fail(waiting: asyncio.Future[None], error: Exception) -> None:
    if not waiting.done():
        waiting.set_exception(error)
        # Asyncio would log an error that nobody takes: its client may have gone.
        waiting.exception()
