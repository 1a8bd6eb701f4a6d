"""ConsumerGroupDescribe and ListGroups for consumer groups: a group as its tools show it."""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from tailrace.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from tailrace.coordinator.groups.consumer_settings import ConsumerSettings
from tailrace.coordinator.groups.target_assignment import preferred_assignor
from tailrace.coordinator.groups.topics import Topics
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from tailrace.protocol.messages.list_groups import ListedGroup

_CLASSIC: Final = 0
_CONSUMER: Final = 1


def described_group(
    group: ConsumerGroup, topics: Topics, settings: ConsumerSettings
) -> DescribedGroup:
    """A group with its members, what they have and what they are to have.

    Partitions of topics that are deleted are left out, as their names are not known any more.
    """
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(group.members, settings),
        members=tuple([_described(group, each, topics) for each in group.members.values()]),
    )


def not_described(group_id: str, *, is_known: bool) -> DescribedGroup:
    """The answer for an empty id, a group that does not exist, or one of another kind."""
    if not group_id:
        return DescribedGroup(group_id="", error_code=ErrorCode.INVALID_GROUP_ID)
    reason = "is not a consumer group" if is_known else "not found"
    return DescribedGroup(
        group_id=group_id,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {reason}.",
    )


def listed_group(group: ConsumerGroup) -> ListedGroup:
    """A group in a list."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type="consumer",
        group_state=group.state.value,
        group_type="consumer",
    )


def _described(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> Member:
    metadata = member.metadata
    return Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=metadata.subscribed_topic_names,
        subscribed_topic_regex=metadata.subscribed_topic_regex or None,
        assignment=_assignment(member.current.assigned, topics),
        target_assignment=_assignment(group.target.get(member.member_id, {}), topics),
        member_type=_CLASSIC if member.is_classic else _CONSUMER,
    )


def _assignment(partitions: Mapping[UUID, Iterable[int]], topics: Topics) -> Assignment:
    found = []
    for topic_id, numbers in partitions.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            found.append(
                TopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=tuple(sorted(numbers))
                )
            )
    return Assignment(topic_partitions=tuple(found))
