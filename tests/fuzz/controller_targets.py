"""Fuzz the port of a controller of our own: requests of brokers and clients, with any content.

Whatever comes, the controller goes on, and what it has written is read as the same state by the
next start. The decoders have targets of their own (`protocol_targets`).
"""

from uuid import UUID

from tailrace.broker.config import broker_config
from tailrace.broker.controller.start import start_controller
from tailrace.model import ANONYMOUS, METADATA_TOPIC
from tailrace.protocol.apis import APIS, BETWEEN_NODES, ApiKey
from tailrace.protocol.envelopes import principal_bytes
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import SIZE_BYTES, encode_request
from tailrace.protocol.messages import (
    allocate_producer_ids,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    create_partitions,
    create_topics,
    describe_quorum,
    elect_leaders,
    envelope,
    fetch,
    fetch_snapshot,
    incremental_alter_configs,
    update_features,
)
from tailrace.testing import Outside, Peer, virtual_runtime
from tests.fuzz.engine import FuzzTarget

PORT = 19_093
PRINCIPAL = principal_bytes(ANONYMOUS)
SETTINGS = {
    "process.roles": "controller",
    "node.id": "100",
    "controller.listener.names": "CONTROLLER",
    "listeners": f"CONTROLLER://memory:{PORT}",
    "log.dirs": "data",
}
_LEVELS = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
    "kraft.version": 1,
}
INPUT_MAX = 60_000
"""Most bytes of an input: the window of a connection."""


def _frame(key: ApiKey, request: Message) -> bytes:
    api = APIS.get(key) or BETWEEN_NODES[key]
    return encode_request(
        api, request, version=api.last_version, correlation_id=1, client_id="broker-1"
    )


def registration(cluster_id: str) -> broker_registration.BrokerRegistrationRequest:
    """A broker that the rules take."""
    return broker_registration.BrokerRegistrationRequest(
        broker_id=1,
        cluster_id=cluster_id,
        incarnation_id=UUID(int=1001),
        listeners=(
            broker_registration.Listener(
                name="PLAINTEXT", host="b", port=9092, security_protocol=0
            ),
        ),
        features=tuple(
            broker_registration.Feature(
                name=name, min_supported_version=0, max_supported_version=level
            )
            for name, level in _LEVELS.items()
        ),
        rack=None,
        log_dirs=(UUID(int=2001),),
    )


async def serve(outside: Outside, data: bytes) -> None:
    """One broker and one topic, then the input, then another request and the next start."""
    controller = await start_controller(broker_config(SETTINGS), outside.runtime)
    peer = Peer(outside.network.open(PORT))
    registered = await peer.ask(
        ApiKey.BROKER_REGISTRATION,
        registration(controller.cluster_id),
        broker_registration.BrokerRegistrationResponse,
    )
    beat = broker_heartbeat.BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=registered.broker_epoch,
        current_metadata_offset=controller.node.watermark,
    )
    await peer.ask(ApiKey.BROKER_HEARTBEAT, beat, broker_heartbeat.BrokerHeartbeatResponse)
    hostile = Peer(outside.network.open(PORT))
    hostile.send_bytes(data[:INPUT_MAX])
    await outside.pass_time(0.1)
    hostile.socket.close()
    assert controller.end_reason is None
    topic = describe_quorum.TopicData(
        topic_name=METADATA_TOPIC, partitions=(describe_quorum.PartitionData(partition_index=0),)
    )
    answer = await peer.ask(
        ApiKey.DESCRIBE_QUORUM,
        describe_quorum.DescribeQuorumRequest(topics=(topic,)),
        describe_quorum.DescribeQuorumResponse,
    )
    assert answer.topics[0].partitions[0].leader_id == 100
    image, watermark = controller.node.image, controller.node.watermark
    controller.kill()
    again = await start_controller(broker_config(SETTINGS), outside.runtime)
    # The start has written its election, and nothing else.
    assert again.node.watermark == watermark + 1
    assert again.node.image == image
    await again.stop()


