"""The table of rights: what a client needs for each API, and where the request has the names.

    WHOLE       the request as a whole is refused
    PARTS       what is not allowed is refused with an error of its own, the rest is done
    SHOWN       what is not allowed is left out of the answer
    ADDED       another right, which `note` explains, and a function for the API looks at

`handlers.guards` holds requests against it, and docs/protocol.md is made from it, so that what is
documented is what is checked. From Kafka's KafkaApis and ControllerApis.

Not here: whether a client has a right (`authorizer`).
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.security.acls import AclOperation, AclResource
from tailrace.values import dataclass


class Refused(Enum):
    """Consequences of a missing right."""

    WHOLE = "whole"
    PARTS = "parts"
    SHOWN = "shown"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class Need:
    """A right that an API needs."""

    refused: Refused
    operation: AclOperation
    resource: AclResource
    field: str = ""
    """The field of the request (for SHOWN of the answer) with the name, or with an array of names
    or of parts; empty: it is the cluster."""
    name: str = "name"
    """The field of each part that has the name."""
    instead: tuple[AclOperation, ...] = ()
    """Operations on the cluster of which any one does as well."""
    note: str = ""
    """When it is needed, or what else it decides, for the documentation."""

    @property
    def code(self) -> ErrorCode:
        """The error without it."""
        return CODES[self.resource]


CODES: Final[Mapping[AclResource, ErrorCode]] = MappingProxyType({
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResource.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    AclResource.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
})  # fmt: skip

_Op, _Of = AclOperation, AclResource
_WHOLE, _PARTS, _SHOWN, _ADDED = Refused.WHOLE, Refused.PARTS, Refused.SHOWN, Refused.ADDED


def _cluster(operation: AclOperation, *, instead: tuple[AclOperation, ...] = ()) -> tuple[Need]:
    return (Need(_WHOLE, operation, _Of.CLUSTER, instead=instead),)


_GROUP: Final = Need(_WHOLE, _Op.READ, _Of.GROUP, "group_id")
_TRANSACTION: Final = Need(_WHOLE, _Op.WRITE, _Of.TRANSACTIONAL_ID, "transactional_id")
_CLUSTER_OPERATIONS: Final = Need(
    _ADDED, _Op.DESCRIBE, _Of.CLUSTER, note="for the cluster's authorized operations; 0 without it"
)
_BETWEEN_NODES: Final = _cluster(_Op.CLUSTER_ACTION)


def _configs(operation: AclOperation) -> tuple[Need, ...]:
    return (
        Need(_ADDED, operation, _Of.TOPIC, note="each topic of the request"),
        Need(_ADDED, operation, _Of.GROUP, note="each group"),
        Need(_ADDED, operation, _Of.CLUSTER, note="each other resource"),
    )


NEEDS: Final[Mapping[ApiKey, tuple[Need, ...]]] = MappingProxyType({
    ApiKey.PRODUCE: (
        Need(_ADDED, _Op.WRITE, _Of.TRANSACTIONAL_ID, note="if a batch is transactional"),
        Need(_PARTS, _Op.WRITE, _Of.TOPIC, "topic_data"),
    ),
    ApiKey.FETCH: (
        Need(_ADDED, _Op.READ, _Of.TOPIC, note="each topic, for a consumer"),
        Need(_ADDED, _Op.CLUSTER_ACTION, _Of.CLUSTER,
             note="for a follower; without it each partition is TOPIC_AUTHORIZATION_FAILED"),
    ),
    ApiKey.LIST_OFFSETS: (Need(_PARTS, _Op.DESCRIBE, _Of.TOPIC, "topics"),),
    ApiKey.METADATA: (
        Need(_ADDED, _Op.DESCRIBE, _Of.TOPIC,
             note="each topic; those of a request for all are left out"),
        Need(_ADDED, _Op.CREATE, _Of.TOPIC, instead=(_Op.CREATE,),
             note="for a topic that would be created"),
        _CLUSTER_OPERATIONS,
    ),
    ApiKey.OFFSET_COMMIT: (_GROUP, Need(_PARTS, _Op.READ, _Of.TOPIC, "topics")),
    ApiKey.OFFSET_FETCH: (
        Need(_ADDED, _Op.DESCRIBE, _Of.GROUP, note="each group"),
        Need(_ADDED, _Op.DESCRIBE, _Of.TOPIC,
             note="each topic; those of a request for all are left out"),
    ),
    ApiKey.FIND_COORDINATOR: (
        Need(_ADDED, _Op.DESCRIBE, _Of.GROUP, note="each group"),
        Need(_ADDED, _Op.DESCRIBE, _Of.TRANSACTIONAL_ID, note="each transactional id"),
    ),
    ApiKey.JOIN_GROUP: (_GROUP,),
    ApiKey.HEARTBEAT: (_GROUP,),
    ApiKey.LEAVE_GROUP: (_GROUP,),
    ApiKey.SYNC_GROUP: (_GROUP,),
    ApiKey.DESCRIBE_GROUPS: (Need(_PARTS, _Op.DESCRIBE, _Of.GROUP, "groups"),),
    ApiKey.LIST_GROUPS: (
        Need(_SHOWN, _Op.DESCRIBE, _Of.GROUP, "groups", "group_id", instead=(_Op.DESCRIBE,)),
    ),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.API_VERSIONS: (),
    ApiKey.CREATE_TOPICS: (
        Need(_PARTS, _Op.CREATE, _Of.TOPIC, "topics", instead=(_Op.CREATE,)),
        Need(_ADDED, _Op.DESCRIBE_CONFIGS, _Of.TOPIC,
             note="for the settings in the answer; else TopicConfigErrorCode is "
             "TOPIC_AUTHORIZATION_FAILED"),
    ),
    ApiKey.DELETE_TOPICS: (
        Need(_ADDED, _Op.DELETE, _Of.TOPIC, instead=(_Op.DELETE,), note="each topic"),
        Need(_ADDED, _Op.DESCRIBE, _Of.TOPIC, instead=(_Op.DELETE,),
             note="each topic; without it the answer to an id has no name"),
    ),
    ApiKey.DELETE_RECORDS: (Need(_PARTS, _Op.DELETE, _Of.TOPIC, "topics"),),
    ApiKey.INIT_PRODUCER_ID: (
        Need(_ADDED, _Op.WRITE, _Of.TRANSACTIONAL_ID, note="with a transactional id"),
        Need(_ADDED, _Op.TWO_PHASE_COMMIT, _Of.TRANSACTIONAL_ID,
             note="for two-phase commits (KIP-939)"),
        Need(_ADDED, _Op.IDEMPOTENT_WRITE, _Of.CLUSTER,
             note="without a transactional id; WRITE on any topic does as well"),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Need(_PARTS, _Op.DESCRIBE, _Of.TOPIC, "topics", "topic", instead=(_Op.CLUSTER_ACTION,)),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        Need(_ADDED, _Op.WRITE, _Of.TRANSACTIONAL_ID, note="up to version 3"),
        Need(_ADDED, _Op.WRITE, _Of.TOPIC,
             note="each topic, up to version 3; beside one that is refused, the others are "
             "OPERATION_NOT_ATTEMPTED"),
        Need(_ADDED, _Op.CLUSTER_ACTION, _Of.CLUSTER, note="from version 4 on, for brokers"),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (_TRANSACTION, _GROUP),
    ApiKey.END_TXN: (_TRANSACTION,),
    ApiKey.WRITE_TXN_MARKERS: _cluster(_Op.CLUSTER_ACTION, instead=(_Op.ALTER,)),
    ApiKey.TXN_OFFSET_COMMIT: (
        _TRANSACTION, _GROUP, Need(_PARTS, _Op.READ, _Of.TOPIC, "topics"),
    ),
    ApiKey.DESCRIBE_ACLS: _cluster(_Op.DESCRIBE),
    ApiKey.CREATE_ACLS: _cluster(_Op.ALTER),
    ApiKey.DELETE_ACLS: _cluster(_Op.ALTER),
    ApiKey.DESCRIBE_CONFIGS: _configs(_Op.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: _configs(_Op.ALTER_CONFIGS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _cluster(_Op.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: _cluster(_Op.DESCRIBE),
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.CREATE_PARTITIONS: (Need(_PARTS, _Op.ALTER, _Of.TOPIC, "topics"),),
    ApiKey.CREATE_DELEGATION_TOKEN: (
        Need(_ADDED, _Op.CREATE_TOKENS, _Of.USER, note="for another owner than the client"),
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: (),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (),
    ApiKey.DELETE_GROUPS: (Need(_PARTS, _Op.DELETE, _Of.GROUP, "groups_names"),),
    ApiKey.ELECT_LEADERS: _cluster(_Op.ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(_Op.ALTER_CONFIGS),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _cluster(_Op.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _cluster(_Op.DESCRIBE),
    ApiKey.OFFSET_DELETE: (
        Need(_WHOLE, _Op.DELETE, _Of.GROUP, "group_id"),
        Need(_PARTS, _Op.READ, _Of.TOPIC, "topics"),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _cluster(_Op.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: _cluster(_Op.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(_Op.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _cluster(_Op.ALTER),
    ApiKey.DESCRIBE_QUORUM: _cluster(_Op.DESCRIBE),
    ApiKey.UPDATE_FEATURES: _cluster(_Op.ALTER),
    ApiKey.DESCRIBE_CLUSTER: (_CLUSTER_OPERATIONS,),
    ApiKey.DESCRIBE_PRODUCERS: (Need(_PARTS, _Op.READ, _Of.TOPIC, "topics"),),
    ApiKey.UNREGISTER_BROKER: _cluster(_Op.ALTER),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Need(_PARTS, _Op.DESCRIBE, _Of.TRANSACTIONAL_ID, "transactional_ids"),
        Need(_ADDED, _Op.DESCRIBE, _Of.TOPIC, note="others are left out of a transaction"),
    ),
    ApiKey.LIST_TRANSACTIONS: (
        Need(_SHOWN, _Op.DESCRIBE, _Of.TRANSACTIONAL_ID, "transaction_states", "transactional_id"),
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        _GROUP,
        Need(_WHOLE, _Op.DESCRIBE, _Of.TOPIC, "subscribed_topic_names",
             note="others do not match a regular expression"),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        Need(_PARTS, _Op.DESCRIBE, _Of.GROUP, "group_ids"),
        Need(_ADDED, _Op.DESCRIBE, _Of.TOPIC,
             note="each topic that is assigned; else the group is refused"),
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _cluster(_Op.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        Need(_ADDED, _Op.DESCRIBE, _Of.TOPIC,
             note="each topic; those of a request for all are left out"),
    ),
    ApiKey.ADD_RAFT_VOTER: _cluster(_Op.ALTER),
    ApiKey.REMOVE_RAFT_VOTER: _cluster(_Op.ALTER),
})  # fmt: skip
"""The rights for each API that a broker serves."""

CONTROLLER_NEEDS: Final[Mapping[ApiKey, tuple[Need, ...]]] = MappingProxyType({
    **NEEDS,
    ApiKey.FETCH: _BETWEEN_NODES,
    ApiKey.FETCH_SNAPSHOT: _BETWEEN_NODES,
    ApiKey.ENVELOPE: _BETWEEN_NODES,
    ApiKey.ALTER_PARTITION: _BETWEEN_NODES,
    ApiKey.BROKER_REGISTRATION: _BETWEEN_NODES,
    ApiKey.BROKER_HEARTBEAT: _BETWEEN_NODES,
    ApiKey.ALLOCATE_PRODUCER_IDS: _BETWEEN_NODES,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _BETWEEN_NODES,
    # Of the controllers themselves, which few clients have to know.
    ApiKey.DESCRIBE_CLUSTER: _cluster(_Op.ALTER),
})  # fmt: skip
"""The rights for each API that a controller serves."""
