"""ListGroups (16): the groups of this broker.

Versions: 0 to 5.
Behaviour: COORDINATOR_LOAD_IN_PROGRESS and no groups while a partition is loaded. A partition that
    is not coordinated here, or cannot be read, is left out without an error, as in Kafka.
Version notes: v4 filters by state, v5 by type.
"""

from tailrace.coordinator.errors import NotCoordinatorError
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
    for shard in services.groups:
        try:
            listed += list_all_groups(
                shard.machine, states=request.states_filter, types=request.types_filter
            )
        except NotCoordinatorError:
            pass
        except TailraceError as error:
            return ListGroupsResponse(error_code=error_code(error), groups=())
        await slices.turn()
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=tuple(listed))
