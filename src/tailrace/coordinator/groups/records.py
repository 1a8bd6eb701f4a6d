"""The records that groups write, as messages with the fields that Apache Kafka 4.3 fills in."""

from collections.abc import Iterable

from tailrace.coordinator.groups.classic_group import ClassicGroup, ClassicMember, ClassicState
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.protocol.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)


def group_record(group: ClassicGroup) -> CoordinatorRecord:
    """The group as it is, with its members and their assignments."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol,
            leader=group.leader_id,
            current_state_timestamp=group.state_since_ms,
            members=tuple(_stored(group, each) for each in group.members.values()),
        ),
    )


def empty_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """A group whose first member has been given its id and nothing else."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol=None, leader=None, current_state_timestamp=group.state_since_ms
        ),
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """The end of a group."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def loaded_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group of a record: stable if it has members, else empty.

    Each member supports the assignor of the generation alone, until it joins again.
    """
    state = ClassicState.STABLE if value.members else ClassicState.EMPTY
    group = ClassicGroup(
        group_id,
        value.current_state_timestamp,
        state=state,
        previous_state=state,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol=value.protocol,
    )
    for member in _members(value):
        group.add(member, value.protocol_type)
    group.leader_id = value.leader
    group.find_subscribed_topics()
    return group


def _stored(group: ClassicGroup, member: ClassicMember) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(group.protocol),
        assignment=member.assignment,
    )


def _members(value: GroupMetadataValue) -> Iterable[ClassicMember]:
    for each in value.members:
        known = each.rebalance_timeout
        yield ClassicMember(
            member_id=each.member_id,
            instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            rebalance_timeout_ms=each.session_timeout if known == -1 else known,
            session_timeout_ms=each.session_timeout,
            protocols=((value.protocol or "", bytes(each.subscription)),),
            assignment=bytes(each.assignment),
        )
