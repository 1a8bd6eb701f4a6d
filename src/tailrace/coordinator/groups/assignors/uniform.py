"""The assignor `uniform`: members get equally many partitions, and keep what they have.

Members with equal subscriptions are counted out in one pass over their targets; the partitions of a
topic are sets here, and none is looked at by itself unless it changes its owner. Members with
different subscriptions are in `uniform_mixed`.
"""

from collections.abc import Iterator
from itertools import islice
from uuid import UUID

from tailrace.coordinator.groups.assignors.problem import Problem
from tailrace.coordinator.groups.assignors.uniform_mixed import assign_mixed
from tailrace.coordinator.groups.consumer_group import Partitions


def assign_uniform(problem: Problem) -> dict[str, Partitions]:
    """Assign in equal numbers: no member has over one partition more than another.

    That holds for members with equal subscriptions; with others it is as near as they allow.
    """
    if not problem.members:
        return {}
    return _assign_equal(problem) if problem.is_homogeneous else assign_mixed(problem)


def _assign_equal(problem: Problem) -> dict[str, Partitions]:
    topic_ids = sorted(next(iter(problem.members.values())).topic_ids)
    free = {each: set(range(problem.partition_counts[each])) for each in topic_ids}
    quota, extras = divmod(sum(map(len, free.values())), len(problem.members))
    targets: dict[str, dict[UUID, frozenset[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    remaining = len(problem.members)
    for member_id, member in problem.members.items():
        kept = _kept(member.target, free, quota + (extras > 0))
        for topic_id, partitions in kept.items():
            free[topic_id] -= partitions
        size = sum(map(len, kept.values()))
        # An extra partition goes to a member that has one already, as long as there are enough
        # others; later members take what this one leaves.
        takes_extra = extras > 0 and (size > quota or remaining <= extras)
        remaining -= 1
        extras -= takes_extra
        targets[member_id] = kept
        missing = quota + takes_extra - size
        if missing:
            unfilled.append((member_id, missing))
    loose = _each(free)
    for member_id, missing in unfilled:
        _give(targets[member_id], islice(loose, missing))
    return dict(targets)


def _kept(target: Partitions, free: dict[UUID, set[int]], quota: int) -> dict[UUID, frozenset[int]]:
    """The partitions that a member keeps: at most `quota`, which exist and are free."""
    kept: dict[UUID, frozenset[int]] = {}
    for topic_id, partitions in target.items():
        if not quota:
            break
        mine = partitions & free.get(topic_id, frozenset())
        if len(mine) > quota:
            mine = frozenset(sorted(mine)[:quota])
        if mine:
            kept[topic_id] = mine
            quota -= len(mine)
    return kept


def _each(free: dict[UUID, set[int]]) -> Iterator[tuple[UUID, int]]:
    for topic_id, partitions in free.items():
        for partition in sorted(partitions):
            yield topic_id, partition


def _give(target: dict[UUID, frozenset[int]], partitions: Iterator[tuple[UUID, int]]) -> None:
    given: dict[UUID, list[int]] = {}
    for topic_id, partition in partitions:
        given.setdefault(topic_id, []).append(partition)
    for topic_id, numbers in given.items():
        target[topic_id] = target.get(topic_id, frozenset()).union(numbers)
