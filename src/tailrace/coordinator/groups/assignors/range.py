"""The assignor `range`: neighbouring partitions of each topic, the same ones for equal topics.

    7 partitions, 3 members    m1: 0 1 2    m2: 3 4    m3: 5 6

Partitions of the same number in topics with equally many partitions and subscribers go to the same
member, so that a consumer can join such topics.
"""

from collections import defaultdict
from typing import TYPE_CHECKING

from tailrace.coordinator.groups.assignors.problem import Problem
from tailrace.coordinator.groups.consumer_group import Partitions

if TYPE_CHECKING:
    from uuid import UUID


def assign_range(problem: Problem) -> dict[str, Partitions]:
    """Assign by rank: static members by instance id come first, then the others by member id.

    A static member keeps its partitions when it restarts with another member id.
    """
    members = problem.members
    ranked = sorted(members, key=lambda member_id: _rank(members[member_id].instance_id, member_id))
    subscribers: defaultdict[UUID, list[str]] = defaultdict(list)
    for member_id in ranked:
        for topic_id in members[member_id].topic_ids:
            subscribers[topic_id].append(member_id)
    targets: dict[str, dict[UUID, frozenset[int]]] = {each: {} for each in members}
    for topic_id in sorted(subscribers):
        interested = subscribers[topic_id]
        each_gets, extras = divmod(problem.partition_counts[topic_id], len(interested))
        start = 0
        for index, member_id in enumerate(interested):
            limit = start + each_gets + (index < extras)
            if start == limit:
                break
            targets[member_id][topic_id] = frozenset(range(start, limit))
            start = limit
    return dict(targets)


def _rank(instance_id: str | None, member_id: str) -> tuple[bool, str]:
    return (instance_id is None, member_id if instance_id is None else instance_id)
