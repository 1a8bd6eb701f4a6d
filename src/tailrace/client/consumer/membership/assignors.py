"""Assignors of the classic protocol: they spread the partitions of topics over a group's members.

    range               by topic, neighbours together; prefers replicas in the member's rack
    roundrobin          one partition after the other to one member after the other
    sticky              as balanced as can be, then as few moves as can be (`sticky`)
    cooperative-sticky  the same, in two rebalances: revoke first, assign then (KIP-429)

Each assigns what Kafka's assignor of that name assigns to the same members, so that it does not
matter which client leads the group.

Not here: bytes (`subscriptions`), and when a leader assigns (`leading`).
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import cycle
from typing import Protocol

from tailrace.client.consumer.membership.interface import TopicShape
from tailrace.client.consumer.membership.subscriptions import MemberSubscription
from tailrace.model import TopicPartition
from tailrace.protocol.java_strings import java_order

Assignments = dict[str, list[TopicPartition]]
"""The assigned partitions by member; every member is in it."""

Racks = Mapping[str, tuple[frozenset[str], ...]]
"""Racks of the replicas, by topic and partition; topics that do not exist are missing."""

Members = Mapping[str, MemberSubscription]
"""The members by id, in the order of the coordinator's answer."""


class RebalanceProtocol(Enum):
    """When a member gives up its partitions."""

    EAGER = "eager"
    """All of them before it joins again."""
    COOPERATIVE = "cooperative"
    """The ones that are assigned to others, after it has joined."""


class Assignor(Protocol):
    """An assignor, with what it remembers of earlier generations."""

    @property
    def name(self) -> str:
        """The name in `partition.assignment.strategy` and on the wire."""
        ...

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]:
        """The protocols under which it may be used."""
        ...

    def user_data(self) -> bytes | None:
        """The assignor's own part of the member's subscription."""
        ...

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Note this member's new assignment."""
        ...

    def assign(self, topics: Racks, members: Members) -> Assignments:
        """Spread the partitions over the members."""
        ...


