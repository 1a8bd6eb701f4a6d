"""The tables of Kafka's and Spark's scenarios name tests that exist, and enough of them."""

from collections import Counter
from pathlib import Path

import pytest

from tests import scenarios

TABLES = (scenarios.CONFORMANCE, scenarios.PARITY)

ROWS = {
    "AbortTransactionHandlerTest": 7,
    "AbstractCoordinatorTest": 47,
    "AbstractFetcherThreadTest": 34,
    "AbstractLegacyRecordBatchTest": 11,
    "AbstractPartitionAssignorTest": 5,
    "AbstractStickyAssignorTest": 41,
    "AclControlManagerTest": 10,
    "AclsImageTest": 4,
    "ActivationRecordsGeneratorTest": 5,
    "AddPartitionsToTxnManagerTest": 5,
    "AdminApiDriverTest": 16,
    "AllBrokersStrategyIntegrationTest": 5,
    "AllBrokersStrategyTest": 5,
    "AlterConsumerGroupOffsetsHandlerTest": 5,
    "AlterPartitionManagerTest": 17,
    "AssignmentsManagerTest": 14,
    "BrokerHeartbeatManagerTest": 6,
    "BrokerHeartbeatTrackerTest": 11,
    "BrokerLifecycleManagerTest": 9,
    "BrokerRegistrationTrackerTest": 5,
    "BufferPoolTest": 13,
    "BuiltInPartitionerTest": 4,
    "ClassicGroupTest": 57,
    "ClientQuotaControlManagerTest": 23,
    "ClientQuotaManagerTest": 12,
    "ClientQuotasImageTest": 4,
    "ClientRequestQuotaManagerTest": 1,
    "ClusterControlManagerTest": 20,
    "ClusterImageTest": 9,
    "CommitRequestManagerTest": 40,
    "ConfigurationControlManagerTest": 15,
    "ConfigurationsImageTest": 6,
    "ConnectionQuotasTest": 20,
    "ConsumerCoordinatorTest": 151,
    "ConsumerGroupTest": 46,
    "ConsumerHeartbeatRequestManagerTest": 23,
    "ConsumerMembershipManagerTest": 81,
    "ConsumerProtocolTest": 15,
    "ConsumerRangeAssignorTest": 20,
    "ControllerMutationQuotaManagerTest": 8,
    "ControllerApisTest": 21,
    "CooperativeStickyAssignorTest": 9,
    "CoordinatorRequestManagerTest": 7,
    "CoordinatorRuntimeTest": 80,
    "CoordinatorStrategyTest": 14,
    "CurrentAssignmentBuilderTest": 21,
    "DefaultPartitionerTest": 1,
    "DefaultRecordBatchTest": 22,
    "DefaultRecordTest": 20,
    "DefaultSslEngineFactoryTest": 10,
    "DelegationTokenImageTest": 6,
    "DeleteConsumerGroupOffsetsHandlerTest": 6,
    "DeleteConsumerGroupsHandlerTest": 5,
    "DeleteRecordsHandlerTest": 9,
    "DescribeConsumerGroupsHandlerTest": 10,
    "DescribeProducersHandlerTest": 10,
    "DescribeTopicPartitionsRequestHandlerTest": 2,
    "DescribeTransactionsHandlerTest": 3,
    "FeatureControlManagerTest": 18,
    "FeaturesImageTest": 8,
    "FenceProducersHandlerTest": 4,
    "FetchCollectorTest": 21,
    "FetchRequestManagerTest": 80,
    "FetchSessionTest": 25,
    "FetcherTest": 82,
    "FileRecordsTest": 23,
    "FormatterTest": 22,
    "ForwardingManagerTest": 8,
    "GroupCoordinatorRecordHelpersTest": 22,
    "GroupCoordinatorServiceTest": 60,
    "GroupCoordinatorShardTest": 34,
    "GroupMetadataManagerTest": 275,
    "HeartbeatTest": 7,
    "KafkaAdminClientTest": 196,
    "KafkaApisTest": 16,
    "KafkaConsumerTest": 109,
    "KafkaProducerTest": 71,
    "LeaderEpochFileCacheTest": 44,
    "ListConsumerGroupOffsetsHandlerTest": 14,
    "ListOffsetsHandlerTest": 11,
    "ListTransactionsHandlerTest": 7,
    "LocalLogTest": 37,
    "LogCleanerManagerTest": 31,
    "LogCleanerTest": 49,
    "LogLoaderTest": 38,
    "LogManagerTest": 49,
    "LogSegmentTest": 24,
    "LogValidatorTest": 54,
    "MemoryRecordsBuilderTest": 26,
    "MemoryRecordsTest": 20,
    "MetadataBatchLoaderTest": 10,
    "MetadataCacheTest": 15,
    "MetadataImageTest": 4,
    "MetadataLoaderTest": 16,
    "MetadataTest": 29,
    "NetworkClientTest": 40,
    "NodeToControllerRequestThreadTest": 9,
    "OffsetExpirationConditionImplTest": 1,
    "OffsetFetcherTest": 52,
    "OffsetIndexTest": 11,
    "OffsetMetadataManagerTest": 68,
    "PartitionChangeBuilderTest": 32,
    "PartitionLeaderStrategyTest": 10,
    "PartitionReassignmentReplicasTest": 18,
    "PartitionReassignmentRevertTest": 5,
    "PartitionTest": 78,
    "PlainSaslServerTest": 4,
    "ProducerBatchTest": 11,
    "ProducerIdControlManagerTest": 5,
    "ProducerIdManagerTest": 4,
    "ProducerIdsImageTest": 4,
    "ProducerInterceptorsTest": 3,
    "ProducerMetadataTest": 9,
    "ProducerStateManagerTest": 54,
    "RangeAssignorTest": 14,
    "RecordAccumulatorTest": 34,
    "RemoveMembersFromConsumerGroupHandlerTest": 6,
    "ReplicaFetcherThreadTest": 11,
    "ReplicaManagerTest": 84,
    "ReplicationControlManagerTest": 58,
    "RoundRobinAssignorTest": 13,
    "RoundRobinPartitionerTest": 3,
    "SaslAuthenticatorTest": 75,
    "SaslServerAuthenticatorTest": 9,
    "ScramCredentialUtilsTest": 6,
    "ScramFormatterTest": 2,
    "ScramImageTest": 6,
    "ScramMessagesTest": 8,
    "ScramSaslServerTest": 6,
    "SenderTest": 74,
    "SslFactoryTest": 23,
    "SslPrincipalMapperTest": 5,
    "SslTransportLayerTest": 56,
    "StandardAuthorizerTest": 21,
    "StickyAssignorTest": 9,
    "SubscriptionStateTest": 47,
    "TargetAssignmentBuilderTest": 9,
    "TimeIndexTest": 11,
    "TopicsImageTest": 20,
    "TransactionCoordinatorConcurrencyTest": 11,
    "TransactionCoordinatorTest": 84,
    "TransactionIndexTest": 11,
    "TransactionLogTest": 11,
    "TransactionManagerTest": 133,
    "TransactionMarkerChannelManagerTest": 13,
    "TransactionMarkerRequestCompletionHandlerTest": 19,
    "TransactionMetadataTest": 29,
    "TransactionStateManagerTest": 38,
    "UnifiedLogTest": 147,
    "UniformHeterogeneousAssignmentBuilderTest": 13,
    "UniformHomogeneousAssignmentBuilderTest": 12,
}
"""Scenarios of each class, so that none is dropped from a table."""


def test_every_scenario_has_one_row() -> None:
    """No upstream method is missing from the tables or named twice."""
    rows = scenarios.scenarios(scenarios.CONFORMANCE)
    assert Counter(row.upstream_class for row in rows) == ROWS
    assert len({(row.upstream_class, row.method) for row in rows}) == sum(ROWS.values())


@pytest.mark.parametrize("tables", TABLES)
def test_every_named_test_exists(tables: Path) -> None:
    """Each id of a row is a test function with a docstring."""
    missing = {
        test_id
        for row in scenarios.scenarios(tables)
        for test_id in row.tests
        if not scenarios.claim(test_id)
    }
    assert not missing


@pytest.mark.parametrize("tables", TABLES)
def test_most_scenarios_are_tested(tables: Path) -> None:
    """At least 85 in 100 rows name a test; the others say why there is none."""
    rows = scenarios.scenarios(tables)
    tested = sum(bool(row.tests) for row in rows)
    assert tested >= 0.85 * len(rows)
    for row in rows:
        assert row.tests or row.verdict.startswith(("never: ", "not yet"))
