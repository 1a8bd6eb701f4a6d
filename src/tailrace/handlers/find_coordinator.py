"""FindCoordinator (10): which broker coordinates a group or a transaction.

Versions: 0 to 6.
Behaviour: the coordinator of a key is the leader of its partition, which a hash of the key names. A
    node that is its own controller leads them all. A broker of a cluster finds the leader in its
    image; COORDINATOR_NOT_AVAILABLE where there is none that is alive and has the listener of the
    request, or while the controller creates the topic. The topic of the groups, or of the
    transactions, is created by the first such request.
Version notes: v4 asks for several keys at once (KIP-699).
Not done: share groups are not served.
"""

from importlib import import_module
from typing import Final, NamedTuple

from tailrace.cluster.records import Endpoint
from tailrace.handlers.services import Services, error_code
from tailrace.handlers.topics import create_for_coordinator
from tailrace.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.runtime.slices import Slices, each_in_slices

SEVERAL_KEYS_SINCE: Final = 4


class _Found(NamedTuple):
    """The coordinator of a key; without an error it has a node."""

    code: ErrorCode
    # Kafka names node -1 too beside an error.
    node_id: int = -1
    endpoint: Endpoint = Endpoint("", -1)


_NOT_AVAILABLE: Final = _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def handle_find_coordinator(
    services: Services, header: RequestHeader, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Name the coordinator of every key."""
    code = await _prepare(services, header, request.key_type)

    def find(key: str) -> _Found:
        if code is not ErrorCode.NONE:
            return _Found(code)
        return _find(services, CoordinatorKeyType(request.key_type), key)

    def answer(key: str) -> Coordinator:
        found = find(key)
        return Coordinator(
            key=key,
            node_id=found.node_id,
            host=found.endpoint.host,
            port=found.endpoint.port,
            error_code=found.code,
            error_message=_message(found.code),
        )

    # librdkafka asks up to v2 and aiokafka up to v1: one key, answered by fields of the response
    # itself. Java, kafka-python and franz-go send lists (KIP-699).
    if header.api_version >= SEVERAL_KEYS_SINCE:
        coordinators = await each_in_slices(request.coordinator_keys, answer, Slices())
        return FindCoordinatorResponse(coordinators=tuple(coordinators))
    found = find(request.key)
    return FindCoordinatorResponse(
        error_code=found.code,
        error_message=_message(found.code),
        node_id=found.node_id,
        host=found.endpoint.host,
        port=found.endpoint.port,
    )


def _message(code: ErrorCode) -> str | None:
    return None if code is ErrorCode.NONE else code.message


def _find(services: Services, kind: CoordinatorKeyType, key: str) -> _Found:
    # This node leads every partition, also of a topic that has just been created.
    if services.controller is not None:
        own = services.endpoint()
        return _NOT_AVAILABLE if own is None else _Found(ErrorCode.NONE, services.node_id, own)
    of_groups = kind is CoordinatorKeyType.GROUP
    number = (services.groups if of_groups else services.transactions).number_of(key)
    if number is None:
        return _NOT_AVAILABLE
    topic = OFFSETS_TOPIC if of_groups else TRANSACTIONS_TOPIC
    leader = services.cluster.leader_of(TopicPartition(topic, number), services.listener)
    if leader is None or leader.endpoint is None:
        return _NOT_AVAILABLE
    return _Found(ErrorCode.NONE, leader.node_id, leader.endpoint)


async def _prepare(services: Services, header: RequestHeader, kind: int) -> ErrorCode:
    """Create the topic of the coordinator, if it does not exist yet."""
    match kind:
        case CoordinatorKeyType.GROUP:
            return await _create_once(
                services, header, OFFSETS_TOPIC, modules="tailrace.coordinator.groups.modules"
            )
        case CoordinatorKeyType.TRANSACTION:
            return await _create_once(
                services,
                header,
                TRANSACTIONS_TOPIC,
                modules="tailrace.coordinator.transactions.modules",
            )
        case _:
            # Kafka's code for an unknown type; share groups are type 2, from v6 on.
            return ErrorCode.INVALID_REQUEST


async def _create_once(
    services: Services, header: RequestHeader, name: str, *, modules: str
) -> ErrorCode:
    # Every client asks at its start: a topic is made only for the first.
    if name not in services.cluster.image.topics:
        # Before the topic is there: its partitions import this too, but refuse clients meanwhile.
        # Kafka makes it also when `auto.create.topics.enable` is off.
        await services.threads.run(lambda: import_module(modules))
        refused = await create_for_coordinator(services, header, name)
        if refused is not None:
            return error_code(refused)
    made = services.cluster.image.topics.get(name)
    if made is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    # A coordinator whose log is not made yet would have to be looked for elsewhere.
    await services.replicas.new_logs.wait_for_each(name, made.partitions)
    return ErrorCode.NONE
