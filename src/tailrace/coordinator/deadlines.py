"""Deadlines by key on the event loop, which cost nothing while they wait.

    Timers      calls a function when its time has come
    Deadlines   takes a decision then, in its turn, as for a request

Between the moment and the turn another request may move the deadline, as a heartbeat does, or
cancel it; then the decision is not taken.

A decision that fails leaves its group as it was, and no deadline: the coordinator of Apache Kafka
takes those of consumer groups again after `RETRY_MS`, and forgets those of classic ones.
"""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from tailrace.coordinator.errors import NotCoordinatorError
from tailrace.coordinator.machine import CoordinatorRecord, Decision, Propose

RETRY_MS: Final = 500
"""Pause before a decision that has failed is taken again, as in Kafka's CoordinatorTimer."""

Records = tuple[CoordinatorRecord, ...]
Decide = Callable[[int], Records | Decision[None]]
"""Changes groups at a time of day in milliseconds; returns the records of the change."""


class _Timer:
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
        # Each heartbeat moves a session's deadline away, so that must not touch the loop's heap:
        # the loop's timer stays, fires too early, and is then set to the new deadline.
        if timer.handle is None or timer.handle.when() > deadline:
            self._arm(key, timer)

    def cancel(self, key: Hashable) -> None:
        """Forget a deadline, if it is set."""
        timer = self._timers.pop(key, None)
        if timer is not None and timer.handle is not None:
            timer.handle.cancel()

    def clear(self) -> None:
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


class Deadlines:
    """Decisions of one shard at their deadlines, by key; `start` comes before the first of them."""

    def __init__(self) -> None:
        self._timers = Timers()
        self._due: dict[Hashable, Decide] = {}
        """Decisions whose moment has come, and whose turn has not."""
        self._propose: Propose | None = None

    def start(self, propose: Propose) -> None:
        """Run decisions with `propose` from now on."""
        self._propose = propose

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: Hashable) -> bool:
        """Whether a deadline is set, or its decision is due."""
        return key in self._due or key in self._timers

    def set(
        self, key: Hashable, delay_ms: int, decide: Decide, *, is_repeated: bool = False
    ) -> None:
        """Take a decision in `delay_ms` milliseconds; replaces the one that the key had.

        With `is_repeated` it is taken again every `RETRY_MS` while it raises or its records
        cannot be appended.
        """
        # A member that was heard of between the moment and the turn is not removed.
        self._due.pop(key, None)
        propose = partial(self._propose_due, key, decide, is_repeated=is_repeated)
        self._timers.set(key, delay_ms, propose)

    def cancel(self, key: Hashable) -> None:
        """Forget a deadline, if it is set."""
        self._due.pop(key, None)
        self._timers.cancel(key)

    def clear(self) -> None:
        self._due.clear()
        self._timers.clear()

    def _propose_due(self, key: Hashable, decide: Decide, *, is_repeated: bool) -> None:
        def take_turn(now_ms: int) -> Decision[None]:
            if self._due.get(key) is not decide:
                return Decision(reply=None)
            del self._due[key]
            try:
                decided = decide(now_ms)
            except Exception:
                if is_repeated:
                    self._repeat(key, decide)
                raise
            if not isinstance(decided, Decision):
                decided = Decision(reply=None, records=decided)
            return self._repeated(key, decide, decided) if is_repeated else decided

        assert self._propose is not None
        self._due[key] = decide
        self._propose(take_turn)

    def _repeated(self, key: Hashable, decide: Decide, decided: Decision[None]) -> Decision[None]:
        """The decision, which is taken again if its records cannot be appended."""

        def undo(error: Exception) -> None:
            if decided.undo is not None:
                decided.undo(error)
            # The next leader sets deadlines of its own.
            if not isinstance(error, NotCoordinatorError):
                self._repeat(key, decide)

        return decided._replace(undo=undo)

    def _repeat(self, key: Hashable, decide: Decide) -> None:
        self.set(key, RETRY_MS, decide, is_repeated=True)
