"""DeleteGroups (42): forget groups without members, with their offsets.

Versions: 0 to 2.
"""

from tailrace.handlers.groups import decide
from tailrace.handlers.services import Services
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from tailrace.runtime.slices import Slices


async def handle_delete_groups(
    services: Services, _: RequestHeader, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Delete each group."""
    slices = Slices()
    results = []
    for group_id in request.groups_names:
        code = await _delete(services, group_id)
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
        await slices.turn()
    return DeleteGroupsResponse(results=tuple(results))


async def _delete(services: Services, group_id: str) -> int:
    return await decide(services, group_id, lambda groups, _: groups.delete_group(group_id))
