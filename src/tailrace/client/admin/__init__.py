"""`Admin` and `AsyncAdmin`: administer any Kafka cluster; each operation is written once.

    topics, configs, groups, ...   operations: generators (`client.calls`), without I/O
    items                          retries item by item, and the limits of a call
    outcomes                       one outcome for each item
    operations                     the list of operations, which both clients have as methods
    blocking, aio                  `Admin` for threads, `AsyncAdmin` for an event loop

A name below loads its module when it is first used: a command that lists topics needs no ACLs.

Not here: which broker gets a request (`client.routes`), and connections (`client.nodes`).
"""

from importlib import import_module

TYPE_CHECKING = False
"""A copy of `typing.TYPE_CHECKING`, as in `tailrace`."""

if TYPE_CHECKING:
    from tailrace.client.admin.aio import AsyncAdmin
    from tailrace.client.admin.blocking import Admin, create_topic
    from tailrace.client.admin.cluster import (
        BrokerNode,
        ClusterDescription,
        FeatureMetadata,
        FeatureUpdate,
        LevelRange,
        MetadataQuorum,
        QuorumReplica,
        UpgradeType,
    )
    from tailrace.client.admin.configs import (
        ConfigChange,
        ConfigEntry,
        ConfigResource,
        ConfigSynonym,
    )
    from tailrace.client.admin.group_offsets import OffsetReset
    from tailrace.client.admin.groups import (
        GroupDescription,
        GroupListing,
        GroupMember,
        NoSuchGroupError,
    )
    from tailrace.client.admin.offsets import (
        CommittedOffset,
        FoundOffset,
        ListedOffset,
        LogRange,
        OffsetAt,
        Place,
    )
    from tailrace.client.admin.outcomes import Outcomes
    from tailrace.client.admin.quotas import AnyName, QuotaEntity
    from tailrace.client.admin.replicas import (
        ElectionType,
        LogDirectory,
        Reassignment,
        Replica,
        ReplicaDirectories,
        ReplicaSize,
    )
    from tailrace.client.admin.topics import CreatedTopic, NewPartitions, NewTopic
    from tailrace.client.admin.transactions import (
        FencedProducer,
        NoSuchTransactionError,
        ProducerState,
        TransactionDescription,
        TransactionListing,
        UnknownStateError,
    )
    from tailrace.client.admin.users import (
        ScramCredential,
        ScramDeletion,
        ScramMechanism,
        ScramUpsertion,
    )
    from tailrace.client.errors import (
        AuthenticationError,
        ClosedAdminError,
        DisconnectedError,
        IncompleteAnswerError,
        ItemErrors,
        MalformedAnswerError,
        NodeError,
        NoSuchPartitionError,
        NoSuchTopicError,
        OperationTimeoutError,
        RemoteFatalError,
        RemoteRetriableError,
        RequestTimedOutError,
        UnknownOutcomeError,
        UnreachableBrokerError,
        UnsupportedBrokerError,
        UnsupportedVersionError,
    )
    from tailrace.client.keywords import AdminSettings
    from tailrace.client.nodes import NodesStatistics
    from tailrace.client.reader import TopicDescription
    from tailrace.model import IsolationLevel
    from tailrace.protocol.config_resources import ConfigOperation, ResourceType
    from tailrace.security.acls import (
        AclBinding,
        AclFilter,
        AclOperation,
        AclResource,
        PatternType,
        Permission,
    )

