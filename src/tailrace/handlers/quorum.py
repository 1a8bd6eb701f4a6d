"""The quorum of the metadata log: its voters, of which this node is the only one."""

from tailrace.handlers.services import Services
from tailrace.model import METADATA_TOPIC
from tailrace.protocol.answers import PARTS_INLINE_MAX, LongAnswer
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from tailrace.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)


def handle_describe_quorum(
    services: Services, _: RequestHeader, request: DescribeQuorumRequest
) -> DescribeQuorumResponse | LongAnswer:
    """DescribeQuorum (55): the leader and the voters of the metadata log (KIP-595).

    Versions: 0 to 2.
    Behaviour: this broker is the only voter, and leads. Its log is on the device up to the high
        watermark. Every other topic or partition is UNKNOWN_TOPIC_OR_PARTITION.
    Version notes: v1 has times, which are now for the leader; v2 has the nodes with the listeners
        of their controllers, here that of the broker, which is its own controller.
    Not done: ids of the voters' directories, which a quorum with static voters does not have.
    """

    def make() -> DescribeQuorumResponse:
        return _described_quorum(services, request)

    # A client may ask for any number of partitions that are not there.
    count = sum(1 + len(topic.partitions) for topic in request.topics)
    return LongAnswer(make) if count > PARTS_INLINE_MAX else make()


def _described_quorum(services: Services, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    def described(topic: str, partition: int) -> DescribeQuorumResponsePartitionData:
        if (topic, partition) != (METADATA_TOPIC, 0):
            return DescribeQuorumResponsePartitionData(
                partition_index=partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        log, now_ms = services.own_controller.log, services.clock.now_ms()
        # Kafka, too, has the present for both times of the leader, though its schema says -1 for
        # the last fetch (KIP-836).
        voter = ReplicaState(
            replica_id=services.node_id,
            log_end_offset=log.end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        return DescribeQuorumResponsePartitionData(
            partition_index=0,
            leader_id=services.node_id,
            leader_epoch=log.epoch,
            # The only voter is the majority, and what is in the log is on the device.
            high_watermark=log.end_offset,
            current_voters=(voter,),
        )

    own = services.endpoint()
    listeners: tuple[Listener, ...] = ()
    if own is not None:
        listeners = (Listener(name=services.listener, host=own.host, port=own.port),)
    return DescribeQuorumResponse(
        topics=tuple(
            DescribeQuorumResponseTopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    described(topic.topic_name, each.partition_index) for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        # v2 has the addresses of the controllers (KIP-853); up to v1 there were ids alone.
        nodes=(Node(node_id=services.node_id, listeners=listeners),),
    )


def handle_add_raft_voter(
    services: Services, _: RequestHeader, request: AddRaftVoterRequest
) -> AddRaftVoterResponse:
    """AddRaftVoter (80): add a controller to the voters of the quorum (KIP-853).

    Versions: 0 to 1.
    Behaviour: as Kafka at level 0 of `kraft.version`, whose voters are those of the settings:
        another cluster's id is INCONSISTENT_CLUSTER_ID, and all else UNSUPPORTED_VERSION; at level
        1 likewise.
    Not done: voters that come and go: this node is the only one.
    """
    code, message = _refuse_voters(services, request.cluster_id, "adding")
    return AddRaftVoterResponse(error_code=code, error_message=message)


def _refuse_voters(
    services: Services, cluster_id: str | None, change: str
) -> tuple[ErrorCode, str]:
    return voters_refusal(
        services.cluster_id,
        cluster_id,
        kraft_version=services.cluster.kraft_version,
        change=change,
    )


def voters_refusal(
    cluster_id: str, asked: str | None, *, kraft_version: int, change: str
) -> tuple[ErrorCode, str]:
    """The code and Kafka's message for a change of the voters; `asked` is the cluster it is for."""
    # First, as in Kafka: to a command for another cluster the level of this one says nothing.
    if asked is not None and asked != cluster_id:
        return (
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'The given id "{asked}" doesn\'t match the cluster id "{cluster_id}"',
        )
    reason = (
        "the kraft.version feature is 0"
        if kraft_version == 0
        else "its controller is Tailrace, which leads alone; have Apache Kafka take it over first"
    )
    return (
        ErrorCode.UNSUPPORTED_VERSION,
        f"Cluster doesn't support {change} voter because {reason}",
    )


def handle_remove_raft_voter(
    services: Services, _: RequestHeader, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    """RemoveRaftVoter (81): remove a controller from the voters of the quorum (KIP-853).

    Versions: 0.
    Behaviour: as AddRaftVoter.
    Not done: voters that come and go: this node is the only one.
    """
    code, message = _refuse_voters(services, request.cluster_id, "removing")
    return RemoveRaftVoterResponse(error_code=code, error_message=message)
