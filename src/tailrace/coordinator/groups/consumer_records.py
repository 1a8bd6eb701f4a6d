"""The records of consumer groups, with the fields that Apache Kafka 4.3 fills in; and their replay.

    3  group epoch, metadata hash        6  target epoch       16  topics of a regular expression
    5  member and its subscription       7  target of a member
                                         8  what a member has

Invariant: `replay_consumer_record` alone changes what a restart must know of a group.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from tailrace.coordinator.groups.consumer_group import (
    LEFT,
    NO_METADATA,
    Assigned,
    ConsumerGroup,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
    Partitions,
    ResolvedRegex,
)
from tailrace.coordinator.groups.state import Groups
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.protocol.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
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
from tailrace.values import replace

if TYPE_CHECKING:
    from tailrace.protocol.fields import Record

CurrentKey = ConsumerGroupCurrentMemberAssignmentKey
CurrentValue = ConsumerGroupCurrentMemberAssignmentValue
TargetKey = ConsumerGroupTargetAssignmentMemberKey
TargetValue = ConsumerGroupTargetAssignmentMemberValue

_NO_TARGET: Final = -1
_KNOWN_STATES: Final = {int(each): each for each in MemberState}


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        member.metadata,
    )


def target_record(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    return CoordinatorRecord(
        TargetKey(group_id=group_id, member_id=member_id),
        TargetValue(
            topic_partitions=tuple(
                TopicPartition(topic_id=topic_id, partitions=tuple(sorted(numbers)))
                for topic_id, numbers in partitions.items()
            )
        ),
    )


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=now_ms
        ),
    )


def current_record(
    group_id: str, member_id: str, assignment: CurrentAssignment
) -> CoordinatorRecord:
    return CoordinatorRecord(
        CurrentKey(group_id=group_id, member_id=member_id),
        CurrentValue(
            member_epoch=assignment.epoch,
            previous_member_epoch=assignment.previous_epoch,
            state=assignment.state,
            assigned_partitions=_stored(assignment.assigned),
            partitions_pending_revocation=_stored(assignment.revoking),
        ),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=tuple(sorted(resolved.topics)),
            version=resolved.version,
            timestamp=resolved.timestamp_ms,
        ),
    )


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return CoordinatorRecord(key, None)


def topics_tombstone(group_id: str) -> CoordinatorRecord:
    """The end of the record in which a Kafka before 4.1 kept the topics of a group."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> tuple[CoordinatorRecord, ...]:
    # Kafka refuses to load a log that deletes a member that still has something: 8, 7, then 5.
    return (
        CoordinatorRecord(CurrentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(TargetKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None
        ),
    )


def consumer_group_tombstones(group: ConsumerGroup) -> tuple[CoordinatorRecord, ...]:
    # As for a member: 8, 7, 6, 5, 16, 4, and 3 at the end.
    group_id, ids = group.group_id, tuple(group.members)
    keys: list[Record] = [
        *(CurrentKey(group_id=group_id, member_id=each) for each in ids),
        *(TargetKey(group_id=group_id, member_id=each) for each in ids),
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        *(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=each) for each in ids),
    ]
    records = [CoordinatorRecord(key, None) for key in keys]
    records += [regex_tombstone(group_id, each) for each in group.regexes]
    if group.has_topic_records:
        records.append(topics_tombstone(group_id))
    records.append(CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None))
    return tuple(records)


def replay_consumer_record(groups: Groups, record: CoordinatorRecord) -> None:
    """Change a consumer group by one record, which may be the first of it."""
    key, value = record
    group_id = getattr(key, "group_id", None)
    if group_id is None:
        return
    group = groups.consumer(group_id)
    if group is None:
        if value is None:
            return  # Compaction may have removed what it deletes.
        # A classic group of this id has no members: its tombstone comes before these records, and
        # a simple group, which has only committed, has none.
        group = groups.by_id[group_id] = ConsumerGroup(group_id)
    match key:
        case ConsumerGroupMetadataKey():
            if value is None:
                del groups.by_id[group_id]
                return
            assert isinstance(value, ConsumerGroupMetadataValue)
            # Those of a load were counted by the broker that has written them.
            if groups.propose is not None and value.epoch > group.epoch:
                groups.counts.consumer_rebalances += 1
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case ConsumerGroupPartitionMetadataKey():
            group.has_topic_records = value is not None
        case ConsumerGroupMemberMetadataKey(member_id=member_id):
            if value is None:
                group.remove(member_id)
                return
            assert isinstance(value, ConsumerGroupMemberMetadataValue)
            current = _member(group, member_id).current
            group.put(ConsumerMember(member_id, value, current))
        case ConsumerGroupTargetAssignmentMetadataKey():
            if value is None:
                # In the middle of the tombstones of a group: its end follows.
                group.target_epoch, group.target_timestamp_ms = _NO_TARGET, 0
                return
            assert isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
            group.target_epoch = value.assignment_epoch
            group.target_timestamp_ms = value.assignment_timestamp
        case TargetKey(member_id=member_id):
            if value is None:
                group.target.pop(member_id, None)
                return
            assert isinstance(value, TargetValue)
            group.target[member_id] = {
                each.topic_id: frozenset(each.partitions)
                for each in value.topic_partitions
                if each.partitions
            }
        case CurrentKey(member_id=member_id):
            if value is not None:
                assert isinstance(value, CurrentValue)
                current = _loaded_current(value)
                group.put(replace(_member(group, member_id), current=current))
            elif member_id in group.members:
                group.put(replace(group.members[member_id], current=LEFT))
        case ConsumerGroupRegularExpressionKey(regular_expression=regex):
            if value is None:
                group.regexes.pop(regex, None)
                return
            assert isinstance(value, ConsumerGroupRegularExpressionValue)
            group.regexes[regex] = ResolvedRegex(
                frozenset(value.topics), value.version, value.timestamp
            )


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    # After compaction the records of a member may come in any order.
    return group.members.get(member_id) or ConsumerMember(member_id, NO_METADATA)


def _loaded_current(value: CurrentValue) -> CurrentAssignment:
    epoch = value.member_epoch
    return CurrentAssignment(
        epoch=epoch,
        previous_epoch=value.previous_member_epoch,
        state=_KNOWN_STATES.get(value.state, MemberState.UNKNOWN),
        assigned=_loaded(value.assigned_partitions, epoch),
        revoking=_loaded(value.partitions_pending_revocation, epoch),
    )


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
        # Both are lists in the record, of which the second is newer.
        if epochs is None or len(epochs) != len(each.partitions):
            # A Kafka before 4.3 has written it (KIP-1251): the epoch of the member counts.
            epochs = (max(epoch, 0),) * len(each.partitions)
        if each.partitions:
            loaded[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return loaded
