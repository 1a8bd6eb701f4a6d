"""A new target for all members of a group, from an assignor to records.

Only targets that have changed are written, then the epoch that they are for.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from tailrace.coordinator.groups.assignors import ASSIGNORS
from tailrace.coordinator.groups.assignors.problem import AssignedMember, Problem
from tailrace.coordinator.groups.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    Partitions,
    Subscription,
)
from tailrace.coordinator.groups.consumer_records import target_epoch_record, target_record
from tailrace.coordinator.groups.consumer_settings import ConsumerSettings
from tailrace.coordinator.groups.topics import Topics
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.values import dataclass

SIZE_MAX: Final = 150
"""Members and partitions, together, that are assigned in one turn of the loop: 30 us for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignment:
    """The targets of all members at an epoch."""

    targets: Mapping[str, Partitions]
    records: tuple[CoordinatorRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUpdate:
    """A group as it will be when the records of a request are replayed."""

    group: ConsumerGroup
    epoch: int
    updated: ConsumerMember
    """The member whose request it is."""
    replaced_id: str | None
    """The member id that the member had before, if it is a static one that has restarted."""

    @property
    def members(self) -> dict[str, ConsumerMember]:
        """All members."""
        members = dict(self.group.members)
        if self.replaced_id is not None:
            members.pop(self.replaced_id, None)
        members[self.updated.member_id] = self.updated
        return members


def compute_target(
    update: GroupUpdate, topics: Topics, *, settings: ConsumerSettings, now_ms: int
) -> TargetAssignment:
    """Assign with the assignor that most members ask for, else with the default."""
    group, members = update.group, update.members
    problem = posed_problem(group, members, topics)
    targets = ASSIGNORS[preferred_assignor(members, settings)](problem)
    records = [
        target_record(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if group.target.get(member_id) != target
    ]
    records.append(target_epoch_record(group.group_id, update.epoch, now_ms))
    return TargetAssignment(targets=targets, records=tuple(records))


def posed_problem(
    group: ConsumerGroup, members: Mapping[str, ConsumerMember], topics: Topics
) -> Problem:
    """The problem of an assignor: the members of a group and their topics, as they are now."""
    known: dict[Subscription, frozenset[UUID]] = {}
    for member in members.values():
        if member.subscription not in known:
            known[member.subscription] = topic_ids_of(group, member.subscription, topics)
    counts = {}
    for topic_id in frozenset().union(*known.values()):
        topic = topics.by_id(topic_id)
        assert topic is not None
        counts[topic_id] = topic.partition_count
    return Problem(
        members={
            member_id: AssignedMember(
                topic_ids=known[member.subscription],
                target=group.target_of(member),
                instance_id=member.instance_id,
            )
            for member_id, member in members.items()
        },
        partition_counts=counts,
    )


def is_large(update: GroupUpdate, topics: Topics) -> bool:
    """Whether a target for the group takes longer than a turn of the event loop may."""
    size = len(update.group.members)
    for name in update.group.topics_of_all(
        {*update.group.subscriptions, update.updated.subscription}
    ):
        topic = topics.by_name(name)
        size += 0 if topic is None else topic.partition_count
    return size > SIZE_MAX


def topic_ids_of(
    group: ConsumerGroup, subscription: Subscription, topics: Topics
) -> frozenset[UUID]:
    """The ids of those topics of a subscription that exist."""
    found = map(topics.by_name, group.topics_of(subscription))
    return frozenset(each.topic_id for each in found if each is not None)


def preferred_assignor(members: Mapping[str, ConsumerMember], settings: ConsumerSettings) -> str:
    """The assignor that most members ask for; the default if none does."""
    wanted = (each.metadata.server_assignor for each in members.values())
    # A broker with other settings may have accepted one that is not there.
    votes = Counter(each for each in wanted if each in settings.assignors)
    return votes.most_common(1)[0][0] if votes else settings.assignors[0]
