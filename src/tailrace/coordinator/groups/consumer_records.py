"""The records of consumer groups, as messages with the fields that Apache Kafka 4.3 fills in.

    3  group epoch, metadata hash        6  target epoch       16  topics of a regular expression
    5  member and its subscription       7  target of a member
                                         8  what a member has

The order of tombstones matters, as Kafka refuses to load a log that deletes a member that still has
something: 8, 7, 5 of a member, and 8, 7, 6, 5, 16, 4, 3 of a group.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from tailrace.coordinator.groups.consumer_group import (
    Assigned,
    ConsumerGroup,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
    Partitions,
    ResolvedRegex,
)
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.protocol.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)

if TYPE_CHECKING:
    from tailrace.protocol.fields import Record

CurrentValue = ConsumerGroupCurrentMemberAssignmentValue
TargetValue = ConsumerGroupTargetAssignmentMemberValue

KNOWN_STATES: Final = {int(each): each for each in MemberState}


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The epoch of a group."""
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """A member and its subscription."""
    return CoordinatorRecord(_member_key(group_id, member.member_id), member.metadata)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    """The record of a member's target."""
    return CoordinatorRecord(
        _target_key(group_id, member_id),
        TargetValue(
            topic_partitions=tuple(
                TopicPartition(topic_id=topic_id, partitions=tuple(sorted(numbers)))
                for topic_id, numbers in partitions.items()
            )
        ),
    )


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    """The group epoch that the targets are for."""
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=now_ms
        ),
    )


def current_record(
    group_id: str, member_id: str, assignment: CurrentAssignment
) -> CoordinatorRecord:
    """The record of the partitions that a member has."""
    return CoordinatorRecord(
        _current_key(group_id, member_id),
        CurrentValue(
            member_epoch=assignment.epoch,
            previous_member_epoch=assignment.previous_epoch,
            state=assignment.state,
            assigned_partitions=_stored(assignment.assigned),
            partitions_pending_revocation=_stored(assignment.revoking),
        ),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """The topics that match a regular expression."""
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=tuple(sorted(resolved.topics)),
            version=resolved.version,
            timestamp=resolved.timestamp_ms,
        ),
    )


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """The end of a regular expression that no member has any more."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return CoordinatorRecord(key, None)


def topics_tombstone(group_id: str) -> CoordinatorRecord:
    """The end of the record in which a Kafka before 4.1 kept the topics of a group."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> tuple[CoordinatorRecord, ...]:
    """The end of a member."""
    return (
        CoordinatorRecord(_current_key(group_id, member_id), None),
        CoordinatorRecord(_target_key(group_id, member_id), None),
        CoordinatorRecord(_member_key(group_id, member_id), None),
    )


def consumer_group_tombstones(group: ConsumerGroup) -> tuple[CoordinatorRecord, ...]:
    """The end of a group and of all its members."""
    group_id, ids = group.group_id, tuple(group.members)
    keys: list[Record] = [
        *(_current_key(group_id, each) for each in ids),
        *(_target_key(group_id, each) for each in ids),
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        *(_member_key(group_id, each) for each in ids),
    ]
    records = [CoordinatorRecord(key, None) for key in keys]
    records += [regex_tombstone(group_id, each) for each in group.regexes]
    if group.has_topic_records:
        records.append(topics_tombstone(group_id))
    records.append(CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None))
    return tuple(records)


def loaded_current(value: CurrentValue) -> CurrentAssignment:
    """The partitions that a member has, from its record."""
    epoch = value.member_epoch
    return CurrentAssignment(
        epoch=epoch,
        previous_epoch=value.previous_member_epoch,
        state=KNOWN_STATES.get(value.state, MemberState.UNKNOWN),
        assigned=_loaded(value.assigned_partitions, epoch),
        revoking=_loaded(value.partitions_pending_revocation, epoch),
    )


def loaded_target(value: TargetValue) -> Partitions:
    """The target of a member, from its record."""
    return {
        each.topic_id: frozenset(each.partitions)
        for each in value.topic_partitions
        if each.partitions
    }


def _stored(assigned: Assigned) -> tuple[TopicPartitions, ...]:
    stored = []
    for topic_id, epochs in assigned.items():
        partitions = sorted(epochs)
        stored.append(
            TopicPartitions(
                topic_id=topic_id,
                partitions=tuple(partitions),
                assignment_epochs=tuple([epochs[each] for each in partitions]),
            )
        )
    return tuple(stored)


def _loaded(stored: Iterable[TopicPartitions], epoch: int) -> Mapping[UUID, Mapping[int, int]]:
    loaded = {}
    for each in stored:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            # A Kafka before 4.3 has written it.
            epochs = (max(epoch, 0),) * len(each.partitions)
        if each.partitions:
            loaded[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return loaded


def _member_key(group_id: str, member_id: str) -> ConsumerGroupMemberMetadataKey:
    return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)


def _target_key(group_id: str, member_id: str) -> ConsumerGroupTargetAssignmentMemberKey:
    return ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)


def _current_key(group_id: str, member_id: str) -> ConsumerGroupCurrentMemberAssignmentKey:
    return ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
