"""DescribeGroups (15): state, protocol and members of groups.

Versions: 0 to 6.
Version notes: up to v5 an unknown group is Dead and no error; since v6 GROUP_ID_NOT_FOUND.
    Groups of the consumer protocol are unknown here: they have ConsumerGroupDescribe.
Behaviour: a group that is named twice is described once, since it may have many members. From v3 on
    a request may ask for the operations that it may do, which are all.
Not done: nothing.
"""

from tailrace.coordinator.groups.all_groups import AllGroupsMachine
from tailrace.coordinator.groups.all_views import describe_classic_group
from tailrace.coordinator.machine import Decision
from tailrace.handlers.groups import decide
from tailrace.handlers.services import GROUP_OPERATIONS, Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tailrace.runtime.slices import Slices
from tailrace.values import replace


async def handle_describe_groups(
    services: Services, header: RequestHeader, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe each group."""
    slices = Slices()
    described = []
    for group_id in dict.fromkeys(request.groups):
        found = await _describe(services, group_id, header.api_version)
        if request.include_authorized_operations and not found.error_code:
            found = replace(found, authorized_operations=GROUP_OPERATIONS)
        described.append(found)
        await slices.turn()
    return DescribeGroupsResponse(groups=tuple(described))


async def _describe(services: Services, group_id: str, version: int) -> DescribedGroup:
    def describe(groups: AllGroupsMachine, _: int) -> Decision[DescribedGroup]:
        return Decision(reply=describe_classic_group(groups, group_id, version=version))

    answer = await decide(services, group_id, describe)
    if isinstance(answer, ErrorCode):
        return DescribedGroup(group_id=group_id, error_code=answer)
    return answer