class StatelessAssignor:
    """An eager assignor that remembers nothing."""

    def __init__(self, name: str, assign: Callable[[Racks, Members], Assignments]) -> None:
        self.name = name
        self.protocols = frozenset({RebalanceProtocol.EAGER})
        self.assign = assign

    def user_data(self) -> None:
        """There is none."""
        return

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Nothing follows from an assignment."""


def racks_of(topics: Mapping[str, TopicShape]) -> Racks:
    """The part of the metadata that assignors use."""
    return {name: shape.racks for name, shape in topics.items() if shape.racks}


def member_order(members: Members, member_id: str) -> tuple[bool, bytes]:
    """Sort key of a member: static ones by instance id, then the others by member id."""
    instance_id = members[member_id].instance_id
    if instance_id is None:
        return True, java_order(member_id)
    # A static member keeps its place when it comes back with another member id (KIP-345).
    return False, java_order(instance_id)


def uses_racks(consumer_racks: frozenset[str], partitions: Sequence[frozenset[str]]) -> bool:
    """Whether racks matter: consumers are in racks of replicas, and not every partition is in all.

    Example:
        >>> uses_racks(frozenset("a"), [frozenset("ab"), frozenset("b")])
        True
        >>> uses_racks(frozenset("a"), [frozenset("ab"), frozenset("ab")])
        False
    """
    all_racks = frozenset().union(*partitions)
    return bool(consumer_racks & all_racks) and any(each != all_racks for each in partitions)


def assign_round_robin(topics: Racks, members: Members) -> Assignments:
    """Deal all partitions, by topic and number, to the members in order."""
    assignments: Assignments = {member_id: [] for member_id in members}
    subscribed = {name for member in members.values() for name in member.topics}
    turns = cycle(sorted(members, key=lambda member_id: member_order(members, member_id)))
    # All topics in one round, so a member may get nothing of one topic.
    for topic in sorted(subscribed & topics.keys(), key=java_order):
        for number in range(len(topics[topic])):
            # Each subscribed topic has a subscriber, so the search ends.
            member_id = next(each for each in turns if topic in members[each].topics)
            assignments[member_id].append(TopicPartition(topic, number))
    return assignments


class _TopicRange:
    """The partitions of one topic that are left, and the share of each of its subscribers."""

    def __init__(self, topic: str, racks: Sequence[frozenset[str]], members: Members) -> None:
        subscribers = (each for each in members if topic in members[each].topics)
        self.topic = topic
        self.racks = racks
        self.consumers = tuple(sorted(subscribers, key=lambda each: member_order(members, each)))
        self.consumer_racks = {each: members[each].rack for each in self.consumers}
        self.left = dict.fromkeys(range(len(racks)))
        self.counts = dict.fromkeys(self.consumers, 0)
        self.share, self.larger = divmod(len(racks), max(len(self.consumers), 1))
        """Partitions for each consumer, and how many may have one more."""
        known = frozenset(rack for rack in self.consumer_racks.values() if rack)
        self.needs_racks = uses_racks(known, racks)

    def matches(self, consumer: str, number: int) -> bool:
        rack = self.consumer_racks[consumer]
        return rack is None or rack in self.racks[number]

    def room(self, consumer: str) -> int:
        """The number of partitions that the consumer may still get."""
        return max(0, self.share + (self.larger > 0) - self.counts[consumer])

    def take(self, consumer: str, numbers: Sequence[int], assignments: Assignments) -> None:
        if not numbers:
            return
        self.counts[consumer] += len(numbers)
        if self.counts[consumer] > self.share:
            self.larger -= 1
        for number in numbers:
            del self.left[number]
            assignments[consumer].append(TopicPartition(self.topic, number))

    def fill(self, assignments: Assignments, *, is_by_rack: bool) -> None:
        """Give each consumer its share of what is left."""
        for consumer in self.consumers:
            numbers = [each for each in self.left if not is_by_rack or self.matches(consumer, each)]
            self.take(consumer, numbers[: self.room(consumer)], assignments)


def assign_ranges(topics: Racks, members: Members) -> Assignments:
    """Give each subscriber of a topic a range of it; the first get one more if it is not even.

    If racks matter, partitions with a replica in the rack of a member are given first, and those of
    the same number of co-partitioned topics together (KIP-881).
    """
    assignments: Assignments = {member_id: [] for member_id in members}
    ranges = [_TopicRange(topic, racks, members) for topic, racks in topics.items()]
    # Racks first, since a range that ignores them may take what is near for others (KIP-881).
    if any(each.needs_racks for each in ranges):
        _fill_by_rack(ranges, assignments)
    for each in ranges:
        each.fill(assignments, is_by_rack=False)
    for partitions in assignments.values():
        partitions.sort(key=lambda each: (java_order(each.topic), each.partition))
    return assignments


def _fill_by_rack(ranges: Sequence[_TopicRange], assignments: Assignments) -> None:
    groups: dict[object, list[_TopicRange]] = {}
    for each in ranges:
        racks = tuple(each.consumer_racks.items())
        # Kafka counts partitions only where a subscriber has a rack.
        count = len(each.racks) if any(each.consumer_racks.values()) else 0
        groups.setdefault((racks, count), []).append(each)
    for (_, count), group in groups.items():  # type: ignore[misc]
        if len(group) > 1:
            _fill_together(group, count, assignments)
        elif group[0].needs_racks:
            group[0].fill(assignments, is_by_rack=True)


def _fill_together(group: Sequence[_TopicRange], count: int, assignments: Assignments) -> None:
    """Give partitions of the same number of several topics to one consumer whose rack has all."""
    # Topics with the same keys are joined by their partition numbers, so these go together.
    open_consumers = dict.fromkeys(group[0].consumers)
    for number in range(count):
        consumer = next(
            (
                each
                for each in open_consumers
                if all(topic.matches(each, number) and topic.room(each) for topic in group)
            ),
            None,
        )
        if consumer is None:
            continue
        for topic in group:
            topic.take(consumer, [number], assignments)
        if not any(topic.room(consumer) for topic in group):
            del open_consumers[consumer]
            if not open_consumers:
                return
