"""Requests of the members of groups: join, heartbeat, assignment, leave."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tailrace.handlers.groups import client_of, decide
from tailrace.handlers.services import Services
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tailrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tailrace.runtime.steps import run_eagerly
from tailrace.values import replace

if TYPE_CHECKING:
    from tailrace.security.authorizer import Authorizer


async def handle_join_group(
    services: Services, header: RequestHeader, request: JoinGroupRequest
) -> JoinGroupResponse:
    """JoinGroup (11): become a member of a group, or stay one.

    Versions: 0 to 9.
    Behaviour: the answer waits until all members have joined, or the longest rebalance timeout is
        over. A new dynamic member gets its id first (v4, MEMBER_ID_REQUIRED) and joins with it.
    """
    # The record of a member has its client id and address, which DescribeGroups shows.
    client = client_of(header)
    answer = await decide(
        services, request.group_id, lambda groups, now: groups.join(client, request, now)
    )
    if isinstance(answer, ErrorCode):
        # As in Kafka the answer repeats the id, which the member keeps when it tries again.
        return JoinGroupResponse(member_id=request.member_id, error_code=answer)
    return answer


NAMES_PROTOCOL_SINCE = 5
"""From this version on a member says which protocol it believes in (KIP-559)."""


async def handle_sync_group(
    services: Services, header: RequestHeader, request: SyncGroupRequest
) -> SyncGroupResponse:
    """SyncGroup (14): send or get the assignment of a generation.

    Versions: 0 to 5.
    Behaviour: the leader sends the assignments of all members; each member's answer waits for them.
    """
    is_named = request.protocol_type is not None and request.protocol_name is not None
    # KIP-559: from v5 on a member has to name both; the broker compares them with the group's.
    if header.api_version >= NAMES_PROTOCOL_SINCE and not is_named:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # After the check above, as in Kafka, which makes it before it looks for the group.
    answer = await decide(services, request.group_id, lambda groups, now: groups.sync(request, now))
    return SyncGroupResponse(error_code=answer) if isinstance(answer, ErrorCode) else answer


def handle_heartbeat(
    services: Services, _: RequestHeader, request: HeartbeatRequest
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    """Heartbeat (12): a member says that it lives, and learns of rebalances.

    Versions: 0 to 4.
    Behaviour: REBALANCE_IN_PROGRESS asks the member to join again. While the group is loaded the
        answer is a success, as in Kafka, so that nobody leaves for it.
    """
    # Nearly all are answered at once, without a task: they change nothing in the log.
    return run_eagerly(_heartbeat(services, request))


async def _heartbeat(services: Services, request: HeartbeatRequest) -> HeartbeatResponse:
    answer = await decide(
        services, request.group_id, lambda groups, now_ms: groups.heartbeat(request, now_ms)
    )
    # As in Kafka: members must not leave because the broker has just started. To Java's consumer it
    # is an unexpected code from Heartbeat.
    if answer is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return HeartbeatResponse(error_code=ErrorCode.NONE)
    return HeartbeatResponse(error_code=answer) if isinstance(answer, ErrorCode) else answer


# KIP-345: an admin removes static members by their instance ids, many by one request.
MEMBERS_SINCE = 3


async def handle_leave_group(
    services: Services, header: RequestHeader, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    """LeaveGroup (13): members leave, or are removed by their instance ids.

    Versions: 0 to 5.
    Version notes: up to v2 one member leaves, and the answer has one code; v3 has a code for each.
    """
    is_single = header.api_version < MEMBERS_SINCE
    if is_single:
        only = MemberIdentity(member_id=request.member_id)
        request = replace(request, members=(only,))
    leaving = request
    answer = await decide(
        services, request.group_id, lambda groups, now: groups.leave(leaving, now)
    )
    if isinstance(answer, ErrorCode):
        return LeaveGroupResponse(error_code=answer)
    if is_single and answer.members:
        # Clients up to v2 read the code at the top alone, which from v3 on tells of the group only.
        return LeaveGroupResponse(error_code=answer.error_code or answer.members[0].error_code)
    return answer


async def handle_consumer_group_heartbeat(
    services: Services, header: RequestHeader, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """ConsumerGroupHeartbeat (68): a member of the consumer protocol joins, reports or leaves.

    Versions: 0 to 1.
    Version notes: v1 can subscribe to a regular expression, and the consumer makes its member id.
    Behaviour: never waits for other members. While the group is loaded
        COORDINATOR_LOAD_IN_PROGRESS. Without the protocol, by settings or by a `group.version` of
        0, UNSUPPORTED_VERSION.
    """
    # Java's consumer then says that the cluster does not support the consumer protocol, and fails;
    # it does not fall back to the classic protocol.
    if not services.has_consumer_protocol:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    client = client_of(header)
    if services.authorizer is not None:
        client = client._replace(may_describe=_right_to_describe(services.authorizer, header))
    answer = await decide(
        services,
        request.group_id,
        lambda groups, now: groups.consumer_heartbeat(client, request, now),
    )
    if isinstance(answer, ErrorCode):
        return ConsumerGroupHeartbeatResponse(error_code=answer)
    return answer


def _right_to_describe(authorizer: "Authorizer", header: RequestHeader) -> Callable[[str], bool]:
    """Whether the client may describe a topic, and so be assigned it by a regular expression."""
    from tailrace.security.needs import NEEDS

    _, need = NEEDS[ApiKey.CONSUMER_GROUP_HEARTBEAT]
    return lambda name: authorizer.allows(
        header, need.operation, need.resource, name=name, is_access=False
    )
