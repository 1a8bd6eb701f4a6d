"""Views of groups for operators: ListGroups, DescribeGroups and ConsumerGroupDescribe."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final
from uuid import UUID

from tailrace.coordinator.groups.classic_group import ClassicGroup, ClassicState
from tailrace.coordinator.groups.consumer_group import ConsumerGroup
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.target_assignment import preferred_assignor
from tailrace.coordinator.groups.topics import Topics
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import consumer_group_describe
from tailrace.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from tailrace.protocol.messages.list_groups import ListedGroup

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""The types of groups."""

GONE: Final = "Dead"
"""The state of a group that is not known."""

NOT_FOUND_ERROR_SINCE: Final = 6
"""From this version of DescribeGroups on, a group that is not known is an error."""

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def list_groups(
    machine: GroupMachine, *, states: Collection[str] = (), types: Collection[str] = ()
) -> list[ListedGroup]:
    """The groups of a shard in one of these states and of one of these types; none given: all.

    Upper and lower case are the same, and a type that is not known has no groups.
    """
    # As in Kafka's coordinator, both are compared without case (KIP-518, KIP-848).
    wanted_states = {each.strip().lower() for each in states}
    wanted_types = {each.lower() for each in types} or {CLASSIC, CONSUMER}
    listed = []
    for group in machine.groups.by_id.values():
        is_classic = isinstance(group, ClassicGroup)
        kind, state = CLASSIC if is_classic else CONSUMER, group.state.value
        if kind in wanted_types and (not wanted_states or state.lower() in wanted_states):
            protocol = (group.protocol_type or "") if isinstance(group, ClassicGroup) else CONSUMER
            listed.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=protocol,
                    group_state=state,
                    group_type=kind,
                )
            )
    return listed


def describe_classic_group(machine: GroupMachine, group_id: str, *, version: int) -> DescribedGroup:
    """A group as DescribeGroups of this version answers, without the authorized operations.

    Its assignor, and the metadata and assignments of its members, are known only while it is
    stable. A group of the consumer protocol is not known to it.
    """
    group = machine.groups.by_id.get(group_id)
    if isinstance(group, ClassicGroup):
        is_stable = group.state is ClassicState.STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if is_stable else "",
            members=tuple(
                DescribedGroupMember(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    member_metadata=each.metadata(group.protocol) if is_stable else b"",
                    member_assignment=each.assignment if is_stable else b"",
                )
                for each in group.members.values()
            ),
        )
    # Tools of old versions know no error here: to them a group that is gone is dead (KIP-1043).
    if version < NOT_FOUND_ERROR_SINCE:
        return DescribedGroup(group_id=group_id, group_state=GONE)
    reason = "not found" if group is None else "is not a classic group"
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {reason}.",
        group_id=group_id,
        group_state=GONE,
    )


def describe_consumer_group(
    machine: GroupMachine, group_id: str
) -> consumer_group_describe.DescribedGroup:
    """A group as ConsumerGroupDescribe answers, with what its members have and are to have.

    A classic group is not known to it. Partitions of topics that are deleted are left out, as
    their names are not known any more.
    """
    if not group_id:
        return consumer_group_describe.DescribedGroup(
            group_id="", error_code=ErrorCode.INVALID_GROUP_ID
        )
    group = machine.groups.by_id.get(group_id)
    if not isinstance(group, ConsumerGroup):
        # Kafka's admin client asks this API first. For groups with this error it asks again, with
        # DescribeGroups.
        reason = "not found" if group is None else "is not a consumer group"
        return consumer_group_describe.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {reason}.",
        )
    settings = machine.groups.consumer_settings(group_id)
    members = []
    for each in group.members.values():
        metadata, target = each.metadata, group.target.get(each.member_id, {})
        members.append(
            consumer_group_describe.Member(
                member_id=each.member_id,
                instance_id=metadata.instance_id,
                rack_id=metadata.rack_id,
                member_epoch=each.epoch,
                client_id=metadata.client_id,
                client_host=metadata.client_host,
                subscribed_topic_names=metadata.subscribed_topic_names,
                subscribed_topic_regex=metadata.subscribed_topic_regex or None,
                assignment=_assignment(each.current.assigned, machine.groups.topics),
                target_assignment=_assignment(target, machine.groups.topics),
                member_type=_CLASSIC_MEMBER if each.is_classic else _CONSUMER_MEMBER,
            )
        )
    return consumer_group_describe.DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(group.members, settings),
        members=tuple(members),
    )


def _assignment(
    partitions: Mapping[UUID, Iterable[int]], topics: Topics
) -> consumer_group_describe.Assignment:
    found = []
    for topic_id, numbers in partitions.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            found.append(
                consumer_group_describe.TopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=tuple(sorted(numbers))
                )
            )
    return consumer_group_describe.Assignment(topic_partitions=tuple(found))
