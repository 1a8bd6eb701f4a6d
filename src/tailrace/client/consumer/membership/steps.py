"""`Steps`: the steps of a rebalance that wait for the user's thread, and the assignment.

Invariant: steps are handed out in order, and the assignment changes only when one is done.
"""

from collections import deque
from collections.abc import Collection

from tailrace.client.consumer.membership.interface import RebalanceStep, StepKind
from tailrace.model import TopicPartition


class Steps:
    """The steps that are left, and the present assignment."""

    def __init__(self) -> None:
        self.assignment: frozenset[TopicPartition] = frozenset()
        """The partitions that the consumer reads."""
        self.grants: dict[TopicPartition, int] = {}
        """The same partitions, each with the number of the step that assigned it."""
        self._grant_count = 0
        self._waiting: deque[RebalanceStep] = deque()
        self._is_handed_out = False

    @property
    def is_empty(self) -> bool:
        """Whether no step is left."""
        return not self._waiting

    def add(self, kind: StepKind, partitions: Collection[TopicPartition]) -> None:
        """Add a step after all others."""
        self._waiting.append(RebalanceStep(kind, tuple(sorted(partitions))))

    def next(self) -> RebalanceStep | None:
        """The first step, which stays until it is done."""
        if not self._waiting:
            return None
        self._is_handed_out = True
        return self._waiting[0]

    def done(self, step: RebalanceStep) -> None:
        """Remove the first step, and change the assignment by it."""
        assert self._waiting, "no step is left"
        assert self._waiting[0] is step, "steps are done in order"
        self._waiting.popleft()
        self._is_handed_out = False
        if step.kind is StepKind.ASSIGN:
            self._grant_count += 1
            self.grants.update(dict.fromkeys(step.partitions, self._grant_count))
        else:
            for each in step.partitions:
                self.grants.pop(each, None)
        self.assignment = frozenset(self.grants)

    def drop(self) -> None:
        """Drop the steps that the user's thread has not taken yet: they are no longer true."""
        kept = [self._waiting[0]] if self._is_handed_out else []
        self._waiting = deque(kept)
