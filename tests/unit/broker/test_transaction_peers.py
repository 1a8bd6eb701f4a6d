"""Transactions of a broker at another broker, over connections."""

from uuid import UUID

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.broker.peers import Peers
from tailrace.broker.transaction_peers import TransactionPeers
from tailrace.client.config import ClientConfig
from tailrace.cluster.metadata.image import EVERYTHING_CHANGED, MetadataImage, TopicState
from tailrace.cluster.state import FollowedCluster
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions.markers import Marker, MarkerFencedError, MarkerRefusedError
from tailrace.coordinator.transactions.requests import AddPartitions
from tailrace.coordinator.transactions.state import EPOCH_PER_TRANSACTION
from tailrace.model import (
    TRANSACTIONS_TOPIC,
    LeaderEpoch,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
)
from tailrace.testing import Outside
from tests.unit.broker.brokers import connect, running
from tests.unit.broker.test_transactions import FEW
from tests.unit.broker.transactional import Client, begin, committed_values

ME, OTHER, GONE = 7, 1, 9
DATA, LOST = TopicPartition("d", 0), TopicPartition("d", 1)
COUNT = 1


def peers_of(outside: Outside, broker: RunningBroker) -> TransactionPeers:
    """Broker 7, by whose image the running one leads all partitions but one, whose leader died."""
    cluster = FollowedCluster(
        ME, defaults=TopicDefaults(partition_count=1, replication_factor=1, given={})
    )
    topics = {
        UUID(int=1): ("d", {0: OTHER, 1: GONE, 2: -1}),
        UUID(int=2): (TRANSACTIONS_TOPIC, {0: OTHER}),
    }
    host, port = broker.endpoint
    image = MetadataImage(
        brokers={
            each: RegisterBrokerRecord(
                broker_id=each,
                incarnation_id=UUID(int=each),
                broker_epoch=1,
                end_points=(
                    BrokerEndpoint(
                        name="PLAINTEXT",
                        host=host,
                        port=port if each == OTHER else 1,
                        security_protocol=0,
                    ),
                ),
                fenced=False,
            )
            for each in (OTHER, GONE)
        },
        topics={
            topic_id: TopicState(
                name=name,
                topic_id=topic_id,
                partitions={
                    number: PartitionRecord(
                        partition_id=number,
                        topic_id=topic_id,
                        replicas=(OTHER,),
                        isr=(OTHER,),
                        leader=leader,
                        leader_epoch=0,
                        partition_epoch=0,
                    )
                    for number, leader in leaders.items()
                },
            )
            for topic_id, (name, leaders) in topics.items()
        },
        topic_ids={name: topic_id for topic_id, (name, _) in topics.items()},
    )
    cluster.publish(image, EVERYTHING_CHANGED, offset=0)
    config = ClientConfig(client_id="broker-7")
    return TransactionPeers(
        cluster,
        to_leaders=Peers(config, outside.runtime),
        to_coordinators=Peers(config, outside.runtime),
    )


def asked(client: Client, *partitions: TopicPartition) -> AddPartitions:
    """A request for partitions of the client's transaction."""
    return AddPartitions(
        transactional_id="t",
        producer=TransactionalProducer(ProducerId(client.producer_id), ProducerEpoch(client.epoch)),
        partitions=frozenset(partitions),
        client_version=EPOCH_PER_TRANSACTION,
    )


def marker_of(client: Client, *, coordinator_epoch: int = 5) -> Marker:
    """A commit of the client's transaction, of KIP-890."""
    return Marker(
        producer_id=ProducerId(client.producer_id),
        producer_epoch=ProducerEpoch(client.epoch + 1),
        is_commit=True,
        coordinator_epoch=LeaderEpoch(coordinator_epoch),
        transaction_version=2,
    )


async def test_partitions_are_verified_and_added_at_another_broker(outside: Outside) -> None:
    """By AddPartitionsToTxn for brokers; all or none are added."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker)
        peers = peers_of(outside, broker)
        for is_adding, code in (
            (False, ErrorCode.TRANSACTION_ABORTABLE),
            (True, ErrorCode.NONE),
            (False, ErrorCode.NONE),
        ):
            found = await peers.verdicts(
                asked(client, DATA), partition_count=COUNT, is_adding=is_adding
            )
            assert found == {DATA: code}
        both = asked(client, DATA, TopicPartition("d", 5))
        found = await peers.verdicts(both, partition_count=COUNT, is_adding=True)
        assert found == {
            DATA: ErrorCode.OPERATION_NOT_ATTEMPTED,
            TopicPartition("d", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        found = await peers.verdicts(asked(client, DATA), partition_count=0, is_adding=True)
        assert found == {DATA: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        peers.close()


async def test_a_marker_is_written_at_another_broker(outside: Outside) -> None:
    """Its epochs and version reach the log; a marker of an older coordinator does not."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker, knows_epochs=True)
        await client.send(b"value")
        peers = peers_of(outside, broker)
        assert (peers.leader_of(DATA), peers.leader_of(LOST)) == (OTHER, GONE)
        assert peers.leader_of(TopicPartition("d", 2)) is None
        await peers.markers.write(OTHER, DATA, marker_of(client))
        assert await committed_values(connect(outside, broker)) == [b"value"]
        with pytest.raises(MarkerFencedError, match="TRANSACTION_COORDINATOR_FENCED"):
            await peers.markers.write(OTHER, DATA, marker_of(client, coordinator_epoch=4))
        with pytest.raises(MarkerRefusedError, match="broker 9"):
            await peers.markers.write(GONE, LOST, marker_of(client))
        with pytest.raises(MarkerRefusedError, match="broker 8 is not alive"):
            await peers.markers.write(8, LOST, marker_of(client))
        peers.close()
