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
)  # fmt: skip
"""APIs by Kafka's names, in the order of their keys; each has a request and a response."""

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

    package: str
    """Its package below `tailrace.protocol`."""
    name: str
    """Its name; also that of its section in words.toml."""
    jar: str
    """The jar that has the definitions, without the version."""
    definitions: tuple[str, ...]
    """The paths of the definitions in the jar."""

    @property
    def section(self) -> str:
        """Its section in words.toml."""
        return self.name if self.package == "messages" else f"{self.package}.{self.name}"


def sources() -> Iterator[ModuleSource]:
    """Every module to write."""
    yield from (_source("messages", "kafka-clients", name, "Request", "Response") for name in APIS)
    yield from (_source("messages", "kafka-clients", name, "") for name in EMBEDDED)
    for jar, names in (
        ("kafka-group-coordinator", GROUP_RECORDS),
        ("kafka-transaction-coordinator", TRANSACTION_RECORDS),
    ):
        yield from (_source("records", jar, name, "Key", "Value") for name in names)
    for name in METADATA_RECORDS:
        yield _metadata_source("kafka-metadata", name, f"common/metadata/{name}Record.json")
    for name in CONTROL_RECORDS:
        yield _metadata_source("kafka-clients", name, f"{_MESSAGES}/{name}.json")


def _source(package: str, jar: str, name: str, *parts: str) -> ModuleSource:
    return ModuleSource(
        package=package,
        name=snake_case(name),
        jar=jar,
        definitions=tuple(f"{_MESSAGES}/{name}{part}.json" for part in parts),
    )


def _metadata_source(jar: str, name: str, path: str) -> ModuleSource:
    name = snake_case(name.removesuffix("Record").removesuffix("Message"))
    return ModuleSource(package="metadata_records", name=name, jar=jar, definitions=(path,))
