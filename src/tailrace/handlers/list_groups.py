"""ListGroups (16): the groups of this broker.

Versions: 0 to 5.
Version notes: v4 filters by state, v5 by type. While a partition is loaded its groups are missing,
    and the answer says COORDINATOR_LOAD_IN_PROGRESS.
"""

from tailrace.coordinator.groups.all_views import list_all_groups
from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tailrace.runtime.slices import Slices


async def handle_list_groups(
    services: Services, _: RequestHeader, request: ListGroupsRequest
) -> ListGroupsResponse:
    """List the groups of all shards."""
    slices = Slices()
    listed: list[ListedGroup] = []
    code = ErrorCode.NONE
    for shard in services.groups:
        try:
            listed += list_all_groups(
                shard.machine, states=request.states_filter, types=request.types_filter
            )
        except TailraceError as error:
            code = error_code(error)
        await slices.turn()
    return ListGroupsResponse(error_code=code, groups=tuple(listed))
