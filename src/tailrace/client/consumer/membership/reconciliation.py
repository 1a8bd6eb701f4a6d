"""`Reconciliation`: from the target assignment of the coordinator to what the consumer reads.

    target (topic ids) -> names from metadata -> revoke (step) -> assign (step) -> acknowledged

What can be named is reconciled at once; the rest waits for metadata. A target that comes meanwhile
is reconciled afterwards.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from tailrace.client.consumer.membership.errors import MalformedGroupDataError
from tailrace.client.consumer.membership.interface import StepKind, Steps, TopicShape
from tailrace.model import TopicPartition
from tailrace.protocol.messages.consumer_group_heartbeat import Assignment, TopicPartitions

PartitionsById = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id."""


class LocalAssignment(NamedTuple):
    """An assignment and its number: the same partitions again are another one."""

    number: int
    partitions: PartitionsById


NO_ASSIGNMENT: Final = LocalAssignment(-1, {})
"""The assignment of a member that has got none."""


class Reconciliation:
    """The target, the acknowledged assignment, and the one between."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._target = NO_ASSIGNMENT
        self.current = NO_ASSIGNMENT
        """The assignment that the next heartbeat reports."""
        self._resolving: LocalAssignment | None = None
        """The assignment whose steps are not done yet."""
        self._names: dict[UUID, str] = {}
        """Names of topics, from the metadata and of what is assigned."""

    @property
    def is_done(self) -> bool:
        """Whether the target is what the consumer reads."""
        return self.current == self._target

    @property
    def unnamed(self) -> frozenset[UUID]:
        """Topics of the target whose name is not known."""
        return frozenset(self._target.partitions.keys() - self._names.keys())

    def named(self, topics: Mapping[str, TopicShape]) -> None:
        kept = self._target.partitions.keys() | self.current.partitions.keys()
        names = {each: name for each, name in self._names.items() if each in kept}
        self._names = names | {shape.topic_id: name for name, shape in topics.items()}

    def set_target(self, assignment: Assignment) -> None:
        """Note a new target.

        Raises:
            MalformedGroupDataError: a partition has a negative number.
        """
        partitions = {
            each.topic_id: frozenset(each.partitions)
            for each in assignment.topic_partitions
            if each.partitions
        }
        if any(min(numbers) < 0 for numbers in partitions.values()):
            raise MalformedGroupDataError(
                "the coordinator has assigned a partition with a negative number; this broker and "
                "this client do not understand each other"
            )
        # The coordinator repeats the assignment in each answer to a full heartbeat.
        if self._target is NO_ASSIGNMENT or partitions != self._target.partitions:
            self._target = LocalAssignment(self._target.number + 1, partitions)

    def begin(self) -> bool:
        """Add the steps to the target; return whether there is something to acknowledge already.

        Nothing happens while a step is left.
        """
        if not self._steps.is_empty or self._resolving is not None or self.is_done:
            return False
        unnamed = self.unnamed
        resolved = LocalAssignment(
            self._target.number,
            {each: numbers for each, numbers in self._target.partitions.items()
             if each not in unnamed},
        )  # fmt: skip
        # The same partitions under a newer target have to be acknowledged, too.
        if self.current is not NO_ASSIGNMENT and resolved.partitions == self.current.partitions:
            is_news = resolved != self.current
            self.current = resolved
            return is_news
        wanted = {
            TopicPartition(self._names[each], number)
            for each, numbers in resolved.partitions.items()
            for number in numbers
        }
        owned = self._steps.assignment
        # There is nothing to do before the metadata has the names of the other topics.
        if unnamed and owned == wanted:
            return False
        # Revoke first: the coordinator gives them to others only when this is acknowledged.
        if owned - wanted:
            self._steps.add(StepKind.REVOKE, owned - wanted)
        self._steps.add(StepKind.ASSIGN, wanted - owned)
        self._resolving = resolved
        return False

    def finish(self) -> bool:
        """Return whether the steps to an assignment are done, which is to be acknowledged now."""
        if self._resolving is None or not self._steps.is_empty:
            return False
        self.current, self._resolving = self._resolving, None
        return True

    def abort(self) -> None:
        """Forget the target and the steps to it; what is owned stays until it is given up."""
        self._steps.drop()
        self._resolving = None
        self._target = NO_ASSIGNMENT

    def clear(self) -> None:
        """Note that the member owns nothing any more."""
        self.abort()
        self.current = NO_ASSIGNMENT

    def report(self) -> tuple[TopicPartitions, ...]:
        """The owned partitions, as a heartbeat names them."""
        return tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
            for topic_id, numbers in self.current.partitions.items()
        )
