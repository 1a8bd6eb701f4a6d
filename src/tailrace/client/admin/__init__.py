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
    from tailrace.client.admin.cluster import FeatureUpdate, UpgradeType
    from tailrace.client.admin.configs import ConfigChange, ConfigEntry, ConfigResource
    from tailrace.client.admin.groups import GroupDescription, GroupListing, NoSuchGroupError
    from tailrace.client.admin.offsets import CommittedOffset, ListedOffset, OffsetAt, Place
    from tailrace.client.admin.outcomes import Outcomes
    from tailrace.client.admin.quotas import AnyName, QuotaEntity
    from tailrace.client.admin.replicas import ElectionType, Replica
    from tailrace.client.admin.topics import CreatedTopic, NewPartitions, NewTopic
    from tailrace.client.admin.transactions import NoSuchTransactionError
    from tailrace.client.admin.users import ScramDeletion, ScramMechanism, ScramUpsertion
    from tailrace.client.errors import (
        ClosedAdminError,
        IncompleteAnswerError,
        ItemErrors,
        OperationTimeoutError,
        UnknownOutcomeError,
    )
    from tailrace.protocol.config_resources import ResourceType
    from tailrace.security.acls import (
        AclBinding,
        AclFilter,
        AclOperation,
        AclResource,
        PatternType,
        Permission,
    )

_MODULES = {
    "AclBinding": "acls",
    "AclFilter": "acls",
    "AclOperation": "acls",
    "AclResource": "acls",
    "Admin": "blocking",
    "AnyName": "quotas",
    "AsyncAdmin": "aio",
    "CommittedOffset": "offsets",
    "ConfigChange": "configs",
    "ConfigEntry": "configs",
    "ConfigResource": "configs",
    "CreatedTopic": "topics",
    "ElectionType": "replicas",
    "FeatureUpdate": "cluster",
    "GroupDescription": "groups",
    "GroupListing": "groups",
    "ListedOffset": "offsets",
    "NewPartitions": "topics",
    "NewTopic": "topics",
    "NoSuchGroupError": "groups",
    "NoSuchTransactionError": "transactions",
    "OffsetAt": "offsets",
    "Outcomes": "outcomes",
    "PatternType": "acls",
    "Permission": "acls",
    "Place": "offsets",
    "QuotaEntity": "quotas",
    "Replica": "replicas",
    "ResourceType": "configs",
    "ScramDeletion": "users",
    "ScramMechanism": "users",
    "ScramUpsertion": "users",
    "UpgradeType": "cluster",
    "create_topic": "blocking",
}

__all__ = [
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclResource",
    "Admin",
    "AnyName",
    "AsyncAdmin",
    "ClosedAdminError",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "CreatedTopic",
    "ElectionType",
    "FeatureUpdate",
    "GroupDescription",
    "GroupListing",
    "IncompleteAnswerError",
    "ItemErrors",
    "ListedOffset",
    "NewPartitions",
    "NewTopic",
    "NoSuchGroupError",
    "NoSuchTransactionError",
    "OffsetAt",
    "OperationTimeoutError",
    "Outcomes",
    "PatternType",
    "Permission",
    "Place",
    "QuotaEntity",
    "Replica",
    "ResourceType",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
    "UnknownOutcomeError",
    "UpgradeType",
    "create_topic",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tailrace.client.admin' has no attribute {name!r}")
    module = f"admin.{_MODULES[name]}" if name in _MODULES else "errors"
    return getattr(import_module(f"tailrace.client.{module}"), name)


def __dir__() -> list[str]:
    return __all__
