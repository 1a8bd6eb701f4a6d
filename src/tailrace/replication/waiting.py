"""Wait for partitions to change, with a deadline: Kafka's purgatory.

A request watches several partitions with one signal. A partition that changes fires the signals
that watch it; without a waiting request that costs one set lookup. The signal remembers which
partitions have changed, so that the request reads only those again.
"""

import asyncio


class Signal:
    """Fires at least once after a change, and remembers what has changed; one coroutine waits."""

    def __init__(self) -> None:
        self._has_fired = False
        self._waiter: asyncio.Future[None] | None = None
        self._changed: dict[Watched, None] = {}

    def fire(self, changed: "Watched | None" = None) -> None:
        """Wake the waiting coroutine, and remember what has changed."""
        # A dict keeps the order of the changes, and each object once.
        if changed is not None:
            self._changed[changed] = None
        self._has_fired = True
        _end(self._waiter)

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
        self._signals: set[Signal] = set()

    def add(self, signal: Signal) -> None:
        """Fire `signal` at every change from now on."""
        self._signals.add(signal)

    def remove(self, signal: Signal) -> None:
        self._signals.discard(signal)

    def changed(self) -> None:
        for signal in self._signals:
            signal.fire(self)


def _end(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