_MODULES = {
    "AclBinding": "admin.acls",
    "AclFilter": "admin.acls",
    "AclOperation": "admin.acls",
    "AclResource": "admin.acls",
    "Admin": "admin.blocking",
    "AdminSettings": "keywords",
    "AnyName": "admin.quotas",
    "AsyncAdmin": "admin.aio",
    "BrokerNode": "admin.cluster",
    "ClusterDescription": "admin.cluster",
    "CommittedOffset": "admin.offsets",
    "ConfigChange": "admin.configs",
    "ConfigEntry": "admin.configs",
    "ConfigOperation": "admin.configs",
    "ConfigResource": "admin.configs",
    "ConfigSynonym": "admin.configs",
    "CreatedTopic": "admin.topics",
    "ElectionType": "admin.replicas",
    "FeatureMetadata": "admin.cluster",
    "FeatureUpdate": "admin.cluster",
    "FencedProducer": "admin.transactions",
    "FoundOffset": "admin.offsets",
    "GroupDescription": "admin.groups",
    "GroupListing": "admin.groups",
    "GroupMember": "admin.groups",
    "IsolationLevel": "admin.offsets",
    "LevelRange": "admin.cluster",
    "ListedOffset": "admin.offsets",
    "LogDirectory": "admin.replicas",
    "LogRange": "admin.offsets",
    "MetadataQuorum": "admin.cluster",
    "NewPartitions": "admin.topics",
    "NewTopic": "admin.topics",
    "NoSuchGroupError": "admin.groups",
    "NoSuchTransactionError": "admin.transactions",
    "NodesStatistics": "nodes",
    "OffsetAt": "admin.offsets",
    "OffsetReset": "admin.group_offsets",
    "Outcomes": "admin.outcomes",
    "PatternType": "admin.acls",
    "Permission": "admin.acls",
    "Place": "admin.offsets",
    "ProducerState": "admin.transactions",
    "QuorumReplica": "admin.cluster",
    "QuotaEntity": "admin.quotas",
    "Reassignment": "admin.replicas",
    "Replica": "admin.replicas",
    "ReplicaDirectories": "admin.replicas",
    "ReplicaSize": "admin.replicas",
    "ResourceType": "admin.configs",
    "ScramCredential": "admin.users",
    "ScramDeletion": "admin.users",
    "ScramMechanism": "admin.users",
    "ScramUpsertion": "admin.users",
    "TopicDescription": "reader",
    "TransactionDescription": "admin.transactions",
    "TransactionListing": "admin.transactions",
    "UnknownStateError": "admin.transactions",
    "UpgradeType": "admin.cluster",
    "create_topic": "admin.blocking",
}

__all__ = [
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclResource",
    "Admin",
    "AdminSettings",
    "AnyName",
    "AsyncAdmin",
    "AuthenticationError",
    "BrokerNode",
    "ClosedAdminError",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSynonym",
    "CreatedTopic",
    "DisconnectedError",
    "ElectionType",
    "FeatureMetadata",
    "FeatureUpdate",
    "FencedProducer",
    "FoundOffset",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "IncompleteAnswerError",
    "IsolationLevel",
    "ItemErrors",
    "LevelRange",
    "ListedOffset",
    "LogDirectory",
    "LogRange",
    "MalformedAnswerError",
    "MetadataQuorum",
    "NewPartitions",
    "NewTopic",
    "NoSuchGroupError",
    "NoSuchPartitionError",
    "NoSuchTopicError",
    "NoSuchTransactionError",
    "NodeError",
    "NodesStatistics",
    "OffsetAt",
    "OffsetReset",
    "OperationTimeoutError",
    "Outcomes",
    "PatternType",
    "Permission",
    "Place",
    "ProducerState",
    "QuorumReplica",
    "QuotaEntity",
    "Reassignment",
    "RemoteFatalError",
    "RemoteRetriableError",
    "Replica",
    "ReplicaDirectories",
    "ReplicaSize",
    "RequestTimedOutError",
    "ResourceType",
    "ScramCredential",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
    "UnknownOutcomeError",
    "UnknownStateError",
    "UnreachableBrokerError",
    "UnsupportedBrokerError",
    "UnsupportedVersionError",
    "UpgradeType",
    "create_topic",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tailrace.client.admin' has no attribute {name!r}")
    return getattr(import_module(f"tailrace.client.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return __all__
