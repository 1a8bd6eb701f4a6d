"""Waiting for a partition to change, with a deadline: what Kafka calls a purgatory.

A waiter watches several partitions with one signal. A partition that changes fires the signals
that watch it; firing costs a set look-up and nothing else when nobody waits.
"""

import asyncio


class Signal:
    """Fires at least once after a change, and may be waited for again after `clear`."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Wake whoever waits."""
        self._event.set()

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
            signal.fire()
