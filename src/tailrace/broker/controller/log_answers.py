"""Answers of a controller about its log: Fetch, FetchSnapshot and DescribeQuorum, as Kafka's.

cluster id ─► topic and partition ─► offset, epoch ─► leader ─► snapshot? ─► diverging? ─► records

The log may be that of a directory or one in memory (`tailrace.testing`): both answer by this code.

Not here: who waits how long for an answer (`node`).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from tailrace.cluster.metadata.folder import TOPIC_ID
from tailrace.cluster.metadata.quorum_state import EPOCHS_SKIPPED_MAX
from tailrace.cluster.metadata.served import SnapshotKey, SnapshotPart
from tailrace.config.settings import INT32_MAX
from tailrace.model import METADATA_TOPIC
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID, Records
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
from tailrace.values import dataclass

_NOTHING: Final = -1
EPOCH_TAKEN_MAX: Final = INT32_MAX // 2
"""Largest epoch that is taken from an observer: no peer can use up the epochs of later starts."""
LISTENER: Final = "CONTROLLER"


FIRST_SNAPSHOT: Final = SnapshotKey(0, 0)
"""The snapshot that a quorum is formatted with: it has its voters, and no state (KIP-853)."""


class ServedLog(Protocol):
    """A metadata log, as observers read it."""

    @property
    def log_start(self) -> int:
        """The offset of the first batch."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        ...

    @property
    def watermark(self) -> int:
        """The offset after the last committed record."""
        ...

    def snapshot_keys(self) -> Sequence[SnapshotKey]:
        """The snapshots, oldest first."""
        ...

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is not above `epoch`, and the offset after its last record."""
        ...

    def read(self, offset: int, *, size_max: int) -> Records:
        """Bytes from the batch that has `offset`: one whole batch, and more up to `size_max`."""
        ...

    def read_snapshot(self, key: SnapshotKey, position: int, size_max: int) -> SnapshotPart | None:
        """Bytes of a snapshot from a position on; None: there is no such snapshot."""
        ...


class SeenObserver(NamedTuple):
    """The last Fetch of an observer."""

    offset: int
    at_ms: int
    caught_up_ms: int = _NOTHING
    """When it last had the whole log."""
    directory_id: UUID = NO_UUID
    """Its metadata directory, where it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """A quorum at one moment, as one of its nodes sees it."""

    cluster_id: str
    node_id: int
    """The node that answers."""
    leader_id: int
    """The active one; -1: there is none."""
    epoch: int
    log: ServedLog
    endpoints: Mapping[int, tuple[str, int]]
    """Host and port of each voter."""
    listener: str = LISTENER
    """Name of that listener."""
    directory_id: UUID = NO_UUID
    """The leader's metadata directory, where the log names the voters (KIP-853)."""


def snapshot_for(log: ServedLog, offset: int, last_epoch: int) -> SnapshotKey | None:
    """The snapshot that an observer at this end of its log has to take first; None: no need."""
    keys = [each for each in log.snapshot_keys() if each != FIRST_SNAPSHOT]
    if not keys:
        return None
    oldest, newest = keys[0], keys[-1]
    # A new observer gets a snapshot also where the log is whole: it is shorter.
    if offset == 0 or offset < log.log_start:
        return newest
    if last_epoch < oldest.epoch and log.log_start:
        return newest
    is_at_start = offset == log.log_start == oldest.end_offset
    return newest if is_at_start and last_epoch != oldest.epoch else None


def is_due(quorum: Quorum, request: FetchRequest) -> bool:
    """Whether a Fetch is answered now, or waits for a record or a commit."""
    asked, error = _checked(quorum, request)
    if error or asked is None:
        return True
    log = quorum.log
    return (
        # Since version 18 an observer says what it knows to be committed (KIP-1166).
        asked.high_watermark < log.watermark
        or asked.fetch_offset < log.end_offset
        or snapshot_for(log, asked.fetch_offset, asked.last_fetched_epoch) is not None
        or _diverging(log, asked) is not None
    )


def later_epoch(quorum: Quorum, request: FetchRequest) -> int | None:
    """The epoch of an observer that this leader does not know, though it has all of its log.

    None where the observer has anything that is not in the log: its epoch is another history's.
    """
    asked, error = _checked(quorum, request)
    if asked is None or error is not ErrorCode.UNKNOWN_LEADER_EPOCH:
        return None
    known, log = asked.current_leader_epoch, quorum.log
    has_all = asked.fetch_offset <= log.end_offset and _diverging(log, asked) is None
    # An epoch that is further away is damaged, and the last ones are for starts.
    is_sound = known - quorum.epoch <= EPOCHS_SKIPPED_MAX and known <= EPOCH_TAKEN_MAX
    return known if has_all and is_sound else None


def differing(quorum: Quorum, request: FetchRequest) -> FetchPartition | None:
    """The end of an observer's log that has records which this log has not; None: it has none."""
    asked, error = _checked(quorum, request)
    if asked is None or error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH):
        return None
    log = quorum.log
    if snapshot_for(log, asked.fetch_offset, asked.last_fetched_epoch) is not None:
        return None
    return asked if _diverging(log, asked) is not None else None


