"""The changes of one heartbeat: to the subscription, the group epoch, the target and the member.

Pure: the plan is records, and the member as it will be when they are replayed.
"""

from collections import Counter

from tailrace.coordinator.groups.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    Partitions,
    Subscription,
)
from tailrace.coordinator.groups.consumer_records import current_record, member_record
from tailrace.coordinator.groups.consumer_settings import ConsumerSettings
from tailrace.coordinator.groups.group_epoch import next_epoch
from tailrace.coordinator.groups.membership import Beating
from tailrace.coordinator.groups.reconciliation import Goal, reconcile
from tailrace.coordinator.groups.regexes import dropped_regexes
from tailrace.coordinator.groups.target_assignment import (
    GroupUpdate,
    compute_target,
    is_large,
    topic_ids_of,
)
from tailrace.coordinator.groups.topics import Topics
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.protocol.records import (
    ConsumerGroupMemberMetadataValue,
)
from tailrace.values import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A heartbeat of a known or new member, and what it meets."""

    group: ConsumerGroup
    beating: Beating
    metadata: ConsumerGroupMemberMetadataValue
    """The member's, after the request."""
    reported: Partitions | None
    is_new_group: bool
    topics: Topics
    settings: ConsumerSettings
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedHeartbeat:
    """The result of a heartbeat."""

    member: ConsumerMember
    """The member afterwards."""
    epoch: int
    """The group epoch afterwards."""
    subscriptions: Counter[Subscription]
    """The subscriptions of all members afterwards."""
    records: tuple[CoordinatorRecord, ...]
    is_target_due: bool
    """Whether a new target is due that takes longer than a turn of the event loop may."""


def is_target_due(
    group: ConsumerGroup, epoch: int, *, settings: ConsumerSettings, now_ms: int
) -> bool:
    """Whether a group epoch is ahead of the target, which is old enough for another one."""
    age_ms = now_ms - group.target_timestamp_ms
    has_waited = not 0 <= age_ms < settings.assignment_interval_ms
    return epoch > group.target_epoch and has_waited


def plan_heartbeat(beat: Heartbeat) -> PlannedHeartbeat:
    """The records of a heartbeat.

    Raises:
        RefusedError: the member has to begin anew.
    """
    group, before = beat.group, beat.beating.member
    records = list(beat.beating.records)
    updated = ConsumerMember(before.member_id, beat.metadata, before.current)
    is_new = before.member_id not in group.members and beat.beating.replaced_id is None
    if is_new or beat.metadata != before.metadata:
        records.append(member_record(group.group_id, updated))
    subscriptions = _subscriptions_after(group, before, updated, is_new=is_new)
    has_changed = updated.subscription != before.subscription
    if has_changed:
        records += dropped_regexes(group, [before], subscriptions)
    epoch = group.epoch
    if has_changed or beat.is_new_group or group.topics_version != beat.topics.version:
        names = group.topics_of_all(subscriptions)
        is_forced = beat.is_new_group or _changes_topics(group, before, updated)
        epoch, grown = next_epoch(group, names, beat.topics, is_forced=is_forced)
        records += grown
    update = GroupUpdate(
        group=group, epoch=epoch, updated=updated, replaced_id=beat.beating.replaced_id
    )
    is_due = is_target_due(group, epoch, settings=beat.settings, now_ms=beat.now_ms)
    is_long = is_due and is_large(update, beat.topics)
    target_epoch, target = group.target_epoch, group.target_of(updated)
    if is_due and not is_long:
        found = compute_target(update, beat.topics, settings=beat.settings, now_ms=beat.now_ms)
        records += found.records
        target_epoch, target = epoch, found.targets[updated.member_id]
    current = before.current
    if has_changed or not current.is_reconciled(target_epoch):
        goal = Goal(
            epoch=target_epoch,
            target=target,
            topic_ids=topic_ids_of(group, updated.subscription, beat.topics),
            is_owned=group.is_owned,
            reported=beat.reported,
            has_subscription_changed=has_changed,
        )
        current = reconcile(current, goal)
        if current != before.current:
            records.append(current_record(group.group_id, updated.member_id, current))
    return PlannedHeartbeat(
        member=replace(updated, current=current),
        epoch=epoch,
        subscriptions=subscriptions,
        records=tuple(records),
        is_target_due=is_long,
    )


def _subscriptions_after(
    group: ConsumerGroup, before: ConsumerMember, updated: ConsumerMember, *, is_new: bool
) -> Counter[Subscription]:
    subscriptions = Counter(group.subscriptions)
    subscriptions[updated.subscription] += 1
    if not is_new:
        subscriptions[before.subscription] -= 1
    return +subscriptions


def _changes_topics(group: ConsumerGroup, before: ConsumerMember, updated: ConsumerMember) -> bool:
    """Whether a member asks for other topics than before, as far as they are known."""
    old, new = before.subscription, updated.subscription
    return old.names != new.names or group.topics_of(old) != group.topics_of(new)
