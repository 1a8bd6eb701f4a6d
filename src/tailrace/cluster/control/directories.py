"""Log directories of brokers: which replica is where, which have failed, which take no more.

AssignReplicasToDirs   a broker says in which directory a replica is (KIP-858)
heartbeat, offline     directories that have failed: their replicas are out of sync
heartbeat, cordoned    directories that get no new replicas (KIP-1066)
"""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, cast
from uuid import UUID

from tailrace.cluster.control.leaders import directory_failure, leader_changes
from tailrace.cluster.control.state import (
    LOST,
    RESERVED_DIRECTORIES,
    ControlState,
    Decision,
    RefusedError,
)
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.delta import changed_partition
from tailrace.cluster.partition_change import NO_LEADER, Wanted
from tailrace.cluster.records import UNASSIGNED, registration_change
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)

if TYPE_CHECKING:
    from tailrace.cluster.metadata.image import TopicState
    from tailrace.protocol.metadata_records import PartitionChangeRecord, PartitionRecord


def assign_directories(state: ControlState, request: AssignReplicasToDirsRequest) -> Decision:
    """Note in which log directories of a broker some of its replicas are.

    A replica in a directory that is not online is lost: it leaves the ISR. One whose directory is
    gone is taken for empty beside a leader, from which it fetches all again. Without a leader it
    may be the only one that has all, moved by hand or under a new id of its directory: it is
    elected where it was eligible or led last, as by Kafka's controller. A broker of Tailrace names
    no place of an empty replica then, if there are others (`broker.kraft.applying`).

    Raises:
        RefusedError: UNSUPPORTED_VERSION: the cluster is at a level without directories;
            STALE_BROKER_EPOCH.
    """
    if not state.names_directories:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet."
        )
    broker_id = request.broker_id
    state.check_epoch(broker_id, request.broker_epoch)
    records: list[RecordToWrite] = []
    # As the records so far leave it. Kafka's controller makes all of them of the state before, and
    # may elect a replica that the first one has removed.
    changed: dict[tuple[UUID, int], PartitionRecord] = {}
    lost: dict[tuple[UUID, int], TopicState] = {}
    leaderless: dict[tuple[UUID, int], TopicState] = {}
    directories = []
    for directory in request.directories:
        is_online = state.is_online(broker_id, directory.id)
        topics = []
        for named in directory.topics:
            topic = state.image.topics.get(named.topic_id)
            answers = []
            for each in named.partitions:
                number, code = each.partition_index, ErrorCode.NONE
                partition = None if topic is None else topic.partitions.get(number)
                partition = changed.get((named.topic_id, number), partition)
                if topic is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                elif partition is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif broker_id not in partition.replicas:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    is_led = partition.leader != NO_LEADER
                    is_new = is_led and _begins_empty(
                        state, partition, broker_id, now_in=directory.id
                    )
                    wanted = Wanted(
                        directories={broker_id: directory.id},
                        emptied=broker_id if is_new else None,
                    )
                    record = state.change(topic, partition, wanted)
                    if record is not None:
                        records.append(record)
                        partition = changed_partition(
                            partition, cast("PartitionChangeRecord", record.record)
                        )
                    changed[topic.topic_id, number] = partition
                    if not is_online:
                        lost[topic.topic_id, number] = topic
                    elif not is_led:
                        leaderless[topic.topic_id, number] = topic
                answers.append(
                    AssignReplicasToDirsResponsePartitionData(
                        partition_index=number, error_code=code
                    )
                )
            topics.append(
                AssignReplicasToDirsResponseTopicData(
                    topic_id=named.topic_id, partitions=tuple(answers)
                )
            )
        directories.append(
            AssignReplicasToDirsResponseDirectoryData(id=directory.id, topics=tuple(topics))
        )
    # The last record of such a partition says nothing of directories, so the one before it counts.
    out_of_sync = [(topic, changed[place]) for place, topic in lost.items()]
    records += leader_changes(state, out_of_sync, removed=broker_id)
    # At once: the broker may be in service already, and nothing else would have them elect.
    records += leader_changes(
        state,
        [(topic, changed[place]) for place, topic in leaderless.items() if place not in lost],
    )
    answer = AssignReplicasToDirsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, directories=tuple(directories)
    )
    return Decision(records, answer)


def _begins_empty(
    state: ControlState, partition: "PartitionRecord", broker_id: int, *, now_in: UUID
) -> bool:
    """Whether a replica is in a new directory because its broker no longer has the one before."""
    own = dict(zip(partition.replicas, partition.directories, strict=False))
    before = own.get(broker_id, UNASSIGNED)
    if before == now_in:
        return False
    return before == LOST or (
        before.int >= RESERVED_DIRECTORIES and before not in state.image.brokers[broker_id].log_dirs
    )


def offline_records(
    state: ControlState, broker_id: int, offline: Collection[UUID]
) -> Iterator[RecordToWrite]:
    """The records that follow from the directories that a broker has lost since it registered."""
    broker = state.image.brokers[broker_id]
    # A broker names all of them in each heartbeat; what is not registered any more is old news.
    failed = [each for each in broker.log_dirs if each in offline]
    if not failed:
        return
    for directory in failed:
        yield from directory_failure(state, broker_id, directory)
    rest = tuple(each for each in broker.log_dirs if each not in offline)
    yield registration_change(broker_id, broker.broker_epoch, log_dirs=rest)


def cordon_records(
    state: ControlState, broker_id: int, cordoned: Collection[UUID] | None
) -> Iterator[RecordToWrite]:
    """The record that names the directories of a broker that get no new replicas."""
    # Null until the broker knows its settings.
    if cordoned is None:
        return
    broker = state.image.brokers[broker_id]
    known = broker.cordoned_log_dirs
    if known is None or set(known) != set(cordoned):
        yield registration_change(broker_id, broker.broker_epoch, cordoned_log_dirs=tuple(cordoned))
