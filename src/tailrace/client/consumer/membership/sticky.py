"""`StickyAssignor` and `CooperativeStickyAssignor`: balanced assignments with few moves.

The partitions that a member owned come from its subscription: for `sticky`, which is eager and has
revoked all by then, from the user data; for `cooperative-sticky` from the list of owned partitions.
If two members claim a partition, the one of the newer generation has it; of the same generation,
neither. If all members subscribe to the same topics, `sticky_even` assigns, else `sticky_uneven`.

Two results differ from Kafka's, which are wrong there: partitions that a topic does not have are
not kept, and a member is never assigned a topic that it does not subscribe to.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.client.consumer.membership.assignors import (
    Assignments,
    Members,
    Racks,
    RebalanceProtocol,
)
from tailrace.client.consumer.membership.sticky_even import assign_even
from tailrace.client.consumer.membership.sticky_racks import RackMatches
from tailrace.client.consumer.membership.sticky_uneven import assign_uneven
from tailrace.client.consumer.membership.sticky_user_data import (
    NO_GENERATION,
    OwnedPartitions,
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from tailrace.client.consumer.membership.subscriptions import MemberSubscription
from tailrace.model import TopicPartition
from tailrace.protocol.java_strings import hash_map_order, java_hash

logger = logging.getLogger(__name__)


class StickyAssignor:
    """`sticky`, which is eager."""

    name = "sticky"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._newest = _Newest()
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION

    def user_data(self) -> bytes | None:
        """The member's last assignment; None before the first one."""
        if self._partitions is None:
            return None
        return encode_sticky(self._partitions, self._generation)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Note this member's new assignment."""
        self._partitions = tuple(partitions)
        self._generation = generation

    def assign(self, topics: Racks, members: Members) -> Assignments:
        """Spread the partitions over the members."""
        owned = {each: decode_sticky(member.user_data) for each, member in members.items()}
        return _assign(topics, members, owned, newest=self._newest).assignments


class CooperativeStickyAssignor:
    """`cooperative-sticky`, which is eager only beside eager assignors."""

    name = "cooperative-sticky"
    protocols = frozenset(RebalanceProtocol)

    def __init__(self) -> None:
        self._newest = _Newest()
        self._generation = NO_GENERATION

    def user_data(self) -> bytes:
        """The generation, for leaders that read no later version of subscriptions."""
        return encode_generation(self._generation)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Note the generation of this member's new assignment."""
        del partitions
        self._generation = generation

    def assign(self, topics: Racks, members: Members) -> Assignments:
        """Spread the partitions over the members, without those that others revoke first."""
        owned = {each: _owned(member) for each, member in members.items()}
        assignments, transfers = _assign(topics, members, owned, newest=self._newest)
        if transfers is None:
            transfers = _transfers(members, assignments)
        for partition, member_id in transfers.items():
            assignments[member_id].remove(partition)
        return assignments


class _Newest:
    """The newest generation that an assignor has seen."""

    def __init__(self) -> None:
        self.generation = NO_GENERATION


class _Result(NamedTuple):
    assignments: Assignments
    transfers: dict[TopicPartition, str] | None
    """Partitions that another member has to revoke first; None if that was not looked at."""


def _owned(member: MemberSubscription) -> OwnedPartitions:
    if member.generation is not None:
        return OwnedPartitions(member.owned, member.generation)
    return OwnedPartitions(member.owned, decode_generation(member.user_data))


def _assign(
    topics: Racks, members: Members, claimed: dict[str, OwnedPartitions], *, newest: _Newest
) -> _Result:
    wanted = {topic for member in members.values() for topic in member.topics}
    topics = {topic: racks for topic, racks in topics.items() if topic in wanted}
    ordered = {each: members[each] for each in hash_map_order(members, java_hash)}
    existing = {
        each: OwnedPartitions(
            tuple(it for it in claimed[each].partitions if _exists(it, topics)),
            claimed[each].generation,
        )
        for each in ordered
    }
    owned, doubly_owned = _settle_claims(ordered, existing)
    for each in existing.values():
        newest.generation = max(newest.generation, _number(each.generation))
    racks = RackMatches(topics, members)
    if len({frozenset(each.topics) for each in members.values()}) == 1:
        even = assign_even(topics, owned, doubly_owned=doubly_owned, racks=racks)
        return _Result(even.assignments, even.transfers)
    previous = _previous_owners(existing, newest.generation)
    assignments = assign_uneven(topics, ordered, owned, previous=previous, racks=racks)
    return _Result(assignments, None)


def _exists(partition: TopicPartition, topics: Racks) -> bool:
    return 0 <= partition.partition < len(topics.get(partition.topic, ()))


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
            owned[other].pop(each, None)
            owners[each] = member_id
            if generation == other_generation:
                logger.warning(
                    "partition_claimed_twice partition=%s members=%s,%s", each, member_id, other
                )
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
