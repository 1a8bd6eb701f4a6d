"""Wait for partitions to change, with a deadline: Kafka's purgatory.

A request watches several partitions with one signal. A partition that changes fires the signals
that watch it; without a waiting request that costs one set lookup. The signal remembers which
partitions have changed, so that the request reads only those again.
"""

import asyncio


class Signal:
    """Fires at least once after a change, and remembers what has changed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._changed: dict[Watched, None] = {}

    def fire(self, changed: "Watched | None" = None) -> None:
        """Wake the waiting coroutine, and remember what has changed."""
        if changed is not None:
            self._changed[changed] = None
        self._event.set()

    def take_changed(self) -> list["Watched"]:
        """The objects that have changed since the last call, each once."""
        taken = list(self._changed)
        self._changed.clear()
        return taken

    async def wait_until(self, deadline: float) -> bool:
        """Wait for `fire`; returns False if the loop's time reaches `deadline` first."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class Watched:
    """An object that can change, with the signals that watch it."""

    def __init__(self) -> None:
        self._signals: set[Signal] = set()

    def add(self, signal: Signal) -> None:
        """Fire `signal` at every change from now on."""
        self._signals.add(signal)

    def remove(self, signal: Signal) -> None:
        """Remove a signal, if it is there."""
        self._signals.discard(signal)

    def changed(self) -> None:
        """Fire every signal."""
        for signal in self._signals:
            signal.fire(self)
