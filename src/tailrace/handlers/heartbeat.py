"""Heartbeat (12): a member says that it lives, and learns of rebalances.

Versions: 0 to 4.
Behaviour: REBALANCE_IN_PROGRESS asks the member to join again. While the group is loaded the answer
    is a success, as in Kafka, so that nobody leaves for it.
"""

from collections.abc import Awaitable

from tailrace.handlers.groups import decide
from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.runtime.steps import now_or_later


def handle_heartbeat(
    services: Services, _: RequestHeader, request: HeartbeatRequest
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    """Begin the member's session anew."""
    return now_or_later(_answer(services, request))


async def _answer(services: Services, request: HeartbeatRequest) -> HeartbeatResponse:
    answer = await decide(
        services, request.group_id, lambda groups, now_ms: groups.heartbeat(request, now_ms)
    )
    if answer is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return HeartbeatResponse(error_code=ErrorCode.NONE)
    return HeartbeatResponse(error_code=answer) if isinstance(answer, ErrorCode) else answer
