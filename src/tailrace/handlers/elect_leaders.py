"""ElectLeaders (43): make the preferred replica of partitions their leader, or any that is alive.

Versions: 0 to 2.
Behaviour: this broker has the only replica of every partition, so a partition with a leader is
    ELECTION_NOT_NEEDED. One without, whose log directory has failed, has no replica to elect:
    PREFERRED_LEADER_NOT_AVAILABLE or, in an unclean election, ELIGIBLE_LEADERS_NOT_AVAILABLE. A
    request for all partitions gets only those without a leader. An unknown type of election is
    INVALID_REQUEST.
Version notes: v1 has the type of election (KIP-460); before it is the preferred replica's.
Not done: elections, until there are several brokers.
"""

from collections.abc import Iterable
from enum import IntEnum
from functools import partial

from tailrace.handlers.services import Services
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tailrace.runtime.slices import Slices, each_in_slices


class _ElectionType(IntEnum):
    """The replicas that may be elected, by Kafka's number."""

    PREFERRED = 0
    UNCLEAN = 1


_ELECTION_TYPES = frozenset(_ElectionType)


async def handle_elect_leaders(
    services: Services, _: RequestHeader, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """The outcome for every requested partition."""
    is_known, wants_all = request.election_type in _ELECTION_TYPES, request.topic_partitions is None
    slices = Slices()
    results = []
    for name, numbers in _wanted(services, request) if is_known or not wants_all else ():
        elect = partial(_elect, services, name, election_type=request.election_type)
        elected = await each_in_slices(numbers, elect, slices)
        if wants_all:
            elected = [each for each in elected if each.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        if elected or not wants_all:
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
        topics = services.controller.image.topics.values()
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
    if services.replicas.is_led(name):
        return ErrorCode.ELECTION_NOT_NEEDED
    if election_type == _ElectionType.PREFERRED:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
