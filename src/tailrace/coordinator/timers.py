"""Deadlines by key on the event loop, which cost nothing while they wait.

A member of a group has one that moves with each heartbeat. To move a deadline away is a write to a
field: the loop's timer stays where it is, and is set anew when it fires too early.
"""

import asyncio
from collections.abc import Callable, Hashable


class _Timer:
    """One deadline."""

    __slots__ = ("deadline", "expire", "handle")

    def __init__(self, deadline: float, expire: Callable[[], None]) -> None:
        self.deadline = deadline
        self.expire = expire
        self.handle: asyncio.TimerHandle | None = None


class Timers:
    """The deadlines of one shard, each with a key."""

    def __init__(self) -> None:
        self._timers: dict[Hashable, _Timer] = {}

    def __len__(self) -> int:
        """Number of deadlines that are set."""
        return len(self._timers)

    def __contains__(self, key: Hashable) -> bool:
        """Whether a deadline is set."""
        return key in self._timers

    def set(self, key: Hashable, delay_ms: int, expire: Callable[[], None]) -> None:
        """Call `expire` in `delay_ms` milliseconds; replaces the deadline that the key had."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + delay_ms / 1000
        timer = self._timers.get(key)
        if timer is None:
            timer = self._timers[key] = _Timer(deadline, expire)
        else:
            timer.deadline, timer.expire = deadline, expire
        if timer.handle is None or timer.handle.when() > deadline:
            self._arm(key, timer)

    def cancel(self, key: Hashable) -> None:
        """Forget a deadline, if it is set."""
        timer = self._timers.pop(key, None)
        if timer is not None and timer.handle is not None:
            timer.handle.cancel()

    def clear(self) -> None:
        """Forget all deadlines."""
        for key in tuple(self._timers):
            self.cancel(key)

    def _arm(self, key: Hashable, timer: _Timer) -> None:
        if timer.handle is not None:
            timer.handle.cancel()
        timer.handle = asyncio.get_running_loop().call_at(timer.deadline, self._fire, key, timer)

    def _fire(self, key: Hashable, timer: _Timer) -> None:
        timer.handle = None
        if timer.deadline > asyncio.get_running_loop().time():
            self._arm(key, timer)
            return
        del self._timers[key]
        timer.expire()
