"""`sticky` and `cooperative-sticky`: balanced assignments with few moves.

The partitions that a member owned come from its subscription: for `sticky`, which is eager and has
revoked all by then, from the user data; for `cooperative-sticky` from the list of owned partitions.
If two members claim a partition, the one of the newer generation has it; of the same generation,
neither.

If all members subscribe to the same topics (`_Even`), each gets the quota, partitions / members,
and some get one more:

    1. A member keeps what it owned, up to its quota; as many as may have one more keep one more.
    2. If racks matter, partitions go to members that are near, up to the quota.
    3. The others are dealt in turn to the members that are below it.

If they subscribe to different topics (`_Uneven`):

    1. A member keeps what it owned, if it still subscribes to it and is not in another rack.
    2. Each free partition goes to the subscriber with the fewest partitions, near ones first.
    3. Partitions move from members with more to members with fewer, while that makes them more
       even: first only free ones, then all; back to an earlier owner where there is one.

Two results differ from Kafka's, which are wrong there: partitions that a topic does not have are
not kept, and a member is never assigned a topic that it does not subscribe to.
"""

import logging
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tailrace.client.consumer.membership.assignors import (
    Assignments,
    Members,
    Racks,
    RebalanceProtocol,
    uses_racks,
)
from tailrace.client.consumer.membership.subscriptions import (
    NO_GENERATION,
    MemberSubscription,
    OwnedPartitions,
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from tailrace.model import TopicPartition
from tailrace.protocol.java_strings import hash_map_order, hash_table_place, java_hash, java_order

logger = logging.getLogger(__name__)


class StickyAssignor:
    """`sticky`, which is eager."""

    name = "sticky"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._newest = NO_GENERATION
        """The newest generation that this leader has seen, also of members that left since."""
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION

    def user_data(self) -> bytes | None:
        """The member's last assignment; None before the first one."""
        if self._partitions is None:
            return None
        return encode_sticky(self._partitions, self._generation)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        self._partitions = tuple(partitions)
        self._generation = generation

    def assign(self, topics: Racks, members: Members) -> Assignments:
        owned = {each: decode_sticky(member.user_data) for each, member in members.items()}
        result = _assign(topics, members, owned, newest=self._newest)
        self._newest = result.newest
        return result.assignments


class CooperativeStickyAssignor:
    """`cooperative-sticky`, which is eager only beside eager assignors."""

    name = "cooperative-sticky"
    protocols = frozenset(RebalanceProtocol)

    def __init__(self) -> None:
        self._newest = NO_GENERATION
        self._generation = NO_GENERATION

    def user_data(self) -> bytes:
        """The generation, for leaders that read no later version of subscriptions."""
        return encode_generation(self._generation)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        del partitions
        self._generation = generation

    def assign(self, topics: Racks, members: Members) -> Assignments:
        owned = {each: _owned(member) for each, member in members.items()}
        result = _assign(topics, members, owned, newest=self._newest)
        self._newest = result.newest
        assignments, transfers = result.assignments, result.transfers
        if transfers is None:
            transfers = _transfers(members, assignments)
        # A partition that moves is given to nobody now (KIP-429): its owner sees that it is gone,
        # revokes it and joins again, and that second rebalance gives it to its new member.
        for partition, member_id in transfers.items():
            assignments[member_id].remove(partition)
        return assignments


class _Result(NamedTuple):
    assignments: Assignments
    transfers: dict[TopicPartition, str] | None
    """Partitions that another member has to revoke first, with their new member; None if that was
    not looked at."""
    newest: int
    """The newest generation of all assignments so far."""


def _owned(member: MemberSubscription) -> OwnedPartitions:
    # The subscription has the generation from version 2 on (KIP-792); before, it is user data.
    if member.generation is not None:
        return OwnedPartitions(member.owned, member.generation)
    return OwnedPartitions(member.owned, decode_generation(member.user_data))


def _assign(
    topics: Racks, members: Members, claimed: dict[str, OwnedPartitions], *, newest: int
) -> _Result:
    wanted = {topic for member in members.values() for topic in member.topics}
    # The metadata may have topics that no member of this group wants.
    topics = {topic: racks for topic, racks in topics.items() if topic in wanted}
    # Kafka goes through a HashMap of the members here, and its order decides who keeps one more.
    # With the same order no partition moves when a Java client takes over the lead.
    ordered = {each: members[each] for each in hash_map_order(members, java_hash)}
    existing = {
        each: OwnedPartitions(
            tuple(
                it
                for it in claimed[each].partitions
                if 0 <= it.partition < len(topics.get(it.topic, ()))
            ),
            claimed[each].generation,
        )
        for each in ordered
    }
    owned, doubly_owned = _settle_claims(ordered, existing)
    newest = max(newest, *(_number(each.generation) for each in existing.values()), NO_GENERATION)
    racks = RackMatches(topics, members)
    if len({frozenset(each.topics) for each in members.values()}) == 1:
        even = _Even(topics, owned, doubly_owned=doubly_owned, racks=racks)
        even.assign(owned)
        return _Result(even.assignments, even.transfers, newest)
    uneven = _Uneven(topics, ordered, owned, racks=racks)
    return _Result(uneven.assign(_previous_owners(existing, newest)), None, newest)


def _number(generation: int | None) -> int:
    return NO_GENERATION if generation is None else generation


def _settle_claims(
    members: Members, claimed: dict[str, OwnedPartitions]
) -> tuple[Assignments, set[TopicPartition]]:
    """The partitions that each member owned, and those that two claimed in one generation."""
    owned: dict[str, dict[TopicPartition, None]] = {member_id: {} for member_id in claimed}
    owners: dict[TopicPartition, str] = {}
    doubly_owned: set[TopicPartition] = set()
    for member_id, (partitions, of_generation) in claimed.items():
        generation = _number(of_generation)
        for each in partitions:
            other = owners.get(each)
            if other is None:
                owned[member_id][each] = None
                owners[each] = member_id
                continue
            other_generation = _number(members[other].generation)
            if generation < other_generation:
                continue
            # Both claim it: a member that was away while the group went on still believes that it
            # owns what others have by now. Its older generation shows that (KIP-341).
            owned[other].pop(each, None)
            owners[each] = member_id
            if generation == other_generation:
                logger.warning(
                    "partition_claimed_twice partition=%s members=%s,%s", each, member_id, other
                )
                # Nobody knows who reads it. Neither keeps it, so both revoke it first.
                doubly_owned.add(each)
            else:
                owned[member_id][each] = None
    return {member_id: list(each) for member_id, each in owned.items()}, doubly_owned


def _previous_owners(claimed: dict[str, OwnedPartitions], newest: int) -> dict[TopicPartition, str]:
    """The owners in the newest of the generations before `newest`."""
    found: dict[TopicPartition, tuple[int, str]] = {}
    for member_id, (partitions, of_generation) in claimed.items():
        generation = _number(of_generation)
        if generation >= newest:
            continue
        for each in partitions:
            if each not in found or generation > found[each][0]:
                found[each] = generation, member_id
    return {each: member_id for each, (_, member_id) in found.items()}


def _transfers(members: Members, assignments: Assignments) -> dict[TopicPartition, str]:
    """Partitions that one member gets and another, which owned them, does not keep."""
    added, revoked = {}, set()
    for member_id, partitions in assignments.items():
        owned = set(members[member_id].owned)
        added.update({each: member_id for each in partitions if each not in owned})
        revoked |= owned.difference(partitions)
    return {each: member_id for each, member_id in added.items() if each in revoked}


class RackMatches:
    """The racks of members and replicas; empty if they make no difference."""

    def __init__(self, topics: Racks, members: Members) -> None:
        consumers = {member_id: each.rack for member_id, each in members.items() if each.rack}
        partitions = [racks for each in topics.values() for racks in each]
        matters = uses_racks(frozenset(consumers.values()), partitions)
        self.consumers: dict[str, str] = consumers if matters else {}
        """The rack of each member that has one."""
        self._topics: Racks = topics if matters else {}
        self._counts: Counter[str] = Counter(self.consumers.values())

    @property
    def matters(self) -> bool:
        return bool(self.consumers)

    def replicas(self, partition: TopicPartition) -> frozenset[str]:
        racks = self._topics.get(partition.topic, ())
        return racks[partition.partition] if partition.partition < len(racks) else frozenset()

    def is_apart(self, consumer: str, partition: TopicPartition) -> bool:
        """Whether the member has a rack in which there is no replica."""
        rack = self.consumers.get(consumer)
        return rack is not None and rack not in self.replicas(partition)

    def is_near(self, consumer: str, partition: TopicPartition) -> bool:
        """Whether the member has a rack in which there is a replica."""
        return self.consumers.get(consumer) in self.replicas(partition)

    def scarce_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The partitions, those that fewer members are near to first."""
        if not self.matters:
            return partitions
        counts = self._counts
        return sorted(partitions, key=lambda each: sum(counts[r] for r in self.replicas(each)))

    def next_near(
        self, partition: TopicPartition, consumers: Sequence[str], first: int
    ) -> int | None:
        """Index of the next member that is near, going round from `first`; None if none is."""
        for step in range(len(consumers)):
            index = (first + step) % len(consumers)
            if self.is_near(consumers[index], partition):
                return index
        return None


class _Even:
    """The members' shares while they are filled; all members subscribe to the same topics."""

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
        # All members get the quota, and as many as the remainder one more.
        self._quota, self._larger_count = divmod(total, len(owned))
        self._quota_max = self._quota + (self._larger_count > 0)
        self._larger = 0
        """Members that have more than the quota."""
        self._dropped: dict[TopicPartition, str] = {}
        """Partitions that a member owned and does not keep."""
        self._below: list[str] = []
        """Members with less than the quota."""
        self._at_quota: list[str] = []
        """Members with just the quota, which may get one more."""
        self.assignments: Assignments = {member_id: [] for member_id in owned}
        self.transfers: dict[TopicPartition, str] = {}
        """Partitions that another member has to revoke first, with their new member."""

    def assign(self, owned: Assignments) -> None:
        self._keep_owned(owned)
        left = self._unassigned()
        self._below.sort(key=java_order)
        self._at_quota.sort(key=java_order)
        # Partitions that few members are near to choose first; the others still have a choice.
        left = self._racks.scarce_first(left)
        if self._racks.matters:
            left = self._assign_near(left)
        self._deal(left)

    def _keep_owned(self, owned: Assignments) -> None:
        for member_id, partitions in owned.items():
            kept = []
            # In Kafka's order, by number and then topic, which decides what is kept.
            for each in sorted(partitions, key=lambda it: (it.partition, java_order(it.topic))):
                if self._racks.is_apart(member_id, each):
                    self._dropped[each] = member_id
                elif each not in self._doubly_owned:
                    kept.append(each)
            share = self.assignments[member_id]
            if len(kept) < self._quota:
                share += kept
                self._below.append(member_id)
                continue
            # The first members keep one more, so their order matters.
            is_larger = len(kept) >= self._quota_max and self._larger < self._larger_count
            limit = self._quota_max if is_larger else self._quota
            share += kept[:limit]
            self._dropped.update(dict.fromkeys(kept[limit:], member_id))
            if is_larger:
                self._grow()
            elif self._larger < self._larger_count:
                self._at_quota.append(member_id)

    def _unassigned(self) -> list[TopicPartition]:
        """The partitions that no member has, by topic and number."""
        taken = {each for share in self.assignments.values() for each in share}
        every = (
            TopicPartition(topic, number)
            for topic in sorted(self._topics, key=java_order)
            for number in range(len(self._topics[topic]))
        )
        return [each for each in every if each not in taken]

    def _assign_near(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Assign what members are near to; return the rest."""
        left = []
        turn = 0
        for partition in partitions:
            index = self._racks.next_near(partition, self._below, turn)
            if index is not None:
                member_id = self._below[index]
                size = self._give(partition, member_id)
                if size >= self._quota:
                    del self._below[index]
                    if size < self._quota_max and self._larger < self._larger_count:
                        self._at_quota.append(member_id)
                else:
                    index += 1
                turn = index % len(self._below) if self._below else 0
                continue
            index = self._racks.next_near(partition, self._at_quota, 0)
            if index is None:
                left.append(partition)
                continue
            member_id = self._at_quota[index]
            if self._give(partition, member_id) == self._quota_max:
                del self._at_quota[index]
                self._grow()
        return left

    def _deal(self, partitions: list[TopicPartition]) -> None:
        """Assign the partitions to the members in turn, first up to the quota."""
        turn = 0
        for partition in partitions:
            if self._below:
                turn = turn if turn < len(self._below) else 0
                member_id = self._below[turn]
                turn += 1
            else:
                assert self._at_quota, "the quotas add up to all partitions"
                member_id = self._at_quota.pop(0)
            if self._give(partition, member_id) == self._quota:
                turn -= 1
                del self._below[turn]
                self._at_quota.append(member_id)

    def _give(self, partition: TopicPartition, member_id: str) -> int:
        share = self.assignments[member_id]
        share.append(partition)
        owner = self._dropped.get(partition, member_id)
        # Its owner of the last generation still reads it, until it has revoked it.
        if owner != member_id or partition in self._doubly_owned:
            self.transfers[partition] = member_id
        return len(share)

    def _grow(self) -> None:
        """Count a member with more than the quota; at the last one, no other may get one more."""
        self._larger += 1
        if self._larger == self._larger_count:
            self._at_quota.clear()


class _Move(NamedTuple):
    source: str
    target: str


class _Moves:
    """The moves of partitions so far, by topic."""

    def __init__(self) -> None:
        self._moves: dict[TopicPartition, _Move] = {}
        self._moved: dict[tuple[str, _Move], _HashSet] = {}

    def add(self, partition: TopicPartition, move: _Move) -> None:
        """Note a move; several moves of one partition are one, from its first owner."""
        earlier = self._moves.pop(partition, None)
        if earlier is not None:
            moved = self._moved[partition.topic, earlier]
            moved.remove(partition)
            if not moved:
                del self._moved[partition.topic, earlier]
            move = _Move(earlier.source, move.target)
            if move.source == move.target:
                return
        self._moves[partition] = move
        self._moved.setdefault((partition.topic, move), _HashSet()).add(partition)

    def better(self, partition: TopicPartition, move: _Move) -> TopicPartition:
        """The partition to move in place of this one, so that an earlier move is taken back.

        Else two partitions of a topic would swap places between two members, for nothing.
        """
        earlier = self._moves.get(partition)
        source = move.source if earlier is None else earlier.source
        reverse = self._moved.get((partition.topic, _Move(move.target, source)))
        return partition if reverse is None else reverse.first()


class _HashSet:
    """Partitions, of which the first is the one that Java's `HashSet` gives first."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, None] = {}
        self._count_max = 0

    def __bool__(self) -> bool:
        return bool(self._partitions)

    def add(self, partition: TopicPartition) -> None:
        self._partitions[partition] = None
        self._count_max = max(self._count_max, len(self._partitions))

    def remove(self, partition: TopicPartition) -> None:
        del self._partitions[partition]

    def first(self) -> TopicPartition:
        return min(self._partitions, key=self._place)

    def _place(self, partition: TopicPartition) -> int:
        # `TopicPartition.hashCode` of Kafka's client.
        hashed = 31 * (31 + partition.partition) + java_hash(partition.topic)
        return hash_table_place(hashed, self._count_max)


class _Uneven:
    """An assignment while it is made; members subscribe to different topics."""

    def __init__(
        self, topics: Racks, members: Members, owned: Assignments, *, racks: RackMatches
    ) -> None:
        self._topics = topics
        self._racks = racks
        self._topics_of = {
            member_id: {topic: None for topic in members[member_id].topics if topic in topics}
            for member_id in owned
        }
        self._subscribers: dict[str, list[str]] = {topic: [] for topic in topics}
        for member_id, subscribed in self._topics_of.items():
            for topic in subscribed:
                self._subscribers[topic].append(member_id)
        self._most = {
            member_id: sum(len(topics[topic]) for topic in subscribed)
            for member_id, subscribed in self._topics_of.items()
        }
        """The number of partitions that each member could have."""
        self._shares: dict[str, dict[TopicPartition, None]] = {each: {} for each in owned}
        self._owner: dict[TopicPartition, str] = {}
        self._owners: dict[str, Counter[str]] = {topic: Counter() for topic in topics}
        """The number of partitions of a topic that each member has."""
        self._order: list[tuple[int, bytes, str]] = []
        """The members that may get or give partitions, with the fewest first."""
        self._moves = _Moves()
        self._must_revoke = False
        for member_id, partitions in owned.items():
            for each in partitions:
                if each.topic in self._topics_of[member_id] and not racks.is_apart(member_id, each):
                    self._put(each, member_id)
                else:
                    self._must_revoke = True

    def assign(self, previous: Mapping[TopicPartition, str]) -> Assignments:
        """Assign all partitions that have a subscriber.

        `previous` has the owners in older generations: a member that comes back gets its own.
        """
        # Few subscribers first: these have the least choice.
        subscribers = self._subscribers
        order = sorted(self._topics, key=lambda each: (len(subscribers[each]), java_order(each)))
        every = [
            TopicPartition(topic, number)
            for topic in order
            for number in range(len(self._topics[topic]))
        ]
        free = [each for each in every if each not in self._owner]
        self._order = sorted(self._rank(member_id) for member_id in self._shares)
        is_first = not any(self._shares.values())
        left = free
        if self._racks.matters:
            left = [each for each in free if not self._give(each, is_near=True)]
        for each in left:
            self._give(each, is_near=False)
        # They can neither get nor give one, and would spoil the balance of the others.
        fixed = {member_id for member_id in self._shares if not self._may_change(member_id)}
        for member_id in fixed:
            self._unrank(member_id)
        before = {member_id: dict(share) for member_id, share in self._shares.items()}
        score_before = self._score()
        movable = [each for each in every if len(self._subscribers[each.topic]) > 1]
        # Free partitions alone may do; then nobody has to give one up.
        if not self._must_revoke:
            was_free = set(free)
            self._even_out([each for each in movable if each in was_free], previous)
        is_changed = self._even_out(movable, previous)
        # Moves cost the members their caches: undo those that did not make it more even.
        if not is_first and is_changed and self._score() >= score_before:
            self._shares = before
        return {member_id: list(share) for member_id, share in self._shares.items()}

    def _give(self, partition: TopicPartition, *, is_near: bool) -> bool:
        """Give a partition to the subscriber with the fewest; return whether there is one."""
        for member_id in self._fewest_first(partition.topic):
            if not is_near or not self._racks.is_apart(member_id, partition):
                self._unrank(member_id)
                self._put(partition, member_id)
                insort(self._order, self._rank(member_id))
                return True
        return False

    def _even_out(
        self, partitions: list[TopicPartition], previous: Mapping[TopicPartition, str]
    ) -> bool:
        """Move partitions while that helps; return whether any has moved."""
        has_moved = False
        passes_left = len(self._owner) + len(self._shares)
        is_modified = True
        while is_modified and passes_left:
            # Each move makes members more even, so the passes end; the limit is for safety.
            passes_left -= 1
            is_modified = False
            for partition in partitions:
                if self._is_even():
                    break
                target = self._target(partition, previous.get(partition))
                if target is not None:
                    self._move(partition, target)
                    is_modified = has_moved = True
        return has_moved

    def _target(self, partition: TopicPartition, previous: str | None) -> str | None:
        """The member that should have a partition; None: its owner keeps it."""
        size = len(self._shares[self._owner[partition]])
        subscribers = self._subscribers[partition.topic]
        # It may still have a cache of this partition.
        if previous in subscribers:
            assert previous is not None
            if size > len(self._shares[previous]) + 1:
                return previous
        if any(size > len(self._shares[each]) + 1 for each in subscribers):
            return next(self._fewest_first(partition.topic))
        return None

    def _move(self, partition: TopicPartition, target: str) -> None:
        source = self._owner[partition]
        moved = self._moves.better(partition, _Move(source, target))
        source = self._owner[moved]
        self._unrank(source)
        self._unrank(target)
        self._moves.add(moved, _Move(source, target))
        del self._shares[source][moved]
        self._owners[moved.topic][source] -= 1
        self._put(moved, target)
        insort(self._order, self._rank(source))
        insort(self._order, self._rank(target))

    def _is_even(self) -> bool:
        """Whether no member could take a partition from one with two more."""
        order = self._order
        if not order or order[0][0] >= order[-1][0] - 1:
            return True
        largest = {
            topic: max((len(self._shares[each]) for each, n in owners.items() if n), default=0)
            for topic, owners in self._owners.items()
        }
        return not any(
            size + 1 < largest[topic]
            for size, _, member_id in order
            if size != self._most[member_id]
            for topic in self._topics_of[member_id]
        )

    def _may_change(self, member_id: str) -> bool:
        """Whether the member lacks some that it could have, or has some that others could."""
        share = self._shares[member_id]
        return len(share) < self._most[member_id] or any(
            len(self._subscribers[each.topic]) > 1 for each in share
        )

    def _score(self) -> int:
        """Sum of the differences between the members that may change; 0 is even."""
        sizes = [size for size, _, _ in self._order]
        return sum(size * (2 * index - len(sizes) + 1) for index, size in enumerate(sizes))

    def _fewest_first(self, topic: str) -> Iterator[str]:
        return (each for _, _, each in self._order if topic in self._topics_of[each])

    def _put(self, partition: TopicPartition, member_id: str) -> None:
        self._shares[member_id][partition] = None
        self._owner[partition] = member_id
        self._owners[partition.topic][member_id] += 1

    def _rank(self, member_id: str) -> tuple[int, bytes, str]:
        return len(self._shares[member_id]), java_order(member_id), member_id

    def _unrank(self, member_id: str) -> None:
        del self._order[bisect_left(self._order, self._rank(member_id))]