def _run(data: bytes) -> None:
    with virtual_runtime() as outside:
        outside.run(serve(outside, data))


_CREATION = create_topics.CreateTopicsRequest(
    topics=(create_topics.CreatableTopic(name="t", num_partitions=2, replication_factor=1),)
)
_CREATED = _frame(ApiKey.CREATE_TOPICS, _CREATION)
_TOPIC = UUID(int=7)
_SEEDS = (
    _CREATED,
    _frame(
        ApiKey.ENVELOPE,
        envelope.EnvelopeRequest(
            request_data=_CREATED[SIZE_BYTES:],
            request_principal=PRINCIPAL,
            client_host_address=bytes(4),
        ),
    ),
    _CREATED
    + _frame(
        ApiKey.CREATE_PARTITIONS,
        create_partitions.CreatePartitionsRequest(
            topics=(create_partitions.CreatePartitionsTopic(name="t", count=3, assignments=None),)
        ),
    ),
    _CREATED
    + _frame(ApiKey.ELECT_LEADERS, elect_leaders.ElectLeadersRequest(topic_partitions=None)),
    _CREATED
    + _frame(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=(
                alter_partition_reassignments.ReassignableTopic(
                    name="t",
                    partitions=(
                        alter_partition_reassignments.ReassignablePartition(
                            partition_index=0, replicas=(1,)
                        ),
                    ),
                ),
            )
        ),
    ),
    _frame(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=(
                incremental_alter_configs.IncrementalAlterConfigsResource(
                    resource_type=4,
                    resource_name="",
                    configs=(
                        incremental_alter_configs.IncrementalAlterableConfig(
                            name="log.retention.ms", config_operation=0, value="5"
                        ),
                    ),
                ),
            )
        ),
    ),
    _frame(ApiKey.UPDATE_FEATURES, update_features.UpdateFeaturesRequest()),
    _frame(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        allocate_producer_ids.AllocateProducerIdsRequest(broker_id=1, broker_epoch=10),
    ),
    _frame(
        ApiKey.ALTER_PARTITION,
        alter_partition.AlterPartitionRequest(
            broker_id=1,
            broker_epoch=10,
            topics=(
                alter_partition.TopicData(
                    topic_id=_TOPIC,
                    partitions=(alter_partition.PartitionData(partition_index=0),),
                ),
            ),
        ),
    ),
    _frame(
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        assign_replicas_to_dirs.AssignReplicasToDirsRequest(broker_id=1, broker_epoch=10),
    ),
    _frame(ApiKey.BROKER_REGISTRATION, registration("c")),
    _frame(
        ApiKey.BROKER_HEARTBEAT,
        broker_heartbeat.BrokerHeartbeatRequest(broker_id=1, broker_epoch=10, want_shut_down=True),
    ),
    _frame(
        ApiKey.FETCH,
        fetch.FetchRequest(
            topics=(
                fetch.FetchTopic(
                    topic_id=UUID(int=1),
                    partitions=(
                        fetch.FetchPartition(partition=0, current_leader_epoch=1, fetch_offset=3),
                    ),
                ),
            )
        ),
    ),
    _frame(
        ApiKey.FETCH_SNAPSHOT,
        fetch_snapshot.FetchSnapshotRequest(
            topics=(
                fetch_snapshot.TopicSnapshot(
                    name=METADATA_TOPIC,
                    partitions=(
                        fetch_snapshot.PartitionSnapshot(
                            partition=0,
                            current_leader_epoch=1,
                            snapshot_id=fetch_snapshot.SnapshotId(end_offset=0, epoch=0),
                        ),
                    ),
                ),
            )
        ),
    ),
)

TARGETS = (
    FuzzTarget(name="requests to a controller", seeds=_SEEDS, run=_run, refusals=(), share=0.05),
)
