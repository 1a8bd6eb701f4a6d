"""DescribeQuorum (55): the leader and the voters of the metadata log (KIP-595).

Versions: 0 to 2.
Behaviour: this broker is the only voter, and leads. Its log is on the device up to the high
    watermark. Every other topic or partition is UNKNOWN_TOPIC_OR_PARTITION.
Version notes: v1 has times, which are now for the leader; v2 has the nodes with the listeners of
    their controllers, here that of the broker, which is its own controller.
Not done: ids of the voters' directories, which a quorum with static voters does not have.
"""

from tailrace.handlers.services import Services
from tailrace.model import METADATA_TOPIC
from tailrace.protocol.answers import PARTS_INLINE_MAX, LongAnswer
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)


def handle_describe_quorum(
    services: Services, _: RequestHeader, request: DescribeQuorumRequest
) -> DescribeQuorumResponse | LongAnswer:
    """The quorum of the metadata log, which is this node."""

    def make() -> DescribeQuorumResponse:
        return _answer(services, request)

    count = sum(1 + len(topic.partitions) for topic in request.topics)
    return LongAnswer(make) if count > PARTS_INLINE_MAX else make()


def _answer(services: Services, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    def described(topic: str, partition: int) -> DescribeQuorumResponsePartitionData:
        if (topic, partition) != (METADATA_TOPIC, 0):
            return DescribeQuorumResponsePartitionData(
                partition_index=partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        log, now_ms = services.controller.log, services.clock.now_ms()
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
            high_watermark=log.end_offset,
            current_voters=(voter,),
        )

    host, port = services.endpoint()
    listener = Listener(name="PLAINTEXT", host=host, port=port)
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
        nodes=(Node(node_id=services.node_id, listeners=(listener,)),),
    )
