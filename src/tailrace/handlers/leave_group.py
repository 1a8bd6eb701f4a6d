"""LeaveGroup (13): members leave, or are removed by their instance ids.

Versions: 0 to 5.
Version notes: up to v2 one member leaves, and the answer has one code; v3 has a code for each.
"""

import dataclasses

from tailrace.handlers.groups import decide
from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

MEMBERS_SINCE = 3


async def handle_leave_group(
    services: Services, header: RequestHeader, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    """Remove the members."""
    is_single = header.api_version < MEMBERS_SINCE
    if is_single:
        only = MemberIdentity(member_id=request.member_id)
        request = dataclasses.replace(request, members=(only,))
    if not request.group_id:
        answer: LeaveGroupResponse | ErrorCode = ErrorCode.INVALID_GROUP_ID
    else:
        leaving = request
        answer = await decide(
            services, request.group_id, lambda groups, now: groups.leave(leaving, now)
        )
    if isinstance(answer, ErrorCode):
        # Kafka says of a group that is not there that none of the members is.
        return LeaveGroupResponse(error_code=answer)
    if is_single and not answer.error_code:
        return LeaveGroupResponse(error_code=answer.members[0].error_code)
    if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID and not is_single:
        return LeaveGroupResponse(members=tuple(map(_unknown, request.members)))
    return answer


def _unknown(member: MemberIdentity) -> MemberResponse:
    return MemberResponse(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        error_code=ErrorCode.UNKNOWN_MEMBER_ID,
    )
