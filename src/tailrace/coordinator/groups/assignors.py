"""Server-side assignors (KIP-848): from subscriptions and topics to a target for each member.

    range     neighbouring partitions of each topic: of 7, three members get 0 1 2, 3 4 and 5 6.
              Partitions of the same number in topics with equally many partitions and subscribers
              go to the same member, so that a consumer can join such topics
    uniform   equally many partitions for each member, which keeps what it has

Invariant: every partition that a member wants has exactly one owner.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final
from uuid import UUID

from tailrace.coordinator.groups.consumer_group import Partitions
from tailrace.values import dataclass

_PASSES_MAX: Final = 16
"""Passes that even out mixed subscriptions: the last of them moves nothing, or time is up."""


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


def assign_uniform(problem: Problem) -> dict[str, Partitions]:
    """Assign in equal numbers: no member has over one partition more than another.

    That holds for members with equal subscriptions; with others it is as near as they allow.
    """
    if not problem.members:
        return {}
    return _assign_equal(problem) if problem.is_homogeneous else _Mixed(problem).assign()


def _assign_equal(problem: Problem) -> dict[str, Partitions]:
    topic_ids = sorted(next(iter(problem.members.values())).topic_ids)
    free = {each: set(range(problem.partition_counts[each])) for each in topic_ids}
    quota, extras = divmod(sum(map(len, free.values())), len(problem.members))
    targets: dict[str, dict[UUID, frozenset[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    remaining = len(problem.members)
    for member_id, member in problem.members.items():
        # What a member keeps is counted as a set for each topic: no partition is looked at by
        # itself unless it changes its owner, so a stable group of any size takes one pass.
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
    # What nobody has kept, in order; those that have too little take the next ones.
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


class _Mixed:
    """One assignment of members with different subscriptions; members are numbers here."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._members = tuple(problem.members.values())
        self._subscribers: defaultdict[UUID, list[int]] = defaultdict(list)
        for index, member in enumerate(self._members):
            for topic_id in member.topic_ids:
                self._subscribers[topic_id].append(index)
        self._counts = {each: problem.partition_counts[each] for each in self._subscribers}
        self._topics = sorted(self._subscribers, key=self._order)
        self._owned: dict[UUID, dict[int, set[int]]] = {
            topic_id: {index: set() for index in interested}
            for topic_id, interested in self._subscribers.items()
        }
        self._loads = [0] * len(self._members)

    def assign(self) -> dict[str, Partitions]:
        free = self._keep()
        # Topics with most partitions for each subscriber come first: what is small fills the gaps.
        for topic_id in self._topics:
            self._assign_free(topic_id, free[topic_id])
        self._balance()
        targets: list[dict[UUID, frozenset[int]]] = [{} for _ in self._members]
        for topic_id, owned in self._owned.items():
            for index, partitions in owned.items():
                if partitions:
                    targets[index][topic_id] = frozenset(partitions)
        return dict(zip(self._problem.members, targets, strict=True))

    def _order(self, topic_id: UUID) -> tuple[float, int, UUID]:
        interested = len(self._subscribers[topic_id])
        return -self._counts[topic_id] / interested, interested, topic_id

    def _keep(self) -> dict[UUID, set[int]]:
        free = {topic_id: set(range(count)) for topic_id, count in self._counts.items()}
        for index, member in enumerate(self._members):
            for topic_id, partitions in member.target.items():
                if topic_id in member.topic_ids:
                    mine = partitions & free[topic_id]
                    free[topic_id] -= mine
                    self._owned[topic_id][index] |= mine
                    self._loads[index] += len(mine)
        return free

    def _assign_free(self, topic_id: UUID, free: set[int]) -> None:
        if not free:
            return
        owned = self._owned[topic_id]
        least = [(self._loads[index], index) for index in self._subscribers[topic_id]]
        heapify(least)
        for partition in sorted(free):
            # Each free partition goes to the subscriber that has least.
            load, index = heappop(least)
            owned[index].add(partition)
            self._loads[index] = load + 1
            heappush(least, (load + 1, index))

    def _balance(self) -> None:
        shared = [each for each in self._topics if len(self._subscribers[each]) > 1]
        for _ in range(_PASSES_MAX):
            if not any(self._balance_topic(each) for each in shared):
                return

    def _balance_topic(self, topic_id: UUID) -> bool:
        """Whether partitions have moved."""
        owned, loads = self._owned[topic_id], self._loads
        least = [(loads[index], index) for index in self._subscribers[topic_id]]
        most = [(-loads[index], index) for index, mine in owned.items() if mine]
        heapify(least)
        heapify(most)
        has_moved = False
        while most:
            load, source = -most[0][0], most[0][1]
            if load != loads[source] or not owned[source]:
                heappop(most)  # It has given some away since; its new load is in the heap.
                continue
            while least[0][0] != loads[least[0][1]]:
                heappop(least)  # As above.
            target = least[0][1]
            if load - loads[target] <= 1:
                break  # As even as this topic can make it.
            partition = max(owned[source])
            owned[source].remove(partition)
            owned[target].add(partition)
            loads[source] -= 1
            loads[target] += 1
            for index in (source, target):
                heappush(least, (loads[index], index))
                heappush(most, (-loads[index], index))
            has_moved = True
        return has_moved


Assignor = Callable[[Problem], dict[str, Partitions]]
"""Returns a target for each member."""

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""All assignors by name, the default first, as in `group.consumer.assignors`."""
