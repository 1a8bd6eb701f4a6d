"""The definitions to write: a name for each API, embedded message and record."""

from collections.abc import Iterator
from dataclasses import dataclass

from definitions.model import snake_case

APIS = (
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator",
    "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups", "ListGroups",
    "SaslHandshake", "ApiVersions", "CreateTopics", "DeleteTopics", "DeleteRecords",
    "InitProducerId", "OffsetForLeaderEpoch", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn",
    "WriteTxnMarkers", "TxnOffsetCommit", "DescribeAcls", "CreateAcls", "DeleteAcls",
    "DescribeConfigs", "AlterConfigs", "AlterReplicaLogDirs", "DescribeLogDirs", "SaslAuthenticate",
    "CreatePartitions", "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken",
    "DescribeDelegationToken", "DeleteGroups", "ElectLeaders", "IncrementalAlterConfigs",
    "AlterPartitionReassignments", "ListPartitionReassignments", "OffsetDelete",
    "DescribeClientQuotas", "AlterClientQuotas", "DescribeUserScramCredentials",
    "AlterUserScramCredentials", "DescribeQuorum", "UpdateFeatures", "DescribeCluster",
    "DescribeProducers", "UnregisterBroker", "DescribeTransactions", "ListTransactions",
    "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "GetTelemetrySubscriptions", "PushTelemetry",
    "ListConfigResources", "DescribeTopicPartitions", "AddRaftVoter", "RemoveRaftVoter",
    "AlterPartition", "Envelope", "FetchSnapshot", "BrokerRegistration", "BrokerHeartbeat",
    "AllocateProducerIds", "AssignReplicasToDirs",
)  # fmt: skip
"""APIs by Kafka's names, each with a request and a response: first those of clients, then those
between controllers and brokers, in the order of their keys."""

EMBEDDED = ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")
"""Messages that consumers put into `bytes` fields of JoinGroup and SyncGroup."""

GROUP_RECORDS = (
    "LegacyOffsetCommit", "OffsetCommit", "GroupMetadata", "ConsumerGroupMetadata",
    "ConsumerGroupPartitionMetadata", "ConsumerGroupMemberMetadata",
    "ConsumerGroupTargetAssignmentMetadata", "ConsumerGroupTargetAssignmentMember",
    "ConsumerGroupCurrentMemberAssignment", "ConsumerGroupRegularExpression",
)  # fmt: skip
"""Records of `__consumer_offsets`, in the order of their types; each has a key and a value."""

TRANSACTION_RECORDS = ("TransactionLog",)
"""Records of `__transaction_state`, likewise."""

METADATA_RECORDS = (
    "RegisterBroker", "UnregisterBroker", "Topic", "Partition", "Config", "PartitionChange",
    "FenceBroker", "UnfenceBroker", "RemoveTopic", "DelegationToken", "UserScramCredential",
    "FeatureLevel", "ClientQuota", "ProducerIds", "BrokerRegistrationChange", "AccessControlEntry",
    "RemoveAccessControlEntry", "NoOp", "ZkMigration", "RemoveUserScramCredential",
    "BeginTransaction", "EndTransaction", "AbortTransaction", "RemoveDelegationToken",
    "RegisterController", "ClearElr",
)  # fmt: skip
"""Records of `__cluster_metadata`, in the order of their types; each is a value alone."""

CONTROL_RECORDS = (
    "LeaderChangeMessage", "SnapshotHeaderRecord", "SnapshotFooterRecord", "KRaftVersionRecord",
    "VotersRecord",
)  # fmt: skip
"""Values of the control records of `__cluster_metadata`."""

_MESSAGES = "common/message"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSource:
    """A module to write, and the definitions that are in it."""

    path: str
    """Its file below `tailrace/protocol`."""
    section: str
    """Its section in words.toml."""
    definitions: tuple[tuple[str, str], ...]
    """The jars that have the definitions, without the version, and the paths in them."""


def sources() -> Iterator[ModuleSource]:
    """Every module to write."""
    # A module for each API, imported by the first request (decision 24). Records have one module
    # for each log: who reads a log needs most of its types.
    for name in APIS:
        yield _message(name, "Request", "Response")
    for name in EMBEDDED:
        yield _message(name, "")
    yield ModuleSource(
        path="records.py",
        section="records",
        definitions=tuple(
            (jar, f"{_MESSAGES}/{name}{part}.json")
            for jar, names in (
                ("kafka-group-coordinator", GROUP_RECORDS),
                ("kafka-transaction-coordinator", TRANSACTION_RECORDS),
            )
            for name in names
            for part in ("Key", "Value")
        ),
    )
    yield ModuleSource(
        path="metadata_records.py",
        section="metadata_records",
        definitions=(
            *(
                ("kafka-metadata", f"common/metadata/{name}Record.json")
                for name in METADATA_RECORDS
            ),
            *(("kafka-clients", f"{_MESSAGES}/{name}.json") for name in CONTROL_RECORDS),
        ),
    )


def _message(name: str, *parts: str) -> ModuleSource:
    section = snake_case(name)
    return ModuleSource(
        path=f"messages/{section}.py",
        section=section,
        definitions=tuple(("kafka-clients", f"{_MESSAGES}/{name}{part}.json") for part in parts),
    )
