"""The input of an assignor, and its result."""

from collections.abc import Callable, Mapping
from uuid import UUID

from tailrace.coordinator.groups.consumer_group import Partitions
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedMember:
    """A member, as an assignor sees it."""

    topic_ids: frozenset[UUID]
    """The topics that it subscribes to, and that exist."""
    target: Partitions
    """Its target so far; may have topics and partitions that are gone."""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Members and topics to assign; each topic of a member has a partition count."""

    members: Mapping[str, AssignedMember]
    partition_counts: Mapping[UUID, int]

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len({each.topic_ids for each in self.members.values()}) <= 1


Assignor = Callable[[Problem], dict[str, Partitions]]
"""Returns a target for each member; every partition that a member wants has exactly one owner."""
