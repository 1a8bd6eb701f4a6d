"""Replicas of partitions: elect leaders, and move replicas to other brokers.

admin.elect_leaders([TopicPartition("flights", 0)])
admin.alter_partition_reassignments({TopicPartition("flights", 0): [2, 3], other: None})
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from tailrace.client.admin.items import (
    ItemRequest,
    ask_one,
    by_topic,
    entry_error,
    for_each,
    of_partitions,
    partition_values_in,
    partitions_in,
)
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.routes import CONTROLLER
from tailrace.model import TopicPartition
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tailrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.errors import TailraceError


# KIP-460 added the unclean kind, which Kafka had only as a setting before.
class ElectionType(IntEnum):
    """Kinds of elections, by Kafka's number."""

    PREFERRED = 0
    """The first replica in the list leads, if it is in sync."""
    UNCLEAN = 1
    """Any living replica leads where none is in sync; records may be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition whose replicas are moved."""

    replicas: tuple[int, ...]
    """All brokers that have it now, or are to have it."""
    adding: tuple[int, ...]
    """Brokers that get it."""
    removing: tuple[int, ...]
    """Brokers that lose it."""


def elect_leaders(
    call: Call,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    election: ElectionType = ElectionType.PREFERRED,
) -> Steps[Outcomes[TopicPartition, None]]:
    """Elect leaders of these partitions, or of all that need it.

    A partition whose leader stays has a RemoteRetriableError with ELECTION_NOT_NEEDED. Repeated
    after a lost connection.

    Raises:
        UnsupportedBrokerError: the broker lacks the API (before Kafka 2.2), or this kind (2.4).
        RemoteFatalError: the controller refuses all of it.
        OperationTimeoutError: no answer within the time limit.
    """
    wanted = None if partitions is None else partitions_in(partitions)
    # None in the request means all partitions, an empty list nothing: so no request.
    if wanted == []:
        return Outcomes({})
    chosen = None
    if wanted is not None:
        chosen = tuple(
            TopicPartitions(topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic(set(wanted)).items()
        )
    request: ItemRequest[str, dict[TopicPartition, TailraceError | None], ElectLeadersResponse]
    request = ItemRequest(
        what="the election",
        target=CONTROLLER,
        request=lambda _: ElectLeadersRequest(
            election_type=election, topic_partitions=chosen, timeout_ms=call.left_ms
        ),
        response=ElectLeadersResponse,
        value=lambda _, answer: {
            (partition := TopicPartition(topic.topic, each.partition_id)): entry_error(
                each, about=str(partition)
            )
            for topic in answer.replica_election_results
            for each in topic.partition_result
        },
        # An older broker elects the preferred leader, whatever is asked.
        first_version=0 if election is ElectionType.PREFERRED else 1,
    )
    # For all partitions the answer lists those with a change, and leaves out those that needed
    # none.
    outcomes = Outcomes((yield from ask_one(call, request)))
    return outcomes if wanted is None else outcomes.about(wanted, answer="ElectLeaders")


def alter_partition_reassignments(
    call: Call,
    replicas: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
) -> Steps[Outcomes[TopicPartition, None]]:
    """Begin to move partitions to these brokers; None ends a move that is under way.

    Done when the controller has noted it; `list_partition_reassignments` shows what is under way.
    Repeated after a lost connection.
    """
    kinds = (Sequence, type(None))
    wanted: dict[TopicPartition, Sequence[int] | None] = partition_values_in(
        replicas, what="replicas", kinds=kinds
    )
    request: ItemRequest[TopicPartition, None, AlterPartitionReassignmentsResponse] = ItemRequest(
        what="the replicas of",
        target=CONTROLLER,
        request=lambda batch: AlterPartitionReassignmentsRequest(
            timeout_ms=call.left_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=tuple(
                ReassignableTopic(
                    name=topic,
                    partitions=tuple(
                        _reassignable(number, wanted[TopicPartition(topic, number)])
                        for number in numbers
                    ),
                )
                for topic, numbers in by_topic(batch).items()
            ),
        ),
        response=AlterPartitionReassignmentsResponse,
        entries=lambda answer, _: of_partitions(answer.responses),
        # Older brokers would change the replication factor.
        # KIP-860, from version 1 on.
        first_version=0 if allow_replication_factor_change else 1,
    )
    return (yield from for_each(call, wanted, request))


def list_partition_reassignments(
    call: Call, partitions: Iterable[TopicPartition] | None = None
) -> Steps[dict[TopicPartition, Reassignment]]:
    """The partitions among these, or among all, whose replicas are being moved.

    Raises:
        UnsupportedBrokerError: the broker lacks the API (before Kafka 2.4).
        RemoteFatalError: the controller refuses.
        OperationTimeoutError: no answer within the time limit.
    """
    chosen = None
    if partitions is not None:
        chosen = tuple(
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=tuple(numbers))
            for topic, numbers in by_topic(set(partitions_in(partitions))).items()
        )
    request: ItemRequest[
        str, dict[TopicPartition, Reassignment], ListPartitionReassignmentsResponse
    ] = ItemRequest(
        what="the reassignments",
        target=CONTROLLER,
        request=lambda _: ListPartitionReassignmentsRequest(timeout_ms=call.left_ms, topics=chosen),
        response=ListPartitionReassignmentsResponse,
        value=lambda _, answer: {
            partition: Reassignment(
                replicas=each.replicas, adding=each.adding_replicas, removing=each.removing_replicas
            )
            for partition, each in of_partitions(answer.topics)
        },
    )
    return (yield from ask_one(call, request))


def _reassignable(number: int, brokers: Sequence[int] | None) -> ReassignablePartition:
    return ReassignablePartition(
        # Null cancels a move (KIP-455); an empty list is an error.
        partition_index=number,
        replicas=None if brokers is None else tuple(brokers),
    )
