"""AlterPartition: a leader changes the set of replicas in sync (KIP-497, KIP-841, KIP-903).

The checks are Kafka's, in its order, since the leader acts on the code:

    41, 74, 95      it or this controller is not up to date; it asks again when it is
    42, 3, 100      nothing that another request would change
    107             a member may not be in sync now; it is proposed again later
    108             the change was made, and completed a reassignment that moved the leader
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.cluster.control.leaders import elections
from tailrace.cluster.control.state import ControlState, Decision, RefusedError
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.delta import NO_LEADER_CHANGE, changed_partition
from tailrace.cluster.metadata.image import TopicState
from tailrace.cluster.partition_change import RECOVERED, RECOVERING, Wanted
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
    PartitionData,
)

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import PartitionRecord

_NOT_GIVEN = -1


def alter_partitions(state: ControlState, request: AlterPartitionRequest) -> Decision:
    """Change the ISRs of partitions that a broker leads; each is changed or refused by itself.

    Raises:
        RefusedError: STALE_BROKER_EPOCH.
    """
    state.check_epoch(request.broker_id, request.broker_epoch)
    records: list[RecordToWrite] = []
    topics = []
    for named in request.topics:
        topic = state.image.topics.get(named.topic_id)
        answers = []
        for asked in named.partitions:
            try:
                if topic is None:
                    raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID)
                answers.append(
                    _alter(state, topic, asked, broker_id=request.broker_id, records=records)
                )
            except RefusedError as error:
                answers.append(_refused(asked, error.code))
        topics.append(
            AlterPartitionResponseTopicData(topic_id=named.topic_id, partitions=tuple(answers))
        )
    answer = AlterPartitionResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, topics=tuple(topics)
    )
    return Decision(records, answer)


def _alter(
    state: ControlState,
    topic: TopicState,
    asked: PartitionData,
    *,
    broker_id: int,
    records: list[RecordToWrite],
) -> AlterPartitionResponsePartitionData:
    partition = topic.partitions.get(asked.partition_index)
    if partition is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # Before version 3 members have no epochs: one that has restarted since is not noticed.
    members = asked.new_isr_with_epochs or tuple(
        BrokerState(broker_id=each, broker_epoch=_NOT_GIVEN) for each in asked.new_isr
    )
    _check(state, partition, asked, broker_id=broker_id, members=members)
    wanted = Wanted(
        isr=tuple(each.broker_id for each in members),
        recovery=asked.leader_recovery_state,
        election=elections(state, topic.name),
    )
    record = state.change(topic, partition, wanted)
    if record is not None:
        records.append(record)
        change = record.record
        partition = changed_partition(partition, change)  # type: ignore[arg-type]
        # A reassignment is complete, and the leader is not part of the target: it must not go on
        # as one, but fetch the new state.
        if change.leader not in (broker_id, NO_LEADER_CHANGE):  # type: ignore[attr-defined]
            raise RefusedError(ErrorCode.NEW_LEADER_ELECTED)
    return AlterPartitionResponsePartitionData(
        partition_index=asked.partition_index,
        error_code=ErrorCode.NONE,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _check(
    state: ControlState,
    partition: "PartitionRecord",
    asked: PartitionData,
    *,
    broker_id: int,
    members: Sequence[BrokerState],
) -> None:
    # A leader that knows more than this controller: another one is active by now.
    if asked.leader_epoch > partition.leader_epoch:
        raise RefusedError(ErrorCode.NOT_CONTROLLER)
    if asked.partition_epoch > partition.partition_epoch:
        raise RefusedError(ErrorCode.NOT_CONTROLLER)
    if asked.leader_epoch < partition.leader_epoch:
        raise RefusedError(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise RefusedError(ErrorCode.INVALID_REQUEST)
    if asked.partition_epoch < partition.partition_epoch:
        raise RefusedError(ErrorCode.INVALID_UPDATE_VERSION)
    isr = [each.broker_id for each in members]
    is_possible = bool(isr) and len(set(isr)) == len(isr) and set(isr) <= set(partition.replicas)
    if not is_possible or partition.leader not in isr:
        raise RefusedError(ErrorCode.INVALID_REQUEST)
    if asked.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise RefusedError(ErrorCode.INVALID_REQUEST)
    # A leader that was elected uncleanly is alone until it has recovered (KIP-704).
    if asked.leader_recovery_state == RECOVERING and len(isr) > 1:
        raise RefusedError(ErrorCode.INVALID_REQUEST)
    if partition.leader_recovery_state == RECOVERED and asked.leader_recovery_state == RECOVERING:
        raise RefusedError(ErrorCode.INVALID_REQUEST)
    if not all(_is_eligible(state, each) for each in members):
        raise RefusedError(ErrorCode.INELIGIBLE_REPLICA)


def _is_eligible(state: ControlState, member: BrokerState) -> bool:
    """Whether a broker may be in sync: it serves, in the epoch in which it has fetched."""
    if not state.is_active(member.broker_id):
        return False
    # Restarted since its last fetch it may have lost records that it had (KIP-903).
    epoch = state.image.brokers[member.broker_id].broker_epoch
    return member.broker_epoch in (_NOT_GIVEN, epoch)


def _refused(asked: PartitionData, code: ErrorCode) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(
        partition_index=asked.partition_index,
        error_code=code,
        leader_id=0,
        leader_epoch=0,
        isr=(),
        leader_recovery_state=RECOVERED,
        partition_epoch=0,
    )
