"""JoinGroup (11): become a member of a group, or stay one.

Versions: 0 to 9.
Behaviour: the answer waits until all members have joined, or the longest rebalance timeout is over.
    A new dynamic member gets its id first (v4, MEMBER_ID_REQUIRED) and joins with it.
"""

from tailrace.handlers.groups import client_of, decide
from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse


async def handle_join_group(
    services: Services, header: RequestHeader, request: JoinGroupRequest
) -> JoinGroupResponse:
    """Join, and wait for the other members."""
    client = client_of(header)
    answer = await decide(
        services, request.group_id, lambda groups, now: groups.join(client, request, now)
    )
    if isinstance(answer, ErrorCode):
        return JoinGroupResponse(member_id=request.member_id, error_code=answer)
    return answer
