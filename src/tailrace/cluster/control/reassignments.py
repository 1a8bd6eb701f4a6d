"""AlterPartitionReassignments and ListPartitionReassignments: replicas move to other brokers.

    [1 2 3] -> [1 4]      replicas [1 4 2 3]   adding [4]   removing [2 3]     as soon as asked
                          replicas [1 4]                                       once 4 is in sync

The target is taken in the AlterPartition that brings the last of its replicas in sync, or at once
if they are. Until then all replicas of both fetch, and a second request or a cancellation may come.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.cluster.control.leaders import elections
from tailrace.cluster.control.state import ControlState, Decision, RefusedError
from tailrace.cluster.control.topics import check_assignment
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import TopicState
from tailrace.cluster.partition_change import Election, Wanted
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tailrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import PartitionRecord


class Reassignment(NamedTuple):
    """A way from one set of replicas to another."""

    replicas: tuple[int, ...]
    """All of both, in the order of the target."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def plan_reassignment(current: Sequence[int], target: Sequence[int]) -> Reassignment:
    """The way from the replicas of a partition to others."""
    removing = tuple(sorted(set(current) - set(target)))
    adding = tuple(sorted(set(target) - set(current)))
    return Reassignment((*target, *removing), adding, removing)


def alter_reassignments(
    state: ControlState, request: AlterPartitionReassignmentsRequest
) -> Decision:
    """Begin, replace or cancel reassignments; each partition by itself (KIP-455)."""
    records: list[RecordToWrite] = []
    responses = []
    allows_factor = request.allow_replication_factor_change
    for named in request.topics:
        answers = []
        for each in named.partitions:
            code, message = ErrorCode.NONE, None
            try:
                record = _alteration(state, named.name, each, allows_factor=allows_factor)
                if record is not None:
                    records.append(record)
            except RefusedError as error:
                code, message = error.code, error.message
            answers.append(
                ReassignablePartitionResponse(
                    partition_index=each.partition_index, error_code=code, error_message=message
                )
            )
        responses.append(ReassignableTopicResponse(name=named.name, partitions=tuple(answers)))
    answer = AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=allows_factor,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=tuple(responses),
    )
    return Decision(records, answer)


def _alteration(
    state: ControlState, name: str, target: ReassignablePartition, *, allows_factor: bool
) -> RecordToWrite | None:
    topic = state.image.topic(name)
    if topic is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
        )
    partition = topic.partitions.get(target.partition_index)
    if partition is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {name}:{target.partition_index}.",
        )
    if target.replicas is None:
        return _cancellation(state, topic, partition)
    check_assignment(state, target.replicas)
    if not allows_factor:
        _check_factor(partition, target.replicas)
    plan = plan_reassignment(partition.replicas, target.replicas)
    # Where it adds or removes none, those of an earlier reassignment stay, as in Kafka.
    wanted = Wanted(
        replicas=plan.replicas if plan.replicas != partition.replicas else None,
        removing=plan.removing or None,
        adding=plan.adding or None,
    )
    return state.change(topic, partition, wanted)


def _cancellation(
    state: ControlState, topic: TopicState, partition: "PartitionRecord"
) -> RecordToWrite | None:
    """The change back to the replicas before a reassignment."""
    if not is_reassigning(partition):
        raise RefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    adding = partition.adding_replicas
    replicas = tuple(each for each in partition.replicas if each not in adding)
    isr = tuple(each for each in partition.isr if each not in adding)
    election = elections(state, topic.name)
    if not isr:
        # All that are in sync would go; the first of the others leads, and may lack records.
        if not replicas:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Invalid replica assignment: addingReplicas contains all replicas.",
            )
        if election is not Election.UNCLEAN:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:"
                f"{partition.partition_id} because it would require an unclean leader election.",
            )
        isr = replicas[:1]
    wanted = Wanted(isr=isr, replicas=replicas, removing=(), adding=(), election=election)
    return state.change(topic, partition, wanted)


def _check_factor(partition: "PartitionRecord", target: Sequence[int]) -> None:
    # Of a reassignment that is under way, its target counts (KIP-860).
    factor = len(set(partition.replicas) - set(partition.removing_replicas))
    if factor != len(target):
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {len(target)}",
        )


def list_reassignments(state: ControlState, request: ListPartitionReassignmentsRequest) -> Decision:
    """The reassignments that are under way, of all topics or of some partitions."""
    asked: Iterable[tuple[str, Sequence[int]]]
    if request.topics is None:
        asked = [(topic.name, tuple(topic.partitions)) for topic in state.image.topics.values()]
    else:
        asked = [(each.name, each.partition_indexes) for each in request.topics]
    topics = []
    for name, numbers in asked:
        topic = state.image.topic(name)
        if topic is None:
            continue
        known = [topic.partitions[number] for number in numbers if number in topic.partitions]
        under_way = tuple(
            OngoingPartitionReassignment(
                partition_index=each.partition_id,
                replicas=each.replicas,
                adding_replicas=each.adding_replicas,
                removing_replicas=each.removing_replicas,
            )
            for each in known
            if is_reassigning(each)
        )
        if under_way:
            topics.append(OngoingTopicReassignment(name=name, partitions=under_way))
    answer = ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, topics=tuple(topics)
    )
    return Decision((), answer)


def is_reassigning(partition: "PartitionRecord") -> bool:
    """Whether a reassignment of a partition is under way."""
    return bool(partition.adding_replicas or partition.removing_replicas)
