"""LeaveGroup (13): members leave, or are removed by their instance ids.

Versions: 0 to 5.
Version notes: up to v2 one member leaves, and the answer has one code; v3 has a code for each.
"""

from tailrace.handlers.groups import decide
from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tailrace.values import replace

MEMBERS_SINCE = 3


async def handle_leave_group(
    services: Services, header: RequestHeader, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    """Remove the members."""
    is_single = header.api_version < MEMBERS_SINCE
    if is_single:
        only = MemberIdentity(member_id=request.member_id)
        request = replace(request, members=(only,))
    leaving = request
    answer = await decide(
        services, request.group_id, lambda groups, now: groups.leave(leaving, now)
    )
    if isinstance(answer, ErrorCode):
        return LeaveGroupResponse(error_code=answer)
    if is_single and answer.members:
        return LeaveGroupResponse(error_code=answer.error_code or answer.members[0].error_code)
    return answer