def fetch_answer(quorum: Quorum, request: FetchRequest) -> FetchResponse:
    """The answer to a Fetch of the metadata log."""
    asked, error = _checked(quorum, request)
    # The cluster and the shape of the request are wrong as a whole.
    if asked is None:
        return FetchResponse(
            throttle_time_ms=0, error_code=error, session_id=0, responses=(), node_endpoints=()
        )
    log = quorum.log
    fields: dict[str, object] = {}
    records: Records = b""
    if not error:
        snapshot = snapshot_for(log, asked.fetch_offset, asked.last_fetched_epoch)
        diverging = None if snapshot is not None else _diverging(log, asked)
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
        current_leader=LeaderIdAndEpoch(leader_id=quorum.leader_id, leader_epoch=quorum.epoch),
        aborted_transactions=None,
        records=records,
        **fields,  # type: ignore[arg-type]
    )
    leader = quorum.endpoints.get(quorum.leader_id)
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
        else (NodeEndpoint(node_id=quorum.leader_id, host=leader[0], port=leader[1]),),
    )


def _checked(quorum: Quorum, request: FetchRequest) -> tuple[FetchPartition | None, ErrorCode]:
    """The one partition of a request, and its error; None: the request is wrong as a whole."""
    if request.cluster_id not in (None, quorum.cluster_id):
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
    return asked, _leader_error(quorum, asked.current_leader_epoch)


def _leader_error(quorum: Quorum, epoch: int) -> ErrorCode:
    if epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > quorum.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if quorum.node_id != quorum.leader_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def _diverging(log: ServedLog, asked: FetchPartition) -> EpochEndOffset | None:
    """The end of what the observer has in common with the log; None: it has nothing else."""
    if asked.fetch_offset == 0:
        return None
    epoch, end = log.end_of_epoch(asked.last_fetched_epoch)
    if epoch == asked.last_fetched_epoch and asked.fetch_offset <= end:
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end)


def snapshot_answer(
    quorum: Quorum, request: FetchSnapshotRequest, *, size_max: int = INT32_MAX
) -> FetchSnapshotResponse:
    """The answer to a FetchSnapshot: at most `size_max` bytes of a snapshot, from a position on."""
    leader = quorum.endpoints.get(quorum.leader_id)
    error, topics = ErrorCode.NONE, []
    named = [each for topic in request.topics for each in topic.partitions]
    if request.cluster_id not in (None, quorum.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
    elif len(named) != 1 or request.topics[0].name != METADATA_TOPIC:
        error = ErrorCode.INVALID_REQUEST
    else:
        part = _snapshot_part(quorum, named[0], size_max=max(0, min(request.max_bytes, size_max)))
        topics.append(FetchSnapshotResponseTopicSnapshot(name=METADATA_TOPIC, partitions=(part,)))
    return FetchSnapshotResponse(
        throttle_time_ms=0,
        error_code=error,
        topics=tuple(topics),
        node_endpoints=()
        if leader is None
        else (SnapshotEndpoint(node_id=quorum.leader_id, host=leader[0], port=leader[1]),),
    )


def _snapshot_part(
    quorum: Quorum, asked: PartitionSnapshot, *, size_max: int
) -> FetchSnapshotResponsePartitionSnapshot:
    wanted = SnapshotKey(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    error = _leader_error(quorum, asked.current_leader_epoch)
    part = None
    if not error and asked.position < 0:
        error = ErrorCode.POSITION_OUT_OF_RANGE
    elif not error:
        part = quorum.log.read_snapshot(wanted, asked.position, size_max)
        if part is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif asked.position >= part.size:
            error = ErrorCode.POSITION_OUT_OF_RANGE
    if error or part is None:
        part = SnapshotPart(0, b"")
    return FetchSnapshotResponsePartitionSnapshot(
        index=asked.partition,
        error_code=error,
        snapshot_id=AskedSnapshot(end_offset=wanted.end_offset, epoch=wanted.epoch),
        current_leader=SnapshotLeader(leader_id=quorum.leader_id, leader_epoch=quorum.epoch),
        size=part.size,
        position=asked.position,
        unaligned_records=part.data,
    )


def quorum_answer(
    quorum: Quorum,
    request: DescribeQuorumRequest,
    *,
    observers: Mapping[int, SeenObserver],
    now_ms: int,
) -> DescribeQuorumResponse:
    """The answer to DescribeQuorum: the nodes have the whole log, observers what they fetched."""
    log = quorum.log
    voters = tuple(
        ReplicaState(
            replica_id=each,
            replica_directory_id=quorum.directory_id,
            log_end_offset=log.end_offset,
            # Kafka, too, has the present for both times of the leader (KIP-836).
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for each in quorum.endpoints
    )
    partition = DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=log.watermark,
        current_voters=voters,
        observers=tuple(
            ReplicaState(
                replica_id=each,
                replica_directory_id=seen.directory_id,
                log_end_offset=seen.offset,
                last_fetch_timestamp=seen.at_ms,
                last_caught_up_timestamp=seen.caught_up_ms,
            )
            for each, seen in observers.items()
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
            Node(node_id=each, listeners=(Listener(name=quorum.listener, host=host, port=port),))
            for each, (host, port) in quorum.endpoints.items()
        ),
    )
