"""`assign_even`: the sticky assignment if all members subscribe to the same topics.

Each member gets the quota, partitions / members, and some get one more:

    1. A member keeps what it owned, up to its quota; as many as may have one more keep one more.
    2. If racks matter, partitions go to members that are near, up to the quota.
    3. The rest goes round the members that are below it.
"""

from tailrace.client.consumer.membership.assignors import Assignments, Racks
from tailrace.client.consumer.membership.sticky_racks import RackMatches
from tailrace.model import TopicPartition
from tailrace.protocol.java_strings import java_order
from tailrace.values import dataclass, field


@dataclass(slots=True)
class EvenAssignment:
    """A finished assignment."""

    assignments: Assignments
    transfers: dict[TopicPartition, str] = field(default_factory=dict)
    """Partitions that another member has to revoke first, with their new member."""


def assign_even(
    topics: Racks,
    owned: Assignments,
    *,
    doubly_owned: set[TopicPartition],
    racks: RackMatches,
) -> EvenAssignment:
    """Assign all partitions; `owned` has what each member owned and every member."""
    filling = _Filling(topics, owned, doubly_owned=doubly_owned, racks=racks)
    filling.keep_owned(owned)
    left = filling.unassigned()
    filling.below.sort(key=java_order)
    filling.at_quota.sort(key=java_order)
    left = racks.scarce_first(left)
    if racks.matters:
        left = filling.assign_near(left)
    filling.go_round(left)
    return filling.result


class _Filling:
    """The members' shares while they are filled."""

    def __init__(
        self,
        topics: Racks,
        owned: Assignments,
        *,
        doubly_owned: set[TopicPartition],
        racks: RackMatches,
    ) -> None:
        self._topics = topics
        self._doubly_owned = doubly_owned
        self._racks = racks
        total = sum(len(each) for each in topics.values())
        self._quota, self._larger_count = divmod(total, len(owned))
        self._quota_max = self._quota + (self._larger_count > 0)
        self._larger = 0
        """Members that have more than the quota."""
        self._dropped: dict[TopicPartition, str] = {}
        """Partitions that a member owned and does not keep."""
        self.below: list[str] = []
        """Members with less than the quota."""
        self.at_quota: list[str] = []
        """Members with just the quota, which may get one more."""
        self.result = EvenAssignment({member_id: [] for member_id in owned})

    def keep_owned(self, owned: Assignments) -> None:
        """Let each member keep what it owned, up to its quota."""
        for member_id, partitions in owned.items():
            kept = []
            for each in sorted(partitions, key=lambda it: (it.partition, java_order(it.topic))):
                if self._racks.is_apart(member_id, each):
                    self._dropped[each] = member_id
                elif each not in self._doubly_owned:
                    kept.append(each)
            share = self.result.assignments[member_id]
            if len(kept) < self._quota:
                share += kept
                self.below.append(member_id)
                continue
            is_larger = len(kept) >= self._quota_max and self._larger < self._larger_count
            limit = self._quota_max if is_larger else self._quota
            share += kept[:limit]
            self._dropped.update(dict.fromkeys(kept[limit:], member_id))
            if is_larger:
                self._grow()
            elif self._larger < self._larger_count:
                self.at_quota.append(member_id)

    def unassigned(self) -> list[TopicPartition]:
        """The partitions that no member has, by topic and number."""
        taken = {each for share in self.result.assignments.values() for each in share}
        every = (
            TopicPartition(topic, number)
            for topic in sorted(self._topics, key=java_order)
            for number in range(len(self._topics[topic]))
        )
        return [each for each in every if each not in taken]

    def assign_near(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Assign what members are near to; return the rest."""
        left = []
        turn = 0
        for partition in partitions:
            index = self._racks.next_near(partition, self.below, turn)
            if index is not None:
                member_id = self.below[index]
                size = self._give(partition, member_id)
                if size >= self._quota:
                    del self.below[index]
                    if size < self._quota_max and self._larger < self._larger_count:
                        self.at_quota.append(member_id)
                else:
                    index += 1
                turn = index % len(self.below) if self.below else 0
                continue
            index = self._racks.next_near(partition, self.at_quota, 0)
            if index is None:
                left.append(partition)
                continue
            member_id = self.at_quota[index]
            if self._give(partition, member_id) == self._quota_max:
                del self.at_quota[index]
                self._grow()
        return left

    def go_round(self, partitions: list[TopicPartition]) -> None:
        """Assign the partitions to the members in turn, first up to the quota."""
        turn = 0
        for partition in partitions:
            if self.below:
                turn = turn if turn < len(self.below) else 0
                member_id = self.below[turn]
                turn += 1
            else:
                assert self.at_quota, "the quotas add up to all partitions"
                member_id = self.at_quota.pop(0)
            if self._give(partition, member_id) == self._quota:
                turn -= 1
                del self.below[turn]
                self.at_quota.append(member_id)

    def _give(self, partition: TopicPartition, member_id: str) -> int:
        share = self.result.assignments[member_id]
        share.append(partition)
        owner = self._dropped.get(partition, member_id)
        if owner != member_id or partition in self._doubly_owned:
            self.result.transfers[partition] = member_id
        return len(share)

    def _grow(self) -> None:
        """Count a member with more than the quota; at the last one, no other may get one more."""
        self._larger += 1
        if self._larger == self._larger_count:
            self.at_quota.clear()
