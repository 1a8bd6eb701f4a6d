"""ConsumerGroupHeartbeat (68): a member of the consumer protocol joins, reports, moves on, leaves.

Versions: 0 to 1.
Version notes: v1 can subscribe to a regular expression, and the consumer makes its member id.
Behaviour: never waits for other members. While the group is loaded COORDINATOR_LOAD_IN_PROGRESS.
    Without the protocol, by settings or by a `group.version` of 0, UNSUPPORTED_VERSION.
"""

from tailrace.handlers.groups import client_of, decide
from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


async def handle_consumer_group_heartbeat(
    services: Services, header: RequestHeader, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Take the member a step further."""
    if not services.has_consumer_protocol:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    client = client_of(header)
    answer = await decide(
        services,
        request.group_id,
        lambda groups, now: groups.consumer_heartbeat(client, request, now),
    )
    if isinstance(answer, ErrorCode):
        return ConsumerGroupHeartbeatResponse(error_code=answer)
    return answer
