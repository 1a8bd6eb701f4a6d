"""FindCoordinator (10): which broker coordinates a group or a transaction.

Versions: 0 to 6.
Behaviour: this broker, for every key: it is the only one. The requests of groups and transactions
    themselves are not served yet and not in ApiVersions, so a client that goes on from here fails
    at once with its own "not supported", instead of asking again for ever.
Not done: share groups' keys are not checked.
"""

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.runtime.slices import Slices, each_in_slices


async def handle_find_coordinator(
    services: Services, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """This broker, under every key."""
    host, port = services.endpoint()

    def answer(key: str) -> Coordinator:
        return Coordinator(
            key=key,
            node_id=services.node_id,
            host=host,
            port=port,
            error_code=ErrorCode.NONE,
            error_message=None,
        )

    coordinators = await each_in_slices(request.coordinator_keys, answer, Slices())
    return FindCoordinatorResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        node_id=services.node_id,
        host=host,
        port=port,
        coordinators=tuple(coordinators),
    )
