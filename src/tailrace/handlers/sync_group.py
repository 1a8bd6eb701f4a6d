"""SyncGroup (14): send or get the assignment of a generation.

Versions: 0 to 5.
Behaviour: the leader sends the assignments of all members; each member's answer waits for them.
"""

from tailrace.handlers.groups import decide
from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NAMES_PROTOCOL_SINCE = 5
"""From this version on a member says which protocol it believes in (KIP-559)."""


async def handle_sync_group(
    services: Services, header: RequestHeader, request: SyncGroupRequest
) -> SyncGroupResponse:
    """Wait for the leader's assignment."""
    is_named = request.protocol_type is not None and request.protocol_name is not None
    if header.api_version >= NAMES_PROTOCOL_SINCE and not is_named:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    answer = await decide(services, request.group_id, lambda groups, now: groups.sync(request, now))
    return SyncGroupResponse(error_code=answer) if isinstance(answer, ErrorCode) else answer
