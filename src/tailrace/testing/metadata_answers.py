"""Answers of a controller about its log: Fetch, FetchSnapshot and DescribeQuorum, as Kafka's.

cluster id ─► topic and partition ─► offset, epoch ─► leader ─► snapshot? ─► diverging? ─► records
"""

from typing import TYPE_CHECKING, Final

from tailrace.cluster.metadata.folder import TOPIC_ID
from tailrace.model import METADATA_TOPIC
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from tailrace.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from tailrace.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseTopicSnapshot,
    PartitionSnapshot,
)
from tailrace.protocol.messages.fetch_snapshot import LeaderIdAndEpoch as SnapshotLeader
from tailrace.protocol.messages.fetch_snapshot import NodeEndpoint as SnapshotEndpoint
from tailrace.protocol.messages.fetch_snapshot import SnapshotId as AskedSnapshot
from tailrace.testing.metadata_log import SnapshotKey

if TYPE_CHECKING:
    from tailrace.testing.controller import ScriptedController

_NOTHING: Final = -1


def is_due(controller: "ScriptedController", node_id: int, request: FetchRequest) -> bool:
    """Whether a Fetch is answered now, or waits for a record or a commit."""
    asked, error = _checked(controller, node_id, request)
    if error or asked is None:
        return True
    log = controller.log
    return (
        # Since version 18 an observer says what it knows to be committed (KIP-1166).
        asked.high_watermark < log.watermark
        or asked.fetch_offset < log.end_offset
        or log.snapshot_for(asked.fetch_offset, asked.last_fetched_epoch) is not None
        or _diverging(controller, asked) is not None
    )


def fetch_answer(
    controller: "ScriptedController", node_id: int, request: FetchRequest
) -> FetchResponse:
    """The answer to a Fetch of the metadata log."""
    asked, error = _checked(controller, node_id, request)
    # The cluster and the shape of the request are wrong as a whole.
    if asked is None:
        return FetchResponse(
            throttle_time_ms=0, error_code=error, session_id=0, responses=(), node_endpoints=()
        )
    log = controller.log
    fields: dict[str, object] = {}
    records = b""
    if not error:
        snapshot = log.snapshot_for(asked.fetch_offset, asked.last_fetched_epoch)
        diverging = None if snapshot is not None else _diverging(controller, asked)
        if snapshot is not None:
            fields["snapshot_id"] = SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
        elif diverging is not None:
            fields["diverging_epoch"] = diverging
        else:
            records = log.read(asked.fetch_offset, size_max=request.max_bytes)
    partition = PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=log.watermark if not error else _NOTHING,
        last_stable_offset=_NOTHING,
        log_start_offset=log.log_start if not error else _NOTHING,
        current_leader=LeaderIdAndEpoch(
            leader_id=controller.leader_id, leader_epoch=controller.epoch
        ),
        aborted_transactions=None,
        records=records,
        **fields,  # type: ignore[arg-type]
    )
    leader = controller.nodes.get(controller.leader_id)
    return FetchResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        session_id=0,
        responses=(
            FetchableTopicResponse(
                topic=METADATA_TOPIC, topic_id=TOPIC_ID, partitions=(partition,)
            ),
        ),
        node_endpoints=()
        if leader is None
        else (NodeEndpoint(node_id=leader.id, host=controller.host, port=leader.port),),
    )


def _checked(
    controller: "ScriptedController", node_id: int, request: FetchRequest
) -> tuple[FetchPartition | None, ErrorCode]:
    """The one partition of a request, and its error; None: the request is wrong as a whole."""
    if request.cluster_id not in (None, controller.cluster_id):
        return None, ErrorCode.INCONSISTENT_CLUSTER_ID
    named = [
        each
        for topic in request.topics
        for each in topic.partitions
        if topic.topic_id == TOPIC_ID or topic.topic == METADATA_TOPIC
    ]
    if len(named) != 1 or len(request.topics) != 1 or named[0].partition != 0:
        return None, ErrorCode.INVALID_REQUEST
    [asked] = named
    if asked.fetch_offset < 0 or request.max_wait_ms < 0 or asked.current_leader_epoch < 0:
        return asked, ErrorCode.INVALID_REQUEST
    if asked.last_fetched_epoch > asked.current_leader_epoch:
        return asked, ErrorCode.INVALID_REQUEST
    return asked, _leader_error(controller, node_id, asked.current_leader_epoch)


