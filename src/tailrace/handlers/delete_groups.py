"""DeleteGroups (42): forget groups without members, with their offsets.

Versions: 0 to 2.
Behaviour: a group with many offsets loses them in several batches, and is gone with the last one. A
    member that joins in between keeps the group, and NON_EMPTY_GROUP is the answer.
"""

from tailrace.handlers.groups import decide_until_done
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
    return await decide_until_done(services, group_id, lambda groups: groups.delete_group(group_id))
