"""Waiting for a partition to change, with a deadline: what Kafka calls a purgatory.

A waiter watches several partitions with one signal. A partition that changes fires the signals
that watch it; firing costs a set look-up and nothing else when nobody waits. The signal tells which
have changed, so that the waiter looks at those and not at all of them.
"""

import asyncio


class Signal:
    """Fires at least once after a change, and remembers what has changed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._changed: dict[Watched, None] = {}

    def fire(self, changed: "Watched | None" = None) -> None:
        """Wake whoever waits."""
        if changed is not None:
            self._changed[changed] = None
        self._event.set()

    def take_changed(self) -> list["Watched"]:
        """What has changed since the last call, each once."""
        taken = list(self._changed)
        self._changed.clear()
        return taken

    async def wait_until(self, deadline: float) -> bool:
        """Wait for `fire`; False when the loop's time reaches `deadline` first."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class Watched:
    """Something that changes: the signals that watch it."""

    def __init__(self) -> None:
        self._signals: set[Signal] = set()

    def add(self, signal: Signal) -> None:
        """Have `signal` fired at every change from now on."""
        self._signals.add(signal)

    def remove(self, signal: Signal) -> None:
        """Forget a signal; one that is not there is fine."""
        self._signals.discard(signal)

    def changed(self) -> None:
        """Fire every signal."""
        for signal in self._signals:
            signal.fire(self)