def _leader_error(controller: "ScriptedController", node_id: int, epoch: int) -> ErrorCode:
    if epoch < controller.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > controller.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if node_id != controller.leader_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def _diverging(controller: "ScriptedController", asked: FetchPartition) -> EpochEndOffset | None:
    """The end of what the observer has in common with the log; None: it has nothing else."""
    if asked.fetch_offset == 0:
        return None
    epoch, end = controller.log.end_of_epoch(asked.last_fetched_epoch)
    if epoch == asked.last_fetched_epoch and asked.fetch_offset <= end:
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end)


def snapshot_answer(
    controller: "ScriptedController", node_id: int, request: FetchSnapshotRequest
) -> FetchSnapshotResponse:
    """The answer to a FetchSnapshot: some bytes of a snapshot, from a position on."""
    leader = controller.nodes.get(controller.leader_id)
    error, topics = ErrorCode.NONE, []
    named = [each for topic in request.topics for each in topic.partitions]
    if request.cluster_id not in (None, controller.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
    elif len(named) != 1 or request.topics[0].name != METADATA_TOPIC:
        error = ErrorCode.INVALID_REQUEST
    else:
        part = _snapshot_part(controller, node_id, named[0], size_max=request.max_bytes)
        topics.append(FetchSnapshotResponseTopicSnapshot(name=METADATA_TOPIC, partitions=(part,)))
    return FetchSnapshotResponse(
        throttle_time_ms=0,
        error_code=error,
        topics=tuple(topics),
        node_endpoints=()
        if leader is None
        else (SnapshotEndpoint(node_id=leader.id, host=controller.host, port=leader.port),),
    )


def _snapshot_part(
    controller: "ScriptedController", node_id: int, asked: PartitionSnapshot, *, size_max: int
) -> FetchSnapshotResponsePartitionSnapshot:
    wanted = SnapshotKey(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    data = controller.log.snapshots.get(wanted)
    error = _leader_error(controller, node_id, asked.current_leader_epoch)
    if not error and data is None:
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    elif not error and data is not None and not 0 <= asked.position < len(data):
        error = ErrorCode.POSITION_OUT_OF_RANGE
    part = b"" if error or data is None else data[asked.position :][:size_max]
    return FetchSnapshotResponsePartitionSnapshot(
        index=asked.partition,
        error_code=error,
        snapshot_id=AskedSnapshot(end_offset=wanted.end_offset, epoch=wanted.epoch),
        current_leader=SnapshotLeader(
            leader_id=controller.leader_id, leader_epoch=controller.epoch
        ),
        size=0 if error or data is None else len(data),
        position=asked.position,
        unaligned_records=part,
    )


def quorum_answer(
    controller: "ScriptedController", request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """The answer to DescribeQuorum: the nodes have the whole log, observers what they fetched."""
    log, now_ms = controller.log, controller.outside.clock.now_ms()

    def voter(node_id: int) -> ReplicaState:
        is_leader = node_id == controller.leader_id
        return ReplicaState(
            replica_id=node_id,
            log_end_offset=log.end_offset,
            last_fetch_timestamp=_NOTHING if is_leader else now_ms,
            last_caught_up_timestamp=_NOTHING if is_leader else now_ms,
        )

    partition = DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        leader_id=controller.leader_id,
        leader_epoch=controller.epoch,
        high_watermark=log.watermark,
        current_voters=tuple(map(voter, controller.nodes)),
        observers=tuple(
            ReplicaState(
                replica_id=each, log_end_offset=seen.offset, last_fetch_timestamp=seen.at_ms
            )
            for each, seen in controller.observers.items()
        ),
    )
    names = {topic.topic_name for topic in request.topics}
    error = ErrorCode.NONE if names == {METADATA_TOPIC} else ErrorCode.INVALID_REQUEST
    topic = DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return DescribeQuorumResponse(
        error_code=error,
        error_message=None,
        topics=() if error else (topic,),
        nodes=tuple(
            Node(
                node_id=each.id,
                listeners=(Listener(name="CONTROLLER", host=controller.host, port=each.port),),
            )
            for each in controller.nodes.values()
        ),
    )
