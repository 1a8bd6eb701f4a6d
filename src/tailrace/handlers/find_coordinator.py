"""FindCoordinator (10): which broker coordinates a group or a transaction.

Versions: 0 to 6.
Behaviour: returns this broker for every key, because it is the only one. Requests of groups and
    transactions are not served yet and not in ApiVersions, so a client that continues fails at once
    with its own "not supported" error, instead of retrying forever.
Not done: share groups' keys are not checked.
"""

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.runtime.slices import Slices, each_in_slices


async def handle_find_coordinator(
    services: Services, _: RequestHeader, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Return this broker for every key."""
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
