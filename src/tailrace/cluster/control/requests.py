"""Answers of a controller, by API: a request and the state give records and an answer.

    decision = decide(state, request, version=3, now_ms=...)
    ...append decision.records, state.replay(...) them, send decision.answer once they count...

Here are the requests of brokers, and those that brokers forward for clients.

Not here: whether the sender may ask that, and Envelope, which only wraps others.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tailrace.cluster.control.acls import create_acls, delete_acls
from tailrace.cluster.control.alter_partition import alter_partitions
from tailrace.cluster.control.brokers import heartbeat, register_broker, unregister_broker
from tailrace.cluster.control.configs import alter_configs, replace_configs
from tailrace.cluster.control.credentials import alter_user_scram_credentials
from tailrace.cluster.control.directories import assign_directories
from tailrace.cluster.control.leaders import elect_leaders
from tailrace.cluster.control.levels import update_features
from tailrace.cluster.control.producer_ids import allocate_producer_ids
from tailrace.cluster.control.quotas import alter_client_quotas
from tailrace.cluster.control.reassignments import alter_reassignments, list_reassignments
from tailrace.cluster.control.state import ControlState, Decision, Take, check_count, take_any
from tailrace.cluster.control.topics import create_partitions, create_topics, delete_topics
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.alter_configs import AlterConfigsRequest
from tailrace.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from tailrace.protocol.messages.broker_registration import BrokerRegistrationRequest
from tailrace.protocol.messages.create_partitions import CreatePartitionsRequest
from tailrace.protocol.messages.create_topics import CreateTopicsRequest
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest
from tailrace.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tailrace.protocol.messages.update_features import UpdateFeaturesRequest
from tailrace.runtime.ids import random_uuid

_OF_CLIENTS: Final[Mapping[ApiKey, Callable[[ControlState, Any], Decision]]] = {
    ApiKey.ELECT_LEADERS: elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_reassignments,
    ApiKey.UNREGISTER_BROKER: unregister_broker,
    ApiKey.ALTER_CLIENT_QUOTAS: lambda state, asked: alter_client_quotas(state.image, asked),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda state, asked: alter_user_scram_credentials(
        state.image, asked
    ),
    ApiKey.CREATE_ACLS: lambda state, asked: create_acls(
        state.image, asked, new_id=lambda: random_uuid(state.chance)
    ),
    ApiKey.DELETE_ACLS: lambda state, asked: delete_acls(state.image, asked),
}

_OF_BROKERS: Final[Mapping[ApiKey, Callable[[ControlState, Any], Decision]]] = {
    ApiKey.ALTER_PARTITION: alter_partitions,
    ApiKey.ALLOCATE_PRODUCER_IDS: allocate_producer_ids,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: assign_directories,
}

_RULES: Final = {**_OF_CLIENTS, **_OF_BROKERS}

FORWARDED: Final = frozenset({
    *_OF_CLIENTS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.CREATE_TOPICS,
    ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS, ApiKey.UPDATE_FEATURES,
})  # fmt: skip
"""Requests of clients, which a broker forwards to the controller in an Envelope."""
ANSWERED: Final = frozenset(
    {*FORWARDED, *_OF_BROKERS, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT}
)
"""All requests that `decide` knows."""


def decide(
    state: ControlState,
    key: ApiKey,
    request: Message,
    *,
    version: int,
    now_ms: int,
    take: Take = take_any,
    is_forwarded: bool = True,
) -> Decision:
    """The records and the answer of a request.

    `take` gets the number of partitions of each topic that is created, deleted or grown, if
    nothing else refuses it. `is_forwarded`: a broker has checked what it knows better.

    Raises:
        RefusedError: the request as a whole; nothing may be written.
    """
    match request:
        case BrokerRegistrationRequest():
            decision = register_broker(state, request, version=version, now_ms=now_ms)
        case BrokerHeartbeatRequest():
            decision = heartbeat(state, request, now_ms=now_ms)
        case CreateTopicsRequest():
            decision = create_topics(state, request, take=take)
        case CreatePartitionsRequest():
            decision = create_partitions(state, request, take=take)
        case DeleteTopicsRequest():
            decision = delete_topics(state, request, version=version, take=take)
        case IncrementalAlterConfigsRequest():
            decision = alter_configs(state, request, is_forwarded=is_forwarded)
        case AlterConfigsRequest():
            decision = replace_configs(state, request, is_forwarded=is_forwarded)
        case UpdateFeaturesRequest():
            decision = update_features(state, request, version=version)
        case _:
            decision = _RULES[key](state, request)
    # What a client asks for is one batch. The changes that follow from a broker may be several:
    # each of them is right by itself.
    return check_count(decision) if key in FORWARDED else decision
