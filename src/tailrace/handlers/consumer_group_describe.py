"""ConsumerGroupDescribe (69): epochs, members and assignments of groups of the consumer protocol.

Versions: 0 to 1.
Version notes: v1 says which protocol each member speaks.
Behaviour: an unknown or classic group is GROUP_ID_NOT_FOUND. A group that is named twice is
    described once, since it may have many members.
Not done: authorized operations (always "not asked for").
"""

from tailrace.coordinator.groups.all_groups import AllGroupsMachine
from tailrace.coordinator.groups.all_views import describe_consumer_group
from tailrace.coordinator.machine import Decision
from tailrace.handlers.groups import decide
from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from tailrace.runtime.slices import Slices


async def handle_consumer_group_describe(
    services: Services, _: RequestHeader, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each group."""
    slices = Slices()
    described = []
    for group_id in dict.fromkeys(request.group_ids):
        described.append(await _describe(services, group_id))
        await slices.turn()
    return ConsumerGroupDescribeResponse(groups=tuple(described))


async def _describe(services: Services, group_id: str) -> DescribedGroup:
    def describe(groups: AllGroupsMachine, _: int) -> Decision[DescribedGroup]:
        return Decision(reply=describe_consumer_group(groups, group_id))

    if not services.has_consumer_protocol:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
    answer = await decide(services, group_id, describe)
    if isinstance(answer, ErrorCode):
        return DescribedGroup(group_id=group_id, error_code=answer)
    return answer
