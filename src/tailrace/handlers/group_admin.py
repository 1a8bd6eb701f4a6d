"""Groups as others see them: lists, descriptions, and the end of groups and of their offsets."""

from tailrace.coordinator.errors import NotCoordinatorError
from tailrace.coordinator.groups.views import (
    describe_classic_group,
    describe_consumer_group,
    list_groups,
)
from tailrace.coordinator.machine import Decision
from tailrace.errors import TailraceError
from tailrace.handlers.groups import decide, decide_in_turns, decide_until_done
from tailrace.handlers.services import GROUP_OPERATIONS, Services, error_code
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tailrace.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from tailrace.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from tailrace.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tailrace.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tailrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tailrace.runtime.slices import Slices
from tailrace.values import replace


async def handle_list_groups(
    services: Services, _: RequestHeader, request: ListGroupsRequest
) -> ListGroupsResponse:
    """ListGroups (16): the groups of this broker.

    Versions: 0 to 5.
    Behaviour: COORDINATOR_LOAD_IN_PROGRESS and no groups while a partition is loaded. A partition
        that is not coordinated here, or cannot be read, is left out without an error, as in Kafka.
    Version notes: v4 filters by state, v5 by type.
    """
    slices = Slices()
    listed: list[ListedGroup] = []
    for shard in services.groups:
        try:
            # A list without the groups of a partition that is loading would look as if they were
            # lost, so that one makes the answer an error. By `run`: a group whose records are not
            # committed may be gone with this broker.
            listed += await shard.run(
                lambda groups, _: Decision(
                    reply=list_groups(
                        groups, states=request.states_filter, types=request.types_filter
                    )
                )
            )
        # Another broker lists the groups of such a partition; a client asks all of them.
        except NotCoordinatorError:
            pass
        except TailraceError as error:
            return ListGroupsResponse(error_code=error_code(error), groups=())
        await slices.turn()
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=tuple(listed))


async def handle_describe_groups(
    services: Services, header: RequestHeader, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """DescribeGroups (15): state, protocol and members of groups.

    Versions: 0 to 6.
    Version notes: up to v5 an unknown group is Dead and no error; since v6 GROUP_ID_NOT_FOUND.
        Groups of the consumer protocol are unknown here: they have ConsumerGroupDescribe.
    Behaviour: a group that is named twice is described once, since it may have many members. From
        v3 on a request may ask for the operations that it may do: all, without an authorizer.
    Not done: nothing.
    """
    slices = Slices()
    described = []
    # An empty id is legal here and for DeleteGroups, as in Kafka; only null is not.
    for group_id in dict.fromkeys(request.groups):
        found = await _described_group(services, group_id, header.api_version)
        if request.include_authorized_operations and not found.error_code:
            found = replace(found, authorized_operations=GROUP_OPERATIONS)
        described.append(found)
        await slices.turn()
    return DescribeGroupsResponse(groups=tuple(described))


async def _described_group(services: Services, group_id: str, version: int) -> DescribedGroup:
    answer = await decide(
        services,
        group_id,
        lambda groups, _: Decision(reply=describe_classic_group(groups, group_id, version=version)),
    )
    if isinstance(answer, ErrorCode):
        return DescribedGroup(group_id=group_id, error_code=answer)
    return answer


async def handle_consumer_group_describe(
    services: Services, _: RequestHeader, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """ConsumerGroupDescribe (69): epochs, members and assignments of consumer groups (KIP-848).

    Versions: 0 to 1.
    Version notes: v1 says which protocol each member speaks.
    Behaviour: an unknown or classic group is GROUP_ID_NOT_FOUND. A group that is named twice is
        described once, since it may have many members.
    Not done: authorized operations (always "not asked for").
    """
    slices = Slices()
    described = []
    for group_id in dict.fromkeys(request.group_ids):
        described.append(await _described_consumer_group(services, group_id))
        await slices.turn()
    return ConsumerGroupDescribeResponse(groups=tuple(described))


async def _described_consumer_group(services: Services, group_id: str) -> DescribedConsumerGroup:
    if not services.has_consumer_protocol:
        return DescribedConsumerGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
    answer = await decide(
        services,
        group_id,
        lambda groups, _: Decision(reply=describe_consumer_group(groups, group_id)),
    )
    if isinstance(answer, ErrorCode):
        return DescribedConsumerGroup(group_id=group_id, error_code=answer)
    return answer


async def handle_delete_groups(
    services: Services, _: RequestHeader, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """DeleteGroups (42): forget groups without members, with their offsets.

    Versions: 0 to 2.
    Behaviour: a group with many offsets loses them in several batches, and is gone with the last
        one. A member that joins in between keeps the group, and NON_EMPTY_GROUP is the answer.
    """
    slices = Slices()
    results = []
    for group_id in request.groups_names:
        # Each group has its own code: of a list, those with members stay (NON_EMPTY_GROUP).
        code = await _delete(services, group_id)
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
        await slices.turn()
    return DeleteGroupsResponse(results=tuple(results))


async def _delete(services: Services, group_id: str) -> ErrorCode:
    return await decide_until_done(services, group_id, lambda groups: groups.delete_group(group_id))


async def handle_offset_delete(
    services: Services, _: RequestHeader, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """OffsetDelete (47): forget offsets of topics that a group does not consume any more.

    Versions: 0.
    Behaviour: a topic that a member of the group subscribes to is refused
        (GROUP_SUBSCRIBED_TO_TOPIC).
    """
    asked = [
        TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    # Only these go to the group; the others get UNKNOWN_TOPIC_OR_PARTITION below, as in Kafka.
    known = [each for each in asked if services.has_partition(each)]
    answer: ErrorCode | list[ErrorCode] = await decide_in_turns(
        services,
        request.group_id,
        known,
        decision=lambda groups, part: groups.delete_offsets(request.group_id, part),
    )
    if isinstance(answer, ErrorCode):
        return OffsetDeleteResponse(error_code=answer)
    # A partition without an offset is no error, as in Kafka.
    codes = dict(zip(known, answer, strict=True))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def result(name: str, number: int) -> OffsetDeleteResponsePartition:
        code = codes.get(TopicPartition(name, number), unknown)
        return OffsetDeleteResponsePartition(partition_index=number, error_code=code)

    return OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    result(topic.name, each.partition_index) for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
