"""The changes of one heartbeat: to the subscription, the group epoch, the target and the member.

    known     its id is in the group
    new       it joins with epoch 0
    static    it has restarted: its instance id is in the group, under an older id (KIP-345)

Pure: the plan is records, and the member as it will be when they are replayed.
"""

from collections import Counter
from typing import TYPE_CHECKING

from tailrace.coordinator.errors import RefusedError
from tailrace.coordinator.groups.consumer_group import (
    LEAVE_STATIC_EPOCH,
    NO_METADATA,
    ConsumerGroup,
    ConsumerMember,
    Partitions,
    Subscription,
)
from tailrace.coordinator.groups.consumer_records import (
    current_record,
    member_record,
    member_tombstones,
    target_record,
)
from tailrace.coordinator.groups.reconciliation import Goal, reconcile
from tailrace.coordinator.groups.settings import ConsumerSettings
from tailrace.coordinator.groups.subscribed_topics import dropped_regexes, next_epoch
from tailrace.coordinator.groups.target_assignment import (
    GroupUpdate,
    compute_target,
    is_large,
    topic_ids_of,
)
from tailrace.coordinator.groups.topics import Topics
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tailrace.protocol.records import (
    ConsumerGroupMemberMetadataValue,
)
from tailrace.values import dataclass, replace

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The member that sends a heartbeat, as it was before."""

    member: ConsumerMember
    replaced_id: str | None = None
    """The id that it had before, if it is a static one that has restarted."""
    records: tuple[CoordinatorRecord, ...] = ()
    """The records that replace the old id by the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A heartbeat of a known or new member, and what it meets."""

    group: ConsumerGroup
    sender: Sender
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
    # Members that start together join within moments: one target for all of them is enough.
    age_ms = now_ms - group.target_timestamp_ms
    has_waited = not 0 <= age_ms < settings.assignment_interval_ms
    return epoch > group.target_epoch and has_waited


def plan_heartbeat(beat: Heartbeat) -> PlannedHeartbeat:
    """The records of a heartbeat.

    Raises:
        RefusedError: the member has to join again.
    """
    group, before = beat.group, beat.sender.member
    records = list(beat.sender.records)
    updated = ConsumerMember(before.member_id, beat.metadata, before.current)
    is_new = before.member_id not in group.members and beat.sender.replaced_id is None
    if is_new or beat.metadata != before.metadata:
        records.append(member_record(group.group_id, updated))
    has_changed = updated.subscription != before.subscription
    # No copy for a heartbeat that changes nothing: there may be as many as there are members.
    subscriptions = group.subscriptions
    if is_new or has_changed:
        subscriptions = _subscriptions_after(group, before, updated, is_new=is_new)
    if has_changed:
        records += dropped_regexes(group, [before], subscriptions)
    epoch = group.epoch
    # The hash over all topics of the group is not computed for a heartbeat that changes nothing.
    if has_changed or beat.is_new_group or group.topics_version != beat.topics.version:
        names = group.topics_of_all(subscriptions)
        is_forced = beat.is_new_group or _changes_topics(group, before, updated)
        epoch, grown = next_epoch(group, names, beat.topics, is_forced=is_forced)
        records += grown
    update = GroupUpdate(
        group=group, epoch=epoch, updated=updated, replaced_id=beat.sender.replaced_id
    )
    # A large group's target is computed on a thread (decision 34); meanwhile the member takes its
    # step towards the old one.
    is_due = is_target_due(group, epoch, settings=beat.settings, now_ms=beat.now_ms)
    is_long = is_due and is_large(update, beat.topics)
    target_epoch, target = group.target_epoch, group.target_of(updated)
    if is_due and not is_long:
        found = compute_target(update, beat.topics, settings=beat.settings, now_ms=beat.now_ms)
        records += found.records
        target_epoch, target = epoch, found.targets[updated.member_id]
    current = before.current
    # Most heartbeats end here, without a record: the member has come to its target.
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


def reported_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """The partitions that the member says it has; None: as before."""
    if request.topic_partitions is None:
        return None
    found: dict[UUID, set[int]] = {}
    for each in request.topic_partitions:
        # A topic may be named twice.
        if each.partitions:
            found.setdefault(each.topic_id, set()).update(each.partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}


def find_sender(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Sender:
    """The member as it was before the request.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID or
            FENCED_INSTANCE_ID.
    """
    if request.instance_id is not None:
        return _find_static(group, request)
    return Sender(member=_find_by_id(group, request))


def find_leaving(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """The member that wants to leave.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    if request.instance_id is not None:
        return _static_member(group, request.instance_id, request.member_id)
    member = group.members.get(request.member_id)
    if member is None:
        raise _unknown(group, request.member_id)
    return member


def _find_by_id(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    member = group.members.get(request.member_id)
    if member is None:
        if request.member_epoch != 0:
            raise _unknown(group, request.member_id)
        return ConsumerMember(request.member_id, NO_METADATA)
    _check_epoch(member, request)
    return member


def _find_static(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Sender:
    assert request.instance_id is not None
    if request.member_epoch != 0:
        member = _static_member(group, request.instance_id, request.member_id)
        _check_epoch(member, request)
        return Sender(member=member)
    known = group.static_member(request.instance_id)
    # Nobody has this instance id: an ordinary member, which is static from now on.
    if known is None:
        return Sender(member=_find_by_id(group, request))
    has_left = known.epoch == LEAVE_STATIC_EPOCH
    if known.member_id == request.member_id and not has_left:
        return Sender(member=known)
    # Two processes with one instance id: the one that is there keeps it, until it leaves or its
    # session ends. A classic member cannot say that it comes back, so it is replaced at once.
    if not (has_left or known.is_classic):
        raise RefusedError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} cannot join "
            f"the group because the instance id is owned by {known.member_id} member.",
        )
    return replace_static(group, known, request.member_id)


def replace_static(group: ConsumerGroup, known: ConsumerMember, member_id: str) -> Sender:
    """A static member that has restarted, under its new id."""
    group_id = group.group_id
    # It keeps its partitions and its target, so the group epoch need not grow (KIP-345).
    member = ConsumerMember(
        member_id, known.metadata, replace(known.current, epoch=0, previous_epoch=0)
    )
    records = (
        *member_tombstones(group_id, known.member_id),
        member_record(group_id, member),
        target_record(group_id, member_id, group.target_of(known)),
        current_record(group_id, member_id, member.current),
    )
    return Sender(member=member, replaced_id=known.member_id, records=records)


def _static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    member = group.static_member(instance_id)
    if member is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise RefusedError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    received, known = request.member_epoch, member.epoch
    if received in {0, known}:
        return  # 0: it has lost everything, and joins again under its id.
    if (
        received < known
        and received == member.current.previous_epoch
        and _is_within(reported_partitions(request), member)
    ):
        return  # The reply with the new epoch was lost.
    relation = "greater" if received > known else "smaller"
    raise RefusedError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({received}) than the one known "
        f"by the group coordinator ({known}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _is_within(reported: Partitions | None, member: ConsumerMember) -> bool:
    if reported is None:
        return False
    assigned = member.current.assigned
    return all(assigned.get(each, {}).keys() >= partitions for each, partitions in reported.items())


def _unknown(group: ConsumerGroup, member_id: str) -> RefusedError:
    return RefusedError(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member {member_id} is not a member of group {group.group_id}.",
    )
