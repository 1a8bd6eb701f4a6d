"""`assign_uneven`: the sticky assignment if members subscribe to different topics.

    1. A member keeps what it owned, if it still subscribes to it and is not in another rack.
    2. Each free partition goes to the subscriber with the fewest partitions, near ones first.
    3. Partitions move from members with more to members with fewer, while that makes them more
       even: first only free ones, then all; back to an earlier owner where there is one.

A move that would undo an earlier move of the same topic takes back that one instead, so that
partitions do not swap places.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tailrace.client.consumer.membership.assignors import Assignments, Members, Racks
from tailrace.client.consumer.membership.sticky_racks import RackMatches
from tailrace.model import TopicPartition
from tailrace.protocol.java_strings import hash_table_place, java_hash, java_order


def assign_uneven(
    topics: Racks,
    members: Members,
    owned: Assignments,
    *,
    previous: Mapping[TopicPartition, str],
    racks: RackMatches,
) -> Assignments:
    """Assign all partitions that have a subscriber.

    `owned` has what each member owned and every member, in the order in which Kafka goes through
    them; `previous` the owners in older generations.
    """
    balance = _Balance(topics, members, owned, racks=racks)
    return balance.assign(previous)


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
        """The partition to move in place of this one, so that an earlier move is taken back."""
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
        hashed = 31 * (31 + partition.partition) + java_hash(partition.topic)
        return hash_table_place(hashed, self._count_max)


class _Balance:
    """An assignment while it is made."""

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
        """Do all steps."""
        every = self._by_subscribers()
        free = [each for each in every if each not in self._owner]
        self._order = sorted(self._rank(member_id) for member_id in self._shares)
        is_first = not any(self._shares.values())
        self._assign_free(free)
        fixed = {member_id for member_id in self._shares if not self._may_change(member_id)}
        for member_id in fixed:
            self._unrank(member_id)
        before = {member_id: dict(share) for member_id, share in self._shares.items()}
        score_before = self._score()
        movable = [each for each in every if len(self._subscribers[each.topic]) > 1]
        if not self._must_revoke:
            was_free = set(free)
            self._even_out([each for each in movable if each in was_free], previous)
        is_changed = self._even_out(movable, previous)
        if not is_first and is_changed and self._score() >= score_before:
            self._shares = before
        return {member_id: list(share) for member_id, share in self._shares.items()}

    def _by_subscribers(self) -> list[TopicPartition]:
        """All partitions, those of topics with few subscribers first."""
        subscribers = self._subscribers
        order = sorted(self._topics, key=lambda each: (len(subscribers[each]), java_order(each)))
        return [
            TopicPartition(topic, number)
            for topic in order
            for number in range(len(self._topics[topic]))
        ]

    def _assign_free(self, partitions: Iterable[TopicPartition]) -> None:
        left = partitions
        if self._racks.matters:
            left = [each for each in partitions if not self._give(each, is_near=True)]
        for each in left:
            self._give(each, is_near=False)

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
