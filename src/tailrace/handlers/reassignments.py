"""Other replicas and other leaders for partitions, of which a node that is alone has none."""

from collections.abc import Iterable
from enum import IntEnum
from functools import partial

from tailrace.handlers.services import Services
from tailrace.handlers.topics import assignment_fault
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tailrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tailrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tailrace.runtime.slices import Slices, each_in_slices


async def handle_alter_partition_reassignments(
    services: Services, _: RequestHeader, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """AlterPartitionReassignments (45): give partitions other replicas, or cancel that (KIP-455).

    Versions: 0 to 1.
    Behaviour: this broker has every replica, so the only assignment is the present one, which
        changes nothing. No broker, a broker that does not exist, or one twice is
        INVALID_REPLICA_ASSIGNMENT. Null replicas cancel a reassignment, of which there is none:
        NO_REASSIGNMENT_IN_PROGRESS.
    Version notes: v1 can refuse another number of replicas, which no assignment of one broker has.
    Not done: reassignments; in a cluster the controllers do them.
    """
    slices = Slices()
    responses = []
    for topic in request.topics:
        alter = partial(_alter, services, topic.name)
        altered = await each_in_slices(topic.partitions, alter, slices)
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=tuple(altered)))
        await slices.turn()
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=tuple(responses),
    )


def _alter(
    services: Services, topic: str, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    code, message = ErrorCode.NONE, None
    # As in Kafka a partition that does not exist is no error of the others.
    if not services.has_partition(TopicPartition(topic, wanted.partition_index)):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # Null cancels (KIP-455), and in Kafka too it is an error if there is nothing to cancel.
    elif wanted.replicas is None:
        code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    else:
        message = assignment_fault(services, wanted.partition_index, wanted.replicas)
        code = ErrorCode.NONE if message is None else ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if code is not ErrorCode.NONE:
        message = message or code.message
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=code, error_message=message
    )


def handle_list_partition_reassignments(
    _services: Services, _: RequestHeader, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """ListPartitionReassignments (46): the partitions that are getting other replicas (KIP-455).

    Versions: 0.
    Behaviour: one broker has no other replicas to give, so the list is empty.
    Not done: reassignments; in a cluster the controllers do them.
    """
    # Also for partitions that do not exist: Kafka leaves them out, without an error.
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None)


class _ElectionType(IntEnum):
    """The replicas that may be elected, by Kafka's number."""

    PREFERRED = 0
    UNCLEAN = 1


# A set of ints: the type is any int8, and `_ElectionType(5)` would raise.
_ELECTION_TYPES = frozenset(_ElectionType)


async def handle_elect_leaders(
    services: Services, _: RequestHeader, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """ElectLeaders (43): make the preferred replica of a partition its leader, or any live one.

    Versions: 0 to 2.
    Behaviour: this broker has the only replica of every partition, so a partition with a leader is
        ELECTION_NOT_NEEDED. One without, whose log directory has failed, has no replica to elect:
        PREFERRED_LEADER_NOT_AVAILABLE or, in an unclean election, ELIGIBLE_LEADERS_NOT_AVAILABLE. A
        request for all partitions gets every topic, but only the partitions without a leader. An
        unknown type of election is INVALID_REQUEST.
    Version notes: v1 has the type of election (KIP-460); before it is the preferred replica's.
    Not done: elections; in a cluster the controllers hold them.
    """
    is_known, wants_all = request.election_type in _ELECTION_TYPES, request.topic_partitions is None
    slices = Slices()
    results = []
    # Like Kafka's error for a whole request: each named partition has it, and a request for all has
    # the code at the top alone.
    for name, numbers in _wanted(services, request) if is_known or not wants_all else ():
        elect = partial(_elect, services, name, election_type=request.election_type)
        elected = await each_in_slices(numbers, elect, slices)
        if wants_all:
            # As in Kafka an answer for all leaves out partitions that need no election, but names
            # each topic.
            elected = [each for each in elected if each.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        results.append(ReplicaElectionResult(topic=name, partition_result=tuple(elected)))
        await slices.turn()
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST,
        replica_election_results=tuple(results),
    )


def _wanted(
    services: Services, request: ElectLeadersRequest
) -> Iterable[tuple[str, Iterable[int]]]:
    """The requested partitions by topic; all if the request names none."""
    if request.topic_partitions is None:
        topics = services.cluster.image.topics.values()
        return ((topic.name, range(topic.partition_count)) for topic in topics)
    return ((topic.topic, topic.partitions) for topic in request.topic_partitions)


def _elect(services: Services, name: str, number: int, *, election_type: int) -> PartitionResult:
    code = _outcome(services, TopicPartition(name, number), election_type)
    return PartitionResult(partition_id=number, error_code=code, error_message=code.message)


def _outcome(services: Services, name: TopicPartition, election_type: int) -> ErrorCode:
    if election_type not in _ELECTION_TYPES:
        return ErrorCode.INVALID_REQUEST
    if not services.has_partition(name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # The only replica is the preferred one, so a leader is always the right one.
    if services.replicas.is_led(name):
        return ErrorCode.ELECTION_NOT_NEEDED
    if election_type == _ElectionType.PREFERRED:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
