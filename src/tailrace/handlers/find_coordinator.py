"""FindCoordinator (10): which broker coordinates a group or a transaction.

Versions: 0 to 6.
Behaviour: this broker leads every partition, so it is the coordinator of every group and of every
    transactional id. The topic of the groups, or of the transactions, is created by the first such
    request.
Version notes: v4 asks for several keys at once (KIP-699).
Not done: share groups are not served.
"""

from importlib import import_module

from tailrace.cluster.topic_rules import NewTopic
from tailrace.handlers.services import Services, error_code
from tailrace.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.runtime.slices import Slices, each_in_slices
from tailrace.storage.config import segment_configs

SEVERAL_KEYS_SINCE = 4
NOWHERE = ("", -1)
NO_NODE = -1


async def handle_find_coordinator(
    services: Services, header: RequestHeader, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Name this broker for every key."""
    code = await _prepare(services, request.key_type)
    is_found = code is ErrorCode.NONE
    # Kafka names node -1 too beside COORDINATOR_NOT_AVAILABLE.
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

    # librdkafka asks up to v2 and aiokafka up to v1: one key, answered by fields of the response
    # itself. Java, kafka-python and franz-go send lists (KIP-699).
    if header.api_version >= SEVERAL_KEYS_SINCE:
        coordinators = await each_in_slices(request.coordinator_keys, answer, Slices())
        return FindCoordinatorResponse(coordinators=tuple(coordinators))
    return FindCoordinatorResponse(
        error_code=code, error_message=message, node_id=node_id, host=host, port=port
    )


async def _prepare(services: Services, kind: int) -> ErrorCode:
    """Create the topic of the coordinator, if it does not exist yet."""
    match kind:
        case CoordinatorKeyType.GROUP:
            # Kafka makes this topic too when `auto.create.topics.enable` is off.
            groups = services.group_settings
            return await _create_once(
                services,
                NewTopic(
                    OFFSETS_TOPIC,
                    partition_count=groups.partition_count,
                    configs={
                        # Kafka's settings for this topic.
                        "cleanup.policy": "compact",
                        "compression.type": "producer",
                        **segment_configs(groups.segment_bytes),
                    },
                ),
                modules="tailrace.coordinator.groups.modules",
            )
        case CoordinatorKeyType.TRANSACTION:
            transactions = services.transaction_settings
            return await _create_once(
                services,
                NewTopic(
                    TRANSACTIONS_TOPIC,
                    partition_count=transactions.partition_count,
                    configs={
                        "cleanup.policy": "compact",
                        "compression.type": "uncompressed",
                        **segment_configs(transactions.segment_bytes),
                        # As in Kafka: an unclean leader would forget transactions that were
                        # decided.
                        "unclean.leader.election.enable": "false",
                    },
                ),
                modules="tailrace.coordinator.transactions.modules",
            )
        case _:
            # Kafka's code for an unknown type; share groups are type 2, from v6 on.
            return ErrorCode.INVALID_REQUEST


async def _create_once(services: Services, topic: NewTopic, *, modules: str) -> ErrorCode:
    # Every client asks at its start: a topic is made only for the first.
    if topic.name not in services.cluster.image.topics:
        # Before the topic is there: its partitions import this too, but refuse clients meanwhile.
        await services.threads.run(lambda: import_module(modules))
        refused = await services.create_topics([topic])
        if topic.name in refused:
            return error_code(refused[topic.name])
    # A coordinator whose log is not made yet would have to be looked for elsewhere.
    made = services.cluster.image.topics.get(topic.name)
    if made is not None:
        await services.replicas.new_logs.wait_for_each(topic.name, made.partitions)
    return ErrorCode.NONE
