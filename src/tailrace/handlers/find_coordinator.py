"""FindCoordinator (10): which broker coordinates a group or a transaction.

Versions: 0 to 6.
Behaviour: this broker leads every partition, so it is the coordinator of every group. The topic of
    the groups is created by the first such request.
Version notes: v4 asks for several keys at once (KIP-699).
Not done: transactions have no coordinator yet; their requests are not in ApiVersions, so a client
    that goes on fails at once with its own error. Share groups are not served.
"""

from importlib import import_module

from tailrace.cluster.controller import TopicExistsError
from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code
from tailrace.handlers.topics import create_topic
from tailrace.model import OFFSETS_TOPIC
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.runtime.slices import Slices, each_in_slices

SEVERAL_KEYS_SINCE = 4
NOWHERE = ("", -1)
NO_NODE = -1


async def handle_find_coordinator(
    services: Services, header: RequestHeader, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Name this broker for every key."""
    code = await _prepare(services, request.key_type)
    is_found = code is ErrorCode.NONE
    node_id = services.node_id if is_found else NO_NODE
    host, port = services.endpoint() if is_found else NOWHERE
    message = None if is_found else code.message

    def answer(key: str) -> Coordinator:
        return Coordinator(
            key=key,
            node_id=node_id,
            host=host,
            port=port,
            error_code=code,
            error_message=message,
        )

    if header.api_version >= SEVERAL_KEYS_SINCE:
        coordinators = await each_in_slices(request.coordinator_keys, answer, Slices())
        return FindCoordinatorResponse(coordinators=tuple(coordinators))
    return FindCoordinatorResponse(
        error_code=code, error_message=message, node_id=node_id, host=host, port=port
    )


async def _prepare(services: Services, kind: int) -> ErrorCode:
    """Create the topic of the coordinator, if it does not exist yet."""
    if kind not in (CoordinatorKeyType.GROUP, CoordinatorKeyType.TRANSACTION):
        return ErrorCode.INVALID_REQUEST
    if kind == CoordinatorKeyType.GROUP and OFFSETS_TOPIC not in services.controller.image.topics:
        try:
            await services.changes.make(OFFSETS_TOPIC, lambda: _create(services))
        except TailraceError as error:
            return error_code(error)
    return ErrorCode.NONE


async def _create(services: Services) -> None:
    # Importing takes the loop's clients too long, and each partition makes a machine at once.
    await services.threads.run(lambda: import_module("tailrace.coordinator.groups.modules"))
    settings = services.group_settings
    try:
        topic = services.controller.plan_topic(
            OFFSETS_TOPIC,
            partition_count=settings.partition_count,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.segment_bytes),
            },
        )
    except TopicExistsError:
        return  # Another request was first.
    await create_topic(services.changes, services.controller, services.replicas, topic=topic)
