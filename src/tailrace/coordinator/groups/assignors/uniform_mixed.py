"""The assignor `uniform` for members that subscribe to different topics.

keep      each member keeps the partitions of its target that exist and that it still wants
assign    topics with most partitions for each subscriber come first; each free partition goes
          to the subscriber that has least
balance   topic by topic, partitions move from the subscriber with most to the one with least,
          until they differ by at most one; passes end when one moves nothing, or after 16
"""

from collections import defaultdict
from heapq import heapify, heappop, heappush
from typing import Final
from uuid import UUID

from tailrace.coordinator.groups.assignors.problem import Problem
from tailrace.coordinator.groups.consumer_group import Partitions

_PASSES_MAX: Final = 16


def assign_mixed(problem: Problem) -> dict[str, Partitions]:
    """Assign as evenly as the subscriptions allow, and keep what members have."""
    return _Mixed(problem).assign()


class _Mixed:
    """One assignment under way; members are numbers here."""

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
                heappop(least)
            target = least[0][1]
            if load - loads[target] <= 1:
                break
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
