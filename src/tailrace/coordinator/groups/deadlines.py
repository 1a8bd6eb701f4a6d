"""Deadlines of groups, each with a decision that is taken when it has passed.

A decision runs as a request does, in its turn. Between the moment and the turn another request may
set the deadline anew, as with a heartbeat, or cancel it; then the decision is not taken.
"""

from collections.abc import Callable, Hashable

from tailrace.coordinator.machine import CoordinatorRecord, Decision, Propose
from tailrace.coordinator.timers import Timers

Records = tuple[CoordinatorRecord, ...]
Decide = Callable[[int], Records | Decision[None]]
"""Changes groups at a time of day in milliseconds; returns the records of the change."""


class Deadlines:
    """The deadlines of the groups of one shard, by key; `start` comes before the first of them."""

    def __init__(self) -> None:
        self._timers = Timers()
        self._due: dict[Hashable, Decide] = {}
        """Decisions whose moment has come, and whose turn has not."""
        self._propose: Propose | None = None

    def start(self, propose: Propose) -> None:
        """Run decisions with `propose` from now on."""
        self._propose = propose

    def __len__(self) -> int:
        """Number of deadlines that are set."""
        return len(self._timers)

    def __contains__(self, key: Hashable) -> bool:
        """Whether a deadline is set, or its decision is due."""
        return key in self._due or key in self._timers

    def set(self, key: Hashable, delay_ms: int, decide: Decide) -> None:
        """Take a decision in `delay_ms` milliseconds; replaces the one that the key had."""
        self._due.pop(key, None)
        self._timers.set(key, delay_ms, lambda: self._pass(key, decide))

    def cancel(self, key: Hashable) -> None:
        """Forget a deadline, if it is set."""
        self._due.pop(key, None)
        self._timers.cancel(key)

    def clear(self) -> None:
        """Forget all deadlines."""
        self._due.clear()
        self._timers.clear()

    def _pass(self, key: Hashable, decide: Decide) -> None:
        def take_turn(now_ms: int) -> Decision[None]:
            if self._due.get(key) is not decide:
                return Decision(reply=None)
            del self._due[key]
            decided = decide(now_ms)
            if isinstance(decided, Decision):
                return decided
            return Decision(reply=None, records=decided)

        assert self._propose is not None
        self._due[key] = decide
        self._propose(take_turn)
